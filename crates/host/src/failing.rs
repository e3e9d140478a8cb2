//! Disks with blocks that cannot be written for long: reported once, when that begins and when it is over.

use std::fmt::Write;
use std::ops::Range;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::settings::BLOCK;
use crate::sync::lock;
use crate::work::{RANGES_NAMED, Report};

impl Cache {
    /// What a shard reports. A disk fails as long as one of its shards does.
    pub(crate) fn report(&self, Report { shard, volume, failing, failed }: Report) {
        let Some(disk) = self.disks.numbered(volume) else { return };
        let mut shards = lock(&disk.failing);
        let before = !shards.is_empty();
        match failing {
            Some(_) => _ = shards.insert(shard),
            None => _ = shards.remove(&shard),
        }
        let fails = !shards.is_empty();
        drop(shards);
        match failing {
            Some(fault) if !before => tracing::error!(
                disk = disk.name(),
                %fault,
                bytes = words(&failed),
                "its device fails writes: they are tried again each second; meanwhile, writes to these bytes fail, or all that find \
                 no room if none succeeds or too many failed"
            ),
            None if before && !fails => tracing::info!(disk = disk.name(), "its device writes again"),
            _ => {}
        }
    }

    /// What could not be written, if `disk` fails: the number of bytes, and the first ranges.
    pub(crate) fn failed(&self, disk: &Disk) -> (u64, Vec<Range<u64>>) {
        let (mut blocks, mut ranges) = (0, Vec::new());
        if disk.is_failing() {
            for shard in 0..self.shards() {
                let failed = self.peek(shard, |core| core.engine.failed_blocks(disk.volume, RANGES_NAMED));
                let (count, runs) = failed.unwrap_or_default();
                blocks += count;
                ranges.extend(runs.into_iter().map(|run| run.start * BLOCK..(run.end * BLOCK).min(disk.size())));
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        // Neighbours may be in different shards.
        ranges.dedup_by(|next, range| {
            let joins = next.start == range.end;
            range.end = if joins { next.end } else { range.end };
            joins
        });
        ranges.truncate(RANGES_NAMED);
        (blocks * BLOCK, ranges)
    }
}

/// The bytes of runs of blocks.
fn words(blocks: &[Range<u64>]) -> String {
    let mut words = String::new();
    for (at, run) in blocks.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(words, "{comma}{} to {}", run.start * BLOCK, run.end * BLOCK);
    }
    if blocks.len() == RANGES_NAMED {
        words += " and others";
    }
    words
}
