//! Connections to a server of a level: made on a thread of its own, so that no job waits for one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nigh_level::{Decoded, Hello, Refusal, Reply, Request, Result as Outcome, VERSIONS, Welcome};
use nigh_tls::{ClientConfig, ClientStream, ClientTlsSettings};

use super::{RemoteLevel, locked};

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most requests on their way.
const REQUESTS: usize = 1024;

/// The last epoch that this process began.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The number of this process, for all its connections.
static INSTANCE: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));

/// Connects to the servers of a level, again and again.
pub(super) struct Connector {
    level: RemoteLevel,
    /// The servers that are connected: address, and the number of their start.
    connected: Mutex<HashMap<String, u64>>,
    /// The certificates, as they were read last.
    tls: Option<(ClientTlsSettings, Mutex<Arc<ClientConfig>>)>,
}

/// An open connection, in an epoch that it began.
pub(super) struct Session {
    pub(super) stream: ClientStream,
    pub(super) namespace: u32,
    pub(super) epoch: u64,
    /// Whether the server has the blocks of the epoch before.
    pub(super) resumed: bool,
    /// The most requests on their way.
    pub(super) requests: usize,
    /// Blocks of the server that this client may use.
    pub(super) blocks: u64,
}

impl Connector {
    pub(super) fn new(level: RemoteLevel) -> io::Result<Connector> {
        let tls = match &level.tls {
            Some(settings) => {
                let config = settings.configure().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
                Some((settings.clone(), Mutex::new(config)))
            }
            None => None,
        };
        Ok(Connector { level, connected: Mutex::default(), tls })
    }

    pub(super) fn level(&self) -> &RemoteLevel {
        &self.level
    }

    /// Connects to the server at `address`, HOST:PORT, and begins an epoch, which resumes the epoch `resumes` if possible; 0 resumes none.
    pub(super) fn connect(&self, address: &str, resumes: u64) -> io::Result<Session> {
        let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for at in address.to_socket_addrs()? {
            let made = TcpStream::connect_timeout(&at, PATIENCE);
            match made.and_then(|socket| self.greet(address, socket, resumes)) {
                Ok(session) => return Ok(session),
                Err(error) => {
                    self.disconnected(address);
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    /// Later epochs of this client have higher numbers: those of another process as long as clocks go forward, and those of this one always.
    fn next_epoch() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let next = |last: u64| Some(now.max(last + 1));
        let last = EPOCH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        now.max(last + 1)
    }

    /// There is no connection to the server at `address` any more.
    pub(super) fn disconnected(&self, address: &str) {
        locked(&self.connected).remove(address);
    }

    /// The certificates, which may have been replaced since they were read last. If they cannot be read any more, those of then.
    fn config(settings: &ClientTlsSettings, last: &Mutex<Arc<ClientConfig>>) -> Arc<ClientConfig> {
        let mut last = locked(last);
        match settings.configure() {
            Ok(config) => *last = config,
            Err(error) => tracing::debug!(%error, "the certificates stay as they were"),
        }
        last.clone()
    }

    fn greet(&self, address: &str, socket: TcpStream, resumes: u64) -> io::Result<Session> {
        let RemoteLevel { client, number, block_bytes, .. } = &self.level;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stream = match &self.tls {
            Some((settings, last)) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                ClientStream::secure(socket, host, &Connector::config(settings, last))
                    .map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?
            }
            None => ClientStream::plain(socket),
        };
        let (mut out, mut input) = (Vec::new(), Vec::new());
        let versions = (*VERSIONS.start(), *VERSIONS.end());
        Hello { versions, block_bytes: *block_bytes, level: *number, instance: *INSTANCE, name: client }
            .encode(&mut out);
        stream.write_all(&out)?;
        let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
        let welcome = loop {
            match Welcome::decode(&input).map_err(invalid)? {
                Decoded::Whole(welcome, length) => {
                    input.drain(..length);
                    break welcome;
                }
                Decoded::Need(_) => more(&mut stream, &mut input)?,
            }
        };
        let mut connected = locked(&self.connected);
        let twin = connected.iter().find(|(other, instance)| **instance == welcome.instance && *other != address);
        if let Some((other, _)) = twin {
            return Err(io::Error::other(format!(
                "it is the same server as {other}: leave one of them out of the level"
            )));
        }
        connected.insert(address.to_owned(), welcome.instance);
        drop(connected);
        let epoch = Connector::next_epoch();
        out.clear();
        // Servers with the same certificate have a namespace each.
        Request::Open { name: client, epoch, resumes }.encode(0, &mut out);
        stream.write_all(&out)?;
        let (namespace, resumed) = loop {
            match Reply::decode(&input).map_err(invalid)? {
                Decoded::Whole(reply, length) => {
                    let opened = match reply.result {
                        Outcome::Opened { namespace, resumed } => Ok((namespace, resumed)),
                        Outcome::Refused { refusal: Refusal::Taken, text } => Err(io::Error::other(format!(
                            "{text}, {client}: give each server its own name= behind --level"
                        ))),
                        Outcome::Refused { text, .. } => Err(io::Error::other(text.to_owned())),
                        _ => Err(io::Error::new(ErrorKind::InvalidData, "another reply than to Open")),
                    };
                    input.drain(..length);
                    break opened?;
                }
                Decoded::Need(_) => more(&mut stream, &mut input)?,
            }
        };
        if !input.is_empty() {
            return Err(io::Error::new(ErrorKind::InvalidData, "more than was asked for"));
        }
        stream.socket().set_nonblocking(true)?;
        let requests = (welcome.requests as usize).min(REQUESTS);
        Ok(Session { stream, namespace, epoch, resumed, requests, blocks: welcome.blocks })
    }
}

fn more(stream: &mut ClientStream, input: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(0) => Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "it closed the connection: is it a level server of this version?",
        )),
        Ok(read) => {
            input.extend(&bytes[..read]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(io::Error::new(ErrorKind::TimedOut, "no answer")),
        Err(error) => Err(error),
    }
}
