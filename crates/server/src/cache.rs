//! The shards: engines behind locks, and the consequences of calling them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use nigh_backend::{Completion, Handle};
use nigh_engine::{
    Action, BlockState, Config, ConfigError, Counters, Engine, Fault, Fill, Gauges, Op, Operation, Outcome, Port,
    PortConfig, Refusal, Region, Request, Shared, Successor, Volume, WriteMode,
};
use nigh_policy::{Spec, Stream, Tenant};
use nigh_prefetch::{Prefetcher, Reference};
use slab::Slab;

use crate::disk::{Disk, Disks};
use crate::job::Waiter;
use crate::link::Link;
use crate::readahead::ReadAhead;
use crate::settings::BLOCK;
use crate::sync::{Budget, lock};

/// What goes to one shard as a whole, so that neighbours on the disk stay neighbours in an engine.
const EXTENT: u64 = 1 << 20;
/// Longest read or write of an engine: it is what one client can hold in frames while it sends or receives.
pub(crate) const PIECE: u64 = 256 << 10;
/// Memory for replies outside of the engines: what slow clients have not taken, and reads that are collected. It holds
/// the longest read.
const HEAP: usize = 40 << 20;
/// Frames whose memory is given back to the system at a time, from one shard.
const SURPLUS: usize = 4096;
/// How long a wait goes on whose end nobody may tell.
const GLANCE: Duration = Duration::from_millis(10);
/// Between two steps of a change, so that others get the lock.
const PAUSE: Duration = Duration::from_micros(50);

/// A part of the cache.
struct Shard {
    core: Mutex<Core>,
    /// A request was replied to.
    room: Condvar,
}

struct Core {
    engine: Engine,
    /// Who waits for replies, by token.
    waiters: Slab<Waiter>,
    /// How many threads wait for `Shard::room`.
    queueing: usize,
}

/// What calls of engines brought about and is still to be done, without their locks.
#[derive(Default)]
pub(crate) struct Work {
    operations: Vec<(u32, Operation)>,
    replies: Vec<(u32, Waiter, Outcome)>,
    polls: BTreeSet<u32>,
    kicks: Vec<Arc<Link>>,
}

impl Work {
    /// Gives frames of `shard` back.
    pub(crate) fn release(&mut self, shard: u32, data: Shared) {
        if data.release() {
            self.polls.insert(shard);
        }
    }

    /// `link` has replies to be written.
    pub(crate) fn kick(&mut self, link: &Arc<Link>) {
        if !self.kicks.iter().any(|known| Arc::ptr_eq(known, link)) {
            self.kicks.push(link.clone());
        }
    }
}

/// What became of a request.
pub(crate) struct Submitted {
    /// Which shard has it.
    pub(crate) shard: u32,
    /// By which its waiter is known, if there is one: always for a write.
    pub(crate) token: usize,
    /// The reply; none if it comes later.
    pub(crate) outcome: Option<Outcome>,
}

/// When something is to be done although nothing happens.
#[derive(Default)]
struct Timer {
    /// In µs.
    due: AtomicU64,
    thread: OnceLock<Thread>,
}

/// All shards, and the way to the devices.
pub(crate) struct Cache {
    shards: Box<[Shard]>,
    /// How the port of each disk is set up.
    ports: PortConfig,
    pub(crate) disks: Disks,
    /// Whether a device may be flushed for shards that wait: spares a look at all disks.
    flush_wanted: AtomicBool,
    /// Memory for replies outside of the engines.
    pub(crate) heap: Budget,
    /// What is fetched ahead of the reads of each client.
    pub(crate) readahead: ReadAhead,
    /// Whether exports are tenants; there is one shard then.
    pub(crate) has_tenants: bool,
    handle: Handle,
    started: Instant,
    timer: Timer,
}

/// `range` cut at multiples of `size`.
pub(crate) fn pieces(range: Range<u64>, size: u64) -> impl ExactSizeIterator<Item = Range<u64>> + Clone {
    let count = (range.end.div_ceil(size) - range.start / size) as usize;
    (0..count).map(move |at| {
        let start = (range.start / size + at as u64) * size;
        start.max(range.start)..(start + size).min(range.end)
    })
}

