//! The shards, and the work that follows from calling their engines.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use nigh_backend::{Completion, Handle};
use nigh_engine::{
    Action, BlockState, Config, ConfigError, EXTENT_BYTES, Engine, Fault, Fill, Op, Operation, Outcome, PortConfig,
    Request, Span, Volume,
};
use nigh_policy::Stream;
use nigh_prefetch::Prefetcher;

use crate::buffers::Buffers;
use crate::client::Client;
use crate::content::{self, Contents};
use crate::disk::{Disk, Disks};
use crate::error::{HostError, Poisoned, SubmitError};
use crate::level::Level;
use crate::readahead::{Ahead, ReadAhead};
use crate::settings::{AT_ONCE, BLOCK};
use crate::shard::{Core, Shard};
use crate::sync::{Budget, lock};
use crate::timer::Timer;
use crate::work::{Outlet, Submitted, Waiter, Waiting, Work};

/// Memory for replies outside of the engines: replies that slow clients have not taken, reads that are being
/// assembled, and other long replies. It holds the longest read. All users of a front end share it; each may have some of its own besides.
const HEAP: usize = 40 << 20;
/// The longest wait for an event that may never be signalled.
const GLANCE: Duration = Duration::from_millis(10);

/// A request within one extent, or a flush.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The operation.
    pub op: Op,
    /// Its bytes.
    pub range: Range<u64>,
    /// Must be on stable storage before the reply.
    pub fua: bool,
}

/// Place of a block in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is not.
    Absent,
    /// In an encoded form.
    Encoded {
        /// Whether other blocks have the same contents in the same memory.
        is_shared: bool,
    },
    /// In a frame, with the contents of the device.
    Clean,
    /// In a frame, with contents that are newer than those of the device.
    Dirty,
}

/// All shards, and the connection to the devices.
pub struct Cache {
    pub(crate) shards: Box<[Shard]>,
    /// The port configuration of each device.
    pub(crate) ports: PortConfig,
    pub(crate) disks: Disks,
    /// In the order of their numbers.
    pub(crate) levels: Box<[Level]>,
    /// The level above those.
    pub(crate) contents: Option<Contents>,
    /// Whether a device flush may be due for shards that wait; avoids looking at all devices.
    flush_wanted: AtomicBool,
    /// Memory for replies outside of the engines.
    heap: Budget,
    buffers: Buffers,
    /// The read-ahead setting.
    readahead: ReadAhead,
    /// Whether disks have tenants; there is only one shard then.
    has_tenants: bool,
    handle: Handle,
    /// Whether the driver runs.
    driven: AtomicBool,
    pub(crate) started: Instant,
    /// [`nigh_backend::forks`] at the start.
    forks: u32,
    pub(crate) timer: Timer,
}

/// `range` split at multiples of `size`.
pub fn pieces(range: Range<u64>, size: u64) -> impl ExactSizeIterator<Item = Range<u64>> + Clone {
    let count = (range.end.div_ceil(size) - range.start / size) as usize;
    (0..count).map(move |at| {
        let start = (range.start / size + at as u64) * size;
        start.max(range.start)..(start + size).min(range.end)
    })
}

impl Cache {
    /// `shards` engines, each with configuration `config`, with `contents` and `levels` and without disks.
    pub(crate) fn new(
        shards: usize,
        config: &Config,
        ports: PortConfig,
        contents: Option<Contents>,
        levels: Box<[Level]>,
        readahead: nigh_prefetch::Spec,
        handle: Handle,
    ) -> Result<Cache, ConfigError> {
        let mut config = config.clone();
        if config.policy.is_unified() {
            config.levels = levels.iter().map(|level| level.part_blocks).collect();
        }
        let shard = |shard| {
            let mut engine = Engine::new(config.clone())?;
            if let Some(contents) = &contents {
                engine.attach(content::PORT, Contents::port(ports))?;
                engine.add_level(contents.part())?;
            }
            for level in &levels {
                engine.attach(level.port(), ports)?;
                engine.add_level(level.part(shard))?;
            }
            Ok(Shard::new(engine))
        };
        let shards = (0..shards as u32).map(shard).collect::<Result<_, ConfigError>>()?;
        let heap = Budget::new(HEAP);
        Ok(Cache {
            shards,
            ports,
            disks: Disks::default(),
            levels,
            contents,
            flush_wanted: AtomicBool::new(false),
            heap,
            buffers: Buffers::default(),
            readahead: ReadAhead::new(readahead),
            has_tenants: config.tenants.is_some(),
            handle,
            driven: AtomicBool::new(true),
            started: Instant::now(),
            forks: nigh_backend::forks(),
            timer: Timer::default(),
        })
    }

