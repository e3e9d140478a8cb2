//! Setup for thrashing: groups of cgroup v1 with a small limit, and a swap file on a throttled loop device.
//!
//! Swap whose own device needs memory of the limited groups can stop a kernel for good. The file therefore lies on a disk, is written whole
//! before, is read and written past the page cache, and belongs to the root groups; everything is small; and a watchdog takes it down.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, statfs};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::measure;

/// Swap in all.
const SWAP_MIB: u64 = 512;
/// The largest limit: the swap device holds what exceeds it, and the machine has far more memory.
pub(crate) const LIMIT_MOST_MIB: u64 = 400;
/// Operations a second that the swap device does.
const OPERATIONS: u32 = 3000;
/// A rig that is up for longer is taken down by its watchdog, and the bench ends.
const LONGEST: Duration = Duration::from_secs(900);
const NAME: &str = "nigh-bench";
const CONTROLLERS: [&str; 4] = ["memory", "freezer", "cpu", "blkio"];

/// Groups and swap; gone when dropped.
pub(crate) struct Rig {
    /// Tells the watchdog, when it is dropped.
    _is_down: Sender<()>,
    device: Device,
    interrupted: Arc<AtomicBool>,
}

/// The loop device, and what depends on it.
#[derive(Clone)]
struct Device {
    path: String,
    /// `7:0`
    number: String,
}

/// A missing requirement, if there is any.
pub(crate) fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root can make groups and swap".into());
    }
    for controller in CONTROLLERS {
        if !Path::new("/sys/fs/cgroup").join(controller).join("cgroup.procs").exists() {
            return Some(format!("there is no controller {controller} of cgroup v1"));
        }
    }
    for tool in ["losetup", "mkswap", "swapon", "swapoff"] {
        if !["/sbin", "/usr/sbin", "/bin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(tool).exists()) {
            return Some(format!("{tool} is not installed"));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    (swaps.lines().count() > 1).then(|| "the machine has swap of its own already".into())
}

impl Rig {
    pub(crate) fn new(limit_mib: u64) -> anyhow::Result<Rig> {
        // An early end of the bench still takes everything down.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())?;
        }
        ensure!(limit_mib <= LIMIT_MOST_MIB, "a small limit keeps the machine safe");
        let file = swap_file()?;
        // Direct, or not at all: through the page cache its writes could wait for memory that only they can free.
        let set_up = ["--find", "--show", "--direct-io=on"];
        let device = measure::run(Command::new("losetup").args(set_up).arg(&file))?.stdout.trim().to_owned();
        let number = fs::read_to_string(format!("/sys/block/{}/dev", device.trim_start_matches("/dev/")));
        let device = Device { number: number.unwrap_or_default().trim().to_owned(), path: device };
        let (_is_down, told) = channel();
        watch(device.clone(), told);
        let rig = Rig { _is_down, device: device.clone(), interrupted };
        let direct =
            measure::run(Command::new("losetup").args(["--list", "--noheadings", "--output", "DIO", &device.path]))?;
        ensure!(direct.stdout.trim() == "1", "{}: the disk's file system has no direct I/O", file.display());
        for controller in CONTROLLERS {
            fs::create_dir_all(folder(controller, "")).context(controller)?;
        }
        fs::write(folder("memory", "memory.limit_in_bytes"), (limit_mib << 20).to_string())?;
        // Others on the same processor count for less while this runs: the most that there is.
        fs::write(folder("cpu", "cpu.shares"), "262144")?;
        // Reads are charged to who faults, writes to the root.
        let throttle = format!("{} {OPERATIONS}", device.number);
        for group in [Path::new("/sys/fs/cgroup/blkio").to_owned(), folder("blkio", "")] {
            for way in ["read", "write"] {
                fs::write(group.join(format!("blkio.throttle.{way}_iops_device")), &throttle)?;
            }
        }
        measure::run(Command::new("mkswap").arg(&device.path))?;
        measure::run(Command::new("swapon").arg(&device.path))?;
        Ok(rig)
    }

    /// Waits.
    ///
    /// # Errors
    /// If the bench is ended meanwhile.
    pub(crate) fn pause(&self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(50).min(time));
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        }
        Ok(())
    }

    /// A group for one program, in the memory and freezer hierarchies.
    pub(crate) fn group(&self, name: &str) -> anyhow::Result<()> {
        for controller in ["memory", "freezer"] {
            fs::create_dir_all(folder(controller, name))?;
        }
        Ok(())
    }

    /// Reads from the disk that `file` is on share the throttle, those of all groups together.
    pub(crate) fn throttle_disk_of(&self, file: &Path) -> anyhow::Result<()> {
        let number = fs::metadata(file)?.dev();
        let throttle = format!("{}:{} {OPERATIONS}", major(number), minor(number));
        fs::write(folder("blkio", "blkio.throttle.read_iops_device"), &throttle).with_context(|| throttle.clone())
    }

    /// A command that starts in the group: all it uses is charged there, and its reads share the swap's throttle.
    pub(crate) fn command(&self, group: &str, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let enter: Vec<String> = [("memory", group), ("freezer", group), ("cpu", ""), ("blkio", "")]
            .map(|(controller, group)| format!("echo $$ >{}", folder(controller, group).join("cgroup.procs").display()))
            .into();
        command.args(["-c", &format!("{}; exec \"$0\" \"$@\"", enter.join("; "))]).arg(program);
        // Freed memory goes back to the kernel.
        command.env("MALLOC_MMAP_THRESHOLD_", "131072").stdin(Stdio::null());
        command
    }

    /// A command in no limited group whose reads share the swap's throttle: the guard, which prefetches.
    pub(crate) fn outside(&self, program: &Command) -> Command {
        let mut command = Command::new("sh");
        let enter =
            ["blkio", "cpu"].map(|controller| format!("echo $$ >{}", folder(controller, "cgroup.procs").display()));
        command.args(["-c", &format!("{}; exec \"$0\" \"$@\"", enter.join("; "))]).arg(program.get_program());
        command.stdin(Stdio::null());
        command
    }
}

