//! The file of a level server: what of its blocks is not in memory.
//!
//! One thread writes the blocks in memory that were used longest ago. Threads of the connections read (`fetching.rs`). While the server serves, nobody waits for
//! the file with the store locked. While a read takes long, no other one begins.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nigh_backend::{Home, Image, LevelFile, PLACES, Places, PlacesBuffer};
use nigh_engine::{Stored, Volume};
use nigh_host::front::lock;
use nigh_level::{Cold, Filed, Kept, KeptBlock, Limits, ReadBlock, Store};
use nigh_service::parts::Refusals;

use super::Common;
use crate::error::StartError;

/// Blocks that are written before their state is noted.
const BATCH: usize = 64;
/// After this many operations in a row that failed, the file is no longer used.
const FAULTS: u32 = 8;
/// How long the writer waits for work before it looks again.
const PAUSE: Duration = Duration::from_millis(100);
/// While a read takes longer than this, no other one begins.
const STUCK: Duration = Duration::from_millis(300);
/// How long blocks that only memory has are written at the end, those that were used last first.
const END: Duration = Duration::from_secs(60);
/// Blocks of one piece of the index.
const PIECE: usize = 4096;
/// The most blocks that are written at the end.
const LAST_BLOCKS: usize = 1 << 20;
/// How long the end waits for reads under way.
const LAST_READS: Duration = Duration::from_secs(1);

/// A file for blocks that memory has no room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenderFileSettings {
    /// The file. It is created if it does not exist, and serves only as a level.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The file, while the server runs.
pub(super) struct File {
    path: PathBuf,
    places: Mutex<Option<Arc<Places>>>,
    level: Mutex<Option<LevelFile>>,
    block_bytes: u32,
    in_a_row: AtomicU32,
    off: AtomicBool,
    pub(super) faults: AtomicU64,
    pub(super) written: AtomicU64,
    /// Counts the steps of the end.
    pub(super) progress: AtomicU64,
    /// Reads under way, by number, and the next number.
    reading: Mutex<(BTreeMap<u64, Instant>, u64)>,
    /// Blocks that are not as they were written; operations that failed; blocks that were not read because another read took long.
    damaged: Refusals,
    failed: Refusals,
    stuck: Refusals,
    /// Wakes the writer.
    pub(super) crowded: Condvar,
}

