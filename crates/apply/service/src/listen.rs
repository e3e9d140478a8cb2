//! Addresses and sockets of a server.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Group;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, sockopt};

use crate::newcomers::Peer;
use crate::refusals::Refusals;
use crate::settings::SocketSettings;
use crate::socket::again;

/// The mask for a Unix socket that is created: only its owner can connect.
const OWNER_ONLY: u32 = 0o177;
/// Permissions of a Unix socket with a group of its own.
const GROUP_TOO: u32 = 0o660;

/// The pause after a client could not be accepted.
const FAILED: Duration = Duration::from_millis(100);

/// When a silent client over TCP is first asked whether it is there, then how often, and how often in vain.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

/// The address on which a server listens, as a user writes it: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(String),
}

/// Why a server cannot listen somewhere.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The text is neither kind of address.
    #[error("`{0}` is no address to listen on: it is written unix:PATH or tcp:HOST:PORT")]
    Address(String),
    /// Somebody else listens there.
    #[error("cannot listen on {0}: another server does")]
    Taken(Listen),
    /// A file is in the way.
    #[error("cannot listen on {0}: a file that is no socket has that name")]
    InTheWay(Listen),
    /// Others than this machine's users would reach the disks.
    #[error(
        "{0} would be open to the network without encryption: give a certificate, use a loopback address, or say --insecure-tcp"
    )]
    Open(Listen),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The address.
        address: Listen,
        /// Why.
        source: io::Error,
    },
    /// There is no such group.
    #[error("there is no group `{0}`")]
    NoGroup(String),
    /// The group or the permissions of a socket cannot be set.
    #[error("cannot set the {what} of {address}: {source}")]
    Access {
        /// The attribute that cannot be set.
        what: &'static str,
        /// Of which socket.
        address: Listen,
        /// Why.
        source: io::Error,
    },
    /// A socket that was passed by the parent process is no listening stream socket.
    #[error("socket {0} of LISTEN_FDS is no listening Unix or TCP socket")]
    Passed(usize),
}

