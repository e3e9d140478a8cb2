//! Contents within a fixed amount of memory, each stored once and in the fewest bytes that pay.
//!
//! A *content* has owners, which are the blocks with it. It is stored alone, or as a difference to its *base*, another
//! content that is stored alone: no base has a base. A base whose owners have all left is an *orphan*, and stays for its
//! dependents. Orphans take up to a limit of the memory; beyond it, the dependents of the oldest one are encoded again
//! without it, one at a time ([`Store::plan_rebase`]), and it leaves with the last one.
//!
//! The store has no order of eviction. If [`Store::apply`] finds no room, its user releases other contents and tries
//! again. A content may also be *lost*: if its bytes are damaged, or if no room remains while its base leaves. Its owners
//! then read nothing, which is a miss, and release it as usual. Every read is compared with a 64-bit hash of the content,
//! so bits that flip in an encoding or in its base lead to a miss, too, and never to other bytes.
//!
//! Contents have a *domain*. Those of different domains share nothing: neither equal contents, nor bases.
//!
//! One thread changes a store, and others read it. Under a lock, none has to wait for long: blocks are encoded by
//! [`Store::plan`], which needs only read access, and decoded by [`Copied::decode`], which needs none. Only
//! [`Store::damaged`] decodes with write access.

mod copied;
mod plan;

pub use copied::Copied;
pub use plan::{Plan, Rebase, Refused};

use crate::codec::{Codec, Codecs};
use crate::identity::{Identities, hash};
use crate::pool::{Handle, Pool, PoolCounts};
use crate::signature::Signatures;
use crate::sketch::Sketches;
use crate::{BLOCK_BYTES, Block, mixed};

/// Most dependents of a content.
pub const DEPENDENTS_MAX: u32 = 64;

/// Domains of contents are below this.
pub const DOMAINS_MAX: u32 = 1 << 24;

const NONE: u32 = u32::MAX;

/// Settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Pages of 4 KiB for contents.
    pub pages: u32,
    /// Most contents, with orphans. Each takes 50 bytes of memory in addition; 37 if similar ones are not shared.
    pub contents: u32,
    /// Seed of the hash of contents; random and secret where contents are foreign.
    pub seed: u64,
    /// Whether similar contents are stored as differences.
    pub is_similar_shared: bool,
    /// The largest share of the pages that orphans take.
    pub orphans_max: f64,
}

impl Default for Settings {
    /// 256 MiB, with four times as many contents, and up to 5 % for orphans.
    fn default() -> Settings {
        Settings { pages: 65_536, contents: 4 * 65_536, seed: 0, is_similar_shared: true, orphans_max: 0.05 }
    }
}

/// A content in a store. If it left, no other one has its name for as long as an owner has not released it, and for 65,535
/// contents at the same place after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId {
    /// The low and the high half, so that a name takes 6 bytes.
    place: [u16; 2],
    generation: u16,
}

impl ContentId {
    /// A name that no content has.
    pub const NONE: ContentId = ContentId { place: [u16::MAX; 2], generation: 0 };

    fn new(place: u32, generation: u16) -> ContentId {
        ContentId { place: [place as u16, (place >> 16) as u16], generation }
    }

    fn place(self) -> usize {
        usize::from(self.place[0]) | usize::from(self.place[1]) << 16
    }
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

/// Contents of a store, and counts of its operations.
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

/// A content without owners.
const ORPHAN: u32 = 0x80;

const _: () = assert!(DEPENDENTS_MAX < ORPHAN);

#[derive(Clone, Copy)]
struct Content {
    /// Its halves, so that it takes no more room than it needs.
    hash: [u32; 2],
    /// [`Handle::NOWHERE`] if it is lost, and for free places.
    handle: Handle,
    generation: u16,
    /// The domain in the upper 24 bits, then [`ORPHAN`], then the number of dependents.
    domain: u32,
    /// Blocks with this content. For orphans, the previous orphan.
    owners: u32,
    /// The base of a difference. For contents that are stored alone, the first dependent.
    link: u32,
    /// The next dependent of the same base, orphan, or free place.
    next: u32,
}

const _: () = assert!(size_of::<Content>() == 32);

impl Content {
    /// None.
    const EMPTY: Content =
        Content { hash: [0; 2], handle: Handle::NOWHERE, generation: 0, domain: 0, owners: 0, link: NONE, next: NONE };

