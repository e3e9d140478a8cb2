//! The thread that encodes what leaves the frames, within a share of a processor, and moves memory between frames and
//! encoded blocks, as `nigh_content::Lending` decides.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::Job;
use nigh_content::{Block, ContentId, Encoder, Refused, Room};
use nigh_engine::{Action, Fault, Operation, Volume};
use parking_lot::RwLockUpgradableReadGuard;

use crate::cache::Cache;
use crate::content::{Contents, Inbox, LEVEL, frames_per_shard, pages_in_use};
use crate::error::Poisoned;
use crate::settings::BLOCK;
use crate::work::Work;

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
    /// One of so many blocks is encoded.
    one_of: u32,
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
        let mut coder = Coder { cache, contents: self, work: Work::default(), turn: 0, one_of: 1 };
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
        self.contents.lending.lock().note_store();
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
        let (blocks, in_use) = self.filling();
        let mut lending = self.contents.lending.lock();
        let room = lending.full(blocks, in_use);
        let one_of = lending.one_of();
        drop(lending);
        self.thin(one_of);
        match room {
            Room::Lent => self.move_memory(),
            Room::GiveBack => {
                tracing::info!(blocks, pages = in_use, "encoding does not pay: the memory goes back to the frames");
                self.begin_anew();
            }
            Room::Evict => self.evict(),
        }
    }

    /// Evicts some blocks, of each shard in turn.
    fn evict(&mut self) {
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

    /// Blocks, and the pages that they take.
    fn filling(&self) -> (u64, u64) {
        let area = self.contents.area.read();
        (area.store.counts().owners, pages_in_use(&area.store))
    }

    /// Has one of so many blocks be encoded.
    fn thin(&mut self, one_of: u32) {
        if std::mem::replace(&mut self.one_of, one_of) == one_of {
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

    /// Adapts frames and store to the pages that are lent.
    fn move_memory(&self) {
        let lending = self.contents.lending.lock();
        match self.cache.change(None, frames_per_shard(*lending, self.cache.shards())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot change the memory of the frames"),
            // It was reported.
            Err(Poisoned { .. }) => {}
        }
        let lent = lending.lent() as u32;
        drop(lending);
        self.contents.area.write().store.allow(lent);
    }

    /// Evicts all encoded blocks. Their memory, except for a small share, goes back to the frames.
    fn begin_anew(&mut self) {
        for shard in 0..self.cache.shards() {
            let is_empty = |core: &mut crate::cache::Core| {
                core.engine.shed_level(LEVEL, u32::MAX);
                core.engine.level_blocks(LEVEL) == Some(0)
            };
            while self.cache.peek(shard, is_empty) == Ok(false) {}
            self.settle(shard);
        }
        let mut lending = self.contents.lending.lock();
        lending.restart();
        let store = self.contents.empty_store(*lending);
        drop(lending);
        let mut area = self.contents.area.write();
        // The former one is freed without the lock.
        let _former = std::mem::replace(&mut area.store, store);
        area.ids.iter_mut().for_each(Vec::clear);
        drop(area);
        self.move_memory();
    }
}
