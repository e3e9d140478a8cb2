//! Levels in the engines: restored at the start, switched off, counted, and saved at the end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::{Home, Image, LevelNews, PLACES, ServerShare, Stamp};
use nigh_engine::{Fault, LeftOut, LevelConfig, LevelCounters, Port, Stored, Volume};

use crate::cache::Cache;
use crate::common::Common;
use crate::content::{ContentStatistics, LEVEL};
use crate::disk::Disk;
use crate::error::{ChangeError, LevelError, Poisoned};
use crate::level::{Before, Level, LevelServerStatistics, LevelStatistics};
use crate::settings::BLOCK;
use crate::sync::lock;
use crate::work::Work;

/// Places of a level that are looked at during one lock of a shard.
const PLACES_AT_ONCE: u32 = 16384;
/// Places of each shard's part of a level that are looked at to estimate its duplicates.
const SAMPLE: u32 = 4096;
/// Places whose blocks left that are noted during one lock of a shard.
const NEWS_AT_ONCE: usize = 256;
/// The granularity of file times: a later change gives another stamp.
const TICK: Duration = Duration::from_millis(20);
/// The interval between checks whether a level's operations are complete.
const GLANCE: Duration = Duration::from_millis(1);

impl Cache {
    /// The device of `port` failed an operation of `shard`. If a level reaches its limit of faults, all shards stop
    /// using it.
    pub(crate) fn note_fault(&self, port: Port, shard: u32, fault: Fault, work: &mut Work) {
        let Some(level) = self.levels.iter().find(|level| level.port() == port) else { return };
        let at = level.number();
        let is_off = self.peek(shard, |core| core.engine.level_counters(at).is_some_and(|(_, off)| off));
        if is_off == Ok(true) && !level.off.swap(true, Ordering::AcqRel) {
            tracing::error!(level = %level.path().display(), %fault, "switched off after too many faults; the cache continues without it");
            for shard in 0..self.shards() {
                // A poisoned shard does not use it.
                let _ = self.with(shard, work, |core, _| core.engine.drop_level(at));
            }
        }
    }

    /// Passes on the news of a level's server on another host, if `port` is such a level's, which completed an operation for `of`.
    pub(crate) fn note_news(&self, port: Port, of: u32, work: &mut Work) {
        let shared = self.levels.iter().find_map(|level| Some((level, level.link.as_ref()?)));
        let Some((level, link)) = shared.filter(|(level, _)| level.port() == port) else { return };
        let Some(LevelNews { left, gone, free, oldest_us }) = link.take_news() else { return };
        let (at, part) = (level.number(), u64::from(level.part_blocks));
        let free = u32::try_from(free / u64::from(self.shards())).unwrap_or(u32::MAX);
        for shard in 0..self.shards() {
            let first = PLACES / BLOCK + u64::from(shard) * part;
            let own = |places: &[u64]| -> Vec<u32> {
                let own = places.iter().filter_map(|place| place.checked_sub(first).filter(|place| *place < part));
                own.map(|place| place as u32).collect()
            };
            let (left, gone) = (own(&left), own(&gone));
            // A poisoned shard does not use it.
            for gone in gone.chunks(NEWS_AT_ONCE) {
                let _ = self.with(shard, work, |core, _| core.engine.empty_places(at, gone));
            }
            let none = (shard == of && left.is_empty()).then_some(&[][..]);
            for left in left.chunks(NEWS_AT_ONCE).chain(none) {
                let _ = self.with(shard, work, |core, now| core.engine.note_shared(now, at, left, free, oldest_us));
            }
        }
    }

    /// A shard does without a level from now on, because its device does not answer, or uses it again.
    pub(crate) fn note_late(&self, number: usize, late: bool) {
        let Some(level) = self.levels.iter().find(|level| level.number() == number) else { return };
        let path = level.path().display();
        let before = match late {
            true => level.late.fetch_add(1, Ordering::AcqRel),
            false => level.late.fetch_sub(1, Ordering::AcqRel),
        };
        match (before, late) {
            (0, true) => tracing::warn!(
                level = %path,
                "the level has not answered for {} s: until it does, blocks are loaded from below",
                LevelConfig::PATIENCE_US / 1_000_000
            ),
            (1, false) => tracing::info!(level = %path, "the level answers again"),
            _ => {}
        }
    }

    /// A shard leaves a level out for a disk, or uses it again.
    pub(crate) fn note_left_out(&self, left_out: LeftOut) {
        let LeftOut { level, volume, for_us, level_us, home_us } = left_out;
        let Some(level) = self.levels.iter().find(|of| of.number() == level) else { return };
        let disk = self.disks.numbered(volume);
        let disk = disk.as_ref().map_or_else(String::new, |disk| disk.name().to_owned());
        if !level.note_left_out(&disk, for_us) {
            return;
        }
        let (path, level_ms, disk_ms) = (level.path().display(), level_us as f64 / 1e3, home_us as f64 / 1e3);
        if for_us > 0 {
            let seconds = for_us / 1_000_000;
            tracing::warn!(level = %path, disk, level_ms, disk_ms, "reads take longer from the level than from the disk: it is left out for {seconds} s, and then tried again");
        } else {
            tracing::info!(level = %path, disk, level_ms, disk_ms, "reads from the level are fast again: it is used");
        }
    }

