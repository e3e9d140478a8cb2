//! The thread of a queue: takes requests, submits them to the cache, and commits those that are over.
//!
//! 1. A turn takes up to [`BATCH`] requests. Hits are copied from the frames to the request at once. Other requests are over later: their
//!    slots are in the mail then.
//! 2. At the end of a turn, the work for other threads is done. Then the requests that are over are committed, by one call for all, which also waits for the
//!    next ones if none is there.
//! 3. The thread sleeps until the kernel has a request or another thread wakes it.
//!
//! **Only this thread gives commands to the driver**, which belongs to the driver's rules.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use nigh_engine::{Op, Refusal};
use nigh_host::SubmitError;
use nigh_host::front::{Ahead, Cache, Client, Disk, Measure, PIECE, Submission, Submitted, Waiter, Work, pieces};
use nigh_policy::Stream as Source;
use nigh_service::WriteMode;
use nigh_service::front::{Asked, Export, Mail, Recorder, Stream};
use nigh_trace::Op as Recorded;
use rustix::io::Errno;

use crate::commands::{Broken, Commands};
use crate::kernel::{Completion, Descriptors, Ring};
use crate::request::{Descriptor, Operation};
use crate::slot::{Ended, Over, Slot};

/// Requests of a turn.
const BATCH: usize = 64;
/// How long a thread waits for events that may not be signalled.
const GLANCE: Duration = Duration::from_millis(100);

/// State that the queues of a device share.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) export: Arc<Export>,
    /// The number of the connection.
    pub(crate) id: u64,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) stream: Option<Arc<Stream>>,
    /// The character device.
    pub(crate) device: Arc<File>,
    /// Acknowledged writes survive the end of the process: they are on the disk before that, whatever the export's present write mode.
    pub(crate) survives: bool,
}

impl Common {
    fn disk(&self) -> &Disk {
        &self.export.disk
    }

    fn is_cut_off(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_cut_off())
    }

    /// Whether a write has to be stable before it is acknowledged although the kernel does not ask for that.
    fn is_hurried(&self) -> bool {
        let settings = || self.disk().settings();
        self.survives
            && !self.disk().read_only()
            && settings().write_log.is_none()
            && settings().write_mode != WriteMode::Through
    }
}

/// Why the thread of a queue ended before its device did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueueError {
    #[error(transparent)]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Requests of a queue in progress.
pub(crate) struct Requests {
    common: Arc<Common>,
    mail: Arc<Mail<Over>>,
    slots: Vec<Arc<Slot>>,
    client: Client,
    ahead: Ahead,
    work: Work,
    /// To be committed.
    over: Vec<Over>,
    /// Has been asked for by the last turn.
    in_progress: usize,
    is_hurried: bool,
    looked_at: Option<Instant>,
}

/// How a thread waits within a request: for at most the given time. Returns false if the request must not be made.
pub(crate) type Rest<'a> = dyn FnMut(&mut Requests, Duration) -> bool + 'a;

impl Requests {
    /// Of a queue of this depth.
    pub(crate) fn new(common: &Arc<Common>, mail: &Arc<Mail<Over>>, queue: u16, depth: u16) -> Requests {
        let Common { cache, export, id, device, .. } = &**common;
        Requests {
            mail: mail.clone(),
            slots: (0..depth).map(|tag| Arc::new(Slot::new(queue, tag, device, cache, mail))).collect(),
            client: cache.client(&export.disk, Source(*id)),
            ahead: Ahead::new(cache.readahead()),
            work: Work::default(),
            over: Vec::with_capacity(depth.into()),
            in_progress: 0,
            is_hurried: false,
            looked_at: None,
            common: common.clone(),
        }
    }

