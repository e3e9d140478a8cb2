//! Bookkeeping of frames: which are free, and what the engine notes about those that are not.

/// The contents are on their way from the device.
pub(crate) const LOADING: u8 = 1;
/// The contents are newer than those on the device.
pub(crate) const DIRTY: u8 = 2;
/// Loaded ahead, and not referenced since.
pub(crate) const PREFETCHED: u8 = 4;

/// The frames of the arena, in use or free.
pub(crate) struct Frames {
    /// Per frame in use: `LOADING`, `DIRTY`, `PREFETCHED`.
    flags: Vec<u8>,
    /// Per frame in use: when its block was inserted into the policy.
    inserted: Vec<u32>,
    /// Frames that were used and are free, the next to be used last.
    free: Vec<u32>,
    /// Free frames whose memory the host may have given back to the system.
    idle: Vec<u32>,
    in_use: u32,
    /// How many may be in use; those in use after it was lowered are used up first.
    limit: u32,
    most: u32,
}

impl Frames {
    /// `limit` frames to use, `most` after `set_limit`.
    pub(crate) fn new(limit: u32, most: u32) -> Frames {
        // Reserved at once, touched as frames are used.
        let flags = Vec::with_capacity(most as usize);
        let inserted = Vec::with_capacity(most as usize);
        Frames { flags, inserted, free: Vec::new(), idle: Vec::new(), in_use: 0, limit, most }
    }

    /// How many more frames can be taken.
    pub(crate) fn available(&self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    pub(crate) fn set_limit(&mut self, limit: u32) {
        assert!(limit <= self.most);
        self.limit = limit;
    }

    /// Takes a free frame. The caller made sure that there is one.
    pub(crate) fn take(&mut self) -> u32 {
        assert!(self.in_use < self.most, "a frame was promised");
        self.in_use += 1;
        if let Some(frame) = self.free.pop().or_else(|| self.idle.pop()) {
            return frame;
        }
        let frame = self.flags.len() as u32;
        self.flags.push(0);
        self.inserted.push(0);
        frame
    }

    /// `frame`, which nobody holds, is free.
    pub(crate) fn put(&mut self, frame: u32) {
        self.flags[frame as usize] = 0;
        self.in_use -= 1;
        self.free.push(frame);
    }

    /// Up to `most` free frames that were used and are beyond the limit, in ascending order; they count as in use.
    pub(crate) fn take_surplus(&mut self, most: usize) -> Vec<u32> {
        let count = self.free.len().saturating_sub(self.available() as usize).min(most);
        let mut surplus = self.free.split_off(self.free.len() - count);
        self.in_use += surplus.len() as u32;
        surplus.sort_unstable();
        surplus
    }

    /// `frame` is free, and its memory need not be there.
    pub(crate) fn put_idle(&mut self, frame: u32) {
        self.in_use -= 1;
        self.idle.push(frame);
    }

    #[inline(always)]
    pub(crate) fn has(&self, frame: u32, flag: u8) -> bool {
        self.flags[frame as usize] & flag != 0
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, frame: u32, flag: u8) {
        self.flags[frame as usize] |= flag;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, frame: u32, flag: u8) {
        self.flags[frame as usize] &= !flag;
    }

    pub(crate) fn inserted(&self, frame: u32) -> u32 {
        self.inserted[frame as usize]
    }

    pub(crate) fn set_inserted(&mut self, frame: u32, at: u32) {
        self.inserted[frame as usize] = at;
    }

    /// Memory of the bookkeeping.
    pub(crate) fn bytes(&self) -> usize {
        self.flags.capacity() + 4 * (self.inserted.capacity() + self.free.capacity() + self.idle.capacity())
    }
}
