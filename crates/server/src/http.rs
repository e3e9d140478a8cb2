//! The smallest HTTP server that Prometheus and curl can read statistics from.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::clients::Common;
use crate::metrics::{Statistics, statistics};

/// Longest request that is looked at.
const REQUEST_MAX: usize = 4096;
/// How long a client may take for all of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that are answered by threads of their own. If there are more, the next ones wait for each other.
const THREADS_MAX: usize = 8;

/// Answers clients, each of which asks once for `/metrics`, in Prometheus' text format, or `/json`. It is shared with the
/// threads that answer.
#[derive(Default)]
pub(crate) struct Desk(Arc<()>);

impl Desk {
    /// Answers a client, so that the next ones need not wait for it.
    pub(crate) fn attend(&self, common: &Arc<Common>, socket: OwnedFd) {
        let stream = Arc::new(TcpStream::from(socket));
        if Arc::strong_count(&self.0) <= THREADS_MAX {
            let (common, stream, place) = (common.clone(), stream.clone(), self.0.clone());
            let run = move || {
                answer(&stream, &statistics(&common));
                drop(place);
            };
            match Builder::new().name("statistics".into()).spawn(run) {
                Ok(_) => return,
                Err(error) => tracing::warn!(%error, "no thread to answer a request for statistics"),
            }
        }
        answer(&stream, &statistics(common));
    }
}

fn answer(stream: &TcpStream, statistics: &Statistics) {
    if let Err(error) = exchange(stream, statistics) {
        tracing::debug!(%error, "statistics could not be sent");
    }
}

fn exchange(mut stream: &TcpStream, statistics: &Statistics) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part)? {
            0 => break,
            bytes => request.extend_from_slice(&part[..bytes]),
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.split_ascii_whitespace();
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", statistics.prometheus())
        }
        (Some("GET"), Some("/json")) => ("200 OK", "application/json", statistics.json()),
        (Some("GET"), _) => ("404 Not Found", "text/plain", "there are /metrics and /json\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let reply = [head, body].concat();
    let mut unsent = reply.as_bytes();
    while !unsent.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(unsent)?;
        unsent = &unsent[sent..];
    }
    Ok(())
}

/// What is left of the time until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