impl Cache {
    /// `shards` engines, each set up as `config` says, without exports.
    pub(crate) fn new(
        shards: usize,
        config: &Config,
        ports: PortConfig,
        readahead: nigh_prefetch::Spec,
        handle: Handle,
    ) -> Result<Cache, ConfigError> {
        let shard = |_| {
            let engine = Engine::new(config.clone())?;
            Ok(Shard { core: Mutex::new(Core { engine, waiters: Slab::new(), queueing: 0 }), room: Condvar::new() })
        };
        let shards = (0..shards).map(shard).collect::<Result<_, ConfigError>>()?;
        let heap = Budget::new(HEAP);
        Ok(Cache {
            shards,
            ports,
            disks: Disks::default(),
            flush_wanted: AtomicBool::new(false),
            heap,
            readahead: ReadAhead::new(readahead),
            has_tenants: config.tenants.is_some(),
            handle,
            started: Instant::now(),
            timer: Timer::default(),
        })
    }

    pub(crate) fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    /// The shard of the extent of `offset`. Extents are scattered, so that no stride of a client meets one shard only.
    #[inline]
    fn shard_of(&self, volume: Volume, offset: u64) -> u32 {
        let extent = (offset / EXTENT) ^ u64::from(volume.0).rotate_right(16);
        let scattered = extent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((scattered * self.shards.len() as u64) >> 32) as u32
    }

    /// µs since the start.
    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Calls the engine of `shard` and collects what that brings about.
    fn with<R>(&self, shard: u32, work: &mut Work, call: impl FnOnce(&mut Core, u64) -> R) -> R {
        let mut core = lock(&self.shards[shard as usize].core);
        let now = self.now();
        let result = call(&mut core, now);
        self.collect(core, shard, now, work);
        result
    }

    fn collect(&self, mut core: MutexGuard<'_, Core>, shard: u32, now: u64, work: &mut Work) {
        let Core { engine, waiters, queueing } = &mut *core;
        let before = work.replies.len();
        while let Some(reply) = engine.next_reply() {
            let token = reply.token as usize;
            let waiter = match (&reply.outcome, waiters.get(token)) {
                // The reply to the write itself comes later.
                (Outcome::Fill(_), Some(Waiter::Piece(job, range))) => Waiter::Piece(job.clone(), range.clone()),
                _ => waiters.remove(token),
            };
            work.replies.push((shard, waiter, reply.outcome));
        }
        while let Some(operation) = engine.next_operation(now) {
            work.operations.push((shard, operation));
        }
        let queueing = *queueing > 0 && work.replies.len() > before;
        // The timer gives back what was freed after a change, too.
        let wakeup = if engine.has_surplus() { Some(now) } else { engine.next_wakeup() };
        drop(core);
        if queueing {
            self.shards[shard as usize].room.notify_all();
        }
        if let Some(at) = wakeup
            && at < self.timer.due.fetch_min(at, Ordering::AcqRel)
            && let Some(thread) = self.timer.thread.get()
            // The timer itself looks before it waits; told, it would not wait.
            && thread.id() != std::thread::current().id()
        {
            thread.unpark();
        }
    }

    /// Does what was brought about, and what that brings about: operations go to the devices, replies to their
    /// clients. Writes to no socket that would block, and leaves what `own` has to write to the caller.
    pub(crate) fn settle(&self, work: &mut Work, own: Option<&Arc<Link>>) {
        loop {
            self.launch(&mut work.operations);
            for (shard, waiter, outcome) in std::mem::take(&mut work.replies) {
                match waiter {
                    Waiter::Piece(job, range) => job.deliver(shard, range, outcome, work),
                    Waiter::Told(told) => {
                        let result = if let Outcome::Failed(fault) = outcome { Err(fault) } else { Ok(()) };
                        // Whoever waits may have given up.
                        let _ = told.send(result);
                    }
                }
            }
            while let Some(link) = work.kicks.pop() {
                if !own.is_some_and(|own| Arc::ptr_eq(own, &link)) {
                    link.send_now(work);
                }
            }
            while let Some(shard) = work.polls.pop_first() {
                self.with(shard, work, |core, now| core.engine.poll(now));
            }
            if work.operations.is_empty() && work.replies.is_empty() && work.kicks.is_empty() {
                return;
            }
        }
    }

