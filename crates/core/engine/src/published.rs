//! Blocks that can be read without the engine's lock.
//!
//! 1. A short hit under the lock publishes its blocks (`Engine::hit`): their frames in the arena, and in the table here a hint to each frame.
//! 2. [`Published::read`] finds the frame of each block by its hint and holds the frame by the block's key. The arena checks that the frame
//!    has that block, so a hint may be out of date. The table forgets hints when many blocks have the same bucket.
//! 3. The reader adds the read to its [`Noted`], which [`Engine::take_notice`] later reports to the policy, under the lock.
//! 4. A frame is withdrawn when its block gets another one, or leaves (`Memory::assign`).
//!
//! These reads take the lock:
//!
//! * in caches with levels or tenants, whose hits have other consequences than the reference;
//! * each `Config::verify`th read of a client, whose blocks are checked;
//! * of more than [`BLOCKS_MOST`] blocks;
//! * of blocks without a short hit since they came or were written, to which the first use of a prefetched block belongs;
//! * of a block that only a part of the volume's end fills.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use foldhash::quality::SeedableRandomState;
use nigh_policy::{Stream, Tenant};

use crate::arena::{Arena, Found, Shared, no_hints};
use crate::request::Volume;
use crate::slots::Key;

/// A read of more blocks takes the lock: it is rare, and takes long.
const BLOCKS_MOST: u64 = 4;
/// Hints of a bucket: a line of the processor's cache.
const WAYS: usize = 16;
/// Seven hints for four frames: three blocks in a thousand find all hints of their bucket in use.
const HINTS: (usize, usize) = (7, 4);
/// Reads that can be noted before the next one has to take the lock.
const NOTED_MOST: u32 = 64;
/// In a hint, the number of the frame plus one; above it are bits of the block's hash.
const FRAME: u32 = (1 << 24) - 1;

/// The published blocks of an engine, for any thread. Each clone has its own handle of the memory, so clients with clones of their own share no
/// count of users.
pub struct Published {
    arena: Arc<Arena>,
    table: Arc<Table>,
}

struct Table {
    /// In buckets of `WAYS`; 0 is none. All accesses are relaxed: a hint proves nothing.
    hints: Box<[AtomicU32]>,
    hasher: SeedableRandomState,
    /// Size of a block, as a power of two.
    shift: u32,
    /// Reads that one [`Noted`] takes; 0 if nothing is ever published.
    most: u32,
    shut: AtomicBool,
}

/// Reads of one client that are not reported to the policy yet.
pub struct Noted {
    pub(crate) volume: Volume,
    pub(crate) tenant: Tenant,
    pub(crate) stream: Stream,
    pub(crate) blocks: Vec<u64>,
    pub(crate) reads: u32,
    pub(crate) bytes: u64,
}

/// Position of a key's hint.
struct Place {
    /// The first hint of its bucket.
    bucket: usize,
    /// The hint of the bucket at which the search begins. It continues at the bucket's start.
    first: usize,
    /// The bits of the key's hash that are in its hint.
    tag: u32,
}

impl Noted {
    /// Reads of `volume`.
    pub fn new(volume: Volume, tenant: Tenant, stream: Stream) -> Noted {
        Noted { volume, tenant, stream, blocks: Vec::new(), reads: 0, bytes: 0 }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.reads == 0
    }
}

impl Clone for Published {
    fn clone(&self) -> Published {
        Published { arena: self.arena.handle(), table: self.table.clone() }
    }
}

impl Published {
    /// Nothing is published. With `most` of 0, nothing ever is.
    pub(crate) fn new(arena: &Arena, frames: u32, shift: u32, most: u32, fixed_hash: bool) -> Published {
        let buckets = if most == 0 { 0 } else { (frames as usize * HINTS.0).div_ceil(HINTS.1 * WAYS) };
        let table = Table {
            hints: no_hints(buckets * WAYS),
            hasher: if fixed_hash { SeedableRandomState::fixed() } else { SeedableRandomState::random() },
            shift,
            most,
            shut: AtomicBool::new(false),
        };
        Published { arena: arena.handle(), table: Arc::new(table) }
    }

    /// The number of reads that one [`Noted`] takes in an engine that checks each `verify`th read: the next one is checked.
    pub(crate) fn most(verify: u32) -> u32 {
        if verify == 0 { NOTED_MOST } else { (verify - 1).min(NOTED_MOST) }
    }