/// Takes the rig down once `is_down` was not dropped for too long.
fn watch(device: Device, is_down: Receiver<()>) {
    std::thread::spawn(move || {
        if is_down.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the watchdog ends the bench");
            device.take_down();
            std::process::exit(1);
        }
    });
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.device.take_down();
    }
}

impl Device {
    fn take_down(&self) {
        for folder in folders(&folder("freezer", "")) {
            let _ = fs::write(folder.join("freezer.state"), "THAWED");
        }
        for group in folders(&folder("memory", "")) {
            let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            for pid in listed.lines().filter_map(|line| line.parse().ok()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        for group in ["/sys/fs/cgroup/blkio".into(), folder("blkio", "")] {
            for way in ["read", "write"] {
                let _ =
                    fs::write(group.join(format!("blkio.throttle.{way}_iops_device")), format!("{} 0", self.number));
            }
        }
        for (tool, arguments) in [("swapoff", &[][..]), ("losetup", &["-d"])] {
            let done = Command::new(tool).args(arguments).arg(&self.path).output();
            if !done.as_ref().is_ok_and(|output| output.status.success()) {
                eprintln!("{tool} {}: {done:?}", self.path);
            }
        }
        for controller in CONTROLLERS {
            for folder in folders(&folder(controller, "")) {
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

/// A folder or file of our group, or of one in it.
pub(crate) fn folder(controller: &str, name: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(controller).join(NAME).join(name)
}

/// The folders in `folder`, then itself.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    inner.chain([folder.to_owned()]).collect()
}

/// The swap file, written whole, on a file system that is on a disk.
fn swap_file() -> anyhow::Result<PathBuf> {
    let folder = measure::folder()?;
    let kind = statfs(&folder)?.filesystem_type();
    if ![EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC].contains(&kind) {
        bail!("{}: the swap file must lie on ext4 or XFS, never in memory", folder.display());
    }
    let path = folder.join("swap");
    if fs::metadata(&path).map_or(0, |metadata| metadata.len()) != SWAP_MIB << 20 {
        let to = format!("of={}", path.display());
        let count = format!("count={SWAP_MIB}");
        measure::run(Command::new("dd").args(["if=/dev/zero", &to, "bs=1M", &count, "conv=fsync"]))?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(path)
}