impl File {
    /// Opens it, and returns the blocks that it has places for, and what the last server kept.
    pub(super) fn open(
        settings: &LenderFileSettings,
        block_bytes: u32,
    ) -> Result<(File, u32, Option<Image>), StartError> {
        let LenderFileSettings { path, bytes } = settings;
        let (level, image) = LevelFile::open(path, PLACES.max(*bytes), block_bytes, 1)?;
        let places = Places::open(path, block_bytes)?;
        let blocks = Store::blocks_of(u32::try_from(level.part_blocks()).unwrap_or(u32::MAX));
        let file = File {
            path: path.clone(),
            places: Mutex::new(Some(places.into())),
            level: Mutex::new(Some(level)),
            block_bytes,
            in_a_row: AtomicU32::new(0),
            off: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            written: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            reading: Mutex::default(),
            damaged: Refusals::default(),
            failed: Refusals::default(),
            stuck: Refusals::default(),
            crowded: Condvar::new(),
        };
        Ok((file, blocks, image))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire)
    }

    fn places(&self) -> Option<Arc<Places>> {
        if self.is_off() { None } else { lock(&self.places).clone() }
    }

    fn note<T>(&self, done: io::Result<T>) -> Option<T> {
        match done {
            Ok(value) => {
                self.in_a_row.store(0, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                self.faults.fetch_add(1, Ordering::Relaxed);
                let file = self.path.display();
                if self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 < FAULTS {
                    if let Some(count) = self.failed.add(Instant::now()) {
                        tracing::warn!(%file, %error, count, "the file of the level failed");
                    }
                } else if !self.off.swap(true, Ordering::AcqRel) {
                    tracing::error!(%file, %error, "the file is not used any more: it failed too often; the level continues in memory");
                }
                None
            }
        }
    }

    /// Whether a read takes so long that no other one should begin.
    pub(super) fn is_stuck(&self) -> bool {
        let is_stuck = self.oldest_read().is_some_and(|age| age > STUCK);
        if is_stuck && let Some(count) = self.stuck.add(Instant::now()) {
            tracing::warn!(file = %self.path.display(), count, "the file responds slowly; meanwhile, its blocks are not returned");
        }
        is_stuck
    }

    /// The age of the oldest read under way.
    pub(super) fn oldest_read(&self) -> Option<Duration> {
        lock(&self.reading).0.values().min().map(Instant::elapsed)
    }

    /// Reads a block into `buffer`.
    pub(super) fn read<'a>(&self, filed: &Filed, buffer: &'a mut PlacesBuffer) -> ReadBlock<'a> {
        let Some(places) = self.places() else { return ReadBlock::Damaged };
        if self.is_stuck() {
            return ReadBlock::Skipped;
        }
        let mut reading = lock(&self.reading);
        reading.1 += 1;
        let number = reading.1;
        reading.0.insert(number, Instant::now());
        drop(reading);
        let read = places.read(filed.place, filed.sum, buffer);
        lock(&self.reading).0.remove(&number);
        match self.note(read).flatten() {
            Some(contents) => ReadBlock::Contents(contents),
            None => ReadBlock::Damaged,
        }
    }

    /// A block is not in the file any more as it was written.
    pub(super) fn note_damaged(&self, filed: &Filed) {
        if let Some(count) = self.damaged.add(Instant::now()) {
            let (file, place) = (self.path.display(), filed.place);
            tracing::warn!(%file, place, count, "a block cannot be read as it was written; it counts as missing");
        }
    }

    /// Writes `cold`, for which `buffer` has room, and reports that to the store. The store is locked while one block is copied.
    fn write(&self, store: &Mutex<Store>, mut cold: Vec<Cold>, buffer: &mut PlacesBuffer) {
        cold.sort_unstable_by_key(|cold| cold.place);
        let mut left = cold.into_iter().peekable();
        // Blocks at consecutive places, with their checksums.
        let mut run: Vec<(Cold, NonZeroU64)> = Vec::new();
        while let Some(cold) = left.next() {
            let block = buffer.block(run.len());
            let is_there = lock(store).contents(&cold).map(|contents| block.copy_from_slice(contents)).is_some();
            // Otherwise it changed, or left.
            if is_there {
                run.push((cold, Places::sum(cold.place, block)));
            }
            let follows = |(last, _): &(Cold, NonZeroU64)| left.peek().is_some_and(|next| next.place == last.place + 1);
            let goes_on = run.last().is_some_and(follows);
            if !goes_on {
                self.write_run(store, &run, buffer);
                run.clear();
            }
        }
    }

    fn write_run(&self, store: &Mutex<Store>, run: &[(Cold, NonZeroU64)], buffer: &PlacesBuffer) {
        let Some((first, _)) = run.first() else { return };
        let written = self.places().map(|places| self.note(places.write(first.place, run.len(), buffer)));
        let is_written = written.flatten().is_some();
        let mut store = lock(store);
        for (cold, sum) in run {
            if is_written {
                store.note_filed(cold, *sum);
            } else {
                store.evict(cold);
            }
        }
        drop(store);
        let count = if is_written { run.len() as u64 } else { 0 };
        self.written.fetch_add(count, Ordering::Relaxed);
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes blocks until the server ends.
    pub(super) fn write_all(&self, common: &Common) {
        let mut buffer = PlacesBuffer::new(BATCH, self.block_bytes);
        while !common.stopping.load(Ordering::Acquire) {
            let mut store = lock(&common.store);
            if !store.is_crowded() {
                let waited = self.crowded.wait_timeout(store, PAUSE);
                store = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let cold = store.cold(BATCH);
            drop(store);
            self.write(&common.store, cold, &mut buffer);
        }
    }

    /// Adds what the last server kept. The index in the file is marked invalid first.
    pub(super) fn restore(&self, image: Option<Image>, store: &mut Store) -> Result<(), StartError> {
        if let Some(level) = &mut *lock(&self.level) {
            level.begin()?;
        }
        let file = self.path.display();
        let Some(mut image) = image else {
            tracing::info!(%file, "starts empty: the level is new, its size changed, or the last end was not orderly");
            return Ok(());
        };
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        for kept in image.homes.iter().filter_map(kept) {
            match store.restore(&kept) {
                Ok(number) => _ = numbers.insert(kept.number, number),
                Err(error) => {
                    let Kept { client, name, .. } = &kept;
                    tracing::warn!(%file, client, level_name = name, %error, "discarded the blocks of this client");
                }
            }
        }
        let mut blocks = 0;
        loop {
            match image.next_piece() {
                Ok(Some((_, piece))) => {
                    let piece = piece.into_iter().filter_map(|Stored { place, volume, block, sum }| {
                        let (namespace, sum) = (*numbers.get(&volume.0)?, sum.try_into().ok()?);
                        Some(KeptBlock { namespace, block, place, sum })
                    });
                    blocks += store.restore_blocks(piece);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%file, %error, "part of its index cannot be read");
                    break;
                }
            }
        }
        store.restored();
        tracing::info!(%file, blocks, "starts with the blocks of the last run, for clients that are still running");
        Ok(())
    }

    /// Writes what only memory has, for a while, and keeps the index for the next start. Connections and the writer have ended.
    pub(super) fn keep(&self, store: &Mutex<Store>) {
        if lock(&self.places).is_none() {
            return;
        }
        let (until, mut buffer) = (Instant::now() + END, PlacesBuffer::new(BATCH, self.block_bytes));
        let mut left = lock(store).unfiled(LAST_BLOCKS).into_iter().peekable();
        while Instant::now() < until && !self.is_off() && left.peek().is_some() {
            let batch = left.by_ref().take(BATCH).collect();
            self.write(store, batch, &mut buffer);
        }
        let (Some(places), Some(level)) = (lock(&self.places).take(), lock(&self.level).take()) else { return };
        let until = Instant::now() + LAST_READS;
        while Arc::strong_count(&places) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(places);
        let file = self.path.display();
        if self.is_off() {
            tracing::error!(%file, "it failed: the level will start empty");
            return;
        }
        let store = lock(store);
        let homes: Vec<Home> = store.kept().iter().map(home).collect();
        let mut blocks = store.kept_blocks().map(|KeptBlock { namespace, block, place, sum }| Stored {
            place,
            volume: Volume(namespace),
            block,
            sum: sum.get(),
        });
        let mut count = 0;
        let pieces = std::iter::from_fn(|| {
            self.progress.fetch_add(1, Ordering::Relaxed);
            let piece: Vec<Stored> = blocks.by_ref().take(PIECE).collect();
            count += piece.len();
            (!piece.is_empty()).then_some((0, piece))
        });
        match level.close(&homes, pieces) {
            Ok(()) => tracing::info!(%file, blocks = count, "kept for the next start"),
            Err(error) => tracing::error!(%file, %error, "cannot keep its index: the level will start empty"),
        }
    }
}

