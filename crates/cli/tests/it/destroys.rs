//! Files of users that no command destroys: outputs replace nothing without being asked, and recordings that were killed are kept.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_trace::ReadOptions;
use rustix::process::{Pid, Signal};

use crate::command::{nigh, printed, refusal};
use crate::loops::Loop;
use crate::serving::{self, until};

const PRECIOUS: &[u8] = b"precious";
const TRACE: &[u8] = b"1\n2\n1\n3\n1\n2\n";

/// A folder with a trace, in which commands run.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.file("t.lirs", TRACE);
        folder
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.path().join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn nigh(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.current_dir(self.0.path()).args(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

/// Commands that write the file `out`, and read what is in the folder.
fn writers(out: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["sim", "t.lirs", "--html", out],
        vec!["sim", "t.lirs", "--device", "ssd-nvme", "--html", out],
        vec!["sim", "t.lirs", "--readahead", "auto", "--html", out],
        vec!["sim", "t.lirs", "--levels", "1b,2b", "--html", out],
        vec!["plan", "t.lirs", "--html", out],
        vec!["demo", "--requests", "100", "--html", out],
        vec!["trace", "convert", "t.lirs", out, "--to-format", "csv"],
        vec!["trace", "generate", "zipf:blocks=1k", out, "--requests", "10", "--to-format", "csv"],
        vec!["trace", "layout", "t.lirs", out, "--to-format", "csv"],
        vec!["trace", "layout", "t.lirs", "-", "--to-format", "csv", "--extents", out],
        vec!["devices", "fit", "t.lirs", "-o", out],
        vec!["patterns", "t.lirs", "--profile", out],
        vec!["record", "-o", out, "--", "cat", "t.lirs"],
        vec!["record", "--ptrace", "-o", out, "--", "cat", "t.lirs"],
    ]
}

/// The command with `--force`.
fn forced<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    // Not among the arguments of a program.
    let at = if arguments[0] == "record" { 1 } else { arguments.len() };
    [&arguments[..at], &["--force"], &arguments[at..]].concat()
}

/// Whether a command cannot succeed here: the file is too small to be measured, and has no code.
fn always_fails(arguments: &[&str]) -> bool {
    matches!(arguments[0], "devices" | "patterns")
}

#[test]
fn destroys_1_a_file_that_exists_is_replaced_by_force_only() {
    let folder = Folder::new();
    for arguments in writers("out.parquet") {
        folder.file("out.parquet", PRECIOUS);
        let said = refusal(&folder.nigh(&arguments));
        assert!(said.contains("out.parquet: the file exists; add --force to replace it"), "{arguments:?}: {said}");
        assert_eq!(folder.read("out.parquet"), PRECIOUS, "{arguments:?}");
        let forced = forced(&arguments);
        let output = folder.nigh(&forced);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !always_fails(&arguments), "{forced:?}: {said}");
        assert_eq!(folder.read("out.parquet") == PRECIOUS, always_fails(&arguments), "{forced:?}: {said}");
        assert_eq!(folder.names(), ["out.parquet", "t.lirs"], "{forced:?}");
    }
}

#[test]
fn destroys_1_pages_of_the_manual_are_replaced_by_force_only() {
    let folder = Folder::new();
    folder.file("nigh-sim.1", PRECIOUS);
    let said = refusal(&folder.nigh(&["man", "--all", "."]));
    assert!(said.contains("nigh-sim.1: the file exists; add --force"), "{said}");
    assert_eq!(folder.names(), ["nigh-sim.1", "t.lirs"], "none is written");
    assert!(folder.nigh(&["man", "--all", ".", "--force"]).status.success());
    assert_ne!(folder.read("nigh-sim.1"), PRECIOUS);
}

