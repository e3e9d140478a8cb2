//! Blocks that were damaged in memory: each is logged, and a disk that lost one is lost.

use nigh_engine::{Damage, Fault};

use crate::cache::Cache;
use crate::disk::Disk;
use crate::settings::BLOCK;
use crate::work::Work;

/// The most lost blocks of a disk that statistics list.
const LISTED: usize = 16;

impl Cache {
    /// A shard found a damaged block.
    pub(crate) fn note_damage(&self, Damage { volume, block, lost }: Damage, work: &mut Work) {
        let Some(disk) = self.disks.numbered(volume) else { return };
        let (name, offset) = (disk.name(), block * BLOCK);
        if !lost {
            tracing::error!(disk = name, offset, "memory damaged a cached block: it is read from its device again");
            return;
        }
        tracing::error!(
            disk = name,
            offset,
            "memory damaged a block that was not written yet: its device keeps the older contents, and reads of it fail until \
             it is overwritten; all flushes and writes with FUA fail until the disk is removed with discard and added again"
        );
        if disk.lost().is_none() {
            self.give_up(&disk, Fault::DAMAGED, work);
        }
    }

    /// The offsets in bytes of some blocks of `disk` that are lost, in ascending order within each shard.
    pub(crate) fn damaged(&self, disk: &Disk) -> Vec<u64> {
        let of = |shard| self.peek(shard, |core| core.engine.damaged(disk.volume, LISTED)).unwrap_or_default();
        (0..self.shards()).flat_map(of).map(|block| block * BLOCK).take(LISTED).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{DiskSettings, Host, HostError, Settings};
    use nigh_engine::Fault;

    #[test]
    fn verify_finds_damaged_blocks() {
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), vec![5; 1 << 20]).unwrap();
        let target = image.path().to_str().unwrap().parse().unwrap();
        let mut settings = Settings::new(1 << 20, "lru".parse().unwrap(), vec![DiskSettings::new("disk", target)]);
        settings.shards = Some(1);
        assert!(settings.verify);
        let host = Host::start(settings).unwrap();
        let session = host.open("disk").unwrap();
        let disk = host.disk("disk").unwrap();
        let flip = |block| {
            let mut work = super::Work::default();
            let flipped = host.cache().with(0, &mut work, |core, _| core.engine.flip_bit(disk.volume(), block, 8));
            assert!(flipped.unwrap());
        };
        let mut bytes = [0; 4096];
        session.read(0, &mut bytes).unwrap();
        flip(0);
        for _ in 0..1000 {
            session.read(0, &mut bytes).unwrap();
        }
        assert_eq!(bytes, [5; 4096]);
        assert_eq!(host.disk_statistics(&disk).damaged, 1);
        session.write(4096, &[6; 8192], false).unwrap();
        flip(1);
        let failed = |result: Result<(), HostError>| matches!(result, Err(HostError::Device(Fault::DAMAGED)));
        assert!(failed(session.flush()));
        assert!(failed(session.read(4096, &mut bytes)));
        session.read(8192, &mut bytes).unwrap();
        assert_eq!(bytes, [6; 4096]);
        let statistics = host.disk_statistics(&disk);
        assert_eq!((statistics.damaged, statistics.damaged_at, statistics.data_lost), (2, vec![4096], true));
        assert!(host.shut_down().is_err());
        let written = std::fs::read(image.path()).unwrap();
        assert_eq!((written[4096], written[8192]), (5, 6));
    }
}