    fn new(domain: u32, hash: u64, handle: Handle) -> Content {
        let hash = [hash as u32, (hash >> 32) as u32];
        Content { hash, handle, domain: domain << 8, owners: 1, ..Content::EMPTY }
    }

    fn hash(&self) -> u64 {
        u64::from(self.hash[0]) | u64::from(self.hash[1]) << 32
    }

    fn domain(&self) -> u32 {
        self.domain >> 8
    }

    fn dependents(&self) -> u32 {
        self.domain & (ORPHAN - 1)
    }

    fn is_orphan(&self) -> bool {
        self.domain & ORPHAN != 0
    }

    fn owners(&self) -> u32 {
        if self.is_orphan() { 0 } else { self.owners }
    }

    /// Whether it has an encoding: it is not lost, nor a free place.
    fn is_there(&self) -> bool {
        self.handle != Handle::NOWHERE
    }

    fn base(&self) -> Option<u32> {
        (self.is_there() && self.handle.codec().has_base()).then_some(self.link)
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
    identities: Identities,
    /// Of contents that were stored alone, also of some that left: those that are newer displace them.
    signatures: Signatures,
    sketches: Sketches,
    /// Places that were used before.
    contents: Vec<Content>,
    free: u32,
    orphans: Orphans,
    orphan_bytes_max: u64,
    /// Contents that were ever added.
    added: u64,
    counts: StoreCounts,
}

impl Store {
    /// An empty store. It allocates all its memory, and uses that of pages and contents once it has some.
    pub fn new(settings: Settings) -> Store {
        let Settings { pages, contents, orphans_max, .. } = settings;
        let similar = if settings.is_similar_shared { contents as usize } else { 0 };
        Store {
            settings,
            pool: Pool::new(pages),
            identities: Identities::new(contents as usize),
            signatures: Signatures::new(similar),
            sketches: Sketches::new(similar),
            contents: Vec::with_capacity(contents as usize),
            free: NONE,
            orphans: Orphans { first: NONE, last: NONE },
            orphan_bytes_max: (f64::from(pages) * BLOCK_BYTES as f64 * orphans_max) as u64,
            added: 0,
            counts: StoreCounts::default(),
        }
    }

    /// Allows at most `pages` pages to be in use from now on, at first [`Settings::pages`]. If more are in use, nothing is
    /// added until enough contents were released.
    pub fn allow(&mut self, pages: u32) {
        self.pool.allow(pages);
    }

    /// Contents and counts.
    pub fn counts(&self) -> StoreCounts {
        self.counts
    }

