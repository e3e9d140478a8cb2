use std::collections::{HashMap, VecDeque};

use super::*;
use crate::generated::Machines;
use crate::{BLOCK_BYTES, Codecs, Copied, Scheme};

/// A part of a level that evicts the oldest blocks.
#[derive(Default)]
struct Part {
    /// Places of blocks, the oldest first.
    blocks: VecDeque<u32>,
    left: Vec<u32>,
    free: Vec<u32>,
    /// Places from here on were never used.
    fresh: u32,
}

/// A cache whose frames are only counted.
struct Cache {
    area: Area,
    parts: Vec<Part>,
    /// Frames of each part.
    frames: u32,
    /// Whether frames can be given up or added.
    is_movable: bool,
    one_of: u32,
}

impl Host for Cache {
    fn read<R>(&self, look: impl FnOnce(&Area) -> R) -> R {
        look(&self.area)
    }

    fn write<R>(&mut self, change: impl FnOnce(&mut Area) -> R) -> R {
        change(&mut self.area)
    }

    fn thin(&mut self, one_of: u32) {
        assert_ne!(one_of, self.one_of, "it is told of changes only");
        self.one_of = one_of;
    }

    fn shed(&mut self, part: u32, count: u32) -> u32 {
        let Part { blocks, left, .. } = &mut self.parts[part as usize];
        let count = blocks.len().min(count as usize);
        left.extend(blocks.drain(..count));
        count as u32
    }

    fn shed_all(&mut self, part: u32) {
        self.shed(part, u32::MAX);
    }

    fn take_left(&mut self, part: u32, most: usize) -> Vec<u32> {
        let left = &mut self.parts[part as usize].left;
        left.drain(..left.len().min(most)).collect()
    }

    fn return_places(&mut self, part: u32, places: &[u32]) {
        self.parts[part as usize].free.extend(places);
    }

    fn adapt_frames(&mut self) -> bool {
        if self.is_movable {
            self.frames = self.area.lending.frames(self.area.parts());
        }
        self.is_movable
    }
}

/// A writer, its cache, and the bytes that each place had last.
struct Stored {
    writer: Writer,
    cache: Cache,
    expected: HashMap<(u32, u32), Block>,
}

impl Stored {
    fn new(pages: u64, parts: u32) -> Stored {
        let area = Area::new(Scheme::Sketch, 1, pages, parts as usize);
        let frames = area.lending.frames(parts);
        let writer = Writer::new(&area, 1.0);
        let parts = (0..parts).map(|_| Part::default()).collect();
        Stored { writer, cache: Cache { area, parts, frames, is_movable: true, one_of: 1 }, expected: HashMap::new() }
    }

    /// Blocks leave the frames of a part, and are stored. Returns how many found no room.
    fn store(&mut self, part: u32, blocks: &[(Option<u32>, Block)]) -> usize {
        let Stored { writer, cache, expected } = self;
        let of = &mut cache.parts[part as usize];
        let free = if blocks.len() == 1 { of.free.pop() } else { None };
        let first = free.unwrap_or(of.fresh);
        of.fresh = of.fresh.max(first + blocks.len() as u32);
        let rejected = writer.store(cache, part, first, blocks.iter().map(|(domain, block)| (*domain, block)));
        for (place, (_, block)) in (first..).zip(blocks) {
            let of = &mut cache.parts[part as usize];
            if rejected.contains(&place) {
                of.left.push(place);
            } else {
                of.blocks.push_back(place);
                expected.insert((part, place), *block);
            }
        }
        writer.settle(cache, part);
        self.check();
        rejected.len()
    }

    /// Stores many blocks, of parts in turn.
    fn fill(&mut self, blocks: impl Iterator<Item = Block>) {
        let parts = self.cache.area.parts();
        for (at, block) in (0..).zip(blocks) {
            assert_eq!(self.store(at % parts, &[(Some(0), block)]), 0, "block {at} found no room");
        }
    }

