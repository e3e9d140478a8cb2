//! `nigh serve` on a file system that is full, and on a disk with bytes that cannot be written.

use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::filesystem::Nbdfuse;
use crate::serving::{Folder, Server, until};
use nigh_nbd::Errno;
use nigh_nbd::client::{Client, Error};
use nigh_testkit::fuse;
use nigh_testkit::tools::{half_empty, installed, run};
use serde_json::Value;

const BLOCK: usize = 4096;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// A file system of 1 MiB at `place` of a folder.
struct Small<'a>(&'a str);

impl Small<'_> {
    /// `None` if this user cannot mount.
    fn mount<'a>(test: &str, place: &'a str) -> Option<Small<'a>> {
        std::fs::create_dir(place).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=1M", "small", place]).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            println!("skipped: {test}: this user cannot mount");
            return None;
        }
        Some(Small(place))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", self.0]).status();
    }
}

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(&server.socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    Client::connect(stream, export, &[]).unwrap()
}

fn is_full(result: &Result<(), Error>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::Failed(failure)) if failure.errno == Errno::NoSpc => true,
        Err(error) => panic!("{error}"),
    }
}

fn is_error(result: &Result<(), Error>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::Failed(failure)) if failure.errno == Errno::Io => true,
        Err(error) => panic!("{error}"),
    }
}

/// Writes of a client get ENOSPC after the given time, and succeed when there is space again.
#[test]
fn full_15_writes_to_a_full_file_system_fail_with_its_error() {
    for mode in ["back", "through"] {
        let folder = Folder::new();
        let place = folder.text("small");
        let Some(small) = Small::mount("full_15_writes_to_a_full_file_system_fail_with_its_error", &place) else {
            return;
        };
        let image = folder.empty_image("small/image", 16 << 20);
        let (disk, control) = (format!("disk={image}"), folder.text("control"));
        let server = folder.serve(&[
            &disk,
            "other=memory:64M",
            "--memory",
            "8M",
            "--write",
            mode,
            "--control",
            &control,
            "--fail-after",
            "2s",
        ]);
        let status = || -> Value {
            let nigh = env!("CARGO_BIN_EXE_nigh");
            let text = run(nigh, &["ctl", "--control", &control, "status", "--json"]);
            serde_json::from_str::<Value>(&text).unwrap()["exports"][0].clone()
        };
        let mut client = connect(&server, "disk");
        let mut written = Vec::new();
        let mut longest = Duration::ZERO;
        for block in 0..3072 {
            let begin = Instant::now();
            if !is_full(&client.write((block * BLOCK) as u64, &[7; BLOCK])) {
                written.push(block);
            }
            longest = longest.max(begin.elapsed());
        }
        // 1 MiB is on the device, and at most half of the memory is dirty.
        assert!(written.len() <= 256 + 1024, "write mode {mode}: {} writes succeeded", written.len());
        assert!(longest < Duration::from_secs(5), "write mode {mode}: {longest:?}");
        assert_eq!(status()["failing"], true);

        // Requests that need no room are answered.
        let begin = Instant::now();
        assert!(is_full(&client.flush()));
        assert_eq!(client.read(0, BLOCK).unwrap(), [7; BLOCK]);
        assert_eq!(client.read(15 << 20, BLOCK).unwrap(), [0; BLOCK]);
        assert!(begin.elapsed() < Duration::from_secs(5));

        // The same holds for reads and writes of another disk, and their blocks find room.
        let begin = Instant::now();
        let mut other = connect(&server, "other");
        for block in 0..4096 {
            let at = (block * BLOCK) as u64;
            assert_eq!(other.read((32 << 20) + at, BLOCK).unwrap(), [0; BLOCK]);
            other.write(at, &[9; BLOCK]).unwrap();
        }
        other.flush().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        other.disconnect().unwrap();

        // There is space again: it continues by itself.
        run("mount", &["-o", "remount,size=32M", small.0]);
        let begin = Instant::now();
        while status()["failing"] == true {
            assert!(begin.elapsed() < LONG, "it does not continue");
            std::thread::sleep(Duration::from_millis(50));
        }
        // The next flush reports what failed before, if no other did.
        is_full(&client.flush());
        client.flush().unwrap();
        let bytes = std::fs::read(Path::new(&image)).unwrap();
        let is_there = |block: &usize| bytes[block * BLOCK..][..BLOCK] == [7; BLOCK];
        assert!(written.iter().all(is_there), "write mode {mode}: an acknowledged write is lost");
        (0..1024).for_each(|block| client.write((block * BLOCK) as u64, &[8; BLOCK]).unwrap());
        client.flush().unwrap();
        assert!(std::fs::read(Path::new(&image)).unwrap()[..4 << 20].iter().all(|&byte| byte == 8));
        let lines = [server.later("No space left on device"), server.later("writes again")];
        assert_eq!(lines.each_ref().map(Vec::len), [1, 1], "{lines:?}");
        assert!(lines[0][0].contains("disk=\"disk\""));
        client.disconnect().unwrap();
        server.end();
    }
}