    /// Memory of the hints.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.table.hints)
    }

    /// Whether anything is ever published.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.table.most > 0
    }

    /// Whether reads of this many blocks can do without the lock.
    #[inline]
    pub(crate) fn is_for(&self, blocks: u64) -> bool {
        self.is_used() && blocks <= BLOCKS_MOST
    }

    /// Size of a block, as a power of two.
    #[inline]
    pub(crate) fn shift(&self) -> u32 {
        self.table.shift
    }

    /// Nothing can be read from now on.
    pub fn shut(&self) {
        self.table.shut.store(true, Ordering::Release);
    }

    /// The position of a key's bucket.
    #[inline]
    fn place(&self, key: Key) -> Place {
        let hash = self.table.hasher.hash_one(key);
        let buckets = (self.table.hints.len() / WAYS) as u64;
        let bucket = (((hash >> 32) * buckets) >> 32) as usize * WAYS;
        Place { bucket, first: hash as usize % WAYS, tag: hash as u32 & !FRAME }
    }

    /// Adds a hint that `key` is in `frame`, which is published under it.
    pub(crate) fn add(&self, key: Key, frame: u32) {
        let place = self.place(key);
        let hints = &self.table.hints[place.bucket..place.bucket + WAYS];
        let own = place.tag | (frame + 1);
        if hints.iter().any(|hint| hint.load(Ordering::Relaxed) == own) {
            return;
        }
        // A hint is in use if its frame is published and a look-up of that frame's block, which may be another one by now, finds the hint.
        let is_free = |&at: &usize| match hints[at].load(Ordering::Relaxed) {
            0 => true,
            hint => {
                let of = (hint & FRAME) - 1;
                of == frame || !self.arena.is_published(of) || {
                    let found = self.place(Key::from_word(self.arena.key(of)));
                    (found.bucket, found.tag) != (place.bucket, hint & !FRAME)
                }
            }
        };
        let at = (place.first..place.first + WAYS).map(|at| at % WAYS).find(is_free).unwrap_or(place.first);
        hints[at].store(own, Ordering::Relaxed);
    }

    /// Adds a hold of the block `key` to `held`.
    #[inline]
    fn find(&self, held: &mut Shared, key: Key) -> Found {
        let Place { bucket, first, tag } = self.place(key);
        let hints = &self.table.hints[bucket..bucket + WAYS];
        for at in first..first + WAYS {
            let hint = hints[at % WAYS].load(Ordering::Relaxed);
            if hint == 0 {
                break;
            }
            if hint & !FRAME == tag {
                let found = held.find((hint & FRAME) - 1, key.word());
                if found != Found::No {
                    return found;
                }
            }
        }
        Found::No
    }

    /// Returns the bytes of a read if all its blocks are published; the caller must `note` the read. Otherwise returns whether requests wait for
    /// frames that this call held for a moment, in which case `Engine::poll` should be called.
    #[inline]
    pub fn read(&self, volume: Volume, offset: u64, length: u64) -> Result<Shared, bool> {
        let end = length.checked_sub(1).and_then(|more| offset.checked_add(more)).ok_or(false)?;
        let Table { shift, ref shut, .. } = *self.table;
        let (first, last) = (offset >> shift, end >> shift);
        let count = last - first + 1;
        if !self.is_for(count) || last >= Key::BLOCKS || shut.load(Ordering::Acquire) {
            return Err(false);
        }
        let mut held = Shared::new(&self.arena);
        for block in first..first + count {
            match self.find(&mut held, Key::new(volume, block)) {
                Found::Yes => {}
                Found::No if block == first => return Err(false),
                _ => return Err(held.release()),
            }
        }
        if count > 1 && !held.is_current() {
            return Err(held.release());
        }
        Ok(held.part((offset - (first << shift)) as usize, length as usize))
    }

    /// Adds a read of these bytes to `noted`; returns false if that is full.
    #[inline]
    pub fn note(&self, noted: &mut Noted, offset: u64, length: u64) -> bool {
        let Table { shift, most, .. } = *self.table;
        if noted.reads >= most {
            return false;
        }
        let (first, last) = (offset >> shift, (offset + (length - 1)) >> shift);
        noted.blocks.push(first);
        (first + 1..last + 1).for_each(|block| noted.blocks.push(block));
        noted.reads += 1;
        noted.bytes += length;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Hints of blocks that left make room: almost as many blocks are found after long use as at first.
    #[test]
    fn blocks_are_found_after_others_came_and_went() {
        const FRAMES: u32 = 1000;
        let arena = Arena::new(FRAMES, 512, false, true).expect("memory");
        let published = Published::new(&arena, FRAMES, 9, 64, false);
        let mut next = 0;
        let mut key = || {
            next += 1;
            Key::new(Volume(1), next)
        };
        let mut keys: Vec<Key> = (0..FRAMES).map(|_| key()).collect();
        let add = |frame: u32, key: Key| {
            arena.publish(frame, key.word());
            published.add(key, frame);
        };
        (0..FRAMES).for_each(|frame| add(frame, keys[frame as usize]));
        let found = |keys: &[Key]| {
            let is_found = |&&key: &&Key| {
                let mut held = Shared::new(&arena);
                published.find(&mut held, key) == Found::Yes
            };
            keys.iter().filter(is_found).count()
        };
        assert!(found(&keys) >= 980, "{} at first", found(&keys));
        let mut random = 1_u64;
        for _ in 0..100 * FRAMES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let frame = (random >> 33) as u32 % FRAMES;
            arena.withdraw(frame);
            keys[frame as usize] = key();
            add(frame, keys[frame as usize]);
        }
        assert!(found(&keys) >= 960, "{} after long use", found(&keys));
    }
}
