//! Closing volumes: dirty blocks are written or dropped, then the volume's blocks are forgotten, a few in each step.

use nigh_policy::Slot;

use crate::engine::Engine;
use crate::request::{Fault, Outcome, Reply, Volume};
use crate::slots::{Key, NONE};
use crate::volume::Closing;

/// The most slots that one step examines.
const SLOTS_LOOKED_AT: u32 = 4096;
/// The most blocks that one step forgets.
const BLOCKS_FORGOTTEN: u32 = 512;

impl Engine {
    /// Handles a failure of the device of `volume`: if the volume is being closed, it stays open. Returns whether it
    /// was being closed.
    pub(crate) fn fail_closing(&mut self, volume: Volume, fault: Fault) -> bool {
        match self.volumes.state_mut(volume).closing.take_if(|closing| !closing.discard) {
            Some(closing) => {
                self.volumes.closing.retain(|&other| other != volume);
                self.requests.replies.push_back(Reply { token: closing.token, outcome: Outcome::Failed(fault) });
                true
            }
            None => false,
        }
    }

    /// For closing with `discard`: drops dirty blocks whose write no request waits for, and fails requests that wait
    /// for room, which may never become free.
    pub(crate) fn drop_discarded(&mut self, now: u64) {
        for at in 0..self.volumes.closing.len() {
            let volume = self.volumes.closing[at];
            let state = self.volumes.state_mut(volume);
            if !state.closing.is_some_and(|closing| closing.discard) {
                continue;
            }
            let flushing = state.flushing.flushes.back().map_or(0, |flush| flush.version);
            for block in state.dirty.unwanted(flushing) {
                self.drop_blocks(volume, block..block + 1);
            }
            self.fail_queued(volume, Fault::SHUT_DOWN, now);
        }
    }

    /// Advances the closing of volumes until they have nothing to wait for: [`step`](Engine::step) does the rest.
    pub(crate) fn go_on_closing(&mut self, now: u64) {
        let mut lost = Vec::new();
        for at in 0..self.volumes.closing.len() {
            let volume = self.volumes.closing[at];
            let state = self.volumes.state_mut(volume);
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
            if let Some(fault) = state.flushing.lost.filter(|_| !closing.discard) {
                lost.push((volume, fault));
                continue;
            }
            state.closing = Some(Closing { forgetting: Some(0), ..closing });
            self.size.stepping = true;
            if self.volumes.ending {
                self.close_at_end(volume, closing);
            }
            let dirty: Vec<u64> = self.volumes.state_mut(volume).dirty.iter().map(|(block, _)| block).collect();
            dirty.into_iter().for_each(|block| self.drop_blocks(volume, block..block + 1));
        }
        for (volume, fault) in lost {
            self.fail_closing(volume, fault);
        }
    }

    /// The engine will do nothing but close its volumes: from now on, [`close`](Engine::close) replies as soon as a volume is
    /// written, and its number is not used again. Blocks are not forgotten, and changes of size or policy are left as they
    /// are.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.volumes.ending, true) {
            return;
        }
        self.published.shut();
        for at in 0..self.volumes.closing.len() {
            let volume = self.volumes.closing[at];
            let closing = self.volumes.state_mut(volume).closing.expect("it is being closed");
            if closing.forgetting.is_some() {
                self.close_at_end(volume, closing);
            }
        }
    }

    /// `volume` has nothing left to do but to forget its blocks, which is not needed.
    fn close_at_end(&mut self, volume: Volume, closing: Closing) {
        if closing.discard {
            self.levels.forget_opening(volume);
        }
        self.requests.replies.push_back(Reply { token: closing.token, outcome: Outcome::Done });
    }

    /// Whether all of `volume` is on its devices, and stable: it is closed, or being closed with nothing left to do but to
    /// forget its blocks.
    pub fn is_written(&self, volume: Volume) -> bool {
        let state = self.volumes.get(volume);
        state.is_none_or(|state| state.closing.is_some_and(|closing| closing.forgetting.is_some()))
    }

    /// Forgets some blocks of `volume`, which is being closed, in slots from number `from` on, and finally the volume.
    pub(crate) fn forget_some(&mut self, volume: Volume, from: u32) {
        let end = self.slots.numbers().min(from + SLOTS_LOOKED_AT);
        let (mut at, mut left) = (from, BLOCKS_FORGOTTEN);
        while at < end && left > 0 {
            let slot = Slot(at);
            at += 1;
            // A block that the policy forgot because of a previous one is in no slot any more.
            self.drain_forgotten();
            let Some(key) = self.slots.known(slot).filter(|key| key.volume() == volume) else { continue };
            left -= 1;
            match self.slots.frame(slot) {
                NONE => _ = self.forget(slot),
                _ => self.drop_block(key),
            }
        }
        let is_over = at == self.slots.numbers();
        let closing = self.volumes.state_mut(volume).closing.as_mut().expect("it is being closed");
        if !is_over {
            closing.forgetting = Some(at);
            return;
        }
        let (token, discard) = (closing.token, closing.discard);
        // They are in frames beyond the capacity, which are few.
        let outside = self.memory.outside.keys().copied().filter(|key| key.volume() == volume);
        let mut outside: Vec<Key> = outside.collect();
        outside.sort_unstable();
        outside.into_iter().for_each(|key| self.drop_block(key));
        self.volumes.closing.retain(|&other| other != volume);
        self.cleaner.unlist(&mut self.volumes, volume);
        if discard {
            self.levels.forget_opening(volume);
        }
        let gone = self.volumes.take(volume);
        self.volumes.failing.retain(|&other| other != volume);
        for part in &gone.parts {
            self.ports.state_mut(part.port).users -= 1;
        }
        for target in &gone.targets {
            self.ports.state_mut(target.port).volumes.retain(|&other| other != volume);
        }
        self.requests.replies.push_back(Reply { token, outcome: Outcome::Done });
    }
}
