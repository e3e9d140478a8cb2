//! The smallest HTTP server that Prometheus and curl can read statistics from.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nigh_host::front::lock;
use subtle::ConstantTimeEq;

use crate::error::StartError;
use crate::exposition::{Exposition, classic};
use crate::settings::MetricsSettings;

/// Longest request that is looked at.
const REQUEST_MAX: usize = 4096;
/// Longest token, in bytes.
const TOKEN_MAX: usize = 1024;
/// How long a client may take for all of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that are answered at the same time, by threads of their own. For another one, the oldest is closed.
const CLIENTS_MAX: usize = 8;
/// Threads, with those whose clients were closed: for a moment, unless many come at once.
const THREADS_MAX: usize = 32;

impl MetricsSettings {
    /// Listens; returns where, too.
    pub fn listen(&self) -> Result<(SocketAddr, TcpListener), StartError> {
        if !(self.address.ip().is_loopback() || self.token.is_some() || self.insecure) {
            return Err(StartError::OpenMetrics(self.address));
        }
        let bound = TcpListener::bind(self.address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        bound.map_err(|error| StartError::Metrics(self.address, error))
    }

    /// Reads the token, if clients need one.
    pub fn token(&self) -> Result<Option<String>, StartError> {
        let Some(path) = &self.token else { return Ok(None) };
        let wrong = |reason: String| StartError::Token { path: path.clone(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let token = text.trim();
        if token.is_empty() || token.len() > TOKEN_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(format!("it is a line of 1 to {TOKEN_MAX} ASCII characters without spaces")));
        }
        Ok(Some(token.to_owned()))
    }
}

/// The forms of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The text format of Prometheus.
    Prometheus,
    /// A JSON object.
    Json,
}

/// Statistics at the moment.
pub type Report = Arc<dyn Fn(Form) -> String + Send + Sync>;

/// Answers clients, each of which asks once for `/metrics`, in the format that it prefers, or `/json`.
pub struct Desk {
    token: Arc<Option<String>>,
    /// The oldest first; a thread has each until it ends.
    clients: Mutex<VecDeque<Weak<TcpStream>>>,
}

impl Desk {
    /// Answers only those that send this token, if there is one.
    pub fn new(token: Option<String>) -> Desk {
        Desk { token: Arc::new(token), clients: Mutex::default() }
    }

    /// Has a thread answer a client: the next ones do not wait for it.
    pub fn attend(&self, report: &Report, socket: OwnedFd) {
        let stream = Arc::new(TcpStream::from(socket));
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        if clients.len() >= THREADS_MAX {
            return;
        }
        clients.push_back(Arc::downgrade(&stream));
        // Those before it are closed already.
        let excess = clients.len().checked_sub(CLIENTS_MAX + 1);
        if let Some(oldest) = excess.and_then(|at| clients[at].upgrade()) {
            // Fails if it left.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        drop(clients);
        let (report, token) = (report.clone(), self.token.clone());
        let answer = move || {
            if let Err(error) = exchange(&stream, token.as_deref(), &report) {
                tracing::debug!(%error, "statistics could not be sent");
            }
        };
        if let Err(error) = Builder::new().name("statistics".into()).spawn(answer) {
            tracing::warn!(%error, "no thread to answer a request for statistics");
        }
    }
}

/// The values of a field of a request.
fn values<'a>(request: &'a str, field: &str) -> impl Iterator<Item = &'a str> {
    request.lines().skip(1).filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(field).then_some(value.trim())
    })
}

/// Whether the lines of a request have this token.
fn is_allowed(request: &str, token: &str) -> bool {
    let sent = values(request, "authorization").filter_map(|value| {
        let (scheme, sent) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(sent.trim())
    });
    sent.into_iter().any(|sent| sent.as_bytes().ct_eq(token.as_bytes()).into())
}

fn exchange(mut stream: &TcpStream, token: Option<&str>, report: &Report) -> io::Result<()> {
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
    let request = String::from_utf8_lossy(&request);
    let mut words = request.split_ascii_whitespace();
    let (method, target) = (words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    let is_head = method == Some("HEAD");
    let method = if is_head { Some("GET") } else { method };
    let (status, kind, body) = match (method, path) {
        _ if token.is_some_and(|token| !is_allowed(&request, token)) => {
            let status = "401 Unauthorized\r\nWWW-Authenticate: Bearer";
            (status, "text/plain", "statistics need the server's token\n".to_owned())
        }
        (Some("GET"), Some("/metrics")) => {
            let accept: Vec<&str> = values(&request, "accept").collect();
            let (exposition, page) = (Exposition::preferred(&accept.join(",")), report(Form::Prometheus));
            let page = if exposition == Exposition::Classic { classic(&page) } else { page };
            ("200 OK\r\nVary: Accept", exposition.content_type(), page)
        }
        (Some("GET"), Some("/json")) => ("200 OK", "application/json", report(Form::Json)),
        (Some("GET"), _) => ("404 Not Found", "text/plain", "there are /metrics and /json\n".to_owned()),
        _ => ("405 Method Not Allowed\r\nAllow: GET, HEAD", "text/plain", "only GET and HEAD\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let reply = if is_head { head } else { [head, body].concat() };
    let mut unsent = reply.as_bytes();
    while !unsent.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(unsent)?;
        unsent = &unsent[sent..];
    }
    Ok(())
}

/// Time left until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let request = |line: &str| format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n");
        for line in ["Authorization: Bearer secret", "authorization:bearer  secret ", "AUTHORIZATION: BEARER secret"] {
            assert!(is_allowed(&request(line), "secret"), "{line}");
        }
        for line in [
            "",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            "Authorization: Bearer secre",
            "Authorization: Bearer secret2",
            "Authorization: Basic secret",
            "X-Authorization: Bearer secret",
        ] {
            assert!(!is_allowed(&request(line), "secret"), "{line}");
        }
        assert!(!is_allowed("Authorization: Bearer secret", "secret"), "the first line is no header");
    }
}
