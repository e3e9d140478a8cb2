//! A guard beside a command: it runs for as long as the command, in a thread of the process that waits for it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::guard::{Guard, Settings};
use crate::journal::{Journal, JournalError};
use crate::procfs::Procfs;
use crate::service::{Service, ask, serve_until};
use crate::status::Counts;
use crate::tree::Tree;
use crate::writer::Writer;

/// The interval at which another guard is looked for, and queried.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The name of the journal in the folder of the state.
const JOURNAL: &str = "journal";

/// The configuration of a guard beside a command. While another guard runs, that one protects; this one takes over when
/// it ends.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The conditions and targets of protection.
    pub settings: Settings,
    /// Mount point of the cgroups.
    pub cgroupfs: PathBuf,
    /// Mount point of the processes.
    pub procfs: PathBuf,
    /// Only groups below this one are watched and changed; empty for all.
    pub below: String,
    /// Folder of the journal and the status socket.
    pub state: PathBuf,
    /// The same folder of the guard of the whole machine, if that is another one.
    pub of_machine: Option<PathBuf>,
    /// The address of HTTP for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// The way to write values.
    pub writer: Writer,
}

/// A summary of the time while a command ran.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events of this guard, and of another one while that was running.
    pub counts: Counts,
    /// Seconds of protection of the command itself.
    pub command_s: f64,
    /// Why the latest protection was rejected, or why none was possible.
    pub refusal: Option<String>,
    /// Whether another guard was running, at least temporarily.
    pub had_other: bool,
    /// Why protection ended before the command did.
    pub error: Option<String>,
}

impl Summary {
    fn add(&mut self, later: Summary) {
        self.counts.add(&later.counts);
        self.command_s += later.command_s;
        self.refusal = later.refusal.or(self.refusal.take());
        self.had_other |= later.had_other;
        self.error = later.error.or(self.error.take());
    }
}

/// The journal of the guard with the state folder `state`.
pub fn journal_in(state: &Path) -> PathBuf {
    state.join(JOURNAL)
}

/// A running guard beside a command.
pub(crate) struct Running<'a> {
    beside: &'a Beside,
    /// One end of a pair; the thread polls the other end.
    stop: UnixStream,
    thread: Option<JoinHandle<Summary>>,
    summary: Summary,
}

impl<'a> Running<'a> {
    pub(crate) fn start(beside: &'a Beside) -> io::Result<Running<'a>> {
        let (stop, thread) = spawn(beside)?;
        Ok(Running { beside, stop, thread: Some(thread), summary: Summary::default() })
    }

    /// Restores everything, calls `pause`, and continues.
    pub(crate) fn pause(&mut self, pause: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.end();
        pause()?;
        let (stop, thread) = spawn(self.beside)?;
        (self.stop, self.thread) = (stop, Some(thread));
        Ok(())
    }

    /// Restores everything.
    pub(crate) fn stop(mut self) -> Summary {
        self.end();
        std::mem::take(&mut self.summary)
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // This closes the thread's end too.
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        let failed = || Summary { error: Some("the guard failed".to_owned()), ..Summary::default() };
        self.summary.add(thread.join().unwrap_or_else(|_| failed()));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(beside: &Beside) -> io::Result<(UnixStream, JoinHandle<Summary>)> {
    let (stop, stopped) = UnixStream::pair()?;
    let beside = beside.clone();
    let thread = std::thread::Builder::new().name("guard".into()).spawn(move || {
        let mut summary = Summary::default();
        summary.error = beside.work(&stopped, &mut summary).err();
        summary
    })?;
    Ok((stop, thread))
}

impl Beside {
    fn work(&self, stopped: &UnixStream, summary: &mut Summary) -> Result<(), String> {
        let mut other = Other::default();
        loop {
            let of_machine = self.of_machine.as_deref().and_then(|state| ask(state).ok());
            let answer = match of_machine {
                Some(answer) => Some(answer),
                None => match Journal::open(&journal_in(&self.state), self.writer.clone()) {
                    Ok(journal) => {
                        other.add_to(summary);
                        return self.guard(journal, stopped, summary);
                    }
                    Err(JournalError::Busy(_)) => ask(&self.state).ok(),
                    Err(error) => return Err(error.to_string()),
                },
            };
            summary.had_other = true;
            answer.iter().for_each(|answer| other.saw(answer, self.settings.command.as_deref()));
            if is_stopped(stopped, ASK_EVERY) {
                other.add_to(summary);
                return Ok(());
            }
        }
    }

    fn guard(&self, journal: Journal, stopped: &UnixStream, summary: &mut Summary) -> Result<(), String> {
        let tree = Tree::open(&self.cgroupfs, &self.below).map_err(|error| error.to_string())?;
        let mut guard = Guard::new(self.settings.clone(), tree, Procfs::new(&self.procfs), Some(journal))
            .map_err(|error| error.to_string())?;
        let service = Service { procfs: &self.procfs, state: Some(&self.state), metrics: self.metrics, report: None };
        let start = Instant::now();
        let done = serve_until(&mut guard, &service, stopped);
        summary.counts.add(&guard.status(start.elapsed()).counts);
        summary.command_s += guard.command_protected().as_secs_f64();
        summary.refusal = guard.refusal().map(str::to_owned).or(summary.refusal.take());
        done.map(drop).map_err(|error| error.to_string())
    }
}

/// The activity of another guard, according to its answers.
#[derive(Default)]
struct Other {
    first: Option<Counts>,
    last: Counts,
    asked: Option<Instant>,
    /// Seconds of its protection of the command.
    command_s: f64,
    /// Why its latest protection was rejected.
    refusal: Option<String>,
}

/// The part of a status that is used.
#[derive(serde::Deserialize)]
struct Answer {
    #[serde(flatten)]
    counts: Counts,
    refusal: Option<String>,
    scopes: Vec<Protected>,
}

#[derive(serde::Deserialize)]
struct Protected {
    protected: Option<String>,
}

impl Other {
    fn saw(&mut self, answer: &str, command: Option<&str>) {
        let Ok(answer) = serde_json::from_str::<Answer>(answer) else { return };
        let since = self.asked.replace(Instant::now()).map_or(Duration::ZERO, |asked| asked.elapsed());
        let is_command = |group: &String| group.rsplit('/').next() == command;
        if command.is_some() && answer.scopes.iter().filter_map(|scope| scope.protected.as_ref()).any(is_command) {
            self.command_s += since.as_secs_f64();
        }
        self.first.get_or_insert_with(|| answer.counts.clone());
        self.last = answer.counts;
        self.refusal = answer.refusal;
    }

    /// Adds its activity since it was first queried.
    fn add_to(&mut self, summary: &mut Summary) {
        summary.counts.add(&self.first.as_ref().map(|first| self.last.since(first)).unwrap_or_default());
        summary.command_s += self.command_s;
        summary.refusal = self.refusal.take().or(summary.refusal.take());
    }
}

/// Waits for `time`, or until `stopped` becomes readable.
fn is_stopped(stopped: &UnixStream, time: Duration) -> bool {
    let wait = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let mut events = [PollFd::new(stopped, PollFlags::IN)];
    let _ = poll(&mut events, Some(&wait));
    !events[0].revents().is_empty()
}
