//! Contents within a fixed amount of memory, each stored once and in the fewest bytes that pay.
//!
//! A *content* has owners, which are the blocks with it. It is stored alone, or as a difference to its *base*, another
//! content that is stored alone: no base has a base. A base whose owners have all left is an *orphan*, and stays for its
//! dependents. Orphans take up to a limit of the memory; beyond it, the dependents of the oldest one are encoded again
//! without it, and it leaves.
//!
//! The store has no order of eviction. Where [`Store::insert`] finds no room, its user releases other contents and tries
//! again. A content may also leave on its own: if its bytes are damaged, or if no room remains while its base leaves. Its
//! owners then read nothing, which is a miss. Every read is compared with the 128-bit hash of the content, so bits that
//! flip in an encoding or in its base lead to a miss, too, and never to other bytes.

use crate::codec::Codec;
use crate::encode::{Choice, Encoder, GOOD_MAX, Rules, candidates};
use crate::identity::{Identities, hash};
use crate::lpu::signature;
use crate::pool::{Handle, LINE_BYTES, Pool, PoolCounts};
use crate::signature::Signatures;
use crate::sketch::{Sketches, sketch};
use crate::{BLOCK_BYTES, Block};

/// Most dependents of a content: the most that are encoded again at a time.
pub const DEPENDENTS_MAX: u32 = 64;

/// Bytes of an encoding that no difference can beat by a whole line.
const TINY: usize = LINE_BYTES;

const NONE: u32 = u32::MAX;

/// What a store is made of.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Pages of 4 KiB for contents.
    pub pages: u32,
    /// Most contents. Each takes about 138 bytes of memory in addition, used or not.
    pub contents: u32,
    /// Seed of the hash of contents; random and secret where contents are foreign.
    pub seed: u64,
    /// The codecs.
    pub rules: Rules,
    /// Whether similar contents are stored as differences.
    pub is_similar_shared: bool,
    /// The largest share of the pages that orphans take.
    pub orphans_max: f64,
}

impl Default for Settings {
    /// 256 MiB, with four times as many contents, and up to 5 % for orphans.
    fn default() -> Settings {
        Settings {
            pages: 65_536,
            contents: 4 * 65_536,
            seed: 0,
            rules: Rules::default(),
            is_similar_shared: true,
            orphans_max: 0.05,
        }
    }
}

/// A content in a store. That of a content which left is recognized, even if its place has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    place: u32,
    generation: u32,
}

/// There is no room for the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no room for the content")
    }
}

impl std::error::Error for Full {}

/// What a store has, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Contents that are stored.
    pub contents: u32,
    /// Their owners.
    pub owners: u64,
    /// Contents that are stored as differences.
    pub differences: u32,
    /// Contents without owners, and the memory that they take.
    pub orphans: u32,
    /// Bytes of orphans.
    pub orphan_bytes: u64,
    /// Contents that were encoded again because their base left.
    pub rebased: u64,
    /// Of these, contents that found no room and left.
    pub dropped: u64,
    /// Contents that left because their bytes, or those of their base, were damaged.
    pub damaged: u64,
}

#[derive(Clone, Copy)]
struct Content {
    /// Its halves, because a `u128` would align the content to 16 bytes.
    hash: [u64; 2],
    handle: Handle,
    generation: u32,
    /// Blocks with this content; 0 for orphans. [`NONE`] for a free place.
    owners: u32,
    base: u32,
    dependents: u32,
    first_dependent: u32,
    /// Neighbours among the dependents of the base, among orphans, or among free places.
    previous: u32,
    next: u32,
}

impl Content {
    fn hash(&self) -> u128 {
        u128::from(self.hash[0]) << 64 | u128::from(self.hash[1])
    }
}

/// A list of orphans, the oldest first.
#[derive(Clone, Copy)]
struct Orphans {
    first: u32,
    last: u32,
}

/// Contents within a fixed amount of memory.
pub struct Store {
    settings: Settings,
    pool: Pool,
    encoder: Encoder,
    identities: Identities,
    /// Of contents with owners that are stored alone.
    signatures: Signatures,
    sketches: Sketches,
    contents: Vec<Content>,
    free: u32,
    orphans: Orphans,
    orphan_bytes_max: u64,
    counts: StoreCounts,
}

