//! Memory of a device in which writes wait for the medium, oldest first.

use std::collections::VecDeque;

/// Writes that are acknowledged but not on the medium yet.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    limit_bytes: u64,
    held_bytes: u64,
    /// The time at which each write is on the medium, and its bytes.
    leaving: VecDeque<(u64, u64)>,
}

impl WriteBuffer {
    pub(crate) fn new(limit_bytes: u64) -> WriteBuffer {
        WriteBuffer { limit_bytes, held_bytes: 0, leaving: VecDeque::new() }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The time, from `now` on, at which there is room for `bytes`. A write larger than the buffer needs all of it.
    pub(crate) fn room_at(&mut self, now: u64, bytes: u64) -> u64 {
        let mut at = now;
        while let Some(&(end, held)) = self.leaving.front() {
            if end > now && self.held_bytes + bytes <= self.limit_bytes {
                break;
            }
            at = at.max(end);
            self.held_bytes -= held;
            self.leaving.pop_front();
        }
        at
    }

    /// A write takes its room until it is on the medium at `end`, no earlier than those before it.
    pub(crate) fn hold(&mut self, end: u64, bytes: u64) {
        self.held_bytes += bytes;
        self.leaving.push_back((end, bytes));
    }

    /// The time, from `now` on, at which the buffer is empty.
    pub(crate) fn empty_at(&self, now: u64) -> u64 {
        self.leaving.back().map_or(now, |&(end, _)| end.max(now))
    }
}