#[test]
fn destroys_1_a_file_that_is_read_is_never_replaced() {
    let folder = Folder::new();
    folder.file("files.csv", b"0,40960,/data\n");
    folder.file("places.csv", b"file,offset,disk,length\n0,0,0,40960\n");
    folder.file("hints", b"");
    std::fs::hard_link(folder.0.path().join("t.lirs"), folder.0.path().join("linked.lirs")).unwrap();
    symlink("t.lirs", folder.0.path().join("link.lirs")).unwrap();
    let device = printed(&["devices", "ssd-nvme"]);
    folder.file("mine.toml", device.as_bytes());
    let before: Vec<_> = folder.names().into_iter().map(|name| (folder.read(&name), name)).collect();
    let simulated = ["sim", "t.lirs", "--device", "0=mine.toml", "--force"];
    let commands = [
        &["sim", "t.lirs", "--force", "--html", "t.lirs"][..],
        &["sim", "t.lirs", "--force", "--html", "linked.lirs"],
        &["sim", "t.lirs", "--force", "--html", "link.lirs"],
        &["sim", "t.lirs", "--levels", "1b,2b", "--force", "--html", "t.lirs"],
        &["sim", "t.lirs", "--policy", "aoio", "--patterns", "linked.lirs", "--force", "--html", "t.lirs"],
        &[&simulated[..], &["--html", "t.lirs"]].concat(),
        &[&simulated[..], &["--html", "mine.toml"]].concat(),
        &[&simulated[..], &["--extents", "places.csv", "--html", "places.csv"]].concat(),
        &[&simulated[..], &["--allocate", "global", "--control", "hints", "--html", "hints"]].concat(),
        &["plan", "t.lirs", "--force", "--html", "t.lirs"],
        &["plan", "t.lirs", "--device", "mine.toml", "--force", "--html", "mine.toml"],
        &["trace", "convert", "t.lirs", "linked.lirs", "--force"],
        &["trace", "layout", "t.lirs", "t.lirs", "--force"],
        &["trace", "layout", "t.lirs", "out.csv", "--extents", "t.lirs", "--force"],
        &["trace", "layout", "t.lirs", "out.csv", "--files", "files.csv", "--extents", "files.csv", "--force"],
        &["trace", "layout", "t.lirs", "places.csv", "--places", "places.csv", "--force"],
        &["devices", "fit", "t.lirs", "-o", "t.lirs", "--force"],
        &["patterns", "t.lirs", "--profile", "t.lirs", "--force"],
    ];
    for arguments in commands {
        let said = refusal(&folder.nigh(arguments));
        assert!(said.contains("this file is read; write to another one"), "{arguments:?}: {said}");
    }
    let said = refusal(&folder.nigh(&["trace", "layout", "t.lirs", "a.csv", "--extents", "./a.csv", "--force"]));
    assert!(said.contains("a.csv: the trace is written there"), "{said}");
    let after: Vec<_> = folder.names().into_iter().map(|name| (folder.read(&name), name)).collect();
    assert_eq!(before, after);
}

#[test]
fn destroys_1_block_devices_are_never_written() {
    let test = "destroys_1_block_devices_are_never_written";
    let folder = Folder::new();
    folder.file("image", &vec![7; 1 << 20]);
    let Some(device) = Loop::attach(&folder.0.path().join("image")) else {
        println!("skipped: {test}: it needs root and a loop device");
        return;
    };
    let disk = device.path().to_str().unwrap();
    symlink(disk, folder.0.path().join("link.parquet")).unwrap();
    let fit = vec!["devices", "fit", disk, "-o", disk];
    // Recordings of programs have another name.
    let all = writers(disk).into_iter().filter(|arguments| arguments[0] != "record");
    for arguments in all.chain(writers("link.parquet")).chain([fit]) {
        let said = refusal(&folder.nigh(&forced(&arguments)));
        assert!(said.contains(": this is a block device; name a file"), "{arguments:?}: {said}");
    }
    assert!(std::fs::read(device.path()).unwrap().iter().all(|&byte| byte == 7));
}

