//! Changes while running, and what can be seen from outside.

use nigh_policy::Slot;

use crate::arena::Exclusive;
use crate::config::Config;
use crate::counters::{Counters, Gauges};
use crate::engine::Engine;
use crate::frames::{DIRTY, LOADING, PREFETCHED};
use crate::record::Reading;
use crate::request::{BlockState, Fault, Outcome, Refusal, Reply, Volume, WriteMode};
use crate::slots::{Key, NONE};
use crate::volume::Closing;

/// Slots that one step of closing a volume looks at.
const SLOTS_A_STEP: u32 = 4096;
/// Blocks of it that one step forgets.
const BLOCKS_A_STEP: u32 = 512;

impl Engine {
    /// Begins to close `volume`: new requests are refused, those in progress are finished, dirty blocks are written, and
    /// the device is flushed. Then [`step`](Engine::step) forgets its blocks, a few at a time. The reply has `token`; if it is `Failed`, the volume stays open. With `discard` it never is:
    /// dirty blocks are dropped, except where a request waits for them to be written, and requests that wait for room fail.
    pub fn close(&mut self, now: u64, volume: Volume, discard: bool, token: u64) -> Result<(), Refusal> {
        match self.volumes.get_mut(volume.0 as usize).and_then(Option::as_mut) {
            Some(state) if state.closing.is_none() => {
                state.closing = Some(Closing { token, discard, forgetting: None });
                state.retry_at = 0;
            }
            _ => return Err(Refusal::NoVolume),
        }
        self.closing.push(volume);
        self.make_due(volume);
        self.pump(now);
        Ok(())
    }

    /// The device of `volume` failed: if it is being closed, it stays open. Says whether it was.
    pub(crate) fn fail_closing(&mut self, volume: Volume, fault: Fault) -> bool {
        match self.volume(volume).closing.take_if(|closing| !closing.discard) {
            Some(closing) => {
                self.closing.retain(|&other| other != volume);
                self.replies.push_back(Reply { token: closing.token, outcome: Outcome::Failed(fault) });
                true
            }
            None => false,
        }
    }

    /// Drops what closing with `discard` gives up: dirty blocks whose write no request waits for, and requests that wait for
    /// room, which may never come.
    pub(crate) fn give_up(&mut self, now: u64) {
        for at in 0..self.closing.len() {
            let volume = self.closing[at];
            let state = self.volume(volume);
            if !state.closing.is_some_and(|closing| closing.discard) {
                continue;
            }
            let flushing = state.flushes.back().map_or(0, |flush| flush.version);
            for block in state.dirty.unwanted(flushing) {
                self.drop_blocks(volume, block..block + 1);
            }
            self.fail_queued(volume, Fault::SHUT_DOWN, now);
        }
    }

    /// Requests of `volume` that wait for room end with `fault`.
    pub(crate) fn fail_queued(&mut self, volume: Volume, fault: Fault, now: u64) {
        let mut failed = Vec::new();
        for queue in [&mut self.reads_waiting, &mut self.writes_waiting] {
            queue.retain(|&id| {
                let active = self.requests[id as usize].as_mut().expect("a request in progress");
                let fails = active.request.volume == volume;
                if fails {
                    active.fault = Some(fault);
                    failed.push(id);
                }
                !fails
            });
        }
        // An edge of a zeroes may be on its way to the device.
        failed.into_iter().for_each(|id| self.store(id, now));
    }

    /// Does what can be done next for the volumes that are being closed, until there is nothing to wait for:
    /// [`step`](Engine::step) does the rest.
    pub(crate) fn go_on_closing(&mut self, now: u64) {
        for at in 0..self.closing.len() {
            let volume = self.closing[at];
            let state = self.volume(volume);
            let closing = state.closing.expect("it is being closed");
            if closing.forgetting.is_some() {
                continue;
            }
            if state.requests > 0 || state.operations > 0 || (!closing.discard && !state.dirty.is_empty()) {
                continue;
            }
            if state.is_unsynced() && !closing.discard {
                self.flush_devices(volume, now);
                continue;
            }
            state.closing = Some(Closing { forgetting: Some(0), ..closing });
            self.stepping = true;
            let dirty: Vec<u64> = self.volume(volume).dirty.iter().map(|(block, _)| block).collect();
            dirty.into_iter().for_each(|block| self.drop_blocks(volume, block..block + 1));
        }
    }

