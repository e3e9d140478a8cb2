//! A memory cgroup, a reader in it, and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const MIB: u64 = 1 << 20;

/// Held by each test while it has a cgroup: readers that wait for the same disk are given other read-ahead.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A memory cgroup; gone when dropped.
pub(crate) struct Group(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

impl Group {
    /// A cgroup with this limit, if the machine allows it.
    pub(crate) fn new(test: &str, limit: u64) -> Option<Group> {
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory/nigh-advise-{test}-{}", std::process::id()));
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = fs::create_dir(&path) {
            println!("skipped: {test}: no memory cgroup (v1): {error}");
            return None;
        }
        let group = Group(path, alone);
        if let Err(error) = fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()) {
            println!("skipped: {test}: memory cgroup without limit: {error}");
            return None;
        }
        Some(group)
    }

    /// Runs the reader in the cgroup, with `PASSES` and `BUDGET`; the bytes that the device read in each pass.
    pub(crate) fn read(&self, mode: &str, class: &str, budget: u64, passes: u32, paths: &[&Path]) -> Vec<u64> {
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

    /// The most memory charged to the cgroup so far.
    pub(crate) fn peak(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("memory.max_usage_in_bytes")).expect("memory.max_usage_in_bytes");
        text.trim().parse().expect("a number")
    }

    /// Lets the kernel evict what is charged to the cgroup.
    pub(crate) fn empty(&self) {
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
pub(crate) fn file(path: &Path, bytes: u64) {
    let piece: Vec<u8> = (0..MIB.min(bytes)).map(|at| (at * 7 % 251) as u8).collect();
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
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// The read-ahead of the device of `path`, in bytes.
pub(crate) fn read_ahead(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(path).expect("metadata").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let kib = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"))
        .or_else(|_| fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb")));
    kib.ok().and_then(|kib| kib.trim().parse().ok()).map_or(8 * MIB, |kib: u64| kib << 10)
}
