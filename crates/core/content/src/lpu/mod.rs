//! Least Popularly Used (J. Ren and Q. Yang, "A New Buffer Cache Design Exploiting both Temporal and Content
//! Localities").
//!
//! Popular blocks become *reference blocks*. Blocks similar to one become its *associate blocks*, of which only a small
//! difference is kept. All others are *independent blocks*. [`Lpu`] decides and counts; its host maps blocks to slots,
//! names their contents, and measures signatures and differences ([`Contents`]).
//!
//! Points that the text does not specify, or specifies twice, and how they are read here:
//!
//! * **A request** is a reference to one block. A hit needs no read from the disk. An access to an associate block
//!   whose reference block has lost its data block reads the reference block from the disk: a miss, by which the
//!   reference block gets a data block again. The same holds for a write to a reference block without data block, because its
//!   difference is needed (2.2).
//! * **The data block of an associate block** is released when it becomes one: table 2 counts only its difference.
//!   Section 2.2 also lets the data block of a block with a delta be evicted later; that can only be a reference block
//!   here.
//! * **A reference block is one that has associate blocks.** By the rule of 3.1, every warm block that is not similar
//!   to a more popular one is a candidate. Those to which no block is associated stay independent: in 4.2.3 a scan of
//!   20,000 warm blocks yields about 2,000 new reference blocks and 2,000 associate blocks. When the last associate
//!   block is gone at the end of a request or a scan, a reference block becomes independent, with its present content.
//! * **Warm blocks** (3.1, 3.3) are the 20,000 most recently used ones of the LPU queue whose content is in the cache.
//!   Reference blocks among them stay reference blocks, and candidates are compared with them, too. Candidates are
//!   taken by descending popularity; among equals, the most recently used first. A candidate that is an associate block
//!   is replaced by its reference block (3.3), which is among the warm blocks already.
//! * **Similarity** must "exceed the similarity threshold", which is 7 (3.3), or be "greater than or equal to 7"
//!   (4.2.3; also "7 or more" in 3.1). It is the latter here. Among reference blocks of equal similarity, an identical
//!   one is preferred (2.1 determines identical blocks, and does not use them), then existing reference blocks, then
//!   the more popular. Only this one is tried. Candidates for associate blocks are taken in the order of the queue.
//! * **Identical blocks** are associated with an empty difference without delta blocks, although 2.2 gives every
//!   associate block one or more. They are found by scans only, as all associate blocks: until a scan, every block has
//!   a data block (2.2). With `Settings::identical`, which is not in the text, a block is associated with an identical
//!   one as soon as it is read or written, as in De-Dup.
//! * **Encoding against a reference block is an access to it**: it becomes the most recently used block. A reference
//!   block is therefore always ahead of its associate blocks in the queue (2.2).
//! * **The delta of a reference block** that was written has no limit of 768 bytes: "a reference block can occupy twice
//!   as much" (4.2.1).
//! * **Delta replacement** (2.2) also makes room for reference blocks and during a scan. If no associate block has a
//!   delta, a block that is written does not stay an associate block, a candidate does not become one, and a reference
//!   block that is written becomes independent; its associate blocks lose their content.
//! * **The number of virtual blocks** is "large" (2.2); by 4.2.3 it is that of the cache blocks, with which no cache
//!   could hold more blocks than LRU. It is four times that here, and their memory is not part of the cache size, as in
//!   the paper.
//! * **The Heatmap** is never reset. The access to a reference block by way of an associate block does not count in it.
//! * **Writes go to the disk when a block is evicted**, or at once: neither changes a decision. The data block of a
//!   reference block that is evicted can be read again, because its changes are in its delta.
//!
//! Deviations: whole blocks are compared by [`Content`], where the paper compares SHA-1 values (no effect: both find
//! equal bytes), and differences are measured by [`delta`], where the paper has zdelta (the effect was not measured;
//! see there).

mod blocks;
pub mod delta;
mod scan;
mod signature;

use std::collections::BTreeSet;

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

use crate::{BLOCK_BYTES, Content};
use scan::Scan;
pub use signature::{Heatmap, SAMPLED, SUB_BLOCKS, Signature, signature, similarity};

