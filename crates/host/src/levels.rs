//! Levels in the engines: told what they held, switched off, counted, and asked what they hold at the end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nigh_backend::{Home, Image, Stamp};
use nigh_engine::{Fault, LevelCounters, Port, Stored, Volume};

use crate::cache::Cache;
use crate::common::Common;
use crate::disk::Disk;
use crate::error::{LevelError, Poisoned};
use crate::level::{Before, Level, LevelStatistics};
use crate::settings::BLOCK;
use crate::sync::lock;
use crate::work::Work;

/// Places of a level that are looked at with a shard's lock held.
const PLACES_AT_ONCE: u32 = 16384;
/// Times of files advance at least once in this: what is changed later has another stamp.
const TICK: Duration = Duration::from_millis(20);
/// Between two looks whether a level's operations are complete.
const GLANCE: Duration = Duration::from_millis(1);

impl Cache {
    /// The device of `port` failed an operation of `shard`. Where that was one too many for a level, all shards do without it.
    pub(crate) fn note_fault(&self, port: Port, shard: u32, fault: Fault, work: &mut Work) {
        let Some(at) = self.levels.iter().position(|level| level.port() == port) else { return };
        let level = &self.levels[at];
        let is_off = self.peek(shard, |core| core.engine.level_counters(at).is_some_and(|(_, off)| off));
        if is_off == Ok(true) && !level.off.swap(true, Ordering::AcqRel) {
            tracing::error!(level = %level.path().display(), %fault, "it failed too often and is not used any more; the cache goes on");
            for shard in 0..self.shards() {
                // A poisoned shard does not use it.
                let _ = self.with(shard, work, |core, _| core.engine.drop_level(at));
            }
        }
    }

    /// The levels as they are now; without poisoned shards.
    pub(crate) fn level_statistics(&self) -> Vec<LevelStatistics> {
        let statistics = |(at, level): (usize, &Level)| {
            let mut sum = LevelCounters::default();
            let mut stored = 0;
            for shard in 0..self.shards() {
                let of = self.peek(shard, |core| {
                    let (counters, _) = core.engine.level_counters(at)?;
                    Some((counters, core.engine.level_blocks(at)?))
                });
                if let Ok(Some((counters, blocks))) = of {
                    sum += counters;
                    stored += u64::from(blocks);
                }
            }
            let LevelCounters {
                hits,
                stores,
                drops,
                invalidations,
                evictions,
                mismatches,
                reads,
                read_bytes,
                writes,
                written_bytes,
                faults,
            } = sum;
            LevelStatistics {
                path: level.path().display().to_string(),
                bytes: level.bytes,
                blocks: u64::from(level.part_blocks) * u64::from(self.shards()),
                stored,
                warm_blocks: level.warm_blocks.load(Ordering::Relaxed),
                hits,
                stores,
                drops,
                evictions,
                invalidations,
                mismatches,
                reads,
                read_bytes,
                writes,
                written_bytes,
                faults,
                off: level.is_off(),
            }
        };
        self.levels.iter().enumerate().map(statistics).collect()
    }

    /// Tells a level what it holds of disks that are what they were: those among `same`, by the number that they had. Gives how
    /// many blocks that are.
    fn restore(&self, at: usize, image: &mut Image, same: &BTreeMap<Volume, Volume>) -> std::io::Result<u64> {
        let mut restored = 0;
        while let Some((part, pieces)) = image.next_piece()? {
            if part >= self.shards() {
                continue;
            }
            let pieces = pieces.into_iter().filter_map(|stored| {
                let volume = *same.get(&stored.volume)?;
                // A disk with another number has its extents in other shards.
                let of = self.shard_of(volume, stored.block.checked_mul(BLOCK)?);
                (of == part).then_some(Stored { volume, ..stored })
            });
            let pieces: Vec<Stored> = pieces.collect();
            let taken = self.peek(part, |core| core.engine.restore(at, &pieces));
            restored += u64::from(taken.ok().flatten().unwrap_or(0));
        }
        Ok(restored)
    }

