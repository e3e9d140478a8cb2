//! `nigh serve --level`: a file on a faster disk below the memory. Its blocks are never stale, however a server ended.
//!
//! `cargo xtask levels` kills 200 servers; without it, a few are enough to see that it works.

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use nigh_nbd::client::Client;

use crate::serving::{Folder, Server, nigh};

const BLOCK: u64 = 4096;
/// Blocks of the disk: more than memory and level hold.
const BLOCKS: u64 = 6 << 10;
const MEMORY: &str = "2M";
const LEVEL_MIB: u64 = 8;
/// Default number of servers that are killed.
const KILLS: u64 = 12;

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Policies in turn: the engine's own rule for the level, and one that decides for it.
fn serve(folder: &Folder, round: u64) -> Server {
    let policy = ["lirs", "ulc"][round as usize / 2 % 2];
    let level = format!("file:{}:{LEVEL_MIB}M", folder.text("level"));
    let disk = format!("disk={}", folder.text("image"));
    let control = folder.text("control");
    // Its clients rely on nothing, however the server before it ended.
    let arguments = ["--memory", MEMORY, "--policy", policy, "--level", &level, "--control", &control, &disk];
    folder.serve(&[&arguments[..], &["--accept-loss"]].concat())
}

fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

/// Reads, writes, zeroes, trims and flushes blocks at random, and counts that in `done`, until it is asked to stop, or the
/// server is gone.
fn work(
    client: &mut Client<UnixStream>,
    seed: u64,
    done: &AtomicU64,
    over: &AtomicBool,
) -> Result<(), nigh_nbd::client::Error> {
    let mut state = seed;
    while !over.load(Ordering::Relaxed) {
        done.fetch_add(1, Ordering::Relaxed);
        let block = random(&mut state, BLOCKS) * random(&mut state, BLOCKS) / BLOCKS;
        let offset = block * BLOCK;
        let length = (1 + random(&mut state, 8)).min(BLOCKS - block) * BLOCK;
        match random(&mut state, 40) {
            0 => client.flush()?,
            1 => client.trim(offset, length)?,
            2 => client.zero(offset, length)?,
            3..12 => {
                let bytes: Vec<u8> = (0..length).map(|_| random(&mut state, 256) as u8).collect();
                client.write(offset, &bytes)?;
            }
            // Parts of blocks.
            12..15 => client.write(offset + 512, &vec![random(&mut state, 256) as u8; 1000])?,
            _ => drop(client.read(offset, length as usize)?),
        }
    }
    Ok(())
}

/// With nothing in memory, every block read is the disk's, whatever the level has of it.
fn compare(server: &Server, image: &Path, place: &str) {
    let mut client = connect(server);
    let expected = std::fs::read(image).unwrap();
    // Twice, so that blocks that were read and left memory are read from the level.
    for turn in 0..2 {
        for (at, expected) in expected.chunks(64 << 10).enumerate() {
            let read = client.read(at as u64 * (64 << 10), expected.len()).unwrap();
            if read != expected {
                let now = std::fs::read(image).unwrap()[at * (64 << 10)..][..expected.len()] == read;
                panic!("{place}, turn {turn}: stale bytes at {} KiB; the disk has them now: {now}", at * 64);
            }
        }
    }
    client.disconnect().unwrap();
}

/// Servers are killed at random points; now and then one ends in order, and its disk is changed behind its back or not.
#[test]
fn no_stale_byte_however_a_server_ends() {
    let kills = std::env::var("NIGH_KILLS").map_or(KILLS, |kills| kills.parse().expect("a count"));
    let folder = Folder::new();
    let image = folder.path("image");
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK as usize]).collect();
    std::fs::write(&image, bytes).unwrap();
    let (mut killed, mut warm, mut changed, mut hits) = (0, 0, 0, 0);
    for round in 0.. {
        if killed == kills {
            break;
        }
        let mut state = round + 1;
        let server = serve(&folder, round);
        let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let clients = [connect(&server), connect(&server)];
        let in_order = round % 4 == 3;
        std::thread::scope(|scope| {
            let workers: Vec<_> = clients
                .into_iter()
                .zip(round * 2 + 1..)
                .map(|(mut client, seed)| {
                    let (done, over) = (&done, &over);
                    scope.spawn(move || {
                        let worked = work(&mut client, seed, done, over);
                        // A server that is killed replies no more.
                        assert!(worked.is_ok() || !in_order, "{worked:?}");
                    })
                })
                .collect();
            let most = 50 + random(&mut state, 2000);
            while done.load(Ordering::Relaxed) < most && !workers.iter().any(ScopedJoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if in_order {
                over.store(true, Ordering::Relaxed);
            } else {
                server.signal("-KILL");
            }
        });
        if in_order {
            server.end();
            if round % 8 == 7 {
                // Somebody else writes to the disk.
                let mut bytes = std::fs::read(&image).unwrap();
                bytes[..64 << 10].fill(round as u8);
                std::fs::write(&image, bytes).unwrap();
                changed += 1;
            }
        } else {
            server.kill();
            killed += 1;
        }
        let server = serve(&folder, round);
        compare(&server, &image, &format!("round {round}, {}", if in_order { "ended in order" } else { "killed" }));
        let level = &folder.status()["levels"][0];
        warm += u64::from(level["warm_blocks"].as_u64().unwrap() > 0);
        hits += level["hits"].as_u64().unwrap();
        server.end();
    }
    println!(
        "{killed} killed, {changed} with a changed disk; the level was warm after {warm} starts; {hits} blocks of it"
    );
    assert!(warm > 0, "no index survived");
    assert!(hits > 0, "the level was of no use");
}

