//! The index: which block has which slot, and the frame of each slot that is resident.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use nigh_policy::{Block, Slot};

use crate::request::Volume;

/// No frame, or the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;
/// Frames are numbered below this.
pub(crate) const FRAMES_MOST: u32 = (1 << 24) - 1;

/// A block of a volume, packed into 48 bits: the volume's number above 36 bits of block index. Not all are ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u64);

const INDEX_BITS: u32 = 36;

impl Key {
    /// Blocks are numbered below this, and the last of these numbers is not used.
    pub(crate) const BLOCKS: u64 = 1 << INDEX_BITS;
    /// Volumes are numbered below this.
    pub(crate) const VOLUMES: u32 = 1 << (48 - INDEX_BITS);

    #[inline(always)]
    pub(crate) fn new(volume: Volume, block: u64) -> Key {
        debug_assert!(block < Key::BLOCKS && volume.0 < Key::VOLUMES);
        Key(u64::from(volume.0) << INDEX_BITS | block)
    }

    #[inline(always)]
    pub(crate) fn volume(self) -> Volume {
        Volume((self.0 >> INDEX_BITS) as u32)
    }

    /// The block's index within its volume.
    #[inline(always)]
    pub(crate) fn index(self) -> u64 {
        self.0 & (Key::BLOCKS - 1)
    }

    #[inline(always)]
    pub(crate) fn block(self) -> Block {
        Block { volume: self.volume().0, index: self.index() }
    }
}

/// Slots of a bucket: as many as fit the bits of a word.
const WAYS: usize = 32;
/// So many slots of each hundred of the buckets are in use when all that may be are.
const LOAD_PERCENT: u64 = 94;

/// The keys of neighbouring slots, each plus one, so that 0 is a free slot: 32 bits below, and 16 above.
#[derive(Clone)]
struct Bucket {
    low: [u32; WAYS],
    high: [u16; WAYS],
}

impl Bucket {
    /// Which slots have `entry`, as bits.
    #[inline(always)]
    fn matching(&self, entry: u64) -> u32 {
        let (low, high) = (entry as u32, (entry >> 32) as u16);
        let mut matching = 0;
        for way in 0..WAYS {
            matching |= u32::from(self.low[way] == low && self.high[way] == high) << way;
        }
        matching
    }

    #[inline(always)]
    fn entry(&self, way: usize) -> u64 {
        u64::from(self.high[way]) << 32 | u64::from(self.low[way])
    }

    fn set(&mut self, way: usize, entry: u64) {
        (self.low[way], self.high[way]) = (entry as u32, (entry >> 32) as u16);
    }
}

/// The index of all blocks that the policy knows.
///
/// A block's slot lies in one of the three buckets that its key hashes to, so finding it reads no table but the keys
/// themselves, and a slot costs 9 bytes: key and frame. A slot is never moved, because the policy knows it by its number;
/// the few blocks whose buckets are all full have slots elsewhere, which a hash table finds.
pub(crate) struct Slots {
    buckets: Vec<Bucket>,
    /// Per slot: its frame plus one, or 0 for a ghost.
    frames: Vec<[u8; 3]>,
    hasher: RandomState,
    /// How many buckets keys hash to; the rest are for blocks that overflow.
    hashed: u32,
    overflow: HashMap<Key, Slot, RandomState>,
    /// Free slots of the buckets that keys do not hash to.
    spare: Vec<Slot>,
    /// Slots in use, and how many there may be.
    len: u32,
    limit: u32,
}

impl Slots {
    /// How many buckets keys hash to, and how many more there are, where `limit` slots may be in use. After long use,
    /// one block in two thousand overflows; room for eight times as many, and two buckets, is used up but by odds that need
    /// not be considered, for the hash is secret.
    fn buckets(limit: u32) -> (u32, u32) {
        let hashed = (u64::from(limit) * 100).div_ceil(LOAD_PERCENT * WAYS as u64) as u32;
        (hashed.max(1), limit.div_ceil(256 * WAYS as u32) + 2)
    }

    /// Slots are numbered below this where `limit` may be in use.
    pub(crate) fn numbers(limit: u32) -> u32 {
        let (hashed, spare) = Slots::buckets(limit);
        (hashed + spare) * WAYS as u32
    }

    pub(crate) fn new(limit: u32) -> Slots {
        let (hashed, spare) = Slots::buckets(limit);
        let spare = hashed * WAYS as u32..(hashed + spare) * WAYS as u32;
        let numbers = spare.end as usize;
        let hasher = RandomState::default();
        Slots {
            // All zeros, so that the system gives memory when it is touched.
            buckets: vec![Bucket { low: [0; WAYS], high: [0; WAYS] }; numbers / WAYS],
            frames: vec![[0; 3]; numbers],
            overflow: HashMap::with_hasher(hasher.clone()),
            hasher,
            hashed,
            spare: spare.rev().map(Slot).collect(),
            len: 0,
            limit,
        }
    }

