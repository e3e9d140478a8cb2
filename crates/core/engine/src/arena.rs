//! The frame arena: the memory of all frames, and the holds that are the only access to it.
//!
//! A [`Shared`] hold reads frames, an [`Exclusive`] hold writes them. A frame has any number of shared holders or one
//! exclusive holder; an atomic count per frame enforces this, so that access is sound whatever the holders do. Contents
//! start as zeros, and memory is not touched before its frame is used.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Contents, Ordering};

/// Frames are aligned for O_DIRECT if a block is at least this large.
const ALIGN: usize = 4096;
/// In a frame's count of holders: the only holder is exclusive.
const EXCLUSIVE: u32 = 1 << 31;

pub(crate) type FrameList = SmallVec<[u32; 4]>;

/// The memory of all frames.
pub(crate) struct Arena {
    /// The address that the allocator returned.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The first frame.
    base: NonNull<u8>,
    block_bytes: usize,
    /// Per frame: the number of shared holders, or `EXCLUSIVE`.
    holders: Box<[AtomicU32]>,
    /// Per frame: the checksum of its contents, or nothing at all.
    sums: Box<[AtomicU64]>,
    /// Whether requests wait for frames.
    wanted: AtomicBool,
    contents: Contents,
}

// SAFETY: the memory is reached only through holds, and `holders` lets a frame be shared by readers or owned by one
// writer; taking a hold acquires what the release of the conflicting one published.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// `frames` frames of `block_bytes`, which is a power of two, with or without checksums; `None` if the address space
    /// has no room.
    pub(crate) fn new(frames: u32, block_bytes: usize, has_sums: bool) -> Option<Arc<Arena>> {
        assert!(block_bytes.is_power_of_two() && frames > 0);
        let bytes = (frames as usize).checked_mul(block_bytes)?.checked_add(ALIGN)?;
        // Alignment by hand: the allocator leaves zeroed memory untouched only if it need not align it.
        let layout = Layout::from_size_align(bytes, 1).ok()?;
        // SAFETY: the layout's size is not zero.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let offset = allocation.as_ptr().align_offset(ALIGN);
        assert!(offset < ALIGN);
        // SAFETY: `offset` < ALIGN, and the allocation is ALIGN longer than the frames.
        let base = unsafe { allocation.add(offset) };
        let holders = (0..frames).map(|_| AtomicU32::new(0)).collect();
        let sums = (0..if has_sums { frames } else { 0 }).map(|_| AtomicU64::new(0)).collect();
        let wanted = AtomicBool::new(false);
        let contents = Contents::new(frames);
        Some(Arc::new(Arena { allocation, layout, base, block_bytes, holders, sums, wanted, contents }))
    }

    /// Memory of the counts of holders and of checksums.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        size_of_val(&*self.holders) + size_of_val(&*self.sums)
    }

    /// Whether `frame` has a holder. If not, those that it had are done with its contents.
    #[inline]
    pub(crate) fn held(&self, frame: u32) -> bool {
        self.holders[frame as usize].load(Ordering::SeqCst) != 0
    }

    /// Sets whether requests wait for frames, for threads that release holds from now on. All accesses to `wanted`, and
    /// those accesses to `holders` that release or look, are sequentially consistent: either the caller sees afterwards
    /// that a hold is released, or its holder sees `wanted`.
    pub(crate) fn want(&self, wanted: bool) {
        if self.wanted.load(Ordering::Relaxed) != wanted {
            self.wanted.store(wanted, Ordering::SeqCst);
        }
    }

    #[inline]
    fn add_reader(&self, frame: u32) {
        let before = self.holders[frame as usize].fetch_add(1, Ordering::Acquire);
        if before >= EXCLUSIVE - 1 {
            self.holders[frame as usize].fetch_sub(1, Ordering::Relaxed);
            panic!("frame {frame} is written by somebody and cannot be shared");
        }
    }

    fn add_writer(&self, frame: u32) {
        let holder = &self.holders[frame as usize];
        let taken = holder.compare_exchange(0, EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "frame {frame} is held by somebody and cannot be written");
    }

    /// The address of `frame`.
    #[inline]
    fn at(&self, frame: u32) -> *mut u8 {
        assert!((frame as usize) < self.holders.len());
        // SAFETY: `frame` is one of the arena's, so the sum stays inside the allocation.
        unsafe { self.base.as_ptr().add(frame as usize * self.block_bytes) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; every hold keeps the arena alive.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// The bytes of frame number `at` of a hold that skips `skip` bytes and then has `bytes` bytes, as a range within the
/// frame.
#[inline]
fn part(at: usize, skip: usize, bytes: usize, block_bytes: usize) -> (usize, usize) {
    let start = if at == 0 { skip } else { 0 };
    (start, (skip + bytes - at * block_bytes).min(block_bytes))
}

/// Frames that the holder may read: a run of bytes across them. Dropping it, on any thread and without the engine's
/// lock, releases the frames.
pub struct Shared {
    arena: Arc<Arena>,
    frames: FrameList,
    /// Bytes of the first frame that do not belong to the run.
    skip: usize,
    bytes: usize,
}

impl Shared {
    /// No frames yet.
    pub(crate) fn new(arena: &Arc<Arena>) -> Shared {
        Shared { arena: arena.clone(), frames: FrameList::new(), skip: 0, bytes: 0 }
    }

    /// `bytes` bytes of `frames`, from byte `skip` of the first.
    ///
    /// # Panics
    /// If one of them has an exclusive holder.
    #[inline]
    pub(crate) fn of(arena: &Arc<Arena>, frames: &[u32], skip: usize, bytes: usize) -> Shared {
        let mut shared = Shared::new(arena);
        for &frame in frames {
            shared.push(frame);
        }
        shared.part(skip, bytes)
    }

    /// The part of the frames that begins at byte `skip` of the first and has `bytes` bytes.
    #[inline]
    pub(crate) fn part(mut self, skip: usize, bytes: usize) -> Shared {
        assert!(skip < self.arena.block_bytes && skip + bytes <= self.frames.len() * self.arena.block_bytes);
        self.skip = skip;
        self.bytes = bytes;
        self
    }

    /// Adds all of `frame`.
    #[inline]
    pub(crate) fn push(&mut self, frame: u32) {
        self.arena.add_reader(frame);
        self.frames.push(frame);
        self.bytes += self.arena.block_bytes;
    }

    /// The frames that are held.
    pub(crate) fn frames(&self) -> &[u32] {
        &self.frames
    }

    /// The positions of frames that do not have the contents for which `Exclusive::seal` computed their checksums; none
    /// without checksums.
    pub(crate) fn damaged(&self) -> Vec<usize> {
        if self.arena.sums.is_empty() {
            return Vec::new();
        }
        let is_damaged = |&(_, &frame): &(usize, &u32)| {
            self.arena.contents.read(frame);
            // SAFETY: the hold is counted, so nobody writes the frame, which is in the arena as a whole.
            let bytes = unsafe { std::slice::from_raw_parts(self.arena.at(frame), self.arena.block_bytes) };
            XxHash3_64::oneshot(bytes) != self.arena.sums[frame as usize].load(Ordering::Relaxed)
        };
        self.frames.iter().enumerate().filter(is_damaged).map(|(at, _)| at).collect()
    }

    /// The length of the run in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The bytes, frame by frame.
    pub fn slices(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.frames.iter().enumerate().map(|(at, &frame)| {
            let (start, end) = part(at, self.skip, self.bytes, self.arena.block_bytes);
            self.arena.contents.read(frame);
            // SAFETY: the hold is counted, so nobody writes the frame; the range lies inside it.
            unsafe { std::slice::from_raw_parts(self.arena.at(frame).add(start), end - start) }
        })
    }

    /// Copies the bytes to `out`, which has the same length.
    pub fn copy_to(&self, mut out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes);
        for slice in self.slices() {
            let (now, later) = out.split_at_mut(slice.len());
            now.copy_from_slice(slice);
            out = later;
        }
    }

    /// Releases the frames, and returns whether requests wait for frames, in which case `Engine::poll` should be
    /// called.
    #[must_use = "requests may wait for these frames"]
    #[inline]
    pub fn release(mut self) -> bool {
        self.let_go();
        self.arena.wanted.load(Ordering::SeqCst)
    }

    #[inline]
    fn let_go(&mut self) {
        for &frame in &self.frames {
            self.arena.contents.read(frame);
            self.arena.holders[frame as usize].fetch_sub(1, Ordering::SeqCst);
        }
        self.frames.clear();
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        self.let_go();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} bytes in {} frames)", self.bytes, self.frames.len())
    }
}

