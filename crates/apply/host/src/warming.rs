//! Loading what was in memory before a start, and keeping the list of what is.
//!
//! 1. The blocks of each disk that has the same name and size are loaded: behind clients' requests, at a bounded rate, into
//!    free memory only.
//! 2. Every minute, and at the end, the list is replaced. Blocks that were not loaded yet stay in it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_engine::{Op, Reached, Request, Volume};
use nigh_policy::Stream;

use crate::cache::{Cache, pieces};
use crate::common::Common;
use crate::disk::Disk;
use crate::settings::BLOCK;
use crate::sync::lock;
use crate::warm::{Blocks, Numbers, Warm};
use crate::work::Work;

/// The most bytes that are loaded in a second.
const RATE: u64 = 256 << 20;
/// Bytes that are asked for at a time.
const STEP: u64 = 1 << 20;
/// The pause while devices load what was asked for.
const PAUSE: Duration = Duration::from_millis(2);
/// The pause while disks do not open.
const LATE: Duration = Duration::from_millis(200);
/// The interval between looks whether a level can store more.
const GLANCE: Duration = Duration::from_millis(1);
/// Slots that are looked at during one lock of a shard.
const SLOTS_AT_ONCE: u32 = 16384;

/// The result of loading a part of the list.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// The device loads as much as it may.
    Waits,
    /// All of it is in memory, being loaded, or left out.
    Done,
}

impl Cache {
    /// The blocks in memory, without poisoned shards, in no order.
    fn resident(&self) -> Numbers {
        let mut blocks: BTreeMap<Volume, Vec<u64>> = BTreeMap::new();
        for shard in 0..self.shards() {
            let slots = self.peek(shard, |core| core.engine.slots()).unwrap_or(0);
            for first in (0..slots).step_by(SLOTS_AT_ONCE as usize) {
                let range = first..slots.min(first.saturating_add(SLOTS_AT_ONCE));
                // A poisoned shard has none.
                let _ = self.peek(shard, |core| {
                    for (volume, block) in core.engine.resident(range) {
                        blocks.entry(volume).or_default().push(block);
                    }
                });
            }
        }
        let named = |(volume, blocks)| {
            let disk = self.disks.numbered(volume)?;
            Some((disk.name().to_owned(), (disk.size(), blocks)))
        };
        blocks.into_iter().filter_map(named).collect()
    }

    /// Asks for the first blocks of `run`, as many as the shard takes, and removes them from it. Returns how many are being
    /// loaded.
    fn load_some(&self, disk: &Arc<Disk>, run: &mut Range<u64>, work: &mut Work) -> (u64, Progress) {
        let bytes = run.start * BLOCK..(run.end * BLOCK).min(disk.size());
        let Some(piece) = self.extents(bytes).next() else { return (0, Progress::Done) };
        let piece = pieces(piece, STEP).next().expect("it is not empty");
        let shard = self.shard_of(disk.volume(), piece.start);
        let request = Request {
            volume: disk.volume(),
            tenant: disk.tenant(),
            op: Op::Prefetch,
            offset: piece.start,
            length: piece.end - piece.start,
            fua: false,
            stream: Stream(0),
            token: 0,
        };
        let reached = self.with(shard, work, |core, now| core.engine.warm(now, &request));
        match reached {
            Ok(Reached::Block { next, loading }) => {
                let waits = next < piece.end.div_ceil(BLOCK);
                run.start = next;
                (u64::from(loading), if waits { Progress::Waits } else { Progress::Done })
            }
            // Memory is full, or the disk is gone: what is in memory is as good.
            Ok(Reached::Full) | Err(_) => {
                run.start = piece.end.div_ceil(BLOCK);
                (0, Progress::Done)
            }
        }
    }

    /// Stores what is in memory in a level, until `until` at the latest. Returns whether there was time for all of it. The disks are
    /// closed.
    pub(crate) fn fill_level(&self, at: usize, until: Option<Instant>) -> bool {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            let mut from = 0;
            // A poisoned shard stores nothing.
            while let Ok(Some(next)) = self.with(shard, &mut work, |core, now| core.engine.keep(now, at, from)) {
                self.dispatch(&mut work, None);
                if until.is_some_and(|until| Instant::now() >= until) {
                    return false;
                }
                if next == from {
                    std::thread::sleep(GLANCE);
                }
                from = next;
            }
        }
        true
    }
}

