//! Operations at devices: what these do, and their completion.

use nigh_engine::{Action, Fault};
use rand::RngExt;

use super::{InFlight, SECTOR, World};

impl World {
    /// The device's effect of an operation: all of it, or any part.
    pub(super) fn apply(&mut self, flight: &mut InFlight, whole: bool) {
        if let Some(level) = World::level_of(flight.operation.port) {
            return self.apply_to_level(level, flight, whole);
        }
        let served = self.range_of(flight.operation.port);
        let World { random, disks, .. } = self;
        let disk = &mut disks[World::disk_of(flight.operation.port)];
        let start = flight.operation.offset as usize;
        let range = start..start + flight.operation.length as usize;
        let torn = random.random_bool(0.5);
        let mut left = random.random_range(0..=range.len() / SECTOR);
        // A short operation does a first part, a torn one any sectors.
        let mut keep = || {
            left = left.saturating_sub(1);
            whole || if torn { random.random_bool(0.5) } else { left > 0 }
        };
        match &mut flight.operation.action {
            Action::Read(frames) => {
                assert_eq!(frames.len(), range.len());
                if whole {
                    frames.copy_from(&disk.bytes()[range]);
                } else {
                    frames.slices_mut().for_each(|slice| slice.fill(0xee));
                }
            }
            Action::Write(frames) => {
                let mut data = vec![0; range.len()];
                frames.copy_to(&mut data);
                if !flight.forgotten {
                    disk.write(start, &data, keep);
                }
            }
            Action::Zeroes { .. } => disk.write(start, &vec![0; range.len()], keep),
            Action::Discard => {
                let data = disk.discarded(range);
                disk.write(start, &data, keep);
            }
            Action::Flush => {
                if whole || keep() {
                    disk.end_flush(flight.reach, &served);
                }
            }
        }
    }

    pub(super) fn complete(&mut self, at: usize) {
        let mut flight = self.in_flight.swap_remove(at);
        let whole = !flight.fails;
        if !flight.begun {
            self.apply(&mut flight, whole);
        }
        let blocks = self.random.random_range(1..20);
        if whole && self.engine.complete_first(self.now, &mut flight.operation, blocks) {
            self.done.first_blocks += 1;
            self.in_flight.push(InFlight { begun: true, ..flight });
            return self.replies();
        }
        let level = World::level_of(flight.operation.port);
        let home = level.is_none();
        let write = home && matches!(flight.operation.action, Action::Write(_));
        let fault = if !home && self.random.random_bool(0.5) { Fault::AWAY } else { Fault(5) };
        let result = if flight.fails { Err(fault) } else { Ok(()) };
        let unflushed =
            (flight.fails && matches!(flight.operation.action, Action::Flush)).then_some(flight.operation.port);
        if let Some(port) = unflushed {
            self.forget_unflushed(port);
        }
        self.engine.complete(self.now, flight.operation, result);
        level.into_iter().for_each(|level| self.level_completed(level));
        if let Some(port) = unflushed {
            self.frozen[World::disk_of(port)] = None;
            self.flush_failed(port);
        }
        self.replies();
        if write {
            self.done.device_writes += 1;
            if self.plan.crash_at == Some(self.done.device_writes) {
                self.crash(true);
            }
        }
    }
}
