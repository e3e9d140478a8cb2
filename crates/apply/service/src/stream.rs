//! A connection's bytes: a socket, or a pair of pipes.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nigh_backend::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use rustix::net::sockopt::{self, Timeout};
use rustls::ServerConfig;

use crate::socket::{again, receive, receive_now, send};
use crate::tls::Secure;

/// Most slices that one call writes: what Linux allows.
pub const SLICES_MAX: usize = 1024;

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

fn is_readable(input: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(input, PollFlags::IN)];
    again(|| poll(&mut ends, Some(&Timespec::default()))).is_ok_and(|count| count > 0)
}

/// The two directions of a connection's bytes. One thread reads; one at a time writes.
#[derive(Debug)]
pub struct Stream {
    ends: Ends,
    /// No more requests are taken from it.
    cut_off: AtomicBool,
    /// Nobody takes replies.
    abandoned: AtomicBool,
}

#[derive(Debug)]
enum Ends {
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
    /// The stream of `input` and `output`: a socket as input, which then is for both directions whatever the output is, or pipes.
    pub(crate) fn of(input: OwnedFd, output: OwnedFd) -> Stream {
        match sockopt::socket_type(&input) {
            Ok(_) => Stream::socket(input),
            Err(_) => Stream::new(Ends::Pipes { input, output }),
        }
    }

    /// A connected socket.
    pub fn socket(socket: OwnedFd) -> Stream {
        Stream::new(Ends::Socket(socket, OnceLock::new()))
    }

    fn new(ends: Ends) -> Stream {
        Stream { ends, cut_off: AtomicBool::new(false), abandoned: AtomicBool::new(false) }
    }

    /// Another descriptor of its socket, for a protocol that passes descriptors. An error if it is no socket.
    pub fn try_clone_socket(&self) -> io::Result<OwnedFd> {
        match &self.ends {
            Ends::Socket(socket, _) => socket.try_clone(),
            Ends::Pipes { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Performs a TLS handshake; from then on every byte is encrypted. Says what names the client's certificate has.
    pub fn secure(&self, config: &Arc<ServerConfig>) -> io::Result<Vec<String>> {
        let Ends::Socket(socket, secure) = &self.ends else { return Err(io::ErrorKind::Unsupported.into()) };
        let session = secure.get_or_init({
            let session = Box::new(Secure::accept(config, socket)?);
            || session
        });
        Ok(session.names())
    }

    /// Reads and writes that wait for longer fail with `WouldBlock`. Pipes have no such limit.
    pub fn set_patience(&self, read: Duration, write: Duration) -> io::Result<()> {
        if let Ends::Socket(socket, _) = &self.ends {
            sockopt::set_socket_timeout(socket, Timeout::Recv, Some(read))?;
            sockopt::set_socket_timeout(socket, Timeout::Send, Some(write))?;
        }
        Ok(())
    }

    /// Reads what there is, at least a byte; 0 at the end. Without `wait`, `WouldBlock` if there is nothing.
    pub fn read(&self, slices: &mut [IoSliceMut<'_>], wait: bool) -> io::Result<usize> {
        match &self.ends {
            Ends::Socket(socket, secure) => match secure.get() {
                None if wait => receive(socket, slices),
                None => receive_now(socket, slices),
                Some(secure) => secure.read(socket, slices, wait),
            },
            Ends::Pipes { input, .. } if wait || is_readable(input) => receive(input, slices),
            Ends::Pipes { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes at least a byte of `slices`, of which there are at most [`SLICES_MAX`]. Without `wait` it may be that none
    /// can be written: `WouldBlock`. The caller then has to call again with the same bytes.
    pub fn write(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<usize> {
        match &self.ends {
            Ends::Socket(socket, secure) => match secure.get() {
                None => send(socket, slices, wait),
                Some(secure) => secure.write(socket, slices, wait),
            },
            Ends::Pipes { output, .. } if wait => again(|| rustix::io::writev(output, slices)),
            Ends::Pipes { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Nothing more is written: a client over TLS is notified.
    pub fn say_goodbye(&self) {
        if let Ends::Socket(socket, secure) = &self.ends
            && let Some(secure) = secure.get()
        {
            secure.say_goodbye(socket);
        }
    }

    /// Whether it cannot be shut down for its reader.
    pub fn is_deaf(&self) -> bool {
        matches!(self.ends, Ends::Pipes { .. })
    }

    /// Whether `read` waits at most as long as `set_patience` sets. With TLS it waits for a record, which may come in parts.
    pub fn keeps_patience(&self) -> bool {
        matches!(&self.ends, Ends::Socket(_, secure) if secure.get().is_none())
    }

    /// Waits for up to `timeout` until there may be something to read; returns whether there may.
    pub fn wait_for_input(&self, timeout: Duration) -> bool {
        let (Ends::Socket(end, _) | Ends::Pipes { input: end, .. }) = &self.ends;
        let mut ends = [PollFd::new(end, PollFlags::IN)];
        again(|| poll(&mut ends, Some(&timespec(timeout)))).is_ok_and(|count| count > 0)
    }

    /// Waits for up to `timeout` until `signal` is raised, the client has gone or, if `input`, there may be something to
    /// read. Returns whether the client has gone, as far as that is known: one over TCP that closed its socket looks like one
    /// that has only finished its requests, until it is sent something.
    pub fn rest(&self, signal: &Signal, input: bool, timeout: Duration) -> bool {
        let (from, to) = match &self.ends {
            Ends::Socket(socket, _) => (socket, socket),
            Ends::Pipes { input, output } => (input, output),
        };
        let mut ends =
            [PollFd::new(to, PollFlags::empty()), PollFd::new(signal, PollFlags::IN), PollFd::new(from, PollFlags::IN)];
        let ends = if input { &mut ends[..] } else { &mut ends[..2] };
        let polled = again(|| poll(ends, Some(&timespec(timeout))));
        signal.clear();
        polled.is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Whether the client has gone, as far as that is known (`rest`).
    pub fn has_left(&self) -> bool {
        let (Ends::Socket(end, _) | Ends::Pipes { output: end, .. }) = &self.ends;
        let mut ends = [PollFd::new(end, PollFlags::empty())];
        again(|| poll(&mut ends, Some(&Timespec::default()))).is_ok_and(|count| count > 0)
    }

    /// Nobody takes replies: no more requests are taken from it, also of those that were received, and nothing is written.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.cut_off();
        self.shut_down();
    }

    /// No more requests are taken from it, also of those that were received.
    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Release);
    }

    /// Whether it was cut off.
    #[inline]
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Acquire)
    }

    /// Whether nobody takes replies, as far as somebody noticed.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Nothing more is received; who waits for it is woken. Pipes are left as they are.
    pub(crate) fn stop_reading(&self) {
        if let Ends::Socket(socket, _) = &self.ends {
            // Fails where the peer is gone, and then there is nothing to stop.
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Read);
        }
    }

    /// Nothing more is read or written; who waits for it is woken. Pipes are left as they are.
    pub fn shut_down(&self) {
        if let Ends::Socket(socket, _) = &self.ends {
            let _ = rustix::net::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }
}
