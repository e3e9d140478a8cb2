//! `nigh mount`: files behind the cache.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_testkit::fuse::{Device, Mounted as Made};

use crate::serving::{Folder, until};

const BLOCK: usize = 4096;

/// A running `nigh mount`. When dropped, it is killed, and its mount removed.
struct Mount {
    process: Child,
    at: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Mount {
    /// Mounts the folder `source` at the folder `at` of `folder`, both of which are created.
    fn new(folder: &Folder, arguments: &[&str]) -> Mount {
        Mount::of(&folder.path("source"), &folder.path("at"), arguments)
    }

    fn of(source: &Path, at: &Path, arguments: &[&str]) -> Mount {
        fs::create_dir_all(source).unwrap();
        // It exists, and may have a mount that nobody serves.
        let _ = fs::create_dir(at);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.arg("mount").args([source, at]).args(arguments);
        if !arguments.contains(&"--memory") {
            command.args(["--memory", "16M"]);
        }
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (read, kept) = (BufReader::new(process.stderr.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            read.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line));
        });
        let mut mount = Mount { process, at: at.to_owned(), lines };
        until("it is mounted", || {
            let ended = mount.process.try_wait().unwrap();
            assert!(ended.is_none(), "{:#?}", mount.lines.lock().unwrap());
            mount.has_said("mounted ")
        });
        mount
    }

    fn has_said(&self, text: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(text))
    }

    fn signal(&self, signal: &str) {
        nigh_testkit::tools::run("kill", &[signal, &self.process.id().to_string()]);
    }

    /// Ends it in order, and returns its exit code.
    fn end(&mut self) -> Option<i32> {
        self.signal("-TERM");
        self.process.wait().unwrap().code()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Whether this test is skipped, for want of FUSE.
fn is_skipped(test: &str) -> bool {
    let is_skipped = !Path::new("/dev/fuse").exists();
    if is_skipped {
        println!("skipped: {test}: there is no /dev/fuse");
    }
    is_skipped
}

fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.contains(&format!(" {} ", at.display())))
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// `nigh mount` that is expected to refuse.
fn refused(arguments: &[&str]) -> String {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_nigh")).arg("mount").args(arguments).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn mounts_50_files_are_read_written_and_counted() {
    if is_skipped("mounts_50_files_are_read_written_and_counted") {
        return;
    }
    let folder = Folder::new();
    let (control, record) = (folder.text("control"), folder.text("record.csv"));
    let mut mount = Mount::new(&folder, &["--control", &control, "--record", &record]);
    let whole = bytes(1, 300_000);
    fs::write(folder.path("source/file"), &whole).unwrap();
    for _ in 0..2 {
        assert!(fs::read(folder.path("at/file")).unwrap() == whole);
    }
    fs::write(folder.path("at/other"), &whole).unwrap();
    assert!(fs::read(folder.path("source/other")).unwrap() == whole);
    let status = folder.status();
    let export = &status["exports"][0];
    assert_eq!(export["name"], "source");
    assert!(export["hits"].as_u64().unwrap() >= 74, "{export:#}");
    assert_eq!(mount.end(), Some(0), "{:#?}", mount.lines.lock().unwrap());
    assert!(!is_mounted(&mount.at));
    assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 0);
    let recorded = fs::read_to_string(&record).unwrap();
    // Two reads of the file in pieces, and the write.
    assert!(recorded.lines().count() > 3, "{recorded}");
}

