//! The clients of the status. Their sockets never block: no client makes another one, or the guard, wait.
//!
//! 1. A client connects. If there are too many, the one that has been silent for longest is dropped.
//! 2. Its request arrives, in as many parts as it likes.
//! 3. It is answered, as fast as it takes the answer, and dropped.
//!
//! A client that has not been answered in [`PATIENCE`] is dropped.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::status::Status;

/// The most clients at a time, and the most that are accepted before the others are served.
const MOST: usize = 64;
/// The time allowed to a client to send its request and to take the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request in bytes; of a longer one, what is beyond is ignored.
const REQUEST_MOST: usize = 4096;

/// The connected clients, in the order in which they connected.
#[derive(Default)]
pub(crate) struct Clients(VecDeque<Client>);

struct Client {
    /// Reads and writes of a socket: the two kinds of streams have nothing else in common. It does not block.
    socket: File,
    since: Instant,
    request: Vec<u8>,
    /// The part of the reply that it has not taken yet; `None` before the request is complete.
    answer: Option<VecDeque<u8>>,
}

impl Clients {
    /// Accepts clients with `accept`, which does not block, up to [`MOST`].
    pub(crate) fn accept(&mut self, now: Instant, mut accept: impl FnMut() -> io::Result<OwnedFd>) {
        for _ in 0..MOST {
            // An error, such as that there is none, only concerns the client.
            let Ok(socket) = accept() else { return };
            if rustix::io::ioctl_fionbio(&socket, true).is_err() {
                continue;
            }
            if self.0.len() == MOST {
                let silent = self.0.iter().position(|client| client.answer.is_none());
                self.0.remove(silent.unwrap_or(0));
            }
            self.0.push_back(Client { socket: socket.into(), since: now, request: Vec::new(), answer: None });
        }
    }

    /// The awaited event.
    pub(crate) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.0.iter().map(|client| {
            let wanted = if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&client.socket, wanted)
        })
    }

    /// When the next one is dropped.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.front().map(|client| client.since + PATIENCE)
    }

    /// Reads and answers what is there, and drops those that are late.
    pub(crate) fn serve(&mut self, now: Instant, status: impl Fn() -> Status) {
        self.0.retain_mut(|client| now < client.since + PATIENCE && client.goes_on(&status));
    }
}

impl Client {
    /// Whether it is to be served further.
    fn goes_on(&mut self, status: impl Fn() -> Status) -> bool {
        let done = match self.answer {
            None => self.read(status),
            Some(_) => self.write(),
        };
        matches!(done, Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()))
    }

    /// Reads until there is no more, and answers a complete request.
    fn read(&mut self, status: impl Fn() -> Status) -> io::Result<()> {
        let mut part = [0; 1024];
        while !is_complete(&self.request) {
            let length = self.socket.read(&mut part)?;
            if length == 0 {
                return Ok(());
            }
            self.request.extend_from_slice(&part[..length]);
        }
        self.answer = Some(answer(&self.request, status).into());
        self.write()
    }

    /// Writes until all is written.
    fn write(&mut self) -> io::Result<()> {
        let Some(answer) = &mut self.answer else { return Ok(()) };
        while !answer.is_empty() {
            let length = self.socket.write(answer.as_slices().0)?;
            answer.drain(..length);
        }
        Ok(())
    }
}

fn is_complete(request: &[u8]) -> bool {
    request.len() >= REQUEST_MOST || request.windows(4).any(|four| four == b"\r\n\r\n")
}

/// The answer to a request of HTTP.
fn answer(request: &[u8], status: impl Fn() -> Status) -> Vec<u8> {
    let request = String::from_utf8_lossy(request);
    let (code, kind, text) = match request.split(' ').nth(1).filter(|_| request.starts_with("GET ")) {
        Some("/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", status().metrics())
        }
        Some("/json") => ("200 OK", "application/json", serde_json::to_string(&status()).unwrap_or_default()),
        _ => ("404 Not Found", "text/plain", "expected GET /metrics or GET /json\n".to_owned()),
    };
    let length = text.len();
    let head =
        format!("HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    format!("{head}{text}").into_bytes()
}
