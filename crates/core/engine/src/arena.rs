//! The frame arena: the memory of all frames, and the holds that are the only access to it.
//!
//! A [`Shared`] hold reads frames, an [`Exclusive`] hold writes them. A frame has any number of shared holders or one
//! exclusive holder; an atomic count per frame enforces this, so that access is sound whatever the holders do. Contents
//! start as zeros, and memory is not touched before its frame is used.
//!
//! A frame can be *published* under the key of the block whose contents it has. Then any thread that knows frame and key can take a shared
//! hold of it without the engine's lock.
//!
//! 1. The engine publishes only frames that nobody writes, and withdraws a frame before it belongs to another block or to none.
//! 2. The count of holders and the mark `PUBLISHED` are in one word. A thread takes a hold by key before the frame is withdrawn, or not at
//!    all. In the first case, the engine sees the hold when it reads the word after it withdrew the frame.
//! 3. A frame that is held gets no other block, so its key does not change while a thread that took a hold compares it.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;
use twox_hash::XxHash3_64;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Contents, Ordering};

/// Frames are aligned for O_DIRECT if a block is at least this large.
const ALIGN: usize = 4096;
/// In a frame's word: the only holder is exclusive.
const EXCLUSIVE: u32 = 1 << 31;
/// In a frame's word: it is published.
const PUBLISHED: u32 = 1 << 30;
/// In a frame's word: the number of shared holders.
const SHARED: u32 = PUBLISHED - 1;

pub(crate) type FrameList = SmallVec<[u32; 4]>;

/// A handle of the memory of all frames. A hold is counted as a user of its handle, so threads with handles of their own share no such count.
pub(crate) struct Arena(Arc<Inner>);

/// The memory of all frames.
pub(crate) struct Inner {
    /// The address that the allocator returned.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The first frame.
    base: NonNull<u8>,
    block_bytes: usize,
    /// Per frame: the number of shared holders or `EXCLUSIVE`, and `PUBLISHED`.
    words: Box<[AtomicU32]>,
    /// Per frame: the key under which it is published, or was last; nothing at all if none ever is.
    keys: Box<[AtomicU64]>,
    /// Per frame: the checksum of its contents, or nothing at all.
    sums: Box<[AtomicU64]>,
    /// Whether requests wait for frames.
    wanted: AtomicBool,
    contents: Contents,
}

// SAFETY: the memory is reached only through holds, and `words` lets a frame be shared by readers or owned by one
// writer; taking a hold acquires what the release of the conflicting one published.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Arena {
    /// `frames` frames of `block_bytes`, which is a power of two, with or without checksums, which can be published or not; `None` if the
    /// address space has no room.
    pub(crate) fn new(frames: u32, block_bytes: usize, has_sums: bool, publishes: bool) -> Option<Arc<Arena>> {
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
        let words = (0..frames).map(|_| AtomicU32::new(0)).collect();
        let sums = (0..if has_sums { frames } else { 0 }).map(|_| AtomicU64::new(0)).collect();
        let keys = no_keys(if publishes { frames } else { 0 });
        let wanted = AtomicBool::new(false);
        let contents = Contents::new(frames);
        let inner = Inner { allocation, layout, base, block_bytes, words, keys, sums, wanted, contents };
        Some(Arc::new(Arena(Arc::new(inner))))
    }

    /// Another handle of the same memory.
    pub(crate) fn handle(&self) -> Arc<Arena> {
        Arc::new(Arena(self.0.clone()))
    }
}

impl Deref for Arena {
    type Target = Inner;

    #[inline(always)]
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Inner {
    /// Memory of the frames' words, keys and checksums.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.keys) + size_of_val(&*self.sums)
    }

    /// Whether `frame` has a holder. If not, those that it had are done with its contents.
    #[inline]
    pub(crate) fn held(&self, frame: u32) -> bool {
        self.words[frame as usize].load(Ordering::SeqCst) & !PUBLISHED != 0
    }