    /// Use of its memory.
    pub fn pool(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// How a content is encoded, and the memory that this takes; `None` if it left.
    pub fn encoding(&self, id: ContentId) -> Option<(Codec, usize)> {
        let handle = self.live(id).map(|place| self.contents[place as usize].handle)?;
        Some((handle.codec(), handle.bytes()))
    }

    /// The owners of a content; 0 if it left.
    pub fn owners(&self, id: ContentId) -> u32 {
        self.live(id).map_or(0, |place| self.contents[place as usize].owners())
    }

    /// The bytes that each owner of a content is charged: an equal part of its memory, and of the part of its base if that
    /// is an orphan, which its dependents share. It changes with the owners. 0 if the content left.
    pub fn charge(&self, id: ContentId) -> f64 {
        let Some(place) = self.live(id) else { return 0.0 };
        let content = &self.contents[place as usize];
        let mut bytes = content.handle.bytes() as f64;
        if let Some(base) = content.base().map(|base| &self.contents[base as usize]).filter(|base| base.is_orphan()) {
            bytes += base.handle.bytes() as f64 / f64::from(base.dependents());
        }
        bytes / f64::from(content.owners().max(1))
    }

    /// Memory for what it knows of pages and contents, in addition to the pages.
    pub fn metadata_bytes(&self) -> usize {
        let contents = self.contents.capacity() * size_of::<Content>();
        let indices = self.identities.bytes() + self.signatures.bytes() + self.sketches.bytes();
        self.pool.metadata_bytes() + contents + indices
    }

    /// Flips a bit of the encoding of a content, as damaged memory does (tests only). Returns false if the content left.
    pub fn flip_bit(&mut self, id: ContentId, bit: usize) -> bool {
        let Some(place) = self.live(id) else { return false };
        let bytes = self.pool.bytes_mut(self.contents[place as usize].handle);
        let length = 8 * bytes.len();
        bytes[bit % length / 8] ^= 1 << (bit % 8);
        true
    }

    /// Removes an owner of a content, which leaves with its last one, unless it is a base: then it becomes an orphan.
    /// The writer of the store then encodes dependents of orphans again ([`Store::plan_rebase`]).
    ///
    /// Each owner is removed once, also if the content is lost.
    pub fn release(&mut self, id: ContentId) {
        let Some(place) = self.known(id) else { return };
        let content = &mut self.contents[place as usize];
        match (content.owners(), content.dependents()) {
            (0, _) => {}
            (1, 1..) => self.orphan(place),
            (1, 0) => {
                if content.is_there() {
                    self.leave(place);
                }
                self.contents[place as usize].owners = 0;
                self.vacate(place);
            }
            _ => {
                content.owners -= 1;
                self.counts.owners -= u64::from(content.is_there());
            }
        }
    }

    /// A content was copied, and does not decode to what it was: it is lost, or its base with all dependents, whichever is
    /// damaged. Nothing happens if it is right, or left since it was copied.
    pub fn damaged(&mut self, id: ContentId) {
        let Some(place) = self.live(id) else { return };
        let mut codecs = Codecs::new();
        if !self.decode(&mut codecs, place, &mut [0; BLOCK_BYTES]) {
            self.lose(self.culprit(&mut codecs, place));
        }
    }

    fn id(&self, place: u32) -> ContentId {
        ContentId::new(place, self.contents[place as usize].generation)
    }

    /// The place of a content that has owners or is there.
    fn known(&self, id: ContentId) -> Option<u32> {
        let content = self.contents.get(id.place())?;
        (content.generation == id.generation).then_some(id.place() as u32)
    }

    /// The place of a content that is there.
    fn live(&self, id: ContentId) -> Option<u32> {
        self.known(id).filter(|&place| self.contents[place as usize].is_there())
    }

    /// Decodes the content at `place` and compares its hash.
    fn decode(&self, codecs: &mut Codecs, place: u32, out: &mut Block) -> bool {
        let content = &self.contents[place as usize];
        let mut base_block = [0; BLOCK_BYTES];
        let mut handle_to = |handle: Handle, base: &Block, out: &mut Block| {
            let bytes = self.pool.read(handle);
            bytes.is_some_and(|bytes| codecs.decode(handle.codec(), bytes, base, out).is_ok())
        };
        // Codecs without a base ignore it, so `out` can be one.
        let has_base = content.base().is_none_or(|base| {
            let handle = self.contents[base as usize].handle;
            handle_to(handle, out, &mut base_block)
        });
        has_base
            && handle_to(content.handle, &base_block, out)
            && hash_of(self.settings.seed, content.domain(), out) == content.hash()
    }

    /// For a content that is not right: its base, if that is not right either, else itself.
    fn culprit(&self, codecs: &mut Codecs, place: u32) -> u32 {
        let base = self.contents[place as usize].base();
        base.filter(|&base| !self.decode(codecs, base, &mut [0; BLOCK_BYTES])).unwrap_or(place)
    }

    /// Enters the content at `place`, a difference, as a dependent of `base`.
    fn depend(&mut self, place: u32, base: u32) {
        let content = &mut self.contents[base as usize];
        let next = content.link;
        content.link = place;
        content.domain += 1;
        let content = &mut self.contents[place as usize];
        (content.link, content.next) = (base, next);
        self.counts.differences += 1;
    }

    /// Takes the content at `place` off the dependents of its base. It has no base any more.
    fn part(&mut self, place: u32) {
        let Content { link: base, next, .. } = self.contents[place as usize];
        let first = self.contents[base as usize].link;
        if first == place {
            self.contents[base as usize].link = next;
        } else {
            // There are few.
            let mut before = first;
            while self.contents[before as usize].next != place {
                before = self.contents[before as usize].next;
            }
            self.contents[before as usize].next = next;
        }
        self.contents[base as usize].domain -= 1;
        let content = &mut self.contents[place as usize];
        (content.link, content.next) = (NONE, NONE);
        self.counts.differences -= 1;
    }

    /// The last owner of a base leaves it: it becomes the newest orphan.
    fn orphan(&mut self, place: u32) {
        let last = std::mem::replace(&mut self.orphans.last, place);
        let content = &mut self.contents[place as usize];
        content.domain |= ORPHAN;
        (content.owners, content.next) = (last, NONE);
        self.counts.owners -= 1;
        self.counts.orphans += 1;
        self.counts.orphan_bytes += content.handle.bytes() as u64;
        match last {
            NONE => self.orphans.first = place,
            last => self.contents[last as usize].next = place,
        }
    }

    /// Takes a content off the orphans. It has no owners, either.
    fn unorphan(&mut self, place: u32) {
        let content = &mut self.contents[place as usize];
        let (previous, next) = (content.owners, content.next);
        content.domain &= !ORPHAN;
        (content.owners, content.next) = (0, NONE);
        self.counts.orphans -= 1;
        self.counts.orphan_bytes -= content.handle.bytes() as u64;
        match previous {
            NONE => self.orphans.first = next,
            previous => self.contents[previous as usize].next = next,
        }
        match next {
            NONE => self.orphans.last = previous,
            next => self.contents[next as usize].owners = previous,
        }
    }

    /// The bytes of a content are damaged: it is lost with all its dependents.
    fn lose(&mut self, place: u32) {
        let content = self.contents[place as usize];
        for _ in 0..content.dependents() {
            self.counts.damaged += 1;
            self.leave(self.contents[place as usize].link);
        }
        self.counts.damaged += 1;
        // An orphan left with its last dependent.
        if !content.is_orphan() {
            self.leave(place);
        }
    }

    /// Removes a content without dependents; it is lost to its owners. If it was the last dependent of an orphan, that leaves,
    /// too.
    fn leave(&mut self, place: u32) {
        let content = self.contents[place as usize];
        let base = content.base();
        if base.is_some() {
            self.part(place);
        } else if content.is_orphan() {
            self.unorphan(place);
        }
        self.pool.free(content.handle);
        self.forget(place);
        if content.owners() == 0 {
            self.vacate(place);
        }
        if let Some(base) = base {
            self.leave_if_useless(base);
        }
    }

    /// An orphan without dependents leaves.
    fn leave_if_useless(&mut self, base: u32) {
        let content = &self.contents[base as usize];
        if content.is_orphan() && content.dependents() == 0 {
            self.leave(base);
        }
    }

    /// A content is lost, whose memory is free and which nothing but its owners refers to.
    fn forget(&mut self, place: u32) {
        let content = &mut self.contents[place as usize];
        content.handle = Handle::NOWHERE;
        self.counts.contents -= 1;
        self.counts.owners -= u64::from(content.owners);
        let hash = content.hash();
        self.identities.remove(hash, place, |other| self.contents[other as usize].hash());
    }

    /// Frees the place of a content that is lost and has no owners.
    fn vacate(&mut self, place: u32) {
        let content = &mut self.contents[place as usize];
        content.generation = content.generation.wrapping_add(1);
        content.next = self.free;
        self.free = place;
    }

    /// A place that is free.
    fn free_place(&self) -> Option<u32> {
        let unused = (self.contents.len() < self.settings.contents as usize).then_some(self.contents.len() as u32);
        if self.free == NONE { unused } else { Some(self.free) }
    }

    /// Puts a content at [`free_place`](Store::free_place).
    fn take_place(&mut self, place: u32, content: Content) {
        match self.contents.get_mut(place as usize) {
            Some(free) => {
                self.free = free.next;
                *free = Content { generation: free.generation, ..content };
            }
            None => self.contents.push(content),
        }
    }
}

/// The hash of a block, different in each domain.
fn hash_of(seed: u64, domain: u32, block: &Block) -> u64 {
    (hash(seed ^ mixed(u64::from(domain)), block) >> 64) as u64
}

#[cfg(test)]
mod tests;
