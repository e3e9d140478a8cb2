//! How requests enter, wait in line and end.

use std::ops::Range;

use smallvec::SmallVec;

use crate::engine::Engine;
use crate::fair::fits;
use crate::request::{Op, Outcome, Refusal, Reply, Request, Volume};
use crate::requests::{Active, Step};
use crate::volume::overlap;

/// The most trims and zeroes of a volume in progress. They are compared with each other and with all requests.
const RANGES: u32 = 64;

impl Engine {
    /// The request is over.
    pub(crate) fn finish(&mut self, id: u32, outcome: Outcome) {
        let Request { token, tenant, .. } = self.leave(id).request;
        self.demand_loaded(tenant);
        self.requests.replies.push_back(Reply { token, outcome });
    }

    pub(crate) fn leave(&mut self, id: u32) -> Active {
        let active = self.requests.remove(id);
        let state = self.volumes.state_mut(active.request.volume);
        state.requests -= 1;
        state.ranges -= u32::from(active.request.op.is_range());
        state.unlockable = true;
        active
    }

    pub(crate) fn enter(&mut self, request: Request) -> Result<u32, Refusal> {
        if !self.may_enter(request.volume, request.op) {
            return Err(Refusal::Busy);
        }
        let active = Active {
            // A flush has no range, whatever its fields contain.
            part: request.offset..request.offset.saturating_add(request.length),
            request,
            step: Step::Queued,
            edges: SmallVec::new(),
            frames: Vec::new(),
            held: None,
            loading: 0,
            storing: 0,
            fault: None,
        };
        let id = self.requests.add(active);
        let state = self.volumes.state_mut(request.volume);
        state.requests += 1;
        state.ranges += u32::from(request.op.is_range());
        Ok(id)
    }

    /// Whether another request of `volume` may begin.
    pub(crate) fn may_enter(&self, volume: Volume, op: Op) -> bool {
        let state = self.volumes.state(volume);
        let all = (self.requests.all.len() - self.requests.free.len()) as u32;
        let fits = state.requests == 0 || fits(state.requests, all, 1, self.config.limits.requests);
        fits && !(op.is_range() && state.ranges >= RANGES)
    }

    /// The read or write `id` waits in line, behind others of its volume.
    pub(crate) fn wait_in_line(&mut self, id: u32) {
        let request = self.requests.active(id).request;
        let state = self.volumes.state_mut(request.volume);
        match request.op {
            Op::Read => state.turns.reads.push_back(id),
            _ => state.turns.writes.push_back(id),
        }
        if !std::mem::replace(&mut state.turns.in_line, true) {
            self.line.waiting.push_back(request.volume);
        }
        self.line.queueing += 1;
        if request.op != Op::Read {
            // It may wait for dirty blocks of its volume.
            self.cleaner.make_due(&mut self.volumes, request.volume);
        }
    }

    /// The blocks that `bytes` touches.
    pub(crate) fn blocks(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start >> self.shift..((bytes.end - 1) >> self.shift) + 1
    }

    /// Whether a request in progress other than `id` uses any of `blocks` of `volume`.
    pub(crate) fn is_in_use(&self, volume: Volume, blocks: &Range<u64>, id: u32) -> bool {
        (0..).zip(&self.requests.all).any(|(other, active)| {
            active.as_ref().is_some_and(|active| {
                let Request { offset, length, .. } = active.request;
                other != id
                    && active.request.volume == volume
                    && (matches!(active.step, Step::Reading | Step::Merging) || active.storing > 0)
                    && overlap(&self.blocks(&(offset..offset + length)), blocks)
            })
        })
    }

    /// Whether `request` could be executed if nothing else were in progress.
    #[inline]
    pub(crate) fn check_request(&self, request: &Request) -> Result<(), Refusal> {
        let state = self.volumes.get(request.volume);
        let Some(state) = state.filter(|state| state.closing.is_none()) else { return Err(Refusal::NoVolume) };
        if request.op == Op::Flush {
            return Ok(());
        }
        let is_inside = request.offset < state.bytes && request.length <= state.bytes - request.offset;
        if request.length == 0 || !is_inside {
            return Err(Refusal::OutOfRange);
        }
        if matches!(request.op, Op::Read | Op::Write) && request.length > u64::from(self.config.limits.request_bytes) {
            return Err(Refusal::TooLong);
        }
        Ok(())
    }
}