/// Bytes of a delta block (2.2).
pub const DELTA_BLOCK_BYTES: u32 = 64;

/// The delta area of a large cache (4.2.1).
const DELTA_AREA_BYTES_MOST: u64 = 16 << 20;

/// Virtual blocks for each cache block.
const VIRTUAL_BLOCKS: u64 = 4;

/// No slot.
const NONE: u32 = u32::MAX;

/// The sizes and thresholds of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Data blocks, at least 1.
    pub data_blocks: u32,
    /// Delta blocks of 64 bytes.
    pub delta_blocks: u32,
    /// Blocks that the queue knows, at least 2.
    pub virtual_blocks: u32,
    /// Requests between scans.
    pub scan_every: u64,
    /// Blocks that a scan examines.
    pub warm_blocks: usize,
    /// Blocks are similar if at least this many of their sub-signatures match, 1 to 8.
    pub similarity: usize,
    /// The largest difference of an associate block, in bytes.
    pub delta_bytes_most: u32,
    /// Whether identical blocks are associated at once, and not only by scans.
    pub identical: bool,
}

impl Settings {
    /// Those of the paper for a cache of `blocks` blocks, of which the delta area is a part. A cache of one block has
    /// no delta area.
    pub fn published(blocks: u32) -> Settings {
        let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
        let delta_bytes = (bytes / 8).min(DELTA_AREA_BYTES_MOST);
        let in_blocks = delta_bytes.div_ceil(BLOCK_BYTES as u64) as u32;
        let data_blocks = blocks.saturating_sub(in_blocks).max(1);
        let delta_bytes = bytes.saturating_sub(u64::from(data_blocks) * BLOCK_BYTES as u64);
        Settings {
            data_blocks,
            delta_blocks: (delta_bytes / u64::from(DELTA_BLOCK_BYTES)) as u32,
            virtual_blocks: (u64::from(blocks) * VIRTUAL_BLOCKS).clamp(2, u64::from(u32::MAX)) as u32,
            scan_every: 50_000,
            warm_blocks: 20_000,
            similarity: 7,
            delta_bytes_most: 768,
            identical: false,
        }
    }
}

/// Access of the cache to contents.
pub trait Contents {
    /// The signature of a content.
    fn signature(&mut self, content: Content) -> Signature;
    /// Bytes of the difference of `content` from another one, `reference`.
    fn delta_bytes(&mut self, content: Content, reference: Content) -> u32;
}

/// The type of a virtual block (2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has a data block, or its content was evicted.
    Independent,
    /// Others are stored as differences from its data block.
    Reference,
    /// It is stored as a difference from the data block of this slot.
    Associate(Slot),
}

/// A virtual block as tests and statistics see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The block.
    pub slot: Slot,
    /// Its type.
    pub kind: Kind,
    /// Whether it has a data block.
    pub data: bool,
    /// Its delta blocks.
    pub delta_blocks: u32,
    /// Its signature. That of a reference block is of its data block.
    pub signature: Signature,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// References.
    pub requests: u64,
    /// Those that needed no read from the disk.
    pub hits: u64,
    /// Scans of the queue.
    pub scans: u64,
    /// Blocks that became reference blocks.
    pub references: u64,
    /// Blocks that became associate blocks.
    pub associates: u64,
    /// Similar blocks whose difference was too large: the false positives of 3.3.
    pub false_positives: u64,
    /// Differences encoded, by scans and by writes.
    pub encodes: u64,
    /// Associate blocks that a write made independent.
    pub disconnected: u64,
    /// Data blocks evicted.
    pub data_replaced: u64,
    /// Virtual blocks replaced because there was no other.
    pub virtual_replaced: u64,
    /// Virtual blocks replaced for their delta blocks.
    pub delta_replaced: u64,
    /// Reference blocks given up because their writes found no delta blocks.
    pub dissolved: u64,
}

