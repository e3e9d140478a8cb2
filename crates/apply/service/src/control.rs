//! The control socket: commands and answers, a JSON object a line each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use nigh_backend::{Target, TargetError};
use nigh_policy::{Spec, SpecError};
use nigh_prefetch::Spec as ReadAhead;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::clients::Common;
use crate::command::Command;
use crate::controllers::{Controllers, Crowded};
use crate::denied::is_denied;
use crate::error::ChangeError;
use crate::handover::{self, Departure, Offer, OfferedExport, OfferedSocket, Successor};
use crate::lender::LenderStatistics;
use crate::listen::Listener;
use crate::metrics::{Statistics, statistics};
use crate::recording::{RecordError, RecordingStatus};
use crate::settings::ExportSettings;
use crate::slow::{NoLimit, slow_limit};

/// Version of the form of the answers.
const SCHEMA: u32 = 1;
/// How long a server without a sign of life is waited for.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a server that executes a command sends one: a space before the answer.
const SIGN: Duration = Duration::from_secs(1);
/// Longest command.
const LINE_MAX: u64 = 1 << 20;

/// Why the status of a level server is none of a cache.
const LEVEL_SERVER: &str = "this is a level server: 'nigh ctl status' shows what it does";

/// The reply to a control client. Without an error, the command was executed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Version of this form.
    pub schema: u32,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// In reply to `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Statistics>,
    /// In reply to `status`, of a level server (`nigh level`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LenderStatistics>,
    /// In reply to `hints`: a sidecar of directives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<String>,
    /// In reply to `stop-recording`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingStatus>,
    /// In reply to `offer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
    /// In reply to `hand-over`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Departure>,
}

impl Answer {
    /// The command was done.
    pub fn done() -> Answer {
        let (error, status, level, hints) = (None, None, None, None);
        Answer { schema: SCHEMA, error, status, level, hints, recording: None, offer: None, departure: None }
    }

    /// The command was not done, for this reason.
    pub fn refused(error: String) -> Answer {
        Answer { error: Some(error), ..Answer::done() }
    }
}

/// Why a command was not done.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens, or the connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The reply is not valid.
    #[error("no answer of a server: {0}")]
    Form(#[from] serde_json::Error),
    /// The server's error.
    #[error("{0}")]
    Refused(String),
}

/// A connection to the control socket of a server.
pub struct ControlClient {
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects to the socket at `path`. A server that is silent for 10 s is given up: now, and while it executes a command.
    pub fn connect(path: &Path) -> io::Result<ControlClient> {
        ControlClient::connect_within(path, SILENCE)
    }

    fn connect_within(path: &Path, silence: Duration) -> io::Result<ControlClient> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(silence))?;
        }
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| given_up(error.into()))?;
        Ok(ControlClient { stream: BufReader::new(socket.into()) })
    }

    /// Waits until the server has closed the connection, as its end does.
    pub(crate) fn wait_for_end(&mut self) {
        // It is gone, or gives no sign of life.
        let _ = io::copy(&mut self.stream, &mut io::sink());
    }

    /// The connection.
    pub(crate) fn stream(&self) -> &UnixStream {
        self.stream.get_ref()
    }

    /// Has a command done; waits until it is.
    pub fn ask(&mut self, command: &Command) -> Result<Answer, ControlError> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // It hung up before it had all of it, and may have sent the reason.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
            sent => sent.map_err(given_up)?,
        }
        line.clear();
        self.stream.read_until(b'\n', &mut line).map_err(given_up)?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up").into());
        }
        let answer: Answer = serde_json::from_slice(&line)?;
        match answer.error {
            Some(error) => Err(ControlError::Refused(error)),
            None => Ok(answer),
        }
    }

    /// Counters and present state of the server.
    pub fn status(&mut self) -> Result<Statistics, ControlError> {
        let answer = self.ask(&Command::Status {})?;
        let reason = if answer.level.is_some() { LEVEL_SERVER } else { "the answer has no status" };
        answer.status.ok_or_else(|| ControlError::Refused(reason.into()))
    }
}

/// The error of a call to a server, in words if it took too long.
pub(crate) fn given_up(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "the server gives no sign of life: it was stopped (SIGSTOP), or its machine is overloaded",
        ),
        _ => error,
    }
}

/// How the program around the service does what control clients ask of it.
pub(crate) struct Program {
    /// Does what SIGHUP does.
    pub(crate) reload: Box<dyn Fn() -> Result<(), ReloadError> + Send + Sync>,
    /// Has the service end for another server; without this, none can take its place.
    pub(crate) hand_over: Option<Box<dyn Fn(Successor) + Send + Sync>>,
    /// Its listening sockets.
    pub(crate) sockets: Box<dyn Fn() -> Vec<(OfferedSocket, Arc<Listener>)> + Send + Sync>,
}

/// Why a reload is not done, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct ReloadError {
    /// The reason.
    pub words: String,
    /// Whether the system denied access to a file.
    pub is_denied: bool,
}

