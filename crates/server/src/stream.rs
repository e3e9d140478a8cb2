//! A connection's bytes: a socket, or a pair of pipes.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};

/// Most slices that one call writes: what Linux allows.
pub(crate) const SLICES_MAX: usize = 1024;

/// What bytes come from and go to. One thread reads; one at a time writes.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connected socket.
    Socket(OwnedFd),
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
            true => Stream::Socket(output),
            false => Stream::Pipes { input, output },
        }
    }

    /// Reads and writes that wait for longer fail with `WouldBlock`. Pipes have no such limit.
    pub(crate) fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        if let Stream::Socket(socket) = self {
            sockopt::set_socket_timeout(socket, Timeout::Recv, Some(read))?;
            sockopt::set_socket_timeout(socket, Timeout::Send, Some(write))?;
        }
        Ok(())
    }

    /// Reads what there is, at least a byte; 0 at the end.
    pub(crate) fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let input = match self {
            Stream::Socket(socket) => socket,
            Stream::Pipes { input, .. } => input,
        };
        loop {
            let read = match slices {
                [alone] => rustix::io::read(input, &mut **alone),
                _ => rustix::io::readv(input, slices),
            };
            match read {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    /// Writes at least a byte of `slices`, of which there are at most [`SLICES_MAX`]. Without `wait` it may be that none
    /// can be written: `WouldBlock`.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        loop {
            let written = match self {
                Stream::Socket(socket) => {
                    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
                    rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
                }
                Stream::Pipes { output, .. } if wait => rustix::io::writev(output, slices),
                Stream::Pipes { .. } => Err(Errno::AGAIN),
            };
            match written {
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    /// Nothing more is read; who waits for it is woken. Pipes are left as they are.
    pub(crate) fn stop_reading(&self) {
        if let Stream::Socket(socket) = self {
            // Fails where the peer is gone, and then there is nothing to stop.
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Read);
        }
    }

    /// Nothing more is read or written; who waits for it is woken. Pipes are left as they are.
    pub(crate) fn shut_down(&self) {
        if let Stream::Socket(socket) = self {
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }
}