#[test]
fn mounts_50_a_place_of_a_killed_process_is_mounted_again() {
    if is_skipped("mounts_50_a_place_of_a_killed_process_is_mounted_again") {
        return;
    }
    let folder = Folder::new();
    let mut mount = Mount::new(&folder, &[]);
    let whole = bytes(2, 100_000);
    fs::write(folder.path("at/file"), &whole).unwrap();
    mount.kill();
    // It was written before the write returned.
    assert!(fs::read(folder.path("source/file")).unwrap() == whole);
    let error = fs::read(folder.path("at/file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(107), "{error}");
    let again = Mount::new(&folder, &[]);
    assert!(again.has_said("was killed"), "{:#?}", again.lines.lock().unwrap());
    assert!(fs::read(folder.path("at/file")).unwrap() == whole);
    let error = refused(&[&folder.text("source"), &folder.text("at")]);
    assert!(error.contains("a nigh mount is there already"), "{error}");
}

#[test]
fn mounts_50_one_that_is_busy_is_detached() {
    if is_skipped("mounts_50_one_that_is_busy_is_detached") {
        return;
    }
    let folder = Folder::new();
    let mut mount = Mount::new(&folder, &["--stop-within", "2s"]);
    fs::write(folder.path("at/file"), b"text").unwrap();
    let open = File::open(folder.path("at/file")).unwrap();
    mount.signal("-INT");
    until("it reports that it is busy", || mount.has_said("is busy"));
    assert!(!is_mounted(&mount.at));
    // It is still served until the end.
    let mut text = [0; 4];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"text");
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
    assert!(open.read_exact_at(&mut text, 0).is_err());
}

#[test]
fn mounts_50_places_that_would_wait_for_themselves_are_refused() {
    let folder = Folder::new();
    for name in ["source/inner", "at"] {
        fs::create_dir_all(folder.path(name)).unwrap();
    }
    fs::write(folder.path("file"), b"").unwrap();
    let path = |name: &str| folder.text(name);
    for (source, at, words) in [
        ("source", "source/inner", "contain each other"),
        ("source/inner", "source", "contain each other"),
        ("source", "source", "contain each other"),
        ("source", "none", "has to exist"),
        ("source", "file", "has to exist"),
        ("none", "at", "No such file"),
        ("file", "at", "Not a directory"),
    ] {
        let error = refused(&[&path(source), &path(at)]);
        assert!(error.contains(words), "{source} at {at}: {error}");
    }
    let level = format!("file:{}:16M", path("at/level"));
    let error = refused(&[&path("source"), &path("at"), "--level", &level]);
    assert!(error.contains("wait for itself"), "{error}");
    let error = refused(&[&path("source"), &path("at"), "--no-cache", "a***"]);
    assert!(error.contains("expected a pattern"), "{error}");
}

#[test]
fn mounts_50_files_that_are_not_cached() {
    if is_skipped("mounts_50_files_that_are_not_cached") {
        return;
    }
    let folder = Folder::new();
    let control = folder.text("control");
    let mut mount = Mount::new(&folder, &["--control", &control, "--no-cache", "*.log"]);
    let whole = bytes(3, 200_000);
    fs::write(folder.path("at/a.log"), &whole).unwrap();
    for _ in 0..3 {
        assert!(fs::read(folder.path("at/a.log")).unwrap() == whole);
    }
    File::options().append(true).open(folder.path("at/a.log")).unwrap().write_all_at(b"x", 7).unwrap_or(());
    assert!(fs::read(folder.path("at/a.log")).unwrap() == fs::read(folder.path("source/a.log")).unwrap());
    let status = folder.status();
    let export = &status["exports"][0];
    assert_eq!((export["hits"].as_u64(), export["misses"].as_u64()), (Some(0), Some(0)), "{export:#}");
    assert_eq!(mount.end(), Some(0));
}

#[test]
fn mounts_50_a_read_only_mount_changes_nothing() {
    if is_skipped("mounts_50_a_read_only_mount_changes_nothing") {
        return;
    }
    let folder = Folder::new();
    let mount = Mount::new(&folder, &["--read-only"]);
    fs::write(folder.path("source/file"), b"one").unwrap();
    assert_eq!(fs::read(folder.path("at/file")).unwrap(), b"one");
    for result in [
        fs::write(folder.path("at/file"), b"two"),
        fs::write(folder.path("at/new"), b""),
        fs::remove_file(folder.path("at/file")),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(30));
    }
    // A change behind it is seen nevertheless.
    fs::write(folder.path("source/file"), b"three").unwrap();
    assert_eq!(fs::read(folder.path("at/file")).unwrap(), b"three");
    drop(mount);
}

/// A file that does not respond.
struct Hung(AtomicBool);

impl Device for Hung {
    fn length(&self) -> u64 {
        1 << 20
    }

    fn read(&self, _: u64, length: usize) -> std::io::Result<Vec<u8>> {
        while self.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(vec![7; length])
    }