    /// The present state of the levels, without poisoned shards.
    pub(crate) fn level_statistics(&self) -> Vec<LevelStatistics> {
        let statistics = |level: &Level| {
            let (sum, stored) = self.level_counters(level.number());
            let LevelCounters {
                hits,
                stores,
                carried,
                drops,
                invalidations,
                evictions,
                mismatches,
                reads,
                read_bytes,
                writes,
                written_bytes,
                faults,
                late,
                left_out,
            } = sum;
            LevelStatistics {
                path: level.name(),
                bytes: level.bytes,
                blocks: u64::from(level.part_blocks) * u64::from(self.shards()),
                stored,
                duplicates: self.duplicates(level.number(), stored),
                warm_blocks: level.warm_blocks.load(Ordering::Relaxed),
                hits,
                stores,
                carried,
                drops,
                evictions,
                invalidations,
                mismatches,
                reads,
                read_bytes,
                writes,
                written_bytes,
                faults,
                late,
                left_out,
                missed: level.link.as_ref().map_or(0, |link| link.missed.load(Ordering::Relaxed)),
                lost: level.link.as_ref().map_or(0, |link| link.lost.load(Ordering::Relaxed)),
                off: level.is_off(),
                servers: level
                    .link
                    .iter()
                    .flat_map(|link| link.servers())
                    .map(|of| LevelServerStatistics::of(&of))
                    .collect(),
            }
        };
        self.levels.iter().map(statistics).collect()
    }

    /// How many of the `stored` blocks of a level are higher up, too, estimated without poisoned shards.
    fn duplicates(&self, number: usize, stored: u64) -> u64 {
        let looks = (0..self.shards())
            .filter_map(|shard| self.peek(shard, |core| core.engine.level_duplicates(number, SAMPLE)).ok());
        let (looked, twice) = looks
            .fold((0, 0), |(looked, twice), (more, of_more)| (looked + u64::from(more), twice + u64::from(of_more)));
        if looked == 0 { 0 } else { (stored as f64 * twice as f64 / looked as f64).round() as u64 }
    }

    /// The present state of encoded blocks, without poisoned shards.
    pub(crate) fn content_statistics(&self) -> Option<ContentStatistics> {
        let contents = self.contents.as_ref()?;
        let (LevelCounters { drops, evictions, .. }, _) = self.level_counters(LEVEL);
        let index = |shard| self.peek(shard, |core| core.engine.level_index_bytes(LEVEL)).unwrap_or(0) as u64;
        Some(contents.statistics(drops, evictions, (0..self.shards()).map(index).sum()))
    }

    /// The memory that the encoded blocks of each disk take, in bytes; a shared one counts in equal parts. Takes time in
    /// proportion to the number of blocks, without keeping a lock for long.
    pub(crate) fn charged(&self) -> BTreeMap<Volume, f64> {
        let mut charged = BTreeMap::new();
        let Some(contents) = &self.contents else { return charged };
        for shard in 0..self.shards() {
            for first in (0..contents.part_blocks).step_by(PLACES_AT_ONCE as usize) {
                let places = first..first.saturating_add(PLACES_AT_ONCE);
                let stored = self.peek(shard, |core| core.engine.stored(LEVEL, places)).unwrap_or_default();
                contents.charge(shard, &stored, &mut charged);
            }
        }
        charged
    }

    /// The sums of the counters of all shards' parts of a level, and of its blocks, without poisoned shards.
    fn level_counters(&self, number: usize) -> (LevelCounters, u64) {
        let mut sum = LevelCounters::default();
        let mut stored = 0;
        for shard in 0..self.shards() {
            let of = self.peek(shard, |core| {
                let (counters, _) = core.engine.level_counters(number)?;
                Some((counters, core.engine.level_blocks(number)?))
            });
            if let Ok(Some((counters, blocks))) = of {
                sum += counters;
                stored += u64::from(blocks);
            }
        }
        (sum, stored)
    }

    /// Restores the blocks of a level that belong to unchanged disks: those in `same`, by their former number. Returns
    /// the number of blocks.
    fn restore(&self, at: usize, image: &mut Image, same: &BTreeMap<Volume, Volume>) -> std::io::Result<u64> {
        let mut restored = 0;
        while let Some((part, pieces)) = image.next_piece()? {
            if part >= self.shards() {
                continue;
            }
            let pieces = pieces.into_iter().filter_map(|stored| {
                let volume = *same.get(&stored.volume)?;
                // The extents of a disk with another number are in other shards.
                let of = self.shard_of(volume, stored.block.checked_mul(BLOCK)?);
                (of == part).then_some(Stored { volume, ..stored })
            });
            let pieces: Vec<Stored> = pieces.collect();
            let taken = self.peek(part, |core| core.engine.restore(at, &pieces));
            restored += u64::from(taken.ok().flatten().unwrap_or(0));
        }
        Ok(restored)
    }

