//! Equal and similar blocks: which blocks have the same content, which content is close to another one, and how few bytes
//! keep it. Pure: no I/O, no clock, no threads.
//!
//! [`lpu`] is the cache of the paper "A New Buffer Cache Design Exploiting both Temporal and Content Localities" (J. Ren,
//! Q. Yang) as published, and [`dedup`] is the De-Dup cache with which the paper compares it. Both decide and count; they
//! know slots and the names of contents, not bytes. [`generated`] makes up contents for tests and replays.

pub mod dedup;
pub mod generated;
pub mod lpu;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// The contents of a block.
pub type Block = [u8; BLOCK_BYTES];

/// The name of a content. Two blocks have the same name exactly if they have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(pub u32);