    /// Waits until nothing is on its way to or from a level. The disks are closed.
    fn wait_for_level(&self, at: usize) -> Result<(), Poisoned> {
        for shard in 0..self.shards() {
            while !self.peek(shard, |core| core.engine.is_level_idle(at))? {
                std::thread::sleep(GLANCE);
            }
        }
        Ok(())
    }

    /// What a level holds of `homes`, some places at a time, with the number of their part.
    fn stored<'a>(&'a self, at: usize, homes: &'a [Home]) -> impl Iterator<Item = (u32, Vec<Stored>)> + 'a {
        let places = self.levels[at].part_blocks;
        let steps = (0..self.shards())
            .flat_map(move |shard| (0..places).step_by(PLACES_AT_ONCE as usize).map(move |first| (shard, first)));
        steps.map(move |(shard, first)| {
            let range = first..first.saturating_add(PLACES_AT_ONCE);
            let mut stored = self.peek(shard, |core| core.engine.stored(at, range)).unwrap_or_default();
            stored.retain(|stored| homes.iter().any(|home| home.volume == stored.volume));
            (shard, stored)
        })
    }
}

impl Common {
    /// The disks of the start are open, and nobody uses them yet: levels are told what they held, as far as the disks are what
    /// they were.
    pub(crate) fn begin_levels(&self, before: Vec<Before>) -> Result<(), LevelError> {
        for (at, (level, (mut file, image))) in self.cache.levels.iter().zip(before).enumerate() {
            file.begin()?;
            *lock(&level.file) = Some(file);
            let path = level.path().display();
            let Some(mut image) = image else {
                tracing::info!(level = %path, "it is new, was set up differently, or was not shut down in order: it begins empty");
                continue;
            };
            let mut same = BTreeMap::new();
            for disk in self.cache.disks.all() {
                match known(&disk, &image.homes) {
                    Ok(volume) => _ = same.insert(volume, disk.volume()),
                    Err(reason) => tracing::info!(level = %path, disk = disk.name(), reason, "nothing is kept of it"),
                }
            }
            match self.cache.restore(at, &mut image, &same) {
                Ok(blocks) => {
                    level.warm_blocks.store(blocks, Ordering::Relaxed);
                    tracing::info!(level = %path, blocks, "it is warm");
                }
                Err(error) => tracing::warn!(level = %path, %error, "not all of its index can be read"),
            }
        }
        Ok(())
    }

    /// Keeps what levels hold over a restart. The disks are closed.
    pub(crate) fn keep_levels(&self) {
        if self.cache.levels.is_empty() {
            return;
        }
        std::thread::sleep(TICK);
        let homes = self.cache.disks.all().into_iter().filter_map(|disk| {
            let stamp = disk.stamp()?;
            Some(Home { volume: disk.volume(), name: disk.name().to_owned(), stamp })
        });
        let homes: Vec<Home> = homes.collect();
        for (at, level) in self.cache.levels.iter().enumerate() {
            let Some(file) = lock(&level.file).take() else { continue };
            if level.is_off() || self.cache.wait_for_level(at).is_err() {
                continue;
            }
            // An error says the same: the device is gone.
            let _ = self.handle.detach(level.port()).recv();
            if let Err(error) = file.close(&homes, self.cache.stored(at, &homes)) {
                tracing::error!(level = %level.path().display(), %error, "its index is not kept: it will begin empty");
            }
        }
    }
}

/// The number that a disk had, if it is what it was when `homes` were kept; else why not.
fn known(disk: &Disk, homes: &[Home]) -> Result<Volume, &'static str> {
    let stamp: Stamp = disk.stamp().ok_or("only a regular file shows whether it was changed")?;
    let home = homes.iter().find(|home| home.name == disk.name()).ok_or("it was not there before")?;
    if home.stamp == stamp { Ok(home.volume) } else { Err("it was changed since") }
}
