//! Bookkeeping of frames: which are free, and the state of those that are not.

/// The contents are being loaded from the device.
pub(crate) const LOADING: u8 = 1;
/// The contents are newer than those on the device.
pub(crate) const DIRTY: u8 = 2;
/// Loaded ahead, and not referenced since.
pub(crate) const PREFETCHED: u8 = 4;
/// Written to the device, and perhaps not flushed since.
pub(crate) const UNFLUSHED: u8 = 8;

/// In the transit buffer.
pub(crate) const TRANSIT: u8 = 16;

/// The frames of the arena, in use or free.
pub(crate) struct Frames {
    /// Per frame in use: `LOADING`, `DIRTY`, `PREFETCHED`, `UNFLUSHED`, `TRANSIT`.
    states: Vec<u8>,
    /// Free frames that were used before; the next to be used is the last.
    free: Vec<u32>,
    /// Free frames whose memory the host may have returned to the system.
    idle: Vec<u32>,
    in_use: u32,
    /// The most frames that may be in use; after it was lowered, more can still be in use.
    limit: u32,
    most: u32,
}

impl Frames {
    /// `limit` frames to use, and `most` after `set_limit`.
    pub(crate) fn new(limit: u32, most: u32) -> Frames {
        // Reserved at once, touched when frames are used.
        let states = Vec::with_capacity(most as usize);
        let (free, idle) = (Vec::new(), Vec::new());
        Frames { states, free, idle, in_use: 0, limit, most }
    }

    /// The number of frames that can still be taken.
    pub(crate) fn available(&self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }

    /// Whether more frames are in use or reserved (`reserved`) than the limit allows.
    pub(crate) fn is_overdrawn(&self, reserved: u32) -> bool {
        self.in_use + reserved > self.limit
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    pub(crate) fn set_limit(&mut self, limit: u32) {
        assert!(limit <= self.most);
        self.limit = limit;
    }

    /// Takes a free frame. The caller has checked that there is one.
    pub(crate) fn take(&mut self) -> u32 {
        assert!(self.in_use < self.most, "a frame was promised");
        self.in_use += 1;
        if let Some(frame) = self.free.pop().or_else(|| self.idle.pop()) {
            return frame;
        }
        self.states.push(0);
        self.states.len() as u32 - 1
    }

    /// `frame`, which has no holder, becomes free.
    pub(crate) fn put(&mut self, frame: u32) {
        self.states[frame as usize] = 0;
        self.in_use -= 1;
        self.free.push(frame);
    }

    /// The number of free frames that were used before and are beyond the limit. Those that are reserved (`reserved`) are not.
    #[inline]
    pub(crate) fn surplus(&self, reserved: u32) -> usize {
        self.free.len().saturating_sub(self.available().max(reserved) as usize)
    }

    /// Up to `most` of these, in ascending order; they then count as in use.
    pub(crate) fn take_surplus(&mut self, reserved: u32, most: usize) -> Vec<u32> {
        let count = self.surplus(reserved).min(most);
        let mut surplus = self.free.split_off(self.free.len() - count);
        self.in_use += surplus.len() as u32;
        surplus.sort_unstable();
        surplus
    }

    /// `frame` becomes free; its memory may have been returned to the system.
    pub(crate) fn put_idle(&mut self, frame: u32) {
        self.in_use -= 1;
        self.idle.push(frame);
    }

    #[inline(always)]
    pub(crate) fn has(&self, frame: u32, flag: u8) -> bool {
        self.states[frame as usize] & flag != 0
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, frame: u32, flag: u8) {
        self.states[frame as usize] |= flag;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, frame: u32, flag: u8) {
        self.states[frame as usize] &= !flag;
    }

    /// Memory of the bookkeeping.
    pub(crate) fn bytes(&self) -> usize {
        self.states.capacity() + 4 * (self.free.capacity() + self.idle.capacity())
    }
}