#[test]
fn destroys_1_links_that_others_may_have_made_are_not_followed() {
    let folder = Folder::new();
    folder.file("victim", PRECIOUS);
    let shared = folder.0.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    symlink("../victim", shared.join("link.parquet")).unwrap();
    symlink("../new", shared.join("dangling.parquet")).unwrap();
    // The link of this user's folder leads there.
    symlink("shared/link.parquet", folder.0.path().join("link.parquet")).unwrap();
    for link in ["shared/link.parquet", "shared/dangling.parquet", "link.parquet"] {
        for arguments in writers(link) {
            let said = refusal(&folder.nigh(&forced(&arguments)));
            assert!(
                said.contains("a symbolic link in a folder that other users can write to"),
                "{arguments:?}: {said}"
            );
        }
    }
    assert_eq!((folder.read("victim"), folder.names().contains(&"new".to_owned())), (PRECIOUS.to_vec(), false));
    // In a folder of its own, the target of a link is replaced, and not the link.
    symlink("victim", folder.0.path().join("own.html")).unwrap();
    assert!(folder.nigh(&["sim", "t.lirs", "--html", "own.html", "--force"]).status.success());
    assert!(folder.0.path().join("own.html").is_symlink() && folder.read("victim").starts_with(b"<!"));
}

/// A link to a folder: where users replace their own files only, this user's links are followed.
#[test]
fn destroys_1_folders_that_others_may_have_linked_are_not_written_to() {
    let folder = Folder::new();
    folder.file("victim", PRECIOUS);
    for (name, mode) in [("sticky", 0o1777), ("open", 0o777)] {
        let shared = folder.0.path().join(name);
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, PermissionsExt::from_mode(mode)).unwrap();
        symlink("..", shared.join("own")).unwrap();
        symlink("..", shared.join("foreign")).unwrap();
    }
    let foreign = folder.0.path().join("sticky/foreign");
    let is_root = std::os::unix::fs::lchown(&foreign, Some(65534), Some(65534)).is_ok();
    if !is_root {
        println!(
            "skipped: destroys_1_folders_that_others_may_have_linked_are_not_written_to of another user's link: it needs root"
        );
    }
    let refused = [("open/own/victim", true), ("sticky/foreign/victim", is_root), ("sticky/own/open/own/victim", true)];
    for (path, _) in refused.iter().filter(|(_, is_due)| *is_due) {
        let said = refusal(&folder.nigh(&["sim", "t.lirs", "--html", path, "--force"]));
        assert!(said.contains("a symbolic link in a folder that other users can write to"), "{path}: {said}");
    }
    assert_eq!(folder.read("victim"), PRECIOUS);
    assert!(folder.nigh(&["sim", "t.lirs", "--html", "sticky/own/victim", "--force"]).status.success());
    assert!(folder.read("victim").starts_with(b"<!"));
}

/// Without a name for the page, the demo is repeated as it was begun.
#[test]
fn destroys_1_the_demo_replaces_its_own_page_and_no_other() {
    let folder = Folder::new();
    let demo = ["demo", "--requests", "100"];
    assert!(folder.nigh(&demo).status.success());
    assert!(folder.nigh(&demo).status.success());
    folder.file("nigh-demo.html", PRECIOUS);
    let said = refusal(&folder.nigh(&demo));
    assert!(said.contains("nigh-demo.html: the file exists; add --force"), "{said}");
    assert_eq!(folder.read("nigh-demo.html"), PRECIOUS);
}

