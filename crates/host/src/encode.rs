//! The thread that encodes what leaves the frames, within a share of a processor, and moves memory between frames and
//! encoded blocks.
//!
//! Encoded blocks begin with a small share of the memory. When it is full and holds clearly more blocks than it has pages, they
//! get more, up to a limit; otherwise blocks are evicted. When it holds hardly more blocks than pages, encoding does not pay:
//! the memory goes back to the frames, and one of several blocks is encoded, to find out when that changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::Job;
use nigh_content::{Block, ContentId, Encoder, Refused};
use nigh_engine::{Action, Fault, Operation, Volume};
use parking_lot::RwLockUpgradableReadGuard;

use crate::cache::Cache;
use crate::content::{Contents, Inbox, LEVEL, Room, frames_per_shard, pages_in_use};
use crate::error::Poisoned;
use crate::settings::BLOCK;
use crate::work::Work;

/// Encoded blocks for each page of their memory above which they get more of it.
const WORTH: f64 = 1.25;
/// And below which they lose it.
const WORTHLESS: f64 = 1.1;
/// Encoded blocks get more memory when no more of their pages are free.
const FREE: u64 = 8;
/// One of so many blocks is encoded while that does not pay.
const THIN: u32 = 16;
/// How many blocks are evicted at a time.
const SHED: u32 = 16;
/// How many places are emptied during one lock of a shard.
const LEFT: usize = 256;
/// How often room is made for one block.
const TRIES: u32 = 64;
/// Processor time can be used later, up to that of so long.
const BURST: Duration = Duration::from_millis(500);
/// The longest pause at a time.
const PAUSE: Duration = Duration::from_millis(50);

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time that the thread may use: a share of the time that passes.
struct Budget {
    share: f64,
    left: f64,
    at: Instant,
    used: Duration,
}

impl Budget {
    fn new(share: f64) -> Budget {
        Budget { share, left: BURST.as_secs_f64() * share, at: Instant::now(), used: processor_time() }
    }

    /// How long to wait until there is time again, if there is none.
    fn debt(&mut self) -> Option<Duration> {
        let (now, used) = (Instant::now(), processor_time());
        let earned = (now - self.at).as_secs_f64() * self.share;
        let most = BURST.as_secs_f64() * self.share;
        self.left = (self.left + earned - (used - self.used).as_secs_f64()).min(most);
        (self.at, self.used) = (now, used);
        (self.left < 0.0).then(|| Duration::from_secs_f64(-self.left / self.share).min(PAUSE))
    }
}

/// The state of the thread.
struct Coder<'a> {
    cache: &'a Cache,
    contents: &'a Contents,
    work: Work,
    /// The shard that evicts next.
    turn: u32,
    /// Blocks stored since the memory last changed.
    stored: u64,
}

impl Cache {
    /// Encodes blocks until the end; if that fails, no more blocks are stored.
    pub(crate) fn encode(&self) {
        let Some(contents) = &self.contents else { return };
        if catch_unwind(AssertUnwindSafe(|| contents.run(self))).is_err() {
            tracing::error!("the thread that encodes blocks panicked; the cache continues without it");
            contents.end();
            let mut work = Work::default();
            for (shard, operation) in contents.take_stores() {
                self.complete(Job::new(shard, operation).finish(Err(Fault::SHUT_DOWN)), &mut work);
            }
            self.dispatch(&mut work, None);
        }
    }
}

impl Contents {
    /// Encodes until the end.
    fn run(&self, cache: &Cache) {
        let mut encoder = Encoder::new(self.settings.scheme.rules());
        let mut coder = Coder { cache, contents: self, work: Work::default(), turn: 0, stored: 0 };
        let mut budget = Budget::new(self.settings.cpu);
        loop {
            let mut inbox = self.inbox.lock();
            while inbox.stores.is_empty() && inbox.damaged.is_empty() && !inbox.is_over && !inbox.is_resized {
                self.wake.wait(&mut inbox);
            }
            let Inbox { stores, damaged, is_resized, is_over } = std::mem::take(&mut *inbox);
            inbox.is_over = is_over;
            if is_over && stores.is_empty() {
                return;
            }
            drop(inbox);
            damaged.into_iter().for_each(|id| self.area.write().store.damaged(id));
            if is_resized {
                coder.begin_anew();
            }
            for (shard, operation) in stores {
                let begun = processor_time();
                coder.store(&mut encoder, shard, operation);
                coder.rebase(&mut encoder);
                let took = processor_time().saturating_sub(begun);
                self.counts.encode_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                while let Some(debt) = budget.debt() {
                    if self.inbox.lock().is_over {
                        break;
                    }
                    std::thread::sleep(debt);
                }
            }
        }
    }
}

