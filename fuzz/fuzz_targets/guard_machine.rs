#![no_main]

use std::fs;
use std::path::Path;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use nigh_guard::{Guard, Journal, Procfs, Profile, Settings, Tree, Writer};

/// The parts of an input, in their order: files of `/proc`, and of cgroups as version 1 and version 2 call them. A file that
/// comes again has its content of a second later.
const FILES: [(&str, &str); 25] = [
    ("proc/meminfo", ""),
    ("proc/stat", ""),
    ("proc/uptime", ""),
    ("proc/pressure/io", ""),
    ("proc/10/status", ""),
    ("proc/11/status", ""),
    ("memory/box/memory.limit_in_bytes", "box/memory.max"),
    ("memory/box/memory.usage_in_bytes", "box/memory.current"),
    ("memory/box/a/memory.usage_in_bytes", "box/a/memory.current"),
    ("memory/box/a/memory.swappiness", "box/a/memory.low"),
    ("memory/box/b/memory.swappiness", "box/b/memory.high"),
    ("memory/box/a/cgroup.procs", "box/a/cgroup.procs"),
    ("memory/box/b/cgroup.procs", "box/b/cgroup.procs"),
    ("proc/vmstat", ""),
    ("proc/10/stat", ""),
    ("proc/11/stat", ""),
    ("proc/vmstat", ""),
    ("proc/10/stat", ""),
    ("proc/11/stat", ""),
    ("proc/vmstat", ""),
    ("proc/10/stat", ""),
    ("proc/11/stat", ""),
    ("proc/vmstat", ""),
    ("proc/10/stat", ""),
    ("proc/11/stat", ""),
];

/// Parts that make the first second; each second has `A_SECOND` more.
const FIRST: usize = 16;
const A_SECOND: usize = 3;

// A kernel may report anything: the guard works or prints in one line why not, and in the end every value is what it was.
fuzz_target!(|content: &[u8]| {
    let parts: Vec<&[u8]> = content.split(|byte| *byte == 0).collect();
    for is_v1 in [true, false] {
        for profile in [Profile::MODERN, Profile::DISSERTATION] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            if let Err(error) = watch(folder.path(), is_v1, profile, &parts) {
                assert!(!error.contains('\n'), "{error}");
            }
        }
    }
});

fn watch(root: &Path, is_v1: bool, profile: Profile, parts: &[&[u8]]) -> Result<(), String> {
    for folder in ["proc/10", "proc/11", "proc/pressure", "box/a", "box/b", "memory/box/a", "memory/box/b"] {
        fs::create_dir_all(root.join(folder)).expect("room");
    }
    let marks = ["cgroup.procs", "memory/cgroup.procs", "memory/memory.limit_in_bytes"];
    marks.iter().for_each(|file| write(root, file, b""));
    write(root, "cgroup.controllers", if is_v1 { b"" } else { b"memory" });
    let mut files =
        FILES.iter().zip(parts).map(|((v1, v2), part)| (if is_v1 || v2.is_empty() { v1 } else { v2 }, *part));
    files.by_ref().take(FIRST).for_each(|(file, part)| write(root, file, part));
    let settings = Settings {
        profile,
        allow: Vec::new(),
        deny: Vec::new(),
        mechanism: None,
        prefetch: false,
        freeze: Duration::ZERO,
        command: None,
    };
    let before = values(root);
    let tree = Tree::open(root, "").map_err(|error| error.to_string())?;
    let journal = Journal::open(&root.join("state/journal"), Writer::Files).map_err(|error| error.to_string())?;
    let mut guard = Guard::new(settings, tree, Procfs::new(&root.join("proc")), Some(journal))
        .map_err(|error| error.to_string())?;
    let mut done = Ok(());
    for second in 1000..1004 {
        done = done.and(guard.tick(Duration::from_secs(second)).map(drop));
        files.by_ref().take(A_SECOND).for_each(|(file, part)| write(root, file, part));
    }
    let _ = guard.status(Duration::from_secs(1004)).metrics();
    guard.release_all("the end").expect("the journal can be written");
    assert_eq!(values(root), before);
    done.map_err(|error| error.to_string())
}

fn write(root: &Path, file: &str, content: &[u8]) {
    fs::write(root.join(file), content).expect("room for a temporary file");
}

/// Values that the guard may change.
fn values(root: &Path) -> Vec<Option<String>> {
    let files = FILES.iter().flat_map(|(v1, v2)| [v1, v2]).filter(|file| file.contains("/memory."));
    files.map(|file| Some(String::from_utf8_lossy(&fs::read(root.join(file)).ok()?).trim().to_owned())).collect()
}