/// A server writes a recording where a client of its control socket names a file.
#[test]
fn destroys_1_a_server_replaces_none_of_its_files_by_a_recording() {
    let folder = serving::Folder::new();
    let image = folder.image("disk.csv", &[7; 1 << 20]);
    let (control, level, warm) = (folder.text("control"), folder.text("level.csv"), folder.text("warm.csv"));
    let device = format!("disk={image}");
    let level_of = format!("file:{level}:4M");
    let server = folder.serve(&[&device, "--control", &control, "--level", &level_of, "--warm", &warm]);
    nigh(&["ctl", "--control", &control, "flush"]);
    for file in [&image, &level] {
        let said = refusal(&nigh(&["ctl", "--control", &control, "record", file, "--force"]));
        assert!(said.contains("this file is read; write to another one"), "{said}");
    }
    let other = folder.image("other.csv", PRECIOUS);
    let said = refusal(&nigh(&["ctl", "--control", &control, "record", &other]));
    assert!(said.contains("other.csv: the file exists; add --force"), "{said}");
    server.end();
    assert_eq!(std::fs::read(image).unwrap(), [7; 1 << 20]);
    // There is no --force for a server.
    let said = refusal(&nigh(&["serve", "disk=memory:1M", "--stdio", "--record", &other]));
    assert!(said.contains("other.csv: the file exists; move it, or name another one"), "{said}");
    assert_eq!(std::fs::read(other).unwrap(), PRECIOUS);
}

/// The list of blocks in memory is written there, and then renamed.
#[test]
fn destroys_1_a_file_beside_the_list_of_blocks_is_kept() {
    let folder = serving::Folder::new();
    let other = folder.image("list.part", PRECIOUS);
    let list = folder.text("list");
    let said = refusal(&nigh(&["serve", "disk=memory:1M", "--stdio", "--warm", &list]));
    assert!(said.contains("list.part is no list of blocks"), "{said}");
    assert_eq!(std::fs::read(other).unwrap(), PRECIOUS);
}

/// The requests of a recording that is not complete; none if it cannot be read yet.
fn recorded(path: &Path) -> usize {
    let opened = nigh_trace::open(path, &ReadOptions::default());
    let Ok(mut opened) = opened else { return 0 };
    let (mut count, mut batch) = (0, Vec::new());
    while opened.requests.next_batch(&mut batch).is_ok() && !batch.is_empty() {
        count += batch.len();
    }
    count
}

/// A recorder in a process group with the program that it records.
struct Recording(Child);

impl Recording {
    fn begin(folder: &Folder, arguments: &[&str]) -> Recording {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.current_dir(folder.0.path()).arg("record").args(arguments).process_group(0);
        Recording(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Its folders in memory.
    fn folders(&self) -> Vec<PathBuf> {
        let prefix = format!("nigh-record-{}-", self.0.id());
        let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
        all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix)).collect()
    }

    /// Kills the recorder, and then the program.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        let group = Pid::from_child(&self.0);
        until("the program ends", || rustix::process::kill_process_group(group, Signal::KILL).is_err());
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
        }
    }
}

/// Waits until something is recorded in each of these files, which takes 10 s.
fn until_recorded(files: &[PathBuf]) {
    let begin = Instant::now();
    while files.iter().any(|file| recorded(file) == 0) {
        let found: Vec<usize> = files.iter().map(|file| recorded(file)).collect();
        assert!(begin.elapsed() < Duration::from_secs(60), "no checkpoint: {found:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
/// A file that a command writes at once has no name before it is complete.
#[test]
fn destroys_2_a_killed_conversion_leaves_nothing() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder.0.path()).args(["trace", "convert", "--format", "lirs", "-", "out.csv"]);
    let mut convert = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = convert.stdin.take().unwrap();
    (0..100_000).for_each(|_| input.write_all(b"1\n").unwrap());
    let files = || std::fs::read_dir(format!("/proc/{}/fd", convert.id())).unwrap();
    let is_out = |path: PathBuf| path.starts_with(folder.0.path()) && path.file_name().unwrap() != "t.lirs";
    // It has begun to write, wherever the file is.
    until("it writes", || files().flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(is_out)));
    convert.kill().unwrap();
    convert.wait().unwrap();
    assert_eq!(folder.names(), ["t.lirs"]);
}