impl Listen {
    /// The error if somebody else listens there: before a server opens disks that it would take over from the one that does. Returns whether a server was there
    /// that did not end in order: it left its socket behind.
    pub fn check_free(&self) -> Result<bool, ListenError> {
        match self {
            Listen::Unix(path) => remove_stale(path, self),
            Listen::Tcp(name) => match TcpListener::bind(name) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(ListenError::Taken(self.clone())),
                // Whatever else is wrong is reported when it is listened on.
                _ => Ok(false),
            },
        }
    }

    /// The same address for a process in any directory.
    pub fn absolute(&self) -> Listen {
        match self {
            Listen::Unix(path) => Listen::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            Listen::Tcp(_) => self.clone(),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Listen::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Ok(Listen::Tcp(address.to_owned())),
            _ => Err(ListenError::Address(text.to_owned())),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket and, if it made that, its file: path, device and inode.
    Unix(UnixListener, Option<(PathBuf, u64, u64)>),
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens. With `insecure`, TCP is not limited to loopback addresses.
    pub fn bind(address: &Listen, insecure: bool, sockets: &SocketSettings) -> Result<Listener, ListenError> {
        let system = |source| ListenError::System { address: address.clone(), source };
        match address {
            Listen::Unix(path) => {
                let group = sockets.group.as_deref().map(group).transpose()?;
                remove_stale(path, address)?;
                // The file is never anybody else's, not even for a moment.
                let before = rustix::process::umask(Mode::from_raw_mode(OWNER_ONLY));
                let bound = UnixListener::bind(path);
                rustix::process::umask(before);
                let listener = bound.map_err(system)?;
                let file = std::fs::metadata(path).map_err(system)?;
                let listener = Listener::Unix(listener, Some((path.clone(), file.dev(), file.ino())));
                if let Err((what, source)) = let_in(path, group, sockets.mode) {
                    listener.stop();
                    return Err(ListenError::Access { what, address: address.clone(), source });
                }
                Ok(listener)
            }
            Listen::Tcp(name) => {
                let addresses = resolved(name, address, insecure)?;
                let listener = TcpListener::bind(&*addresses).map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => ListenError::Taken(address.clone()),
                    _ => system(source),
                })?;
                Ok(Listener::Tcp(listener))
            }
        }
    }

    /// A listening socket of another process. The file at `path` is its own, and removed at the end.
    pub(crate) fn adopted(socket: OwnedFd, path: Option<&Path>) -> io::Result<Listener> {
        if rustix::net::getsockname(&socket)?.address_family() != AddressFamily::UNIX {
            return Ok(Listener::Tcp(socket.into()));
        }
        let file = match path {
            Some(path) => Some(std::fs::metadata(path).map(|file| (path.to_owned(), file.dev(), file.ino()))?),
            None => None,
        };
        Ok(Listener::Unix(socket.into(), file))
    }

    /// Whether it listens where `wanted` says.
    pub(crate) fn is_at(&self, wanted: &Listen) -> bool {
        match (self, wanted) {
            (Listener::Tcp(listener), Listen::Tcp(name)) => {
                let (Ok(at), Ok(mut addresses)) = (listener.local_addr(), name.to_socket_addrs()) else { return false };
                addresses.any(|wanted| wanted.ip() == at.ip() && [0, at.port()].contains(&wanted.port()))
            }
            (Listener::Unix(_, Some((_, device, inode))), Listen::Unix(path)) => {
                std::fs::metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (*device, *inode))
            }
            _ => false,
        }
    }

    /// Gives an adopted listener at `address` the permissions that a new one would have there.
    pub(crate) fn permit(&self, address: &Listen, insecure: bool, sockets: &SocketSettings) -> Result<(), ListenError> {
        match address {
            Listen::Tcp(name) => resolved(name, address, insecure).map(drop),
            Listen::Unix(path) => {
                let group = sockets.group.as_deref().map(group).transpose()?;
                let mode = sockets.mode.unwrap_or(if group.is_some() { GROUP_TOO } else { 0o777 & !OWNER_ONLY });
                let denied = |(what, source)| ListenError::Access { what, address: address.clone(), source };
                let_in(path, group, Some(mode)).map_err(denied)
            }
        }
    }

    /// The sockets that the parent process passed by `LISTEN_FDS`. With `insecure`, TCP is not limited to loopback addresses.
    pub(crate) fn passed(insecure: bool) -> Result<Vec<Listener>, ListenError> {
        let mut passed = listenfd::ListenFd::from_env();
        let mut listeners = Vec::new();
        for at in 0..passed.len() {
            let listener = match passed.take_unix_listener(at) {
                Ok(Some(listener)) => Listener::Unix(listener, None),
                _ => match passed.take_tcp_listener(at) {
                    Ok(Some(listener)) => {
                        let address = listener.local_addr().map_err(|_| ListenError::Passed(at))?;
                        if !insecure && !address.ip().is_loopback() {
                            return Err(ListenError::Open(Listen::Tcp(address.to_string())));
                        }
                        Listener::Tcp(listener)
                    }
                    _ => return Err(ListenError::Passed(at)),
                },
            };
            listeners.push(listener);
        }
        Ok(listeners)
    }

    /// Its address, if that has a name: with the port that the system chose for port 0.
    pub fn address(&self) -> Option<Listen> {
        match self {
            Listener::Unix(_, Some((path, ..))) => Some(Listen::Unix(path.clone())),
            Listener::Unix(listener, None) => {
                listener.local_addr().ok()?.as_pathname().map(|path| Listen::Unix(path.to_owned()))
            }
            Listener::Tcp(listener) => Some(Listen::Tcp(listener.local_addr().ok()?.to_string())),
        }
    }

    /// The next client, and who it is.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        Ok(match self {
            Listener::Unix(listener, _) => {
                let stream = listener.accept()?.0;
                // Not of rustix: a process of another PID namespace has the number 0, for which its type has no value.
                let user = getsockopt(&stream, PeerCredentials).map_or(u32::MAX, |peer| peer.uid());
                (stream.into(), Peer::User(user))
            }
            Listener::Tcp(listener) => {
                let (stream, address): (TcpStream, SocketAddr) = listener.accept()?;
                stream.set_nodelay(true)?;
                // A client whose machine is gone gives back what it has, though nothing is sent to it.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
                sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_PAUSE)?;
                sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_TRIES)?;
                (stream.into(), Peer::at(address.ip()))
            }
        })
    }

    /// Accepts clients until `stopping`, and `stop`.
    pub fn accept_all(&self, stopping: &AtomicBool, client: impl Fn(OwnedFd, Peer)) {
        self.accept_until(stopping, None, client);
    }

    /// As `accept_all`, or until `left` can be read. Then, clients that connect wait for another process that has the socket.
    pub(crate) fn accept_until(
        &self,
        stopping: &AtomicBool,
        left: Option<BorrowedFd<'_>>,
        client: impl Fn(OwnedFd, Peer),
    ) {
        let failures = Refusals::default();
        while !stopping.load(Ordering::Acquire) {
            if left.is_some_and(|left| self.wait_or(left)) {
                return;
            }
            match self.accept() {
                Ok((socket, peer)) => client(socket, peer),
                Err(_) if stopping.load(Ordering::Acquire) => {}
                Err(error) => {
                    if let Some(failures) = failures.add(Instant::now()) {
                        tracing::warn!(%error, failures, "a client cannot be accepted");
                    }
                    std::thread::sleep(FAILED);
                }
            }
        }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }

    /// Waits for a client. Returns true if `left` can be read.
    fn wait_or(&self, left: BorrowedFd<'_>) -> bool {
        let mut polled =
            [PollFd::from_borrowed_fd(left, PollFlags::IN), PollFd::from_borrowed_fd(self.socket(), PollFlags::IN)];
        // After an error, `accept` has it, too.
        let _ = again(|| poll(&mut polled, None));
        !polled[0].revents().is_empty()
    }

    /// Ends the wait of `accept`.
    pub fn stop(&self) {
        let _ = rustix::net::shutdown(self.socket(), rustix::net::Shutdown::Both);
        // Unless somebody else has put another there. It has another number: the open socket keeps its own inode in use.
        if let Listener::Unix(_, Some((path, device, inode))) = self
            && std::fs::metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (*device, *inode))
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "the socket cannot be removed");
        }
    }
}