    /// Sets whether requests wait for frames, for threads that release holds from now on. All accesses to `wanted`, and
    /// those accesses to `words` that release or look, are sequentially consistent: either the caller sees afterwards
    /// that a hold is released, or its holder sees `wanted`.
    pub(crate) fn want(&self, wanted: bool) {
        if self.wanted.load(Ordering::Relaxed) != wanted {
            self.wanted.store(wanted, Ordering::SeqCst);
        }
    }

    /// Whether requests wait for frames. Call it after a release.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    #[inline]
    fn add_reader(&self, frame: u32) {
        let before = self.words[frame as usize].fetch_add(1, Ordering::Acquire) & !PUBLISHED;
        if before >= SHARED {
            self.words[frame as usize].fetch_sub(1, Ordering::Relaxed);
            panic!("frame {frame} is written by somebody and cannot be shared");
        }
    }

    fn add_writer(&self, frame: u32) {
        let word = &self.words[frame as usize];
        // Neither held nor published.
        let taken = word.compare_exchange(0, EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed);
        assert!(taken.is_ok(), "frame {frame} is held by somebody and cannot be written");
    }

    /// Whether `frame` is published. Only the engine changes that.
    #[inline]
    pub(crate) fn is_published(&self, frame: u32) -> bool {
        self.words[frame as usize].load(Ordering::Relaxed) & PUBLISHED != 0
    }

    /// The key under which `frame` is published, or was last.
    pub(crate) fn key(&self, frame: u32) -> u64 {
        self.keys[frame as usize].load(Ordering::Relaxed)
    }

    /// Publishes `frame`, which nobody writes, under `key`. If it is held, it had the same key before.
    ///
    /// `Release`: a thread that finds it published sees its key and its contents.
    pub(crate) fn publish(&self, frame: u32, key: u64) {
        let word = &self.words[frame as usize];
        assert!(word.load(Ordering::Relaxed) & (EXCLUSIVE | PUBLISHED) == 0, "frame {frame} is not to be published");
        self.keys[frame as usize].store(key, Ordering::Relaxed);
        word.fetch_or(PUBLISHED, Ordering::Release);
    }

    /// Withdraws `frame`: no more holds by its key are taken. `held` then counts those that were.
    #[inline]
    pub(crate) fn withdraw(&self, frame: u32) {
        if self.is_published(frame) {
            self.words[frame as usize].fetch_and(!PUBLISHED, Ordering::Relaxed);
        }
    }

