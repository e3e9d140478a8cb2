//! Loads of blocks, from levels or from the devices of their volume.
//!
//! 1. A load begins for a frame, and its operation waits in the queue of a port.
//! 2. Requests join it; the operation of a prefetch is promoted when a request waits for it.
//! 3. It ends with its frame in memory, or with a load from below.

use nigh_control::Directive;
use nigh_policy::Tenant;

use crate::engine::Engine;
use crate::memory::{Load, LoadWaiters};
use crate::queue::Class;
use crate::record::{Fetch, Reading, Record};
use crate::request::Volume;
use crate::slots::Key;

/// A block to be loaded, its frame, and the level and place to load it from, if any.
type Placed = (u64, u32, Option<(usize, u32)>);

impl Engine {
    /// The load of `frame` is over. Returns the requests that wait for it, unless the block was overwritten or dropped
    /// meanwhile.
    pub(crate) fn end_load(&mut self, key: Key, frame: u32, failed: bool, now: u64) -> Option<LoadWaiters> {
        let waiters = self.take_load(key, frame, failed, now);
        if self.memory.current(&self.slots, key) == Some(frame) {
            return Some(waiters);
        }
        assert!(waiters.is_empty());
        self.memory.retire(frame);
        None
    }

    /// As `end_load`, whether or not it failed. The caller decides about `frame`.
    pub(crate) fn take_load(&mut self, key: Key, frame: u32, failed: bool, now: u64) -> LoadWaiters {
        let load = self.memory.loads.remove(&frame).expect("a frame being loaded has a load");
        let ahead = u32::from(load.reading != Reading::Demand);
        self.requests.prefetching -= ahead;
        let state = self.volumes.state_mut(key.volume());
        state.loading -= 1;
        state.prefetching -= ahead;
        if let Reading::Predicted(tenant) = load.reading {
            self.predicted_loaded(tenant, key.volume(), failed, now);
        }
        load.waiters
    }

    /// A request now waits for the prefetch `id`. If its operation has already started, nothing changes for the device.
    pub(crate) fn promote(&mut self, id: u64) {
        let port = match self.ports.operations.get(&id) {
            Some(Record::Read { first, .. }) => {
                self.volumes.home(self.shift, first.volume(), first.index()..first.index() + 1).0
            }
            Some(Record::Fetch(fetch)) => self.levels.port(fetch.level),
            _ => return,
        };
        self.ports.state_mut(port).queue.promote(id);
    }

    /// `waiter` waits for the load of `frame`, too.
    pub(crate) fn join(&mut self, frame: u32, waiter: (u32, u32)) {
        let load = self.memory.loads.get_mut(&frame).expect("a frame being loaded has a load");
        load.waiters.push(waiter);
        // A block of a sorted batch keeps its place there: a request that waits for it continues with the blocks behind
        // it.
        if load.reading == Reading::Ahead {
            let operation = load.operation;
            self.promote(operation);
        }
    }

    /// The contents of `frame` are to be loaded; the operation that loads it is not queued yet.
    pub(crate) fn begin_load(&mut self, volume: Volume, frame: u32, reading: Reading, waiters: LoadWaiters) {
        self.memory.loads.insert(frame, Load { operation: 0, waiters, reading });
        self.volumes.state_mut(volume).loading += 1;
    }

    /// Queues the operations that load `blocks`, which are in ascending order with their frames, from the home device; `passed` as in
    /// [`Record::Read`].
    fn queue_home_loads(&mut self, volume: Volume, blocks: &[(u64, u32)], class: Class, passed: u8, now: u64) {
        let most = (self.config.limits.operation_bytes >> self.shift) as usize;
        for neighbours in blocks.chunk_by(|one, other| one.0 + 1 == other.0) {
            for piece in self.volumes.pieces(volume, &(neighbours[0].0..neighbours[0].0 + neighbours.len() as u64)) {
                let start = (piece.start - neighbours[0].0) as usize;
                for run in neighbours[start..start + (piece.end - piece.start) as usize].chunks(most) {
                    let frames: Vec<u32> = run.iter().map(|&(_, frame)| frame).collect();
                    let blocks = run[0].0..run[0].0 + run.len() as u64;
                    let first = Key::new(volume, blocks.start);
                    let record = Record::Read { first, frames, alone: false, since: 0, passed };
                    let operation = self.ports.queue_home(&mut self.volumes, volume, class, blocks, record, now);
                    for (_, frame) in run {
                        self.memory.loads.get_mut(frame).expect("just begun").operation = operation;
                    }
                }
            }
        }
    }

