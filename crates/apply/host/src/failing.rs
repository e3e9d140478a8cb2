//! Failures of devices in the log: of reads at once; of writes when a disk has had blocks that cannot be written for long, and when it has
//! none any more.

use std::fmt::Write;
use std::ops::Range;
use std::time::Instant;

use nigh_engine::{Action, Fault, Operation};

use crate::cache::Cache;
use crate::content;
use crate::disk::Disk;
use crate::settings::BLOCK;
use crate::sync::lock;
use crate::work::{RANGES_NAMED, Report};

impl Cache {
    /// A device failed an operation, other than a flush (`flush.rs`). Writes of a disk are tried again: see `report`.
    pub(crate) fn log_fault(&self, operation: &Operation, fault: Fault) {
        let &Operation { port, offset: from, length, .. } = operation;
        let (to, now) = (from + length, Instant::now());
        if self.contents.is_some() && port == content::PORT {
            // It is memory, and what is missing there is read from below.
            return;
        }
        let verb = match operation.action {
            Action::Read(_) => "read",
            Action::Write(_) => "write",
            Action::Discard => "discard",
            Action::Zeroes { .. } => "zero",
            Action::Flush => return,
        };
        if let Some(level) = self.levels.iter().find(|level| level.port() == port) {
            // A server of a level that is gone is logged once (`nigh_backend::RemoteLevel`).
            if level.link.is_none()
                && let Some(more) = level.faults.note(now)
            {
                let level = level.path().display();
                tracing::warn!(%level, %fault, from, to, more, "the device of the level failed to {verb} these bytes");
            }
            return;
        }
        let device = (!matches!(operation.action, Action::Write(_))).then(|| self.disks.device(port));
        if let Some((device, more)) = device.and_then(|device| device.faults.note(now).map(|more| (device, more))) {
            let disk = self.disks.of_port(port);
            let (disk, from, to) = (disk.name(), device.begin + from, device.begin + to);
            tracing::error!(disk, %fault, from, to, more, "its device failed to {verb} these bytes");
        }
    }

    /// Notes a shard's report. A disk fails as long as one of its shards does.
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

    /// The unwritten data if `disk` fails: the number of bytes, and the first ranges.
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
