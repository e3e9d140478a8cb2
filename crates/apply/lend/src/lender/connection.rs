//! A connection of a client of a level: its greeting, and its requests.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nigh_host::front::lock;
use nigh_level::{
    Connection, Decoded, Handled, Hello, Limits, MESSAGE_MAX, REQUEST_MAX, Refusal, Rejected, Reply, Request,
    Result as Outcome, Violation, Welcome,
};
use nigh_service::parts::Stream;

use super::fetching::Fetching;
use super::{Common, Guest};

/// Requests of a client that may be on their way.
const REQUESTS: u32 = 256;
/// How long a client may take for its first message, for the rest of a message, and to accept replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// Replies of this many bytes or more are sent before further requests are read.
const REPLIES: usize = 64 << 10;

/// Why a connection ended before the client closed it.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error(transparent)]
    Io(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("its certificate has no name: neither alternative names nor a common name")]
    Nameless,
    #[error("it sent nothing")]
    Nothing,
    #[error("a message is incomplete for too long")]
    Slow,
    #[error("the connection ended within a message")]
    Part,
    #[error("it accepts no replies")]
    Deaf,
}

/// Bytes of a client that are not decoded yet: any message, or several blocks.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Since when a message is incomplete.
    since: Option<Instant>,
}

/// Serves the connection until its end.
pub(super) fn serve(common: &Arc<Common>, number: u64, stream: &Arc<Stream>, peer: SocketAddr) {
    let mut input = Input::new();
    let (connection, name) = match greet(common, stream, &mut input) {
        Ok(greeted) => greeted,
        // It was closed for another one, and counted.
        Err(_) if stream.is_abandoned() => return,
        Err(error) => {
            if let Some(refused) = common.strangers.add(Instant::now()) {
                tracing::warn!(%peer, refused, "rejected: {error}");
            }
            return;
        }
    };
    if let Some(guest) = lock(&common.guests).get_mut(&number) {
        guest.newcomer = None;
        guest.name.clone_from(&name);
    }
    let fetching = Fetching::new(common, stream);
    let ended = requests(common, number, stream, connection, &mut input, &fetching);
    fetching.end();
    lock(&common.store).disconnect(connection);
    // Without a namespace, it was logged why, and not each time.
    let had_some = lock(&common.guests).get(&number).is_some_and(|guest| !guest.namespaces.is_empty());
    match ended {
        Ok(()) if had_some => tracing::info!(client = name, %peer, "disconnected"),
        Err(error) if had_some => tracing::warn!(client = name, %peer, "disconnected: {error}"),
        ended => tracing::debug!(client = name, %peer, ?ended, "disconnected"),
    }
}

/// Receives the client's first message, and answers it. Returns its name, too.
fn greet(common: &Common, stream: &Stream, input: &mut Input) -> Result<(Connection, String), Ended> {
    let config = lock(&common.tls).clone();
    let certified = match config {
        Some(config) => {
            let names = stream.secure(&config).map_err(Ended::Tls)?;
            Some(names.into_iter().next().ok_or(Ended::Nameless)?)
        }
        None => None,
    };
    stream.set_patience(PATIENCE, PATIENCE)?;
    let (connection, name, version) = loop {
        if let Decoded::Whole(hello, length) = Hello::decode(input.rest())? {
            let version = hello.version()?;
            let name = certified.unwrap_or_else(|| hello.name.to_owned());
            let connection = lock(&common.store).connect(&hello, &name)?;
            input.take(length);
            break (connection, name, version);
        }
        if !input.receive(common, stream)? {
            return Err(Ended::Nothing);
        }
    };
    let Limits { blocks_each, .. } = common.limits;
    let mut out = Vec::new();
    Welcome { version, requests: REQUESTS, blocks: blocks_each.into(), instance: common.instance }.encode(&mut out);
    let sent = common.send(stream, &out);
    if sent.is_err() {
        lock(&common.store).disconnect(connection);
    }
    Ok(sent.map(|()| (connection, name))?)
}