/// The addresses of a name, which must be of this machine only unless `insecure`.
fn resolved(name: &str, address: &Listen, insecure: bool) -> Result<Vec<SocketAddr>, ListenError> {
    let system = |source| ListenError::System { address: address.clone(), source };
    let addresses: Vec<SocketAddr> = name.to_socket_addrs().map_err(system)?.collect();
    if !insecure && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(ListenError::Open(address.clone()));
    }
    Ok(addresses)
}

/// The number of a group.
fn group(name: &str) -> Result<u32, ListenError> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => name.parse().map_err(|_| ListenError::NoGroup(name.to_owned())),
    }
}

/// Lets others connect to the socket at `path`; the error with what could not be set.
fn let_in(path: &Path, group: Option<u32>, mode: Option<u32>) -> Result<(), (&'static str, io::Error)> {
    if let Some(group) = group {
        lchown(path, None, Some(group)).map_err(|error| ("group", error))?;
    }
    match mode.or(group.map(|_| GROUP_TOO)) {
        Some(mode) => std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(|error| ("mode", error)),
        None => Ok(()),
    }
}

/// Removes the socket of a server that is no more. Returns whether there was one.
fn remove_stale(path: &Path, address: &Listen) -> Result<bool, ListenError> {
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(false) };
    if !file.file_type().is_socket() {
        return Err(ListenError::InTheWay(address.clone()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let removed = std::fs::remove_file(path);
            removed.map(|()| true).map_err(|source| ListenError::System { address: address.clone(), source })
        }
        _ => Err(ListenError::Taken(address.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_another_server_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let bind = || Listener::bind(&Listen::Unix(path.clone()), false, &SocketSettings::default()).unwrap();
        for _ in 0..64 {
            let first = bind();
            std::fs::remove_file(&path).unwrap();
            let second = bind();
            first.stop();
            assert!(path.exists());
            second.stop();
            assert!(!path.exists());
        }
    }

    #[test]
    fn silent_clients_over_tcp_are_asked_whether_they_are_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = Listener::Tcp(listener).accept().unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), KEEPALIVE_IDLE);
    }
}