impl Store {
    /// An empty store. It allocates all its memory.
    pub fn new(settings: Settings) -> Store {
        let Settings { pages, contents, rules, orphans_max, .. } = settings;
        let similar = if settings.is_similar_shared { contents as usize } else { 0 };
        let pool = Pool::new(pages);
        let empty = Content {
            hash: [0; 2],
            handle: Handle::NOWHERE,
            generation: 0,
            owners: NONE,
            base: NONE,
            dependents: 0,
            first_dependent: NONE,
            previous: NONE,
            next: NONE,
        };
        let mut places = vec![empty; contents as usize];
        for (place, next) in places.iter_mut().zip(1..contents) {
            place.next = next;
        }
        Store {
            settings,
            pool,
            encoder: Encoder::new(rules),
            identities: Identities::new(contents as usize),
            // Not all contents are stored alone.
            signatures: Signatures::new(similar / 2),
            sketches: Sketches::new(similar / 2),
            free: if contents == 0 { NONE } else { 0 },
            contents: places,
            orphans: Orphans { first: NONE, last: NONE },
            orphan_bytes_max: (f64::from(pages) * BLOCK_BYTES as f64 * orphans_max) as u64,
            counts: StoreCounts::default(),
        }
    }

    /// What it has and did.
    pub fn counts(&self) -> StoreCounts {
        self.counts
    }