    /// Gives operations to the devices.
    fn launch(&self, operations: &mut Vec<(u32, Operation)>) {
        let is_flush = |(_, operation): &mut (u32, Operation)| matches!(operation.action, Action::Flush);
        for flush in operations.extract_if(.., is_flush) {
            self.disks.of(flush.1.port).sync(flush);
            self.flush_wanted.store(true, Ordering::Release);
        }
        for (shard, operation) in operations.drain(..) {
            self.handle.submit(shard, operation);
        }
        if self.flush_wanted.load(Ordering::Acquire) && self.flush_wanted.swap(false, Ordering::AcqRel) {
            for disk in self.disks.all() {
                if let Some((shard, operation)) = disk.next_sync() {
                    self.handle.submit(shard, operation);
                }
            }
        }
    }

    /// A device is done with an operation.
    pub(crate) fn complete(&self, completion: Completion, work: &mut Work) {
        let Completion { sender, operation, result } = completion;
        let mut over = vec![(sender, operation)];
        if let Action::Flush = over[0].1.action {
            over.extend(self.disks.of(over[0].1.port).synced());
            // Others may have come to wait meanwhile.
            self.flush_wanted.store(true, Ordering::Release);
        }
        for (shard, operation) in over {
            self.with(shard, work, |core, now| core.engine.complete(now, operation, result));
        }
    }

