//! Returning memory, write modes, and inspection from outside.

use std::ops::Range;

use nigh_policy::curve::Measured;
use nigh_policy::{Chosen, Slot, Tenant};

use crate::arena::Exclusive;
use crate::config::Config;
use crate::counters::{Counters, Gauges};
use crate::engine::Engine;
use crate::frames::{DIRTY, LOADING, PREFETCHED, TRANSIT, UNFLUSHED};
use crate::record::Reading;
use crate::request::{BlockState, Refusal, Volume, WriteMode};
use crate::slots::{Key, NONE};
use crate::volume::Target;

impl Engine {
    /// Whether `surplus_memory` returns any frames: after a change, and after anything that frees frames.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.memory.frames.surplus(self.memory.reserved) > 0
    }

    /// At most `most` free frames beyond a lowered capacity. The host returns their memory to the system, and then
    /// calls `return_memory`. They are sorted by address; their contents do not matter.
    pub fn surplus_memory(&mut self, most: usize) -> Option<Exclusive> {
        let frames = self.memory.frames.take_surplus(self.memory.reserved, most);
        let bytes = frames.len() * self.config.block_bytes as usize;
        (bytes > 0).then(|| Exclusive::of(&self.memory.arena, &frames, 0, bytes))
    }

    /// From now on, committed writes of `volume` reach its device according to `mode`. Blocks that are already dirty
    /// stay dirty until they are written back.
    pub fn set_mode(&mut self, volume: Volume, mode: WriteMode) -> Result<(), Refusal> {
        let state = self.volumes.get_mut(volume).ok_or(Refusal::NoVolume)?;
        state.mode = mode;
        Ok(())
    }

    /// The configuration of the engine, with the present policy and the capacity at the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters of `volume`, if it is open.
    pub fn counters(&self, volume: Volume) -> Option<Counters> {
        self.volumes.get(volume).map(|state| state.counters)
    }

    /// The number of dirty blocks of `volume`, if it is open.
    pub fn dirty(&self, volume: Volume) -> Option<u32> {
        self.volumes.get(volume).map(|state| state.dirty.len() as u32)
    }

    /// The present contents of the engine.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            resident: self.slots.resident,
            ghosts: self.slots.len() as u32 - self.slots.resident,
            dirty: self.cleaner.dirty,
            frames: self.memory.frames.in_use(),
            loading: self.memory.loads.len() as u32,
            requests: (self.requests.all.len() - self.requests.free.len()) as u32,
            waiting: self.line.queueing,
            queued: self.ports.queued,
        }
    }

    /// Reports the policy's gauges.
    pub fn policy_gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policy.gauges(report);
    }

    /// The choice of a policy that chooses among others: that of `tenant`, or of the whole cache if there are no tenants.
    pub fn chosen(&self, tenant: Tenant) -> Option<Chosen> {
        match self.policy.tenants() {
            Some(tenants) => tenants.chosen(tenant),
            None => self.policy.chosen(),
        }
    }

    /// The hit ratio that `tenant` would have with less and with more memory, or the whole cache if there are no tenants; or the reason why that cannot be measured.
    /// `None` without references, or if curves are off.
    pub fn curve(&self, tenant: Tenant) -> Option<Result<Measured, String>> {
        self.curves.measured(tenant)
    }

    /// The state of block number `block` of `volume` in the cache.
    pub fn state(&self, volume: Volume, block: u64) -> BlockState {
        match self.memory.current(&self.slots, Key::new(volume, block)) {
            Some(frame) if self.memory.frames.has(frame, DIRTY) => BlockState::Dirty,
            Some(frame) if !self.memory.frames.has(frame, LOADING) => BlockState::Clean,
            _ => BlockState::Absent,
        }
    }

    /// The slots of the index, whose numbers are below this.
    pub fn slots(&self) -> u32 {
        self.slots.numbers()
    }

    /// The blocks in memory among the slots of `range`, in no order.
    pub fn resident(&self, range: Range<u32>) -> impl Iterator<Item = (Volume, u64)> {
        let known = range.filter_map(|at| Some((Slot(at), self.slots.known(Slot(at))?)));
        known.filter(|(slot, _)| self.slots.frame(*slot) != NONE).map(|(_, key)| (key.volume(), key.index()))
    }

    /// The blocks of `range` of an open `volume` that are dirty, in order. It takes time for these blocks only.
    pub fn dirty_blocks(&self, volume: Volume, range: Range<u64>) -> impl Iterator<Item = u64> {
        let state = self.volumes.get(volume);
        state.into_iter().flat_map(move |state| state.dirty.within(range.clone()))
    }

    /// Memory of the index and of the frames' bookkeeping, in bytes, without that of the policy and without that for
    /// dirty blocks, requests and operations.
    pub fn metadata_bytes(&self) -> usize {
        let targets = self.volumes.iter().flat_map(|state| &state.targets);
        let unflushed = targets.map(|target| target.unflushed.bytes()).sum::<usize>();
        self.slots.bytes()
            + self.memory.frames.bytes()
            + self.memory.arena.bookkeeping_bytes()
            + self.published.bytes()
            + self.levels.bytes()
            + unflushed
    }

    /// Recounts every invariant (tests and fuzzing only).
    ///
    /// # Panics
    /// On a broken one.
    pub fn check(&mut self) {
        self.policy.check();
        self.curves.check();
        self.slots.check();
        self.check_tenants();
        self.memory.reclaim(&mut self.volumes);
        let frames = self.config.capacity_max + self.config.spare + self.config.storing;
        let mut owners = vec![0u32; frames as usize];
        let mut resident = 0;
        let mut unused = vec![0; self.volumes.numbers()];
        for slot in self.slots.used() {
            let frame = self.slots.frame(slot);
            if frame != NONE {
                owners[frame as usize] += 1;
                resident += 1;
                let volume = self.slots.key(slot).volume();
                unused[volume.0 as usize] += u64::from(self.memory.frames.has(frame, PREFETCHED));
                assert!(!self.memory.outside.contains_key(&self.slots.key(slot)), "a block is resident and outside");
            }
        }
        assert_eq!(resident, self.slots.resident);
        assert!(self.slots.resident <= self.size.capacity);
        for (&key, &frame) in &self.memory.outside {
            owners[frame as usize] += 1;
            let lingers = self.memory.lingering.contains(&(Some(key), frame))
                || self.memory.frames.has(frame, TRANSIT)
                    && (self.levels.transit.contains(&(key, frame)) || self.levels.ahead.contains(&(key, frame)));
            assert!(lingers || self.memory.frames.has(frame, DIRTY | LOADING), "a frame that nobody will free");
            unused[key.volume().0 as usize] += u64::from(self.memory.frames.has(frame, PREFETCHED));
        }
        for &(key, frame) in &self.memory.lingering {
            owners[frame as usize] += u32::from(key.is_none());
        }
        let operation_blocks = self.config.limits.operation_bytes >> self.shift;
        let mut dirty = 0;
        for (volume, state) in self.volumes.numbered() {
            let counters = &state.counters;
            let over = counters.prefetch_used + counters.prefetch_wasted;
            assert_eq!(
                counters.prefetch_issued,
                over + unused[volume.0 as usize],
                "each prefetched block is used, wasted or there"
            );
            state.dirty.check();
            for (block, frame) in state.dirty.iter() {
                dirty += 1;
                assert_eq!(self.memory.current(&self.slots, Key::new(volume, block)), Some(frame));
                assert!(self.memory.frames.has(frame, DIRTY));
            }
            for Target { port, unflushed, .. } in &state.targets {
                let at_once = self.ports.state(*port).depth * operation_blocks;
                let most = self.config.write_back.unflushed.saturating_mul(2).saturating_add(at_once);
                assert!(unflushed.written() <= most, "more unflushed blocks than allowed");
            }
            for block in state.targets.iter().flat_map(|target| target.unflushed.blocks()) {
                let frame =
                    self.memory.current(&self.slots, Key::new(volume, block)).expect("an unflushed block is in memory");
                assert!(
                    self.memory.frames.has(frame, DIRTY | UNFLUSHED),
                    "nothing notes when an unflushed block leaves"
                );
            }
        }
        assert_eq!(dirty, self.cleaner.dirty);
        self.check_lists();
        self.check_levels();
        assert!(
            self.cleaner.dirty + self.requests.filling <= self.cleaner.dirty_most,
            "more dirty blocks than allowed"
        );
        self.cleaner.dirty_most = self.size.marks.most.max(self.cleaner.dirty + self.requests.filling);
        let mut filling = 0;
        for active in self.requests.all.iter().flatten() {
            if active.held.is_none() {
                for &frame in active.frames.iter().filter(|&&frame| frame != NONE) {
                    owners[frame as usize] += 1;
                    filling += 1;
                }
            }
        }
        assert_eq!(filling, self.requests.filling);
        self.carried_frames().for_each(|frame| owners[frame as usize] += 1);
        // The frame of a load belongs to its block, or to none if the block was overwritten or dropped meanwhile.
        for &frame in self.memory.loads.keys() {
            owners[frame as usize] = owners[frame as usize].max(1);
        }
        assert!(owners.iter().all(|&count| count <= 1), "a frame has two owners");
        assert_eq!(owners.iter().sum::<u32>(), self.memory.frames.in_use(), "frames leaked");
        assert_eq!(
            self.memory.loads.values().filter(|load| load.reading != Reading::Demand).count() as u32,
            self.requests.prefetching
        );
        self.check_shares();
        self.check_damaged();
        self.check_published();
    }
}
