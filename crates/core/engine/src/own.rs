//! Operations that no engine asked for: a device that keeps a log starts some by itself.

use std::ops::Range;
use std::sync::Arc;

use crate::arena::{Arena, Exclusive, Shared};
use crate::request::{Action, Operation, Port};

/// Memory for operations that a device starts by itself, in frames of one block. It is touched when it is used.
pub struct OwnFrames {
    arena: Arc<Arena>,
    block_bytes: usize,
    free: Vec<u32>,
}

impl OwnFrames {
    /// Memory for so many blocks of `block_bytes`, a power of two; `None` if the address space has no room.
    pub fn new(blocks: u32, block_bytes: u32) -> Option<OwnFrames> {
        let arena = Arena::new(blocks, block_bytes as usize, false, false)?;
        // Those that were used are used again.
        Some(OwnFrames { arena, block_bytes: block_bytes as usize, free: (0..blocks).rev().collect() })
    }

    /// Frames for `bytes`, if so many are free. They stay taken until `give`.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u32>> {
        let left = self.free.len().checked_sub(bytes.div_ceil(self.block_bytes))?;
        Some(self.free.split_off(left))
    }

    /// Returns frames that nobody holds any more.
    pub fn give(&mut self, frames: Vec<u32>) {
        self.free.extend(frames);
    }

    /// The first `bytes` of `frames`, to be written.
    ///
    /// # Panics
    /// If one of them is held, or if they have fewer bytes.
    pub fn exclusive(&self, frames: &[u32], bytes: usize) -> Exclusive {
        Exclusive::of(&self.arena, frames, 0, bytes)
    }

    /// The first `bytes` of `frames`, to be read.
    ///
    /// # Panics
    /// If one of them is held by somebody who writes it, or if they have fewer bytes.
    pub fn shared(&self, frames: &[u32], bytes: usize) -> Shared {
        Shared::of(&self.arena, frames, 0, bytes)
    }
}

impl Operation {
    /// An operation on `bytes` of a device that no engine completes.
    pub fn own(port: Port, bytes: Range<u64>, action: Action) -> Operation {
        Operation::new(0, port, bytes, action, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_filled_read_and_returned() {
        let mut own = OwnFrames::new(3, 512).expect("room");
        let frames = own.take(1000).expect("two are free");
        assert!(own.take(1000).is_none() && own.take(512).is_some());
        own.exclusive(&frames, 1000).copy_from(&[7; 1000]);
        let mut out = [0; 1000];
        own.shared(&frames, 1000).copy_to(&mut out);
        assert_eq!(out, [7; 1000]);
        own.give(frames);
        assert!(own.take(1000).is_some());
    }
}
