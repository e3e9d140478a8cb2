//! A server of a level: the connection to it, and what waits for it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_engine::Fault;
use nigh_level::{Decoded, MESSAGE_MAX, Place, Refusal, Reply, Request, Result as Outcome};

use super::connect::{Connector, Session};
use super::jobs::{Jobs, Part};
use super::spread::{self, Ticket};
use super::{Desk, LevelLink, ServerShare, ServerState};

/// How long a request may be without a reply.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause of the log about connecting after it reported why that fails.
const SILENCE: Duration = Duration::from_secs(10);
/// The most blocks on their way to the server: what a read may have before it in the connection.
const STORES: usize = 32;
/// Bytes that are received at a time, at most.
const BUFFER: usize = 64 << 10;
/// The most extents that are being forgotten while there is nothing else to do.
const FORGETS: usize = 4;
/// The most blocks that wait to be stored. Others fail.
const QUEUE: usize = 4096;
/// There is no connection, or too much waits for it.
pub(super) const OFF: Fault = Fault::AWAY;

/// A request to a server.
enum Asked {
    Part(Part),
    /// To forget blocks whose places are elsewhere now.
    Forget,
}

/// A connection in use.
struct Live {
    session: Session,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// Buffer of one receiving call.
    buffer: Box<[u8]>,
    /// The requests without a reply, by cookie.
    pending: HashMap<u64, Asked>,
    stores: usize,
    forgets: usize,
    /// When each request was made, in that order, by cookie; those at the front may have their reply.
    made: VecDeque<(u64, Instant)>,
    cookie: u64,
}

impl Live {
    /// Sends as much as can be sent without waiting.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.session.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.session.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        Ok(())
    }
}

/// Change of a server's places.
pub(super) enum Change {
    /// There is a connection again, and the server has what it had.
    Resumed,
    /// There is a connection, and the server has nothing.
    Empty,
}

pub(super) struct Peer {
    pub(super) state: Arc<ServerState>,
    pub(super) ticket: Ticket,
    /// Whether any places of the level are assigned to it.
    pub(super) has_places: bool,
    /// Since when there is no connection.
    pub(super) away: Option<Instant>,
    live: Option<Live>,
    /// The epoch that the next connection resumes.
    epoch: u64,
    retry: Instant,
    /// A connection that is being made, and the epoch that it resumes.
    connecting: Option<(u64, Receiver<io::Result<Session>>)>,
    /// Last message logged about connecting, and its time.
    complaint: Option<(String, Instant)>,
    reads: VecDeque<Part>,
    writes: VecDeque<Part>,
    /// Extents that are elsewhere now.
    forget: BTreeSet<u64>,
    /// The room that it reported last, and the age of the block that leaves next.
    pub(super) room: (u64, Option<u64>),
}

impl Peer {
    pub(super) fn new(state: Arc<ServerState>, now: Instant) -> Peer {
        let ticket = Ticket::new(&state.address, state.bytes.load(Ordering::Relaxed));
        Peer {
            state,
            ticket,
            has_places: false,
            away: Some(now),
            live: None,
            epoch: 0,
            retry: now,
            connecting: None,
            complaint: None,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            forget: BTreeSet::new(),
            room: (0, None),
        }
    }

    /// The log reported why there is no connection at the start.
    pub(super) fn failed(&mut self, reason: String, now: Instant) {
        self.complaint = Some((reason, now));
        self.retry = now + PAUSE;
    }