    /// A volume whose blocks are to be forgotten, and the slot from which on.
    pub(crate) fn forgetting(&self) -> Option<(Volume, u32)> {
        self.closing.iter().find_map(|&volume| {
            let closing = self.volumes[volume.0 as usize].as_ref()?.closing?;
            closing.forgetting.map(|from| (volume, from))
        })
    }

    /// Forgets some blocks of `volume`, which is being closed, in slots from number `from` on, and at the end the volume.
    pub(crate) fn forget_some(&mut self, volume: Volume, from: u32) {
        let end = self.slots.numbers().min(from + SLOTS_A_STEP);
        let (mut at, mut left) = (from, BLOCKS_A_STEP);
        while at < end && left > 0 {
            let slot = Slot(at);
            at += 1;
            // What the policy forgot because of one before is in no slot any more.
            self.drain_forgotten();
            let Some(key) = self.slots.known(slot).filter(|key| key.volume() == volume) else { continue };
            left -= 1;
            match self.slots.frame(slot) {
                NONE => _ = self.forget(slot),
                _ => self.drop_block(key),
            }
        }
        let is_over = at == self.slots.numbers();
        let closing = self.volume(volume).closing.as_mut().expect("it is being closed");
        if !is_over {
            closing.forgetting = Some(at);
            return;
        }
        let (token, discard) = (closing.token, closing.discard);
        // They are in frames beyond the capacity, of which there are few.
        let outside = self.outside.keys().copied().filter(|key| key.volume() == volume);
        let mut outside: Vec<Key> = outside.collect();
        outside.sort_unstable();
        outside.into_iter().for_each(|key| self.drop_block(key));
        self.closing.retain(|&other| other != volume);
        self.unlist(volume);
        if discard {
            self.forget_opening(volume);
        }
        let gone = self.volumes[volume.0 as usize].take().expect("an open volume");
        for part in &gone.parts {
            self.port(part.port).users -= 1;
        }
        self.replies.push_back(Reply { token, outcome: Outcome::Done });
    }

