//! Memory for encoded blocks: pages of 4 KiB, of which each is free, the frame of a block as it is, or divided into runs
//! of lines of 64 bytes.
//!
//! Pages change their role on demand, so the area for encodings grows and shrinks with its use. A run is contiguous. It is
//! placed in the page whose longest gap is the smallest one that fits, and there in the smallest gap that fits. No call
//! moves data or takes more than constant time.

use crate::BLOCK_BYTES;
use crate::codec::Codec;

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

/// Lines of a page.
const LINES: u32 = (BLOCK_BYTES / LINE_BYTES) as u32;

/// Bytes in front of each run: its length in bytes.
const HEADER: usize = 2;

/// No page.
const NONE: u32 = u32::MAX;

/// The longest gap of a page that is free.
const FREE: u8 = LINES as u8;

/// Place of an encoding: page, first line, lines, and codec, in 6 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The low and the high half.
    page: [u16; 2],
    place: u16,
}

impl Handle {
    /// No encoding.
    pub(crate) const NOWHERE: Handle = Handle { page: [u16::MAX; 2], place: 0 };

    fn new(page: u32, start: u32, lines: u32, codec: Codec) -> Handle {
        let place = start | (lines - 1) << 6 | (codec as u32) << 12;
        Handle { page: [page as u16, (page >> 16) as u16], place: place as u16 }
    }

    fn page(self) -> u32 {
        u32::from(self.page[0]) | u32::from(self.page[1]) << 16
    }

    fn start(self) -> u32 {
        u32::from(self.place) & (LINES - 1)
    }

    fn lines(self) -> u32 {
        (u32::from(self.place) >> 6 & (LINES - 1)) + 1
    }

    /// How the block is encoded.
    pub fn codec(self) -> Codec {
        Codec::ALL[usize::from(self.place >> 12)]
    }

    /// The memory that it takes.
    pub fn bytes(self) -> usize {
        self.lines() as usize * LINE_BYTES
    }

    /// Its beginning in the memory of the pool.
    fn at(self) -> usize {
        self.page() as usize * BLOCK_BYTES + self.start() as usize * LINE_BYTES
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The lines in use; all of them if the page is a frame.
    used: u64,
    /// Neighbours in the list of pages with the same longest gap. Pages without a gap are in no list.
    previous: u32,
    next: u32,
}

/// Use of a pool's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Pages that are free.
    pub free: u32,
    /// Pages that are frames.
    pub frames: u32,
    /// Pages with runs.
    pub run_pages: u32,
    /// Lines in runs.
    pub lines: u64,
}

impl PoolCounts {
    /// The share of the lines of pages with runs that is in use; 1 if there are none.
    pub fn utilisation(&self) -> f64 {
        let all = u64::from(self.run_pages) * u64::from(LINES);
        if all == 0 { 1.0 } else { self.lines as f64 / all as f64 }
    }
}

/// A fixed number of pages.
pub struct Pool {
    bytes: Vec<u8>,
    /// Those that were used before.
    pages: Vec<Page>,
    /// The first page for each length of the longest gap, and a bit for each list that is not empty.
    lists: [u32; LINES as usize + 1],
    filled: u128,
    /// The most pages in use.
    allowed: u32,
    counts: PoolCounts,
}

impl Pool {
    /// A pool of `pages` pages. Each takes 16 bytes in addition.
    pub fn new(pages: u32) -> Pool {
        assert!(pages < NONE, "fewer pages");
        Pool {
            bytes: vec![0; pages as usize * BLOCK_BYTES],
            pages: Vec::with_capacity(pages as usize),
            lists: [NONE; LINES as usize + 1],
            filled: 0,
            allowed: pages,
            counts: PoolCounts { free: pages, ..PoolCounts::default() },
        }
    }

