//! `nigh serve --level tcp:…` with `nigh level`: hits come from the level, and nothing that it returns is stale, however the level
//! fails.

mod serving;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use serde_json::Value;

use serving::{Folder, Server, until};

const BLOCK: u64 = 4096;
/// Blocks of the disk: more than memory holds.
const BLOCKS: u64 = 2048;

struct Level {
    process: Child,
    address: String,
}

impl Level {
    fn start(address: &str) -> Level {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["level", "--listen", address, "--memory", "16M"]).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line =
            lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening on tcp:"))).unwrap().unwrap();
        let address = line[line.find("tcp:").unwrap()..].to_owned();
        // Reads the rest, so that the server can go on to log.
        std::thread::spawn(move || lines.for_each(drop));
        Level { process, address }
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(folder: &Folder, level: &str) -> Server {
    let level = format!("{level}:16M");
    let disk = format!("disk={}", folder.text("image"));
    folder.serve(&["--memory", "1M", "--level", &level, "--control", &folder.text("control"), &disk])
}

fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

fn level_status(folder: &Folder) -> Value {
    folder.status()["levels"][0].clone()
}

fn count(folder: &Folder, name: &str) -> u64 {
    level_status(folder)[name].as_u64().unwrap()
}

/// The contents of `block` in its state number `version`.
fn contents(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![(block ^ version) as u8; BLOCK as usize];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn image(folder: &Folder) {
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| contents(block, 0)).collect();
    std::fs::write(folder.path("image"), bytes).unwrap();
}

fn read_all(client: &mut Client<UnixStream>, version: u64) {
    for block in 0..BLOCKS {
        let read = client.read(block * BLOCK, BLOCK as usize).unwrap();
        assert!(read == contents(block, version), "block {block} is not what was written");
    }
}

#[test]
fn blocks_that_left_memory_come_from_the_level() {
    let folder = Folder::new();
    image(&folder);
    let level = Level::start("tcp:127.0.0.1:0");
    let server = serve(&folder, &level.address);
    let mut client = connect(&server);
    read_all(&mut client, 0);
    until("storing", || count(&folder, "stores") > BLOCKS / 2);
    read_all(&mut client, 0);
    let (hits, mismatches) = (count(&folder, "hits"), count(&folder, "mismatches"));
    assert!(hits > BLOCKS / 4 && mismatches == 0, "{hits} hits, {mismatches} mismatches");
    server.end();
}

/// A server starts before its level, and goes on without it and with it again.
#[test]
fn a_level_comes_and_goes() {
    let folder = Folder::new();
    image(&folder);
    let address = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp:{}", socket.local_addr().unwrap())
    };
    let server = serve(&folder, &address);
    let mut client = connect(&server);
    assert_eq!(level_status(&folder)["off"], true);
    read_all(&mut client, 0);
    for _ in 0..2 {
        let level = Level::start(&address);
        until("connecting", || level_status(&folder)["off"] == false);
        let before = count(&folder, "hits");
        read_all(&mut client, 0);
        read_all(&mut client, 0);
        assert!(count(&folder, "hits") > before, "nothing comes from the level");
        drop(level);
        until("losing it", || level_status(&folder)["off"] == true);
        read_all(&mut client, 0);
    }
    assert_eq!(count(&folder, "lost"), 2);
    server.end();
}

/// One client writes and two read one export, while the level is killed and paused.
#[test]
fn no_stale_byte_however_the_level_fails() {
    let folder = Folder::new();
    image(&folder);
    let mut level = Level::start("tcp:127.0.0.1:0");
    let address = level.address.clone();
    let server = serve(&folder, &address);
    let over = AtomicBool::new(false);
    // By block: the versions that were acknowledged, and that may be in effect.
    let acknowledged: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let begun: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let reads = AtomicU64::new(0);
    let slowest_ms = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (server, over, acknowledged, begun) = (&server, &over, &acknowledged, &begun);
        let (reads, slowest_ms) = (&reads, &slowest_ms);
        scope.spawn(move || {
            let (mut client, mut random) = (connect(server), fastrand::Rng::with_seed(1));
            while !over.load(Ordering::SeqCst) {
                let block = random.u64(..BLOCKS);
                let version = begun[block as usize].fetch_add(1, Ordering::SeqCst) + 1;
                client.write(block * BLOCK, &contents(block, version)).unwrap();
                acknowledged[block as usize].store(version, Ordering::SeqCst);
            }
        });
        for reader in 2..4 {
            scope.spawn(move || {
                let (mut client, mut random) = (connect(server), fastrand::Rng::with_seed(reader));
                while !over.load(Ordering::SeqCst) {
                    let block = random.u64(..BLOCKS);
                    let least = acknowledged[block as usize].load(Ordering::SeqCst);
                    let start = Instant::now();
                    let read = client.read(block * BLOCK, BLOCK as usize).unwrap();
                    slowest_ms.fetch_max(start.elapsed().as_millis() as u64, Ordering::SeqCst);
                    let most = begun[block as usize].load(Ordering::SeqCst);
                    let version = u64::from_le_bytes(read[8..16].try_into().unwrap());
                    assert!((least..=most).contains(&version), "block {block}: {version}, not {least} to {most}");
                    assert!(read == contents(block, version), "block {block} is damaged");
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(700));
            if round % 2 == 0 {
                level.signal("-KILL");
                level.process.wait().unwrap();
                std::thread::sleep(Duration::from_millis(200));
                level = Level::start(&address);
            } else {
                level.signal("-STOP");
                std::thread::sleep(Duration::from_millis(1500));
                level.signal("-CONT");
            }
            until("connecting again", || level_status(&folder)["off"] == false);
        }
        std::thread::sleep(Duration::from_millis(500));
        over.store(true, Ordering::SeqCst);
    });
    let mut client = connect(&server);
    for _ in 0..2 {
        for block in 0..BLOCKS {
            let version = acknowledged[block as usize].load(Ordering::SeqCst);
            assert!(client.read(block * BLOCK, BLOCK as usize).unwrap() == contents(block, version), "block {block}");
        }
    }
    let (hits, lost, slowest) = (count(&folder, "hits"), count(&folder, "lost"), slowest_ms.into_inner());
    println!(
        "{} reads, {hits} hits in the level, {lost} lost connections, slowest read {slowest} ms",
        reads.into_inner()
    );
    assert!(hits > 0 && lost >= 6, "{hits} hits, {lost} lost");
    assert!(slowest < 5000, "a read waited {slowest} ms");
    server.end();
}

#[test]
fn a_wrong_level_is_one_line() {
    let folder = Folder::new();
    image(&folder);
    let disk = format!("disk={}", folder.text("image"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let level = format!("tcp:{}:16M", free.local_addr().unwrap());
    drop(free);
    let cases = [
        (["serve", "--stdio", "--level-required", "--level", &level, &disk].to_vec(), "cannot connect"),
        (["serve", "--stdio", "--level", "tcp:host:16M", &disk].to_vec(), "it is written tcp:HOST:PORT:SIZE"),
        (["level", "--listen", "tcp:0.0.0.0:0", "--memory", "1M"].to_vec(), "--insecure-tcp"),
        (["level", "--listen", "127.0.0.1:1", "--memory", "1M"].to_vec(), "tcp:HOST:PORT"),
        (["level", "--listen", "tcp:127.0.0.1:0", "--memory", "x"].to_vec(), "expected a size"),
    ];
    for (arguments, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<&str> = text.lines().filter(|line| !line.contains(" INFO ")).collect();
        assert!(!output.status.success() && errors.len() == 1 && errors[0].contains(expected), "{arguments:?}: {text}");
    }
}
