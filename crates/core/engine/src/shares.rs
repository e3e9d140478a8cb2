//! The share of one volume in common resources: requests, loads, frames and room for dirty blocks. A volume that uses much leaves
//! some to the others, without knowing whether there are any; a volume that begins therefore finds its share at once,
//! whatever the devices of others do.

use crate::engine::Engine;
use crate::fair::{self, fits};
use crate::request::Volume;
use crate::slots::Key;
use crate::volume::VolumeState;

impl Engine {
    /// Whether `count` blocks of `volume` may be loaded. A volume that loads nothing may load what any request needs.
    pub(crate) fn may_load(&self, volume: Volume, count: u32) -> bool {
        let (own, all) = (self.volumes.state(volume).loading, self.memory.loads.len() as u32);
        own == 0 || fits(own, all, count, self.config.limits.loading)
    }

    /// Whether one more block of `volume` may be prefetched.
    pub(crate) fn may_prefetch(&self, volume: Volume) -> bool {
        fits(self.volumes.state(volume).prefetching, self.requests.prefetching, 1, self.config.limits.prefetching)
    }

    /// Whether the read `id` needs a block that is not in memory, nor being loaded.
    pub(crate) fn needs_load(&self, id: u32) -> bool {
        let active = self.requests.all[id as usize].as_ref().expect("a request in progress");
        let volume = active.request.volume;
        self.blocks(&active.part).any(|block| self.memory.current(&self.slots, Key::new(volume, block)).is_none())
    }

    /// Whether the limit of dirty blocks allows a write of `count` blocks of `volume`. When all volumes together have
    /// reached it, each volume still has its part, and the longest request at least, up to half of the cache; so slow devices
    /// do not hold up the others. Nor do blocks that failing devices cannot write. A volume whose last write failed, or with too
    /// many failed blocks, has only the longest request, as long as others leave room for it.
    pub(crate) fn may_become_dirty(&mut self, volume: Volume, count: u32) -> bool {
        let (state, most, bound) = (self.volumes.state(volume), self.size.marks.most, self.dirty_bound());
        let all = self.cleaner.dirty + self.requests.filling + count;
        let own = state.changed() + count;
        let written = own - state.dirty.failed_len() as u32;
        let request = self.config.request_blocks();
        let fails = state.failures.as_ref().is_some_and(|failures| failures.none_since.is_some());
        let is_sick = fails || self.has_many_failed(volume);
        let allowed = match is_sick {
            _ if all <= most => true,
            true => own <= request && all <= most.midpoint(bound),
            false => {
                all <= bound
                    && (written <= request
                        || written <= self.line.written_part(&self.volumes, volume, most)
                        || all - self.volumes.stuck() <= most)
            }
        };
        if allowed {
            self.cleaner.dirty_most = self.cleaner.dirty_most.max(all);
        }
        allowed
    }

    /// The most dirty blocks of all volumes, unless flushes fail.
    fn dirty_bound(&self) -> u32 {
        (self.size.capacity / 2).max(self.size.marks.most + self.config.request_blocks())
    }

    /// Whether `volume` has to write dirty blocks because there are too many of them. If so, at least one volume has to:
    /// the parts of all together are at most `marks.stop`.
    pub(crate) fn is_pressed(&self, volume: Volume) -> bool {
        let state = self.volumes.state(volume);
        let (dirty, stop) = (state.dirty.len() as u32, self.size.marks.stop);
        !state.turns.writes.is_empty()
            || self.cleaner.writing_back
                && (dirty > stop || dirty > self.line.written_part(&self.volumes, volume, stop))
    }

    /// As [`Engine::check`], for shares.
    pub(crate) fn check_shares(&self) {
        let states = || self.volumes.iter();
        let sum = |of: fn(&VolumeState) -> u32| states().map(of).sum::<u32>();
        assert_eq!(sum(|state| state.loading), self.memory.loads.len() as u32);
        assert_eq!(sum(|state| state.prefetching), self.requests.prefetching);
        assert_eq!(sum(|state| state.filling), self.requests.filling);
        assert_eq!(sum(|state| state.outside), self.memory.outside.len() as u32);
        let queueing = |state: &VolumeState| state.turns.reads.len() + state.turns.writes.len();
        assert_eq!(states().map(queueing).sum::<usize>(), self.line.queueing as usize);
        for (volume, state) in self.volumes.numbered() {
            let listed = self.line.waiting.contains(&volume);
            assert!(listed && state.turns.in_line || state.turns.is_empty(), "requests are forgotten");
        }
        let most = fair::most(self.config.limits.requests, self.volumes.numbers());
        assert!(self.requests.all.len() as u64 <= most);
    }

    /// The blocks of other volumes that are outside, and of their writes that are being filled.
    pub(crate) fn outside_of_others(&self, volume: Volume) -> u32 {
        let state = self.volumes.state(volume);
        self.memory.outside.len() as u32 + self.requests.filling - state.outside - state.filling
    }

    /// Makes room for `count` frames for a request of `volume`, if it has few of those beyond the capacity, and others may
    /// have them: blocks that the policy would evict leave memory. The cache is smaller until the others' blocks are
    /// written or loaded.
    pub(crate) fn make_room(&mut self, volume: Volume, count: u32) -> bool {
        let state = self.volumes.state(volume);
        let own = state.outside + state.filling;
        let modest = (self.config.spare / 8).max(self.config.request_blocks() + 2);
        let all = self.cleaner.dirty
            + self.requests.filling
            + self.memory.outside.len() as u32
            + self.memory.loads.len() as u32;
        if own + count > modest || all == state.changed() + state.outside + state.loading {
            return false;
        }
        self.shed_for(count, 4 * count + modest)
    }

    /// Has at most `most` blocks leave memory, and no more than half of the cache, until `count` frames can be taken. Returns whether
    /// they can.
    pub(crate) fn shed_for(&mut self, count: u32, most: u32) -> bool {
        let needed = self.memory.reserved + count;
        let mut left = most;
        while self.memory.frames.available() < needed && left > 0 && self.slots.resident > self.size.capacity / 2 {
            left -= 1;
            self.drain_forgotten();
            let victim = self.policy.shed();
            self.depart(victim);
            self.drain_forgotten();
        }
        self.memory.frames.available() >= needed
    }
}