    /// A client of `disk`, whose requests have this stream.
    pub fn client(&self, disk: &Arc<Disk>, stream: Stream) -> Client {
        Client::new(&self.shards, disk, stream)
    }

    /// Memory for replies outside of the engines.
    pub fn heap(&self) -> &Budget {
        &self.heap
    }

    /// Memory for long replies that was used before.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The read-ahead setting.
    pub fn readahead(&self) -> &ReadAhead {
        &self.readahead
    }

    /// Whether disks have tenants.
    pub fn has_tenants(&self) -> bool {
        self.has_tenants
    }

    /// The error of a request that `shard` answered with this outcome.
    pub(crate) fn failure(&self, shard: u32, fault: Fault) -> HostError {
        match fault {
            Fault::SHUT_DOWN if self.shards[shard as usize].core.lock().poisoned => Poisoned { shard }.into(),
            Fault::SHUT_DOWN => HostError::Closed,
            fault => HostError::Device(fault),
        }
    }

    /// Whether this process is a child of the one that started the host: locks may be held for ever, and no thread runs.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        nigh_backend::forks() != self.forks
    }

    /// Whether the device driver runs.
    pub(crate) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    /// The device driver has stopped: every shard is out of use.
    pub(crate) fn poison(&self) {
        self.driven.store(false, Ordering::Release);
        let mut work = Work::default();
        for shard in 0..self.shards() {
            self.shards[shard as usize].core.lock().poisoned = true;
            self.shards[shard as usize].published.shut();
            self.fail_waiters(shard, &mut work);
        }
        work.operations.clear();
        self.dispatch(&mut work, None);
    }

    /// Does the work, and the work that results from it: passes operations to the devices and replies to waiters. Never
    /// waits, and leaves the replies for `own` to the caller.
    #[inline]
    pub fn dispatch(&self, work: &mut Work, own: Option<&dyn Outlet>) {
        // Most of the time there is none.
        while !work.is_done() || self.flush_wanted.load(Ordering::Acquire) {
            self.do_work(work, own);
        }
    }

    fn do_work(&self, work: &mut Work, own: Option<&dyn Outlet>) {
        work.reports.drain(..).for_each(|report| self.report(report));
        work.late.drain(..).for_each(|(level, late)| self.note_late(level, late));
        work.left_out.drain(..).for_each(|left_out| self.note_left_out(left_out));
        while let Some(damage) = work.damages.pop() {
            self.note_damage(damage, work);
        }
        self.launch(work);
        for (shard, Waiting { waiter, range }, outcome) in std::mem::take(&mut work.replies) {
            waiter.deliver(shard, range, outcome, work);
        }
        while let Some(outlet) = work.outlets.pop() {
            if !own.is_some_and(|own| std::ptr::addr_eq(own, Arc::as_ptr(&outlet))) {
                outlet.flush(work);
            }
        }
        while let Some(shard) = work.polls.pop_first() {
            // Frames of a poisoned shard are not needed.
            let _ = self.with(shard, work, |core, now| core.engine.poll(now));
        }
    }

    /// Passes operations to the devices, unless what they would write is damaged.
    fn launch(&self, work: &mut Work) {
        loop {
            let damaged = work.operations.extract_if(.., |(_, operation)| !operation.verify());
            let damaged: Vec<_> = damaged.collect();
            if damaged.is_empty() {
                break;
            }
            for (shard, operation) in damaged {
                // The contents of a poisoned shard are lost.
                let _ = self.with(shard, work, |core, now| core.engine.complete(now, operation, Err(Fault::DAMAGED)));
            }
        }
        let operations = &mut work.operations;
        let is_flush = |(_, operation): &mut (u32, Operation)| matches!(operation.action, Action::Flush);
        for flush in operations.extract_if(.., is_flush) {
            self.disks.device(flush.1.port).sync(flush);
            self.flush_wanted.store(true, Ordering::Release);
        }
        let mut done = Vec::new();
        for (shard, operation) in operations.drain(..) {
            match &self.contents {
                Some(contents) if operation.port == content::PORT => done.push(contents.fetch(shard, operation)),
                _ => self.submit_operation(shard, operation),
            }
        }
        for encoding in work.encodings.drain(..) {
            done.extend(self.contents.as_ref().and_then(|contents| contents.take(encoding)));
        }
        done.into_iter().for_each(|completion| self.complete(completion, work));
        if self.flush_wanted.load(Ordering::Acquire) && self.flush_wanted.swap(false, Ordering::AcqRel) {
            for device in self.disks.devices() {
                if let Some((shard, operation)) = device.next_sync() {
                    self.submit_operation(shard, operation);
                }
            }
        }
    }

    /// Passes an operation to its device.
    fn submit_operation(&self, shard: u32, operation: Operation) {
        if let Some(device) = self.disks.device_at(operation.port) {
            device.begin_operation(self.elapsed_us());
        }
        self.handle.submit(shard, operation);
    }

    /// The time since the start, in microseconds.
    pub(crate) fn elapsed_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Completes operations as they come, until there will be no more.
    pub(crate) fn complete_all(&self, completions: &std::sync::Mutex<Receiver<Completion>>) {
        let mut work = Work::default();
        loop {
            let Ok(completion) = lock(completions).recv() else { return };
            self.complete(completion, &mut work);
            self.dispatch(&mut work, None);
        }
    }

    /// A device has finished an operation.
    pub(crate) fn complete(&self, completion: Completion, work: &mut Work) {
        let (sender, mut operation, result) = completion.settle();
        // Operations of the memory of encoded blocks are no device's.
        if let Some(device) = self.disks.device_at(operation.port) {
            device.end_operation(self.elapsed_us(), result.is_err_and(is_full));
        }
        if let Err(fault) = result {
            self.note_taken_over(operation.port, fault, work);
        }
        if matches!(operation.action, Action::Flush) {
            self.complete_flush((sender, operation), result, work);
            // More requests may wait now.
            self.flush_wanted.store(true, Ordering::Release);
            return;
        }
        let port = operation.port;
        if let Err(fault) = result {
            // Before the completion, after which the disk may be removed.
            self.log_fault(&operation, fault);
        }
        // Before the completion: news of this operation's place concern the block that was there before.
        self.note_news(port, sender, work);
        let level = self.levels.iter().find(|level| level.port() == port);
        let mismatches = |core: &Core| {
            let counters = level.and_then(|level| core.engine.level_counters(level.number()));
            counters.map_or(0, |(counters, _)| counters.mismatches)
        };
        if result.is_ok() && level.is_none() && operation.length > u64::from(AT_ONCE) * BLOCK {
            let mut first = || {
                self.with(sender, work, |core, now| core.engine.complete_first(now, &mut operation, AT_ONCE as usize))
            };
            while first() == Ok(true) {}
        }
        let completed = self.with(sender, work, |core, now| {
            let before = mismatches(core);
            core.engine.complete(now, operation, result);
            mismatches(core) - before
        });
        // The waiters of a poisoned shard already have their replies.
        let differ = completed.unwrap_or(0);
        if let Some(level) = level.filter(|_| differ > 0) {
            level.note_mismatches(differ);
        }
        if let Err(fault) = result {
            self.note_fault(port, sender, fault, work);
        }
    }

    /// Submits to the shard of the first byte of the range. `waiter` is called if the reply does not come at once, and
    /// for a write.
    #[inline]
    pub fn submit(
        &self,
        client: &Client,
        submission: Submission,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let shard = self.shard_of(client.disk.volume, submission.range.start);
        let at = &self.shards[shard as usize];
        if submission.op == Op::Read
            && let Some(data) = client.read(at, shard, &submission.range, work)
        {
            return Ok(Submitted { shard, token: 0, outcome: Some(Outcome::Data(data)) });
        }
        let request = request(&client.disk, client.stream, &submission);
        self.submit_to(shard, Some(client), request, work, waiter)
    }

    /// As `submit`, or for a read as `read_ahead`, if the present setting of `ahead` is to.
    #[inline]
    pub fn submit_ahead(
        &self,
        client: &Client,
        submission: Submission,
        ahead: &mut Ahead,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let prefetcher = if submission.op == Op::Read { ahead.prefetcher(self.readahead()) } else { None };
        match prefetcher {
            Some(prefetcher) => self.read_ahead(client, submission, prefetcher, work, waiter),
            None => self.submit(client, submission, work, waiter),
        }
    }

    fn submit_to(
        &self,
        shard: u32,
        client: Option<&Client>,
        request: Request,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let range = request.offset..request.offset + request.length;
        let mut failure = None;
        let submitted = self.with(shard, work, |core, now| {
            client.into_iter().for_each(|client| client.part(shard).report(core));
            let entry = core.waiters.vacant_entry();
            let token = entry.key();
            let outcome = core.engine.submit(now, Request { token: token as u64, ..request })?;
            let outcome = match outcome.reply.map(|reply| reply.outcome) {
                outcome @ (None | Some(Outcome::Fill(_))) => {
                    entry.insert(Waiting { waiter: waiter(), range });
                    outcome
                }
                // A write waits for the frames or for this.
                Some(failed) if request.op == Op::Write => {
                    failure = Some((shard, Waiting { waiter: waiter(), range }, failed));
                    None
                }
                outcome => outcome,
            };
            Ok(Submitted { shard, token, outcome })
        });
        work.replies.extend(failure);
        submitted?
    }

    /// Submits a read, within one extent, and prefetches what `prefetcher` requests because of it. Prefetches in the
    /// read's shard are queued before any of its misses goes to the device, so that neighbours become one operation.
    pub fn read_ahead(
        &self,
        client: &Client,
        submission: Submission,
        prefetcher: &mut Prefetcher,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let (disk, range) = (&client.disk, submission.range.clone());
        let shard = self.shard_of(disk.volume, range.start);
        let read = request(disk, client.stream, &submission);
        if let Some(data) = client.read(&self.shards[shard as usize], shard, &range, work) {
            self.follow(client, shard, &read, prefetcher, work);
            return Ok(Submitted { shard, token: 0, outcome: Some(Outcome::Data(data)) });
        }
        let mut ahead = None;
        let submitted = self.with(shard, work, |core, now| {
            client.part(shard).report(core);
            let entry = core.waiters.vacant_entry();
            let token = entry.key();
            let read = Request { token: token as u64, ..read };
            let places = |bytes: Range<u64>| self.extents_of(shard, disk.volume, ahead.insert(bytes).clone());
            let reply = core.engine.read_ahead(now, read, prefetcher, span(client, &range), places)?.reply;
            let outcome = reply.map(|reply| reply.outcome);
            if outcome.is_none() {
                entry.insert(Waiting { waiter: waiter(), range });
            }
            Ok::<_, SubmitError>(Submitted { shard, token, outcome })
        })??;
        self.fetch_ahead(client, &read, ahead, Some(shard), work);
        Ok(submitted)
    }

    /// A read of `range`, within one extent, if all of it is in memory: its bytes and their shard. Otherwise it is no read, not even for `prefetcher`,
    /// which prefetches because of reads.
    pub(crate) fn read_hit(
        &self,
        client: &Client,
        range: Range<u64>,
        prefetcher: Option<&mut Prefetcher>,
        work: &mut Work,
    ) -> Result<Option<(u32, Outcome)>, SubmitError> {
        let disk = &client.disk;
        let shard = self.shard_of(disk.volume, range.start);
        let read = request(disk, client.stream, &Submission { op: Op::Read, range: range.clone(), fua: false });
        if let Some(data) = client.read(&self.shards[shard as usize], shard, &range, work) {
            if let Some(prefetcher) = prefetcher {
                self.follow(client, shard, &read, prefetcher, work);
            }
            return Ok(Some((shard, Outcome::Data(data))));
        }
        let mut ahead = None;
        let outcome = self.with(shard, work, |core, now| {
            client.part(shard).report(core);
            let outcome = core.engine.read_hit(now, &read)?;
            if let (Some(Outcome::Data(_)), Some(prefetcher)) = (&outcome, prefetcher) {
                let places = |bytes: Range<u64>| self.extents_of(shard, disk.volume, ahead.insert(bytes).clone());
                core.engine.follow(now, &read, false, prefetcher, &span(client, &range), places);
            }
            Ok::<_, SubmitError>(outcome)
        })??;
        self.fetch_ahead(client, &read, ahead, Some(shard), work);
        Ok(outcome.map(|outcome| (shard, outcome)))
    }

    /// Prefetches what `prefetcher` requests because of `read`, which was a hit without the lock of `shard`.
    fn follow(&self, client: &Client, shard: u32, read: &Request, prefetcher: &mut Prefetcher, work: &mut Work) {
        // Nothing is fetched in a poisoned shard.
        let limits = || {
            let limits = self.peek(shard, |core| {
                client.part(shard).report(core);
                core.engine.limits_ahead(read.volume)
            });
            limits.unwrap_or_default()
        };
        let span = span(client, &(read.offset..read.offset + read.length));
        let ahead = self.shards[shard as usize].published.wanted(prefetcher, &span, limits);
        self.fetch_ahead(client, read, ahead, None, work);
    }

    /// Prefetches `ahead` because of `read`, except in the shard `done`.
    fn fetch_ahead(
        &self,
        client: &Client,
        read: &Request,
        ahead: Option<Range<u64>>,
        done: Option<u32>,
        work: &mut Work,
    ) {
        for piece in ahead.into_iter().flat_map(|ahead| self.extents(ahead)) {
            let of = self.shard_of(read.volume, piece.start);
            if done != Some(of) {
                // It is a hint: blocks that are not prefetched are loaded when they are read.
                let _ = self.with(of, work, |core, now| {
                    client.part(of).report(core);
                    core.engine.fetch_ahead(now, read, piece);
                });
            }
        }
    }

    /// The parts of a range of `volume` that `shard` has.
    fn extents_of(&self, shard: u32, volume: Volume, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.extents(range).filter(move |piece| self.shard_of(volume, piece.start) == shard)
    }

    /// Flushes one shard of a disk.
    pub fn flush(
        &self,
        shard: u32,
        disk: &Disk,
        work: &mut Work,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<Submitted, SubmitError> {
        let submission = Submission { op: Op::Flush, range: 0..0, fua: false };
        let request = request(disk, Stream(0), &submission);
        self.submit_to(shard, None, request, work, waiter)
    }

    /// `range` will be read soon. A hint: its outcome is not reported.
    pub fn prefetch(&self, client: &Client, range: Range<u64>, work: &mut Work) {
        for range in self.extents(range) {
            if self.has_tenants {
                let (tenant, volume) = (client.disk.tenant, client.disk.volume);
                let _ = self.with(0, work, |core, _| core.engine.extend(tenant, volume, range));
                continue;
            }
            let replied = || unreachable!("a prefetch is answered at once");
            let _ = self.submit(client, Submission { op: Op::Prefetch, range, fua: false }, work, replied);
        }
    }

    /// The frames of a write are filled. In a poisoned shard its waiter already has a reply.
    pub fn commit(&self, shard: u32, mut fill: Fill, work: &mut Work) {
        fill.seal();
        let _ = self.with(shard, work, |core, now| core.engine.commit(now, fill));
    }

    /// The frames of a write will not be filled, and its waiter gets no reply.
    pub fn abort(&self, shard: u32, token: usize, fill: Fill, work: &mut Work) {
        let _ = self.with(shard, work, |core, now| {
            core.waiters.remove(token);
            core.engine.abort(now, fill);
        });
    }

    /// `range` split at the borders of extents.
    pub fn extents(&self, range: Range<u64>) -> impl ExactSizeIterator<Item = Range<u64>> + Clone + use<> {
        pieces(range, EXTENT_BYTES)
    }

    /// Waits, for a limited time, until the shard of `offset` may accept a request that it rejected as busy.
    pub fn wait_for_room(&self, disk: &Disk, offset: u64) {
        self.wait_for_room_in(self.shard_of(disk.volume, offset));
    }

    /// As `wait_for_room`.
    pub fn wait_for_room_in(&self, shard: u32) {
        let shard = &self.shards[shard as usize];
        let mut core = shard.core.lock();
        core.queueing += 1;
        shard.room.wait_for(&mut core, GLANCE);
        core.queueing -= 1;
    }

    /// The states of the blocks of `range`, which is within one extent: `report` is called for each block, with the end
    /// of the block.
    pub fn states(
        &self,
        disk: &Disk,
        range: Range<u64>,
        mut report: impl FnMut(u64, Presence),
    ) -> Result<(), Poisoned> {
        let shard = self.shard_of(disk.volume, range.start);
        self.survey(disk, range, |engine, blocks| {
            for block in blocks {
                let presence = match engine.state(disk.volume, block) {
                    BlockState::Dirty => Presence::Dirty,
                    BlockState::Clean => Presence::Clean,
                    BlockState::Absent => self.encoded(engine, shard, disk.volume, block),
                };
                report((block + 1) * BLOCK, presence);
            }
        })
    }

    /// Whether a block that is in no frame is encoded.
    fn encoded(&self, engine: &Engine, shard: u32, volume: Volume, block: u64) -> Presence {
        let Some(contents) = &self.contents else { return Presence::Absent };
        let place = engine.level_place(content::LEVEL, volume, block);
        place.map_or(Presence::Absent, |place| Presence::Encoded { is_shared: contents.is_shared(shard, place) })
    }

    /// Calls `report` with the start of each dirty block of `range`, which is within one extent, in order. Others cost nothing.
    pub fn dirty_blocks(&self, disk: &Disk, range: Range<u64>, mut report: impl FnMut(u64)) -> Result<(), Poisoned> {
        self.survey(disk, range, |engine, blocks| {
            engine.dirty_blocks(disk.volume, blocks).for_each(|block| report(block * BLOCK));
        })
    }

    /// `look` gets the engine of `range`, which is within one extent, and the blocks.
    fn survey(&self, disk: &Disk, range: Range<u64>, look: impl FnOnce(&Engine, Range<u64>)) -> Result<(), Poisoned> {
        let shard = self.shard_of(disk.volume, range.start);
        self.guarded(&mut self.shards[shard as usize].lock(), shard, |core| {
            look(&core.engine, range.start / BLOCK..range.end.div_ceil(BLOCK));
        })
    }

    /// The device flush of a shard is complete, and with it those of the shards that joined it. If it failed, no shard
    /// trusts the device by the time that a later flush begins.
    pub(crate) fn complete_flush(&self, flush: (u32, Operation), result: Result<(), Fault>, work: &mut Work) {
        let port = flush.1.port;
        let device = self.disks.device(port);
        let mut flushes = vec![flush];
        flushes.extend(device.take_joined());
        let shards: Vec<u32> = flushes.iter().map(|(shard, _)| *shard).collect();
        for (shard, operation) in flushes {
            // The waiters of a poisoned shard already have their replies.
            let _ = self.with(shard, work, |core, now| core.engine.complete(now, operation, result));
        }
        if let Err(fault) = result {
            for shard in (0..self.shards()).filter(|shard| !shards.contains(shard)) {
                // Nothing of a poisoned shard is acknowledged any more.
                let _ = self.with(shard, work, |core, now| core.engine.distrust(now, port, fault));
            }
        }
        let newly_lost = result.is_err_and(|fault| self.note_lost(&self.disks.of_port(port), fault, work));
        if !device.synced(result.is_err()) || newly_lost {
            return;
        }
        let disk = self.disks.of_port(port);
        match result {
            Ok(()) => tracing::info!(disk = disk.name(), "flushes of its device succeed again"),
            Err(fault) => tracing::warn!(
                disk = disk.name(),
                %fault,
                "its device failed a flush: what was written since the last good one is written again"
            ),
        }
    }
}

