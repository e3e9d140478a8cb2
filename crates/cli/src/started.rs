//! A program that nigh started: signals are passed on to it, and what devices read for it is known at its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nigh_record::SIGNALLED;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub(crate) struct Started {
    child: Child,
    signals: [(i32, Arc<AtomicBool>); 3],
    ended: Option<Ended>,
}

/// A program that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    /// Bytes that devices read for the program and the children that it waited for.
    pub(crate) device_bytes: Option<u64>,
}

impl Started {
    /// Starts the program of `command`. Ctrl-C is for the program, which the terminal sends it to; other signals are passed
    /// on.
    pub(crate) fn new(command: &mut Command) -> io::Result<Started> {
        let signals = [SIGINT, SIGTERM, SIGHUP].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
        let ignored = ignored();
        for (signal, flag) in &signals {
            // The program ignores it too, as under nohup.
            if ignored >> (signal - 1) & 1 == 0 {
                signal_hook::flag::register(*signal, flag.clone())?;
            }
        }
        Ok(Started { child: command.spawn()?, signals, ended: None })
    }

    /// The process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Passes signals on. Returns whether the program has ended.
    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let process = Pid::from_child(&self.child);
        for (signal, flag) in &self.signals[1..] {
            if flag.swap(false, Ordering::Relaxed)
                && let Some(signal) = Signal::from_named_raw(*signal)
            {
                // It may have ended.
                let _ = kill_process(process, signal);
            }
        }
        // It remains until it is waited for, with what was counted for it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(process), options)?.is_none() {
            return Ok(false);
        }
        let device_bytes = device_bytes(self.child.id());
        self.ended = Some(Ended { status: self.child.wait()?, device_bytes });
        Ok(true)
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(&mut self) -> io::Result<Ended> {
        loop {
            self.has_ended()?;
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Ended {
    /// The exit code that a shell would report.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| SIGNALLED + self.status.signal().unwrap_or(0))
    }
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    set.unwrap_or(0)
}

/// `None` where the kernel does not count.
fn device_bytes(process: u32) -> Option<u64> {
    let counted = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    counted.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}