    fn write(&self, _: u64, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn mounts_50_a_file_that_hangs_stops_no_other() {
    if is_skipped("mounts_50_a_file_that_hangs_stops_no_other") {
        return;
    }
    let folder = Folder::new();
    fs::create_dir_all(folder.path("source/hung")).unwrap();
    let hung = Arc::new(Hung(AtomicBool::new(true)));
    let _made = match Made::new(&folder.path("source/hung"), hung.clone(), 8) {
        Ok(made) => made,
        Err(error) => {
            println!("skipped: mounts_50_a_file_that_hangs_stops_no_other: {error}");
            return;
        }
    };
    let mut mount = Mount::new(&folder, &[]);
    let other = Mount::of(&folder.path("other source"), &folder.path("other"), &[]);
    let waiting: Vec<_> = (0..8)
        .map(|at| {
            let path = folder.path("at/hung/image");
            std::thread::spawn(move || {
                let mut block = [0; BLOCK];
                File::open(path).and_then(|file| file.read_exact_at(&mut block, at * 65536)).map(|()| block)
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    for number in 0..50 {
        let whole = bytes(number, 50_000);
        fs::write(folder.path("at/file"), &whole).unwrap();
        assert!(fs::read(folder.path("at/file")).unwrap() == whole);
        fs::write(folder.path("source/cold"), &whole).unwrap();
        assert!(fs::read(folder.path("at/cold")).unwrap() == whole);
        fs::write(other.at.join("file"), &whole).unwrap();
        assert!(fs::read(other.at.join("file")).unwrap() == whole);
    }
    assert!(waiting.iter().all(|reader| !reader.is_finished()), "the file did not hang");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    hung.0.store(false, Ordering::Release);
    for reader in waiting {
        assert_eq!(reader.join().unwrap().unwrap(), [7; BLOCK]);
    }
    assert_eq!(mount.end(), Some(0));
}

/// The same reads of the same bytes find the same blocks in memory, whether they come by a mount or by NBD.
#[test]
fn mounts_50_a_mount_and_nbd_have_the_same_hits() {
    if is_skipped("mounts_50_a_mount_and_nbd_have_the_same_hits") {
        return;
    }
    let blocks = 2048;
    for policy in ["lirs", "s3-fifo"] {
        let folder = Folder::new();
        let image = bytes(4, blocks * BLOCK);
        fs::create_dir_all(folder.path("source")).unwrap();
        fs::write(folder.path("source/image"), &image).unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        // A loop, and blocks that are read again the more often the lower they are.
        let trace: Vec<usize> = (0..10_000)
            .map(|at| if at % 3 == 0 { at / 3 % 900 } else { (random.f64().powi(4) * blocks as f64) as usize })
            .collect();
        let control = folder.text("control");
        let shared = ["--memory", "3M", "--policy", policy, "--readahead", "none", "--control", &control];
        let counts = |status: &serde_json::Value| {
            let export = &status["exports"][0];
            (export["hits"].as_u64().unwrap(), export["misses"].as_u64().unwrap())
        };
        let by_mount = {
            let mut mount = Mount::new(&folder, &shared);
            let file = File::open(folder.path("at/image")).unwrap();
            let mut block = [0; BLOCK];
            for at in &trace {
                file.read_exact_at(&mut block, (at * BLOCK) as u64).unwrap();
                assert!(block == image[at * BLOCK..(at + 1) * BLOCK]);
            }
            let counts = counts(&folder.status());
            drop(file);
            assert_eq!(mount.end(), Some(0));
            counts
        };
        let by_nbd = {
            let disk = format!("image=raw:{}", folder.text("source/image"));
            let server = folder.serve(&[&shared[..], &[&disk]].concat());
            let mut client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "image", &[]).unwrap();
            for at in &trace {
                client.read((at * BLOCK) as u64, BLOCK).unwrap();
            }
            client.disconnect().unwrap();
            let counts = counts(&folder.status());
            server.end();
            counts
        };
        assert_eq!(by_mount, by_nbd, "{policy}: hits and misses");
        assert_eq!(by_mount.0 + by_mount.1, trace.len() as u64);
    }
}

/// The cache holds no write back, so it cannot hold one up.
#[test]
fn files_are_not_frozen() {
    let folder = Folder::new();
    let control = folder.text("control");
    let _mount = Mount::new(&folder, &["--control", &control]);
    let output = folder.ctl(&["export", "freeze", "source"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("Freeze the file system below"), "{said}");
}