/// A namespace in the index of a level's file: what the stamp of a disk is there are its process, its epoch, and the length of the client's name.
fn home(kept: &Kept) -> Home {
    let Kept { number, client, name, instance, epoch } = kept;
    let stamp = [*instance, *epoch, client.len() as u64, 0];
    Home { volume: Volume(*number), name: format!("{client}{name}"), stamp }
}

fn kept(home: &Home) -> Option<Kept> {
    let [instance, epoch, length, _] = home.stamp;
    let (client, name) = home.name.split_at_checked(length as usize)?;
    Some(Kept { number: home.volume.0, client: client.to_owned(), name: name.to_owned(), instance, epoch })
}

/// The blocks of a level with `memory` blocks in memory, and a file for `filed`.
pub(super) fn limits(limits: Limits, settings: &LenderFileSettings, filed: u32) -> Result<Limits, StartError> {
    if filed <= limits.memory_blocks {
        return Err(StartError::SmallFile(settings.path.clone()));
    }
    Ok(Limits { blocks: filed, ..limits })
}

#[cfg(test)]
mod tests {
    use nigh_level::{Handled, Hello, Place, Refusal, Request};

    use super::*;

    #[test]
    fn while_a_read_takes_long_no_other_one_begins() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LenderFileSettings { path: folder.path().join("level"), bytes: 72 << 20 };
        let (file, blocks, image) = File::open(&settings, 4096).unwrap();
        assert!(blocks > 1000 && image.is_none());
        let mut store = Store::new(Limits {
            blocks,
            memory_blocks: 2,
            block_bytes: 4096,
            clients: 1,
            blocks_each: blocks,
            namespaces_each: 1,
        })
        .unwrap();
        let kept = Kept { number: 0, client: "a".to_owned(), name: "x".to_owned(), instance: 1, epoch: 1 };
        let namespace = store.restore(&kept).unwrap();
        let mut buffer = PlacesBuffer::new(1, 4096);
        buffer.block(0).fill(7);
        file.places().unwrap().write(9, 1, &buffer).unwrap();
        store.restore_blocks([KeptBlock { namespace, block: 3, place: 9, sum: Places::sum(9, &[7; 4096]) }]);
        store.restored();
        let hello = Hello { versions: (2, 2), block_bytes: 4096, level: 1, instance: 1, name: "a" };
        let connection = store.connect(&hello, "a").unwrap();
        let mut data = Vec::new();
        let open = Request::Open { name: "x", epoch: 2, resumes: 1 };
        assert!(matches!(store.handle(1, connection, 0, &open, &mut data), Handled::Reply(_)));
        let place = Place { namespace, epoch: 2, block: 3 };
        let retrieve = Request::Retrieve { place, from: Some(1), to: Some(1) };
        let Handled::Fetch(fetch) = store.handle(1, connection, 0, &retrieve, &mut data) else { panic!("a fetch") };

        lock(&file.reading).0.insert(77, Instant::now() - 2 * STUCK);
        assert_eq!(file.read(&fetch.filed, &mut buffer), ReadBlock::Skipped);
        lock(&file.reading).0.clear();
        assert_eq!(file.read(&fetch.filed, &mut buffer), ReadBlock::Contents(&[7; 4096]));
        assert!(file.oldest_read().is_none());
        let (reply, is_lost) = store.finish(1, &fetch, ReadBlock::Skipped);
        let is_busy = matches!(reply.result, nigh_level::Result::Refused { refusal: Refusal::Busy, .. });
        assert!(is_busy && !is_lost);
        let handled = store.handle(1, connection, 0, &retrieve, &mut data);
        assert!(matches!(handled, Handled::Fetch(_)), "the block is still there");
    }
}