    /// Loads those of `blocks` from below that are still wanted: `level` did not return them.
    pub(crate) fn load_below(&mut self, volume: Volume, mut blocks: Vec<(u64, u32)>, level: usize, now: u64) {
        blocks.retain(|&(block, frame)| {
            let key = Key::new(volume, block);
            let wanted = self.memory.current(&self.slots, key) == Some(frame);
            if !wanted {
                self.end_load(key, frame, false, now);
            }
            wanted
        });
        let class = |engine: &Engine, frame: u32| {
            let load = &engine.memory.loads[&frame];
            let waits = load.reading == Reading::Demand || !load.waiters.is_empty();
            if waits { Class::Read } else { Class::Prefetch }
        };
        for run in blocks.chunk_by(|one, other| class(self, one.1) == class(self, other.1)).collect::<Vec<_>>() {
            self.queue_loads(volume, run, class(self, run[0].1), level + 1, now);
        }
    }

    /// Queues the operations that load `blocks`, which are in ascending order with their frames: from the levels from
    /// number `from` on, and from the home device if no level holds them.
    pub(crate) fn queue_loads(&mut self, volume: Volume, blocks: &[(u64, u32)], class: Class, from: usize, now: u64) {
        if from >= self.levels.all.len() {
            return self.queue_home_loads(volume, blocks, class, 0, now);
        }
        let most = (self.config.limits.operation_bytes >> self.shift) as usize;
        let levels = self.levels.asked(&mut self.volumes, volume, from, now);
        let placed = blocks
            .iter()
            .map(|&(block, frame)| (block, frame, self.levels.locate(&self.volumes, volume, block, &levels)));
        let placed: Vec<Placed> = placed.collect();
        let goes_on = |one: &Placed, next: &Placed| {
            let expected = one.2.map(|(level, place)| (level, place + 1));
            one.0 + 1 == next.0 && expected == next.2
        };
        for run in placed.chunk_by(goes_on) {
            for run in run.chunks(most) {
                let Some((level, place)) = run[0].2 else {
                    let run: Vec<(u64, u32)> = run.iter().map(|&(block, frame, _)| (block, frame)).collect();
                    let passed = self.levels.passed(&self.volumes, volume, &run, from, &levels);
                    self.queue_home_loads(volume, &run, class, passed, now);
                    continue;
                };
                let of = &mut self.levels.all[level].level;
                let places = place..place + run.len() as u32;
                places.clone().for_each(|place| of.note_fetch(place));
                let sums = places.clone().map(|place| of.sum(place)).collect();
                let frames: Vec<u32> = run.iter().map(|&(_, frame, _)| frame).collect();
                let first = Key::new(volume, run[0].0);
                let opening = self.volumes.entry(first).opening();
                self.volumes.state_mut(volume).operations += 1;
                let leaves = self.levels.unified
                    && self.levels.all[level].level.config.shared
                    && run.iter().all(|&(block, ..)| self.is_above(Key::new(volume, block), level));
                let fetch = Fetch { level, place, first, frames, opening, sums, leaves };
                let record = Record::Fetch(fetch);
                let operation = self.levels.queue(&mut self.ports, level, class, places, record, now);
                for (_, frame, _) in run {
                    self.memory.loads.get_mut(frame).expect("a frame being loaded has a load").operation = operation;
                }
            }
        }
    }

    /// The decider received a hint of `tenant`.
    pub(crate) fn told(&mut self, tenant: Tenant) {
        self.drain_forgotten();
        self.size.stepping |= self.policy.is_pending();
        self.curves.retry();
        self.ask(tenant);
    }

    /// A prefetch from `volume` that `tenant`'s list requested is over. If it failed, the list is dropped: otherwise it
    /// would request the same block again and again.
    pub(crate) fn predicted_loaded(&mut self, tenant: Tenant, volume: Volume, failed: bool, now: u64) {
        let (tenants, known) = self.hearing().expect("a list requested it");
        tenants.prefetched(tenant, volume.0, Some(now).filter(|_| !failed));
        if failed {
            let none = Directive::Predict { accesses: Vec::new() };
            tenants.apply(tenant, &none, &known).expect("a tenant with a list may have none");
            self.told(tenant);
        }
        self.ask(tenant);
    }
}
