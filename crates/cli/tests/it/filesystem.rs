//! An ext4 file system on a loop device over nbdfuse over `nigh serve`: the kernel as a client. Needs root.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::serving::Folder;
use nigh_testkit::tools::{half_empty, installed, run};

const MIB: u64 = 1 << 20;
/// Operations of fsx.
const OPERATIONS: &str = "1000";

/// Runs a tool that may hang when the disk under it does.
fn run_within_a_minute(tool: &str, arguments: &[&str]) -> String {
    let mut all = vec!["--kill-after=5", "60", tool];
    all.extend(arguments);
    run("timeout", &all)
}

/// Says `skipped` and no where the machine lets nobody mount, or a program is missing.
fn fsx(test: &str) -> Option<PathBuf> {
    if !["nbdfuse", "losetup", "mkfs.ext4", "e2fsck", "debugfs"].iter().all(|tool| installed(test, tool)) {
        return None;
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
            println!("skipped: {test}: {device}: {error}");
            return None;
        }
    }
    let may_mount = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("skipped: {test}: mounting needs root");
        return None;
    }
    let fsx = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools/bin/fsx");
    if !fsx.exists() {
        println!("skipped: {test}: fsx is not installed: cargo xtask install");
        return None;
    }
    Some(fsx)
}

/// A mounted folder, taken away when dropped, in use or not.
struct Mount(String);

impl Drop for Mount {
    fn drop(&mut self) {
        // It may not be mounted yet, or no more.
        let _ = Command::new("umount").args(["--lazy", &self.0]).stderr(Stdio::null()).status();
    }
}

/// A loop device.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        // It may be detached already.
        let _ = Command::new("losetup").args(["--detach", &self.0]).stderr(Stdio::null()).status();
    }
}

/// nbdfuse, which shows an export as a file.
pub(crate) struct Nbdfuse {
    pub(crate) process: Child,
    _mount: Mount,
}

impl Nbdfuse {
    /// `export`, a disk of `length` bytes, as the file `file`.
    pub(crate) fn start(folder: &str, uri: &str, length: u64) -> (Nbdfuse, String) {
        std::fs::create_dir(folder).unwrap();
        let file = format!("{folder}/disk");
        let mount = Mount(folder.to_owned());
        let process = Command::new("nbdfuse").args([&file, uri]).stdin(Stdio::null()).spawn().unwrap();
        let nbdfuse = Nbdfuse { process, _mount: mount };
        let begun = Instant::now();
        while std::fs::metadata(&file).map_or(0, |metadata| metadata.len()) != length {
            assert!(begun.elapsed() < Duration::from_secs(20), "nbdfuse does not show the disk");
            std::thread::sleep(Duration::from_millis(20));
        }
        (nbdfuse, file)
    }
}

impl Drop for Nbdfuse {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn ext4_on_a_loop_device() {
    let Some(fsx) = fsx("ext4_on_a_loop_device") else { return };
    const LENGTH: u64 = 64 * MIB;
    let folder = Folder::new();
    let image = folder.empty_image("image", LENGTH);
    let server = folder.serve(&[&format!("disk={image}")]);
    let source = folder.image("source", &half_empty(20 << 20));
    {
        // Dropped in the opposite order, whatever fails.
        let (mut nbdfuse, file) = Nbdfuse::start(&folder.text("fuse"), &server.uri("disk"), LENGTH);
        let device = Loop(run_within_a_minute("losetup", &["--find", "--show", &file]).trim().to_owned());
        run_within_a_minute("mkfs.ext4", &["-q", &device.0]);
        let mount = Mount(folder.text("mount"));
        std::fs::create_dir(&mount.0).unwrap();
        run_within_a_minute("mount", &["-t", "ext4", &device.0, &mount.0]);
        run_within_a_minute("cp", &[&source, &format!("{}/copy", mount.0)]);
        let (fsx, victim) = (fsx.to_str().unwrap(), format!("{}/fsx", mount.0));
        run_within_a_minute(fsx, &["-q", "-N", OPERATIONS, "-S", "7", "-P", &folder.text(""), &victim]);
        run_within_a_minute("umount", &[&mount.0]);
        run_within_a_minute("e2fsck", &["-f", "-n", &device.0]);
        run_within_a_minute("losetup", &["--detach", &device.0]);
        run_within_a_minute("umount", &[&folder.text("fuse")]);
        assert!(nbdfuse.process.wait().unwrap().success());
    }
    server.end();
    run_within_a_minute("e2fsck", &["-f", "-n", &image]);
    run_within_a_minute("debugfs", &["-R", &format!("dump /copy {}", folder.text("copy")), &image]);
    run("cmp", &[&source, &folder.text("copy")]);
}