fn requests(
    common: &Common,
    number: u64,
    stream: &Stream,
    connection: Connection,
    input: &mut Input,
    fetching: &Arc<Fetching>,
) -> Result<(), Ended> {
    let (mut contents, mut out) = (Vec::new(), Vec::with_capacity(REPLIES + MESSAGE_MAX));
    loop {
        while let Decoded::Whole((cookie, request), length) = Request::decode(input.rest())? {
            let mut store = lock(&common.store);
            // Later changes are not in the index that is kept.
            if common.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            let handled = store.handle(common.now_us(), connection, cookie, &request, &mut contents);
            if let Some(file) = common.file.as_ref().filter(|_| store.is_crowded()) {
                file.crowded.notify_one();
            }
            drop(store);
            match handled {
                Handled::Reply(reply) => {
                    if let Request::Open { name, .. } = request {
                        opened(common, number, name, &reply);
                    }
                    reply.encode(&mut out);
                }
                Handled::Fetch(fetch) => fetching.add(fetch),
            }
            input.take(length);
            if out.len() >= REPLIES {
                fetching.send(&out)?;
                out.clear();
            }
        }
        if !out.is_empty() {
            fetching.send(&out)?;
            out.clear();
        }
        if !input.receive(common, stream)? {
            return Ok(());
        }
    }
}

/// A client opened the namespace `name`, or another one has it.
fn opened(common: &Common, number: u64, name: &str, reply: &Reply<'_>) {
    let mut guests = lock(&common.guests);
    let Some(guest) = guests.get_mut(&number) else { return };
    match reply.result {
        Outcome::Opened { resumed, .. } => {
            let Guest { name: client, peer, namespaces, .. } = guest;
            if namespaces.iter().all(|of| of != name) {
                let how = if resumed { "connected again" } else { "connected" };
                tracing::info!(client, level_name = name, %peer, "{how}");
                namespaces.push(name.to_owned());
            }
        }
        Outcome::Refused { refusal: Refusal::Taken, .. } => {
            let (client, peer) = (guest.name.clone(), guest.peer);
            let has = |other: &&Guest| other.name == client && other.namespaces.iter().any(|of| of == name);
            let holder = guests.values().find(has).map(|holder| holder.peer.to_string()).unwrap_or_default();
            drop(guests);
            if let Some(refused) = common.taken.add(Instant::now()) {
                tracing::warn!(
                    client, level_name = name, %peer, holder, refused,
                    "rejected: another server with this name has the level; give each server its own name= behind --level"
                );
            }
        }
        _ => {}
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        if error.kind() == ErrorKind::WouldBlock { Ended::Deaf } else { Ended::Io(error) }
    }
}

impl Input {
    fn new() -> Input {
        Input { buffer: vec![0; REQUEST_MAX].into(), start: 0, end: 0, since: Some(Instant::now()) }
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// A message of `length` bytes was decoded.
    fn take(&mut self, length: usize) {
        self.start += length;
        // The bytes that are there already belong to a message that has begun.
        self.since = (self.start < self.end).then(Instant::now);
    }

    /// Receives more of a message. Between messages, a client may be silent for as long as it likes. Returns whether there is more.
    fn receive(&mut self, common: &Common, stream: &Stream) -> Result<bool, Ended> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            if self.since.is_some_and(|since| since.elapsed() >= PATIENCE) {
                return Err(Ended::Slow);
            }
            match stream.read(&mut [IoSliceMut::new(&mut self.buffer[self.end..])], true) {
                Ok(0) if self.end == 0 => return Ok(false),
                Ok(0) => return Err(Ended::Part),
                Ok(read) => {
                    common.received_bytes.fetch_add(read as u64, Ordering::Relaxed);
                    self.since.get_or_insert_with(Instant::now);
                    self.end += read;
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
