//! A server that takes the place of one that runs, without a moment in which nobody listens.
//!
//! 1. **Offer.** The new server asks the running one at its control socket, and gets its listening sockets and a description of what it serves. The running server
//!    goes on. The new one looks whether it can serve all of that; if not, it ends, and nothing has changed.
//! 2. **Hand-over.** The running server writes everything back while it serves. Then it accepts nobody, answers what it has received, closes its connections and
//!    disks, and reports that. Clients that connect meanwhile wait in the queues of the sockets.
//! 3. **Succession.** The new server opens the disks, serves, and reports that. The old process ends.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nigh_host::front::lock;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::command::Command;
use crate::control::{Answer, ControlClient, ControlError, given_up};
use crate::handover::{Departure, Offer, OfferedExport, OfferedSocket, Purpose, SOCKETS_MAX};
use crate::listen::{Listen, Listener};
use crate::settings::ExportSettings;
use crate::socket::again;

/// Beginning of the answer to a command that a server does not know.
const UNKNOWN: &str = "no command:";

/// The same, received.
struct Received {
    offered: OfferedSocket,
    listener: Listener,
}

/// Why a server cannot take the place of another one.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// Nobody is there.
    #[error("no server runs at {0}, so there is none to replace: start without --replace")]
    Nobody(PathBuf),
    /// It belongs to somebody else.
    #[error("the server at {path} belongs to the user with number {theirs}, and this process to {ours}")]
    Stranger {
        /// The control socket.
        path: PathBuf,
        /// Its user.
        theirs: u32,
        /// That of this process.
        ours: u32,
    },
    /// It does not know the command.
    #[error(
        "the server at {0} is of another version, which cannot be replaced while it runs: end it (SIGTERM), and start without --replace"
    )]
    Version(PathBuf),
    /// It serves an export that the new server would not.
    #[error(
        "the running server serves export {0}, which this one would not: add it, or remove it there ('nigh ctl export remove {0}')"
    )]
    Missing(String),
    /// An export would be another disk.
    #[error("export {name} is {theirs}, and would be {ours}: clients that go on would meet another disk")]
    Moved {
        /// The export.
        name: String,
        /// Its targets.
        theirs: String,
        /// The new server's.
        ours: String,
    },
    /// Clients would be refused.
    #[error("the running server listens on {0}, and this one would not: its clients could not connect again")]
    Deaf(String),
    /// It refused, or did not do it, and goes on.
    #[error("the running server goes on: {0}")]
    Refused(String),
    /// It ended without an answer.
    #[error(
        "the running server ended before it had handed over, so what it had not written is lost; nothing is served (start without --replace)"
    )]
    Died,
    /// The connection to it broke, or it sent something else.
    #[error("the running server cannot be asked: {0}")]
    Io(#[from] io::Error),
}

/// A running server, as the one that is to take its place sees it.
pub struct Predecessor {
    path: PathBuf,
    client: ControlClient,
    process: u32,
    exports: Vec<OfferedExport>,
    after_loss: Option<u64>,
    sockets: Vec<Received>,
}