    /// Requests that have begun and are not committed.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// Does the work for other threads, and calls `commit` for each request that is over.
    pub(crate) fn publish(&mut self, mut commit: impl FnMut(u16, i32)) {
        loop {
            self.common.cache.dispatch(&mut self.work, Some(&*self.mail));
            self.mail.take(&mut self.over);
            if !self.over.iter().any(|over| matches!(over, Over::Deserted { .. })) {
                break;
            }
            for over in std::mem::take(&mut self.over) {
                let over = match over {
                    Over::Deserted { tag, start, shard, fill } => {
                        self.slots[usize::from(tag)].clone().abort(start, shard, fill, &mut self.work)
                    }
                    over => Some(over),
                };
                self.over.extend(over);
            }
        }
        if self.over.is_empty() {
            return;
        }
        let now = Instant::now();
        let Common { recorder, id, .. } = &*self.common;
        for over in self.over.drain(..) {
            let Over::Request(Ended { tag, result, measure }) = over else { continue };
            self.in_progress -= 1;
            commit(tag, result);
            if let Some((measure, asked)) = measure {
                let latency = now.saturating_duration_since(asked.since);
                self.common.disk().measure(measure, latency);
                recorder.record(self.common.disk(), *id, &asked, latency);
            }
        }
    }

    /// The export's settings, at most every 100 ms: they are behind a lock.
    fn look_at_settings(&mut self, now: Instant) {
        if self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= GLANCE) {
            self.looked_at = Some(now);
            self.is_hurried = self.common.is_hurried();
        }
    }

    /// The error of a request that fails at once.
    fn refusal(&self, operation: &Operation) -> Option<Errno> {
        let (range, writes) = match operation {
            Operation::Unsupported => return Some(Errno::OPNOTSUPP),
            Operation::Read(range) => (range.clone(), false),
            Operation::Write { range, .. } | Operation::Discard(range) | Operation::Zeroes { range, .. } => {
                (range.clone(), true)
            }
            Operation::Flush => (0..0, false),
        };
        let disk = self.common.disk();
        let fails = self.common.is_cut_off() || range.end > disk.size() || writes && disk.read_only();
        fails.then_some(Errno::IO)
    }

    /// Begins the request of `tag`, which was received at `since`.
    pub(crate) fn begin(&mut self, tag: u16, descriptor: Descriptor, since: Instant, rest: &mut Rest<'_>) {
        self.in_progress += 1;
        self.look_at_settings(since);
        let slot = self.slots[usize::from(tag)].clone();
        let operation = descriptor.operation();
        if let Some(error) = self.refusal(&operation) {
            slot.begin(0, 0, 1, None);
            self.over.extend(slot.refuse(error));
            return;
        }
        let (op, range, has_data, fua, measure, recorded) = match operation {
            Operation::Read(range) => (Op::Read, range, true, false, Measure::Hit, Recorded::Read),
            Operation::Write { range, fua } => (Op::Write, range, true, fua, Measure::Write, Recorded::Write),
            Operation::Discard(range) => (Op::Trim, range, false, false, Measure::Write, Recorded::Trim),
            Operation::Zeroes { range, keep, fua } => {
                (Op::Zeroes { keep, fast: false }, range, false, fua, Measure::Write, Recorded::Write)
            }
            Operation::Flush => (Op::Flush, 0..0, false, false, Measure::Flush, Recorded::Flush),
            Operation::Unsupported => unreachable!("it was refused"),
        };
        let length = range.end - range.start;
        let mut asked = Asked::new(recorded, range.start, length, since);
        if self.common.disk().is_throttled() {
            let of_rate = if matches!(op, Op::Trim | Op::Flush) { 0 } else { length };
            if !self.wait_for_turn(of_rate, rest) {
                slot.begin(0, 0, 1, None);
                self.over.extend(slot.refuse(Errno::IO));
                return;
            }
            asked = asked.with_turn(Instant::now());
        }
        let (bytes, measure) = (if has_data { length } else { 0 }, Some((measure, asked)));
        let fua = fua || self.is_hurried && op != Op::Read;
        match op {
            Op::Flush => {
                let shards = self.common.cache.shards();
                slot.begin(0, 0, shards as usize, measure);
                for shard in 0..shards {
                    self.submit_flush(&slot, shard, rest);
                }
            }
            _ if range.is_empty() => {
                slot.begin(0, 0, 1, measure);
                self.over.extend(slot.refuse(Errno::IO));
            }
            Op::Read | Op::Write => {
                let pieces = pieces(range.clone(), PIECE);
                slot.begin(range.start, bytes, pieces.len(), measure);
                for piece in pieces {
                    self.submit(&slot, op, piece, fua, rest);
                }
            }
            _ => {
                let extents = self.common.cache.extents(range.clone());
                slot.begin(range.start, 0, extents.len(), measure);
                for extent in extents {
                    self.submit(&slot, op, extent, fua, rest);
                }
            }
        }
    }

    /// Waits until a request of this many bytes is within the export's rates; returns false if it must not be made.
    fn wait_for_turn(&mut self, bytes: u64, rest: &mut Rest<'_>) -> bool {
        let common = self.common.clone();
        let waker = Waker::from(Arc::new(WakeMail(self.mail.clone())));
        common.disk().wait_for_turn(bytes, &waker, |left| rest(self, left.min(GLANCE)))
    }

    fn submit(&mut self, slot: &Arc<Slot>, op: Op, range: Range<u64>, fua: bool, rest: &mut Rest<'_>) {
        loop {
            let (cache, client, work) = (&self.common.cache, &self.client, &mut self.work);
            let submission = Submission { op, range: range.clone(), fua };
            let waiter = || {
                slot.wait();
                slot.clone() as Arc<dyn Waiter>
            };
            match cache.submit_ahead(client, submission, &mut self.ahead, work, waiter) {
                Ok(Submitted { shard, token, outcome }) => {
                    if op == Op::Write {
                        slot.note_token(range.start, token);
                    }
                    if let Some(outcome) = outcome {
                        self.over.extend(slot.take(shard, &range, outcome, work));
                    }
                    return;
                }
                Err(error) => {
                    let start = range.start;
                    if !self.may_retry(error, |cache, disk| cache.wait_for_room(disk, start), rest) {
                        self.over.extend(slot.refuse(Errno::IO));
                        return;
                    }
                }
            }
        }
    }

    fn submit_flush(&mut self, slot: &Arc<Slot>, shard: u32, rest: &mut Rest<'_>) {
        loop {
            let waiter = || slot.clone() as Arc<dyn Waiter>;
            let Common { cache, export, .. } = &*self.common;
            match cache.flush(shard, &export.disk, &mut self.work, waiter) {
                Ok(Submitted { outcome: Some(outcome), .. }) => {
                    self.over.extend(slot.take(shard, &(0..0), outcome, &mut self.work));
                    return;
                }
                Ok(_) => return,
                Err(error) => {
                    if !self.may_retry(error, |cache, _| cache.wait_for_room_in(shard), rest) {
                        self.over.extend(slot.refuse(Errno::IO));
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a submission that was refused can be tried again; returns false if it cannot.
    fn may_retry(&mut self, error: SubmitError, wait: impl FnOnce(&Cache, &Disk), rest: &mut Rest<'_>) -> bool {
        match error {
            SubmitError::Refused(Refusal::Busy) => {
                let may = rest(self, Duration::ZERO);
                wait(&self.common.cache, self.common.disk());
                may
            }
            SubmitError::Refused(Refusal::NoVolume) => {
                rest(self, Duration::ZERO) && self.common.disk().wait_for_opening_within(GLANCE) != Some(false)
            }
            // The disk has become shorter, or an engine failed.
            _ => false,
        }
    }
}

/// Wakes the thread of a queue whose request may go.
struct WakeMail(Arc<Mail<Over>>);

impl std::task::Wake for WakeMail {
    fn wake(self: Arc<Self>) {
        self.0.wake.raise();
    }
}

/// The thread of a queue.
pub(crate) struct Worker {
    mail: Arc<Mail<Over>>,
    ring: Ring,
    commands: Commands,
    descriptors: Descriptors,
    requests_max: Arc<Export>,
    /// Requests that have not begun.
    pending: VecDeque<u16>,
    /// The ring watches the mail's signal.
    is_watching: bool,
    broken: Option<QueueError>,
}

impl Worker {
    /// Begins the queue on this thread, which has to run it: its commands are with the driver.
    pub(crate) fn begin(common: &Common, mail: &Arc<Mail<Over>>, queue: u16, depth: u16) -> Result<Worker, QueueError> {
        let mut ring = Ring::new(&common.device, queue, depth)?;
        let descriptors = Descriptors::map(&common.device, queue, depth)?;
        let (commands, fetches) = Commands::new(depth);
        fetches.for_each(|command| ring.command(command));
        ring.enter(false, None)?;
        Ok(Worker {
            mail: mail.clone(),
            ring,
            commands,
            descriptors,
            requests_max: common.export.clone(),
            pending: VecDeque::with_capacity(depth.into()),
            is_watching: false,
            broken: None,
        })
    }

    /// Serves the queue until it is to stop and no request is in progress, or its device ends. Requests that have not begun are left to the
    /// next server.
    pub(crate) fn run(mut self, requests: &mut Requests) -> Result<(), QueueError> {
        loop {
            self.collect();
            let is_stopping = self.mail.is_stopping() || self.broken.is_some();
            let mut since = None;
            let mut taken = 0;
            while taken < BATCH
                && !is_stopping
                && requests.in_progress() < self.requests_max.requests_max()
                && let Some(tag) = self.pending.pop_front()
            {
                taken += 1;
                let descriptor = self.descriptors.get(tag);
                let since = *since.get_or_insert_with(Instant::now);
                requests.begin(tag, descriptor, since, &mut |requests, most| self.rest(requests, most));
            }
            self.publish(requests);
            if requests.in_progress() == 0 && (is_stopping || self.commands.is_over() && self.pending.is_empty()) {
                // Their results reach the kernel before this thread ends.
                let entered = self.ring.enter(false, None);
                return self.broken.map_or(Ok(entered?), Err);
            }
            // The call that waits also gives the results to the driver.
            let waits = self.pending_waits(requests) && self.mail.may_sleep(is_stopping);
            self.enter(waits, None);
            self.mail.awake();
        }
    }

    /// Whether no request that came can begin now.
    fn pending_waits(&self, requests: &Requests) -> bool {
        self.pending.is_empty() || self.mail.is_stopping() || requests.in_progress() >= self.requests_max.requests_max()
    }

    fn enter(&mut self, wait: bool, most: Option<Duration>) {
        if wait && !self.is_watching {
            self.is_watching = true;
            self.ring.watch(self.mail.wake.as_fd());
        }
        if let Err(error) = self.ring.enter(wait, most) {
            self.broken.get_or_insert(error.into());
            // Requests in progress are still waited for.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes completions.
    fn collect(&mut self) {
        while let Some(completion) = self.ring.next() {
            match completion {
                Completion::Woken => {
                    self.is_watching = false;
                    self.mail.wake.clear();
                }
                Completion::Tag(tag, result) => match self.commands.complete(tag, result) {
                    Ok(true) => self.pending.push_back(tag),
                    Ok(false) => {}
                    Err(broken) => {
                        self.broken.get_or_insert(broken.into());
                    }
                },
            }
        }
    }

    /// Commits the requests that are over.
    fn publish(&mut self, requests: &mut Requests) {
        requests.publish(|tag, result| self.ring.command(self.commands.commit(tag, result)))
    }

    /// Waits within a request.
    fn rest(&mut self, requests: &mut Requests, most: Duration) -> bool {
        self.collect();
        self.publish(requests);
        let waits = !most.is_zero() && self.mail.may_sleep(true);
        self.enter(waits, Some(most));
        self.mail.awake();
        self.collect();
        self.publish(requests);
        self.broken.is_none() && !self.commands.is_over()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use nigh_service::{ExportOptions, ExportSettings, Service, Settings};

    use super::*;
    use crate::kernel::place;

    const SIZE: u64 = 4 << 20;
    const DEPTH: u16 = 4;
    const BLOCK: usize = 4096;

    /// A queue without a driver: its character device is a file, which has requests' data where the driver has it.
    struct Dry {
        service: Service,
        data: File,
        common: Arc<Common>,
        requests: Requests,
    }

    impl Dry {
        fn new(options: &str, survives: bool, open: &OpenOptions) -> Dry {
            let mut export = ExportSettings::new("disk", "memory:4M".parse().unwrap());
            let mut wanted = ExportOptions::default();
            if !options.is_empty() {
                wanted.add_all(options).unwrap();
            }
            wanted.apply(&mut export);
            let service = Service::start(Settings::new(16 << 20, "lirs".parse().unwrap(), vec![export])).unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            let device = Arc::new(open.open(file.path()).unwrap());
            let common = Arc::new(Common {
                cache: service.host().cache().clone(),
                export: service.export("disk").unwrap(),
                id: 0,
                recorder: service.recorder().clone(),
                stream: None,
                device,
                survives,
            });
            let mail = Arc::new(Mail::new(DEPTH.into()).unwrap());
            let requests = Requests::new(&common, &mail, 0, DEPTH);
            Dry { service, data: file.into_file(), common, requests }
        }

        fn usual() -> Dry {
            Dry::new("", false, OpenOptions::new().read(true).write(true))
        }

        /// The result of a request of tag 1.
        fn ask(&mut self, op_flags: u32, start: u64, sectors: u32) -> i32 {
            self.requests.begin(1, Descriptor { op_flags, sectors, start }, Instant::now(), &mut |_, _| true);
            let mut result = None;
            while self.requests.in_progress() > 0 {
                self.requests.publish(|tag, with| {
                    assert_eq!(tag, 1);
                    result = Some(with);
                });
            }
            result.unwrap()
        }

        fn write(&mut self, start: u64, bytes: &[u8]) -> i32 {
            self.data.write_all_at(bytes, place(0, 1)).unwrap();
            self.ask(1, start, (bytes.len() / 512) as u32)
        }

        fn read(&mut self, start: u64, bytes: usize) -> Vec<u8> {
            let mut data = vec![0xee; bytes];
            self.data.write_all_at(&data, place(0, 1)).unwrap();
            assert_eq!(self.ask(0, start, (bytes / 512) as u32), bytes as i32);
            self.data.read_exact_at(&mut data, place(0, 1)).unwrap();
            data
        }
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
    }

    const IO: i32 = -5;
    const UNSUPPORTED: i32 = -95;
    const SECTORS: u64 = SIZE / 512;

    #[test]
    fn data_is_written_and_read() {
        let mut dry = Dry::usual();
        for (start, bytes) in [(8, BLOCK), (1, 512), (3, 5 * 512), (8 * 60 + 5, 1 << 20), (SECTORS - 2048, 1 << 20)] {
            let data = pattern(bytes);
            assert_eq!(dry.write(start, &data), bytes as i32);
            assert!(dry.read(start, bytes) == data, "{bytes} at {start}");
        }
        assert_eq!(dry.ask(2, 0, 0), 0);
        dry.service.shut_down().unwrap();
    }

    #[test]
    fn discards_and_zeroes_leave_zeros() {
        for op in [3, 5, 5 | 1 << 15, 5 | 1 << 13] {
            let mut dry = Dry::usual();
            dry.write(0, &pattern(1 << 20));
            assert_eq!(dry.ask(op, 8, 1024), 0);
            let left = dry.read(0, 1 << 20);
            assert!(left[BLOCK..BLOCK + 1024 * 512].iter().all(|byte| *byte == 0), "operation {op}");
            assert!(
                left[..BLOCK] == pattern(BLOCK) && left[BLOCK + 1024 * 512..] == pattern(1 << 20)[BLOCK + 1024 * 512..]
            );
            dry.service.shut_down().unwrap();
        }
    }

    #[test]
    fn requests_that_cannot_be_fail() {
        let mut dry = Dry::usual();
        for (op, start, sectors, error) in [
            (0, SECTORS, 1, IO),
            (1, SECTORS - 1, 2, IO),
            (3, SECTORS - 1, 2, IO),
            (0, 0, 0, IO),
            (4, 0, 8, UNSUPPORTED),
            (0, u64::MAX, 8, UNSUPPORTED),
        ] {
            assert_eq!(dry.ask(op, start, sectors), error, "operation {op} at {start}");
        }
        dry.service.shut_down().unwrap();
        let mut dry = Dry::new("read-only=yes", false, OpenOptions::new().read(true).write(true));
        for (op, result) in [(0, 4096), (1, IO), (3, IO), (5, IO), (2, 0)] {
            assert_eq!(dry.ask(op, 0, 8), result, "operation {op}");
        }
        dry.service.shut_down().unwrap();
    }

    /// The kernel ends a write that the server has: its data is not to be had any more.
    #[test]
    fn a_write_without_data_changes_nothing() {
        let mut dry = Dry::new("", false, OpenOptions::new().write(true));
        assert_eq!(dry.write(0, &pattern(1 << 20)), IO);
        let session = dry.service.host().open("disk").unwrap();
        let mut data = vec![1; 1 << 20];
        session.read(0, &mut data).unwrap();
        assert!(data.iter().all(|byte| *byte == 0));
        // Its frames are free again.
        for _ in 0..64 {
            assert_eq!(dry.write(0, &pattern(1 << 20)), IO);
        }
        session.write(0, &pattern(4096), false).unwrap();
        drop(session);
        dry.service.shut_down().unwrap();
    }

    #[test]
    fn a_read_without_a_place_fails() {
        let mut dry = Dry::new("", false, OpenOptions::new().read(true));
        assert_eq!(dry.ask(0, 0, 8), IO);
        dry.service.shut_down().unwrap();
    }

    /// A device that was promised to survive keeps that promise when the export's write mode changes.
    #[test]
    fn a_promise_outlives_the_write_mode() {
        for (options, survives, hurried) in
            [("", true, true), ("", false, false), ("write-mode=through", true, false), ("read-only=yes", true, false)]
        {
            let dry = Dry::new(options, survives, OpenOptions::new().read(true).write(true));
            assert_eq!(dry.common.is_hurried(), hurried, "{options} {survives}");
            dry.service.shut_down().unwrap();
        }
        let mut dry = Dry::new("write-mode=through", true, OpenOptions::new().read(true).write(true));
        dry.write(0, &pattern(BLOCK));
        let mut options = ExportOptions::default();
        options.add_all("write-mode=back").unwrap();
        dry.service.set("disk", &options).unwrap();
        std::thread::sleep(GLANCE);
        dry.write(8, &pattern(BLOCK));
        assert_eq!(dry.service.statistics().exports[0].disk.dirty_bytes, 0);
        dry.service.shut_down().unwrap();
    }

    #[test]
    fn hits_allocate_nothing() {
        let mut dry = Dry::usual();
        for at in 0..1024 {
            dry.ask(0, at * 8, 8);
        }
        let counted = allocation_counter::measure(|| {
            for at in 0..1000 {
                dry.ask(0, at * 8, 8);
            }
        });
        assert_eq!(counted.count_total, 0);
        dry.service.shut_down().unwrap();
    }
}
