//! Frozen disks: their writes wait for a while, so that their targets can be copied.

use std::time::Duration;

use nigh_engine::Refusal;

use crate::cache::Cache;
use crate::common::Common;
use crate::disk::Disk;
use crate::error::{ChangeError, Poisoned};
use crate::work::Work;

/// Interval at which a disk is checked that is to become still.
const LOOK: Duration = Duration::from_millis(2);

impl Common {
    /// Has writes of a disk wait for at most `limit`, and returns when its targets have everything that was written before.
    pub(crate) fn freeze(&self, name: &str, limit: Duration) -> Result<(), ChangeError> {
        let disk = self.find(name)?;
        if !disk.is_writable() {
            return Err(ChangeError::OpenForReading(name.to_owned()));
        }
        let until = self.cache.now() + limit.as_micros() as u64;
        self.cache.freeze(&disk, until)?;
        let frozen = self.settle(&disk, until);
        if frozen.is_err() {
            self.cache.thaw(&disk)?;
        }
        frozen
    }

    fn settle(&self, disk: &Disk, until: u64) -> Result<(), ChangeError> {
        loop {
            self.write_back(Some(disk.name()))?;
            if disk.write_log().is_some() {
                self.drain(disk.name())?;
            }
            if self.cache.is_still(disk)? {
                return Ok(());
            }
            if self.cache.now() >= until || !self.cache.is_frozen(disk) {
                return Err(ChangeError::Unfrozen(disk.name().to_owned()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Has the writes of a disk go on. An error if they already do.
    pub(crate) fn thaw(&self, name: &str) -> Result<(), ChangeError> {
        let disk = self.find(name)?;
        match self.cache.thaw(&disk)? {
            true => Ok(()),
            false => Err(ChangeError::Thawed(name.to_owned())),
        }
    }
}

impl Cache {
    fn freeze(&self, disk: &Disk, until: u64) -> Result<(), ChangeError> {
        let mut work = Work::default();
        let frozen = (0..self.shards()).try_for_each(|shard| {
            match self.with(shard, &mut work, |core, _| core.engine.freeze(disk.volume, until))? {
                Ok(()) => Ok(()),
                Err(Refusal::NoVolume) => Err(ChangeError::Busy(disk.name().to_owned())),
                Err(refusal) => unreachable!("{refusal:?}"),
            }
        });
        self.dispatch(&mut work, None);
        frozen
    }

    /// Whether the writes of `disk` waited until now in every shard.
    fn thaw(&self, disk: &Disk) -> Result<bool, Poisoned> {
        let mut work = Work::default();
        let now = self.now();
        let thawed = (0..self.shards()).try_fold(true, |all, shard| {
            Ok(self.with(shard, &mut work, |core, _| core.engine.thaw(now, disk.volume))? && all)
        });
        self.dispatch(&mut work, None);
        thawed
    }

    fn is_still(&self, disk: &Disk) -> Result<bool, Poisoned> {
        (0..self.shards())
            .try_fold(true, |all, shard| Ok(self.peek(shard, |core| core.engine.is_still(disk.volume))? && all))
    }

    /// Whether writes of `disk` wait in a shard.
    pub(crate) fn is_frozen(&self, disk: &Disk) -> bool {
        (0..self.shards()).any(|shard| self.peek(shard, |core| core.engine.is_frozen(disk.volume)) == Ok(true))
    }
}
