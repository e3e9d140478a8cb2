//! Disks whose devices fail writes for long: reported once, when that begins and when it is over.

use crate::cache::Cache;
use crate::sync::lock;
use crate::work::Report;

impl Cache {
    /// What a shard reports. A disk fails as long as one of its shards does.
    pub(crate) fn report(&self, Report { shard, volume, failing }: Report) {
        let Some(disk) = self.disks.numbered(volume) else { return };
        let mut shards = lock(&disk.failing);
        let failed = !shards.is_empty();
        match failing {
            Some(_) => _ = shards.insert(shard),
            None => _ = shards.remove(&shard),
        }
        let fails = !shards.is_empty();
        drop(shards);
        match failing {
            Some(fault) if !failed => tracing::error!(
                disk = disk.name(),
                %fault,
                "its device fails writes: they are tried again each second; meanwhile, writes that find no room fail"
            ),
            None if failed && !fails => tracing::info!(disk = disk.name(), "its device writes again"),
            _ => {}
        }
    }
}
