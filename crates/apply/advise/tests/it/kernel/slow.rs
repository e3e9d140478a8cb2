//! Short loops on a device that takes 2 ms for each request: a FUSE file below a loop device with ext4.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_testkit::fuse::{Device, Mounted};

use crate::kernel::rig::{Group, MIB, file};

const DELAY: Duration = Duration::from_millis(2);
const FILES: u64 = 300;
/// Bytes that are read of each file.
const RUN: u64 = 64 << 10;

/// Memory that answers reads late, once that is switched on.
struct Slow {
    bytes: Mutex<Vec<u8>>,
    is_slow: AtomicBool,
    /// Reads that were late.
    late: AtomicU64,
}

impl Device for Slow {
    fn length(&self) -> u64 {
        self.bytes.lock().expect("not poisoned").len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if self.is_slow.load(Ordering::Relaxed) {
            self.late.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(DELAY);
        }
        let bytes = self.bytes.lock().expect("not poisoned");
        Ok(bytes.iter().skip(offset as usize).take(length).copied().collect())
    }

    fn write(&self, offset: u64, written: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().expect("not poisoned");
        bytes[offset as usize..][..written.len()].copy_from_slice(written);
        Ok(written.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file system on a device; unmounted when dropped.
struct Disk {
    folder: PathBuf,
    device: String,
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Disk {
    fn new(image: &str, folder: PathBuf) -> Option<Disk> {
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", image])?;
        let device = run("losetup", &["--find", "--show", "--direct-io=on", image])?;
        let disk = Disk { folder, device };
        run("mount", &[&disk.device, disk.folder.to_str()?])?;
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// A run of 64 KiB in each of 300 files, again and again, in 12 MiB: passes after the first wait for the device at most a quarter as
/// often.
#[test]
fn short_loops_on_a_slow_device() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let slow = Slow { bytes: Mutex::new(vec![0; 400 << 20]), is_slow: AtomicBool::new(false), late: AtomicU64::new(0) };
    let slow = Arc::new(slow);
    let mounted = match Mounted::new(folders[0].path(), Arc::clone(&slow), 2) {
        Ok(mounted) => mounted,
        Err(error) => return println!("skipped: short_loops_on_a_slow_device: no FUSE: {error}"),
    };
    let image = mounted.file().to_str().expect("text").to_owned();
    let Some(disk) = Disk::new(&image, folders[1].path().to_owned()) else {
        return println!("skipped: short_loops_on_a_slow_device: no ext4 on a loop device");
    };
    let paths: Vec<PathBuf> = (0..FILES).map(|number| disk.folder.join(number.to_string())).collect();
    let mut waits = [0; 2];
    for (mode, waits) in ["plain", "advised"].into_iter().zip(&mut waits) {
        slow.is_slow.store(false, Ordering::Relaxed);
        paths.iter().for_each(|path| file(path, MIB));
        let Some(group) = Group::new("slow", 12 * MIB) else { return };
        let (class, budget) = (format!("short:{RUN}"), 9 * MIB);
        let arguments: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
        let first = group.read(mode, &class, budget, 1, &arguments);
        slow.is_slow.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        let passes = group.read(mode, &class, budget, 3, &arguments);
        *waits = slow.late.swap(0, Ordering::Relaxed);
        println!(
            "{mode}: {waits} reads of the device, {:?} for three passes, bytes read {first:?} and {passes:?}",
            begin.elapsed()
        );
    }
    slow.is_slow.store(false, Ordering::Relaxed);
    assert!(waits[0] > 900 && 4 * waits[1] <= waits[0], "{waits:?}");
}
