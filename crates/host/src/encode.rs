//! The thread that encodes what leaves the frames, within a share of a processor, and moves memory between frames and
//! encoded blocks, as `nigh_content::Lending` decides.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::{Job, processor_time};
use nigh_content::{Block, Budget, ContentId, Encoder, Refused, Room};
use nigh_engine::{Action, Fault};
use parking_lot::RwLockUpgradableReadGuard;

use crate::cache::Cache;
use crate::content::{Contents, LEVEL, frames_per_shard};
use crate::error::Poisoned;
use crate::settings::BLOCK;
use crate::shard::Core;
use crate::work::{Encoding, Work};

/// How many blocks are evicted at a time.
const SHED: u32 = 16;
/// How many places are emptied during one lock of a shard.
const LEFT: usize = 256;
/// How often room is made for one block.
const TRIES: u32 = 64;
/// The pause between two steps in which others get the lock of a shard.
const STEP: Duration = Duration::from_micros(50);
/// The longest pause at a time.
const PAUSE: Duration = Duration::from_millis(50);

/// What the thread may use of a processor.
struct Clock {
    budget: Budget,
    at: Instant,
    used: Duration,
}

impl Clock {
    fn new(share: f64) -> Clock {
        Clock { budget: Budget::new(share), at: Instant::now(), used: processor_time() }
    }

    /// How long to wait until there is time again, if there is none.
    fn debt(&mut self) -> Option<Duration> {
        let (now, used) = (Instant::now(), processor_time());
        let debt = self.budget.debt(now - self.at, used - self.used);
        (self.at, self.used) = (now, used);
        debt.map(|debt| debt.min(PAUSE))
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
            for shard in 0..self.shards() {
                // A poisoned shard does not use it.
                let _ = self.peek(shard, |core| core.engine.drop_level(LEVEL));
            }
            self.end_encoding();
        }
    }

    /// Ends the thread that encodes.
    pub(crate) fn end_encoding(&self) {
        let mut work = Work::default();
        for completion in self.contents.iter().flat_map(Contents::end) {
            self.complete(completion, &mut work);
        }
        self.dispatch(&mut work, None);
    }
}

impl Contents {
    /// Encodes until the end.
    fn run(&self, cache: &Cache) {
        let mut encoder = Encoder::new(self.settings.scheme.rules());
        let mut coder = Coder { cache, contents: self, work: Work::default(), turn: 0, one_of: 1 };
        let mut clock = Clock::new(self.settings.cpu);
        loop {
            let mut inbox = self.inbox.lock();
            if inbox.stores.is_empty() && !inbox.is_over {
                drop(inbox);
                // Those of disks that were trimmed or removed meanwhile.
                (0..cache.shards()).for_each(|shard| coder.settle(shard));
                inbox = self.inbox.lock();
            }
            while inbox.stores.is_empty() && inbox.damaged.is_empty() && !inbox.is_over && !inbox.is_resized() {
                self.wake.wait(&mut inbox);
            }
            if inbox.is_over {
                return;
            }
            let (damaged, is_resized, resizes) =
                (std::mem::take(&mut inbox.damaged), inbox.is_resized(), inbox.resizes);
            let encoding = if is_resized { None } else { inbox.stores.pop_front() };
            drop(inbox);
            damaged.into_iter().for_each(|id| self.area.write().store.damaged(id));
            if is_resized {
                coder.begin_anew();
                self.inbox.lock().resized = resizes;
                self.anew.notify_all();
            }
            let Some(encoding) = encoding else { continue };
            let begun = processor_time();
            // Where encoding does not pay, it only finds out when it does.
            encoder.set_thorough(clock.budget.is_ample() && coder.one_of == 1);
            coder.store(&mut encoder, encoding);
            coder.rebase(&mut encoder);
            let took = processor_time().saturating_sub(begun);
            self.counts.encode_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            while let Some(debt) = clock.debt() {
                let mut inbox = self.inbox.lock();
                if inbox.is_over || inbox.is_resized() {
                    break;
                }
                self.wake.wait_for(&mut inbox, debt);
            }
        }
    }
}