impl Common {
    /// Loads the list and keeps it, until the host ends.
    pub(crate) fn keep_warm(&self) {
        let Some(warm) = &self.warm else { return };
        let _ = warm.thread.set(std::thread::current());
        let ends = || self.stopping.load(Ordering::Acquire);
        self.load_list(warm, &ends);
        while !ends() {
            std::thread::park_timeout(warm.settings.every);
            if !ends() {
                self.save_warm();
            }
        }
    }

    /// Loads what is left of the list, in turn from each disk, so that one that does not respond delays no other.
    fn load_list(&self, warm: &Warm, ends: &dyn Fn() -> bool) {
        let (begin, mut saved) = (Instant::now(), Instant::now());
        let (mut loading, mut work) = (0, Work::default());
        let count = || -> u64 { lock(&warm.left).values().map(Blocks::count).sum() };
        let all = count();
        if all == 0 {
            return;
        }
        tracing::info!(list = %warm.settings.file.display(), blocks = all, "loading what was in memory");
        loop {
            let names: Vec<String> = lock(&warm.left).keys().cloned().collect();
            if ends() || names.is_empty() {
                break;
            }
            // Disks whose devices do not respond are opened when they do.
            let mut pause = LATE;
            for name in &names {
                let Some(disk) = self.cache.disks.named(name) else { continue };
                let (more, progress) = self.load_first(warm, &disk, &mut work);
                self.cache.dispatch(&mut work, None);
                loading += more;
                pause = pause.min(if progress == Progress::Waits { PAUSE } else { Duration::ZERO });
            }
            if saved.elapsed() >= warm.settings.every {
                self.save_warm();
                saved = Instant::now();
            }
            let allowed = Duration::from_secs_f64((loading * BLOCK) as f64 / RATE as f64);
            std::thread::park_timeout(pause.max(allowed.saturating_sub(begin.elapsed())));
        }
        let (seconds, left) = (begin.elapsed().as_secs_f64(), count());
        tracing::info!(loaded = loading, left, "loaded what was in memory, in {seconds:.1} s");
    }

    /// Loads some of the first blocks of a disk's list.
    fn load_first(&self, warm: &Warm, disk: &Arc<Disk>, work: &mut Work) -> (u64, Progress) {
        let first = lock(&warm.left).get(disk.name()).and_then(|blocks| {
            let same = blocks.size == disk.size();
            if same { blocks.runs.front().cloned() } else { None }
        });
        let Some(mut run) = first else {
            lock(&warm.left).remove(disk.name());
            return (0, Progress::Done);
        };
        let done = self.cache.load_some(disk, &mut run, work);
        let mut left = lock(&warm.left);
        let runs = &mut left.get_mut(disk.name()).expect("only this thread removes it").runs;
        match run.is_empty() {
            true => _ = runs.pop_front(),
            false => runs[0] = run,
        }
        done
    }

    /// Replaces the list in the file, if one is kept. A failure is logged: the next one may succeed.
    pub(crate) fn save_warm(&self) {
        let Some(warm) = &self.warm else { return };
        let mut list = self.cache.resident();
        // A host that did nothing leaves the list as it is.
        if list.is_empty() {
            return;
        }
        for (name, left) in &*lock(&warm.left) {
            let (size, blocks) = list.entry(name.clone()).or_insert_with(|| (left.size, Vec::new()));
            if *size == left.size {
                blocks.extend(left.runs.iter().cloned().flatten());
            }
        }
        for (_, blocks) in list.values_mut() {
            blocks.sort_unstable();
            blocks.dedup();
        }
        if let Err(error) = warm.write(&list) {
            tracing::warn!(list = %warm.settings.file.display(), %error, "the list of blocks in memory is not kept");
        }
    }
}
