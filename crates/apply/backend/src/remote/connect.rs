//! Connections to an NBD server, made on a thread of their own: names are resolved there, and servers waited for.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use nigh_nbd::client::{Error, ExportInfo, Handshake, Negotiated};
use nigh_nbd::uri::{Address, Uri};
use nigh_nbd::wire::option_reply;
use nigh_nbd::{Context, Framing};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send};

use crate::signal::Signal;

/// How long one address is tried, and how long each read and write of the handshake waits. No read of the handshake begins later
/// than twice that after its start.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time before the second try; twice that before the third, and so on.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The most exports of a server that an error names.
const NAMED: usize = 8;
/// The longest time between two tries.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A connection in the transmission phase.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) fd: OwnedFd,
    pub(super) framing: Framing,
    pub(super) export: ExportInfo,
    /// The number of the metadata context `base:allocation`, where the server knows it.
    pub(super) allocation: Option<u32>,
}

/// How a try ended: with a connection or several, or why there is none.
pub(super) type Tried = Result<Vec<Connection>, String>;

/// A thread that tries to connect until it succeeds. Dropping it ends the tries; it does not wait for the one that is going on.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) tried: Receiver<Tried>,
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Connector {
    /// Begins after `pause`. Each end of a try raises `signal`. At most `connections` are made, where the server allows several.
    pub(super) fn start(uri: &Uri, connections: usize, pause: Duration, signal: &Arc<Signal>) -> io::Result<Connector> {
        let (sender, tried) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (uri, signal, stopped) = (uri.clone(), signal.clone(), stop.clone());
        let work = move || persist(&uri, connections, pause, &signal, &sender, &stopped);
        let thread = Builder::new().name("nigh-connect".to_owned()).spawn(work)?.thread().clone();
        Ok(Connector { tried, stop, thread })
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn persist(
    uri: &Uri,
    connections: usize,
    mut pause: Duration,
    signal: &Signal,
    sender: &Sender<Tried>,
    stop: &AtomicBool,
) {
    loop {
        std::thread::park_timeout(pause);
        if stop.load(Ordering::Acquire) {
            return;
        }
        let tried = connect(uri, connections);
        let is_over = tried.is_ok();
        if sender.send(tried).is_err() {
            return;
        }
        signal.raise();
        if is_over {
            return;
        }
        pause = (2 * pause).clamp(PAUSE_MIN, PAUSE_MAX);
    }
}

/// Connects, once for each of `connections` if the server allows several.
fn connect(uri: &Uri, connections: usize) -> Tried {
    let first = connect_one(uri)?;
    let several = first.export.features.multi_conn;
    let mut made = vec![first];
    while several && made.len() < connections {
        match connect_one(uri) {
            Ok(next) if next.export.size == made[0].export.size => made.push(next),
            // A server may have its own limit; one connection is enough.
            _ => break,
        }
    }
    Ok(made)
}

fn open(uri: &Uri) -> io::Result<Stream> {
    let socket = match &uri.address {
        Address::Tcp { host, port } => connect_tcp(host, *port),
        Address::Unix(path) => connect_unix(path),
    };
    socket.and_then(Stream::new)
}

fn connect_one(uri: &Uri) -> Result<Connection, String> {
    let stream = open(uri).map_err(|error| error.to_string())?;
    let wrong = |error| in_words(uri, error);
    let mut handshake = Handshake::begin(stream).map_err(wrong)?;
    if handshake.structured_replies().map_err(wrong)? {
        handshake.set_contexts(&uri.export, &[Context::Allocation.name()]).map_err(wrong)?;
    }
    let Negotiated { stream, export, framing, contexts } = handshake.negotiate(&uri.export).map_err(wrong)?;
    let allocation = contexts.into_iter().find(|(_, name)| name == Context::Allocation.name()).map(|(id, _)| id);
    Ok(Connection { fd: stream.socket, framing, export, allocation })
}

/// Why a server does not let this client have the export.
fn in_words(uri: &Uri, error: Error) -> String {
    match &error {
        Error::Refused { kind: option_reply::ERR_TLS_REQD, .. } => {
            format!(
                "{error}, which nigh does not speak to NBD servers: connect through a tunnel such as stunnel or ssh"
            )
        }
        Error::Refused { kind: option_reply::ERR_UNKNOWN, message, .. } => {
            let asked = if uri.export.is_empty() {
                "export without a name".to_owned()
            } else {
                format!("export '{}'", uri.export)
            };
            let message = if message.is_empty() { String::new() } else { format!(": {message}") };
            let there = exports(uri).filter(|there| !there.is_empty()).map(|there| format!("; it has {there}"));
            format!("the server has no {asked}{message}{}", there.unwrap_or_default())
        }
        _ => error.to_string(),
    }
}

/// The exports that the server lists, asked over another connection.
fn exports(uri: &Uri) -> Option<String> {
    let mut names = Handshake::begin(open(uri).ok()?).ok()?.list().ok()?;
    let more = if names.len() > NAMED { " and others" } else { "" };
    names.truncate(NAMED);
    let names: Vec<String> = names.into_iter().map(|(name, _)| format!("'{name}'")).collect();
    Some(names.join(", ") + more)
}

fn connect_tcp(host: &str, port: u16) -> io::Result<OwnedFd> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // A server whose machine is gone is noticed without requests, too.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, Duration::from_secs(15))?;
                sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
                sockopt::set_tcp_keepcnt(&stream, 3)?;
                return Ok(stream.into());
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Never waits: where the server takes no more connections for now, that is a failure.
fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// A socket during the handshake. Its reads and writes wait for `PATIENCE`, and no read begins after `until`.
struct Stream {
    socket: OwnedFd,
    until: Instant,
}

impl Stream {
    fn new(socket: OwnedFd) -> io::Result<Stream> {
        for direction in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(PATIENCE))?;
        }
        Ok(Stream { socket, until: Instant::now() + 2 * PATIENCE })
    }
}

pub(super) fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server does not answer")
}

/// The error of a failed call: a timeout means that the server does not answer.
fn failure(error: Errno) -> io::Error {
    if error == Errno::AGAIN { no_answer() } else { error.into() }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(no_answer());
        }
        let (bytes, _) = recv(&self.socket, into, RecvFlags::empty()).map_err(failure)?;
        Ok(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        send(&self.socket, from, SendFlags::NOSIGNAL).map_err(failure)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
