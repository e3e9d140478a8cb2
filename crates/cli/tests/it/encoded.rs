//! `nigh serve --content`: disks with equal and similar blocks need fewer reads, their statistics, and wrong settings.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use nigh_content::generated::{Machines, written};
use nigh_nbd::cache_state::{CACHED, ENCODED, SHARED};
use nigh_nbd::client::Client;
use serde_json::Value;

use crate::serving::{Folder, Server, until};

const BLOCK: usize = 4096;
const BLOCKS: usize = 3000;

/// Text that compresses, and differs between blocks.
fn contents(block: usize) -> Vec<u8> {
    let line = format!("line of block {block:08} with a number {:016x}\n", block * 0x9e37_79b9);
    let mut bytes: Vec<u8> = line.bytes().cycle().take(BLOCK).collect();
    let mut random = fastrand::Rng::with_seed(block as u64);
    bytes.iter_mut().step_by(16).for_each(|byte| *byte = random.u8(..));
    bytes
}

fn serve(folder: &Folder, share: &str) -> Server {
    let image: Vec<u8> = (0..BLOCKS).flat_map(contents).collect();
    let disks = ["one", "two"].map(|name| {
        std::fs::write(folder.path(name), &image).unwrap();
        format!("{name}={}{share}", folder.text(name))
    });
    let mut flags = vec!["--memory", "8M", "--policy", "lru", "--content", "sketch", "--content-cpu", "100%"];
    let control = folder.text("control");
    flags.extend(["--control", &control, "--metrics", "127.0.0.1:0", &disks[0], &disks[1]]);
    folder.serve(&flags)
}

/// Reads a disk in order, a little slower than its blocks are encoded, and compares them.
fn read_all(server: &Server, disk: &str) {
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, disk, &[]).unwrap();
    for block in 0..BLOCKS {
        assert!(client.read((block * BLOCK) as u64, BLOCK).unwrap() == contents(block), "block {block} of {disk}");
        if block % 32 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    client.disconnect().unwrap();
}

fn count(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// The flags of `x-nigh:cache` of each block of a disk.
fn map(server: &Server, disk: &str) -> Vec<u32> {
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, disk, &["x-nigh:cache"]).unwrap();
    let mut flags = Vec::new();
    while flags.len() < BLOCKS {
        let at = (flags.len() * BLOCK) as u64;
        let extents = client.block_status(at, (BLOCKS * BLOCK) as u64 - at).unwrap();
        for extent in &extents[0].extents {
            flags.extend(std::iter::repeat_n(extent.flags, extent.length as usize / BLOCK));
        }
    }
    client.disconnect().unwrap();
    flags
}

#[test]
fn disks_of_a_group_share_blocks() {
    let folder = Folder::new();
    let server = serve(&folder, ",share=all");
    for _ in 0..4 {
        ["one", "two"].iter().for_each(|disk| read_all(&server, disk));
    }
    let status = folder.status();
    let content = &status["content"];
    // Both disks have 23 MiB; all of their contents, once, fit.
    assert!(count(content, "contents") < count(content, "blocks") * 3 / 4, "{content}");
    assert!(count(content, "saved_bytes") > 4 << 20 && count(content, "decoded") > 3000, "{content}");
    let reads = |at: usize| count(&status["exports"][at], "device_read_bytes") as usize / BLOCK;
    assert!(reads(0) + reads(1) < 3 * BLOCKS, "{status}");
    let charged = count(&status["exports"][0], "encoded_bytes") + count(&status["exports"][1], "encoded_bytes");
    let used = count(content, "used_bytes");
    assert!(charged <= used && charged > used * 3 / 4, "{charged} of {used}");

    let metrics = server.metrics_page();
    for name in ["nigh_content_decoded_total ", "nigh_content_saved_bytes ", "nigh_encoded_bytes{export=\"one\"} "] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        assert!(value.is_some_and(|value| value > 0), "{name} in {metrics}");
    }

    // The last that was read is in frames.
    let has = |disk, wanted: u32| map(&server, disk).iter().filter(|&&flags| flags == wanted).count();
    let (cached, encoded) = (has("two", CACHED), has("one", ENCODED | SHARED));
    assert!(cached > 100 && encoded > 100, "{cached} {encoded}");

    let ctl = |words: &[&str]| {
        let printed =
            Command::new(env!("CARGO_BIN_EXE_nigh")).args(words).args(["--control", &folder.text("control")]).output();
        String::from_utf8(printed.unwrap().stdout).unwrap()
    };
    let printed = ctl(&["ctl", "status"]);
    assert!(printed.contains("CONTENT") && printed.contains("sketch"), "{printed}");
    let printed = ctl(&["top", "--once"]);
    assert!(printed.contains("encoded in"), "{printed}");
}

