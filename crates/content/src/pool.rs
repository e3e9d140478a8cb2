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

/// Bytes in front of each run: its length in bytes and its generation, 16 bits each.
const HEADER: usize = 4;

/// No page.
const NONE: u32 = u32::MAX;

/// The longest gap of a page that is free.
const FREE: u8 = LINES as u8;

/// Where an encoding is: page, first line, lines, codec, and a generation, by which handles of what was freed are
/// recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u64);

impl Handle {
    /// No encoding.
    pub(crate) const NOWHERE: Handle = Handle(NONE as u64);

    fn new(page: u32, start: u32, lines: u32, codec: Codec, generation: u16) -> Handle {
        let place = u64::from(page) | u64::from(start) << 32 | u64::from(lines - 1) << 38;
        Handle(place | (codec as u64) << 44 | u64::from(generation) << 48)
    }

    fn page(self) -> u32 {
        self.0 as u32
    }

    fn start(self) -> u32 {
        (self.0 >> 32) as u32 & (LINES - 1)
    }

    fn lines(self) -> u32 {
        ((self.0 >> 38) as u32 & (LINES - 1)) + 1
    }

    fn generation(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// How the block is encoded.
    pub fn codec(self) -> Codec {
        Codec::ALL[(self.0 >> 44) as usize & 15]
    }

    /// The memory that it takes.
    pub fn bytes(self) -> usize {
        self.lines() as usize * LINE_BYTES
    }
}

#[derive(Clone, Copy, Debug)]
struct Page {
    /// The lines in use; all of them if the page is a frame.
    used: u64,
    /// Neighbours in the list of pages with the same longest gap.
    previous: u32,
    next: u32,
    /// Of the next frame.
    generation: u16,
    /// Lines of the longest gap; pages without one are in no list.
    gap: u8,
    is_frame: bool,
}

/// Where the memory of a pool is.
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
    pages: Vec<Page>,
    /// The first page for each length of the longest gap, and a bit for each list that is not empty.
    lists: [u32; LINES as usize + 1],
    filled: u128,
    /// The most pages in use.
    allowed: u32,
    counts: PoolCounts,
    /// Of the next run; never 0, which is what a freed run has.
    generation: u16,
}

impl Pool {
    /// A pool of `pages` pages. Each takes 24 bytes in addition.
    pub fn new(pages: u32) -> Pool {
        assert!(pages < NONE, "fewer pages");
        let page = Page { used: 0, previous: NONE, next: NONE, generation: 0, gap: 0, is_frame: false };
        let mut pool = Pool {
            bytes: vec![0; pages as usize * BLOCK_BYTES],
            pages: vec![page; pages as usize],
            lists: [NONE; LINES as usize + 1],
            filled: 0,
            allowed: pages,
            counts: PoolCounts { free: pages, ..PoolCounts::default() },
            generation: 1,
        };
        (0..pages).rev().for_each(|page| pool.enter(page, FREE));
        pool
    }

