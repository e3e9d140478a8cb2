//! A connection: negotiation and requests, on a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use nigh_backend::Signal;
use nigh_engine::{Fill, Op, Outcome, Refusal};
use nigh_host::front::{Ahead, Cache, Client, Measure, PIECE, STEP, Submission, Submitted, Waiter, Work, pieces};
use nigh_host::{BLOCK, SubmitError};
use nigh_nbd::{Command, Errno, Event, Framing, Request, Transmission};
use nigh_policy::Stream as Source;
use nigh_service::front::{Asked, Guest, Stream};
use nigh_trace::Op as Recorded;

use crate::error::Ended;
use crate::input::{BUFFER, Input, Loan, PATIENCE_FRAMES};
use crate::job::{Frames, Job, Kind};
use crate::link::{self, Data, Link, Reply};
use crate::negotiate::negotiate;
use crate::patience::{PATIENCE, RATE_MIN};
use crate::status;

/// Replies that are sent together at most, in bytes and in number.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_REPLIES: usize = 64;
/// Requests above this many bytes check first that the client is still connected.
const LONG: u64 = 64 << 20;
/// Extents of a trim or of zeroes that are still in progress when the next step begins.
const OVERLAP: usize = 32;
/// Pause after frames had to wait for a client, during which none do.
const SLOW: Duration = Duration::from_secs(1);
/// How often memory for a collected read is asked for again.
const HEAP_GLANCE: Duration = Duration::from_millis(10);
/// Interval after which slow clients of other exports have to leave for it, each time.
const HEAP_DEMAND: Duration = Duration::from_millis(500);

/// Serves a client until it leaves or its stream is shut down.
pub(crate) fn serve(guest: &Guest<'_>) -> Result<(), Ended> {
    let (stream, cache) = (guest.stream(), guest.host().cache());
    let Some(mut session) = Connection::begin(stream.clone(), cache, guest)? else { return Ok(()) };
    let run = catch_unwind(AssertUnwindSafe(|| {
        let result = session.run();
        session.send();
        result
    }));
    let result = run.unwrap_or(Err(Ended::Panic));
    match result {
        Ok(()) => {
            session.link.finish();
            stream.say_goodbye();
        }
        // Some of this may be for other clients.
        Err(Ended::Panic) => cache.dispatch(&mut session.work, None),
        Err(_) => {}
    }
    session.link.close();
    session.collected.iter().filter_map(Weak::upgrade).for_each(|job| job.give_back());
    result
}

/// The data of a write request, on its way.
struct Payload {
    bytes: u64,
    /// How long they may still be waited for; set when they are.
    left: Option<Duration>,
}

impl Payload {
    fn left(&mut self) -> &mut Duration {
        self.left.get_or_insert(PATIENCE + Duration::from_secs(self.bytes / RATE_MIN))
    }
}

/// A connection in the transmission phase.
struct Connection {
    input: Input,
    transmission: Transmission,
    cache: Arc<Cache>,
    link: Arc<Link>,
    /// Replies that were made here and not yet queued.
    batch: VecDeque<Reply>,
    batch_bytes: usize,
    work: Work,
    /// When the request that is looked at was received.
    since: Instant,
    /// When its turn came, if it waited for the rates of the export.
    its_turn: Option<Instant>,
    /// Wakes this thread when a throttled request may go. Most connections never need it.
    turn: Option<(Arc<Signal>, Waker)>,
    /// The client let frames wait: it gets none before its data are there, for this time.
    slow_until: Option<Instant>,
    /// This client's reads, and the reads ahead that follow from them.
    ahead: Ahead,
    /// Its stream is the number of the connection.
    client: Client,
    /// Reads that are collected.
    collected: Vec<Weak<Job>>,
}

impl Connection {
    /// Negotiates; none if the client leaves.
    fn begin(stream: Arc<Stream>, cache: &Arc<Cache>, guest: &Guest<'_>) -> Result<Option<Connection>, Ended> {
        stream.set_patience(PATIENCE, link::GLANCE)?;
        let mut input = Input::new(stream.clone());
        let Some((transmission, export)) = negotiate(&mut input, guest)? else { return Ok(None) };
        stream.set_patience(PATIENCE_FRAMES, link::GLANCE)?;
        input.patience = PATIENCE;
        let recorder = (guest.id, guest.recorder().clone());
        let client = cache.client(&export.disk, Source(guest.id));
        let link = Link::new(stream, transmission.framing(), export, cache.clone(), recorder);
        Ok(Some(Connection {
            input,
            transmission,
            cache: cache.clone(),
            link,
            batch: VecDeque::new(),
            batch_bytes: 0,
            work: Work::default(),
            since: Instant::now(),
            its_turn: None,
            turn: None,
            // Until it has shown that it is not: otherwise, who connects again and again would have frames each time.
            slow_until: Some(Instant::now() + SLOW),
            ahead: Ahead::new(cache.readahead()),
            client,
            collected: Vec::new(),
        }))
    }