impl Coder<'_> {
    /// Encodes the blocks of a store, and completes it.
    fn store(&mut self, encoder: &mut Encoder, shard: u32, mut operation: Operation) {
        let first = (operation.offset / BLOCK) as u32;
        let volumes = std::mem::take(&mut operation.volumes);
        let mut rejected = Vec::new();
        if let Action::Write(frames) = &operation.action {
            for ((place, volume), frame) in (first..).zip(volumes).zip(frames.slices()) {
                let block = frame.try_into().expect("a level stores whole blocks");
                self.release(shard, place);
                match self.insert(encoder, volume, block) {
                    Some(id) => {
                        let ids = &mut self.contents.area.write().ids[shard as usize];
                        if ids.len() <= place as usize {
                            ids.resize(place as usize + 1, ContentId::NONE);
                        }
                        ids[place as usize] = id;
                    }
                    None => rejected.push(place),
                }
            }
        }
        let counts = &self.contents.counts;
        counts.rejected.fetch_add(rejected.len() as u64, Ordering::Relaxed);
        operation.seal();
        // A poisoned shard needs nothing more.
        let _ = self.cache.with(shard, &mut self.work, |core, now| {
            core.engine.complete(now, operation, Ok(()));
            rejected.iter().for_each(|&place| core.engine.reject_place(LEVEL, place));
        });
        self.cache.dispatch(&mut self.work, None);
        self.settle(shard);
    }

    /// Stores the content of a block of a disk.
    fn insert(&mut self, encoder: &mut Encoder, volume: Volume, block: &Block) -> Option<ContentId> {
        // A disk that was removed meanwhile has no blocks.
        let domain = self.cache.disks.numbered(volume)?.domain;
        self.contents.counts.encoded.fetch_add(1, Ordering::Relaxed);
        self.stored += 1;
        let mut tries = 0;
        while tries < TRIES {
            let area = self.contents.area.upgradable_read();
            let plan = area.store.plan(encoder, domain, block);
            let mut applied = RwLockUpgradableReadGuard::upgrade(area).store.apply(&plan);
            while applied == Err(Refused::Full) && tries < TRIES {
                self.make_room();
                applied = self.contents.area.write().store.apply(&plan);
                tries += 1;
            }
            if let Ok(id) = applied {
                return Some(id);
            }
            // A content that it builds on left to make room.
            tries += 1;
        }
        None
    }

    /// Encodes contents anew that alone keep others in memory, when those take too much.
    fn rebase(&self, encoder: &mut Encoder) {
        loop {
            let area = self.contents.area.upgradable_read();
            let Some(rebase) = area.store.plan_rebase(encoder) else { return };
            RwLockUpgradableReadGuard::upgrade(area).store.apply_rebase(&rebase);
        }
    }

    /// The store is full: it gets more memory if it is worth it, or blocks are evicted.
    fn make_room(&mut self) {
        let room = *self.contents.room.lock();
        let (worth, in_use) = self.worth();
        // The number of blocks or contents may be the limit instead.
        let is_filled = in_use + FREE >= room.lent;
        if worth >= WORTH && is_filled && room.lent + room.step() <= room.most() {
            self.thin(1);
            return self.lend(room.lent + room.step());
        }
        // The memory was filled at least once since.
        if worth < WORTHLESS && self.stored >= 2 * room.lent {
            self.thin(THIN);
            if room.lent > room.step() {
                tracing::info!(worth, "encoding does not pay: the memory goes back to the frames");
                return self.begin_anew();
            }
        }
        for _ in 0..self.cache.shards() {
            let shard = self.turn;
            self.turn = (self.turn + 1) % self.cache.shards();
            let shed = self.cache.with(shard, &mut self.work, |core, _| core.engine.shed_level(LEVEL, SHED));
            self.settle(shard);
            if shed.is_ok_and(|shed| shed > 0) {
                break;
            }
        }
        self.cache.dispatch(&mut self.work, None);
    }

    /// Blocks for each page in use, and these pages.
    fn worth(&self) -> (f64, u64) {
        let area = self.contents.area.read();
        let in_use = pages_in_use(&area.store);
        (area.store.counts().owners as f64 / in_use.max(1) as f64, in_use)
    }

    fn thin(&mut self, one_of: u32) {
        if self.contents.one_of.swap(one_of, Ordering::Relaxed) == one_of {
            return;
        }
        for shard in 0..self.cache.shards() {
            // A poisoned shard stores nothing.
            let _ = self.cache.peek(shard, |core| core.engine.thin_level(LEVEL, one_of));
        }
    }

    /// Releases the contents of blocks that left the level.
    fn settle(&mut self, shard: u32) {
        loop {
            let taken = self.cache.peek(shard, |core| core.engine.take_left_places(LEVEL, LEFT));
            let places = taken.unwrap_or_default();
            if places.is_empty() {
                return;
            }
            places.iter().for_each(|&place| self.release(shard, place));
            let _ = self.cache.peek(shard, |core| core.engine.return_places(LEVEL, &places));
        }
    }

    /// Releases the content of the block that was at a place, if there was one.
    fn release(&self, shard: u32, place: u32) {
        let mut area = self.contents.area.write();
        if let Some(id) = area.id(shard, place) {
            area.ids[shard as usize][place as usize] = ContentId::NONE;
            area.store.release(id);
        }
    }

    /// Encoded blocks can take `pages` from now on, at the cost of frames or in their favour.
    fn lend(&mut self, pages: u64) {
        let mut room = self.contents.room.lock();
        room.lent = pages;
        let frames = frames_per_shard(*room, self.cache.shards());
        match self.cache.change(None, frames) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot change the memory of the frames"),
            // It was reported.
            Err(Poisoned { .. }) => {}
        }
        drop(room);
        self.contents.area.write().store.allow(pages as u32);
        self.stored = 0;
    }

    /// Evicts all encoded blocks. Their memory, except for a small share, goes back to the frames.
    fn begin_anew(&mut self) {
        let room = *self.contents.room.lock();
        for shard in 0..self.cache.shards() {
            let is_empty = |core: &mut crate::cache::Core| {
                core.engine.shed_level(LEVEL, u32::MAX);
                core.engine.level_blocks(LEVEL) == Some(0)
            };
            while self.cache.peek(shard, is_empty) == Ok(false) {}
            self.settle(shard);
        }
        let store = self.contents.empty_store(Room { lent: room.step(), ..room });
        let mut area = self.contents.area.write();
        // The former one is freed without the lock.
        let _former = std::mem::replace(&mut area.store, store);
        area.ids.iter_mut().for_each(Vec::clear);
        drop(area);
        self.lend(room.step());
    }
}