    /// Its part of the level is so large from now on; places have to be handed out again.
    pub(super) fn set_share(&mut self, share: &ServerShare) {
        self.state.bytes.store(share.bytes, Ordering::Relaxed);
        self.ticket = Ticket::new(&share.address, share.bytes);
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    pub(super) fn adopt(&mut self, session: Session, block_bytes: u32) -> Change {
        let Session { blocks, resumed, epoch, .. } = session;
        let address = &self.state.address;
        let share = self.state.bytes.load(Ordering::Relaxed);
        let has = blocks.saturating_mul(block_bytes.into());
        if has < share {
            tracing::warn!(
                level = address,
                "the server has only {} MiB for this client, less than its part of the level, {} MiB",
                has >> 20,
                share >> 20
            );
        }
        if resumed {
            tracing::info!(level = address, "connected to the level again; it has what it had");
        } else {
            tracing::info!(level = address, blocks, "connected to the level");
        }
        self.complaint = None;
        self.away = None;
        self.epoch = epoch;
        self.state.is_off.store(false, Ordering::Release);
        self.live = Some(Live {
            session,
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            buffer: vec![0; BUFFER].into(),
            pending: HashMap::new(),
            stores: 0,
            forgets: 0,
            made: VecDeque::new(),
            cookie: 0,
        });
        if resumed { Change::Resumed } else { Change::Empty }
    }

    /// The next connection begins with nothing.
    pub(super) fn start_over(&mut self) {
        self.epoch = 0;
        self.forget.clear();
    }

    /// The server is to forget the blocks of an extent, which is elsewhere now. If it is away, its next connection begins with nothing.
    pub(super) fn forget(&mut self, extent: u64) {
        if self.live.is_some() {
            self.forget.insert(extent);
        } else {
            self.start_over();
        }
    }

    /// A part for this server. Fails at once if there is no connection, or too much waits.
    pub(super) fn take(&mut self, part: Part, jobs: &mut Jobs) {
        let is_full = !part.is_read && self.writes.len() >= QUEUE;
        if self.live.is_none() || is_full {
            return jobs.end(part, Err(OFF));
        }
        if part.is_read { &mut self.reads } else { &mut self.writes }.push_back(part);
    }

    /// At the end: has the server free what it has, as far as that can be sent without waiting.
    pub(super) fn give_back(&mut self) {
        let Some(live) = &mut self.live else { return };
        let Session { namespace, epoch, .. } = live.session;
        let all = Place { namespace, epoch, block: 0 };
        Request::Invalidate { place: all, count: u64::MAX }.encode(live.cookie + 1, &mut live.out);
        // Otherwise the server frees it when it needs the room.
        let _ = live.send();
    }

    /// Takes what waits and was not asked for yet.
    pub(super) fn take_back(&mut self) -> Vec<Part> {
        self.reads.drain(..).chain(self.writes.drain(..)).collect()
    }

    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.live.as_ref().map(|live| live.session.stream.as_fd())
    }

    /// How long there may be nothing to do.
    pub(super) fn wait(&self) -> Duration {
        match &self.live {
            // The socket takes no more at the moment.
            Some(live) if live.sent < live.out.len() || live.session.stream.is_unsent() => Duration::from_millis(1),
            Some(live) if !live.pending.is_empty() => PATIENCE / 4,
            Some(_) => Duration::from_secs(3600),
            None => PATIENCE / 4,
        }
    }

    /// Connects if there is no connection, on a thread of its own.
    pub(super) fn reconnect(&mut self, connector: &Arc<Connector>, desk: &Arc<Desk>, now: Instant) -> Option<Change> {
        if self.live.is_some() {
            return None;
        }
        let tried = self.connecting.as_ref().and_then(|(epoch, tried)| Some((*epoch, tried.try_recv().ok()?)));
        if let Some((epoch, tried)) = tried {
            self.connecting = None;
            self.retry = now + PAUSE;
            match tried {
                Ok(session) if epoch == self.epoch => {
                    return Some(self.adopt(session, connector.level().block_bytes));
                }
                // Meanwhile, its places were given to others.
                Ok(_) => {
                    connector.disconnected(&self.state.address);
                    self.retry = now;
                }
                Err(error) => self.complain(&error, now),
            }
        } else if self.connecting.is_none() && now >= self.retry {
            let (sender, tried): (Sender<_>, _) = channel();
            let (connector, desk) = (connector.clone(), desk.clone());
            let (address, epoch) = (self.state.address.clone(), self.epoch);
            let connect = move || {
                // Nobody waits any more if the device is closed, or the server is not of the level any more.
                if sender.send(connector.connect(&address, epoch)).is_err() {
                    connector.disconnected(&address);
                }
                desk.wake.raise();
            };
            self.retry = now + PAUSE;
            if Builder::new().name("connect".into()).spawn(connect).is_ok() {
                self.connecting = Some((epoch, tried));
            }
        }
        None
    }