    fn run(&mut self) -> Result<(), Ended> {
        loop {
            self.transmission.resize(self.link.disk().size());
            self.transmission.set_read_only(self.link.disk().read_only());
            if self.input.stream.is_cut_off() {
                return Ok(());
            }
            let (used, event) = self.transmission.step(self.input.bytes())?;
            self.input.start += used;
            match event {
                Event::Need(_) => {
                    self.send();
                    let middle = !self.input.bytes().is_empty();
                    match self.input.receive() {
                        Ok(true) => {}
                        Ok(false) => return Ok(()),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && !middle => self.input.shrink(),
                        Err(error) => return Err(error.into()),
                    }
                }
                Event::Request(request) => {
                    self.since = self.input.arrival();
                    self.its_turn = None;
                    let may_go = match request.command {
                        Command::Read { .. } | Command::Write { .. } => self.wait_for_turn(request.length)?,
                        Command::Flush | Command::BlockStatus { .. } => self.wait_for_turn(0)?,
                        // Each of their steps waits.
                        Command::Cache | Command::Trim { .. } | Command::WriteZeroes { .. } => true,
                    };
                    if !may_go {
                        return Ok(());
                    }
                    self.request(&request)?;
                }
                Event::Refused { tag, errno } => {
                    self.admit(1, 0);
                    let head = Some(self.link.framing.error(tag, errno));
                    self.reply(Reply { head, ends: true, ..Reply::default() });
                }
                Event::Disconnect => return Ok(()),
            }
            if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_REPLIES {
                self.send();
            }
        }
    }

    /// Does what calls brought about, and sends what is queued for this client.
    fn send(&mut self) {
        self.send_for(true);
    }

    /// As `send`, without a wait for the client: it may have frames that others need.
    fn queue(&mut self) {
        self.send_for(false);
    }

    fn send_for(&mut self, glance: bool) {
        self.cache.dispatch(&mut self.work, Some(&*self.link));
        self.link.send_batch(&mut self.batch, glance, &mut self.work);
        self.batch_bytes = 0;
        self.cache.dispatch(&mut self.work, Some(&*self.link));
    }

    /// Queues the reply of a request that was admitted.
    fn reply(&mut self, reply: Reply) {
        self.batch_bytes += reply.bytes;
        self.batch.push_back(reply);
    }

    /// Has the connection take another request with this many bytes of data in its reply, when there is room.
    fn admit(&mut self, requests: usize, bytes: usize) {
        if !self.link.try_admit(requests, bytes) {
            self.send();
            self.link.admit(requests, bytes);
        }
    }

    /// Waits until a request of this many bytes is within the export's rates; returns false if the client disconnects before
    /// that. Receives later requests meanwhile: their latency counts from then.
    #[inline]
    fn wait_for_turn(&mut self, bytes: u64) -> io::Result<bool> {
        if self.link.disk().is_throttled() { self.wait_throttled(bytes) } else { Ok(true) }
    }

    #[cold]
    fn wait_throttled(&mut self, bytes: u64) -> io::Result<bool> {
        self.send();
        let (signal, waker) = match &mut self.turn {
            Some(turn) => turn,
            turn => {
                let signal = Arc::new(Signal::new()?);
                turn.insert((signal.clone(), signal.into()))
            }
        };
        let (input, budget) = (&mut self.input, self.link.receive_budget());
        let may_go = self.link.disk().wait_for_turn(bytes, waker, |left| {
            let more = input.receive_ahead(budget);
            !input.stream.is_cut_off() && !input.stream.rest(signal, more, left)
        });
        self.its_turn = Some(Instant::now());
        Ok(may_go)
    }

