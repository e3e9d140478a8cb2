//! How much of the page cache a program can keep: what its memory cgroup, or the machine, has left.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use nigh_advise::budget;
use nigh_record::Board;

/// Memory is short when less is free than this, or than this part of the limit. Until then nothing is dropped.
const FREE_LEAST: u64 = 256 << 20;
const FREE_LEAST_PART: u64 = 16;

/// The read-ahead of a device that does not report it: the kernel's default.
const READ_AHEAD: u64 = 128 << 10;

/// Mount point of the controllers.
const CGROUPS: &str = "/sys/fs/cgroup";

/// A limit, and how the memory below it is used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    limit: u64,
    used: u64,
    /// Used for file pages, which the kernel can drop.
    files: u64,
}

impl Memory {
    fn other(&self) -> u64 {
        self.used.saturating_sub(self.files)
    }

    /// Memory that file pages can take.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.other())
    }

    fn is_short(&self) -> bool {
        self.limit.saturating_sub(self.used) < FREE_LEAST.max(self.limit / FREE_LEAST_PART)
    }
}

/// Sets the budget by what memory there is for `process`; `keep` overrides it.
pub(super) fn set_budget(board: &Board, process: u32, keep: Option<u64>) {
    let Some((memory, is_short)) = memory(process) else { return };
    let (device, largest) = board.advised();
    let read_ahead = device.map_or(READ_AHEAD, read_ahead);
    let budget = keep.unwrap_or_else(|| budget(memory.limit, memory.other(), read_ahead, largest));
    board.set_budget(budget, is_short);
}

/// Bytes that the page cache can take now, for programs of this process's cgroup.
pub(crate) fn room() -> Option<u64> {
    memory(std::process::id()).map(|(memory, _)| memory.room())
}

/// The memory of the cgroup that leaves the least room for file pages, among that of `process`, those above it, and the
/// machine; and whether memory is short in any of them.
fn memory(process: u32) -> Option<(Memory, bool)> {
    let own = read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let groups = groups(&own, Path::new(CGROUPS));
    let limited = groups.iter().filter_map(|group| of_group(group));
    let all: Vec<Memory> = limited.chain(of_machine(&read_to_string("/proc/meminfo").ok()?)).collect();
    let is_short = all.iter().any(Memory::is_short);
    Some((all.into_iter().min_by_key(Memory::room)?, is_short))
}

/// The folders of a process's memory cgroup, and of those above it.
fn groups(own: &str, mounted: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let root = match controllers {
            "" => mounted.to_owned(),
            names if names.split(',').any(|name| name == "memory") => mounted.join("memory"),
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        all.extend(group.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned));
    }
    all
}

/// `None` if the group has no limit.
fn of_group(folder: &Path) -> Option<Memory> {
    let number = |file: &str| read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let text = read_to_string(folder.join("memory.stat")).ok()?;
    let stat = |name: &str| {
        let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        text.lines().find_map(of_line).unwrap_or(0_u64)
    };
    // Of cgroup v1, which has no `memory.max`; its `total_cache` includes shared memory, as does `file` of v2.
    if let Some(limit) = number("memory.limit_in_bytes") {
        let files = stat("total_cache").saturating_sub(stat("total_shmem"));
        return Some(Memory { limit, used: number("memory.usage_in_bytes")?, files });
    }
    let files = stat("file").saturating_sub(stat("shmem"));
    Some(Memory { limit: number("memory.max")?, used: number("memory.current")?, files })
}

fn of_machine(meminfo: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse().ok();
        meminfo.lines().find_map(of_line).map(|kib: u64| kib << 10)
    };
    let (limit, free) = (kib("MemTotal")?, kib("MemFree")?);
    let files = (kib("Cached")? + kib("Buffers")?).saturating_sub(kib("Shmem")?);
    Some(Memory { limit, used: limit.saturating_sub(free), files })
}

/// The read-ahead of a device, in bytes. A partition has that of its disk.
fn read_ahead(device: u64) -> u64 {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let places = [
        format!("/sys/class/bdi/{number}/read_ahead_kb"),
        format!("/sys/dev/block/{number}/queue/read_ahead_kb"),
        format!("/sys/dev/block/{number}/../queue/read_ahead_kb"),
    ];
    let kib = places.iter().find_map(|place| read_to_string(place).ok()?.trim().parse::<u64>().ok());
    kib.map_or(READ_AHEAD, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_groups_of_a_process_are_found() {
        let mounted = Path::new("/sys/fs/cgroup");
        let v1 = "4:cpu:/x\n3:memory:/a/b\n0::/c\n";
        let found = ["memory/a/b", "memory/a", "memory", "c", ""].map(|path| mounted.join(path));
        assert_eq!(groups(v1, mounted), found);
        assert_eq!(groups("0::/\n", mounted), [mounted.join("")]);
        assert!(groups("nonsense", mounted).is_empty());
    }

    #[test]
    fn both_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        assert_eq!(of_group(folder.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        write("memory.stat", "anon 7\nfile 500\nshmem 100\n");
        assert_eq!(of_group(folder.path()), None, "no limit");
        write("memory.max", "1000\n");
        let v2 = of_group(folder.path()).unwrap();
        assert_eq!((v2, v2.other(), v2.room()), (Memory { limit: 1000, used: 900, files: 400 }, 500, 500));
        write("memory.limit_in_bytes", "2000\n");
        write("memory.usage_in_bytes", "1500\n");
        write("memory.stat", "cache 1\ntotal_cache 800\ntotal_shmem 100\n");
        assert_eq!(of_group(folder.path()), Some(Memory { limit: 2000, used: 1500, files: 700 }));
    }

    #[test]
    fn memory_is_short_before_it_is_used_up() {
        let machine =
            of_machine("MemTotal: 16777216 kB\nMemFree: 4194304 kB\nBuffers: 1 kB\nCached: 100 kB\nShmem: 1 kB\n");
        let machine = machine.unwrap();
        assert_eq!(machine, Memory { limit: 16 << 30, used: 12 << 30, files: 100 << 10 });
        assert!(!machine.is_short() && Memory { used: (15 << 30) + 1, ..machine }.is_short());
        assert!(Memory { limit: 64 << 20, used: 0, files: 0 }.is_short(), "so little is filled at once");
        assert!(memory(std::process::id()).is_some_and(|(own, _)| own.limit > own.other()));
    }
}
