//! How much of a memory encoded blocks have, and how much the frames of other blocks: as long as a page holds clearly more
//! than a block, encoded blocks get more pages; when it holds hardly more, they have to give them back.

/// Pages are lent in steps of this part of all.
const STEP: u64 = 64;
/// The least number of pages of a step.
const STEP_LEAST: u64 = 16;
/// The part of all pages that can be lent.
const MOST: (u64, u64) = (3, 4);
/// Blocks for each page in use above which more pages are lent.
const WORTH: f64 = 1.25;
/// And below which they are given back.
const WORTHLESS: f64 = 1.1;
/// Encoded blocks get more pages when no more of theirs are free; otherwise, something else than memory is their limit.
const FREE: u64 = 8;
/// Places for each page that can be lent: more blocks than these are not kept, however small they are.
const PLACES_PER_PAGE: u64 = 8;
/// While encoding does not pay, one of this many blocks is encoded, to find out when it does.
const ONE_OF: u32 = 16;

/// Pages of frames and of encoded blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lending {
    pages: u64,
    lent: u64,
    /// Blocks that were stored since `lent` changed.
    stored: u64,
    one_of: u32,
}

/// Reaction to a block for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Evict others.
    Evict,
    /// Use the pages that were lent.
    Lent,
    /// Give up all encoded blocks: their pages, except for the first ones, go back to the frames.
    GiveBack,
}

impl Lending {
    /// Of `pages` pages, the least part is lent.
    pub fn new(pages: u64) -> Lending {
        let lending = Lending { pages, lent: 0, stored: 0, one_of: 1 };
        Lending { lent: lending.step(), ..lending }
    }

    /// All pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The pages of encoded blocks.
    pub fn lent(&self) -> u64 {
        self.lent
    }

    /// The most pages that they can have.
    pub fn most(&self) -> u64 {
        self.pages * MOST.0 / MOST.1
    }

    /// How many blocks can be encoded at a time, in each of `parts` parts of a cache.
    pub fn places(&self, parts: u32) -> u32 {
        (self.most() * PLACES_PER_PAGE / u64::from(parts)).clamp(1, u64::from(u32::MAX - 2)) as u32
    }

    /// The pages that remain for the frames of each of `parts` parts of a cache: at least one.
    pub fn frames(&self, parts: u32) -> u32 {
        (self.pages.saturating_sub(self.lent) / u64::from(parts)).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// One of this many blocks that leave the frames is encoded.
    pub fn one_of(&self) -> u32 {
        self.one_of
    }

    fn step(&self) -> u64 {
        (self.pages / STEP).max(STEP_LEAST).min(self.most())
    }

    /// The number of all pages changes. Encoded blocks begin anew, if it did.
    pub fn resize(&mut self, pages: u64) -> bool {
        let is_changed = pages != self.pages;
        self.pages = pages;
        is_changed
    }

    /// Encoded blocks begin anew.
    pub fn restart(&mut self) {
        *self = Lending { one_of: self.one_of, ..Lending::new(self.pages) };
    }

    /// Frames and encoded blocks could not be adapted to what [`Lending::full`] lent: all is as `before` that.
    pub fn take_back(&mut self, before: Lending) {
        *self = Lending { pages: self.pages, ..before };
    }

    /// A block is stored.
    pub fn note_store(&mut self) {
        self.stored += 1;
    }

    /// There is no room for a block. `blocks` are stored, in `in_use` pages.
    pub fn full(&mut self, blocks: u64, in_use: u64) -> Room {
        let worth = blocks as f64 / in_use.max(1) as f64;
        if worth >= WORTH && in_use + FREE >= self.lent && self.lent + self.step() <= self.most() {
            (self.lent, self.stored, self.one_of) = (self.lent + self.step(), 0, 1);
            return Room::Lent;
        }
        // All pages were filled at least once since.
        if worth < WORTHLESS && self.stored >= 2 * self.lent {
            self.one_of = ONE_OF;
            if self.lent > self.step() {
                return Room::GiveBack;
            }
        }
        Room::Evict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_lent_for_as_long_as_they_hold_more_blocks() {
        let mut lending = Lending::new(6400);
        assert_eq!((lending.lent(), lending.frames(1), lending.most()), (100, 6300, 4800));
        assert_eq!(lending.full(124, 100), Room::Evict, "below WORTH");
        assert_eq!(lending.full(300, 80), Room::Evict, "pages are free");
        while lending.lent() < 4800 {
            let lent = lending.lent();
            assert_eq!((lending.full(lent * 3, lent), lending.lent()), (Room::Lent, lent + 100));
        }
        assert_eq!(lending.full(9600, 4800), Room::Evict, "the most is lent");

        assert_eq!((lending.full(5000, 4800), lending.one_of()), (Room::Evict, 1), "too early");
        (0..9600).for_each(|_| lending.note_store());
        assert_eq!((lending.full(5000, 4800), lending.one_of()), (Room::GiveBack, 16));
        lending.restart();
        assert_eq!((lending.lent(), lending.frames(1), lending.one_of()), (100, 6300, 16));
        assert_eq!((lending.full(100, 100), lending.full(130, 100), lending.one_of()), (Room::Evict, Room::Lent, 1));
    }

    #[test]
    fn little_memory_can_be_lent_too() {
        for pages in 1..200 {
            let mut lending = Lending::new(pages);
            for _ in 0..200 {
                let lent = lending.lent();
                lending.full(2 * lent, lent);
                assert!(lending.lent() <= lending.most() && lending.frames(1) >= 1, "{lending:?}");
            }
        }
        let mut lending = Lending::new(6400);
        assert!(!lending.resize(6400) && lending.resize(64));
        assert_eq!(lending.frames(1), 1, "before it begins anew");
        lending.restart();
        assert_eq!((lending.lent(), lending.frames(1)), (16, 48));
    }
}