/// Whether a device has no room.
fn is_full(fault: Fault) -> bool {
    std::io::Error::from_raw_os_error(fault.0).kind() == std::io::ErrorKind::StorageFull
}

/// The position of a read of `range` of `disk`, for read-ahead.
fn span(client: &Client, range: &Range<u64>) -> Span {
    Span { file: 0, bytes: range.clone(), end: client.ahead_end().max(range.end) }
}

/// The engine's request of a submission, without a token.
#[inline]
fn request(disk: &Disk, stream: Stream, submission: &Submission) -> Request {
    let Submission { op, ref range, fua } = *submission;
    let (offset, length) = (range.start, range.end - range.start);
    Request { volume: disk.volume, tenant: disk.tenant, op, offset, length, fua, stream, token: 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::{DiskSettings, Host, HostError, Settings};

    const MIB: u64 = 1 << 20;

    fn start(target: &str, shards: usize) -> Host {
        let disk = DiskSettings::new("disk", target.parse().unwrap());
        let mut settings = Settings::new(64 * MIB, "lru".parse().unwrap(), vec![disk]);
        settings.shards = Some(shards);
        Host::start(settings).unwrap()
    }

    /// As an assertion of its engine that fails.
    fn fail(cache: &Cache, shard: u32) {
        let mut work = Work::default();
        let failed = cache.with(shard, &mut work, |_, _| panic!("induced"));
        cache.dispatch(&mut work, None);
        assert_eq!(failed.err(), Some(Poisoned { shard }));
    }

    /// Dirty blocks that do not fit in a smaller cache are written after the change; their frames are returned then.
    #[test]
    fn frames_that_are_freed_after_a_change_are_given_back() {
        let host = start("delay:200ms:memory:16M", 1);
        let session = host.open("disk").unwrap();
        // More blocks than there are spare frames.
        session.write(0, &[1; 4 << 20], false).unwrap();
        let cache = host.cache();
        cache.change(Vec::new(), 1).unwrap().unwrap();
        let begin = Instant::now();
        let waits = || cache.gauges().dirty > 0 || cache.peek(0, |core| core.engine.has_surplus()).unwrap();
        assert!(waits(), "nothing is left to be written");
        // It would wake for the age of dirty blocks; now it knows nothing to wait for.
        cache.timer.wake();
        while waits() {
            assert!(begin.elapsed() < Duration::from_secs(20), "frames are kept");
            std::thread::sleep(Duration::from_millis(5));
        }
        host.shut_down().unwrap();
    }

    /// Hits are read without a shard's lock, with and without read-ahead.
    #[test]
    fn a_thousand_hits_lock_a_shard_20_times_at_most() {
        const BLOCKS: u64 = 512;
        for (policy, readahead) in [("lirs", "none"), ("lirs", "auto"), ("clock", "auto"), ("s3-fifo", "linux")] {
            let disk = DiskSettings::new("disk", "memory:2M".parse().unwrap());
            let mut settings = Settings::new(16 * MIB, policy.parse().unwrap(), vec![disk]);
            settings.readahead = readahead.parse().unwrap();
            let host = Host::start(settings).unwrap();
            let session = host.open("disk").unwrap();
            let mut block = [0; 4096];
            let mut read = |at: u64| session.read(at * 4096, &mut block).unwrap();
            // Loaded, and then used for the first time, which publishes them.
            (0..3).for_each(|_| (0..BLOCKS).for_each(&mut read));
            let before = host.cache().acquisitions();
            (0..1000).for_each(|at| read(at * 7919 % BLOCKS));
            let locked = host.cache().acquisitions() - before;
            assert!(locked <= 20, "{policy}, {readahead}: {locked}");
            host.shut_down().unwrap();
        }
    }

    /// Holds the lock of a shard, and sends to `held`, until the sender of `until` is dropped.
    fn hold(cache: &Cache, held: Sender<()>, until: Receiver<()>) {
        let hold = |_: &mut Core| {
            held.send(()).unwrap();
            let _ = until.recv();
        };
        cache.peek(0, hold).unwrap();
    }

    #[test]
    fn a_hit_waits_for_no_lock() {
        let host = start("memory:64M", 1);
        let session = host.open("disk").unwrap();
        let mut block = [0; 4096];
        (0..2).for_each(|_| session.read(0, &mut block).unwrap());
        std::thread::scope(|scope| {
            let (go_on, wait) = channel::<()>();
            let (held, holds) = channel();
            scope.spawn(|| hold(host.cache(), held, wait));
            holds.recv().unwrap();
            let (read, is_read) = channel();
            let (session, block) = (&session, &mut block);
            scope.spawn(move || read.send(session.read(0, block)).unwrap());
            let result = is_read.recv_timeout(Duration::from_secs(10));
            drop(go_on);
            assert_eq!(result, Ok(Ok(())), "it waits for a lock");
        });
        host.shut_down().unwrap();
    }

    #[test]
    fn a_disk_is_not_found_before_it_is_open() {
        let host = start("memory:1M", 1);
        std::thread::scope(|scope| {
            let (go_on, wait) = channel::<()>();
            let (held, holds) = channel();
            // Nothing can be opened while a shard is locked.
            scope.spawn(|| hold(host.cache(), held, wait));
            holds.recv().unwrap();
            let adding = scope.spawn(|| host.add(DiskSettings::new("new", "memory:1M".parse().unwrap())));
            while !host.cache().disks.is_taken("new") {
                std::thread::yield_now();
            }
            assert_eq!(host.open("new").err(), Some(HostError::NoDisk("new".into())));
            drop(go_on);
            adding.join().unwrap().unwrap();
        });
        host.open("new").unwrap().read(0, &mut [0; 4096]).unwrap();
    }

    #[test]
    fn an_assertion_that_fails_poisons_its_shard_alone() {
        let (host, other) = (start("memory:64M", 4), start("memory:1M", 1));
        let session = host.open("disk").unwrap();
        let cache = host.cache();
        let of =
            |shard| (0..64).map(|at| at * EXTENT_BYTES).find(|at| cache.shard_of(Volume(0), *at) == shard).unwrap();
        let (broken, whole) = (of(2), of(1));
        session.write(broken, &[1; 4096], false).unwrap();
        session.write(whole, &[2; 4096], false).unwrap();
        fail(cache, 2);
        let poisoned = Err(HostError::Poisoned(Poisoned { shard: 2 }));
        let mut block = [0; 4096];
        assert_eq!(session.read(broken, &mut block), poisoned);
        assert_eq!(session.write(broken, &block, false), poisoned);
        assert_eq!(session.flush(), poisoned);
        session.read(whole, &mut block).unwrap();
        assert_eq!(block, [2; 4096]);
        let (done, result) = channel();
        session.read_then(broken..broken + 4096, move |read| done.send(read).unwrap());
        assert_eq!(result.recv().unwrap().map(|_| ()), poisoned);
        assert!(host.statistics().1[0].hits > 0);
        let unwritten = host.shut_down().unwrap_err();
        assert_eq!(unwritten[0].cause, HostError::Poisoned(Poisoned { shard: 2 }));
        other.open("disk").unwrap().read(0, &mut block).unwrap();
        other.shut_down().unwrap();
    }

    #[test]
    fn a_disk_of_a_poisoned_shard_can_be_removed_with_discard() {
        let host = start("memory:64M", 4);
        let session = host.open("disk").unwrap();
        let of = |shard| (0..64).map(|at| at * EXTENT_BYTES).find(|at| host.cache().shard_of(Volume(0), *at) == shard);
        let (broken, whole) = (of(2).unwrap(), of(3).unwrap());
        [broken, whole].into_iter().for_each(|at| session.write(at, &[1; 4096], false).unwrap());
        fail(host.cache(), 2);
        assert!(host.remove("disk", false).unwrap_err().to_string().contains("disk"));
        // It is as it was, in all shards that can be used.
        let mut block = [0; 4096];
        host.open("disk").unwrap().read(whole, &mut block).unwrap();
        assert_eq!(block, [1; 4096]);
        host.remove("disk", true).unwrap();
        assert_eq!(host.open("disk").err(), Some(HostError::NoDisk("disk".into())));
        assert_eq!(session.read(whole, &mut block), Err(HostError::Closed));
    }

    #[test]
    fn requests_in_progress_in_a_poisoned_shard_end() {
        let host = start("delay:100ms:memory:64M", 1);
        let session = host.open("disk").unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| session.read(0, &mut [0; 4096]));
            while host.cache().gauges().loading == 0 {
                std::thread::yield_now();
            }
            fail(host.cache(), 0);
            assert_eq!(reading.join().unwrap(), Err(HostError::Poisoned(Poisoned { shard: 0 })));
        });
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
