//! Whom a server has besides the client that is measured: hostile and clumsy clients, and sick devices.

pub(crate) mod hostile;
pub(crate) mod sick;

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use nigh_nbd::client::Client;

/// The server for neighbours, and how long they stay.
pub(crate) struct Place<'a> {
    pub(crate) socket: &'a Path,
    pub(crate) metrics: SocketAddr,
    pub(crate) export: &'a str,
    pub(crate) over: &'a AtomicBool,
}

impl Place<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Until it is over, in small steps.
    fn wait(&self) {
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn raw(&self) -> Option<UnixStream> {
        let stream = UnixStream::connect(self.socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
        Some(stream)
    }
}

/// A connection with structured replies, on which nobody waits for long.
pub(crate) fn connect(socket: &Path, export: &str) -> anyhow::Result<Client<UnixStream>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_write_timeout(Some(Duration::from_secs(20)))?;
    Ok(Client::connect(stream, export, &["base:allocation"])?)
}

/// Priorities on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Before all servers.
    First,
    /// After all of them. If this program has a real-time priority, so do the servers, and this is before all other programs.
    Last,
}

impl Turn {
    /// Has the kernel schedule this thread, and those that it starts from now on, like that.
    pub(crate) fn take(self) -> anyhow::Result<()> {
        let own = priority()?;
        let (policy, priority) = match self {
            Turn::First => ("--fifo", own + 1),
            Turn::Last if own > 1 => ("--fifo", own - 1),
            Turn::Last => ("--idle", 0),
        };
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let status = Command::new("chrt").args([policy, "--pid", &priority.to_string(), &thread]).status()?;
        ensure!(status.success(), "chrt {policy} {priority}: {status}; real-time priorities need root");
        Ok(())
    }
}

/// The real-time priority of this program's first thread; 0 without one.
pub(crate) fn priority() -> anyhow::Result<u8> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have spaces, the fields begin with the third; this is the 40th.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
    let priority = fields.and_then(|mut fields| fields.nth(37)).context("a line of /proc/self/stat")?;
    Ok(priority.parse()?)
}

/// An address for a server's figures.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
