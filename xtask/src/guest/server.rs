//! The server below a guest.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::run::{builds, check};

/// `nigh` of the release build.
pub(super) fn nigh() -> Command {
    Command::new(builds().join("release/nigh"))
}

/// A server, killed when dropped.
pub(super) struct Server(Child);

impl Server {
    pub(super) fn start(serve: &mut Command) -> anyhow::Result<Server> {
        Ok(Server(serve.stdin(Stdio::null()).spawn().context("nigh serve")?))
    }

    /// Waits for at most `limit` until it listens at `socket`. The file of a killed server is removed first.
    pub(super) fn listening(mut self, socket: &Path, limit: Duration) -> anyhow::Result<Server> {
        let begin = Instant::now();
        while UnixStream::connect(socket).is_err() {
            ensure!(self.ended()?.is_none() && begin.elapsed() < limit, "nigh serve did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }

    /// Its end, if it has ended.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }

    /// Has it end in order.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        check(Command::new("kill").arg("-TERM").arg(self.0.id().to_string()))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "nigh serve ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}