    /// Adds a shared holder to `frame` if it is published. `Acquire`: see `publish`.
    #[inline]
    fn add_finder(&self, frame: u32) -> bool {
        let word = &self.words[frame as usize];
        let mut before = word.load(Ordering::Relaxed);
        while before & PUBLISHED != 0 && before & SHARED < SHARED {
            match word.compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
        false
    }

    /// The address of `frame`.
    #[inline]
    fn at(&self, frame: u32) -> *mut u8 {
        assert!((frame as usize) < self.words.len());
        // SAFETY: `frame` is one of the arena's, so the sum stays inside the allocation.
        unsafe { self.base.as_ptr().add(frame as usize * self.block_bytes) }
    }
}

/// `count` zeros, in memory that is not touched before it is used: an engine can have many frames that it needs only after it grew.
///
/// # Safety
/// Zeros are a valid `T`.
unsafe fn zeros<T>(count: usize) -> Box<[T]> {
    let layout = Layout::array::<T>(count).expect("less than the address space");
    if layout.size() == 0 {
        return Box::default();
    }
    // SAFETY: the layout's size is not zero.
    let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
    // SAFETY: allocated by the allocator of boxes, with the layout of the slice, whose elements are valid.
    unsafe { Box::from_raw(NonNull::slice_from_raw_parts(memory.cast(), count).as_ptr()) }
}

/// Hints that lead nowhere.
pub(crate) fn no_hints(count: usize) -> Box<[std::sync::atomic::AtomicU32]> {
    // SAFETY: zeros are a valid atomic.
    unsafe { zeros(count) }
}

#[cfg(not(loom))]
fn no_keys(count: u32) -> Box<[AtomicU64]> {
    // SAFETY: zeros are a valid atomic.
    unsafe { zeros(count as usize) }
}

#[cfg(loom)]
fn no_keys(count: u32) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Drop for Inner {
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

/// The result of a search for a block in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The frame has the block, and is held.
    Yes,
    /// The frame has another block or none, and was not held.
    No,
    /// The frame has another block, and was held for a moment: requests may have begun to wait for it.
    Another,
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

    /// Adds all of `frame` if it is published under `key`.
    #[inline]
    pub(crate) fn find(&mut self, frame: u32, key: u64) -> Found {
        let known = &self.arena.keys[frame as usize];
        // Seldom holds a frame with another key.
        if known.load(Ordering::Relaxed) != key || !self.arena.add_finder(frame) {
            return Found::No;
        }
        if known.load(Ordering::Relaxed) != key {
            self.arena.words[frame as usize].fetch_sub(1, Ordering::SeqCst);
            return Found::Another;
        }
        self.frames.push(frame);
        self.bytes += self.arena.block_bytes;
        Found::Yes
    }

    /// Whether all frames, which `find` added, are still published. Then they had the contents of their blocks at one moment: when `find` added the
    /// last of them. If that frame was published after another was withdrawn, `Acquire` of its hold makes that visible here.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.frames.iter().all(|&frame| self.arena.is_published(frame))
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
        self.arena.is_wanted()
    }

