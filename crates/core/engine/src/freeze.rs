//! Volumes whose writes wait for a while, so that their devices can be copied.
//!
//! 1. `freeze`: writes, zeroes and trims that have not begun wait. Reads and flushes go on, and so do writes that began before.
//! 2. The host flushes the volume until it `is_still`: its devices have everything, and nothing changes them.
//! 3. `thaw`, the time that `freeze` got, a close, or a failed flush of a device, which then may have lost something: those that waited go on.

use crate::engine::Engine;
use crate::request::{Refusal, Volume};

impl Engine {
    /// Has writes, zeroes and trims of `volume` wait, until [`thaw`](Engine::thaw) or the time `until`, in µs. A second call changes that time.
    pub fn freeze(&mut self, volume: Volume, until: u64) -> Result<(), Refusal> {
        if self.volumes.get(volume).is_none_or(|state| state.closing.is_some()) {
            return Err(Refusal::NoVolume);
        }
        self.volumes.frozen.retain(|&(other, _)| other != volume);
        self.volumes.frozen.push((volume, until));
        Ok(())
    }

    /// Whether writes of `volume` wait.
    pub fn is_frozen(&self, volume: Volume) -> bool {
        self.volumes.is_frozen(volume)
    }

    /// Whether `volume` is frozen, its devices have everything that was written before, and nothing changes them.
    pub fn is_still(&self, volume: Volume) -> bool {
        self.is_frozen(volume)
            && self.volumes.get(volume).is_some_and(|state| {
                let locks = state.locks.iter().any(|lock| lock.started);
                state.changed() == 0 && !locks && !state.is_unsynced()
            })
    }

    /// Has the writes of `volume` go on. Returns whether they waited until now.
    pub fn thaw(&mut self, now: u64, volume: Volume) -> bool {
        let was_frozen = self.end_freeze(volume);
        if was_frozen {
            self.pump(now);
        }
        was_frozen
    }

    /// Requests that wait go on with the next `pump`.
    pub(crate) fn end_freeze(&mut self, volume: Volume) -> bool {
        let Some(at) = self.volumes.frozen.iter().position(|&(other, _)| other == volume) else { return false };
        self.volumes.frozen.remove(at);
        self.volumes.state_mut(volume).unlockable = true;
        true
    }

    /// When the next volume thaws by itself, in µs.
    pub(crate) fn next_thaw(&self) -> Option<u64> {
        self.volumes.frozen.iter().map(|&(_, until)| until).min()
    }

    /// Thaws volumes whose time has come.
    pub(crate) fn thaw_late(&mut self, now: u64) {
        while let Some(&(volume, _)) = self.volumes.frozen.iter().find(|&&(_, until)| until <= now) {
            self.thaw(now, volume);
        }
    }
}
