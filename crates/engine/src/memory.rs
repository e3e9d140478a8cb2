//! Frames, and blocks that are in memory without a slot of the policy.
//!
//! 1. A frame is free, or promised (`reserved`), or taken for a block that is loaded or written.
//! 2. A block that leaves the policy takes its frame along: free at once if the frame is clean and not held, or else `outside`.
//! 3. A frame that is still held is in `lingering`, and becomes free when `reclaim` finds its last hold released.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::arena::Arena;
use crate::frames::{DIRTY, Frames, LOADING, PREFETCHED, TRANSIT, UNFLUSHED};
use crate::record::Reading;
use crate::slots::Key;

/// A waiter for a load: a request, and the position of the block within its part.
pub(crate) type LoadWaiters = SmallVec<[(u32, u32); 2]>;

/// The load of one frame.
pub(crate) struct Load {
    /// The operation that loads it.
    pub(crate) operation: u64,
    pub(crate) waiters: LoadWaiters,
    /// The reason why it was started.
    pub(crate) reading: Reading,
}

/// Frames, their contents, and the blocks outside of the policy.
pub(crate) struct Memory {
    pub(crate) arena: Arc<Arena>,
    pub(crate) frames: Frames,
    /// Contents of blocks that left the policy while they were dirty, held or being loaded.
    pub(crate) outside: HashMap<Key, u32>,
    /// Frames that become free when their last hold is released: of blocks in `outside`, or of none. Entries can be out
    /// of date.
    pub(crate) lingering: Vec<(Option<Key>, u32)>,
    /// By frame.
    pub(crate) loads: HashMap<u32, Load>,
    /// Frames reserved for writes that may have to load blocks that they overwrite in part, and for reads that are being started.
    pub(crate) reserved: u32,
    /// Whether frames without holders were freed while the line is served.
    pub(crate) reclaimed: bool,
}

impl Memory {
    pub(crate) fn new(arena: Arc<Arena>, frames: Frames) -> Memory {
        let (outside, loads) = (HashMap::new(), HashMap::new());
        Memory { arena, frames, outside, lingering: Vec::new(), loads, reserved: 0, reclaimed: false }
    }

    /// Whether `count` frames can be taken, beyond those that are reserved.
    pub(crate) fn has(&self, count: u32) -> bool {
        self.frames.available() >= self.reserved + count
    }

    /// `frame` no longer has the contents of any block.
    pub(crate) fn retire(&mut self, frame: u32) {
        self.frames.clear(frame, DIRTY | LOADING | PREFETCHED | UNFLUSHED | TRANSIT);
        if self.arena.held(frame) {
            self.lingering.push((None, frame));
        } else {
            self.frames.put(frame);
        }
    }
}