    /// Memory in addition to that of the pages.
    pub fn metadata_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>()
    }

    /// Use of its memory.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// Allows at most `pages` pages to be in use from now on. Pages beyond it stay in use until what they hold is freed.
    pub fn allow(&mut self, pages: u32) {
        self.allowed = pages;
    }

    fn in_use(&self) -> u32 {
        self.counts.frames + self.counts.run_pages
    }

    /// Keeps an encoding of at most 4096 bytes: one of [`Codec::Raw`] in a frame, others in a run. `None` if there is no
    /// room for it.
    pub fn store(&mut self, codec: Codec, bytes: &[u8]) -> Option<Handle> {
        if codec == Codec::Raw {
            let bytes: &[u8; BLOCK_BYTES] = bytes.try_into().ok()?;
            let page = self.take_free()?;
            self.counts.frames += 1;
            self.pages[page as usize].used = u64::MAX;
            let handle = Handle::new(page, 0, LINES, Codec::Raw);
            self.bytes[handle.at()..][..BLOCK_BYTES].copy_from_slice(bytes);
            return Some(handle);
        }
        let lines = (HEADER + bytes.len()).div_ceil(LINE_BYTES) as u32;
        if lines > LINES {
            return None;
        }
        // Free pages last, although they are in a list, too.
        let fitting = (self.filled & !(1 << FREE)) >> lines << lines;
        let page = if fitting == 0 {
            let page = self.take_free()?;
            self.counts.run_pages += 1;
            page
        } else if self.in_use() > self.allowed {
            return None;
        } else {
            let gap = fitting.trailing_zeros();
            let page = self.lists[gap as usize];
            self.leave(page, gap as u8);
            page
        };
        let slot = &mut self.pages[page as usize];
        let start = smallest_gap(slot.used, lines);
        slot.used |= mask(start, lines);
        let longest = longest_gap(slot.used);
        self.enter(page, longest);
        self.counts.lines += u64::from(lines);
        let handle = Handle::new(page, start, lines, codec);
        let room = &mut self.bytes[handle.at()..];
        room[..HEADER].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        room[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
        Some(handle)
    }

    /// Takes a free page out of its list, or one that was never used, if another one is allowed to be in use.
    fn take_free(&mut self) -> Option<u32> {
        if self.counts.free == 0 || self.in_use() >= self.allowed {
            return None;
        }
        let mut page = self.lists[usize::from(FREE)];
        if page == NONE {
            page = self.pages.len() as u32;
            self.pages.push(Page { used: 0, previous: NONE, next: NONE });
        } else {
            self.leave(page, FREE);
        }
        self.counts.free -= 1;
        Some(page)
    }

    /// The encoding, whose handle was not freed.
    pub fn read(&self, handle: Handle) -> Option<&[u8]> {
        let page = self.pages.get(handle.page() as usize)?;
        let mask = mask(handle.start(), handle.lines());
        let room = self.bytes.get(handle.at()..handle.at() + handle.bytes()).filter(|_| page.used & mask == mask)?;
        if handle.codec() == Codec::Raw {
            return Some(room);
        }
        let (length, rest) = room.split_first_chunk::<HEADER>()?;
        rest.get(..usize::from(u16::from_le_bytes(*length)))
    }

    /// Frees the memory of an encoding, whose handle was not freed before.
    pub fn free(&mut self, handle: Handle) {
        let page = handle.page();
        let used = self.pages[page as usize].used;
        let mask = mask(handle.start(), handle.lines());
        debug_assert_eq!(used & mask, mask, "it was not freed");
        if handle.codec() == Codec::Raw {
            self.counts.frames -= 1;
        } else {
            self.leave(page, longest_gap(used));
            self.counts.lines -= u64::from(handle.lines());
            self.counts.run_pages -= u32::from(used == mask);
        }
        let left = used & !mask;
        self.pages[page as usize].used = left;
        self.counts.free += u32::from(left == 0);
        self.enter(page, longest_gap(left));
    }

    /// Puts a page that is in no list at the head of that of its longest gap.
    fn enter(&mut self, page: u32, gap: u8) {
        if gap == 0 {
            return;
        }
        let head = self.lists[usize::from(gap)];
        let slot = &mut self.pages[page as usize];
        (slot.previous, slot.next) = (NONE, head);
        self.lists[usize::from(gap)] = page;
        self.filled |= 1 << gap;
        if head != NONE {
            self.pages[head as usize].previous = page;
        }
    }

    /// Takes a page out of the list of its longest gap.
    fn leave(&mut self, page: u32, gap: u8) {
        let Page { previous, next, .. } = self.pages[page as usize];
        if gap == 0 {
            return;
        }
        match previous {
            NONE => self.lists[usize::from(gap)] = next,
            previous => self.pages[previous as usize].next = next,
        }
        if next != NONE {
            self.pages[next as usize].previous = previous;
        }
        if self.lists[usize::from(gap)] == NONE {
            self.filled &= !(1 << gap);
        }
    }

    /// Counts all pages again, and checks the lists. The handles are all of the pool's.
    #[cfg(test)]
    pub(crate) fn check(&self, handles: impl Iterator<Item = Handle>) {
        let mut used = vec![0; self.pages.len()];
        let mut counts = PoolCounts::default();
        for handle in handles {
            let used = &mut used[handle.page() as usize];
            let mask = mask(handle.start(), handle.lines());
            assert_eq!(*used & mask, 0, "{handle:?} overlaps another one");
            counts.run_pages += u32::from(*used == 0 && handle.codec() != Codec::Raw);
            *used |= mask;
            match handle.codec() {
                Codec::Raw => counts.frames += 1,
                _ => counts.lines += u64::from(handle.lines()),
            }
        }
        let unused = self.pages.capacity() - self.pages.len();
        counts.free = (used.iter().filter(|used| **used == 0).count() + unused) as u32;
        assert_eq!(counts, self.counts);
        assert!(self.pages.iter().map(|page| page.used).eq(used));
        let listed = self.lists.iter().enumerate().map(|(gap, &head)| {
            assert_eq!(head != NONE, self.filled >> gap & 1 != 0);
            let follow = |&page: &u32| Some(self.pages[page as usize].next).filter(|&next| next != NONE);
            let pages = std::iter::successors(Some(head).filter(|&head| head != NONE), follow);
            pages.inspect(|&page| assert_eq!(usize::from(longest_gap(self.pages[page as usize].used)), gap)).count()
        });
        let with_gap = self.pages.iter().filter(|page| page.used != u64::MAX);
        assert_eq!(listed.sum::<usize>(), with_gap.count());
    }

    /// The memory of an encoding, for tests that damage it.
    pub(crate) fn bytes_mut(&mut self, handle: Handle) -> &mut [u8] {
        let skipped = if handle.codec() == Codec::Raw { 0 } else { HEADER };
        &mut self.bytes[handle.at()..handle.at() + handle.bytes()][skipped..]
    }
}

