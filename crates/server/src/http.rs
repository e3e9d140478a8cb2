//! The smallest HTTP server that Prometheus and curl can read statistics from.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::metrics::Statistics;

/// Longest request that is looked at.
const REQUEST_MAX: usize = 4096;
/// How long a client may take for all of it: the next one waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers one request: `/metrics` in Prometheus' text format, `/json`.
pub(crate) fn answer(socket: OwnedFd, statistics: &Statistics) {
    let mut stream = TcpStream::from(socket);
    if let Err(error) = exchange(&mut stream, statistics) {
        tracing::debug!(%error, "statistics could not be sent");
    }
}

fn exchange(stream: &mut TcpStream, statistics: &Statistics) -> io::Result<()> {
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