    /// The buckets of `key`. The hash has to be a good one: with `foldhash::fast`, neighbours share buckets and ten times as
    /// many overflow.
    #[inline(always)]
    fn choices(&self, key: Key) -> [usize; 3] {
        let hash = self.hasher.hash_one(key.0);
        let (low, high) = (hash as u32, (hash >> 32) as u32);
        let hashes = [low, high, low ^ high.rotate_left(16)];
        hashes.map(|hash| ((u64::from(hash) * u64::from(self.hashed)) >> 32) as usize)
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Slot> {
        for bucket in self.choices(key) {
            let matching = self.buckets[bucket].matching(key.0 + 1);
            if matching != 0 {
                return Some(Slot(bucket as u32 * WAYS as u32 + matching.trailing_zeros()));
            }
        }
        if self.overflow.is_empty() { None } else { self.overflow.get(&key).copied() }
    }

    /// The slot of `key`, made if there is none.
    pub(crate) fn find_or_add(&mut self, key: Key) -> Slot {
        if let Some(slot) = self.find(key) {
            return slot;
        }
        assert!(self.len < self.limit, "the policy remembers more ghosts than it may");
        self.len += 1;
        let free = self.choices(key).map(|bucket| (self.buckets[bucket].matching(0), bucket));
        let [first, second, third] = free;
        let emptier = |one: (u32, usize), other: (u32, usize)| {
            if other.0.count_ones() > one.0.count_ones() { other } else { one }
        };
        let (ways, bucket) = emptier(emptier(first, second), third);
        let slot = if ways != 0 {
            Slot(bucket as u32 * WAYS as u32 + ways.trailing_zeros())
        } else {
            let slot = self.spare.pop().expect("few blocks overflow");
            self.overflow.insert(key, slot);
            slot
        };
        self.set_entry(slot, key.0 + 1);
        slot
    }

    /// Forgets the block of `slot`, which is not resident; the slot is free.
    pub(crate) fn remove(&mut self, slot: Slot) {
        assert_eq!(self.frame(slot), NONE, "a resident block is not forgotten");
        let key = self.key(slot);
        if slot.index() / WAYS >= self.hashed as usize {
            self.overflow.remove(&key).expect("its slot is not in its buckets");
            self.spare.push(slot);
        }
        self.set_entry(slot, 0);
        self.len -= 1;
    }

    #[inline(always)]
    fn entry(&self, slot: Slot) -> u64 {
        self.buckets[slot.index() / WAYS].entry(slot.index() % WAYS)
    }

    #[inline(always)]
    fn set_entry(&mut self, slot: Slot, entry: u64) {
        self.buckets[slot.index() / WAYS].set(slot.index() % WAYS, entry);
    }

    /// The key of a slot in use.
    #[inline(always)]
    pub(crate) fn key(&self, slot: Slot) -> Key {
        let entry = self.entry(slot);
        debug_assert_ne!(entry, 0, "a free slot has no key");
        Key(entry.wrapping_sub(1))
    }

    /// The frame of `slot`, `NONE` for a ghost.
    #[inline(always)]
    pub(crate) fn frame(&self, slot: Slot) -> u32 {
        let [a, b, c] = self.frames[slot.index()];
        u32::from_le_bytes([a, b, c, 0]).wrapping_sub(1)
    }

    #[inline(always)]
    pub(crate) fn set_frame(&mut self, slot: Slot, frame: u32) {
        debug_assert!(frame == NONE || frame < FRAMES_MOST);
        let [a, b, c, _] = frame.wrapping_add(1).to_le_bytes();
        self.frames[slot.index()] = [a, b, c];
    }

    /// Every slot in use, by number. Takes time in proportion to all slots.
    pub(crate) fn used(&self) -> Vec<Slot> {
        (0..self.frames.len() as u32).map(Slot).filter(|&slot| self.entry(slot) != 0).collect()
    }

    /// How many slots are in use.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
            + size_of_val(&*self.frames)
            + self.overflow.allocation_size()
            + self.spare.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_and_used_again() {
        let mut slots = Slots::new(3);
        let last = Key::BLOCKS - 2;
        let keys = [Key::new(Volume(0), 7), Key::new(Volume(4095), 7), Key::new(Volume(4095), last)];
        let [a, b, c] = keys.map(|key| slots.find_or_add(key));
        assert_eq!(slots.len(), 3);
        assert_eq!(keys.map(|key| slots.find(key)), [Some(a), Some(b), Some(c)]);
        assert_eq!(slots.key(c).block(), Block { volume: 4095, index: last });
        assert_eq!(slots.frame(c), NONE);
        slots.set_frame(c, FRAMES_MOST - 1);
        assert_eq!(slots.frame(c), FRAMES_MOST - 1);
        slots.set_frame(c, NONE);
        assert_eq!(slots.frame(c), NONE);
        slots.remove(b);
        assert_eq!(slots.find(keys[1]), None);
        let mut used = [a, c];
        used.sort_unstable();
        assert_eq!(slots.used(), used);
    }

    /// Slots stay where they are and blocks stay found while others come and go, and the blocks that overflow are few.
    #[test]
    fn full_for_long() {
        let limit = 20_000;
        let mut slots = Slots::new(limit);
        let numbers = Slots::numbers(limit);
        assert!(f64::from(numbers) < 1.09 * f64::from(limit), "{numbers} slots for {limit}");
        let key = |number: u64| Key::new(Volume((number % 3) as u32), number * 8);
        let mut known: Vec<(Key, Slot)> = (0..limit.into()).map(|at| (key(at), slots.find_or_add(key(at)))).collect();
        let mut most = 0;
        let mut random = 1u64;
        for number in 0..8 * u64::from(limit) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let out = (random >> 33) as usize % known.len();
            slots.remove(known[out].1);
            let next = key(u64::from(limit) + number);
            known[out] = (next, slots.find_or_add(next));
            most = most.max(slots.overflow.len());
        }
        assert!(known.iter().all(|&(key, slot)| slots.find(key) == Some(slot) && slots.key(slot) == key));
        let mut used: Vec<Slot> = known.iter().map(|&(_, slot)| slot).collect();
        used.sort_unstable();
        assert_eq!(slots.used(), used, "no slot is two blocks'");
        println!("{most} of {limit} overflowed at most");
        assert!(most > 0 && most < limit as usize / 500, "{most} of {limit} overflowed");
    }
}
