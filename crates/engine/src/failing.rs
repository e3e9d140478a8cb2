//! Volumes whose device fails their writes for longer than `WriteBack::patience_us`: their dirty blocks occupy the room
//! that new writes need, so these fail instead of waiting for it.

use crate::engine::Engine;
use crate::request::{Fault, Volume};
use crate::volume::Failures;

impl Engine {
    /// A volume that began to fail, with the fault, or whose writes succeed again. Volumes that are no longer open are
    /// not reported.
    pub fn next_report(&mut self) -> Option<(Volume, Option<Fault>)> {
        while let Some(volume) = self.reports.pop_first() {
            if self.volumes[volume.0 as usize].is_some() {
                return Some((volume, self.failing(volume)));
            }
        }
        None
    }

    /// The fault of the writes of `volume`, if it fails.
    pub(crate) fn failing(&self, volume: Volume) -> Option<Fault> {
        let failures = self.volumes[volume.0 as usize].as_ref()?.failures.as_ref()?;
        failures.lasting.then_some(failures.fault)
    }

    /// The device wrote blocks of `volume`.
    pub(crate) fn note_written(&mut self, volume: Volume) {
        if self.volume(volume).failures.take().is_some_and(|failures| failures.lasting) {
            self.reports.insert(volume);
        }
    }

    /// The device failed to write blocks of `volume`.
    pub(crate) fn note_unwritten(&mut self, volume: Volume, fault: Fault, now: u64) {
        let patience = self.config.write_back.patience_us;
        let new = Failures { since: now, last: now, fault, lasting: false };
        let failures = self.volume(volume).failures.get_or_insert(new);
        if now - failures.last > patience && !failures.lasting {
            // Nothing had to be written meanwhile.
            failures.since = now;
        }
        (failures.last, failures.fault) = (now, fault);
        if !failures.lasting && now - failures.since >= patience {
            failures.lasting = true;
            self.reports.insert(volume);
            self.fail_writes(volume, fault, now);
        }
    }
}
