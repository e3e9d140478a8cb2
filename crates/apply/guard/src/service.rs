//! The service: sleeps until there is pressure, ticks once a second while there is, and answers requests for its status.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::clients::Clients;
use crate::guard::{Guard, GuardError, Next};
use crate::status::Status;

/// The interval of ticks while there is something to watch: the dissertation's second.
const TICK: Duration = Duration::from_secs(1);

/// The trigger that wakes the guard: microseconds in which some task was stalled, within a window of two seconds.
/// Without CAP_SYS_RESOURCE a window must be a multiple of two seconds. `full` would miss thrashing beside unrelated
/// work, and recent kernels count waiting for swap as I/O, not as memory.
const TRIGGERS: [(&str, &str); 2] = [("memory", "some 50000 2000000"), ("io", "some 200000 2000000")];

/// The interval of reports.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Receives the time since the start, and the status.
pub type Report<'a> = &'a dyn Fn(Duration, &Status) -> bool;

/// The inputs of a service, and its sockets.
pub struct Service<'a> {
    /// A mounted `/proc`.
    pub procfs: &'a Path,
    /// Folder of a socket for `status`.
    pub state: Option<&'a Path>,
    /// The address of HTTP for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Called every five seconds with the time since the start; the service ends when it returns false. With it, the
    /// guard never sleeps.
    pub report: Option<Report<'a>>,
}

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The guard cannot run.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// A socket cannot listen.
    #[error("{address}: {source}")]
    Listen {
        /// Its address.
        address: String,
        /// The error.
        source: io::Error,
    },
    /// Waiting for signals or other events failed.
    #[error("waiting for events: {0}")]
    Wait(io::Error),
}

/// The name of the socket in the folder of the state.
const SOCKET: &str = "guard.sock";

impl Service<'_> {
    fn listen(&self) -> Result<(Option<UnixListener>, Option<TcpListener>), ServiceError> {
        let failed = |address: String| move |source| ServiceError::Listen { address, source };
        let bind = |state: &Path| {
            let socket = state.join(SOCKET);
            // Only one guard holds the lock of the journal beside it, so an existing socket is a leftover.
            let _ = fs::remove_file(&socket);
            let local = UnixListener::bind(&socket)?;
            // The status reveals no more than the cgroups do, and a user's guard must detect that the machine's guard
            // is running.
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
            local.set_nonblocking(true)?;
            Ok(local)
        };
        let local = self.state.map(|state| bind(state).map_err(failed(state.join(SOCKET).display().to_string())));
        let bind = |address: SocketAddr| {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            tracing::info!(%address, "metrics");
            Ok(listener)
        };
        let tcp = self.metrics.map(|address| bind(address).map_err(failed(address.to_string())));
        Ok((local.transpose()?, tcp.transpose()?))
    }
}

/// Guards until SIGTERM or SIGINT, then restores everything. SIGTSTP (Ctrl-Z) also restores everything before it stops
/// the process.
///
/// # Errors
/// If the guard cannot run or listen; everything is then restored too.
pub fn serve(guard: &mut Guard, service: &Service<'_>) -> Result<(), ServiceError> {
    let (wake, mut woken) = UnixStream::pair().map_err(ServiceError::Wait)?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, ends.clone()).map_err(ServiceError::Wait)?;
    }
    for signal in [SIGTERM, SIGINT, SIGTSTP] {
        wake.try_clone().and_then(|end| pipe::register(signal, end)).map_err(ServiceError::Wait)?;
    }
    while serve_until(guard, service, &woken)? == Ended::Stopped && !ends.load(Ordering::Relaxed) {
        // One byte for each signal. Returns once the process is continued.
        woken.read(&mut [0]).and_then(|_| emulate_default_handler(SIGTSTP)).map_err(ServiceError::Wait)?;
    }
    Ok(())
}

/// The reason why a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// `stopped` became readable.
    Stopped,
    /// The report returned false.
    ByReport,
}

