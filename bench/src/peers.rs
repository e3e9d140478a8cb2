//! The servers, each pinned to one processor.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_nbd::client::Handshake;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// The processor of the servers.
pub(crate) const SERVERS: usize = 0;
/// The processor of the clients.
pub(crate) const CLIENTS: usize = 1;

/// A running server, killed when dropped.
pub(crate) struct Peer {
    process: Child,
    pub(crate) socket: PathBuf,
    clock: ClockId,
}

impl Peer {
    /// Starts `command` on the servers' processor, waits until it listens on `socket`, and leaves the calling thread on
    /// the clients' processor.
    pub(crate) fn start(command: &mut Command, socket: &Path) -> anyhow::Result<Peer> {
        // A child begins where its parent runs, with all the threads that it will have.
        let process = on_servers_processor(|| spawn(command))?;
        Peer::wait(process, socket)
    }

    /// As `start`, but on any processor.
    pub(crate) fn unpinned(command: &mut Command, socket: &Path) -> anyhow::Result<Peer> {
        Peer::wait(spawn(command)?, socket)
    }

    fn wait((shown, mut process): (String, Child), socket: &Path) -> anyhow::Result<Peer> {
        let clock = clock_getcpuclockid(Pid::from_raw(process.id() as i32))?;
        let begun = Instant::now();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(socket) {
                break stream;
            }
            let ended = process.try_wait()?;
            ensure!(ended.is_none() && begun.elapsed() < Duration::from_secs(10), "{shown} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        };
        // Servers complain of clients that leave without a word.
        Handshake::begin(stream)?.abort()?;
        Ok(Peer { process, socket: socket.to_owned(), clock })
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Has it end in order.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "a server ended with {status}");
        Ok(())
    }

    /// User and system time of all its threads so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(self.clock.now()?.into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has nothing to lose, and may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Calls `start` on the servers' processor, where the processes that it starts stay, and leaves the calling thread on that of the
/// clients.
pub(crate) fn on_servers_processor<T>(start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    pin(SERVERS)?;
    let started = start();
    pin(CLIENTS)?;
    started
}

/// The command as a user would write it, and its process.
fn spawn(command: &mut Command) -> anyhow::Result<(String, Child)> {
    let shown = format!("{command:?}").replace('"', "");
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let process = process.with_context(|| format!("starting {shown}"))?;
    Ok((shown, process))
}

fn pin(processor: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("this bench needs two processors")
}
