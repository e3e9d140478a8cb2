//! The index: the slot of each block, and the frame of each resident slot.

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::quality::SeedableRandomState;
use hashbrown::HashMap;
use nigh_policy::{Block, Slot, Spec, prefetch};

use crate::error::ConfigError;
use crate::request::Volume;

/// No frame, or the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;
/// Frames are numbered below this.
pub(crate) const FRAMES_MOST: u32 = (1 << 24) - 1;

/// A block of a volume, packed into 56 bits: the volume's number above 34 bits of block index. Not all bits are ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u64);

const INDEX_BITS: u32 = 34;

impl Key {
    /// Blocks are numbered below this.
    pub(crate) const BLOCKS: u64 = 1 << INDEX_BITS;
    /// Volumes are numbered below this.
    pub(crate) const VOLUMES: u32 = (1 << (56 - INDEX_BITS)) - 1;

    #[inline(always)]
    pub(crate) fn new(volume: Volume, block: u64) -> Key {
        debug_assert!(block < Key::BLOCKS && volume.0 < Key::VOLUMES);
        Key(u64::from(volume.0) << INDEX_BITS | block)
    }

    #[inline(always)]
    pub(crate) fn volume(self) -> Volume {
        Volume((self.0 >> INDEX_BITS) as u32)
    }

