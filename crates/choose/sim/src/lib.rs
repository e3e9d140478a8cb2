//! Replays traces against policies.
//!
//! [`References`] is a trace decoded once, its blocks numbered densely; every replay shares it. [`replay()`] runs one
//! policy at one size, [`sweep()`] many in threads, and [`stack::curve`] gives LRU's hits at all sizes in one pass.

pub mod acfs;
pub mod contents;
pub mod levels;
pub mod map;
pub mod number;
pub mod plan;
pub mod references;
pub mod replay;
pub mod rows;
pub mod sample;
pub mod shards;
pub mod sizes;
pub mod stack;
pub mod summary;
pub mod sweep;
pub mod threads;
pub mod timed;
pub mod warmup;
pub mod writes;

pub use references::{Loader, Ops, Options, Patterns, ReadError, References};
pub use replay::{Run, replay};
pub use rows::Row;
pub use sample::Sample;
pub use sizes::Sizes;
pub use summary::TraceSummary;
pub use sweep::{Job, sweep};
pub use warmup::Warmup;