    /// Asks the shard of the first byte of `range`, which is within one extent except for a flush.
    /// `waiter` is called if the reply does not come at once, and for a write.
    #[inline]
    pub(crate) fn submit(
        &self,
        volume: Volume,
        op: Op,
        range: Range<u64>,
        fua: bool,
        work: &mut Work,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<Submitted, Refusal> {
        let shard = self.shard_of(volume, range.start);
        self.submit_to(shard, volume, op, range, fua, work, waiter)
    }

    #[expect(clippy::too_many_arguments, reason = "they are a request's")]
    fn submit_to(
        &self,
        shard: u32,
        volume: Volume,
        op: Op,
        range: Range<u64>,
        fua: bool,
        work: &mut Work,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<Submitted, Refusal> {
        self.with(shard, work, |core, now| {
            let entry = core.waiters.vacant_entry();
            let token = entry.key();
            let (offset, length) = (range.start, range.end - range.start);
            let tenant = Tenant(volume.0);
            let request = Request { volume, tenant, op, offset, length, fua, stream: Stream(0), token: token as u64 };
            let outcome = core.engine.submit(now, request)?.reply.map(|reply| reply.outcome);
            if matches!(outcome, None | Some(Outcome::Fill(_))) {
                entry.insert(waiter());
            }
            Ok(Submitted { shard, token, outcome })
        })
    }

    /// Submits a read, within one extent, and fetches ahead what `prefetcher` asks for because of it. What lies in the
    /// read's shard comes before any of its misses goes to the device, so that neighbours become one operation.
    pub(crate) fn read_ahead(
        &self,
        disk: &Disk,
        range: Range<u64>,
        prefetcher: &mut Prefetcher,
        work: &mut Work,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<Submitted, Refusal> {
        let (volume, size) = (disk.volume, disk.size());
        let shard = self.shard_of(volume, range.start);
        let request = |op, range: &Range<u64>, token: usize| {
            let (offset, length) = (range.start, range.end - range.start);
            let tenant = Tenant(volume.0);
            Request { volume, tenant, op, offset, length, fua: false, stream: Stream(0), token: token as u64 }
        };
        let mut elsewhere = None;
        let submitted = self.with(shard, work, |core, now| {
            let entry = core.waiters.vacant_entry();
            let token = entry.key();
            let nigh_engine::Submitted { reply, missed } = core.engine.submit(now, request(Op::Read, &range, token))?;
            let outcome = reply.map(|reply| reply.outcome);
            if outcome.is_none() {
                entry.insert(waiter());
            }
            let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
            let ahead = prefetcher.reference(&Reference { file: 0, blocks, missed, end: size.div_ceil(BLOCK) });
            // Nobody has to guess what was said.
            let ahead = ahead.filter(|_| !core.engine.is_predicted(Tenant(volume.0)));
            if let Some(ahead) = ahead {
                let ahead = ahead.start * BLOCK..(ahead.end * BLOCK).min(size);
                for piece in self.extents(ahead.clone()).filter(|piece| self.shard_of(volume, piece.start) == shard) {
                    // A hint may be refused.
                    let _ = core.engine.submit(now, request(Op::Prefetch, &piece, 0));
                }
                elsewhere = Some(ahead);
            }
            Ok(Submitted { shard, token, outcome })
        })?;
        for piece in elsewhere.into_iter().flat_map(|ahead| self.extents(ahead)) {
            let other = self.shard_of(volume, piece.start);
            if other != shard {
                self.with(other, work, |core, now| _ = core.engine.submit(now, request(Op::Prefetch, &piece, 0)));
            }
        }
        Ok(submitted)
    }

    /// Flushes one shard of a volume.
    pub(crate) fn flush(
        &self,
        shard: u32,
        volume: Volume,
        work: &mut Work,
        waiter: impl FnOnce() -> Waiter,
    ) -> Result<Submitted, Refusal> {
        self.submit_to(shard, volume, Op::Flush, 0..0, false, work, waiter)
    }

    /// The frames of a write are filled.
    pub(crate) fn commit(&self, shard: u32, fill: Fill, work: &mut Work) {
        self.with(shard, work, |core, now| core.engine.commit(now, fill));
    }

    /// The frames of a write will not be filled.
    pub(crate) fn abort(&self, shard: u32, token: usize, fill: Fill, work: &mut Work) {
        self.with(shard, work, |core, now| {
            core.waiters.remove(token);
            core.engine.abort(now, fill);
        });
    }

    /// `range` cut at the borders of extents.
    pub(crate) fn extents(&self, range: Range<u64>) -> impl ExactSizeIterator<Item = Range<u64>> + Clone + use<> {
        pieces(range, EXTENT)
    }

    /// Waits until the shard of `offset` may take a request that it refused as busy, or for a moment.
    pub(crate) fn wait_for_room(&self, volume: Volume, offset: u64) {
        self.wait_for_room_in(self.shard_of(volume, offset));
    }

    /// As `wait_for_room`.
    pub(crate) fn wait_for_room_in(&self, shard: u32) {
        let shard = &self.shards[shard as usize];
        let mut core = lock(&shard.core);
        core.queueing += 1;
        let (mut core, _) = shard.room.wait_timeout(core, GLANCE).expect("nobody panics with a lock");
        core.queueing -= 1;
    }

    /// What the cache has of the blocks of `range`, which is within one extent: `report` is told for each block, by
    /// where it ends.
    pub(crate) fn states(&self, volume: Volume, range: Range<u64>, mut report: impl FnMut(u64, BlockState)) {
        let core = lock(&self.shards[self.shard_of(volume, range.start) as usize].core);
        let size = u64::from(core.engine.config().block_bytes);
        for block in range.start / size..range.end.div_ceil(size) {
            report((block + 1) * size, core.engine.state(volume, block));
        }
    }

    /// Runs on a thread of its own: has the engines do what is due at a certain time, until `over`.
    pub(crate) fn keep_time(&self, over: impl Fn() -> bool) {
        self.timer.thread.set(std::thread::current()).expect("there is one timer");
        let mut work = Work::default();
        while !over() {
            self.timer.due.store(u64::MAX, Ordering::Release);
            for shard in 0..self.shards() {
                if !self.step(shard, &mut work) {
                    self.return_surplus(shard, &mut work);
                }
            }
            self.settle(&mut work, None);
            let due = self.timer.due.load(Ordering::Acquire);
            let wait = Duration::from_micros(due.saturating_sub(self.now()));
            std::thread::park_timeout(wait.clamp(Duration::from_millis(1), Duration::from_secs(3600)));
        }
    }

    /// Ends the waiting of the timer.
    pub(crate) fn wake_timer(&self) {
        if let Some(thread) = self.timer.thread.get() {
            thread.unpark();
        }
    }

    /// Writes back what is dirty of `volume`, or drops it if `discard`, flushes its device and forgets its blocks. On an
    /// error it stays open in the shards that had it.
    pub(crate) fn close(&self, volume: Volume, discard: bool) -> Result<(), Fault> {
        let (told, results) = channel();
        let mut work = Work::default();
        let mut closing = 0;
        for shard in 0..self.shards() {
            let told = told.clone();
            let begun = self.with(shard, &mut work, |core, now| {
                let token = core.waiters.insert(Waiter::Told(told));
                let begun = core.engine.close(now, volume, discard, token as u64);
                if begun.is_err() {
                    core.waiters.remove(token);
                }
                begun.is_ok()
            });
            closing += usize::from(begun);
        }
        self.settle(&mut work, None);
        let mut result = Ok(());
        for _ in 0..closing {
            result = result.and(results.recv().expect("a closing is replied to"));
        }
        if self.has_tenants && result.is_ok() {
            self.tenants(|engine| engine.close_tenant(Tenant(volume.0)));
        }
        result
    }

    /// Writes back what is dirty of `volume` and flushes its device. Says no where an engine does not have it.
    pub(crate) fn write_back(&self, volume: Volume) -> Result<Result<(), Fault>, Refusal> {
        let (told, results) = channel();
        let mut work = Work::default();
        let mut result = Ok(());
        let mut waiting = 0;
        for shard in 0..self.shards() {
            let submitted = loop {
                match self.flush(shard, volume, &mut work, || Waiter::Told(told.clone())) {
                    Err(Refusal::Busy) => {
                        self.settle(&mut work, None);
                        self.wait_for_room_in(shard);
                    }
                    submitted => break submitted,
                }
            };
            match submitted.inspect_err(|_| self.settle(&mut work, None))?.outcome {
                Some(Outcome::Failed(fault)) => result = result.and(Err(fault)),
                Some(_) => {}
                None => waiting += 1,
            }
        }
        self.settle(&mut work, None);
        for _ in 0..waiting {
            result = result.and(results.recv().expect("a flush is replied to"));
        }
        Ok(result)
    }

    /// Writes of `volume` reach its device as `mode` says from now on.
    pub(crate) fn set_mode(&self, volume: Volume, mode: WriteMode) -> Result<(), Refusal> {
        let mut work = Work::default();
        (0..self.shards())
            .try_for_each(|shard| self.with(shard, &mut work, |core, _| core.engine.set_mode(volume, mode)))
    }

    /// Gives the memory of frames that a smaller cache left over back to the system.
    fn return_surplus(&self, shard: u32, work: &mut Work) {
        while let Some(mut frames) = self.with(shard, work, |core, _| core.engine.surplus_memory(SURPLUS)) {
            nigh_backend::release_memory(&mut frames);
            self.with(shard, work, |core, now| core.engine.return_memory(now, frames));
        }
    }

    /// Opens the volume of `disk` again where it is closed, with its present size.
    pub(crate) fn open(&self, disk: &Disk, size: u64, mode: WriteMode) -> Result<(), ConfigError> {
        let whole = Region::whole(disk.port, size);
        let mut work = Work::default();
        for shard in 0..self.shards() {
            let opened = self.with(shard, &mut work, |core, _| {
                match core.engine.attach(disk.port, self.ports) {
                    Ok(()) | Err(ConfigError::PortTaken(_)) => {}
                    Err(error) => return Err(error),
                }
                core.engine.open(disk.volume, mode, &[whole])
            });
            match opened {
                Ok(()) | Err(ConfigError::Taken(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes the port of a disk that no engine has any more.
    pub(crate) fn detach(&self, port: Port) {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            // An error says that the shard never had it.
            self.with(shard, &mut work, |core, _| _ = core.engine.detach(port));
        }
    }

    /// Changes capacity and, if one is given, policy of every shard, or of none: they are set up alike, so the first one refuses
    /// for all. Ends when there is nothing to do at once; the timer goes on with what has to be written before.
    pub(crate) fn change(&self, policy: Option<&Spec>, blocks_per_shard: u32) -> Result<(), ConfigError> {
        let mut work = Work::default();
        // Policies are made without the engines, for to make their arrays takes time.
        let mut next = Vec::new();
        for shard in (0..self.shards()).filter(|_| policy.is_some()) {
            let policy = policy.expect("one is given");
            let setup = self.with(shard, &mut work, |core, _| core.engine.setup(policy))?;
            next.push(Successor::new(policy, &setup)?);
        }
        for shard in 0..self.shards() {
            self.with(shard, &mut work, |core, _| core.engine.resize(blocks_per_shard))?;
        }
        for (shard, next) in (0..).zip(next) {
            drop(self.with(shard, &mut work, |core, _| core.engine.set_policy(next))?);
        }
        for shard in 0..self.shards() {
            // Whoever hits in between waits for one step at most.
            while self.step(shard, &mut work) {
                std::thread::sleep(PAUSE);
            }
            self.return_surplus(shard, &mut work);
        }
        self.settle(&mut work, None);
        Ok(())
    }

    /// Goes on with changes of `shard`, one step. Says whether there is more to do at once.
    fn step(&self, shard: u32, work: &mut Work) -> bool {
        let (more, retired) = self.with(shard, work, |core, now| (core.engine.step(now), core.engine.take_retired()));
        self.settle(work, None);
        // Its memory is freed while nobody waits for the engine.
        drop(retired);
        more
    }

    /// Calls the engine of the tenants, and does what that brings about.
    ///
    /// # Panics
    /// If there are no tenants.
    pub(crate) fn tenants<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> R {
        assert!(self.has_tenants && self.shards() == 1);
        let mut work = Work::default();
        let result = self.with(0, &mut work, |core, _| call(&mut core.engine));
        self.settle(&mut work, None);
        result
    }

    /// The clients of `volume` will read `range`.
    pub(crate) fn foresee(&self, volume: Volume, range: Range<u64>, work: &mut Work) {
        // A hint may be refused.
        let _ = self.with(0, work, |core, _| core.engine.extend(Tenant(volume.0), volume, range));
    }

    /// What the shards hold, in sum.
    pub(crate) fn gauges(&self) -> Gauges {
        let mut sum = Gauges::default();
        for shard in &self.shards {
            sum += lock(&shard.core).engine.gauges();
        }
        sum
    }

    /// What `volume` did, and how many of its blocks are dirty, in sum.
    pub(crate) fn counters(&self, volume: Volume) -> (Counters, u64) {
        let mut sum = Counters::default();
        let mut dirty = 0;
        for shard in &self.shards {
            let core = lock(&shard.core);
            let Some(of) = core.engine.counters(volume) else { continue };
            dirty += u64::from(core.engine.dirty(volume).unwrap_or(0));
            sum += of;
        }
        (sum, dirty)
    }

    /// Memory of the indexes and the frames' bookkeeping, in bytes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.core).engine.metadata_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nigh_nbd::client::Client;

    use super::*;
    use crate::{ExportSettings, Server, Settings};

    /// Dirty blocks that a smaller cache has no room for are written after the change; their frames are given back then.
    #[test]
    fn frames_that_are_freed_after_a_change_are_given_back() {
        let export = ExportSettings::new("disk", "delay:200ms:memory:16M".parse().unwrap());
        let mut settings = Settings::new(64 << 20, "lru".parse().unwrap(), vec![export]);
        settings.shards = Some(1);
        let server = Server::start(settings).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        server.attach(theirs.try_clone().unwrap().into(), theirs.into(), || ());
        let mut client = Client::connect(ours, "disk", &[]).unwrap();
        // More blocks than there are spare frames.
        client.write(0, &[1; 4 << 20]).unwrap();
        let cache = &server.common.cache;
        cache.change(None, 1).unwrap();
        let begin = Instant::now();
        let waits =
            || cache.gauges().dirty > 0 || cache.shards.iter().any(|shard| lock(&shard.core).engine.has_surplus());
        assert!(waits(), "nothing is left to be written");
        // It would wake for the age of what is dirty; now there is nothing it knows to wait for.
        cache.wake_timer();
        while waits() {
            assert!(begin.elapsed() < Duration::from_secs(20), "frames are kept");
            std::thread::sleep(Duration::from_millis(5));
        }
        client.disconnect().unwrap();
        server.shut_down().unwrap();
    }

    #[test]
    fn pieces_cover_the_range() {
        let list = |range, size| pieces(range, size).map(|piece| (piece.start, piece.end)).collect::<Vec<_>>();
        assert_eq!(list(0..10, 10), [(0, 10)]);
        assert_eq!(list(9..21, 10), [(9, 10), (10, 20), (20, 21)]);
        assert_eq!(list(10..20, 10), [(10, 20)]);
        assert_eq!(list(12..13, 10), [(12, 13)]);
    }
}
