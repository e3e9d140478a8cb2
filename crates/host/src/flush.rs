//! Device flushes that are complete. What a device may have lost when one failed is written again by every shard; if
//! that is no longer possible, the disk is lost.

use nigh_engine::{Fault, Operation, Port};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::work::Work;

impl Cache {
    /// The device flush of a shard is complete, and with it those of the shards that joined it. If it failed, no shard
    /// trusts the device by the time that a later flush begins.
    pub(crate) fn complete_flush(&self, flush: (u32, Operation), result: Result<(), Fault>, work: &mut Work) {
        let port = flush.1.port;
        let device = self.disks.device(port);
        let mut flushes = vec![flush];
        flushes.extend(device.take_joined());
        let shards: Vec<u32> = flushes.iter().map(|(shard, _)| *shard).collect();
        for (shard, operation) in flushes {
            // The waiters of a poisoned shard already have their replies.
            let _ = self.with(shard, work, |core, now| core.engine.complete(now, operation, result));
        }
        if let Err(fault) = result {
            for shard in (0..self.shards()).filter(|shard| !shards.contains(shard)) {
                // Nothing of a poisoned shard is acknowledged any more.
                let _ = self.with(shard, work, |core, now| core.engine.distrust(now, port, fault));
            }
        }
        let newly_lost = result.is_err_and(|fault| self.note_lost(&self.disks.of_port(port), fault, work));
        if !device.synced(result.is_err()) || newly_lost {
            return;
        }
        let disk = self.disks.of_port(port);
        match result {
            Ok(()) => tracing::info!(disk = disk.name(), "flushes of its device succeed again"),
            Err(fault) => tracing::warn!(
                disk = disk.name(),
                %fault,
                "its device failed a flush: what was written since the last good one is written again"
            ),
        }
    }

    /// If a shard reports that data of `disk` is lost, all shards do from now on. Returns whether that is new.
    fn note_lost(&self, disk: &Disk, fault: Fault, work: &mut Work) -> bool {
        let is_lost = |shard| self.peek(shard, |core| core.engine.lost(disk.volume).is_some()) == Ok(true);
        if disk.lost().is_some() || !(0..self.shards()).any(is_lost) {
            return false;
        }
        self.give_up(disk, fault, work);
        tracing::error!(
            disk = disk.name(),
            %fault,
            "its device failed a flush and may have lost data that is no longer in memory: all flushes and writes with FUA \
             fail until the disk is removed with discard and added again"
        );
        true
    }

    /// If another writer has the device of an operation that failed, its disk accepts no writes any more, and no flush of it
    /// succeeds.
    pub(crate) fn note_taken_over(&self, port: Port, fault: Fault, work: &mut Work) {
        let Some(disk) = self.disks.taken_over(port) else { return };
        if disk.take_over() {
            self.give_up(&disk, fault, work);
            tracing::error!(
                disk = disk.name(),
                "another writer has its device: it is read-only from now on, and what was not flushed is lost; remove it with \
                 discard"
            );
        }
    }

    /// Data of `disk` is lost: flushes and writes with FUA fail from now on.
    pub(crate) fn give_up(&self, disk: &Disk, fault: Fault, work: &mut Work) {
        disk.set_lost(fault);
        self.condemn(disk, fault, work);
    }

    /// Flushes and writes with FUA of `disk` fail in all shards.
    pub(crate) fn condemn(&self, disk: &Disk, fault: Fault, work: &mut Work) {
        for shard in 0..self.shards() {
            // In a poisoned shard, everything fails.
            let _ = self.with(shard, work, |core, _| core.engine.condemn(disk.volume, fault));
        }
    }
}
