//! A log that nobody reads.

use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use nigh_nbd::client::Client;

use crate::hung::{PATIENCE, quickly};
use crate::serving::{Folder, nigh};

/// Gone when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// More lines than a pipe holds.
const CONNECTIONS: usize = 3000;

#[test]
fn log_18_nobody_waits_for_whoever_reads_it() {
    let folder = Folder::new();
    let (image, socket) = (folder.empty_image("image", 1 << 20), folder.path("socket"));
    let listen = format!("unix:{}", socket.display());
    let mut command = nigh(&["--listen", &listen, "--log", "debug"], &[&format!("disk={image}")]);
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    while UnixStream::connect(&socket).is_err() {
        assert!(process.0.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let connect = || {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::connect(stream, "disk", &[]).unwrap()
    };
    (0..CONNECTIONS).for_each(|_| drop(connect()));
    connect().read(0, 4096).unwrap();
    quickly("its end", || {
        rustix::process::kill_process(rustix::process::Pid::from_child(&process.0), rustix::process::Signal::TERM)
            .unwrap();
        assert!(process.0.wait().unwrap().success());
    });
}