/// Frames that only the holder may read and write: a run of bytes across them.
pub struct Exclusive {
    arena: Arc<Arena>,
    frames: FrameList,
    skip: usize,
    bytes: usize,
}

impl Exclusive {
    /// `bytes` bytes of `frames`, from byte `skip` of the first.
    ///
    /// # Panics
    /// If one of them has a holder.
    pub(crate) fn of(arena: &Arc<Arena>, frames: &[u32], skip: usize, bytes: usize) -> Exclusive {
        assert!(skip < arena.block_bytes && skip + bytes <= frames.len() * arena.block_bytes);
        let mut held = Exclusive { arena: arena.clone(), frames: FrameList::new(), skip, bytes };
        for &frame in frames {
            arena.add_writer(frame);
            held.frames.push(frame);
        }
        held
    }

    /// Whether the frames belong to `arena`.
    pub(crate) fn belongs(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// The frames that are held.
    pub(crate) fn frames(&self) -> &[u32] {
        &self.frames
    }

    /// The length of the run in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The bytes, frame by frame.
    pub fn slices_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        let (arena, skip, bytes) = (&self.arena, self.skip, self.bytes);
        self.frames.iter().enumerate().map(move |(at, &frame)| {
            let (start, end) = part(at, skip, bytes, arena.block_bytes);
            arena.contents.write(frame);
            // SAFETY: this is the frame's only holder, and `add_writer` let each frame in once, so that the slices
            // are disjoint; the borrow of `self` makes them the only ones; the range lies inside the frame.
            unsafe { std::slice::from_raw_parts_mut(arena.at(frame).add(start), end - start) }
        })
    }