#[test]
fn disks_of_no_group_do_not() {
    let folder = Folder::new();
    let server = serve(&folder, "");
    for _ in 0..3 {
        ["one", "two"].iter().for_each(|disk| read_all(&server, disk));
    }
    until("each block has a content of its own", || {
        let content = folder.status()["content"].clone();
        count(&content, "blocks") > 0
            && count(&content, "contents") == count(&content, "blocks") + count(&content, "orphans")
    });
    let flags = map(&server, "one");
    assert!(flags.contains(&ENCODED) && !flags.iter().any(|flags| flags & SHARED != 0));
}

/// Machines that are alike, of whose blocks the memory holds a quarter: most of it becomes encoded blocks, which are replaced
/// all the time.
#[test]
fn memory_stays_within_what_is_documented() {
    const MEMORY_MIB: u64 = 64;
    const MACHINES: usize = 4;
    const BLOCKS: usize = 16_384;
    const REQUESTS: u64 = 20_000;
    let machines = Machines::new(1, MACHINES, BLOCKS);
    let folder = Folder::new();
    let disks = (0..MACHINES).map(|machine| {
        let blocks = (0..BLOCKS).flat_map(|block| machines.bytes(machines.content(machine, block)));
        std::fs::write(folder.path(&machine.to_string()), blocks.collect::<Vec<u8>>()).unwrap();
        format!("{machine}={},share=machines", folder.text(&machine.to_string()))
    });
    let disks: Vec<String> = disks.collect();
    let control = folder.text("control");
    let mut flags = vec!["--memory", "64M", "--policy", "lru", "--shards", "2", "--control", &control];
    flags.extend(["--content", "sketch", "--content-cpu", "100%"]);
    flags.extend(disks.iter().map(String::as_str));
    let server = folder.serve(&flags);
    let before = server.resident_mib();
    let client = |machine: usize| {
        let stream = UnixStream::connect(&server.socket).unwrap();
        let mut client = Client::connect(stream, &machine.to_string(), &[]).unwrap();
        let mut random = fastrand::Rng::with_seed(machine as u64);
        for request in 0..REQUESTS {
            // No faster than blocks are encoded.
            if request % 16 == 0 {
                std::thread::sleep(Duration::from_millis(8));
            }
            let block = (BLOCKS as f64 * random.f64().powi(3)) as usize;
            let offset = (block * BLOCK) as u64;
            if random.u8(..5) == 0 {
                let bytes = machines.bytes(machines.content(machine, block));
                client.write(offset, &written(&bytes, request)).unwrap();
            } else {
                client.read(offset, BLOCK).unwrap();
            }
        }
        client.disconnect().unwrap();
    };
    let begin = Instant::now();
    let (content, lent, encoded) = loop {
        std::thread::scope(|scope| (0..MACHINES).for_each(|machine| _ = scope.spawn(move || client(machine))));
        let content = folder.status()["content"].clone();
        let (lent, encoded) = (count(&content, "bytes") >> 20, count(&content, "encoded"));
        // A busy machine encodes few of the blocks that leave.
        if lent > MEMORY_MIB / 2 || begin.elapsed() > Duration::from_secs(120) {
            break (content, lent, encoded);
        }
    };
    // docs/serve.md, "Memory": the index and what encoded blocks need, a MiB of frames for each shard, and, of what is there for replies
    // and connections, little, because each of these four has one block at a time.
    let (most, allowed) = (server.peak_mib() - before, MEMORY_MIB * 110 / 100 + 2 + 8);
    println!(
        "{before} MiB before, at most {most} MiB more, {allowed} allowed; {lent} MiB lent, {encoded} blocks encoded"
    );
    assert!(lent > MEMORY_MIB / 2 && encoded > (MEMORY_MIB << 20) / BLOCK as u64, "{content}");
    assert!(most <= allowed, "{most} MiB more than before, {allowed} allowed");
    server.end();
}

#[test]
fn wrong_settings_are_a_line() {
    let folder = Folder::new();
    std::fs::write(folder.path("one"), vec![0; 1 << 20]).unwrap();
    let (disk, socket) = (format!("one={}", folder.text("one")), format!("unix:{}", folder.text("socket")));
    for (flags, part) in [
        (&["--content", "sketsh"][..], "choose one of dedup, dedup+lz4"),
        (&["--content-cpu", "10%"], "--content-cpu needs --content"),
        (&["--content", "dedup", "--content-cpu", "200%"], "from 1% to 100%"),
        (&["--content", "dedup", "--level", "file:a:16M", "--level", "file:b:16M"], "at most 2 levels"),
        (&["--set", "one:share="], "a group of disks"),
    ] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_nigh"));
        serve.current_dir(folder.path("")).args(["serve", &disk, "--listen", &socket]).args(flags);
        let output = serve.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.lines().count() == 1 && said.contains(part), "{flags:?}: {said}");
    }
}