/// Why a command cannot be done.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Policy(#[from] SpecError),
    #[error(transparent)]
    ReadAhead(#[from] nigh_prefetch::SpecError),
    #[error(transparent)]
    Slow(#[from] NoLimit),
    #[error("writes wait from 1s to 10m for a copy, not {0} s")]
    Freeze(f64),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Reload(#[from] ReloadError),
    #[error(transparent)]
    Crowded(#[from] Crowded),
    #[error("no server can take the place of this one, which is a mount or serves a client on its standard input")]
    Irreplaceable,
    #[error(
        "it is a service of systemd, which would end with it: 'systemctl restart' keeps the sockets of its socket unit"
    )]
    Unit,
    #[error("its sockets cannot be sent: {0}")]
    Send(io::Error),
    #[error("{0}")]
    GoesOn(String),
}

impl Refusal {
    fn is_denied(&self) -> bool {
        match self {
            Refusal::Reload(error) => error.is_denied,
            Refusal::Record(RecordError::Trace { is_denied, .. }) => *is_denied,
            other => is_denied(other),
        }
    }
}

/// Suffix of a message about denied access in a sandbox.
const SANDBOXED: &str = "; the server is sandboxed: it can open files in the folders that it had at its start, and those of --sandbox-allow";

/// Serves a control client of `common` on a thread of its own.
pub(crate) fn attend(common: &Arc<Common>, socket: OwnedFd, program: &Arc<Program>) {
    if common.stopping.load(Ordering::Acquire) {
        return;
    }
    let (at, program) = (common.clone(), program.clone());
    attend_with(&common.controllers, socket, move |stream, line| answer(&at, stream, line, &program));
}

/// Serves a control client on a thread of its own: `answer` has the commands executed.
pub fn attend_with(
    controllers: &Arc<Controllers>,
    socket: OwnedFd,
    answer: impl Fn(&Arc<UnixStream>, &[u8]) -> Answer + Send + 'static,
) {
    let stream = Arc::new(UnixStream::from(socket));
    if !controllers.enter(stream.clone()) {
        return;
    }
    let (at, ours, thread) = (controllers.clone(), stream.clone(), Builder::new().name("control".into()));
    let spawned = thread.spawn(move || {
        if let Err(error) = converse(&ours, |line| answer(&ours, line)) {
            tracing::debug!(%error, "a control connection ended");
        }
        at.leave(&ours);
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a control client");
        controllers.leave(&stream);
    }
}

fn converse(stream: &UnixStream, answer: impl Fn(&[u8]) -> Answer) -> io::Result<()> {
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n") || (read as u64) < LINE_MAX;
        let answer = match whole {
            true => with_signs(stream, || answer(&line)),
            false => Answer::refused("the line is longer than 1 MiB".to_owned()),
        };
        let mut text = serde_json::to_vec(&answer).expect("answers are plain data");
        text.push(b'\n');
        (&*stream).write_all(&text)?;
        if !whole {
            return Ok(());
        }
    }
}

/// The result of `answer`, during which the client is sent signs of life.
fn with_signs<R>(stream: &UnixStream, answer: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let send = move || {
            while is_done.recv_timeout(SIGN) == Err(RecvTimeoutError::Timeout) {
                // Whether the client is still there is seen when it is answered.
                let _ = (&*stream).write_all(b" ");
            }
        };
        if let Err(error) = Builder::new().name("sign".into()).spawn_scoped(scope, send) {
            tracing::warn!(%error, "no thread to show a control client that the server lives");
        }
        let result = answer();
        drop(done);
        result
    })
}

/// `text` in one line, although it may have words of the client in it.
pub fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn answer(common: &Arc<Common>, stream: &Arc<UnixStream>, line: &[u8], program: &Program) -> Answer {
    let command: Command = match serde_json::from_slice(line) {
        Ok(command) => command,
        Err(error) => {
            let error = one_line(&format!("no command: {error}"));
            tracing::warn!("control: refused: {error}");
            return Answer::refused(error);
        }
    };
    // The thread that reloads logs that, and its errors.
    let is_logged = !matches!(
        command,
        Command::Status {} | Command::Hints { .. } | Command::Reload {} | Command::Offer {} | Command::Succeed {}
    );
    let words = is_logged.then(|| one_line(&command.to_string()));
    let obeyed = common.controllers.begin(stream, &command).map_err(Refusal::from);
    let obeyed = obeyed.and_then(|()| obey(common, stream, command, program));
    common.controllers.end(stream);
    match obeyed {
        Ok(answer) => {
            if let Some(words) = words {
                tracing::info!("control: {words}");
            }
            answer
        }
        Err(refusal) => {
            let mut error = one_line(&refusal.to_string());
            if common.sandboxed && refusal.is_denied() {
                error += SANDBOXED;
            }
            if let Some(words) = words {
                tracing::warn!("control: refused to {words}: {error}");
            }
            Answer::refused(error)
        }
    }
}

