//! The memory of blocks: frames of one size, in one piece that is reserved at the start and never moves.
//!
//! Contents that connections allocate and other connections free would make the allocator keep several times what is in use.

use std::num::NonZeroU32;

/// The address space has no room for the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for {0} bytes of blocks in memory")]
pub struct NoRoom(pub u64);

/// The number of a frame, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame(NonZeroU32);

pub(crate) struct Frames {
    /// As long as the frames that were used so far: memory is touched when a frame is first used.
    bytes: Vec<u8>,
    block_bytes: usize,
    /// Frames that were used before, and are not.
    free: Vec<Frame>,
}

impl Frames {
    pub(crate) fn new(count: u32, block_bytes: u32) -> Result<Frames, NoRoom> {
        let all = u64::from(count) * u64::from(block_bytes);
        let mut bytes = Vec::new();
        usize::try_from(all).ok().and_then(|all| bytes.try_reserve_exact(all).ok()).ok_or(NoRoom(all))?;
        Ok(Frames { bytes, block_bytes: block_bytes as usize, free: Vec::with_capacity(count as usize) })
    }

    /// Puts `data`, which has the size of a block, into a frame that is not used. None if all are.
    pub(crate) fn put(&mut self, data: &[u8]) -> Option<Frame> {
        if data.len() != self.block_bytes {
            return None;
        }
        if let Some(frame) = self.free.pop() {
            let of = self.range(frame);
            self.bytes.get_mut(of)?.copy_from_slice(data);
            return Some(frame);
        }
        if self.bytes.capacity() - self.bytes.len() < self.block_bytes {
            return None;
        }
        self.bytes.extend_from_slice(data);
        NonZeroU32::new((self.bytes.len() / self.block_bytes) as u32).map(Frame)
    }

    pub(crate) fn get(&self, frame: Frame) -> &[u8] {
        self.bytes.get(self.range(frame)).unwrap_or_default()
    }

    /// `frame` is not used any more.
    pub(crate) fn release(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// Frames that are used.
    pub(crate) fn used(&self) -> usize {
        self.bytes.len() / self.block_bytes - self.free.len()
    }

    fn range(&self, Frame(number): Frame) -> std::ops::Range<usize> {
        let end = number.get() as usize * self.block_bytes;
        end - self.block_bytes..end
    }
}