/// The activity of a level is visible in every form.
#[test]
fn what_a_level_does_is_told() {
    let folder = Folder::new();
    folder.image("image", &[5; 4 << 20]);
    let (level, disk) = (format!("file:{}:3M", folder.text("a:level")), format!("disk={}", folder.text("image")));
    let control = folder.text("control");
    let arguments = ["--memory", "1M", "--level", &level, "--control", &control, "--metrics", "127.0.0.1:0", &disk];
    let explained = nigh(&["--check"], &arguments).output().unwrap();
    assert!(String::from_utf8(explained.stdout).unwrap().contains("a:level, 3 MiB below the memory"));
    let server = folder.serve(&arguments);
    let mut client = connect(&server);
    for block in (0..1024).chain(0..1024) {
        assert_eq!(client.read(block * BLOCK, BLOCK as usize).unwrap(), [5; BLOCK as usize]);
    }
    // The last blocks may still be on their way to the level.
    let mut before = None;
    let status = loop {
        let now = folder.status();
        let stores = now["levels"][0]["stores"].as_u64();
        if stores == before {
            break now;
        }
        before = stores;
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let of = |name: &str| status["levels"][0][name].as_u64().unwrap();
    assert_eq!((of("bytes"), of("blocks"), of("warm_blocks"), of("faults")), (3 << 20, 512, 0, 0));
    assert!(of("stored") > 256 && of("stores") >= of("stored") && of("evictions") > 0, "{status}");
    assert_eq!(status["exports"][0]["level_hits"].as_u64(), Some(of("hits")));
    let ctl = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).args(["--control", &control]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let (text, top) = (ctl(&["ctl", "status"]), ctl(&["top", "--once", "--interval", "0.05"]));
    assert!(text.lines().any(|line| line.contains("a:level") && line.ends_with("on")), "{text}");
    assert!(top.contains("of 3 MiB, "), "{top}");
    let page = server.metrics_page();
    let line = page.lines().find(|line| line.starts_with("nigh_level_stored_blocks{")).expect("a gauge of the level");
    assert!(line.contains("a:level") && line.ends_with(&format!(" {}", of("stored"))), "{line}");

    // Its file is damaged: the blocks come from the disk, and the log notes that once.
    let file = std::fs::OpenOptions::new().write(true).open(folder.path("a:level")).unwrap();
    file.write_all_at(&[9; 2 << 20], 1 << 20).unwrap();
    for block in (0..1024).rev() {
        assert_eq!(client.read(block * BLOCK, BLOCK as usize).unwrap(), [5; BLOCK as usize]);
    }
    assert!(folder.status()["levels"][0]["mismatches"].as_u64().unwrap() > 0);
    assert_eq!(server.logged("were not read from the level as they were stored").len(), 1);
    client.disconnect().unwrap();
    server.end();
}

/// Invalid files of a level are rejected in a line.
#[test]
fn what_cannot_be_a_level_is_one_line() {
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", 1 << 20));
    folder.image("other", &[7; 1 << 20]);
    // Larger than any file system of this machine, and not too large for the memory of its index.
    let there = rustix::fs::statvfs(folder.path("other")).unwrap();
    let larger = there.f_blocks * there.f_frsize / (1 << 20) + 4096;
    let fails = |level: &str| {
        let socket = format!("unix:{}", folder.text("other-socket"));
        let output = nigh(&["--listen", &socket], &["--level", level, &disk]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{level}: {said}");
        said
    };
    assert!(fails("file:x").contains("file:PATH:SIZE"));
    assert!(fails("disk:x:1G").contains("file:PATH:SIZE"));
    assert!(fails(&format!("file:{}:lots", folder.text("level"))).contains("lots"));
    assert!(fails(&format!("file:{}:1M", folder.text("level"))).contains("at least"));
    assert!(fails(&format!("file:{}:9M", folder.text("no/where"))).contains("No such file"));
    assert!(fails(&format!("file:{}:9M", folder.text("other"))).contains("choose another file"), "somebody else's");
    assert!(fails(&format!("file:{}:9M", folder.text("image"))).contains("target of disk disk"), "the disk itself");
    assert!(fails(&format!("file:{}:9M", folder.text("."))).contains("no regular file"));
    let said = fails(&format!("file:{}:{larger}M", folder.text("level")));
    assert!(said.contains("cannot be on a file system") || said.contains("its index needs"), "{said}");
    assert!(!folder.path("level").exists());
    let level = format!("file:{}:9M", folder.text("level"));
    let twice = nigh(&["--stdio"], &["--level", &level, "--level", &level, &disk]).output().unwrap();
    assert!(String::from_utf8(twice.stderr).unwrap().contains("given twice"));
}
