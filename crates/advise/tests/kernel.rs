//! What the hints do in the kernel: a reader in a memory cgroup, with advice and without it.
//!
//! These tests need root and the memory controller of cgroup v1; elsewhere they say so and pass. They count the bytes
//! that the device reads, which do not depend on the machine's speed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_advise::budget;

const MIB: u64 = 1 << 20;
/// What the reader and the kernel's own structures for it need beside file pages.
const OWN: u64 = 2 * MIB;
/// The same, with the inodes of a thousand files.
const OWN_TREE: u64 = 4 * MIB;

/// A memory cgroup; gone when dropped.
struct Group(PathBuf);

impl Group {
    /// A cgroup with this limit, if the machine allows it.
    fn new(test: &str, limit: u64) -> Option<Group> {
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory/nigh-advise-{test}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&path) {
            println!("skipped: {test}: no memory cgroup (v1): {error}");
            return None;
        }
        let group = Group(path);
        if let Err(error) = fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()) {
            println!("skipped: {test}: memory cgroup without limit: {error}");
            return None;
        }
        Some(group)
    }

    /// Runs the reader in the cgroup; the bytes that the device read in each pass.
    fn read(&self, mode: &str, class: &str, budget: u64, passes: u32, paths: &[&Path]) -> Vec<u64> {
        let tests = std::env::current_exe().expect("a path");
        let reader = tests.parent().and_then(Path::parent).expect("target/debug").join("examples/reader");
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display());
        let mut command = Command::new("sh");
        command.arg("-c").arg(enter).arg(reader).args([mode, class, &budget.to_string(), &passes.to_string()]);
        let output = command.args(paths).output().expect("sh");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("numbers");
        text.lines().map(|line| line.parse().expect("a number")).collect()
    }

    /// Lets the kernel evict what is charged to the cgroup.
    fn empty(&self) {
        fs::write(self.0.join("memory.force_empty"), "1").expect("memory.force_empty");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("memory.force_empty"), "1");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Writes a file of `bytes` that is not cached afterwards.
fn file(path: &Path, bytes: u64) {
    let piece: Vec<u8> = (0..MIB).map(|at| (at * 7 % 251) as u8).collect();
    let mut left = bytes;
    let mut file = fs::File::create(path).expect("a file");
    while left > 0 {
        let length = left.min(MIB);
        std::io::Write::write_all(&mut file, &piece[..length as usize]).expect("written");
        left -= length;
    }
    file.sync_all().expect("synchronized");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
}

/// A folder on the disk of the build, which is not in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// The read-ahead of the device of `path`, in bytes.
fn read_ahead(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(path).expect("metadata").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let kib = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"))
        .or_else(|_| fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb")));
    kib.ok().and_then(|kib| kib.trim().parse().ok()).map_or(8 * MIB, |kib: u64| kib << 10)
}

/// A loop over 84 MiB in 64 MiB: every pass reads all without advice.
#[test]
fn a_loop_that_does_not_fit() {
    let folder = folder();
    let path = folder.path().join("loop");
    for round in 0..5 {
        let Some(group) = Group::new("loop", 64 * MIB) else { return };
        file(&path, 84 * MIB);
        let plain: u64 = group.read("plain", "loop", 0, 4, &[&path]).iter().sum();
        group.empty();
        file(&path, 84 * MIB);
        let budget = budget(64 * MIB, OWN, read_ahead(&path), 84 * MIB);
        let advised = group.read("advised", "loop", budget, 4, &[&path]);
        let total: u64 = advised.iter().sum();
        println!("round {round}: plain {} MiB, advised {advised:?}, {} MiB, budget {budget}", plain / MIB, total / MIB);
        assert!(plain >= 330 * MIB, "{plain}");
        assert!(total <= 216 * MIB, "{total}");
    }
}

/// A scan of 1 GiB in 256 MiB evicts 160 MiB that were read before, without advice.
#[test]
fn a_scan_beside_a_hot_set() {
    let folder = folder();
    let [hot, scanned] = ["hot", "scanned"].map(|name| folder.path().join(name));
    file(&scanned, 1024 * MIB);
    let mut read_again = [0; 2];
    for (mode, again) in ["plain", "advised"].into_iter().zip(&mut read_again) {
        let Some(group) = Group::new("scan", 256 * MIB) else { return };
        file(&hot, 160 * MIB);
        group.read("plain", "loop", 0, 1, &[&hot]);
        let scan: u64 = group.read(mode, "sequential", 0, 1, &[&scanned]).iter().sum();
        assert!(scan >= 1000 * MIB, "{mode}: {scan}");
        *again = group.read("plain", "loop", 0, 1, &[&hot]).iter().sum();
        println!("{mode}: {again} bytes were read again");
    }
    assert!(read_again[0] >= 150 * MIB, "{read_again:?}");
    // Not the file itself, but where it is on the disk may have to be read again.
    assert!(read_again[1] <= 16 << 10, "{read_again:?}");
}

/// Processes that each read 49 MB in small files, in 44 MB, as `grep -r` does.
#[test]
fn small_files_again_and_again() {
    let folder = folder();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("a folder");
    let largest = 80_000;
    let mut total = 0;
    for number in 0_u64.. {
        let bytes = 2_000 + number * 7919 % (largest - 2_000);
        file(&tree.join(number.to_string()), bytes);
        total += bytes;
        if total > 49_000_000 {
            break;
        }
    }
    let mut last = Vec::new();
    for mode in ["plain", "advised"] {
        let Some(group) = Group::new("tree", 44_000_000) else { return };
        let budget = budget(44_000_000, OWN_TREE, read_ahead(&tree), largest);
        let runs: Vec<u64> = (0..4).map(|_| group.read(mode, "loop", budget, 1, &[&tree])[0]).collect();
        println!("{mode}: {runs:?} of {total} bytes");
        last.extend(runs.last().copied());
    }
    assert!(last[0] > 45_000_000, "{last:?}");
    assert!(last[1] <= 20_000_000, "{last:?}");
}