fn mask(start: u32, lines: u32) -> u64 {
    (u64::MAX >> (LINES - lines)) << start
}

/// The lines at which gaps of at least `lines` lines begin, or continue for that length.
fn starts(used: u64, lines: u32) -> u64 {
    let mut starts = !used;
    let mut length = 1;
    while length < lines {
        let step = length.min(lines - length);
        starts &= starts >> step;
        length += step;
    }
    starts
}

/// Lines of the longest gap.
fn longest_gap(used: u64) -> u8 {
    let (mut least, mut most) = (0, LINES);
    while least < most {
        let middle = (least + most).div_ceil(2);
        if starts(used, middle) != 0 { least = middle } else { most = middle - 1 }
    }
    least as u8
}

/// The start of the smallest gap of at least `lines` lines, which exists.
fn smallest_gap(used: u64, lines: u32) -> u32 {
    let mut best = (LINES + 1, 0);
    let mut rest = starts(used, lines);
    while rest != 0 {
        let start = rest.trailing_zeros();
        let length = (used >> start).trailing_zeros().min(LINES - start);
        best = best.min((length, start));
        rest &= !mask(start, length);
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps() {
        assert_eq!((longest_gap(0), longest_gap(u64::MAX), longest_gap(1)), (64, 0, 63));
        // Gaps of 3 at 1, of 2 at 5, and of 57 - 8 at 8.
        let used = 0b1001_0001 | !(u64::MAX >> 7);
        assert_eq!(longest_gap(used), 49);
        assert_eq!([1, 2, 3, 4, 49].map(|lines| smallest_gap(used, lines)), [5, 5, 1, 8, 8]);
        assert_eq!(smallest_gap(0, 64), 0);
    }

    #[test]
    fn handles_have_all_their_parts() {
        for (page, start, lines) in [(0, 0, 1), (u32::MAX - 1, 63, 1), (77, 0, 64)] {
            for codec in Codec::ALL {
                let handle = Handle::new(page, start, lines, codec);
                assert_eq!(
                    (handle.page(), handle.start(), handle.lines(), handle.codec()),
                    (page, start, lines, codec)
                );
            }
        }
        assert_eq!(size_of::<Handle>(), 6);
    }

    /// Lengths as those of encoded blocks of file systems: differences, compressed blocks, and blocks as they are.
    fn length(random: &mut fastrand::Rng) -> (Codec, usize) {
        match random.u8(..10) {
            0..3 => (Codec::Line, random.usize(8..=256)),
            3..6 => (Codec::ZstdDelta, random.usize(80..1400)),
            6..9 => (Codec::Lz4, random.usize(90..=3072)),
            _ => (Codec::Raw, BLOCK_BYTES),
        }
    }

    #[test]
    fn it_keeps_what_a_map_keeps() {
        let mut random = fastrand::Rng::with_seed(8);
        let mut pool = Pool::new(40);
        let mut kept: Vec<(Handle, Vec<u8>)> = Vec::new();
        let mut refused = 0;
        for step in 0..60_000 {
            if random.u8(..100) < 52 {
                let (codec, length) = length(&mut random);
                let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                match pool.store(codec, &bytes) {
                    Some(handle) => {
                        assert_eq!(handle.codec(), codec);
                        kept.push((handle, bytes));
                    }
                    None => refused += 1,
                }
            } else if !kept.is_empty() {
                let (handle, _) = kept.swap_remove(random.usize(..kept.len()));
                pool.free(handle);
            }
            if let Some((handle, bytes)) = kept.get(random.usize(..kept.len().max(1))) {
                assert_eq!(pool.read(*handle), Some(&bytes[..]));
            }
            if step % 500 == 0 {
                pool.check(kept.iter().map(|(handle, _)| *handle));
                for (handle, bytes) in &kept {
                    assert_eq!(pool.read(*handle), Some(&bytes[..]));
                }
            }
        }
        assert!(refused > 1000, "the pool was full at times: {refused}");
        kept.into_iter().for_each(|(handle, _)| pool.free(handle));
        assert_eq!(pool.counts(), PoolCounts { free: 40, ..PoolCounts::default() });
    }

    /// The utilisation of run pages while the oldest encodings leave for new ones, without compaction.
    #[test]
    fn nine_tenths_are_in_use_while_the_oldest_leave() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut pool = Pool::new(4096);
        // Recency: a list in which what is used moves to the end.
        let mut queue = std::collections::VecDeque::new();
        let (mut sum, mut count) = (0.0, 0);
        for step in 0..400_000 {
            let (codec, length) = length(&mut random);
            let bytes = vec![0; length];
            loop {
                if let Some(handle) = pool.store(codec, &bytes) {
                    queue.push_back(handle);
                    break;
                }
                // A fifth of those at the end were used in the meantime.
                let oldest = queue.pop_front().unwrap();
                if random.u8(..5) == 0 { queue.push_back(oldest) } else { pool.free(oldest) }
            }
            if step > 100_000 && step % 1000 == 0 {
                sum += pool.counts().utilisation();
                count += 1;
            }
        }
        pool.check(queue.into_iter());
        let mean = sum / f64::from(count);
        assert!(mean >= 0.90, "{mean}");
    }
}
