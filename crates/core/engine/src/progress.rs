//! How requests that wait continue: an event that makes room ends with `pump`, which serves the line, one volume after the other.

use crate::engine::Engine;
use crate::request::Volume;

/// The most volumes of the line that one call tries to serve in vain. The next call, or a step, begins with the next one.
const ATTEMPTS: u32 = 64;

impl Engine {
    /// Starts requests that wait in line, in turns: one read and one write of each volume.
    pub(crate) fn serve_line(&mut self, now: u64) {
        self.line.untried = self.line.waiting.len();
        self.serve_untried(now);
    }

    /// Continues after so many failed attempts that the rest was left for a step.
    pub(crate) fn serve_untried(&mut self, now: u64) {
        let mut attempts = ATTEMPTS;
        self.line.serving = true;
        while self.line.untried > 0 && attempts > 0 {
            self.line.untried -= 1;
            let Some(volume) = self.line.waiting.pop_front() else {
                self.line.untried = 0;
                break;
            };
            if self.volumes.get(volume).is_none() {
                continue;
            }
            let started = [self.serve_read(volume, now), self.serve_write(volume, now)];
            attempts -= u32::from(started.contains(&Some(false)));
            let state = self.volumes.state_mut(volume);
            state.turns.in_line = !state.turns.is_empty();
            if state.turns.in_line {
                self.line.waiting.push_back(volume);
            }
            if started.contains(&Some(true)) {
                self.line.untried = self.line.waiting.len();
            }
        }
        (self.line.serving, self.memory.reclaimed) = (false, false);
        if self.line.waiting.is_empty() {
            self.memory.arena.want(false);
        }
    }

    /// Tries to start the first read of `volume` that waits. Returns whether it did, if there is one that may be able to.
    pub(crate) fn serve_read(&mut self, volume: Volume, now: u64) -> Option<bool> {
        let &id = self.volumes.state(volume).turns.reads.front()?;
        if !self.may_load(volume, 1) && self.needs_load(id) {
            return None;
        }
        let starts = self.start_read(id, now);
        if starts {
            self.volumes.state_mut(volume).turns.reads.pop_front();
            self.line.queueing -= 1;
        }
        Some(starts)
    }

    /// As `serve_read`, for a write.
    pub(crate) fn serve_write(&mut self, volume: Volume, now: u64) -> Option<bool> {
        let &id = self.volumes.state(volume).turns.writes.front()?;
        let starts = self.start_write(id, now);
        if starts {
            self.volumes.state_mut(volume).turns.writes.pop_front();
            self.line.queueing -= 1;
        }
        Some(starts)
    }

    /// Continues every request that may no longer have to wait.
    pub(crate) fn pump(&mut self, now: u64) {
        self.drop_discarded(now);
        self.start_ranges(now);
        self.serve_line(now);
        self.go_on_closing(now);
    }

    /// Evicts some blocks, so that requests need not wait until a failing device writes. The frames of those that are
    /// clean become free; the cache is smaller until then by at most the dirty blocks.
    pub(crate) fn give_way(&mut self, most: u32, now: u64) {
        for _ in 0..most {
            if !self.is_cramped() {
                break;
            }
            self.drain_forgotten();
            let victim = self.policy.shed();
            self.depart(victim);
            self.drain_forgotten();
        }
        self.pump(now);
    }
}
