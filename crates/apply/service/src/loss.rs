//! Clients of a server that was killed.
//!
//! A server that is killed loses writes that it acknowledged and had not written back, if no client flushed them. A client that connects to the next server and goes
//! on would meet older data, which no disk does without a power failure of its client. Therefore, after such an end, a disk that is written back in memory is served
//! only to clients whose process began after the server: they cannot rely on what was lost. Others have to be started again, or an administrator accepts the loss.

use std::os::fd::AsFd;
use std::sync::Mutex;

use nigh_host::front::lock;
use nigh_host::{DiskSettings, WriteMode};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::stream::Stream;

/// Field of `/proc/PID/stat` behind the name, from 0: when the process began, in ticks since the boot.
const BEGAN: usize = 19;

/// The time until which clients may have relied on writes that are lost.
#[derive(Debug, Default)]
pub(crate) struct Loss(Mutex<Option<u64>>);

impl Loss {
    pub(crate) fn new(until: Option<u64>) -> Loss {
        Loss(Mutex::new(until))
    }

    /// As `Settings::after_loss`.
    pub(crate) fn until(&self) -> Option<u64> {
        *lock(&self.0)
    }

    /// An administrator knows about it.
    pub(crate) fn accept(&self) {
        *lock(&self.0) = None;
    }

    /// Whether a client at `stream` may rely on what was lost of a disk.
    pub(crate) fn concerns(&self, stream: &Stream, disk: &DiskSettings) -> bool {
        let survives = disk.read_only || disk.write_log.is_some() || disk.write_mode == WriteMode::Through;
        !survives && self.until().is_some_and(|until| !is_younger(stream, until))
    }
}

/// Whether the process that connected `stream` began after `then`. That is not known of processes on other machines, in other namespaces, or of users that this
/// process does not see.
fn is_younger(stream: &Stream, then: u64) -> bool {
    let Ok(socket) = stream.try_clone_socket() else { return false };
    // Of TCP, too, but without a number.
    let Ok(peer) = getsockopt(&socket.as_fd(), PeerCredentials) else { return false };
    peer.pid() > 0 && began(&peer.pid().to_string()).is_some_and(|began| began > then)
}

/// When this process began, in the kernel's ticks since the boot; the present if that is not known.
pub fn beginning() -> u64 {
    began("self").unwrap_or(u64::MAX)
}

/// When a process began.
fn began(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may have spaces and parentheses.
    text.rsplit_once(')')?.1.split_whitespace().nth(BEGAN)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_client_that_was_there_before_is_refused_where_writes_may_be_lost() {
        let (client, _server) = UnixStream::pair().unwrap();
        let stream = Stream::socket(client.into());
        let mut disk = DiskSettings::new("disk", "memory:1M".parse().unwrap());
        assert!(!Loss::default().concerns(&stream, &disk));
        let loss = Loss::new(Some(beginning()));
        // This process began no later than itself.
        assert!(loss.concerns(&stream, &disk));
        disk.read_only = true;
        assert!(!loss.concerns(&stream, &disk));
        disk = DiskSettings { read_only: false, write_mode: WriteMode::Through, ..disk };
        assert!(!loss.concerns(&stream, &disk));
        disk.write_mode = WriteMode::Back;
        loss.accept();
        assert!(!loss.concerns(&stream, &disk));
    }

    #[test]
    fn processes_have_a_beginning() {
        let mut later = std::process::Command::new("sleep").arg("9").spawn().unwrap();
        let theirs = began(&later.id().to_string());
        later.kill().unwrap();
        later.wait().unwrap();
        assert!(theirs.is_some() && theirs >= began("self") && beginning() > began("1").unwrap());
    }
}