    /// Computes the checksums of the frames, as a whole, if there are any.
    pub(crate) fn seal(&mut self) {
        if self.arena.sums.is_empty() {
            return;
        }
        for &frame in &self.frames {
            self.arena.contents.write(frame);
            // SAFETY: this is the frame's only holder, and nobody writes while `self` is borrowed.
            let bytes = unsafe { std::slice::from_raw_parts(self.arena.at(frame), self.arena.block_bytes) };
            self.arena.sums[frame as usize].store(XxHash3_64::oneshot(bytes), Ordering::Relaxed);
        }
    }

    /// Gives up the first `count` frames, which are not all, of a run that begins with a whole frame.
    pub(crate) fn let_go_first(&mut self, count: usize) {
        assert!(count < self.frames.len() && self.skip == 0);
        self.let_go(count);
        self.bytes -= count * self.arena.block_bytes;
    }

    fn let_go(&mut self, count: usize) {
        for frame in self.frames.drain(..count) {
            self.arena.contents.write(frame);
            self.arena.holders[frame as usize].store(0, Ordering::SeqCst);
        }
    }

    /// Copies `data`, which has the same length, into the frames.
    pub fn copy_from(&mut self, mut data: &[u8]) {
        assert_eq!(data.len(), self.bytes);
        for slice in self.slices_mut() {
            let (now, later) = data.split_at(slice.len());
            slice.copy_from_slice(now);
            data = later;
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.let_go(self.frames.len());
    }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exclusive({} bytes in {} frames)", self.bytes, self.frames.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn holds_see_the_right_bytes() {
        let arena = Arena::new(4, 512, true).expect("memory");
        let mut write = Exclusive::of(&arena, &[2, 0], 500, 24);
        assert_eq!(write.slices_mut().map(|s| s.len()).collect::<Vec<_>>(), [12, 12]);
        write.copy_from(b"abcdefghijklmnopqrstuvwx");
        drop(write);
        let read = Shared::of(&arena, &[2, 0], 502, 14);
        assert_eq!(read.slices().collect::<Vec<_>>(), [b"cdefghijkl".as_slice(), b"mnop"]);
        let again = Shared::of(&arena, &[0], 0, 2);
        assert_eq!(again.slices().collect::<Vec<_>>(), [b"mn"]);
        assert!(arena.held(0) && arena.held(2) && !arena.held(1));
        arena.want(true);
        assert!(read.release());
        assert!(arena.held(0) && !arena.held(2));
    }