    /// Whether `surplus_memory` gives any: after a change, and after anything that frees frames.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.frames.surplus() > 0
    }

    /// At most `most` free frames that a smaller capacity left over, for the host to give their memory back to the
    /// system and then to return them with `return_memory`. They are sorted by address; their contents do not matter.
    pub fn surplus_memory(&mut self, most: usize) -> Option<Exclusive> {
        let frames = self.frames.take_surplus(most);
        let bytes = frames.len() * self.config.block_bytes as usize;
        (bytes > 0).then(|| Exclusive::of(&self.arena, &frames, 0, bytes))
    }

    /// Takes back what `surplus_memory` gave, and goes on with requests that came to wait for it.
    pub fn return_memory(&mut self, now: u64, frames: Exclusive) {
        assert!(frames.belongs(&self.arena));
        let list = frames.frames().to_vec();
        drop(frames);
        list.into_iter().for_each(|frame| self.frames.put_idle(frame));
        self.pump(now);
    }

    /// From now on, writes of `volume` that are committed reach its device as `mode` says. What is dirty already stays so
    /// until it is written back.
    pub fn set_mode(&mut self, volume: Volume, mode: WriteMode) -> Result<(), Refusal> {
        let state = self.volumes.get_mut(volume.0 as usize).and_then(Option::as_mut).ok_or(Refusal::NoVolume)?;
        state.mode = mode;
        Ok(())
    }

    /// How the engine is set up; its policy is the present one, its capacity that at the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What `volume` did, if it is open.
    pub fn counters(&self, volume: Volume) -> Option<Counters> {
        self.volumes.get(volume.0 as usize)?.as_ref().map(|state| state.counters)
    }

    /// How many blocks of `volume` are dirty, if it is open.
    pub fn dirty(&self, volume: Volume) -> Option<u32> {
        self.volumes.get(volume.0 as usize)?.as_ref().map(|state| state.dirty.len() as u32)
    }

    /// What the engine holds.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            resident: self.resident,
            ghosts: self.slots.len() as u32 - self.resident,
            dirty: self.dirty,
            frames: self.frames.in_use(),
            loading: self.loads.len() as u32,
            requests: (self.requests.len() - self.free_requests.len()) as u32,
            waiting: (self.reads_waiting.len() + self.writes_waiting.len()) as u32,
            queued: self.queued,
        }
    }

    /// Reports the policy's gauges.
    pub fn policy_gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policy.gauges(report);
    }

    /// What the cache has of block number `block` of `volume`.
    pub fn state(&self, volume: Volume, block: u64) -> BlockState {
        match self.current(Key::new(volume, block)) {
            Some(frame) if self.frames.has(frame, DIRTY) => BlockState::Dirty,
            Some(frame) if !self.frames.has(frame, LOADING) => BlockState::Clean,
            _ => BlockState::Absent,
        }
    }

    /// Memory of the index and of the frames' bookkeeping, in bytes; without the policy's, and without what is kept
    /// for dirty blocks, requests and operations.
    pub fn metadata_bytes(&self) -> usize {
        self.slots.bytes() + self.frames.bytes() + self.arena.bookkeeping_bytes() + self.level_bytes()
    }

    /// Recounts every invariant (tests and fuzzing only).
    ///
    /// # Panics
    /// On a broken one.
    pub fn check(&mut self) {
        self.policy.check();
        self.check_tenants();
        self.reclaim();
        let frames = self.config.capacity_max + self.config.spare + self.config.storing;
        let mut owners = vec![0u32; frames as usize];
        let mut resident = 0;
        let mut unused = vec![0; self.volumes.len()];
        for slot in self.slots.used() {
            let frame = self.slots.frame(slot);
            if frame != NONE {
                owners[frame as usize] += 1;
                resident += 1;
                let volume = self.slots.key(slot).volume();
                unused[volume.0 as usize] += u64::from(self.frames.has(frame, PREFETCHED));
                assert!(!self.outside.contains_key(&self.slots.key(slot)), "a block is resident and outside");
            }
        }
        assert_eq!(resident, self.resident);
        assert!(self.resident <= self.capacity);
        for (&key, &frame) in &self.outside {
            owners[frame as usize] += 1;
            let lingers = self.lingering.contains(&(Some(key), frame));
            assert!(lingers || self.frames.has(frame, DIRTY | LOADING), "a frame that nobody will free");
        }
        for &(key, frame) in &self.lingering {
            owners[frame as usize] += u32::from(key.is_none());
        }
        let mut dirty = 0;
        for (at, state) in self.volumes.iter().enumerate() {
            let Some(state) = state else { continue };
            let counters = &state.counters;
            let over = counters.prefetch_used + counters.prefetch_wasted;
            assert_eq!(counters.prefetch_issued, over + unused[at], "each prefetched block is used, wasted or there");
            state.dirty.check();
            for (block, frame) in state.dirty.iter() {
                dirty += 1;
                assert_eq!(self.current(Key::new(Volume(at as u32), block)), Some(frame));
                assert!(self.frames.has(frame, DIRTY));
            }
        }
        assert_eq!(dirty, self.dirty);
        self.check_lists();
        self.check_levels();
        assert!(self.dirty + self.filling <= self.dirty_most, "more dirty blocks than allowed");
        self.dirty_most = self.marks.most.max(self.dirty + self.filling);
        let mut filling = 0;
        for active in self.requests.iter().flatten() {
            if active.held.is_none() {
                for &frame in active.frames.iter().filter(|&&frame| frame != NONE) {
                    owners[frame as usize] += 1;
                    filling += 1;
                }
            }
        }
        assert_eq!(filling, self.filling);
        // A load's frame is its block's, or nobody's if the block was overwritten or dropped meanwhile.
        for &frame in self.loads.keys() {
            owners[frame as usize] = owners[frame as usize].max(1);
        }
        assert!(owners.iter().all(|&count| count <= 1), "a frame has two owners");
        assert_eq!(owners.iter().sum::<u32>(), self.frames.in_use(), "frames leaked");
        assert_eq!(self.loads.values().filter(|load| load.reading != Reading::Demand).count() as u32, self.prefetching);
        assert!(self.requests.len() <= self.config.limits.requests as usize);
    }
}
