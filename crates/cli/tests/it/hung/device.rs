//! A file system whose process is stopped: users of its file wait until it goes on.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_testkit::tools::{installed, run};

use crate::serving::{Folder, until};

/// A file of zeros that nbdfuse provides.
pub(crate) struct Device {
    process: Child,
    mount: PathBuf,
    pub(crate) file: PathBuf,
}

impl Device {
    /// `None` if there is nothing to make it with.
    pub(crate) fn new(test: &str, folder: &Folder, bytes: usize) -> Option<Device> {
        if !installed(test, "nbdfuse") || !installed(test, "nbdkit") {
            return None;
        }
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            println!("skipped: {test}: /dev/fuse cannot be opened");
            return None;
        }
        let mount = folder.path("mount");
        std::fs::create_dir(&mount).unwrap();
        let file = mount.join("disk");
        let mut command = Command::new("nbdfuse");
        command.arg(&file).args(["--command", "nbdkit", "-s", "memory", &bytes.to_string()]);
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut device = Device { process, mount, file };
        let begin = Instant::now();
        while !device.file.exists() {
            if device.process.try_wait().unwrap().is_some() {
                println!("skipped: {test}: nbdfuse cannot mount here");
                return None;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "nbdfuse does not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(device)
    }

    fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.process.id().to_string()]);
    }

    /// From now on, it does not respond.
    pub(crate) fn hang(&self) {
        self.signal("-STOP");
        // A thread that is not stopped yet could still take a request, and nobody can end a process that waits for its answer.
        let tasks = format!("/proc/{}/task", self.process.id());
        until("its threads are stopped", || {
            let tasks = std::fs::read_dir(&tasks).unwrap().map(|task| task.unwrap().path().join("stat"));
            let mut states = tasks.filter_map(|stat| std::fs::read_to_string(stat).ok());
            states.all(|stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T')))
        });
    }

    /// It responds again, also to what came meanwhile.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Those who wait for it get an error.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stderr(Stdio::null()).status();
    }
}
