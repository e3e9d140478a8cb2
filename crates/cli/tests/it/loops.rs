//! Files as block devices.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A block device whose blocks are those of a file; detached when dropped.
pub(crate) struct Loop(PathBuf);

impl Loop {
    /// `None` if this process may not have one.
    pub(crate) fn attach(file: &Path) -> Option<Loop> {
        let arguments = ["--find", "--show", "--direct-io=on"];
        let output = Command::new("losetup").args(arguments).arg(file).stderr(Stdio::null()).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Loop(path.trim_end().into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Loop {
    /// Until nothing is under way any more: the system ends the io_uring of a process, and closes its files, after the process.
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        let name = self.0.file_name().expect("a device").to_string_lossy();
        let (file, begin) = (format!("/sys/block/{name}/loop/backing_file"), Instant::now());
        while Path::new(&file).exists() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(200));
        }
        let is_gone = detached.is_ok_and(|status| status.success()) && !Path::new(&file).exists();
        assert!(std::thread::panicking() || is_gone, "{} is not detached", self.0.display());
    }
}