    /// Logs why there is no connection, unless that was logged already.
    fn complain(&mut self, error: &io::Error, now: Instant) {
        let (level, words) = (&self.state.address, error.to_string());
        let is_new = self.complaint.as_ref().is_none_or(|(last, when)| *last != words && now - *when >= SILENCE);
        if is_new {
            tracing::warn!(level, %error, "cannot connect to the level; this is tried again each second");
            self.complaint = Some((words, now));
        } else {
            tracing::debug!(level, %error, "cannot connect to the level");
        }
    }

    /// The connection is of no use any more: what waits for it fails. Whatever the server still does with it belongs to a
    /// connection that is over.
    pub(super) fn lose(&mut self, error: &io::Error, link: &LevelLink, jobs: &mut Jobs, now: Instant) {
        tracing::warn!(level = self.state.address, %error, "the connection to the level is lost; the cache continues without this server");
        self.state.is_off.store(true, Ordering::Release);
        self.state.lost.fetch_add(1, Ordering::Relaxed);
        link.lost.fetch_add(1, Ordering::Relaxed);
        self.retry = now + PAUSE;
        self.room = (0, None);
        self.end(jobs);
        self.away = Some(now);
    }

    /// Ends the connection; what waits for it fails.
    pub(super) fn end(&mut self, jobs: &mut Jobs) {
        let pending = self.live.take().into_iter().flat_map(|live| live.pending.into_values());
        let (mut parts, mut has_more) = (Vec::new(), !self.forget.is_empty());
        for asked in pending {
            match asked {
                Asked::Part(part) => parts.push(part),
                Asked::Forget => has_more = true,
            }
        }
        if has_more {
            // It may still have what it was to forget.
            self.start_over();
        }
        parts.extend(self.take_back());
        parts.into_iter().for_each(|part| jobs.end(part, Err(OFF)));
    }