/// Numbers of blocks in the cache, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Reference blocks.
    pub references: u32,
    /// Associate blocks.
    pub associates: u32,
    /// Independent blocks with a data block.
    pub independents: u32,
    /// Blocks that can be read without the disk: all but the associate blocks of reference blocks without data block,
    /// and these.
    pub cached: u32,
    /// Delta blocks in use.
    pub delta_blocks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Independent,
    Reference,
    Associate,
}

/// A virtual block.
#[derive(Clone, Copy)]
struct Virtual {
    signature: Signature,
    /// The present content. Of an independent block without data block, it has no meaning.
    content: Content,
    /// The content of a reference block's data block.
    base: Content,
    /// The reference block of an associate block; the first associate block of a reference block, or `NONE`.
    partner: u32,
    /// The neighbours among the associate blocks of the same reference block.
    next: u32,
    prev: u32,
    delta_blocks: u16,
    state: State,
    data: bool,
}

// With the links of two lists, 48 bytes: 60 in the paper (4.2.3).
const _: () = assert!(size_of::<Virtual>() + 2 * 8 == 48);

const UNKNOWN: Virtual = Virtual {
    signature: [0; SUB_BLOCKS],
    content: Content(0),
    base: Content(0),
    partner: NONE,
    next: NONE,
    prev: NONE,
    delta_blocks: 0,
    state: State::Unknown,
    data: false,
};

/// The cache.
pub struct Lpu {
    settings: Settings,
    virtuals: Vec<Virtual>,
    queue_links: Links,
    /// All virtual blocks, the most recently used first.
    queue: List,
    /// A block is in at most one of the two lists; both have the order of the queue.
    links: Links,
    with_data: List,
    /// Associate blocks with delta blocks.
    with_delta: List,
    data_free: u32,
    delta_free: u32,
    heatmap: Heatmap,
    /// The contents of all data blocks, and their slots; empty unless identical blocks are associated at once.
    holders: BTreeSet<(Content, Slot)>,
    /// Reference blocks that have lost their last associate block, and perhaps got others since.
    bereft: Vec<Slot>,
    scan: Scan,
    counts: Counts,
}

impl Lpu {
    /// A cache for slots `0..slots`.
    ///
    /// # Panics If a setting is out of its range.
    pub fn new(slots: u32, settings: Settings) -> Lpu {
        assert!(
            settings.data_blocks >= 1 && settings.virtual_blocks >= 2,
            "too small to associate a block with another"
        );
        assert!((1..=SUB_BLOCKS).contains(&settings.similarity) && settings.scan_every > 0, "thresholds out of range");
        let (queue_links, [queue]) = Links::new(slots);
        let (links, [with_data, with_delta]) = Links::new(slots);
        Lpu {
            virtuals: vec![UNKNOWN; slots as usize],
            queue_links,
            queue,
            links,
            with_data,
            with_delta,
            data_free: settings.data_blocks,
            delta_free: settings.delta_blocks,
            heatmap: Heatmap::new(),
            holders: BTreeSet::new(),
            bereft: Vec::new(),
            scan: Scan::default(),
            counts: Counts::default(),
            settings,
        }
    }

