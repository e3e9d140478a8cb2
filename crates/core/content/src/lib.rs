//! Equal and similar blocks: which blocks have the same content, which content is close to another one, and how few bytes
//! keep it. Pure: no I/O, no clock, no threads.
//!
//! [`Store`] keeps contents within a fixed amount of memory. It stores equal blocks once, similar ones as a difference to
//! another content, others compressed if that pays. Its parts can be used alone: [`Codecs`], [`Encoder`], the indices
//! [`Identities`], [`Signatures`] and [`Sketches`], and the memory, [`Pool`].
//!
//! [`lpu`] is the cache of the paper "A New Buffer Cache Design Exploiting both Temporal and Content Localities" (J. Ren,
//! Q. Yang) as published, and [`dedup`] is the De-Dup cache with which the paper compares it. Both decide and count; they
//! know slots and the names of contents, not bytes. [`generated`] makes up contents for tests and replays.

mod area;
mod buckets;
mod budget;
mod codec;
pub mod dedup;
mod encode;
pub mod generated;
mod identity;
mod lending;
pub mod line;
pub mod lpu;
#[cfg(all(test, loom))]
mod models;
mod pool;
mod scheme;
mod signature;
mod sketch;
mod store;
mod writer;

pub use area::Area;
use buckets::mixed;
pub use budget::Budget;
pub use codec::{Codec, Codecs};
pub use encode::{Choice, DELTA_MAX, Encoder, GOOD_MAX, LINE_MAX, Rules, SELF_MAX, candidates};
pub use identity::{Identities, hash};
pub use lending::{Lending, Room};
pub use lpu::{Signature, signature};
pub use pool::{Handle, LINE_BYTES, Pool, PoolCounts};
pub use scheme::{NoScheme, Scheme};
pub use signature::Signatures;
pub use sketch::{CANDIDATES, FEATURES, Sketch, Sketches, sketch};
pub use store::{
    ContentId, Copied, DEPENDENTS_MAX, DOMAINS_MAX, Full, Plan, Rebase, Refused, Settings, Store, StoreCounts,
};
pub use writer::{Host, Writer};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// The contents of a block.
pub type Block = [u8; BLOCK_BYTES];

/// Room for every encoding of a block, also for those that are longer than the block.
pub const ENCODED_MAX: usize = 4736;

/// Room for the encoding of a block.
pub type Encoded = [u8; ENCODED_MAX];

/// These bytes are no encoding of a block by this codec, or with this base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are no encoding of a block")
    }
}

impl std::error::Error for DecodeError {}

/// The name of a content. Two blocks have the same name exactly if they have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(pub u32);