    /// Waits until nothing is on its way to or from a level. Returns false if its device takes too long. The disks are closed.
    fn wait_for_level(&self, at: usize) -> Result<bool, Poisoned> {
        for shard in 0..self.shards() {
            while !self.peek(shard, |core| core.engine.is_level_idle(at))? {
                if self.peek(shard, |core| core.engine.is_level_late(at))? {
                    return Ok(false);
                }
                std::thread::sleep(GLANCE);
            }
        }
        Ok(true)
    }

    /// The blocks of `homes` in a level, some places at a time, with the number of their part.
    fn stored<'a>(&'a self, level: &'a Level, homes: &'a [Home]) -> impl Iterator<Item = (u32, Vec<Stored>)> + 'a {
        let (at, places) = (level.number(), level.part_blocks);
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
    /// Called when the initial disks are open and not yet in use: restores the contents of levels, as far as the disks
    /// are unchanged.
    pub(crate) fn begin_levels(&self, before: Vec<Before>) -> Result<(), LevelError> {
        for (level, (mut file, image)) in self.cache.levels.iter().zip(before) {
            file.begin()?;
            *lock(&level.file) = Some(file);
            let path = level.path().display();
            let Some(mut image) = image else {
                tracing::info!(level = %path, "starts empty: the level is new, its settings changed, or the last shutdown was not orderly");
                continue;
            };
            let mut same = BTreeMap::new();
            for disk in self.cache.disks.all() {
                match known(&disk, &image.homes) {
                    Ok(volume) => _ = same.insert(volume, disk.volume()),
                    Err(reason) => {
                        tracing::info!(level = %path, disk = disk.name(), reason, "discarded the blocks of this disk")
                    }
                }
            }
            match self.cache.restore(level.number(), &mut image, &same) {
                Ok(blocks) => {
                    level.warm_blocks.store(blocks, Ordering::Relaxed);
                    tracing::info!(level = %path, blocks, "starts with the blocks of the last run");
                }
                Err(error) => tracing::warn!(level = %path, %error, "part of its index cannot be read"),
            }
        }
        Ok(())
    }

    /// Changes the servers of the level on other hosts, and the parts of it that they have. The level keeps its size.
    pub(crate) fn change_level_servers(&self, servers: &[ServerShare]) -> Result<(), ChangeError> {
        let with_link = self.cache.levels.iter().find_map(|level| Some((level, level.link.as_ref()?)));
        let mut settings = lock(&self.settings);
        let (Some((level, link)), Some(remote)) = (with_link, settings.remote_level.as_mut()) else {
            return Err(ChangeError::Levels);
        };
        if remote.servers != servers {
            remote.servers = servers.to_vec();
            if remote.bytes() != level.bytes {
                let (asked, has) = (remote.bytes() >> 20, level.bytes >> 20);
                tracing::warn!(
                    "the list of servers adds up to {asked} MiB, but the level keeps {has} MiB until the next start, in the same proportions"
                );
            }
            link.change(servers.to_vec());
        }
        Ok(())
    }

    /// Stores what is in memory in levels for a restart, for at most half of the time until `until`, and saves their indexes. The disks
    /// are closed.
    pub(crate) fn keep_levels(&self, until: Option<Instant>) {
        if self.cache.levels.is_empty() {
            return;
        }
        let until = until.map(|until| Instant::now() + until.saturating_duration_since(Instant::now()) / 2);
        std::thread::sleep(TICK);
        let homes = self.cache.disks.all().into_iter().filter_map(|disk| {
            let stamp = disk.stamp()?;
            Some(Home { volume: disk.volume(), name: disk.name().to_owned(), stamp })
        });
        let homes: Vec<Home> = homes.collect();
        for level in &self.cache.levels {
            let Some(file) = lock(&level.file).take() else { continue };
            if level.is_off() {
                continue;
            }
            let leaves = self.leaves_levels.load(Ordering::Acquire);
            if !leaves && !self.cache.fill_level(level.number(), until) {
                tracing::info!(level = %level.path().display(), "there was no time to store all of the memory");
            }
            match self.cache.wait_for_level(level.number()) {
                Ok(true) => {}
                Ok(false) => {
                    tracing::error!(level = %level.path().display(), "the level does not answer: it will start empty");
                    continue;
                }
                Err(Poisoned { .. }) => continue,
            }
            // An error means the same: the device is gone.
            let _ = self.handle.detach(level.port()).recv();
            if let Err(error) = file.close(&homes, self.cache.stored(level, &homes)) {
                tracing::error!(level = %level.path().display(), %error, "cannot save its index: the level will start empty");
            }
        }
    }
}

/// The former number of a disk, if it is unchanged since `homes` was saved; otherwise the reason why not.
fn known(disk: &Disk, homes: &[Home]) -> Result<Volume, &'static str> {
    let stamp: Stamp = disk.stamp().ok_or("a change of it would not show")?;
    let home = homes.iter().find(|home| home.name == disk.name()).ok_or("the disk is new")?;
    if home.stamp == stamp { Ok(home.volume) } else { Err("the disk was changed since") }
}
