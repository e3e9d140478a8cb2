//! The server whose place another one takes: its offer, and its end.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nigh_host::Unwritten;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};

use crate::controllers::Link;
use crate::error::HandOverError;
use crate::listen::{Listen, Listener};
use crate::settings::ExportSettings;
use crate::socket::again;

/// The most sockets in a message: the kernel's limit.
pub(crate) const SOCKETS_MAX: usize = 253;

/// The purpose of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Purpose {
    /// Clients of exports.
    Clients,
    /// Commands.
    Control,
    /// Statistics over HTTP.
    Metrics,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferedSocket {
    pub(crate) purpose: Purpose,
    /// Its address, with an absolute path, such as `unix:/run/nigh.sock`.
    pub(crate) address: String,
    /// The file of a Unix socket that the server made.
    pub(crate) file: Option<PathBuf>,
    /// Its parent process passed it to the server.
    pub(crate) passed: bool,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferedExport {
    pub(crate) name: String,
    /// Its targets: a path without symbolic links, or the text of a target without a path.
    pub(crate) targets: Vec<String>,
}

/// An offer to the server that takes this one's place. The sockets themselves come before it, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub(crate) process: u32,
    pub(crate) sockets: Vec<OfferedSocket>,
    pub(crate) exports: Vec<OfferedExport>,
    /// As `Settings::after_loss`.
    pub(crate) after_loss: Option<u64>,
}

/// The end of a server whose place another one takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Data that could not be written, in words.
    pub unwritten: Vec<String>,
    /// Microseconds since it last accepted a client.
    pub paused_us: u64,
}

impl OfferedExport {
    pub(crate) fn of(export: &ExportSettings) -> OfferedExport {
        let text = |target: &nigh_backend::Target| match target.path() {
            Some(path) => path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string(),
            None => target.to_string(),
        };
        OfferedExport { name: export.disk.name.clone(), targets: export.disk.targets().map(text).collect() }
    }
}

/// A server that is to take the place of this one.
pub struct Successor {
    stream: Arc<UnixStream>,
    reply: Sender<Result<Departure, String>>,
    /// A message when it serves; disconnected when it left.
    serves: Receiver<()>,
}

/// The state of a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// It serves.
    Serves,
    /// It ended, or closed its connection, before it served.
    Failed,
    /// Neither so far.
    Open,
}

impl Successor {
    /// The successor at `stream`, its link, and the answer that it is to get.
    pub(crate) fn new(stream: &Arc<UnixStream>) -> (Successor, Link, Receiver<Result<Departure, String>>) {
        let (reply, answer) = channel();
        let (sender, serves) = channel();
        let successor = Successor { stream: stream.clone(), reply, serves };
        (successor, Link { stream: stream.clone(), serves: sender }, answer)
    }

    /// Whether it is still there.
    pub fn is_there(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let received = again(|| match rustix::net::recv(&*self.stream, &mut byte, flags) {
            Err(Errno::AGAIN) => Ok(1),
            received => received.map(|(_, count)| count),
        });
        received.is_ok_and(|count| count > 0)
    }

    /// Answers it, after the service has ended, or goes on.
    pub fn answer(&self, result: Result<&HandedOver, &HandOverError>) {
        let departure = |HandedOver { unwritten, since, .. }: &HandedOver| Departure {
            unwritten: unwritten.iter().map(ToString::to_string).collect(),
            paused_us: since.elapsed().as_micros() as u64,
        };
        // It has left, if this fails.
        let _ = self.reply.send(result.map(departure).map_err(ToString::to_string));
    }

    /// Waits for at most `limit` until it serves, or is gone.
    pub fn wait(&self, limit: Duration) -> Succession {
        match self.serves.recv_timeout(limit) {
            Ok(()) => Succession::Serves,
            Err(RecvTimeoutError::Timeout) => Succession::Open,
            Err(RecvTimeoutError::Disconnected) => Succession::Failed,
        }
    }
}

/// A service that has ended for its successor.
#[derive(Debug)]
pub struct HandedOver {
    /// Data that could not be written.
    pub unwritten: Vec<Unwritten>,
    /// When it last accepted a client.
    pub since: Instant,
    pub(crate) listeners: Vec<Arc<Listener>>,
}

impl HandedOver {
    /// Closes the sockets, and removes their files, as at an orderly end: the successor is gone, and served nobody.
    pub fn close(self) {
        self.listeners.iter().for_each(|listener| listener.stop());
    }
}

/// Sends sockets, with a space, which may come before any answer.
pub(crate) fn send(stream: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    if sockets.len() > SOCKETS_MAX {
        return Err(io::Error::other(format!("it has {} sockets, and can hand over {SOCKETS_MAX}", sockets.len())));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(sockets));
    again(|| rustix::net::sendmsg(stream, &[IoSlice::new(b" ")], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Whether `done` comes while `is_wanted`; `None` if it is not wanted any more.
pub(crate) fn wait_while<T>(done: &Receiver<T>, is_wanted: impl Fn() -> bool) -> Option<T> {
    /// The interval between checks whether it is wanted.
    const GLANCE: Duration = Duration::from_millis(100);
    let mut checked = Instant::now();
    loop {
        match done.recv_timeout(GLANCE) {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if checked.elapsed() >= GLANCE && !is_wanted() => return None,
            Err(RecvTimeoutError::Timeout) => checked = Instant::now(),
        }
    }
}

/// A socket of this service, as it is offered.
pub(crate) fn offered(purpose: Purpose, listener: &Listener, passed: bool) -> OfferedSocket {
    let address = listener.address().map(|address| address.absolute());
    let file = match (listener, &address) {
        (Listener::Unix(_, Some(_)), Some(Listen::Unix(path))) => Some(path.clone()),
        _ => None,
    };
    OfferedSocket { purpose, address: address.map_or_else(String::new, |address| address.to_string()), file, passed }
}
