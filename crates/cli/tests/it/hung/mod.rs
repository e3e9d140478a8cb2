//! `nigh serve` on devices that do not respond: they delay only those who use them.

mod admin;
mod device;
mod left;
mod log;
mod lost;
mod others;
mod resize;
mod stop;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::serving::Folder;
use nigh_nbd::client::Client;

const MIB: usize = 1 << 20;

fn connect(socket: &Path, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(socket).unwrap(), export, &[]).unwrap()
}

/// Far more than anything takes that waits for no device.
const PATIENCE: Duration = Duration::from_secs(10);

/// `run` takes no longer than `PATIENCE`.
fn quickly<R>(what: &str, run: impl FnOnce() -> R) -> R {
    let begin = Instant::now();
    let result = run();
    assert!(begin.elapsed() < PATIENCE, "{what} takes {:?}", begin.elapsed());
    result
}

fn ctl(folder: &Folder, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    let output = command.args(["ctl", "--control", &folder.text("control")]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