impl Predecessor {
    /// Asks the server at the control socket `path` for its sockets. It goes on serving.
    pub fn ask(path: &Path) -> Result<Predecessor, ReplaceError> {
        let client = ControlClient::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ReplaceError::Nobody(path.to_owned()),
            _ => error.into(),
        })?;
        let theirs = getsockopt(client.stream(), PeerCredentials).map_err(io::Error::from)?.uid();
        let ours = rustix::process::geteuid().as_raw();
        if theirs != ours {
            return Err(ReplaceError::Stranger { path: path.to_owned(), theirs, ours });
        }
        let line = serde_json::to_vec(&Command::Offer {}).map_err(io::Error::from)?;
        client.stream().write_all(&[&line, &b"\n"[..]].concat())?;
        let (text, sockets) = receive(client.stream()).map_err(given_up)?;
        let answer: Answer = serde_json::from_slice(&text).map_err(io::Error::from)?;
        let offer = match (answer.offer, answer.error) {
            (_, Some(error)) if error.starts_with(UNKNOWN) => return Err(ReplaceError::Version(path.to_owned())),
            (_, Some(error)) => return Err(ReplaceError::Refused(error)),
            (Some(offer), None) if offer.sockets.len() == sockets.len() => offer,
            _ => return Err(ReplaceError::Version(path.to_owned())),
        };
        let adopt = |(offered, socket): (OfferedSocket, OwnedFd)| {
            let listener = Listener::adopted(socket, offered.file.as_deref())?;
            io::Result::Ok(Received { offered, listener })
        };
        let sockets = offer.sockets.into_iter().zip(sockets).map(adopt).collect::<Result<_, _>>()?;
        let Offer { process, exports, after_loss, .. } = offer;
        Ok(Predecessor { path: path.to_owned(), client, process, exports, after_loss, sockets })
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// As [`Settings::after_loss`](crate::Settings::after_loss).
    pub fn after_loss(&self) -> Option<u64> {
        self.after_loss
    }

    /// Why a server of `exports` at `addresses` cannot take its place.
    pub fn check(&self, exports: &[ExportSettings], addresses: &[Listen]) -> Result<(), ReplaceError> {
        for theirs in &self.exports {
            let name = theirs.name.clone();
            let Some(ours) = exports.iter().find(|export| export.disk.name == name) else {
                return Err(ReplaceError::Missing(name));
            };
            let ours = OfferedExport::of(ours);
            if ours.targets != theirs.targets {
                let [theirs, ours] = [&theirs.targets, &ours.targets].map(|targets| targets.join(" and "));
                return Err(ReplaceError::Moved { name, theirs, ours });
            }
        }
        // Those that were passed to it are passed on.
        let needed = |socket: &&Received| socket.offered.purpose == Purpose::Clients && !socket.offered.passed;
        let is_wanted = |socket: &Received| addresses.iter().any(|wanted| socket.listener.is_at(wanted));
        match self.sockets.iter().filter(needed).find(|socket| !is_wanted(socket)) {
            Some(socket) => Err(ReplaceError::Deaf(socket.offered.address.clone())),
            None => Ok(()),
        }
    }

    /// Whether it listens there for clients.
    pub fn is_at(&self, wanted: &Listen) -> bool {
        self.sockets.iter().any(|socket| socket.listener.is_at(wanted))
    }

    /// Has it end. An error if it goes on, or died.
    pub fn end(&mut self) -> Result<Departure, ReplaceError> {
        match self.client.ask(&Command::HandOver {}) {
            Ok(answer) => {
                let departure = answer.departure.ok_or_else(|| ReplaceError::Version(self.path.clone()))?;
                if !departure.unwritten.is_empty() {
                    // It has disks open, as long as it is there.
                    self.client.wait_for_end();
                }
                Ok(departure)
            }
            Err(ControlError::Refused(error)) => Err(ReplaceError::Refused(error)),
            Err(ControlError::Io(error)) if is_gone(&error) => Err(ReplaceError::Died),
            Err(ControlError::Io(error)) => Err(error.into()),
            Err(ControlError::Form(error)) => Err(io::Error::from(error).into()),
        }
    }

    /// Its sockets, for the service that takes its place.
    pub fn take_sockets(&mut self) -> Sockets {
        Sockets(Mutex::new(std::mem::take(&mut self.sockets)))
    }

    /// Reports to it that its place is taken.
    pub fn succeed(mut self) {
        // It may have ended already.
        if let Err(error) = self.client.ask(&Command::Succeed {}) {
            tracing::debug!(%error, control = %self.path.display(), "the server before this one did not answer");
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Listening sockets of a server whose place another one takes.
#[derive(Default)]
pub struct Sockets(Mutex<Vec<Received>>);

impl Sockets {
    /// The one at `address`, if there is one.
    pub(crate) fn take(&self, purpose: Purpose, address: &Listen) -> Option<Listener> {
        let mut sockets = lock(&self.0);
        let fits = |socket: &Received| socket.offered.purpose == purpose && socket.listener.is_at(address);
        let at = sockets.iter().position(fits)?;
        Some(sockets.swap_remove(at).listener)
    }

    /// Closes those that were not taken.
    pub(crate) fn close(&self) {
        lock(&self.0).clear();
    }

    /// Those for clients that were passed to the other server when it began.
    pub(crate) fn take_passed(&self) -> Vec<Listener> {
        let mut sockets = lock(&self.0);
        sockets.extract_if(.., |socket| socket.offered.passed).map(|socket| socket.listener).collect()
    }
}

/// A line, and the sockets that came with it.
fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut line, mut sockets, mut bytes) = (Vec::new(), Vec::new(), [0; 4096]);
    while !line.ends_with(b"\n") {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = again(|| {
            let slices = &mut [IoSliceMut::new(&mut bytes)];
            rustix::net::recvmsg(stream, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        line.extend_from_slice(&bytes[..received.bytes]);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                sockets.extend(passed);
            }
        }
    }
    Ok((line, sockets))
}