/// Sends the sockets of this server, and returns what it serves.
fn offer(common: &Common, stream: &UnixStream, program: &Program) -> Result<Offer, Refusal> {
    if program.hand_over.is_none() {
        return Err(Refusal::Irreplaceable);
    }
    if std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|process| process == std::process::id().to_string()) {
        return Err(Refusal::Unit);
    }
    let sockets = (program.sockets)();
    let descriptors: Vec<_> = sockets.iter().map(|(_, listener)| listener.socket()).collect();
    handover::send(stream, &descriptors).map_err(Refusal::Send)?;
    Ok(Offer {
        process: std::process::id(),
        sockets: sockets.iter().map(|(offered, _)| offered.clone()).collect(),
        exports: common.exports().iter().map(|export| OfferedExport::of(&export.settings())).collect(),
        after_loss: common.loss.until(),
    })
}

/// Has this server end for the one at `stream`.
fn hand_over(common: &Common, stream: &Arc<UnixStream>, program: &Program) -> Result<Departure, Refusal> {
    let hand_over = program.hand_over.as_ref().ok_or(Refusal::Irreplaceable)?;
    let (successor, link, answer) = Successor::new(stream);
    common.controllers.add_successor(link);
    hand_over(successor);
    match answer.recv() {
        Ok(answer) => answer.map_err(Refusal::GoesOn),
        Err(_) => Err(ChangeError::Stopping.into()),
    }
}

/// For how long writes may wait.
fn freeze_limit(seconds: f64) -> Result<Duration, Refusal> {
    match (1.0..=600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(Refusal::Freeze(seconds)),
    }
}

fn obey(common: &Common, stream: &Arc<UnixStream>, command: Command, program: &Program) -> Result<Answer, Refusal> {
    match command {
        Command::Status {} => return Ok(Answer { status: Some(statistics(common)), ..Answer::done() }),
        Command::Set { memory, policy, readahead, slow } => {
            let policy = policy.map(|policy| policy.parse::<Spec>()).transpose()?;
            let readahead = readahead.map(|readahead| ReadAhead::served(&readahead)).transpose()?;
            let slow = slow.map(|limit| slow_limit(&limit)).transpose()?;
            common.change(memory, policy.as_ref())?;
            readahead.iter().for_each(|readahead| common.host.cache().readahead().set(readahead));
            slow.iter().for_each(|limit| common.recorder.slow.set(*limit));
        }
        Command::SetExport { name, options } => common.set(&name, |settings| options.apply(settings))?,
        Command::AddExport { name, target, options, take_over } => {
            let mut export = ExportSettings::new(name, target.parse::<Target>()?);
            export.disk.take_over = take_over;
            options.apply(&mut export);
            common.add(export)?;
        }
        Command::RemoveExport { name, discard } => common.remove(&name, discard)?,
        Command::Hint { name, files, directives } => common.hint_all(&name, &files, &directives)?,
        Command::Hints { name } => return Ok(Answer { hints: Some(common.hints(&name)?), ..Answer::done() }),
        Command::Flush { name } => common.write_back(name.as_deref())?,
        Command::Drain { name } => common.drain(&name)?,
        Command::Freeze { name, seconds } => common.freeze(&name, freeze_limit(seconds)?)?,
        Command::Thaw { name } => common.thaw(&name)?,
        Command::Record { recording } => common.record(recording)?,
        Command::StopRecording {} => return Ok(Answer { recording: Some(common.recorder.stop()?), ..Answer::done() }),
        Command::Reload {} => (program.reload)()?,
        Command::AcceptLoss {} => common.loss.accept(),
        Command::Offer {} => return Ok(Answer { offer: Some(offer(common, stream, program)?), ..Answer::done() }),
        Command::HandOver {} => {
            return Ok(Answer { departure: Some(hand_over(common, stream, program)?), ..Answer::done() });
        }
        Command::Succeed {} => common.controllers.succeeded(stream),
    }
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_9_a_server_without_a_sign_of_life_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let stopped =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&stopped, 1).unwrap();
        let mut client = ControlClient::connect_within(&path, Duration::from_millis(50)).unwrap();
        let error = client.status().unwrap_err().to_string();
        assert!(error.contains("no sign of life"), "{error}");
        // As soon as nobody takes connections, to connect does not wait for ever, either.
        let mut clients = vec![client];
        let error = loop {
            match ControlClient::connect_within(&path, Duration::from_millis(50)) {
                Ok(client) => clients.push(client),
                Err(error) => break error.to_string(),
            }
            assert!(clients.len() < 100, "its queue has no end");
        };
        assert!(error.contains("no sign of life"), "{error}");
    }

    #[test]
    fn told_9_a_command_that_takes_long_shows_signs_of_life() {
        let (client, server) = UnixStream::pair().unwrap();
        let (go_on, wait) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                converse(&server, |_| {
                    // Fails when it is to go on.
                    let _ = wait.recv();
                    Answer::done()
                })
            });
            (&client).write_all(b"{}\n").unwrap();
            let mut signs = [0; 2];
            (&client).read_exact(&mut signs).unwrap();
            assert_eq!(signs, *b"  ");
            drop(go_on);
            let mut answer = String::new();
            BufReader::new(&client).read_line(&mut answer).unwrap();
            assert!(serde_json::from_str::<Answer>(&answer).is_ok(), "{answer}");
            drop(client);
        });
    }
}