    fn request(&mut self, request: &Request) -> Result<(), Ended> {
        let range = request.offset..request.offset.saturating_add(request.length);
        match request.command {
            Command::Read { dont_fragment } => {
                if range.end.div_ceil(PIECE) - range.start / PIECE == 1 {
                    self.read_piece(request, range);
                } else if dont_fragment || self.link.framing == Framing::Simple {
                    self.read_collected(request, range);
                } else {
                    self.read_in_chunks(request, range);
                }
            }
            Command::Write { fua } => self.write(request, range, fua)?,
            Command::Flush => self.flush(request),
            Command::Trim { fua } => self.change(request, Op::Trim, range, fua)?,
            Command::WriteZeroes { fua, no_hole, fast } => {
                self.change(request, Op::Zeroes { keep: no_hole, fast }, range, fua)?;
            }
            Command::Cache => self.prefetch(request, range)?,
            Command::BlockStatus { .. } => {
                if request.length > LONG && self.has_left() {
                    return Ok(());
                }
                self.block_status(request);
            }
        }
        Ok(())
    }

    /// Submits until it is taken or refused for good.
    fn submit<W: Waiter + 'static>(
        &mut self,
        op: Op,
        range: &Range<u64>,
        fua: bool,
        waiter: impl Fn(&Arc<Link>) -> Arc<W>,
    ) -> Result<Submitted, Errno> {
        loop {
            let (cache, client, work) = (&self.cache, &self.client, &mut self.work);
            let submission = Submission { op, range: range.clone(), fua };
            let waiter = || waiter(&self.link) as Arc<dyn Waiter>;
            match cache.submit_ahead(client, submission, &mut self.ahead, work, waiter) {
                Ok(submitted) => return Ok(submitted),
                Err(error) => self.wait_to_retry(error, op == Op::Read, |cache, link| {
                    cache.wait_for_room(link.disk(), range.start);
                })?,
            }
        }
    }

    /// Waits until a submission that was refused can be tried again; the error if it cannot.
    fn wait_to_retry(
        &mut self,
        error: SubmitError,
        is_read: bool,
        wait_for_room: impl FnOnce(&Cache, &Link),
    ) -> Result<(), Errno> {
        match error {
            SubmitError::Refused(Refusal::Busy) => {
                self.send();
                wait_for_room(&self.cache, &self.link);
                if self.has_left() { Err(Errno::Shutdown) } else { Ok(()) }
            }
            SubmitError::Refused(Refusal::NoVolume) => {
                self.send();
                match self.link.disk().wait_for_opening_within(link::GLANCE) {
                    Some(true) => Ok(()),
                    None if !self.has_left() => Ok(()),
                    _ => Err(Errno::Shutdown),
                }
            }
            // The disk has become shorter.
            SubmitError::Refused(Refusal::OutOfRange) => Err(if is_read { Errno::Inval } else { Errno::NoSpc }),
            SubmitError::Refused(Refusal::TooLong) => unreachable!("pieces are short"),
            SubmitError::Poisoned(_) => Err(Errno::Io),
        }
    }

    fn asked(&self, request: &Request) -> Asked {
        let op = match request.command {
            Command::Write { .. } => Recorded::Write,
            // Neither brings a block into the cache.
            Command::Trim { .. } | Command::WriteZeroes { .. } => Recorded::Trim,
            Command::Flush => Recorded::Flush,
            Command::Read { .. } | Command::Cache | Command::BlockStatus { .. } => Recorded::Read,
        };
        let asked = Asked::new(op, request.offset, request.length, self.since);
        self.its_turn.map_or(asked, |turn| asked.with_turn(turn))
    }

    fn job(&self, request: &Request, kind: Kind, measure: Measure, pieces: usize) -> Arc<Job> {
        Arc::new(Job::new(&self.link, kind, request.tag(), measure, self.asked(request), pieces))
    }

    /// The piece is submitted as part of `job`, and its reply delivered if it comes at once.
    fn submit_piece(&mut self, job: &Arc<Job>, op: Op, range: Range<u64>, fua: bool) {
        let waiter = |_: &Arc<Link>| {
            job.wait();
            job.clone()
        };
        match self.submit(op, &range, fua, waiter) {
            Ok(Submitted { shard, outcome: Some(outcome), .. }) => {
                job.clone().deliver(shard, range, outcome, &mut self.work);
            }
            Ok(_) => {}
            Err(errno) => job.refuse(range, errno, &mut self.work),
        }
    }

    fn read_piece(&mut self, request: &Request, range: Range<u64>) {
        let bytes = request.length as usize;
        self.admit(1, bytes);
        let (tag, asked) = (request.tag(), self.asked(request));
        let waiter = |link: &_| Arc::new(Job::new(link, Kind::Whole, tag, Measure::Miss, asked, 1));
        let submitted = self.submit(Op::Read, &range, false, waiter);
        let (head, data) = match submitted {
            Ok(Submitted { outcome: None, .. }) => return,
            Ok(Submitted { shard, outcome: Some(Outcome::Data(data)), .. }) => {
                (self.link.framing.data(tag, bytes as u32), Data::Frames(shard, data))
            }
            Ok(_) => (self.link.framing.error(tag, Errno::Io), Data::None),
            Err(errno) => (self.link.framing.error(tag, errno), Data::None),
        };
        let asked = self.link.ready(asked);
        self.reply(Reply { head: Some(head), data, bytes, ends: true, measure: Some((Measure::Hit, asked)) });
    }

    /// Whether nobody waits for replies any more. For requests that take long: it asks the system.
    fn has_left(&self) -> bool {
        let stream = &self.input.stream;
        if !stream.is_abandoned() && stream.has_left() {
            stream.abandon();
        }
        stream.is_abandoned()
    }

    fn read_in_chunks(&mut self, request: &Request, range: Range<u64>) {
        let pieces = pieces(range, PIECE);
        let job = self.job(request, Kind::Chunks, Measure::Hit, pieces.len());
        self.admit(1, 0);
        for piece in pieces {
            self.admit(0, (piece.end - piece.start) as usize);
            if self.input.stream.is_abandoned() {
                job.refuse(piece, Errno::Shutdown, &mut self.work);
            } else {
                self.submit_piece(&job, Op::Read, piece, false);
            }
            self.send();
        }
    }

    /// Takes memory for a reply, after a wait if necessary.
    fn take_heap(&mut self, bytes: usize) -> Result<(), Errno> {
        let deadline = Instant::now() + PATIENCE;
        let mut next_demand = Instant::now() + HEAP_DEMAND;
        let mut demands = false;
        let result = loop {
            if self.link.take_heap(bytes) {
                break Ok(());
            }
            self.send();
            let now = Instant::now();
            if self.has_left() {
                break Err(Errno::Shutdown);
            }
            if now > deadline {
                break Err(Errno::NoMem);
            }
            if now > next_demand {
                (demands, next_demand) = (true, now + HEAP_DEMAND);
                self.link.want_heap(bytes);
            }
            std::thread::sleep(HEAP_GLANCE);
        };
        if demands {
            self.link.want_nothing();
        }
        result
    }

    fn block_status(&mut self, request: &Request) {
        let (framing, contexts) = (self.link.framing, self.transmission.contexts());
        let mut most = status::extents_most(request);
        if !self.link.take_heap(status::memory(contexts, most)) {
            // Clients ask for the rest.
            most = most.min(status::EXTENTS_FEW);
            if let Err(errno) = self.take_heap(status::memory(contexts, most)) {
                let head = Some(framing.error(request.tag(), errno));
                self.admit(1, 0);
                return self.reply(Reply { head, ends: true, ..Reply::default() });
            }
        }
        let reply = status::reply(&self.cache, self.link.disk(), &|| self.has_left(), framing, contexts, request, most);
        let bytes = reply.len();
        self.link.give_heap(status::memory(contexts, most) - bytes);
        self.admit(1, bytes);
        self.reply(Reply { data: Data::Heap(reply), bytes, ends: true, ..Reply::default() });
    }

    fn read_collected(&mut self, request: &Request, range: Range<u64>) {
        let length = request.length as usize;
        self.admit(1, length);
        let taken = if self.has_left() { Err(Errno::Shutdown) } else { self.take_heap(length) };
        if let Err(errno) = taken {
            self.link.release(0, length);
            let head = Some(self.link.framing.error(request.tag(), errno));
            return self.reply(Reply { head, ends: true, ..Reply::default() });
        }
        let pieces = pieces(range, PIECE);
        let job = Job::collected(&self.link, request.tag(), self.asked(request), pieces.len(), length);
        let job = Arc::new(job);
        self.collected.retain(|job| job.strong_count() > 0);
        self.collected.push(Arc::downgrade(&job));
        for piece in pieces {
            self.submit_piece(&job, Op::Read, piece, false);
        }
        self.send();
    }

    fn write(&mut self, request: &Request, range: Range<u64>, fua: bool) -> io::Result<()> {
        let pieces = pieces(range, PIECE);
        // One more than its pieces: there is no reply before the whole payload was received, whatever failed.
        let job = self.job(request, Kind::Plain, Measure::Write, pieces.len() + 1);
        self.admit(1, 0);
        let mut payload = Payload { bytes: request.length, left: None };
        for mut piece in pieces {
            while !piece.is_empty() {
                piece.start = self.write_part(&job, piece.clone(), fua, &mut payload)?;
            }
        }
        job.received(&mut self.work);
        self.cache.dispatch(&mut self.work, Some(&*self.link));
        Ok(())
    }

    /// Writes `part`, or as much of it as there is memory for; returns where the rest begins. No frames are taken for bytes
    /// of a client that was slow.
    fn write_part(
        &mut self,
        job: &Arc<Job>,
        mut part: Range<u64>,
        fua: bool,
        payload: &mut Payload,
    ) -> io::Result<u64> {
        let is_here = |input: &Input, part: &Range<u64>| input.bytes().len() as u64 >= part.end - part.start;
        if !is_here(&self.input, &part) && self.slow_until.is_some_and(|until| Instant::now() < until) {
            if !self.input.has_room((part.end - part.start) as usize, self.link.receive_budget()) {
                part.end = (part.start + BUFFER as u64) / BLOCK * BLOCK;
                job.divide_piece();
            }
            self.send();
            self.input.gather((part.end - part.start) as usize, payload.left())?;
        }
        let length = part.end - part.start;
        let (shard, token, outcome) = match self.submit(Op::Write, &part, fua, |_| job.clone()) {
            Ok(Submitted { shard, token, outcome }) => (shard, token, outcome),
            Err(errno) => {
                self.pass_over(length, payload)?;
                job.refuse(part.clone(), errno, &mut self.work);
                return Ok(part.end);
            }
        };
        let fill = match outcome {
            Some(Outcome::Fill(fill)) => Some(fill),
            _ => {
                self.queue();
                self.wait_for_frames(job, part.start, (shard, token))?
            }
        };
        let Some(mut fill) = fill else {
            self.pass_over(length, payload)?;
            return Ok(part.end);
        };
        let filled = if is_here(&self.input, &part) {
            self.input.copy_to(&mut fill.frames);
            Ok(true)
        } else {
            self.queue();
            match Loan::take(self.link.receive_budget(), length as usize) {
                Some(loan) => self.input.fill(&mut fill.frames, loan),
                None => Ok(false),
            }
        };
        if let Ok(true) = filled {
            self.cache.commit(shard, fill, &mut self.work);
            self.input.shrink();
            return Ok(part.end);
        }
        self.cache.abort(shard, token, fill, &mut self.work);
        self.slow_until = Some(Instant::now() + SLOW);
        filled.map(|_| part.start)
    }

    /// Waits for the frames of the piece of `job` that begins at `start`; `None` if it failed. An error if the client leaves
    /// before they come.
    fn wait_for_frames(&mut self, job: &Job, start: u64, (shard, token): (u32, usize)) -> io::Result<Option<Fill>> {
        loop {
            match job.wait_for_frames(start, link::GLANCE) {
                Frames::Here(fill) => return Ok(Some(fill)),
                Frames::Failed => return Ok(None),
                Frames::Awaited if !self.has_left() => {}
                Frames::Awaited => {
                    if let Some(fill) = job.desert(token) {
                        self.cache.abort(shard, token, fill, &mut self.work);
                    }
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
    }

    /// Receives this many bytes and drops them.
    fn pass_over(&mut self, mut bytes: u64, payload: &mut Payload) -> io::Result<()> {
        loop {
            let passed = bytes.min(self.input.bytes().len() as u64);
            self.input.start += passed as usize;
            bytes -= passed;
            if bytes == 0 {
                self.input.shrink();
                return Ok(());
            }
            self.send();
            self.input.gather(1, payload.left())?;
        }
    }

    fn flush(&mut self, request: &Request) {
        // All shards have it before the client's next request is looked at.
        let job = self.job(request, Kind::Plain, Measure::Flush, self.cache.shards() as usize);
        self.admit(1, 0);
        for shard in 0..self.cache.shards() {
            loop {
                let waiter = || job.clone() as Arc<dyn Waiter>;
                match self.cache.flush(shard, self.link.disk(), &mut self.work, waiter) {
                    Ok(Submitted { outcome: Some(outcome), .. }) => {
                        job.clone().deliver(shard, 0..0, outcome, &mut self.work);
                    }
                    Ok(_) => {}
                    Err(error) => match self.wait_to_retry(error, false, |cache, _| cache.wait_for_room_in(shard)) {
                        Ok(()) => continue,
                        Err(errno) => job.refuse(0..0, errno, &mut self.work),
                    },
                }
                break;
            }
        }
        self.cache.dispatch(&mut self.work, Some(&*self.link));
    }

    /// Trims or zeroes a range.
    fn change(&mut self, request: &Request, op: Op, range: Range<u64>, fua: bool) -> io::Result<()> {
        let mut left = self.cache.extents(range.clone()).len();
        let job = self.job(request, Kind::Plain, Measure::Write, left);
        self.admit(1, 0);
        for (at, step) in pieces(range, STEP).enumerate() {
            // A device may have to write zeroes, unless they have to be fast.
            let bytes = if matches!(op, Op::Zeroes { fast: false, .. }) { step.end - step.start } else { 0 };
            if !((at == 0 || self.wait_for_pieces(&job, left + OVERLAP)) && self.wait_for_turn(bytes)?) {
                job.give_up(left, &mut self.work);
                break;
            }
            for piece in self.cache.extents(step) {
                left -= 1;
                self.submit_piece(&job, op, piece, fua);
            }
        }
        self.cache.dispatch(&mut self.work, Some(&*self.link));
        Ok(())
    }

    /// Waits until at most `most` pieces of `job` are left; returns false if the client left before that.
    fn wait_for_pieces(&mut self, job: &Job, most: usize) -> bool {
        loop {
            self.send();
            if self.has_left() {
                return false;
            }
            if job.wait_until_left(most, link::GLANCE) {
                return true;
            }
        }
    }

    fn prefetch(&mut self, request: &Request, range: Range<u64>) -> io::Result<()> {
        for (at, step) in pieces(range, STEP).enumerate() {
            if at > 0 && self.has_left() || !self.wait_for_turn(step.end - step.start)? {
                return Ok(());
            }
            self.cache.prefetch(&self.client, step, &mut self.work);
            self.cache.dispatch(&mut self.work, Some(&*self.link));
        }
        let head = Some(self.link.framing.success(request.tag()));
        self.admit(1, 0);
        self.reply(Reply { head, ends: true, ..Reply::default() });
        self.cache.dispatch(&mut self.work, Some(&*self.link));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use nigh_host::front::lock;
    use nigh_nbd::client::Client;
    use nigh_service::front::Front;
    use nigh_service::{ExportSettings, Listen, Service, Settings};

    use super::*;

    /// Gets the link of the next client.
    static LINKS: Mutex<Option<Sender<Arc<Link>>>> = Mutex::new(None);

    /// NBD that shows its link.
    struct Shown;

    impl Front for Shown {
        fn uri(&self, _: &Listen, _: &str, _: bool) -> Option<String> {
            None
        }

        fn serve(&self, guest: &Guest<'_>) {
            let cache = guest.host().cache();
            let mut session = Connection::begin(guest.stream().clone(), cache, guest).unwrap().unwrap();
            lock(&LINKS).take().unwrap().send(session.link.clone()).unwrap();
            // It may be that the client is gone.
            let _ = session.run();
            session.link.close();
        }
    }

    #[test]
    fn unsent_replies_to_block_status_are_limited() {
        const DISK: u64 = 8 << 20;
        // This many replies of 16 KiB are more than may be unsent, and more than a socket holds.
        const REQUESTS: usize = 300;
        let export = ExportSettings::new("disk", format!("memory:{}M", DISK >> 20).parse().unwrap());
        let server = Service::start(Settings::new(2 * DISK, "lru".parse().unwrap(), vec![export])).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (links, begun) = channel();
        *lock(&LINKS) = Some(links);
        server.attach(Shown, theirs.try_clone().unwrap().into(), theirs.into(), || ());
        let mut client = Client::connect(ours, "disk", &["x-nigh:cache"]).unwrap();
        let link = begun.recv().unwrap();
        for at in (0..DISK).step_by(2 * BLOCK as usize) {
            client.read(at, BLOCK as usize).unwrap();
        }
        for _ in 0..REQUESTS {
            client.submit(Command::BlockStatus { one: false }, 0, DISK).unwrap();
        }
        while !link.is_full() {
            assert!(link.requests() < REQUESTS * 3 / 4, "it goes on, whatever is unsent");
            std::thread::yield_now();
        }
        while client.in_flight() > 0 {
            let reply = client.receive().unwrap();
            assert_eq!(reply.status[0].extents.len() as u64, DISK / BLOCK);
        }
        drop(client);
        server.shut_down().unwrap();
    }
}