    /// All of it.
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The key of a `word`.
    pub(crate) fn from_word(word: u64) -> Key {
        Key(word)
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

/// Slots of a bucket: the bits of a word.
const WAYS: usize = 32;
/// The percentage of the buckets' slots in use when the limit is reached.
const LOAD_PERCENT: u64 = 94;

/// The keys of neighbouring slots, each plus one, so that 0 is a free slot: the lower 32 bits and the upper 24.
#[derive(Clone, Copy)]
struct Bucket {
    low: [u32; WAYS],
    high: [[u8; 3]; WAYS],
}

impl Bucket {
    const FREE: Bucket = Bucket { low: [0; WAYS], high: [[0; 3]; WAYS] };

    /// Which slots have these lower bits, as bits.
    #[inline(always)]
    fn alike(&self, low: u32) -> u32 {
        let mut alike = 0;
        for way in 0..WAYS {
            alike |= u32::from(self.low[way] == low) << way;
        }
        alike
    }

    /// The slot that has `entry`. If no lower bits match, the upper ones are not read.
    #[inline(always)]
    fn position(&self, entry: u64) -> Option<usize> {
        let mut alike = self.alike(entry as u32);
        while alike != 0 {
            let way = alike.trailing_zeros() as usize;
            if self.entry(way) == entry {
                return Some(way);
            }
            alike &= alike - 1;
        }
        None
    }

    /// Which slots are free, as bits.
    fn free(&self) -> u32 {
        let (mut free, mut alike) = (0, self.alike(0));
        while alike != 0 {
            let way = alike.trailing_zeros();
            free |= u32::from(self.high[way as usize] == [0; 3]) << way;
            alike &= alike - 1;
        }
        free
    }

    #[inline(always)]
    fn entry(&self, way: usize) -> u64 {
        let [a, b, c] = self.high[way];
        u64::from(u32::from_le_bytes([a, b, c, 0])) << 32 | u64::from(self.low[way])
    }

    fn set(&mut self, way: usize, entry: u64) {
        let [a, b, c, _] = ((entry >> 32) as u32).to_le_bytes();
        (self.low[way], self.high[way]) = (entry as u32, [a, b, c]);
    }
}

/// The blocks of a group are counted together: 256, 1 MiB of 4 KiB each.
const GROUP_BITS: u32 = 8;
/// Blocks of the cache for which there is a count.
const BLOCKS_PER_COUNT: u32 = 64;

/// How many blocks are resident, by group; groups that hash to the same place have one count. It shows at once that a group
/// has none, so that what concerns long ranges takes time for those that have some only.
struct Groups {
    counts: Box<[u32]>,
    /// Of hashes, to a place.
    shift: u32,
}

impl Groups {
    fn new(limit: u32) -> Groups {
        let places = (limit / BLOCKS_PER_COUNT).next_power_of_two().max(2);
        Groups { counts: vec![0; places as usize].into(), shift: 64 - places.trailing_zeros() }
    }

    fn place(&self, key: Key) -> usize {
        ((key.0 >> GROUP_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }
}

/// Buckets that keys hash to, followed by buckets for blocks that overflow.
#[derive(Clone, Copy)]
struct Segment {
    /// The first bucket, and the one after the last.
    base: u32,
    end: u32,
    /// The number of buckets that keys hash to.
    hashed: u32,
    /// Slots in use, and their limit.
    used: u32,
    most: u32,
}

impl Segment {
    /// A segment after `base` buckets that allows `most` slots in use. After long use, one block in two thousand
    /// overflows. There is room for eight times as many, and two buckets; it is exceeded only with negligible
    /// probability, because the hash is secret.
    fn new(base: u32, most: u32) -> Segment {
        let hashed = (u64::from(most) * 100).div_ceil(LOAD_PERCENT * WAYS as u64) as u32;
        let hashed = hashed.max(1);
        let end = base + hashed + most.div_ceil(256 * WAYS as u32) + 2;
        Segment { base, end, hashed, used: 0, most }
    }

    /// The buckets of a key with `hash`. The hash has to be good: with `foldhash::fast`, neighbours share buckets and
    /// ten times as many overflow.
    #[inline(always)]
    fn choices(&self, hash: u64) -> [usize; 3] {
        let (low, high) = (hash as u32, (hash >> 32) as u32);
        let hashes = [low, high, low ^ high.rotate_left(16)];
        hashes.map(|hash| self.base as usize + ((u64::from(hash) * u64::from(self.hashed)) >> 32) as usize)
    }

    fn is_spare(&self, slot: Slot) -> bool {
        slot.index() / WAYS >= (self.base + self.hashed) as usize
    }
}

/// Slots are numbered below this.
const SLOTS_MOST: u64 = 1 << 30;

/// The number of ghosts that `policy` can use if `capacity` blocks are resident.
pub(crate) fn ghosts_of(policy: &Spec, capacity: u32) -> Result<u32, ConfigError> {
    match nigh_policy::ghosts(policy, capacity)? {
        u32::MAX => Err(ConfigError::Unlimited { policy: Box::new(policy.clone()) }),
        ghosts => checked(ghosts, capacity),
    }
}

/// The number of ghosts, or an error if they and the blocks need more slots than can be numbered.
pub(crate) fn checked(ghosts: u32, capacity: u32) -> Result<u32, ConfigError> {
    if u64::from(ghosts) + u64::from(capacity) >= SLOTS_MOST {
        return Err(ConfigError::Impossible { what: "blocks and ghosts together must be less than 2^30" });
    }
    Ok(ghosts)
}

/// The index of all blocks that the policy knows.
///
/// A block's slot is in one of the three buckets that its key hashes to. A lookup therefore reads no table but the keys
/// themselves, and a slot costs 10 bytes: key and frame. A slot is never moved, because the policy knows it by its
/// number; the few blocks whose buckets are all full have slots elsewhere, which a hash table finds.
///
/// For the same reason the index grows by a segment, with buckets of its own. New blocks go to the newest segment that
/// has room, and lookups start with the newest. A segment is at least as large as all before it, so there are few: if
/// the index is n times as large as the first segment, there are at most 1 + log2(n).
pub(crate) struct Slots {
    buckets: Vec<Bucket>,
    /// Per slot: its frame plus one, or 0 for a ghost.
    frames: Vec<[u8; 3]>,
    newest: Segment,
    /// The newest is last.
    older: Vec<Segment>,
    hasher: SeedableRandomState,
    overflow: HashMap<Key, Slot, SeedableRandomState>,
    /// Free slots of the buckets that keys do not hash to, by segment, the newest last.
    spare: Vec<Vec<Slot>>,
    groups: Groups,
    /// Slots with a frame, or about to get one.
    pub(crate) resident: u32,
    /// Slots in use, and their limit.
    len: u32,
    limit: u32,
}

impl Slots {
    /// The most slots in use with this many resident blocks and ghosts: one more, because the incoming block has a slot
    /// while the victim is still resident.
    pub(crate) fn most(capacity: u32, ghosts: u32) -> u32 {
        capacity + ghosts + 1
    }

    /// With `fixed_hash` blocks have the same slots in each run.
    pub(crate) fn new(limit: u32, fixed_hash: bool) -> Slots {
        let hasher = if fixed_hash { SeedableRandomState::fixed() } else { SeedableRandomState::random() };
        let newest = Segment::new(0, limit);
        let buckets = newest.end as usize;
        let mut slots = Slots {
            // All zeros, so that the system provides memory when it is touched.
            buckets: vec![Bucket::FREE; buckets],
            frames: vec![[0; 3]; buckets * WAYS],
            newest,
            older: Vec::new(),
            overflow: HashMap::with_hasher(hasher.clone()),
            hasher,
            spare: Vec::new(),
            groups: Groups::new(limit),
            resident: 0,
            len: 0,
            limit,
        };
        slots.add_spare();
        slots
    }

    /// Marks the buckets of the newest segment that keys do not hash to as free.
    fn add_spare(&mut self) {
        let Segment { base, hashed, end, .. } = self.newest;
        let spare = (base + hashed) * WAYS as u32..end * WAYS as u32;
        self.spare.push(spare.rev().map(Slot).collect());
    }

    /// Whether no further slot can be in use, besides that of an incoming block.
    pub(crate) fn is_full(&self) -> bool {
        self.len + 1 >= self.limit
    }

    /// Slots are numbered below this.
    pub(crate) fn numbers(&self) -> u32 {
        self.frames.len() as u32
    }

    /// The additional segment that `limit` slots need.
    fn addition(&self, limit: u32) -> Option<Segment> {
        let room = self.older.iter().map(|segment| segment.most).sum::<u32>() + self.newest.most;
        (limit > room).then(|| Segment::new(self.newest.end, (limit - room).max(room)))
    }

    /// With a limit of `limit`, slots are numbered below this.
    pub(crate) fn numbers_for(&self, limit: u32) -> u32 {
        self.addition(limit).unwrap_or(self.newest).end * WAYS as u32
    }

    /// Allocates memory for up to `most` more of the slots that `limit` needs. Returns whether that is all.
    pub(crate) fn lengthen(&mut self, limit: u32, most: u32) -> bool {
        let numbers = self.numbers_for(limit) as usize;
        let length = self.frames.len();
        if length < numbers {
            if self.buckets.capacity() * WAYS < numbers {
                self.buckets.reserve_exact(numbers / WAYS - self.buckets.len());
                self.frames.reserve_exact(numbers - length);
            }
            let next = numbers.min(length + most.next_multiple_of(WAYS as u32) as usize);
            self.buckets.resize(next / WAYS, Bucket::FREE);
            self.frames.resize(next, [0; 3]);
        }
        self.frames.len() >= numbers
    }

    /// Sets the limit of slots in use to `limit`, not below the number in use. Their memory is already allocated.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        if let Some(segment) = self.addition(limit) {
            assert!(self.buckets.len() >= segment.end as usize, "the index was lengthened for it");
            self.older.push(std::mem::replace(&mut self.newest, segment));
            self.add_spare();
        }
        assert!(self.len <= limit);
        self.limit = limit;
    }

    #[inline(always)]
    fn find_in(&self, segment: &Segment, hash: u64, key: Key) -> Option<Slot> {
        for bucket in segment.choices(hash) {
            if let Some(way) = self.buckets[bucket].position(key.0 + 1) {
                return Some(Slot((bucket * WAYS + way) as u32));
            }
        }
        None
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Slot> {
        let hash = self.hasher.hash_one(key.0);
        let found = self.find_in(&self.newest, hash, key);
        if found.is_some() || (self.older.is_empty() && self.overflow.is_empty()) {
            return found;
        }
        self.find_further(hash, key)
    }

    /// Starts loading the memory that `find` will read for `key`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: Key) {
        for bucket in self.newest.choices(self.hasher.hash_one(key.0)) {
            let low = &self.buckets[bucket].low;
            [0, WAYS / 2, WAYS - 1].into_iter().for_each(|way| prefetch(low, way));
        }
    }

    #[inline(never)]
    fn find_further(&self, hash: u64, key: Key) -> Option<Slot> {
        let older = self.older.iter().rev().find_map(|segment| self.find_in(segment, hash, key));
        older.or_else(|| self.overflow.get(&key).copied())
    }

    /// The slot of `key`, created if there is none.
    pub(crate) fn find_or_add(&mut self, key: Key) -> Slot {
        self.find(key).unwrap_or_else(|| self.add(key))
    }

    /// A slot for `key`, which has none.
    pub(crate) fn add(&mut self, key: Key) -> Slot {
        debug_assert_eq!(self.find(key), None);
        assert!(self.len < self.limit, "the policy remembers more ghosts than it may");
        self.len += 1;
        let mut at = self.older.len();
        while self.segment(at).used == self.segment(at).most {
            at = at.checked_sub(1).expect("the segments have room for the limit");
        }
        self.segment_mut(at).used += 1;
        let hash = self.hasher.hash_one(key.0);
        let [first, second, third] = self.segment(at).choices(hash).map(|bucket| (self.buckets[bucket].free(), bucket));
        let emptier = |one: (u32, usize), other: (u32, usize)| {
            if other.0.count_ones() > one.0.count_ones() { other } else { one }
        };
        let (ways, bucket) = emptier(emptier(first, second), third);
        let slot = if ways != 0 {
            Slot(bucket as u32 * WAYS as u32 + ways.trailing_zeros())
        } else {
            let slot = self.spare[at].pop().expect("few blocks overflow");
            self.overflow.insert(key, slot);
            slot
        };
        self.set_entry(slot, key.0 + 1);
        slot
    }

    /// By age, the newest last.
    fn segment(&self, at: usize) -> &Segment {
        self.older.get(at).unwrap_or(&self.newest)
    }

    fn segment_mut(&mut self, at: usize) -> &mut Segment {
        self.older.get_mut(at).unwrap_or(&mut self.newest)
    }

    /// Forgets the block of `slot`, which is not resident; the slot is free.
    pub(crate) fn remove(&mut self, slot: Slot) {
        assert_eq!(self.frame(slot), NONE, "a resident block is not forgotten");
        let bucket = slot.0 / WAYS as u32;
        let at = match bucket < self.newest.base {
            true => self.older.partition_point(|segment| segment.base <= bucket) - 1,
            false => self.older.len(),
        };
        if self.segment(at).is_spare(slot) {
            self.overflow.remove(&self.key(slot)).expect("its slot is not in its buckets");
            self.spare[at].push(slot);
        }
        self.set_entry(slot, 0);
        self.segment_mut(at).used -= 1;
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

    /// The key of a slot, if it is in use.
    pub(crate) fn known(&self, slot: Slot) -> Option<Key> {
        self.entry(slot).checked_sub(1).map(Key)
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
        match (self.frame(slot), frame) {
            (NONE, NONE) => {}
            (NONE, _) => self.groups.counts[self.groups.place(self.key(slot))] += 1,
            (_, NONE) => self.groups.counts[self.groups.place(self.key(slot))] -= 1,
            _ => {}
        }
        let [a, b, c, _] = frame.wrapping_add(1).to_le_bytes();
        self.frames[slot.index()] = [a, b, c];
    }

    /// The parts of `blocks` that may have resident blocks; no other part has any.
    pub(crate) fn occupied(&self, volume: Volume, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let groups = blocks.start >> GROUP_BITS..blocks.end.div_ceil(1 << GROUP_BITS);
        groups.filter_map(move |group| {
            let first = group << GROUP_BITS;
            let is_empty = self.groups.counts[self.groups.place(Key::new(volume, first))] == 0;
            (!is_empty).then(|| first.max(blocks.start)..(first + (1 << GROUP_BITS)).min(blocks.end))
        })
    }

    /// Every slot in use, by number. Takes time in proportion to all slots.
    pub(crate) fn used(&self) -> Vec<Slot> {
        (0..self.frames.len() as u32).map(Slot).filter(|&slot| self.entry(slot) != 0).collect()
    }

    /// The number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Recounts the groups.
    pub(crate) fn check(&self) {
        let mut counts = vec![0; self.groups.counts.len()];
        for slot in self.used().into_iter().filter(|&slot| self.frame(slot) != NONE) {
            counts[self.groups.place(self.key(slot))] += 1;
        }
        assert_eq!(*counts, *self.groups.counts, "resident blocks of groups");
    }

    /// Memory of the index.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
            + size_of_val(&*self.frames)
            + size_of_val(&*self.groups.counts)
            + self.overflow.allocation_size()
            + self.spare.iter().map(|spare| spare.capacity() * size_of::<Slot>()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_and_used_again() {
        let mut slots = Slots::new(3, false);
        let last = Key::BLOCKS - 1;
        let keys =
            [Key::new(Volume(0), 7), Key::new(Volume(Key::VOLUMES - 1), 7), Key::new(Volume(Key::VOLUMES - 1), last)];
        let [a, b, c] = keys.map(|key| slots.find_or_add(key));
        assert_eq!(slots.len(), 3);
        assert_eq!(keys.map(|key| slots.find(key)), [Some(a), Some(b), Some(c)]);
        assert_eq!(slots.key(c).block(), Block { volume: Key::VOLUMES - 1, index: last });
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

    /// Parts without resident blocks are left out, at least where few groups have any.
    #[test]
    fn parts_with_resident_blocks_are_found() {
        let mut slots = Slots::new(10_000, true);
        let of = Volume(3);
        let [first, last] = [1000, 90_000].map(|block| slots.find_or_add(Key::new(of, block)));
        let all = 10..100_000;
        assert_eq!(slots.occupied(of, all.clone()).count(), 0, "both are ghosts");
        slots.set_frame(first, 1);
        slots.set_frame(last, 2);
        let parts: Vec<_> = slots.occupied(of, all.clone()).collect();
        assert!(parts.contains(&(768..1024)) && parts.contains(&(89_856..90_112)) && parts.len() < 10, "{parts:?}");
        assert_eq!(slots.occupied(of, 1000..1001).next(), Some(1000..1001));
        slots.set_frame(first, 3);
        slots.set_frame(last, NONE);
        slots.check();
        slots.set_frame(first, NONE);
        assert_eq!(slots.occupied(of, all).count(), 0);
        slots.check();
    }

    /// Slots stay where they are and blocks stay found while others come and go, and the blocks that overflow are few.
    #[test]
    fn full_for_long() {
        let limit = 20_000;
        let mut slots = Slots::new(limit, false);
        let numbers = slots.numbers();
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

    /// Blocks stay where they are when the index grows; few more overflow; and what grows bit by bit has few segments.
    #[test]
    fn grown_by_segments() {
        let mut slots = Slots::new(100, false);
        let key = |number: u64| Key::new(Volume(1), number * 8);
        let mut known: Vec<(Key, Slot)> = Vec::new();
        let mut limit = 100;
        while limit < 20_000 {
            for number in known.len() as u64..limit.into() {
                known.push((key(number), slots.find_or_add(key(number))));
            }
            limit += limit / 10;
            let numbers = slots.numbers_for(limit);
            while !slots.lengthen(limit, 1000) {}
            slots.set_limit(limit);
            assert_eq!(slots.numbers(), numbers);
            assert!(known.iter().all(|&(key, slot)| slots.find(key) == Some(slot) && slots.key(slot) == key));
        }
        assert!(slots.older.len() <= 8, "{} segments", slots.older.len() + 1);
        println!("{} segments, {} overflow", slots.older.len() + 1, slots.overflow.len());
        for (key, slot) in known {
            slots.remove(slot);
            assert_eq!(slots.find(key), None);
        }
        assert_eq!((slots.len(), slots.overflow.len(), slots.used().len()), (0, 0, 0));
        assert!(slots.older.iter().all(|segment| segment.used == 0) && slots.newest.used == 0);
        let free: usize = slots.spare.iter().map(Vec::len).sum();
        let segments = slots.older.iter().chain([&slots.newest]);
        let spare: u32 = segments.map(|segment| segment.end - segment.base - segment.hashed).sum();
        assert_eq!(free, spare as usize * WAYS);
    }
}