#[test]
fn destroys_2_a_killed_recording_loses_ten_seconds_at_most() {
    let folder = Folder::new();
    // One program sleeps, and the other makes system calls without end that are not recorded.
    let sleeps = ["--", "sh", "-c", "cat t.lirs; sleep 100"];
    let calls = ["--ptrace", "-o", "calls.parquet", "--", "sh", "-c", "cat t.lirs; while :; do kill -0 $$; done"];
    let mut recordings = [
        Recording::begin(&folder, &[&["-o", "t.parquet"], &sleeps[..]].concat()),
        Recording::begin(&folder, &[&["--ptrace", "-o", "traced.parquet"], &sleeps[..]].concat()),
        Recording::begin(&folder, &calls),
    ];
    let parts = ["t.parquet.part", "traced.parquet.part", "calls.parquet.part"];
    until_recorded(&parts.map(|part| folder.0.path().join(part)));
    let memory = recordings[0].folders();
    assert_eq!(memory.len(), 1);
    recordings.iter_mut().for_each(Recording::kill);
    let lost = recorded(&folder.0.path().join("t.parquet.part"));

    // Another one beside it names them, and removes what is in memory.
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let output = folder.nigh(&["record", "-o", "other.parquet", "--", "cat", "t.lirs"]);
    for part in parts {
        assert!(
            said(&output).contains(&format!("a recording did not end: {part} has what was recorded")),
            "{output:?}"
        );
    }
    assert!(memory.iter().all(|folder| !folder.exists()));
    // The next of the same name keeps what is left, under another name.
    for number in 1..=2 {
        let output = folder.nigh(&["record", "--force", "-o", "t.parquet", "--", "cat", "t.lirs"]);
        let left = format!("t.parquet.part.{number}");
        let is_named = said(&output).lines().any(|line| line.contains("it is now in ") && line.ends_with(&left));
        assert!(output.status.success() && is_named, "{output:?}");
        assert_eq!(recorded(&folder.0.path().join(left)), lost);
        std::fs::copy(folder.0.path().join("t.parquet.part.1"), folder.0.path().join("t.parquet.part")).unwrap();
    }
    assert!(recorded(&folder.0.path().join("t.parquet")) > 0);
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn destroys_2_a_recording_that_goes_on_is_not_taken() {
    let folder = Folder::new();
    let mut recording = Recording::begin(&folder, &["-o", "t.parquet", "--", "sh", "-c", "cat t.lirs; sleep 100"]);
    let part = folder.0.path().join("t.parquet.part");
    until("the recording begins", || part.exists() && std::fs::metadata(&part).unwrap().len() > 100);
    let said = refusal(&folder.nigh(&["record", "--force", "-o", "t.parquet", "--", "cat", "t.lirs"]));
    assert!(said.contains("t.parquet.part: another process is writing this file"), "{said}");
    recording.kill();
    // There is nothing in it.
    let output = folder.nigh(&["record", "-o", "t.parquet", "--", "cat", "t.lirs"]);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("did not end"), "{output:?}");
    assert_eq!(folder.names(), ["t.lirs", "t.parquet"]);
}

#[test]
fn destroys_2_a_killed_server_loses_ten_seconds_at_most() {
    for name in ["t.parquet", "t.csv"] {
        let folder = serving::Folder::new();
        let file = folder.text(name);
        let mut server = folder.serve(&["disk=memory:8M", "--record", &file]);
        let connect = |server: &serving::Server| {
            Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
        };
        let mut client = connect(&server);
        (0..100).for_each(|block| client.read(block * 4096, 4096).map(drop).unwrap());
        let part = folder.path(&format!("{name}.part"));
        until_recorded(std::slice::from_ref(&part));
        assert_eq!(recorded(&part), 100, "{name}");
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        std::fs::remove_file(&server.socket).unwrap();
        // It starts again, and keeps what is left.
        let server = folder.serve(&["disk=memory:8M", "--record", &file]);
        assert_eq!(recorded(&folder.path(&format!("{name}.part.1"))), 100, "{name}");
        connect(&server).read(0, 4096).unwrap();
        server.end();
        assert_eq!(recorded(&folder.path(name)), 1);
    }
}
