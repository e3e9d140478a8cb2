//! The service: sleeps until there is pressure, ticks once a second while there is, and answers who asks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::guard::{Guard, GuardError, Next};
use crate::status::Status;

/// Between two ticks while there is something to watch: the dissertation's second.
const TICK: Duration = Duration::from_secs(1);

/// What wakes the guard: stalls of some task within a window of two seconds, in microseconds. A window must be a multiple of two
/// seconds unless one has CAP_SYS_RESOURCE. `full` would miss thrashing beside unrelated work, and on recent kernels waiting for
/// swap counts as I/O, not as memory.
const TRIGGERS: [(&str, &str); 2] = [("memory", "some 50000 2000000"), ("io", "some 200000 2000000")];

/// What a client has to say its request, and to take the answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Where the service listens.
#[derive(Clone, Debug)]
pub struct Listen {
    /// A socket for `status` in this folder.
    pub state: PathBuf,
    /// HTTP for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// Why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The guard cannot work.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// It cannot listen.
    #[error("{address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Signals cannot be watched, or nothing be waited for.
    #[error("waiting for events: {0}")]
    Wait(io::Error),
}

/// The name of the socket in the folder of the state.
const SOCKET: &str = "guard.sock";

impl Listen {
    fn open(&self) -> Result<(UnixListener, Option<TcpListener>), ServiceError> {
        let socket = self.state.join(SOCKET);
        // Whoever has the journal's lock is the only one: a socket that is there was left behind.
        let _ = fs::remove_file(&socket);
        let failed = |address: String| move |source| ServiceError::Listen { address, source };
        let local = UnixListener::bind(&socket).map_err(failed(socket.display().to_string()))?;
        let tcp = self.metrics.map(|address| TcpListener::bind(address).map_err(failed(address.to_string())));
        Ok((local, tcp.transpose()?))
    }
}

/// Guards until SIGTERM or SIGINT, then restores everything.
///
/// # Errors
/// Where the guard cannot work or listen; everything is restored then, too.
pub fn serve(guard: &mut Guard, listen: &Listen, procfs: &Path) -> Result<(), ServiceError> {
    let done = serve_until_stopped(guard, listen, procfs);
    let released = guard.release_all("the guard ends");
    let _ = fs::remove_file(listen.state.join(SOCKET));
    done.and(released.map_err(ServiceError::from))
}

fn serve_until_stopped(guard: &mut Guard, listen: &Listen, procfs: &Path) -> Result<(), ServiceError> {
    let (stop, stopped) = UnixStream::pair().map_err(ServiceError::Wait)?;
    for signal in [SIGTERM, SIGINT] {
        stop.try_clone().and_then(|end| pipe::register(signal, end)).map_err(ServiceError::Wait)?;
    }
    let (local, tcp) = listen.open()?;
    let triggers = open_triggers(procfs);
    let start = Instant::now();
    let mut due = Some(start);
    loop {
        let mut events = vec![PollFd::new(&stopped, PollFlags::IN), PollFd::new(&local, PollFlags::IN)];
        let tcp_at = tcp.as_ref().map(|tcp| {
            events.push(PollFd::new(tcp, PollFlags::IN));
            events.len() - 1
        });
        let awake = events.len();
        if due.is_none() {
            events.extend(triggers.iter().map(|trigger| PollFd::new(trigger, PollFlags::PRI)));
        }
        let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        let wait = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        match poll(&mut events, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ServiceError::Wait(error.into())),
        }
        let has = |at: usize| !events[at].revents().is_empty();
        if has(0) {
            return Ok(());
        }
        let now = start.elapsed();
        if has(1)
            && let Ok((client, _)) = local.accept()
        {
            answer_local(client, &guard.status(now));
        }
        if let Some(tcp) = tcp.as_ref().filter(|_| tcp_at.is_some_and(has))
            && let Ok((client, _)) = tcp.accept()
        {
            answer_tcp(client, &guard.status(now));
        }
        if (awake..events.len()).any(has) {
            tracing::debug!("woken by pressure");
            due = Some(Instant::now());
        }
        if due.is_some_and(|due| Instant::now() >= due) {
            let sleeps = guard.tick(start.elapsed())? == Next::Sleep && !triggers.is_empty();
            due = (!sleeps).then(|| Instant::now() + TICK);
            if sleeps {
                tracing::debug!("all is well: asleep until there is pressure");
            }
        }
    }
}

/// Pressure files that become readable out of band when there is pressure; those that the kernel has.
fn open_triggers(procfs: &Path) -> Vec<File> {
    let (mut opened, mut missing) = (Vec::new(), Vec::new());
    for (name, trigger) in TRIGGERS {
        let path = procfs.join("pressure").join(name);
        let open = || -> io::Result<File> {
            let mut file = File::options().read(true).write(true).open(&path)?;
            // The kernel takes the last byte written for the end of the text.
            file.write_all(format!("{trigger}\0").as_bytes())?;
            Ok(file)
        };
        match open() {
            Ok(file) => opened.push(file),
            Err(error) => missing.push(format!("{}: {error}", path.display())),
        }
    }
    let reason = missing.join("; ");
    if opened.is_empty() {
        tracing::warn!(reason, "no pressure files: looking once a second instead");
    } else if !missing.is_empty() {
        tracing::warn!(reason, "woken by the other pressure file only");
    }
    opened
}

fn answer_local(client: UnixStream, status: &Status) {
    let limits = client.set_read_timeout(Some(PATIENCE)).and(client.set_write_timeout(Some(PATIENCE)));
    answer(limits, client, status);
}

fn answer_tcp(client: TcpStream, status: &Status) {
    let limits = client.set_read_timeout(Some(PATIENCE)).and(client.set_write_timeout(Some(PATIENCE)));
    answer(limits, client, status);
}

/// Answers one request of HTTP. A client that fails has gone; that is its own affair.
fn answer(limits: io::Result<()>, mut client: impl Read + Write, status: &Status) {
    let mut request = [0; 1024];
    let Ok(length) = limits.and_then(|()| client.read(&mut request)) else { return };
    let request = String::from_utf8_lossy(&request[..length]);
    let (code, kind, text) = match request.split(' ').nth(1).filter(|_| request.starts_with("GET ")) {
        Some("/metrics") => ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", status.metrics()),
        Some("/json") => ("200 OK", "application/json", serde_json::to_string(status).unwrap_or_default()),
        _ => ("404 Not Found", "text/plain", "GET /metrics or /json\n".to_owned()),
    };
    let length = text.len();
    let head =
        format!("HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = client.write_all(format!("{head}{text}").as_bytes());
}

/// Asks the guard whose state is in the folder `state` for its status, as JSON.
///
/// # Errors
/// Where none runs, or it does not answer.
pub fn ask(state: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(state.join(SOCKET))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /json HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no answer"))
}
