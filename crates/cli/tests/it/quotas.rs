//! Resources that an export of `nigh serve` can take from the others: some have slow devices, or devices that do nothing for as long
//! as a test takes.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::serving::{Folder, Server};
use nigh_nbd::Command;
use nigh_nbd::client::Client;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// How long a hostile client waits until its socket takes more.
const BRIEF: Duration = Duration::from_millis(100);
/// The size of the disks.
const DISK: u64 = 64 << 30;

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    connect_for(server, export, LONG)
}

/// As `connect`, for a client that waits for the server for this time at most.
fn connect_for(server: &Server, export: &str, patience: Duration) -> Client<UnixStream> {
    let stream = UnixStream::connect(&server.socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(patience)).unwrap();
    Client::connect(stream, export, &[]).unwrap()
}

/// The longest of the times that each of the `count` calls takes.
fn longest(count: u64, mut call: impl FnMut(u64)) -> Duration {
    let timed = |at| {
        let begin = Instant::now();
        call(at);
        begin.elapsed()
    };
    (0..count).map(timed).max().unwrap()
}

/// The longest time of misses, writes, hits and flushes of a client of `export`.
fn victim(server: &Server, export: &str) -> [Duration; 4] {
    let mut client = connect(server, export);
    let misses = longest(128, |at| assert_eq!(client.read(at * MIB, BLOCK).unwrap(), [0; BLOCK]));
    let writes = longest(128, |at| client.write(at * MIB + MIB / 2, &[5; BLOCK]).unwrap());
    let hits = longest(16, |at| assert_eq!(client.read((112 + at) * MIB + MIB / 2, BLOCK).unwrap(), [5; BLOCK]));
    let flushes = longest(4, |at| {
        client.write(at * BLOCK as u64, &[6; BLOCK]).unwrap();
        client.flush().unwrap();
    });
    client.disconnect().unwrap();
    [misses, writes, hits, flushes]
}

/// The times of a client of an export beside one whose device is `sick`, and whose clients have sent what `send` does.
fn beside(sick: &str, clients: usize, send: impl Fn(usize, &mut Client<UnixStream>)) -> [Duration; 4] {
    let folder = Folder::new();
    let slow = format!("slow={sick}:{}", folder.empty_image("slow.img", DISK));
    let other = format!("other={}", folder.empty_image("other.img", 1 << 30));
    let server = folder.serve(&[&slow, &other, "--memory", "64M"]);
    let mut hostile: Vec<_> = (0..clients).map(|_| connect_for(&server, "slow", BRIEF)).collect();
    hostile.iter_mut().enumerate().for_each(|(at, client)| send(at, client));
    // It may take what it can.
    std::thread::sleep(Duration::from_secs(1));
    let times = victim(&server, "other");
    server.kill();
    times
}

fn check(times: [Duration; 4]) {
    assert!(times.iter().all(|&time| time < Duration::from_secs(5)), "misses, writes, hits, flushes: {times:?}");
}

#[test]
fn quota_3_trims_of_a_slow_export_do_not_hang_the_others() {
    check(beside("delay:20s", 24, |_, client| {
        for at in 0..3 {
            client.submit(Command::Trim { fua: false }, at * 4096 * MIB, 4000 * MIB).unwrap();
        }
    }));
}

#[test]
fn quota_3_reads_of_a_hung_export_do_not_hang_the_others() {
    check(beside("delay:3600s", 24, |client, connection| {
        for at in 0..32 {
            let offset = (client as u64 * 32 + at) * MIB;
            connection.submit_read(offset, vec![0; MIB as usize]).unwrap();
        }
    }));
}

/// Sends writes until the server takes no more.
fn write_all(client: usize, connection: &mut Client<UnixStream>) {
    for at in 0..64 {
        let offset = (client as u64 * 64 + at) * MIB;
        if connection.submit_write(offset, &[1; 64 << 10], false).is_err() {
            break;
        }
    }
}

#[test]
fn sick_16_writes_to_a_hung_export_do_not_hang_the_others() {
    check(beside("delay:3600s", 24, write_all));
}

/// Writes to `export` until `over`; returns the time that the longest took, and how many were made.
fn write_until(server: &Server, export: &str, bytes: usize, over: impl Fn() -> bool) -> (Duration, u64) {
    let mut client = connect(server, export);
    let (mut most, mut count) = (Duration::ZERO, 0);
    while !over() {
        let begin = Instant::now();
        client.write(count * bytes as u64 % (512 * MIB), &vec![7; bytes]).unwrap();
        most = most.max(begin.elapsed());
        count += 1;
    }
    (most, count)
}