    /// Where its memory is.
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
            return self.store_frame(bytes.try_into().ok()?);
        }
        let lines = (HEADER + bytes.len()).div_ceil(LINE_BYTES) as u32;
        if lines > LINES {
            return None;
        }
        let fitting = self.filled >> lines << lines;
        if fitting == 0 {
            return None;
        }
        let gap = fitting.trailing_zeros();
        // Lists are tried from the shortest gap on, so that of free pages is the last one.
        let pages_after = self.in_use() + u32::from(gap == u32::from(FREE));
        if pages_after > self.allowed {
            return None;
        }
        let page = self.lists[gap as usize];
        let start = smallest_gap(self.pages[page as usize].used, lines);
        self.leave(page);
        let slot = &mut self.pages[page as usize];
        if slot.used == 0 {
            self.counts.free -= 1;
            self.counts.run_pages += 1;
        }
        slot.used |= mask(start, lines);
        let longest = longest_gap(slot.used);
        self.enter(page, longest);
        self.counts.lines += u64::from(lines);
        let generation = self.generation;
        self.generation = generation.checked_add(1).unwrap_or(1);
        let at = page as usize * BLOCK_BYTES + start as usize * LINE_BYTES;
        let room = &mut self.bytes[at..];
        room[..2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        room[2..HEADER].copy_from_slice(&generation.to_le_bytes());
        room[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
        Some(Handle::new(page, start, lines, codec, generation))
    }

    fn store_frame(&mut self, bytes: &[u8; BLOCK_BYTES]) -> Option<Handle> {
        let page = self.lists[usize::from(FREE)];
        if page == NONE || self.in_use() >= self.allowed {
            return None;
        }
        self.leave(page);
        self.counts.free -= 1;
        self.counts.frames += 1;
        let slot = &mut self.pages[page as usize];
        (slot.is_frame, slot.used) = (true, u64::MAX);
        let generation = slot.generation;
        self.bytes[page as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(bytes);
        Some(Handle::new(page, 0, LINES, Codec::Raw, generation))
    }

    /// The encoding; `None` if it was freed.
    pub fn read(&self, handle: Handle) -> Option<&[u8]> {
        let page = self.pages.get(handle.page() as usize)?;
        let at = handle.page() as usize * BLOCK_BYTES + handle.start() as usize * LINE_BYTES;
        let room = self.bytes.get(at..at + handle.bytes())?;
        if handle.codec() == Codec::Raw {
            return (page.is_frame && page.generation == handle.generation()).then_some(room);
        }
        let mask = mask(handle.start(), handle.lines());
        if page.is_frame || page.used & mask != mask {
            return None;
        }
        let (header, rest) = room.split_first_chunk::<HEADER>()?;
        let [length, generation] = [[header[0], header[1]], [header[2], header[3]]].map(u16::from_le_bytes);
        if generation != handle.generation() { None } else { rest.get(..usize::from(length)) }
    }

    /// Frees the memory of an encoding; returns whether it was not free before.
    pub fn free(&mut self, handle: Handle) -> bool {
        if self.read(handle).is_none() {
            return false;
        }
        let page = handle.page();
        let slot = &mut self.pages[page as usize];
        if slot.is_frame {
            (slot.is_frame, slot.used) = (false, 0);
            slot.generation = slot.generation.wrapping_add(1);
            self.counts.frames -= 1;
            self.counts.free += 1;
            self.enter(page, FREE);
            return true;
        }
        let at = page as usize * BLOCK_BYTES + handle.start() as usize * LINE_BYTES;
        self.bytes[at..at + HEADER].fill(0);
        self.leave(page);
        let slot = &mut self.pages[page as usize];
        slot.used &= !mask(handle.start(), handle.lines());
        let used = slot.used;
        self.counts.lines -= u64::from(handle.lines());
        if used == 0 {
            self.counts.run_pages -= 1;
            self.counts.free += 1;
        }
        self.enter(page, longest_gap(used));
        true
    }

    /// Puts a page that is in no list at the head of that of its longest gap.
    fn enter(&mut self, page: u32, gap: u8) {
        let head = if gap == 0 { NONE } else { self.lists[usize::from(gap)] };
        let slot = &mut self.pages[page as usize];
        (slot.gap, slot.previous, slot.next) = (gap, NONE, head);
        if gap == 0 {
            return;
        }
        self.lists[usize::from(gap)] = page;
        self.filled |= 1 << gap;
        if head != NONE {
            self.pages[head as usize].previous = page;
        }
    }

    /// Takes a page out of its list.
    fn leave(&mut self, page: u32) {
        let Page { gap, previous, next, .. } = self.pages[page as usize];
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

    /// Counts all pages again, and checks the lists.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut counts = PoolCounts::default();
        for page in &self.pages {
            match (page.is_frame, page.used) {
                (true, used) => {
                    assert_eq!((used, page.gap), (u64::MAX, page.gap));
                    counts.frames += 1;
                }
                (false, 0) => counts.free += 1,
                (false, used) => {
                    assert_eq!(page.gap, longest_gap(used));
                    counts.run_pages += 1;
                    counts.lines += u64::from(used.count_ones());
                }
            }
        }
        assert_eq!(counts, self.counts);
        let listed = self.lists.iter().enumerate().map(|(gap, &head)| {
            assert_eq!(head != NONE, self.filled >> gap & 1 != 0);
            let follow = |&page: &u32| Some(self.pages[page as usize].next).filter(|&next| next != NONE);
            let pages = std::iter::successors(Some(head).filter(|&head| head != NONE), follow);
            pages.inspect(|&page| assert_eq!(usize::from(self.pages[page as usize].gap), gap)).count()
        });
        let with_gap = self.pages.iter().filter(|page| !page.is_frame && page.used != u64::MAX);
        assert_eq!(listed.sum::<usize>(), with_gap.count());
    }

    /// The memory of an encoding, for tests that damage it.
    pub(crate) fn bytes_mut(&mut self, handle: Handle) -> &mut [u8] {
        let skipped = if handle.codec() == Codec::Raw { 0 } else { HEADER };
        let at = handle.page() as usize * BLOCK_BYTES + handle.start() as usize * LINE_BYTES;
        &mut self.bytes[at..at + handle.bytes()][skipped..]
    }
}

fn mask(start: u32, lines: u32) -> u64 {
    (u64::MAX >> (LINES - lines)) << start
}

/// The lines at which gaps of at least `lines` lines begin or go on for so long.
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
        for (page, start, lines, generation) in [(0, 0, 1, 0), (u32::MAX - 1, 63, 1, u16::MAX), (77, 0, 64, 5)] {
            for codec in Codec::ALL {
                let handle = Handle::new(page, start, lines, codec, generation);
                let parts = (handle.page(), handle.start(), handle.lines(), handle.codec(), handle.generation());
                assert_eq!(parts, (page, start, lines, codec, generation));
            }
        }
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
        let mut freed: Vec<Handle> = Vec::new();
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
                assert!(pool.free(handle));
                freed.push(handle);
            }
            if let Some((handle, bytes)) = kept.get(random.usize(..kept.len().max(1))) {
                assert_eq!(pool.read(*handle), Some(&bytes[..]));
            }
            if step % 500 == 0 {
                pool.check();
                for (handle, bytes) in &kept {
                    assert_eq!(pool.read(*handle), Some(&bytes[..]));
                }
                // Generations have 16 bits; none has come around.
                for handle in freed.drain(..) {
                    assert!(pool.read(handle).is_none() && !pool.free(handle));
                }
            }
        }
        assert!(refused > 1000, "the pool was full at times: {refused}");
        kept.into_iter().for_each(|(handle, _)| assert!(pool.free(handle)));
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
                if random.u8(..5) == 0 { queue.push_back(oldest) } else { assert!(pool.free(oldest)) }
            }
            if step > 100_000 && step % 1000 == 0 {
                sum += pool.counts().utilisation();
                count += 1;
            }
        }
        pool.check();
        let mean = sum / f64::from(count);
        assert!(mean >= 0.90, "{mean}");
    }
}