/// nbdcopy fails with the disk's error, and a connection of libnbd that got it (nbdfuse's) works when there is space again.
#[test]
fn early_1_nbdcopy_onto_a_disk_that_fills_up() {
    const TEST: &str = "early_1_nbdcopy_onto_a_disk_that_fills_up";
    if !["nbdcopy", "nbdfuse"].iter().all(|tool| installed(TEST, tool)) {
        return;
    }
    let folder = Folder::new();
    let place = folder.text("small");
    let Some(small) = Small::mount(TEST, &place) else { return };
    let (image, control) = (folder.empty_image("small/image", 16 << 20), folder.text("control"));
    let source = folder.image("source", &half_empty(8 << 20));
    let disk = format!("disk={image}");
    let server = folder.serve(&[&disk, "--memory", "4M", "--control", &control, "--fail-after", "1s"]);
    let (mut nbdfuse, file) = Nbdfuse::start(&folder.text("fuse"), &server.uri("disk"), 16 << 20);
    let uri = server.uri("disk");
    let (from, to) = (format!("if={source}"), format!("of={file}"));
    let nbdcopy: (&str, &[&str]) = ("nbdcopy", &["--flush", &source, &uri]);
    let dd: (&str, &[&str]) = ("dd", &[&from, &to, "bs=1M", "conv=notrunc,fsync"]);
    for (program, arguments) in [nbdcopy, dd] {
        let output = Command::new(program).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains("No space left on device"), "{program}: {errors}");
    }
    run("mount", &["-o", "remount,size=32M", small.0]);
    until("it writes again", || folder.status()["exports"][0]["failing"] == false);
    // The first flush reports what failed.
    let _ = connect(&server, "disk").flush();
    for (program, arguments) in [dd, nbdcopy] {
        run(program, arguments);
        run("cmp", &["--bytes", "8388608", &source, &image]);
    }
    assert!(nbdfuse.process.try_wait().unwrap().is_none(), "the same connection");
    drop(nbdfuse);
    server.end();
}