    /// Contents are those of blocks in the level, the level takes the memory that it is lent, and no memory is used twice.
    fn check(&self) {
        let Cache { area, parts, frames, one_of, .. } = &self.cache;
        assert_eq!(*one_of, area.lending.one_of());
        assert!(u64::from(*frames) * parts.len() as u64 + area.lending.lent() <= area.lending.pages());
        // The rest takes long.
        if area.encoded % 64 != 0 {
            return;
        }
        area.check();
        let mut encoder = Encoder::new(area.scheme().rules());
        assert!(area.store.plan_rebase(&mut encoder).is_none(), "{:?}", area.store.counts());
        for (part, of) in (0..).zip(parts) {
            let held = (0..of.fresh).filter(|&place| area.id(part, place).is_some()).count();
            let blocks = of.blocks.iter().filter(|&&place| area.id(part, place).is_some()).count();
            assert_eq!((held, blocks), (blocks, of.blocks.len()), "places of part {part}");
            assert!(of.left.is_empty(), "places that left part {part} can be used again");
        }
    }

    /// Reads all blocks of the level. Returns how many there are.
    fn read_all(&self) -> usize {
        let (mut copied, mut codecs, mut found, mut count) = (Copied::new(), Codecs::new(), [0; BLOCK_BYTES], 0);
        for (part, of) in (0..).zip(&self.cache.parts) {
            for &place in &of.blocks {
                // A content that found no room when its base left is lost.
                if self.cache.area.copy(part, place, &mut copied).is_some() {
                    assert!(copied.decode(&mut codecs, &mut found), "damaged");
                    assert!(found == self.expected[&(part, place)], "place {place} of part {part}");
                    count += 1;
                }
            }
        }
        count
    }
}

fn noise(seeds: std::ops::Range<u64>) -> impl Iterator<Item = Block> {
    seeds.map(|seed| {
        let mut block = [0; BLOCK_BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut block);
        block
    })
}

/// Steps 1, 2, 4 and 6 of the life of a writer.
#[test]
fn memory_moves_for_as_long_as_it_holds_more_blocks() {
    let machines = Machines::new(1, 2, 2000);
    let of = |machine| (0..2000).map(move |block| (machine, block));
    let contents = of(0).chain(of(1)).map(|(machine, block)| machines.bytes(machines.content(machine, block)));
    let mut stored = Stored::new(1024, 3);
    let first = stored.cache.area.lending.lent();

    // Frames that stay where they are leave no more than the first pages.
    stored.cache.is_movable = false;
    stored.fill(contents.clone().take(400));
    assert_eq!(stored.cache.area.lending.lent(), first);
    assert!((1..400).contains(&stored.read_all()));
    stored.cache.is_movable = true;
    stored.fill(contents.clone());
    let lending = stored.cache.area.lending;
    assert_eq!(lending.lent(), lending.most());
    assert!(stored.read_all() as u64 > 3 * lending.lent() / 2, "{} blocks", stored.read_all());

    // They give it back when they hold no more, and try again when they do.
    stored.fill(noise(0..3000));
    let lending = stored.cache.area.lending;
    assert_eq!((lending.lent(), lending.one_of()), (first, 16));
    stored.fill(contents.clone().take(1000));
    assert!(stored.cache.area.lending.lent() > first && stored.cache.one_of == 1);

    // Another memory begins with its first pages.
    let Stored { writer, cache, .. } = &mut stored;
    assert!(cache.area.lending.resize(300));
    writer.begin_anew(cache);
    assert_eq!(cache.frames, (300 - 16) / 3);
    assert_eq!(stored.read_all(), 0);
    stored.check();
    stored.fill(contents.take(200));
}

/// Steps 1 and 3.
#[test]
fn blocks_that_are_not_there_are_reported() {
    let mut stored = Stored::new(1024, 1);
    let blocks: Vec<Block> = noise(0..3).collect();
    // The disk of the second one is gone.
    let run = [(Some(0), blocks[0]), (None, blocks[1]), (Some(1), blocks[2])];
    assert_eq!((stored.store(0, &run), stored.read_all()), (1, 2));
    assert_eq!((stored.cache.area.encoded, stored.cache.area.rejected), (2, 1));
    // Without memory, no block finds room.
    let mut stored = Stored::new(1, 1);
    assert_eq!((stored.store(0, &[(Some(0), blocks[0])]), stored.read_all()), (1, 0));
}