    #[inline]
    fn let_go(&mut self) {
        for &frame in &self.frames {
            self.arena.contents.read(frame);
            self.arena.words[frame as usize].fetch_sub(1, Ordering::SeqCst);
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
        Arc::ptr_eq(&self.arena.0, &arena.0)
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
            self.arena.words[frame as usize].store(0, Ordering::SeqCst);
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
        let arena = Arena::new(4, 512, true, true).expect("memory");
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
        let arena = Arena::new(3, 4096, false, true).expect("memory");
        let read = Shared::of(&arena, &[0, 1, 2], 0, 3 * 4096);
        for slice in read.slices() {
            assert_eq!(slice.as_ptr().align_offset(4096), 0);
            assert!(slice.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    #[should_panic(expected = "cannot be shared")]
    fn a_frame_being_written_is_not_shared() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
        let _write = Exclusive::of(&arena, &[1], 0, 512);
        Shared::of(&arena, &[1], 0, 512);
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn a_frame_being_read_is_not_written() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
        let _read = Shared::of(&arena, &[1], 0, 512);
        Exclusive::of(&arena, &[1], 0, 512);
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn a_published_frame_is_not_written() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
        arena.publish(1, 7);
        Exclusive::of(&arena, &[1], 0, 512);
    }

    #[test]
    #[should_panic(expected = "not to be published")]
    fn a_frame_being_written_is_not_published() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
        let _write = Exclusive::of(&arena, &[1], 0, 512);
        arena.publish(1, 7);
    }

    #[test]
    fn a_frame_is_found_by_its_key_while_it_is_published() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
        let finds = |key| Shared::new(&arena).find(1, key) == Found::Yes;
        assert!(!finds(7));
        arena.publish(1, 7);
        assert!(!finds(8));
        let mut held = Shared::new(&arena);
        assert_eq!(held.find(1, 7), Found::Yes);
        assert!(held.is_current() && arena.held(1));
        arena.withdraw(1);
        arena.withdraw(1);
        assert!(!held.is_current() && arena.held(1) && !finds(7));
        drop(held);
        assert!(!arena.held(1));
        arena.publish(1, 9);
        assert!(!arena.held(1) && !finds(7) && finds(9));
    }

    #[test]
    #[should_panic(expected = "cannot be written")]
    fn a_frame_is_not_held_exclusively_twice() {
        let arena = Arena::new(2, 512, false, true).expect("memory");
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
        Arena::new(frames, BLOCK, true, true).expect("memory")
    }

    /// As `loom::model`, with at most three preemptions.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Whether `frame` seems to have no holder, for a thread that is ordered with others by nothing else than the holds that
    /// it takes.
    fn seems_free(arena: &Arena, frame: u32) -> bool {
        arena.words[frame as usize].load(Ordering::Relaxed) == 0
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

    /// One thread looks for block 1 and another for block 2, while a third gives the frame of block 1 to block 2: each gets its block or nothing.
    #[test]
    fn a_frame_that_is_found_has_the_block() {
        check(|| {
            let arena = arena(1);
            Exclusive::of(&arena, &[0], 0, BLOCK).copy_from(&[1; BLOCK]);
            arena.publish(0, 1);
            let readers = [1, 2].map(|key| {
                let arena = arena.clone();
                thread::spawn(move || {
                    let mut held = Shared::new(&arena);
                    if held.find(0, key) == Found::Yes {
                        assert!(held.slices().all(|slice| slice == [key as u8; BLOCK]), "another block");
                    }
                })
            });
            arena.withdraw(0);
            if !arena.held(0) {
                Exclusive::of(&arena, &[0], 0, BLOCK).copy_from(&[2; BLOCK]);
                arena.publish(0, 2);
            }
            for reader in readers {
                reader.join().expect("no error");
            }
            assert!(!arena.held(0));
        });
    }

    /// A frame is withdrawn and published again for the same block with other contents, while a thread looks for it: the thread gets one of
    /// both contents, or nothing.
    #[test]
    fn a_frame_that_has_its_block_again_is_found_whole() {
        check(|| {
            let arena = arena(1);
            Exclusive::of(&arena, &[0], 0, BLOCK).copy_from(&[1; BLOCK]);
            arena.publish(0, 7);
            let other = arena.clone();
            let reader = thread::spawn(move || {
                let mut held = Shared::new(&other);
                if held.find(0, 7) == Found::Yes {
                    assert!(
                        held.slices().all(|slice| slice == [1; BLOCK] || slice == [2; BLOCK]),
                        "half a write was seen"
                    );
                }
            });
            arena.withdraw(0);
            if !arena.held(0) {
                Exclusive::of(&arena, &[0], 0, BLOCK).copy_from(&[2; BLOCK]);
                arena.publish(0, 7);
            }
            reader.join().expect("no error");
        });
    }

    /// A write gives two blocks other frames while a thread looks for both: it never gets an old and a new one.
    #[test]
    fn blocks_that_are_found_together_were_there_together() {
        check(|| {
            let arena = arena(4);
            let (before, after) = ([0, 1], [2, 3]);
            for (frame, key) in before.into_iter().zip([1, 2]) {
                arena.publish(frame, key);
            }
            let mixed = [[0, 3], [2, 1]];
            let readers = mixed.map(|frames| {
                let arena = arena.clone();
                thread::spawn(move || {
                    let mut held = Shared::new(&arena);
                    if held.find(frames[0], 1) == Found::Yes && held.find(frames[1], 2) == Found::Yes {
                        assert!(!held.is_current(), "half of a write was seen");
                    }
                })
            });
            before.into_iter().for_each(|frame| arena.withdraw(frame));
            for (frame, key) in after.into_iter().zip([1, 2]) {
                arena.publish(frame, key);
            }
            for reader in readers {
                reader.join().expect("no error");
            }
        });
    }

    /// Two threads release frames while a third begins to wait for one, as an engine does behind its lock: either it sees the
    /// frame released, or its releaser is notified to hand it on.
    #[test]
    fn whoever_waits_for_a_frame_gets_it() {
        loom::model(|| {
            let arena = arena(2);
            // The waiting readers, behind the engine's lock.
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