/// Nor do others wait before the writes have failed for long enough that they get the error.
#[test]
fn sick_16_writes_to_a_full_file_system_do_not_hang_the_others() {
    let folder = Folder::new();
    let place = folder.text("small");
    let Some(_small) = Small::mount("sick_16_writes_to_a_full_file_system_do_not_hang_the_others", &place) else {
        return;
    };
    let image = folder.empty_image("small/image", 16 << 20);
    let server = folder.serve(&[&format!("disk={image}"), "other=memory:64M", "--memory", "8M", "--fail-after", "60s"]);
    let stream = UnixStream::connect(&server.socket).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut client = Client::connect(stream, "disk", &[]).unwrap();
    let taken = |&block: &usize| client.submit_write((block * BLOCK) as u64, &[7; BLOCK], false).is_ok();
    assert!((0..4096).take_while(taken).count() > 256);
    // It fills what it can.
    std::thread::sleep(Duration::from_secs(2));
    let mut other = connect(&server, "other");
    let begin = Instant::now();
    for block in 0..4096 {
        let at = (block * BLOCK) as u64;
        assert_eq!(other.read((32 << 20) + at, BLOCK).unwrap(), [0; BLOCK]);
        other.write(at, &[9; BLOCK]).unwrap();
        if block % 256 == 0 {
            other.flush().unwrap();
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    other.disconnect().unwrap();
    server.kill();
}

/// A disk of zeros that does not write some bytes.
struct Bad {
    bytes: Mutex<Vec<u8>>,
    bad: Mutex<Range<u64>>,
}

impl fuse::Device for Bad {
    fn length(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let bytes = self.bytes.lock().unwrap();
        let end = bytes.len().min(offset as usize + length);
        Ok(bytes[offset as usize..end].to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let bad = self.bad.lock().unwrap();
        if offset < bad.end && bad.start < offset + bytes.len() as u64 {
            return Err(io::ErrorKind::Other.into());
        }
        self.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// All other blocks are written, as fast as ever, and all other writes succeed.
#[test]
fn bad_16_one_block_fails_only_writes_to_itself() {
    const TEST: &str = "bad_16_one_block_fails_only_writes_to_itself";
    const BAD: usize = 5 * BLOCK;
    let folder = Folder::new();
    std::fs::create_dir(folder.path("mount")).unwrap();
    let device = Arc::new(Bad { bytes: Mutex::new(vec![0; 16 << 20]), bad: Mutex::new(BAD as u64..BAD as u64 + 1) });
    let mounted = match fuse::Mounted::new(&folder.path("mount"), device.clone(), 4) {
        Ok(mounted) => mounted,
        Err(error) => return println!("skipped: {TEST}: cannot mount FUSE here: {error}"),
    };
    let (disk, control) = (format!("disk={}", mounted.file().display()), folder.text("control"));
    let server = folder.serve(&[&disk, "--memory", "4M", "--shards", "1", "--fail-after", "1s", "--control", &control]);
    let status = || -> Value {
        let text = run(env!("CARGO_BIN_EXE_nigh"), &["ctl", "--control", &control, "status", "--json"]);
        serde_json::from_str::<Value>(&text).unwrap()["exports"][0].clone()
    };
    let mut client = connect(&server, "disk");
    (0..16).for_each(|block| client.write((block * BLOCK) as u64, &[1; BLOCK]).unwrap());
    // Its neighbours, written in the same operation, are found to be good.
    assert!(is_error(&client.flush()));
    let lines = server.logged("its device fails writes");
    assert!(lines[0].contains("20480 to 24576") && lines[0].contains("disk=\"disk\""), "{lines:?}");
    let now = status();
    assert_eq!((&now["failing"], &now["failed_bytes"]), (&Value::from(true), &Value::from(BLOCK)));
    assert_eq!(now["failed"][0]["start"], BAD);
    // Much more than may be dirty.
    let begin = Instant::now();
    for block in 16..4096 {
        client.write((block * BLOCK) as u64, &[2; BLOCK]).unwrap();
    }
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    assert!(is_error(&client.write(BAD as u64, &[3; BLOCK])));
    assert!(is_error(&client.flush()));
    assert_eq!(client.read(BAD as u64, BLOCK).unwrap(), [1; BLOCK]);

    *device.bad.lock().unwrap() = 0..0;
    server.logged("its device writes again");
    while is_error(&client.flush()) {}
    client.write(BAD as u64, &[3; BLOCK]).unwrap();
    client.flush().unwrap();
    let bytes = device.bytes.lock().unwrap();
    let all = (0..4096).all(|block| {
        let byte = if block == 5 { 3 } else { 1 + u8::from(block >= 16) };
        bytes[block * BLOCK..][..BLOCK] == [byte; BLOCK]
    });
    assert!(all);
    drop(bytes);
    assert_eq!(server.later("its device fails writes").len(), 1);
    client.disconnect().unwrap();
    server.end();
}

/// Writes of a client beyond the new end of a file that became shorter do not make it longer again.
#[test]
fn shorter_20_files_do_not_grow_again() {
    const MIB: u64 = 1 << 20;
    let folder = Folder::new();
    let image = folder.empty_image("image", 8 * MIB);
    let server = folder.serve(&[&format!("disk={image}"), "--fail-after", "0s"]);
    let mut client = connect(&server, "disk");
    client.write(MIB, &[1; BLOCK]).unwrap();
    client.write(6 * MIB, &[2; BLOCK]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(4 * MIB).unwrap();
    server.logged("the file has become shorter");
    assert!(is_full(&client.flush()));
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 4 * MIB);
    // Data before the end is written and read as ever.
    client.write(2 * MIB, &[3; BLOCK]).unwrap();
    assert!(is_full(&client.flush()));
    assert_eq!(client.read(MIB, BLOCK).unwrap(), [1; BLOCK]);
    // Other blocks are written between the attempts.
    let begin = Instant::now();
    loop {
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(bytes.len() as u64, 4 * MIB);
        if (bytes[MIB as usize], bytes[2 * MIB as usize]) == (1, 3) {
            break;
        }
        assert!(begin.elapsed() < LONG, "what fits is not written");
        std::thread::sleep(Duration::from_millis(100));
    }
    // As long as before, it takes all.
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(8 * MIB).unwrap();
    let begin = Instant::now();
    while is_full(&client.flush()) {
        assert!(begin.elapsed() < LONG, "it does not recover");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(std::fs::read(&image).unwrap()[6 * MIB as usize], 2);
    server.end();
}

/// Clients that ask about the file all the time do not keep the server from looking at it.
#[test]
fn shorter_20_files_are_noticed_while_clients_ask_about_them() {
    let folder = Folder::new();
    let image = folder.empty_image("image", 8 << 20);
    let server = folder.serve(&[&format!("disk={image}")]);
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, "disk", &["base:allocation"]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(4 << 20).unwrap();
    let begin = Instant::now();
    while server.later("the file has become shorter").is_empty() {
        assert!(begin.elapsed() < LONG, "it is not noticed");
        client.block_status(0, 8 << 20).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    server.end();
}

#[test]
fn empty_20_files_have_no_size() {
    let folder = Folder::new();
    let image = folder.empty_image("image", 8 << 20);
    let server = folder.serve(&[&format!("disk={image}")]);
    let mut before = connect(&server, "disk");
    before.read(0, BLOCK).unwrap();
    let resize = |bytes| std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(bytes).unwrap();
    resize(0);
    let mut empty = connect(&server, "disk");
    assert_eq!(empty.export().size, 0);
    assert!(empty.read(0, BLOCK).is_err() && before.read(0, BLOCK).is_err());
    assert!(empty.write(0, &[1; BLOCK]).is_err());
    empty.flush().unwrap();
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 0);
    resize(4 << 20);
    let mut longer = connect(&server, "disk");
    assert_eq!(longer.export().size, 4 << 20);
    longer.write(0, &[1; BLOCK]).unwrap();
    assert_eq!(before.read(0, BLOCK).unwrap(), [1; BLOCK]);
    drop((before, empty, longer));
    server.end();
}

#[test]
fn deleted_20_files_are_named() {
    let folder = Folder::new();
    let image = folder.empty_image("image", 1 << 20);
    let server = folder.serve(&[&format!("disk={image}")]);
    std::fs::write(folder.path("other"), [0; 4096]).unwrap();
    std::fs::rename(folder.path("other"), &image).unwrap();
    server.logged("the file was deleted or replaced");
    let mut client = connect(&server, "disk");
    client.write(0, &[1; BLOCK]).unwrap();
    client.flush().unwrap();
    assert_eq!(server.later("the file was deleted or replaced").len(), 1);
}