    /// Receives, asks for more and sends, as far as that goes without waiting. Returns the places whose blocks made room for others, and whether there
    /// were replies.
    pub(super) fn exchange(
        &mut self,
        level: u8,
        jobs: &mut Jobs,
        link: &LevelLink,
        now: Instant,
    ) -> io::Result<(Vec<u64>, bool)> {
        let received = self.receive(jobs, link)?;
        self.fill(level, link.block_bytes.into(), jobs, now);
        let Some(live) = &mut self.live else { return Ok(received) };
        live.send()?;
        while live.made.front().is_some_and(|(cookie, _)| !live.pending.contains_key(cookie)) {
            live.made.pop_front();
        }
        if live.made.front().is_some_and(|(_, made)| now.duration_since(*made) > PATIENCE) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server does not respond"));
        }
        Ok(received)
    }

    fn fill(&mut self, level: u8, block_bytes: u64, jobs: &mut Jobs, now: Instant) {
        let Some(live) = &mut self.live else { return };
        let Session { namespace, epoch, requests, .. } = live.session;
        let place = |block: u64| Place { namespace, epoch, block };
        while live.pending.len() < requests {
            let cookie = live.cookie + 1;
            let next = self.reads.front().or_else(|| self.writes.front().filter(|_| live.stores < STORES));
            let forget = match next.map(|part| spread::extent_at(part.place * block_bytes)) {
                // The extent's old contents are forgotten before anything there is asked for or stored again.
                Some(extent) => self.forget.get(&extent).copied(),
                None => self.forget.first().copied().filter(|_| live.forgets < FORGETS),
            };
            let asked = if let Some(extent) = forget {
                self.forget.remove(&extent);
                let places = spread::places(extent, block_bytes);
                let count = places.end - places.start;
                Request::Invalidate { place: place(places.start), count }.encode(cookie, &mut live.out);
                live.forgets += 1;
                Asked::Forget
            } else if let Some(part) = self.reads.pop_front() {
                let to = if jobs.leaves(part) { level - 1 } else { level };
                let request = Request::Retrieve { place: place(part.place), from: Some(level), to: Some(to) };
                request.encode(cookie, &mut live.out);
                Asked::Part(part)
            } else if live.stores < STORES
                && let Some(part) = self.writes.pop_front()
            {
                let Some((data, age_us)) = jobs.contents(part) else {
                    jobs.end(part, Err(OFF));
                    continue;
                };
                let (from, to) = (level - 1, level);
                Request::Demote { place: place(part.place), from, to, age_us, data }.encode(cookie, &mut live.out);
                live.stores += 1;
                Asked::Part(part)
            } else {
                return;
            };
            live.cookie = cookie;
            live.pending.insert(cookie, asked);
            live.made.push_back((cookie, now));
        }
    }

    fn receive(&mut self, jobs: &mut Jobs, link: &LevelLink) -> io::Result<(Vec<u64>, bool)> {
        let invalid = |error: String| io::Error::new(ErrorKind::InvalidData, error);
        let (mut left, mut has_replies) = (Vec::new(), false);
        let Some(live) = &mut self.live else { return Ok((left, false)) };
        loop {
            match live.session.stream.read(&mut live.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => live.input.extend(&live.buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((left, has_replies)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let mut used = 0;
            while let Decoded::Whole(reply, length) =
                Reply::decode(&live.input[used..]).map_err(|error| invalid(error.to_string()))?
            {
                used += length;
                has_replies = true;
                let (namespace, epoch) = (live.session.namespace, live.session.epoch);
                let own = reply.notices.iter().filter(|notice| (notice.namespace, notice.epoch) == (namespace, epoch));
                left.extend(own.map(|notice| notice.block));
                self.room = (reply.free, reply.oldest_us);
                let asked = live.pending.remove(&reply.cookie);
                let part = match asked.ok_or_else(|| invalid("a reply to no request".to_owned()))? {
                    Asked::Part(part) => part,
                    Asked::Forget => match reply.result {
                        Outcome::Done => {
                            live.forgets -= 1;
                            continue;
                        }
                        _ => {
                            self.epoch = 0;
                            return Err(invalid("a reply to another request".to_owned()));
                        }
                    },
                };
                live.stores -= usize::from(!part.is_read);
                let result = match reply.result {
                    Outcome::Found { data } if part.is_read && data.len() == link.block_bytes as usize => {
                        jobs.fill(part, |slice| slice.copy_from_slice(data));
                        Ok(())
                    }
                    // The checksum will not match.
                    Outcome::Missed if part.is_read => {
                        self.state.missed.fetch_add(1, Ordering::Relaxed);
                        link.missed.fetch_add(1, Ordering::Relaxed);
                        jobs.fill(part, |slice| slice.fill(0xA5));
                        Ok(())
                    }
                    Outcome::Done if !part.is_read => Ok(()),
                    Outcome::Refused { refusal: Refusal::Limit, .. } if !part.is_read => Err(Fault(libc::ENOSPC)),
                    Outcome::Refused { refusal: Refusal::Busy, .. } if part.is_read => Err(OFF),
                    other => {
                        jobs.end(part, Err(OFF));
                        return Err(match other {
                            Outcome::Refused { text, .. } => io::Error::other(text.to_owned()),
                            _ => invalid("a reply to another request".to_owned()),
                        });
                    }
                };
                jobs.end(part, result);
            }
            live.input.drain(..used);
            if live.input.len() > 2 * MESSAGE_MAX {
                return Err(invalid("a reply that is too long".to_owned()));
            }
        }
    }
}