    /// A reference to `slot`, which has `content` afterwards: what was read, or what `write` stores. Returns whether it
    /// needed no read from the disk.
    pub fn access(&mut self, slot: Slot, write: bool, content: Content, contents: &mut impl Contents) -> bool {
        let hit = match self.of(slot).state {
            State::Unknown => {
                self.bring_in(slot);
                false
            }
            State::Independent | State::Reference => {
                self.move_to_front(slot);
                self.ensure_data(slot)
            }
            State::Associate => {
                let reference = Slot(self.of(slot).partner);
                self.move_to_front(slot);
                self.move_to_front(reference);
                self.ensure_data(reference)
            }
        };
        match self.of(slot).state {
            State::Independent => {
                assert!(write || !hit || self.of(slot).content == content, "a cached block changes only by a write");
                self.set_content(slot, content, contents);
                if write || !hit {
                    self.associate_identical(slot);
                }
            }
            _ if !write => assert!(self.of(slot).content == content, "a cached block changes only by a write"),
            State::Reference => self.write_reference(slot, content, contents),
            _ => self.write_associate(slot, content, contents),
        }
        self.heatmap.add(&self.virtuals[slot.index()].signature);
        self.release_bereft(contents);
        self.counts.requests += 1;
        self.counts.hits += u64::from(hit);
        if self.counts.requests.is_multiple_of(self.settings.scan_every) {
            self.scan(contents);
            self.release_bereft(contents);
        }
        hit
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How often each sub-signature was accessed.
    pub fn heatmap(&self) -> &Heatmap {
        &self.heatmap
    }

    /// The virtual blocks, from the head of the queue to its end.
    pub fn queue(&self) -> impl Iterator<Item = View> {
        self.queue.iter(&self.queue_links).map(|slot| {
            let of = self.of(slot);
            let kind = match of.state {
                State::Associate => Kind::Associate(Slot(of.partner)),
                State::Reference => Kind::Reference,
                _ => Kind::Independent,
            };
            View { slot, kind, data: of.data, delta_blocks: of.delta_blocks.into(), signature: of.signature }
        })
    }

    /// Numbers of blocks in the cache at present, by kind.
    pub fn census(&self) -> Census {
        let mut census = Census { delta_blocks: self.settings.delta_blocks - self.delta_free, ..Census::default() };
        for view in self.queue() {
            census.cached += u32::from(self.is_cached(view.slot));
            match view.kind {
                Kind::Reference => census.references += 1,
                Kind::Associate(_) => census.associates += 1,
                Kind::Independent => census.independents += u32::from(view.data),
            }
        }
        census
    }

    /// Recounts what the cache keeps track of, for tests.
    ///
    /// # Panics If it is wrong.
    pub fn check(&self) {
        self.queue.checked(&self.queue_links);
        let queue: Vec<View> = self.queue().collect();
        assert!(queue.len() <= self.settings.virtual_blocks as usize && self.bereft.is_empty());
        let slots = |keep: fn(&View) -> bool| queue.iter().filter(move |view| keep(view)).map(|view| view.slot);
        let has_delta = |view: &View| matches!(view.kind, Kind::Associate(_)) && view.delta_blocks > 0;
        assert!(
            slots(|view| view.data).eq(self.with_data.checked(&self.links)),
            "data blocks are in the queue's order"
        );
        assert!(slots(has_delta).eq(self.with_delta.checked(&self.links)), "deltas are in the queue's order");
        assert_eq!(self.with_data.len() + self.data_free, self.settings.data_blocks);
        let delta_blocks: u32 = queue.iter().map(|view| view.delta_blocks).sum();
        assert_eq!(delta_blocks + self.delta_free, self.settings.delta_blocks);
        let mut ahead = std::collections::HashMap::new();
        for View { slot, kind, data, delta_blocks, .. } in queue {
            match kind {
                Kind::Independent => assert_eq!(delta_blocks, 0),
                Kind::Reference => {
                    ahead.insert(slot, 0);
                }
                Kind::Associate(reference) => {
                    assert!(!data);
                    *ahead.get_mut(&reference).expect("a reference block is ahead of its associate blocks") += 1;
                }
            }
        }
        for (reference, associates) in ahead {
            assert!(associates > 0 && self.associates(reference).count() == associates);
        }
    }

    /// The associate blocks of a reference block.
    fn associates(&self, reference: Slot) -> impl Iterator<Item = Slot> {
        let known = |slot: u32| (slot != NONE).then_some(Slot(slot));
        std::iter::successors(known(self.of(reference).partner), move |&slot| known(self.of(slot).next))
    }

    /// "When a disk block is accessed the first time and brought in the cache, a virtual block and a data block are
    /// allocated to cache it." (2.2)
    fn bring_in(&mut self, slot: Slot) {
        if self.queue.len() == self.settings.virtual_blocks {
            // "LPU searches from the end of the LPU queue and replaces the first non-reference block."
            let end = std::iter::successors(self.queue.back(&self.queue_links), |&at| {
                self.queue.before(&self.queue_links, at)
            });
            let victim = end.into_iter().find(|&at| self.of(at).state != State::Reference);
            self.counts.virtual_replaced += 1;
            self.forget(victim.expect("a reference block has an associate block behind it"));
        }
        self.queue.push_front(&mut self.queue_links, slot);
        self.of_mut(slot).state = State::Independent;
        self.ensure_data(slot);
    }

    /// Gives the block at the head of the queue a data block, unless it has one. Returns whether it had.
    fn ensure_data(&mut self, slot: Slot) -> bool {
        if self.of(slot).data {
            return true;
        }
        if self.data_free == 0 {
            // "LPU searches from the end of the LPU queue and replaces the first data block. The data block of a
            // reference block also can be evicted."
            let victim = self.with_data.back(&self.links).expect("all data blocks are in use");
            self.counts.data_replaced += 1;
            self.release_data(victim);
        }
        self.data_free -= 1;
        self.of_mut(slot).data = true;
        self.with_data.push_front(&mut self.links, slot);
        if self.settings.identical {
            self.holders.insert((self.of(slot).base, slot));
        }
        false
    }

    fn set_content(&mut self, slot: Slot, content: Content, contents: &mut impl Contents) {
        let signature = contents.signature(content);
        if self.holders.remove(&(self.of(slot).base, slot)) {
            self.holders.insert((content, slot));
        }
        let of = self.of_mut(slot);
        (of.content, of.base, of.signature) = (content, content, signature);
    }

    /// Associates a block at the head of the queue with an identical data block, if there is one: of several, that with
    /// the lowest slot.
    fn associate_identical(&mut self, slot: Slot) {
        let content = self.of(slot).content;
        let same = self.holders.range((content, Slot(0))..=(content, Slot(NONE)));
        let Some(reference) = same.map(|&(_, holder)| holder).find(|&holder| holder != slot) else { return };
        self.refer(slot, reference, 0);
    }

    /// "Write requests to a reference block need update its delta blocks. But the signature of the block does not
    /// change since its data is being referred." (2.2)
    fn write_reference(&mut self, slot: Slot, content: Content, contents: &mut impl Contents) {
        let base = self.of(slot).base;
        let blocks =
            self.encode(content, base, BLOCK_BYTES as u32, contents).expect("no difference is longer than a block");
        self.of_mut(slot).content = content;
        self.release_delta(slot);
        if self.reserve_delta(blocks) {
            self.of_mut(slot).delta_blocks = blocks;
            return;
        }
        self.counts.dissolved += 1;
        while self.of(slot).partner != NONE {
            self.leave(Slot(self.of(slot).partner));
        }
    }

    /// "A write request to a virtual block that is an associate block needs to read its reference block first,
    /// calculate the difference using delta-coding, and write the difference to the delta block." (2.2)
    fn write_associate(&mut self, slot: Slot, content: Content, contents: &mut impl Contents) {
        let base = self.of(Slot(self.of(slot).partner)).base;
        let blocks = self.encode(content, base, self.settings.delta_bytes_most, contents);
        self.release_delta(slot);
        match blocks {
            Some(blocks) if self.reserve_delta(blocks) => {
                self.set_content(slot, content, contents);
                self.of_mut(slot).delta_blocks = blocks;
                if blocks > 0 {
                    self.with_delta.push_front(&mut self.links, slot);
                }
            }
            // "A block disconnects the link to its reference if this block has been changed a lot. Once the link is
            // disconnected, all read and write requests go to its data block directly."
            _ => {
                self.counts.disconnected += 1;
                self.leave(slot);
                self.move_to_front(slot);
                self.ensure_data(slot);
                self.set_content(slot, content, contents);
                self.associate_identical(slot);
            }
        }
    }

    /// Makes reference blocks without associate blocks independent.
    fn release_bereft(&mut self, contents: &mut impl Contents) {
        while let Some(slot) = self.bereft.pop() {
            let of = *self.of(slot);
            if of.state == State::Reference && of.partner == NONE {
                self.release_delta(slot);
                self.of_mut(slot).state = State::Independent;
                if of.data {
                    self.set_content(slot, of.content, contents);
                }
            }
        }
    }
}