/// A client writes as much as it can to an export whose device writes 4 MB per second.
#[test]
fn dirty_10_writes_beside_a_slow_export_go_on_at_their_own_rate() {
    let folder = Folder::new();
    let slow = format!("slow=delay:4M/s:{}", folder.empty_image("slow.img", DISK));
    let other = format!("other={}", folder.empty_image("other.img", 1 << 30));
    let server = folder.serve(&[&slow, &other, "--memory", "64M"]);
    let over = |time| {
        let begin = Instant::now();
        move || begin.elapsed() > Duration::from_secs(time)
    };
    let (_, alone) = write_until(&server, "other", BLOCK, over(2));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| write_until(&server, "slow", 64 << 10, || ended.load(Ordering::Relaxed)));
        std::thread::sleep(Duration::from_secs(3));
        let (most, beside) = write_until(&server, "other", BLOCK, over(3));
        ended.store(true, Ordering::Relaxed);
        println!("{alone} writes alone, {beside} beside it, the longest in {most:?}");
        assert!(most < Duration::from_secs(3), "a write took {most:?}");
        assert!(beside > alone / 8, "{alone} writes in 2 s alone, {beside} in 3 s beside it");
    });
    server.kill();
}

/// Clients that ask for the status of a disk in many pieces, and never read the replies.
#[test]
fn status_9_replies_that_are_not_read_have_limited_memory() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:64M", "other=memory:8M", "--memory", "64M"]);
    // Every second block is cached.
    let mut client = connect(&server, "disk");
    for at in (0..64 * MIB).step_by(2 * BLOCK) {
        client.read(at, BLOCK).unwrap();
    }
    client.disconnect().unwrap();
    let before = server.peak_mib();
    let hostile = |_| {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_write_timeout(Some(BRIEF)).unwrap();
        let mut client = Client::connect(stream, "disk", &["x-nigh:cache"]).unwrap();
        (0..64).take_while(|_| client.submit(Command::BlockStatus { one: false }, 0, 64 * MIB).is_ok()).count();
        client
    };
    let hostile: Vec<_> = (0..100).map(hostile).collect();
    std::thread::sleep(Duration::from_secs(2));
    let more = server.peak_mib() - before;
    println!("{before} MiB before, {more} MiB more");
    assert!(more < 80, "{more} MiB more than before");
    // Clients of other exports find memory for the status of theirs.
    let stream = UnixStream::connect(&server.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut client = Client::connect(stream, "other", &["base:allocation"]).unwrap();
    assert_eq!(client.block_status(0, 8 * MIB).unwrap()[0].extents.len(), 1);
    client.disconnect().unwrap();
    drop(hostile);
    server.kill();
}

/// Clients that send whatever a server takes, of each kind, and read nothing; then they leave.
#[test]
fn memory_19_is_limited_and_returned() {
    let folder = Folder::new();
    let server = folder.serve(&[&format!("disk={}", folder.empty_image("disk.img", 256 * MIB)), "--memory", "64M"]);
    let mut client = connect(&server, "disk");
    for at in 0..128 {
        client.read(at * MIB, MIB as usize).unwrap();
    }
    client.disconnect().unwrap();
    let before = server.resident_mib();
    let hostile = |at: u64| {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_write_timeout(Some(BRIEF)).unwrap();
        let mut client = Client::connect(stream, "disk", &["base:allocation", "x-nigh:cache"]).unwrap();
        (0..64)
            .take_while(|turn| {
                let offset = (at * 7 + turn) % 192 * MIB;
                let sent = match (at + turn) % 5 {
                    0 => client.submit_read(offset, vec![0; 32 << 20]),
                    1 => client.submit_read(offset, vec![0; BLOCK]),
                    2 => client.submit_write(offset, &vec![1; MIB as usize], false),
                    3 => client.submit(Command::BlockStatus { one: false }, 0, 256 * MIB),
                    _ => client.submit(Command::WriteZeroes { fua: false, no_hole: false, fast: false }, offset, MIB),
                };
                sent.is_ok()
            })
            .count();
        client
    };
    let hostile: Vec<_> = (0..60).map(hostile).collect();
    std::thread::sleep(Duration::from_secs(2));
    let most = server.peak_mib();
    drop(hostile);
    let begin = Instant::now();
    let mut after = server.resident_mib();
    while after > before + 16 && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
        after = server.resident_mib();
    }
    println!("{before} MiB before, {most} MiB at most, {after} MiB after");
    // Replies, and data that is received: 40 and 8 MiB. Each connection has stacks.
    assert!(most < before + 64, "{before} MiB before, {most} MiB at most");
    assert!(after <= before + 16, "{before} MiB before, {after} MiB after");
    server.kill();
}
