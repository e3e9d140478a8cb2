//! Device flushes that are complete. Data that a device may have lost when one failed is written again by every shard; if
//! that is no longer possible, the disk is lost.

use nigh_engine::{Fault, Port};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::work::Work;

impl Cache {
    /// If a shard reports that data of `disk` is lost, all shards do from now on. Returns whether that is new.
    pub(crate) fn note_lost(&self, disk: &Disk, fault: Fault, work: &mut Work) -> bool {
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