/// Guards until `stopped` becomes readable, then restores everything.
///
/// # Errors
/// As [`serve`].
pub(crate) fn serve_until(
    guard: &mut Guard,
    service: &Service<'_>,
    stopped: &UnixStream,
) -> Result<Ended, ServiceError> {
    let done = watch_until(guard, service, stopped);
    let released = guard.release_all("the guard is stopping");
    if let Some(state) = service.state {
        let _ = fs::remove_file(state.join(SOCKET));
    }
    let ended = done?;
    released?;
    Ok(ended)
}

fn watch_until(guard: &mut Guard, service: &Service<'_>, stopped: &UnixStream) -> Result<Ended, ServiceError> {
    let (local, tcp) = service.listen()?;
    let triggers = if service.report.is_some() { Vec::new() } else { open_triggers(service.procfs) };
    let start = Instant::now();
    let mut due = Some(start);
    let mut report_due = service.report.map(|_| start + TICK);
    let mut clients = Clients::default();
    loop {
        let mut events = vec![PollFd::new(stopped, PollFlags::IN)];
        let mut add = |listener: Option<_>| {
            listener.map(|listener| {
                events.push(listener);
                events.len() - 1
            })
        };
        let local_at = add(local.as_ref().map(|local| PollFd::new(local, PollFlags::IN)));
        let tcp_at = add(tcp.as_ref().map(|tcp| PollFd::new(tcp, PollFlags::IN)));
        let clients_at = events.len();
        events.extend(clients.polled());
        let awake = events.len();
        if due.is_none() {
            events.extend(triggers.iter().map(|trigger| PollFd::new(trigger, PollFlags::PRI)));
        }
        let next = [due, report_due, clients.due()].into_iter().flatten().min();
        let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
        let wait = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        match poll(&mut events, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(ServiceError::Wait(error.into())),
        }
        let has = |at: usize| !events[at].revents().is_empty();
        if has(0) {
            return Ok(Ended::Stopped);
        }
        let (has_local, has_tcp) = (local_at.is_some_and(has), tcp_at.is_some_and(has));
        let (has_pressure, has_client) = ((awake..events.len()).any(has), (clients_at..awake).any(has));
        let now = Instant::now();
        if let Some(local) = local.as_ref().filter(|_| has_local) {
            clients.accept(now, || local.accept().map(|(client, _)| client.into()));
        }
        if let Some(tcp) = tcp.as_ref().filter(|_| has_tcp) {
            clients.accept(now, || tcp.accept().map(|(client, _)| client.into()));
        }
        if has_local || has_tcp || has_client || clients.due().is_some_and(|due| due <= now) {
            clients.serve(now, || guard.status(start.elapsed()));
        }
        if has_pressure {
            tracing::debug!("woken by pressure");
            due = Some(Instant::now());
        }
        if due.is_some_and(|due| Instant::now() >= due) {
            let may_sleep = !triggers.is_empty() && service.report.is_none();
            due = match guard.tick(start.elapsed())? {
                Next::Tick(later) => Some(Instant::now() + later),
                Next::Sleep if may_sleep => {
                    tracing::debug!("nothing to do: asleep until there is pressure");
                    None
                }
                Next::Sleep => Some(Instant::now() + TICK),
            };
        }
        if let Some(report) = service.report.filter(|_| report_due.is_some_and(|due| Instant::now() >= due)) {
            if !report(start.elapsed(), &guard.status(start.elapsed())) {
                return Ok(Ended::ByReport);
            }
            report_due = Some(Instant::now() + REPORT_EVERY);
        }
    }
}

/// The pressure files that the kernel has; they become readable out of band when there is pressure.
fn open_triggers(procfs: &Path) -> Vec<File> {
    let (mut opened, mut missing) = (Vec::new(), Vec::new());
    for (name, trigger) in TRIGGERS {
        let path = procfs.join("pressure").join(name);
        let open = || -> io::Result<File> {
            let mut file = File::options().read(true).write(true).open(&path)?;
            // The kernel treats the last byte written as the end of the text.
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
        tracing::warn!(reason, "no pressure files: polling once a second instead");
    } else if !missing.is_empty() {
        tracing::warn!(reason, "only the other pressure file can wake the guard");
    }
    opened
}

/// Requests the status, as JSON, of the guard with the state folder `state`.
///
/// # Errors
/// If no guard is running there, or it does not answer.
pub fn ask(state: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(state.join(SOCKET))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /json HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no answer"))
}
