//! The thread that encodes blocks that leave the frames, within a share of a processor: it drives `nigh_content::Writer`.
//!
//! Its life:
//! 1. It takes blocks that engines gave to [`Contents::take`], has the writer store them, and completes the store in their engine.
//! 2. It pauses while the writer has used its share of the processor.
//! 3. With nothing to do, it releases contents of blocks that left, and waits. It is woken for blocks, for contents that readers
//!    found to be damaged, and for changes of the memory, after which the writer begins anew.
//! 4. At the end, or after a panic, stores that were not begun fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_backend::{Job, processor_time};
use nigh_content::{Area, Host, Writer};
use nigh_engine::{Action, Fault};

use crate::cache::Cache;
use crate::content::{Contents, LEVEL};
use crate::error::Poisoned;
use crate::settings::BLOCK;
use crate::shard::Core;
use crate::work::{Encoding, Work};

/// The pause between two steps in which others get the lock of a shard.
const STEP: Duration = Duration::from_micros(50);
/// The longest pause at a time.
const PAUSE: Duration = Duration::from_millis(50);

/// The cache, as the writer needs it. A poisoned shard holds nothing.
struct Coder<'a> {
    cache: &'a Cache,
    contents: &'a Contents,
    work: Work,
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
        let mut writer = Writer::new(&self.area.read(), self.settings.cpu);
        let mut coder = Coder { cache, contents: self, work: Work::default() };
        let start = Instant::now();
        loop {
            let mut inbox = self.inbox.lock();
            if inbox.stores.is_empty() && !inbox.is_over {
                drop(inbox);
                // Those of disks that were trimmed or removed meanwhile.
                (0..cache.shards()).for_each(|shard| writer.settle(&mut coder, shard));
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
                writer.begin_anew(&mut coder);
                self.inbox.lock().resized = resizes;
                self.anew.notify_all();
            }
            let Some(encoding) = encoding else { continue };
            let begun = processor_time();
            coder.store(&mut writer, encoding);
            let took = processor_time().saturating_sub(begun);
            self.counts.encode_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            while let Some(debt) = writer.debt(start.elapsed(), processor_time()) {
                let mut inbox = self.inbox.lock();
                if inbox.is_over || inbox.is_resized() {
                    break;
                }
                self.wake.wait_for(&mut inbox, debt.min(PAUSE));
            }
        }
    }
}

impl Coder<'_> {
    /// Encodes blocks, and completes the store in their engine.
    fn store(&mut self, writer: &mut Writer, encoding: Encoding) {
        let Encoding { shard, mut operation, domains } = encoding;
        if !operation.verify() {
            let completion = Job::new(shard, operation).finish(Err(Fault::DAMAGED));
            self.cache.complete(completion, &mut self.work);
            return self.cache.dispatch(&mut self.work, None);
        }
        let Action::Write(frames) = &operation.action else { unreachable!("blocks are stored by writes") };
        let blocks = frames.slices().map(|frame| frame.try_into().expect("a level stores whole blocks"));
        let first = (operation.offset / BLOCK) as u32;
        let rejected = writer.store(self, shard, first, domains.into_iter().zip(blocks));
        operation.seal();
        // A poisoned shard needs nothing more.
        let _ = self.cache.with(shard, &mut self.work, |core, now| {
            core.engine.complete(now, operation, Ok(()));
            rejected.iter().for_each(|&place| core.engine.reject_place(LEVEL, place));
        });
        self.cache.dispatch(&mut self.work, None);
        writer.settle(self, shard);
    }
}

impl Host for Coder<'_> {
    fn read<R>(&self, look: impl FnOnce(&Area) -> R) -> R {
        look(&self.contents.area.read())
    }

    fn write<R>(&mut self, change: impl FnOnce(&mut Area) -> R) -> R {
        change(&mut self.contents.area.write())
    }

    fn thin(&mut self, one_of: u32) {
        for shard in 0..self.cache.shards() {
            let _ = self.cache.peek(shard, |core| core.engine.thin_level(LEVEL, one_of));
        }
        if one_of > 1 {
            tracing::info!(one_of, "encoding does not pay: few blocks are encoded until it does");
        }
    }

    fn shed(&mut self, shard: u32, count: u32) -> u32 {
        let shed = self.cache.with(shard, &mut self.work, |core, _| core.engine.shed_level(LEVEL, count));
        self.cache.dispatch(&mut self.work, None);
        shed.unwrap_or(0)
    }

    fn shed_all(&mut self, shard: u32) {
        let shed = |core: &mut Core| {
            core.engine.shed_level(LEVEL, u32::MAX);
            core.engine.level_blocks(LEVEL) == Some(0)
        };
        while self.cache.peek(shard, shed) == Ok(false) {
            std::thread::sleep(STEP);
        }
    }

    fn take_left(&mut self, shard: u32, most: usize) -> Vec<u32> {
        self.cache.peek(shard, |core| core.engine.take_left_places(LEVEL, most)).unwrap_or_default()
    }

    fn return_places(&mut self, shard: u32, places: &[u32]) {
        let _ = self.cache.peek(shard, |core| core.engine.return_places(LEVEL, places));
    }

    fn adapt_frames(&mut self) -> bool {
        let _moving = self.contents.moving.lock();
        match self.cache.change(Vec::new(), self.contents.frames(self.cache.shards())) {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot change the memory of the frames");
                false
            }
            // It was reported.
            Err(Poisoned { .. }) => false,
        }
    }
}