    /// Where its memory is.
    pub fn pool(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// How a content is encoded, and the memory that this takes; `None` if it left.
    pub fn encoding(&self, id: ContentId) -> Option<(Codec, usize)> {
        let handle = self.place(id).map(|place| self.contents[place as usize].handle)?;
        Some((handle.codec(), handle.bytes()))
    }

    /// Adds an owner to the content of `block`, which is stored if it is not there yet.
    pub fn insert(&mut self, block: &Block) -> Result<ContentId, Full> {
        let hash = hash(self.settings.seed, block);
        if let Some(place) = self.equal(hash, block) {
            let content = &mut self.contents[place as usize];
            content.owners += 1;
            self.counts.owners += 1;
            if content.owners == 1 {
                self.adopt(place, block);
            }
            return Ok(self.id(place));
        }
        if self.free == NONE {
            return Err(Full);
        }
        let (handle, base) = self.encode(block).ok_or(Full)?;
        let place = self.free;
        let content = &mut self.contents[place as usize];
        self.free = content.next;
        *content = Content {
            hash: [(hash >> 64) as u64, hash as u64],
            handle,
            generation: content.generation,
            owners: 1,
            base: NONE,
            dependents: 0,
            first_dependent: NONE,
            previous: NONE,
            next: NONE,
        };
        self.counts.contents += 1;
        self.counts.owners += 1;
        self.identities.insert(hash, place);
        match base {
            Some(base) => self.depend(place, base),
            None => self.offer(place, block),
        }
        Ok(self.id(place))
    }

    /// Copies a content to `out`; returns whether it is still there and right.
    pub fn read(&mut self, id: ContentId, out: &mut Block) -> bool {
        let Some(place) = self.place(id) else { return false };
        if self.decode(place, out) {
            return true;
        }
        // The base is damaged, or this content alone.
        let base = self.contents[place as usize].base;
        if base != NONE && !self.decode(base, out) {
            self.damaged(base);
        } else {
            self.damaged(place);
        }
        false
    }

    /// Removes an owner of a content, which leaves with its last one, unless it is a base. Nothing happens if it left.
    pub fn release(&mut self, id: ContentId) {
        let Some(place) = self.place(id) else { return };
        let content = &mut self.contents[place as usize];
        match (content.owners, content.dependents) {
            (0, _) => {}
            (1, 0) => self.leave(place),
            (1, _) => {
                self.withdraw(place);
                self.orphan(place);
                while self.counts.orphan_bytes > self.orphan_bytes_max {
                    self.rebase(self.orphans.first);
                }
            }
            _ => {
                content.owners -= 1;
                self.counts.owners -= 1;
            }
        }
    }

    fn id(&self, place: u32) -> ContentId {
        ContentId { place, generation: self.contents[place as usize].generation }
    }

    fn place(&self, id: ContentId) -> Option<u32> {
        let content = self.contents.get(id.place as usize)?;
        (content.owners != NONE && content.generation == id.generation).then_some(id.place)
    }

    /// The content that equals `block`, compared byte by byte.
    fn equal(&mut self, hash: u128, block: &Block) -> Option<u32> {
        let place = self.identities.find(hash, |place| self.contents[place as usize].hash() == hash)?;
        let mut found = [0; BLOCK_BYTES];
        let is_equal = self.read(self.id(place), &mut found) && found == *block;
        is_equal.then_some(place)
    }

    /// Decodes the content at `place` and compares its hash.
    fn decode(&mut self, place: u32, out: &mut Block) -> bool {
        let Content { handle, base, .. } = self.contents[place as usize];
        let mut base_block = [0; BLOCK_BYTES];
        let has_base = base == NONE || self.decode_handle(self.contents[base as usize].handle, out, &mut base_block);
        has_base
            && self.decode_handle(handle, &base_block, out)
            && hash(self.settings.seed, out) == self.contents[place as usize].hash()
    }

    fn decode_handle(&mut self, handle: Handle, base: &Block, out: &mut Block) -> bool {
        let bytes = self.pool.read(handle);
        bytes.is_some_and(|bytes| self.encoder.decode(handle.codec(), bytes, base, out).is_ok())
    }

    /// Encodes a block and stores it; returns its base if it is a difference.
    fn encode(&mut self, block: &Block) -> Option<(Handle, Option<u32>)> {
        let mut choice = self.encoder.begin(block);
        let mut base = None;
        if self.settings.is_similar_shared && choice.length > TINY {
            let weight = |place| weight(&self.contents, place);
            let in_place = self.signatures.best(signature(block), weight);
            let shifted = self.sketches.best(&sketch(block), weight);
            base = self.against(block, candidates(in_place, shifted));
        }
        if let Some((_, better)) = base {
            choice = better;
        }
        let handle = self.pool.store(choice.codec, self.encoder.bytes())?;
        Some((handle, base.map(|(base, _)| base)))
    }

    /// Encodes a block as its difference to one of `candidates`, if that is worth it.
    fn against(&mut self, block: &Block, candidates: impl Iterator<Item = u32>) -> Option<(u32, Choice)> {
        let mut best = None;
        let mut base = [0; BLOCK_BYTES];
        for place in candidates {
            if self.decode(place, &mut base)
                && let Some(choice) = self.encoder.against(block, &base)
            {
                best = Some((place, choice));
                if choice.length <= GOOD_MAX {
                    break;
                }
            }
        }
        best
    }

    /// Makes a content that is stored alone a candidate for a base.
    fn offer(&mut self, place: u32, block: &Block) {
        if self.settings.is_similar_shared {
            self.signatures.insert(signature(block), place);
            self.sketches.insert(&sketch(block), place);
        }
    }

    /// Makes a content that is stored alone no candidate any more.
    fn withdraw(&mut self, place: u32) {
        if !self.settings.is_similar_shared {
            return;
        }
        let mut block = [0; BLOCK_BYTES];
        // What is damaged stays a candidate that is never right, until later ones displace it.
        if self.decode(place, &mut block) {
            self.signatures.remove(signature(&block), place);
            self.sketches.remove(&sketch(&block), place);
        }
    }

    /// Enters the content at `place` as a dependent of `base`.
    fn depend(&mut self, place: u32, base: u32) {
        let content = &mut self.contents[base as usize];
        let next = content.first_dependent;
        content.first_dependent = place;
        content.dependents += 1;
        let content = &mut self.contents[place as usize];
        (content.base, content.previous, content.next) = (base, NONE, next);
        if next != NONE {
            self.contents[next as usize].previous = place;
        }
        self.counts.differences += 1;
    }

    /// Takes the content at `place` off the dependents of its base.
    fn part(&mut self, place: u32) {
        let Content { base, previous, next, .. } = self.contents[place as usize];
        match previous {
            NONE => self.contents[base as usize].first_dependent = next,
            previous => self.contents[previous as usize].next = next,
        }
        if next != NONE {
            self.contents[next as usize].previous = previous;
        }
        self.contents[base as usize].dependents -= 1;
        let content = &mut self.contents[place as usize];
        (content.base, content.previous, content.next) = (NONE, NONE, NONE);
        self.counts.differences -= 1;
    }

    /// The last owner of a base leaves it: it becomes the newest orphan.
    fn orphan(&mut self, place: u32) {
        let last = std::mem::replace(&mut self.orphans.last, place);
        let content = &mut self.contents[place as usize];
        (content.owners, content.previous, content.next) = (0, last, NONE);
        self.counts.owners -= 1;
        self.counts.orphans += 1;
        self.counts.orphan_bytes += content.handle.bytes() as u64;
        match last {
            NONE => self.orphans.first = place,
            last => self.contents[last as usize].next = place,
        }
    }

    /// Takes a content off the orphans.
    fn unorphan(&mut self, place: u32) {
        let content = &mut self.contents[place as usize];
        let (previous, next) = (content.previous, content.next);
        (content.previous, content.next) = (NONE, NONE);
        self.counts.orphans -= 1;
        self.counts.orphan_bytes -= content.handle.bytes() as u64;
        match previous {
            NONE => self.orphans.first = next,
            previous => self.contents[previous as usize].next = next,
        }
        match next {
            NONE => self.orphans.last = previous,
            next => self.contents[next as usize].previous = previous,
        }
    }

    /// An orphan has an owner again.
    fn adopt(&mut self, place: u32, block: &Block) {
        self.unorphan(place);
        self.offer(place, block);
    }

    /// Encodes the dependents of an orphan without it; it leaves with the last one.
    fn rebase(&mut self, orphan: u32) {
        let mut block = [0; BLOCK_BYTES];
        loop {
            let Content { dependents, first_dependent: place, .. } = self.contents[orphan as usize];
            let is_last = dependents == 1;
            if self.decode(place, &mut block) {
                self.counts.rebased += 1;
                self.part(place);
                self.pool.free(self.contents[place as usize].handle);
                if is_last {
                    // Its room is for the last one.
                    self.leave(orphan);
                }
                match self.encode(&block) {
                    Some((handle, base)) => {
                        self.contents[place as usize].handle = handle;
                        match base {
                            Some(base) => self.depend(place, base),
                            None => self.offer(place, &block),
                        }
                    }
                    None => {
                        self.counts.dropped += 1;
                        self.vacate(place);
                    }
                }
            } else {
                self.counts.damaged += 1;
                self.leave(place);
            }
            if is_last {
                return;
            }
        }
    }

    /// The bytes of a content are damaged: it leaves with all its dependents.
    fn damaged(&mut self, place: u32) {
        let Content { owners, dependents, .. } = self.contents[place as usize];
        for _ in 0..dependents {
            self.counts.damaged += 1;
            self.leave(self.contents[place as usize].first_dependent);
        }
        self.counts.damaged += 1;
        // An orphan left with its last dependent.
        if owners > 0 {
            self.leave(place);
        }
    }

    /// Removes a content without dependents. If it was the last dependent of an orphan, that leaves, too.
    fn leave(&mut self, place: u32) {
        let Content { handle, base, owners, .. } = self.contents[place as usize];
        if base != NONE {
            self.part(place);
        } else if owners == 0 {
            self.unorphan(place);
        } else {
            self.withdraw(place);
        }
        self.pool.free(handle);
        self.vacate(place);
        if base != NONE && self.contents[base as usize].owners == 0 && self.contents[base as usize].dependents == 0 {
            self.leave(base);
        }
    }

    /// Frees the place of a content, whose memory is free and which nothing refers to.
    fn vacate(&mut self, place: u32) {
        let content = &mut self.contents[place as usize];
        let (hash, owners) = (content.hash(), content.owners);
        content.owners = NONE;
        content.generation = content.generation.wrapping_add(1);
        content.next = self.free;
        self.free = place;
        self.counts.contents -= 1;
        self.counts.owners -= u64::from(owners);
        self.identities.remove(hash, place);
    }
}

/// How much a content that is stored alone is worth as a base: one with dependents is in memory for longer.
fn weight(contents: &[Content], place: u32) -> Option<u32> {
    let content = &contents[place as usize];
    let is_base = content.owners != NONE && content.owners > 0 && content.base == NONE;
    (is_base && content.dependents < DEPENDENTS_MAX).then_some(content.dependents)
}

#[cfg(test)]
mod tests;