impl Coder<'_> {
    /// Encodes blocks, and tells their engine.
    fn store(&mut self, encoder: &mut Encoder, encoding: Encoding) {
        let Encoding { shard, mut operation, domains } = encoding;
        if !operation.verify() {
            let completion = Job::new(shard, operation).finish(Err(Fault::DAMAGED));
            self.cache.complete(completion, &mut self.work);
            return self.cache.dispatch(&mut self.work, None);
        }
        let first = (operation.offset / BLOCK) as u32;
        let count = domains.len() as u32;
        if let Action::Write(frames) = &operation.action {
            for ((place, domain), frame) in (first..).zip(domains).zip(frames.slices()) {
                let block = frame.try_into().expect("a level stores whole blocks");
                self.release(shard, place);
                if let Some(id) = domain.and_then(|domain| self.insert(encoder, domain, block)) {
                    self.contents.area.write().put(shard, place, id);
                }
            }
        }
        // Those that found no room, or were given up with all others since.
        let area = self.contents.area.read();
        let rejected: Vec<u32> = (first..first + count).filter(|&place| area.id(shard, place).is_none()).collect();
        drop(area);
        self.contents.counts.rejected.fetch_add(rejected.len() as u64, Ordering::Relaxed);
        operation.seal();
        // A poisoned shard needs nothing more.
        let _ = self.cache.with(shard, &mut self.work, |core, now| {
            core.engine.complete(now, operation, Ok(()));
            rejected.iter().for_each(|&place| core.engine.reject_place(LEVEL, place));
        });
        self.cache.dispatch(&mut self.work, None);
        self.settle(shard);
    }

    /// Stores the content of a block.
    fn insert(&mut self, encoder: &mut Encoder, domain: u32, block: &Block) -> Option<ContentId> {
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
        let before = *lending;
        let room = lending.full(blocks, in_use);
        let one_of = lending.one_of();
        drop(lending);
        self.thin(one_of);
        match room {
            Room::Lent => {
                if !self.move_memory() {
                    *self.contents.lending.lock() = before;
                    self.evict();
                }
            }
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
        (area.store.counts().owners, area.pages_in_use())
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
        self.contents.area.write().release(shard, place);
    }

    /// Adapts frames and store to the pages that are lent. Returns whether that was possible.
    fn move_memory(&self) -> bool {
        let _moving = self.contents.moving.lock();
        let lending = *self.contents.lending.lock();
        match self.cache.change(None, frames_per_shard(lending, self.cache.shards())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot change the memory of the frames");
                return false;
            }
            // It was reported.
            Err(Poisoned { .. }) => return false,
        }
        self.contents.area.write().store.allow(lending.lent() as u32);
        true
    }

    /// Gives up all encoded blocks. Their memory, except for a small share, goes back to the frames.
    fn begin_anew(&mut self) {
        let mut lending = self.contents.lending.lock();
        lending.restart();
        let store = self.contents.empty_store(*lending);
        drop(lending);
        let former = self.contents.area.write().begin_anew(store);
        drop(former);
        for shard in 0..self.cache.shards() {
            // Until these blocks have left the index, too, they are loaded from below.
            let shed = |core: &mut Core| {
                core.engine.shed_level(LEVEL, u32::MAX);
                let places = core.engine.take_left_places(LEVEL, usize::MAX);
                core.engine.return_places(LEVEL, &places);
                core.engine.level_blocks(LEVEL) == Some(0)
            };
            while self.cache.peek(shard, shed) == Ok(false) {
                std::thread::sleep(STEP);
            }
        }
        // If it is not possible, frames are fewer than they could be.
        let _ = self.move_memory();
    }
}
