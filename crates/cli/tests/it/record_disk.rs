//! Recordings of disks by the kernel's block tracepoints, with the real binary. They need root and a loop device.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_testkit::tools::{installed, run};
use nigh_trace::{Note, Op, ReadOptions, Request, Taken};

use crate::command::{nigh, refusal};
use crate::loops::Loop;

/// A block device, and a folder for recordings.
struct Disk {
    device: Loop,
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None`, and `test` is reported as skipped, where there can be none.
    fn new(test: &str) -> Option<Disk> {
        if !["losetup", "dd"].iter().all(|tool| installed(test, tool)) {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            println!("skipped: {test}: it needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, vec![7; 8 << 20]).unwrap();
        let Some(device) = Loop::attach(&image) else {
            println!("skipped: {test}: it needs a loop device");
            return None;
        };
        Some(Disk { device, folder })
    }

    fn name(&self) -> &str {
        self.device.path().to_str().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Begins to record into `name`; `None`, and `test` is reported as skipped, where the kernel does not allow it.
    fn record(&self, test: &str, name: &str, arguments: &[&str]) -> Option<Child> {
        let file = self.path(name);
        let mut child = Command::new(env!("CARGO_BIN_EXE_nigh"))
            .args(["record", "--disk", self.name(), "-o", file.to_str().unwrap()])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It records once the file begins.
        let part = self.path(&format!("{name}.part"));
        let begin = Instant::now();
        while !part.exists() {
            if child.try_wait().unwrap().is_some() {
                let errors = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
                let is_kernel = errors.contains("kernel has no") || errors.contains("by root only");
                assert!(is_kernel, "{errors}");
                println!("skipped: {test}: {}", errors.trim());
                return None;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "no recording begins");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(child)
    }

    fn dd(&self, arguments: &[&str]) {
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("DISK", self.name())).collect();
        run("dd", &arguments.iter().map(String::as_str).chain(["status=none"]).collect::<Vec<_>>());
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

fn requests(path: &Path) -> (Vec<Request>, Option<Taken>, Vec<Note>) {
    let mut opened = nigh_trace::open(path, &ReadOptions::default()).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        opened.requests.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            return (all, opened.taken, opened.requests.notes());
        }
        all.append(&mut batch);
    }
}

#[test]
fn every_request_of_a_disk_is_recorded_with_its_latency() {
    let test = "every_request_of_a_disk_is_recorded_with_its_latency";
    let Some(disk) = Disk::new(test) else { return };
    let Some(child) = disk.record(test, "disk.parquet", &[]) else { return };
    disk.dd(&["if=DISK", "of=/dev/null", "bs=64k", "count=50", "skip=3", "iflag=direct"]);
    disk.dd(&["if=/dev/zero", "of=DISK", "bs=4k", "count=20", "seek=100", "oflag=direct", "conv=fsync"]);
    signal(&child, rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("3.1 MiB read, 80 KiB written; no events lost"), "{text}");

    let (found, taken, _) = requests(&disk.path("disk.parquet"));
    assert_eq!(taken, Some(Taken::Below));
    let of = |op| found.iter().filter(move |request: &&Request| request.op == op);
    let reads: Vec<_> = of(Op::Read).map(|request| (request.offset, request.length)).collect();
    assert_eq!(reads, (0..50).map(|at| ((3 + at) << 16, 1 << 16)).collect::<Vec<_>>());
    let writes: Vec<_> = of(Op::Write).map(|request| (request.offset, request.length)).collect();
    assert_eq!(writes, (0..20).map(|at| ((100 + at) << 12, 4096)).collect::<Vec<_>>());
    assert!(of(Op::Flush).count() >= 1);
    assert!(found.iter().all(|request| request.latency_ns > 0), "each was completed");
    assert!(found.is_sorted_by_key(|request| request.time_ns));
    let end = |request: &Request| request.time_ns + request.latency_ns;
    assert!(found.windows(2).filter(|pair| pair[1].op != Op::Flush).all(|pair| end(&pair[0]) <= pair[1].time_ns + 1));
}

/// Leftovers of a killed recorder: a file that can be read, and an instance of tracefs that the next start removes.
#[test]
fn a_recorder_that_is_killed_leaves_what_it_had_and_nothing_else() {
    let test = "a_recorder_that_is_killed_leaves_what_it_had_and_nothing_else";
    let Some(disk) = Disk::new(test) else { return };
    let Some(mut child) = disk.record(test, "killed.parquet", &[]) else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    let left = format!("nigh-{}-", child.id());
    // Another recording sees tracefs, and ends by itself.
    let Some(next) = disk.record(test, "next.parquet", &["--for", "1s"]) else { return };
    let root = PathBuf::from("/sys/kernel/tracing/instances");
    let mount = format!("/proc/{}/fd", next.id());
    let mounted = std::fs::read_dir(&mount).unwrap().flatten().map(|entry| entry.path().join("instances"));
    let instances = mounted.chain([root]).find(|path| path.is_dir()).expect("the recorder has tracefs open");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&instances).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    let found = names();
    assert!(!found.iter().any(|name| name.starts_with(&left)), "{found:?}");
    assert!(found.iter().any(|name| name.starts_with(&format!("nigh-{}-", next.id()))), "{found:?}");
    disk.dd(&["if=DISK", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]);
    assert!(next.wait_with_output().unwrap().status.success());
    assert_eq!(requests(&disk.path("next.parquet")).0.len(), 1);
}

#[test]
fn a_recording_of_nothing_leaves_no_file() {
    let test = "a_recording_of_nothing_leaves_no_file";
    let Some(disk) = Disk::new(test) else { return };
    let Some(child) = disk.record(test, "none.parquet", &["--for", "0.2s"]) else { return };
    let output = child.wait_with_output().unwrap();
    assert!(refusal(&output).contains("nothing was recorded"));
    assert_eq!(std::fs::read_dir(disk.folder.path()).unwrap().count(), 1, "only the image");
}

#[test]
fn what_cannot_be_recorded_gets_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.parquet");
    let file = file.to_str().unwrap();
    for (arguments, expected) in [
        (&["--disk", "/dev/null", "-o", file][..], "/dev/null: not a block device"),
        (&["--disk", "/dev/no-such-disk", "-o", file], "/dev/no-such-disk: No such file"),
        (&["--disk", "/dev/null", "-o", "a.csv"], "end the name in .parquet"),
        (&["--disk", "/dev/null", "-o", file, "--max-size", "much"], "--max-size much: expected bytes"),
        (&["--disk", "/dev/null", "-o", file, "--for", "3"], "--for 3: expected a time"),
    ] {
        let line = refusal(&nigh(&[&["record"], arguments].concat()));
        assert!(line.contains(expected), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
