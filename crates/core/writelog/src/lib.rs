//! A log of writes on a fast device, before they go to a slow one.

#![doc = include_str!("../README.md")]

mod change;
mod extents;
mod format;
mod log;
mod recovery;

pub use change::{Change, Kind};
pub use format::{BLOCK, Block, GROUP_BLOCKS_MAX, Id, RING_BLOCKS_MIN, RING_OFFSET, Sum, ring_blocks};
pub use log::{Commit, GroupPlan, HomeOp, HomeWork, Log, Part, Piece, Reading, Settings, Source, Statistics};
pub use recovery::{OpenError, Opened, Owner, Rewrite, format, open};