    #[test]
    fn frames_are_aligned_and_zero() {
        let arena = Arena::new(3, 4096, false).expect("memory");
        let read = Shared::of(&arena, &[0, 1, 2], 0, 3 * 4096);
        for slice in read.slices() {
            assert_eq!(slice.as_ptr().align_offset(4096), 0);
            assert!(slice.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    #[should_panic(expected = "cannot be shared")]
    fn a_frame_being_written_is_not_shared() {
        let arena = Arena::new(2, 512, false).expect("memory");
        let _write = Exclusive::of(&arena, &[1], 0, 512);
        Shared::of(&arena, &[1], 0, 512);
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn a_frame_being_read_is_not_written() {
        let arena = Arena::new(2, 512, false).expect("memory");
        let _read = Shared::of(&arena, &[1], 0, 512);
        Exclusive::of(&arena, &[1], 0, 512);
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn a_frame_is_not_held_exclusively_twice() {
        let arena = Arena::new(2, 512, false).expect("memory");
        Exclusive::of(&arena, &[1, 1], 0, 1024);
    }
}

/// All orders of the steps of a few threads (`cargo xtask loom`).
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Mutex;
    use loom::thread;

    use super::*;

    const BLOCK: usize = 512;

    fn arena(frames: u32) -> Arc<Arena> {
        Arena::new(frames, BLOCK, true).expect("memory")
    }

    /// Whether `frame` seems to have no holder, for a thread that is ordered with others by nothing else than the holds that
    /// it takes.
    fn seems_free(arena: &Arena, frame: u32) -> bool {
        arena.holders[frame as usize].load(Ordering::Relaxed) == 0
    }

    /// A thread that finds a frame free writes it: the two that read it before are done.
    #[test]
    fn a_frame_is_written_after_it_was_read() {
        loom::model(|| {
            let arena = arena(1);
            let readers = [(); 2].map(|()| {
                let read = Shared::of(&arena, &[0], 0, BLOCK);
                thread::spawn(move || {
                    assert!(
                        read.slices().all(|slice| slice.iter().all(|&byte| byte == 0)),
                        "written while it was read"
                    );
                    drop(read);
                })
            });
            if seems_free(&arena, 0) {
                Exclusive::of(&arena, &[0], 0, BLOCK).copy_from(&[1; BLOCK]);
            }
            for reader in readers {
                reader.join().expect("no error");
            }
        });
    }

    /// Two threads read a frame that a third writes, as soon as it is done.
    #[test]
    fn readers_share_a_frame_that_was_written() {
        loom::model(|| {
            let arena = arena(1);
            let mut write = Exclusive::of(&arena, &[0], 0, BLOCK);
            let other = arena.clone();
            let writer = thread::spawn(move || {
                write.copy_from(&[1; BLOCK]);
                write.seal();
            });
            let reader = thread::spawn(move || {
                if seems_free(&other, 0) {
                    let read = Shared::of(&other, &[0], 0, BLOCK);
                    assert!(read.damaged().is_empty(), "half a write was seen");
                }
            });
            if seems_free(&arena, 0) {
                let read = Shared::of(&arena, &[0], 0, BLOCK);
                assert!(read.slices().all(|slice| slice == [1; BLOCK]), "half a write was seen");
            }
            writer.join().expect("no error");
            reader.join().expect("no error");
            assert!(!arena.held(0));
        });
    }

    /// Two threads release frames while a third begins to wait for one, as an engine does behind its lock: either it sees the
    /// frame released, or the one who released it is told to look after it.
    #[test]
    fn whoever_waits_for_a_frame_gets_it() {
        loom::model(|| {
            let arena = arena(2);
            // What waits, behind the engine's lock.
            let waits = Arc::new(Mutex::new(false));
            let holder = |frame| {
                let (read, waits) = (Shared::of(&arena, &[frame], 0, BLOCK), waits.clone());
                let arena = arena.clone();
                thread::spawn(move || {
                    if read.release() {
                        let mut waits = waits.lock().expect("no error");
                        if *waits && (0..2).all(|frame| !arena.held(frame)) {
                            arena.want(false);
                            *waits = false;
                        }
                    }
                })
            };
            let holders = [holder(0), holder(1)];
            {
                let mut waits = waits.lock().expect("no error");
                arena.want(true);
                if (0..2).all(|frame| !arena.held(frame)) {
                    arena.want(false);
                } else {
                    *waits = true;
                }
            }
            for holder in holders {
                holder.join().expect("no error");
            }
            assert!(!*waits.lock().expect("no error"), "it waits for ever");
        });
    }
}
