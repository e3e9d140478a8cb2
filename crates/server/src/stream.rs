//! A connection's bytes: a socket, or a pair of pipes.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use rustls::ServerConfig;

use crate::tls::Secure;

/// Most slices that one call writes: what Linux allows.
pub(crate) const SLICES_MAX: usize = 1024;

/// What bytes come from and go to. One thread reads; one at a time writes.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connected socket, and TLS over it once that was started.
    Socket(OwnedFd, OnceLock<Box<Secure>>),
    /// Pipes, terminals or files, as standard input and output may be.
    Pipes {
        /// Read from here.
        input: OwnedFd,
        /// Write to here.
        output: OwnedFd,
    },
}

impl Stream {
    /// What `input` and `output` are: one socket, or pipes.
    pub(crate) fn of(input: OwnedFd, output: OwnedFd) -> Stream {
        match sockopt::socket_type(&output).is_ok() && sockopt::socket_type(&input).is_ok() {
            true => Stream::socket(output),
            false => Stream::Pipes { input, output },
        }
    }

    /// A connected socket.
    pub(crate) fn socket(socket: OwnedFd) -> Stream {
        Stream::Socket(socket, OnceLock::new())
    }

    /// Performs a TLS handshake; from then on every byte is encrypted. Says what names the client's certificate has.
    pub(crate) fn secure(&self, config: &Arc<ServerConfig>) -> io::Result<Vec<String>> {
        let Stream::Socket(socket, secure) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let session = secure.get_or_init({
            let session = Box::new(Secure::accept(config, socket)?);
            || session
        });
        Ok(session.names())
    }

    /// Reads and writes that wait for longer fail with `WouldBlock`. Pipes have no such limit.
    pub(crate) fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        if let Stream::Socket(socket, _) = self {
            sockopt::set_socket_timeout(socket, Timeout::Recv, Some(read))?;
            sockopt::set_socket_timeout(socket, Timeout::Send, Some(write))?;
        }
        Ok(())
    }

    /// Reads what there is, at least a byte; 0 at the end.
    pub(crate) fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Socket(socket, secure) => match secure.get() {
                None => receive(socket, slices),
                Some(secure) => secure.read(socket, slices),
            },
            Stream::Pipes { input, .. } => receive(input, slices),
        }
    }

    /// Writes at least a byte of `slices`, of which there are at most [`SLICES_MAX`]. Without `wait` it may be that none
    /// can be written: `WouldBlock`. Whoever was told that has to come again with the same bytes.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        match self {
            Stream::Socket(socket, secure) => match secure.get() {
                None => send(socket, slices, wait),
                Some(secure) => secure.write(socket, slices, wait),
            },
            Stream::Pipes { output, .. } if wait => again(|| rustix::io::writev(output, slices)),
            Stream::Pipes { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Nothing more is written: a client over TLS is told so.
    pub(crate) fn say_goodbye(&self) {
        if let Stream::Socket(socket, secure) = self
            && let Some(secure) = secure.get()
        {
            secure.say_goodbye(socket);
        }
    }

    /// Whether nobody can be told to stop reading from it.
    pub(crate) fn is_deaf(&self) -> bool {
        matches!(self, Stream::Pipes { .. })
    }

    /// Nothing more is read; who waits for it is woken. Pipes are left as they are.
    pub(crate) fn stop_reading(&self) {
        if let Stream::Socket(socket, _) = self {
            // Fails where the peer is gone, and then there is nothing to stop.
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Read);
        }
    }

    /// Nothing more is read or written; who waits for it is woken. Pipes are left as they are.
    pub(crate) fn shut_down(&self) {
        if let Stream::Socket(socket, _) = self {
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }
}

/// Calls until no signal comes between.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Reads what there is, at least a byte; 0 at the end.
pub(crate) fn receive(input: impl AsFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    match slices {
        [alone] => again(|| rustix::io::read(&input, &mut **alone)),
        _ => again(|| rustix::io::readv(&input, slices)),
    }
}

/// Sends at least a byte, or says `WouldBlock`.
pub(crate) fn send(socket: impl AsFd, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    again(|| rustix::net::sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags))
}
