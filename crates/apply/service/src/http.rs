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
const REQUEST_MAX: usize = 16 << 10;
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
pub enum Form<'a> {
    /// The text format of Prometheus.
    Prometheus,
    /// A JSON object.
    Json,
    /// A page for browsers that asks for the others.
    Page {
        /// Browsers execute scripts and apply styles of the page that have this nonce, and no others.
        nonce: &'a str,
    },
    /// The last hour as a JSON object.
    History {
        /// Of this export; of all together without it.
        export: Option<&'a str>,
    },
}

/// Statistics at the moment; `None` if there are none of this form.
pub type Report = Arc<dyn Fn(Form<'_>) -> Option<String> + Send + Sync>;

/// Answers clients, each of which asks once for `/metrics`, in the format that it prefers, `/json`, or the page at `/` and its `/history.json`.
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

/// Whether the lines of a request have this token: as a bearer's, or as a password, for which browsers ask.
fn is_allowed(request: &str, token: &str) -> bool {
    let mut sent = values(request, "authorization").filter_map(|value| {
        let (scheme, sent) = value.split_once(' ')?;
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Some(sent.trim().as_bytes().to_vec()),
            "basic" => {
                let pair = base64(sent.trim())?;
                let end_of_user = pair.iter().position(|byte| *byte == b':')?;
                Some(pair[end_of_user + 1..].to_vec())
            }
            _ => None,
        }
    });
    sent.any(|sent| sent.ct_eq(token.as_bytes()).into())
}

/// The bytes that a text in base64 (RFC 4648, 4) encodes.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// The value of a parameter in the query of a request's target, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))?.1;
    let (mut decoded, mut rest) = (Vec::new(), value.as_bytes());
    while let [byte, tail @ ..] = rest {
        rest = tail;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (digits, after) = tail.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Characters that nobody can guess, for one page.
fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A reply: its status with fields of its own, its type, and its body.
type Reply = (String, &'static str, String);

/// The reply to a request that is allowed.
fn reply(request: &str, target: Option<&str>, report: &Report) -> io::Result<Reply> {
    let (path, query) = target.map(|target| target.split_once('?').unwrap_or((target, ""))).unwrap_or_default();
    let ok = |form, kind| report(form).map(|body| ("200 OK\r\nCache-Control: no-store".to_owned(), kind, body));
    let found = match path {
        "/metrics" => report(Form::Prometheus).map(|page| {
            let accept: Vec<&str> = values(request, "accept").collect();
            let exposition = Exposition::preferred(&accept.join(","));
            let page = if exposition == Exposition::Classic { classic(&page) } else { page };
            ("200 OK\r\nVary: Accept".to_owned(), exposition.content_type(), page)
        }),
        "/json" => ok(Form::Json, "application/json"),
        "/history.json" => ok(Form::History { export: parameter(query, "export").as_deref() }, "application/json"),
        "/" => {
            let nonce = nonce()?;
            report(Form::Page { nonce: &nonce }).map(|body| (page_status(&nonce), "text/html; charset=utf-8", body))
        }
        _ => None,
    };
    let none = || ("404 Not Found".to_owned(), "text/plain", "there are /metrics and /json\n".to_owned());
    Ok(found.unwrap_or_else(none))
}

/// The status of the page, and what it may do: run its own script, apply its own style, and ask its own server.
fn page_status(nonce: &str) -> String {
    format!(
        "200 OK\r\nCache-Control: no-store\r\nContent-Security-Policy: default-src 'none'; script-src 'nonce-{nonce}'; \
         style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
         Referrer-Policy: no-referrer"
    )
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
    let is_head = method == Some("HEAD");
    let (status, kind, body) = match method {
        _ if token.is_some_and(|token| !is_allowed(&request, token)) => {
            let status = "401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nWWW-Authenticate: Basic realm=\"nigh\"";
            (status.to_owned(), "text/plain", "statistics need the server's token\n".to_owned())
        }
        Some("GET" | "HEAD") => reply(&request, target, report)?,
        _ => ("405 Method Not Allowed\r\nAllow: GET, HEAD".to_owned(), "text/plain", "only GET and HEAD\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
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

    #[test]
    fn a_browsers_password_is_the_token() {
        // "any:secret", ":secret" and "a:b:secret", as browsers send them.
        let request = |sent: &str| format!("GET / HTTP/1.1\r\nAuthorization: Basic {sent}\r\n\r\n");
        for sent in ["YW55OnNlY3JldA==", "OnNlY3JldA=="] {
            assert!(is_allowed(&request(sent), "secret"), "{sent}");
        }
        assert!(is_allowed(&request("YTpiOnNlY3JldA=="), "b:secret"));
        for sent in ["", "=", "c2VjcmV0", "YW55OnNlY3Jl", "YW55OnNlY3JldHM=", "YW55OnNlY3JldA!!"] {
            assert!(!is_allowed(&request(sent), "secret"), "{sent}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let name = |query| parameter(query, "export");
        assert_eq!(name("export=a%20b%2F%3Cscript%3E&x=y").as_deref(), Some("a b/<script>"));
        assert_eq!(name("x=y&export=%C3%BC+c").as_deref(), Some("ü c"));
        assert_eq!(name("export=").as_deref(), Some(""));
        for query in ["", "export", "exports=a", "export=%", "export=%4", "export=%zz", "export=%FF"] {
            assert_eq!(name(query), None, "{query}");
        }
    }

    #[test]
    fn nonces_differ() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert!(one != other && one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one} {other}");
    }
}
