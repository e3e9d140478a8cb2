//! The primitives of the frame arena that threads share: the standard library's atomics, or loom's, which explore all orders of
//! the threads' steps (`cargo xtask loom`, docs/adr/0020).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use self::models::{AtomicBool, AtomicU32};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

/// Under loom, a cell for each frame stands for the frame's contents: an access that others' accesses are not ordered with
/// is an error. Otherwise nothing at all.
#[cfg(not(loom))]
pub(crate) struct Contents;

#[cfg(not(loom))]
impl Contents {
    pub(crate) fn new(_frames: u32) -> Contents {
        Contents
    }

    #[inline(always)]
    pub(crate) fn read(&self, _frame: u32) {}

    #[inline(always)]
    pub(crate) fn write(&self, _frame: u32) {}
}

#[cfg(loom)]
pub(crate) use self::models::Contents;

#[cfg(loom)]
mod models {
    use std::cell::Cell;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{self, Ordering, fence};

    pub(crate) struct Contents(Box<[UnsafeCell<()>]>);

    impl Contents {
        pub(crate) fn new(frames: u32) -> Contents {
            Contents((0..frames).map(|_| UnsafeCell::new(())).collect())
        }

        pub(crate) fn read(&self, frame: u32) {
            self.0[frame as usize].with(|_| ());
        }

        pub(crate) fn write(&self, frame: u32) {
            self.0[frame as usize].with_mut(|_| ());
        }
    }

    loom::thread_local! {
        /// Whether the thread has made a sequentially consistent access.
        static CONSISTENT: Cell<bool> = Cell::new(false);
    }

    /// Does `access` with `order`. loom takes sequentially consistent accesses for acquiring and releasing ones, but knows
    /// the order of sequentially consistent fences: one between two such accesses of a thread makes up for that. It would be
    /// too much if the first of them were long ago and the thread had made others since.
    fn ordered<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
        if order == Ordering::SeqCst && CONSISTENT.with(|consistent| consistent.replace(true)) {
            fence(order);
        }
        access()
    }

    pub(crate) struct AtomicBool(atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> AtomicBool {
            AtomicBool(atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            ordered(order, || self.0.load(order))
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            ordered(order, || self.0.store(value, order));
        }
    }

    pub(crate) struct AtomicU32(atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn new(value: u32) -> AtomicU32 {
            AtomicU32(atomic::AtomicU32::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            ordered(order, || self.0.load(order))
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            ordered(order, || self.0.store(value, order));
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            ordered(order, || self.0.fetch_add(value, order))
        }

        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            ordered(order, || self.0.fetch_sub(value, order))
        }

        pub(crate) fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
            ordered(order, || self.0.fetch_or(value, order))
        }

        pub(crate) fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
            ordered(order, || self.0.fetch_and(value, order))
        }

        pub(crate) fn compare_exchange(
            &self,
            before: u32,
            after: u32,
            order: Ordering,
            failed: Ordering,
        ) -> Result<u32, u32> {
            ordered(order, || self.0.compare_exchange(before, after, order, failed))
        }
    }
}
