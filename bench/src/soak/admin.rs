//! An administrator who changes everything, at random.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use nigh_service::{Command, ControlClient, ControlError, ExportOptions, Recording};

pub(super) const POLICY: &str = "lirs";
pub(super) const MEMORY: u64 = 64 << 20;
const POLICIES: [&str; 6] = ["lru", "lirs", "clock-pro", "arc", "s3-fifo", "w-tinylfu"];
const MEMORIES: [u64; 3] = [32 << 20, 64 << 20, 96 << 20];
const PAUSE: Duration = Duration::from_millis(200);

/// Does one thing after the other until it is over, and then undoes them.
pub(super) fn administer(socket: &Path, folder: &Path, random: &mut Rng, over: &AtomicBool) -> anyhow::Result<()> {
    let mut client = ControlClient::connect(socket)?;
    let mut ask = |command: &Command| -> anyhow::Result<()> {
        match client.ask(command) {
            // It may be impossible at this moment.
            Ok(_) | Err(ControlError::Refused(_)) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("{command:?}")),
        }
    };
    while !over.load(Ordering::Relaxed) {
        ask(&something(folder, random))?;
        std::thread::sleep(PAUSE);
    }
    let set = Command::Set { memory: Some(MEMORY), policy: Some(POLICY.into()), readahead: None, slow: None };
    let mut unlimited = ExportOptions::default();
    unlimited.add_all("iops=none")?;
    let remove = Command::RemoveExport { name: "more".into(), discard: true };
    let undo = [set, Command::SetExport { name: "fast".into(), options: unlimited }, remove, Command::StopRecording {}];
    undo.iter().try_for_each(ask)
}

fn something(folder: &Path, random: &mut Rng) -> Command {
    let set = |memory, policy| Command::Set { memory, policy, readahead: None, slow: None };
    match random.u8(..10) {
        0 => set(Some(MEMORIES[random.usize(..MEMORIES.len())]), None),
        1 => set(None, Some(POLICIES[random.usize(..POLICIES.len())].into())),
        2 => {
            let options = ExportOptions { iops: Some(random.u64(500..5000)), ..ExportOptions::default() };
            Command::SetExport { name: "fast".into(), options }
        }
        3 => {
            let options = ExportOptions::default();
            Command::AddExport { name: "more".into(), target: "memory:16M".into(), options, take_over: false }
        }
        4 => Command::RemoveExport { name: "more".into(), discard: random.bool() },
        5 => Command::Flush { name: None },
        6 => Command::Flush { name: Some("own".into()) },
        7 => {
            let (file, exports) = (folder.join("recorded.parquet"), Vec::new());
            let recording = Recording { file, force: true, exports, sample: None, seconds: None, limit: None };
            Command::Record { recording }
        }
        8 => Command::StopRecording {},
        _ => Command::Status {},
    }
}
