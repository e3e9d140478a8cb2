//! Resources of a server: one test at a time, since it is the process that is measured.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_server::NBD;
use nigh_service::{ExportSettings, Service, Settings};

const MIB: u64 = 1 << 20;

fn start(memory: u64, target: &str) -> Service {
    let export = ExportSettings::new("disk", target.parse().unwrap());
    let mut settings = Settings::new(memory, "lirs".parse().unwrap(), vec![export]);
    // The system's allocator keeps, and zeros, memory in pieces as large as the largest that it got back: frames of one
    // shard would make it keep those of the next server's.
    settings.host.shards = Some(8);
    Service::start(settings).unwrap()
}

fn socket(server: &Service) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    ours
}

/// A number of `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn settle(server: &Service) {
    let start = Instant::now();
    while server.statistics().connections > 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    // The threads end just after.
    std::thread::sleep(Duration::from_millis(200));
}

/// Threads and descriptors, once they are as `before` or a time limit is over.
fn settled(server: &Service, before: (u64, usize)) -> (u64, usize) {
    settle(server);
    let start = Instant::now();
    loop {
        let now = (status("Threads"), descriptors());
        if now == before || start.elapsed() > Duration::from_secs(20) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_thousand_connections_leave_nothing() {
    let server = start(16 * MIB, "memory:64M");
    let open = |count: usize| {
        for at in 0..count {
            let mut stream = socket(&server);
            match at % 4 {
                0 => drop(stream),
                1 => stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap(),
                2 => {
                    stream.read_exact(&mut [0; 18]).unwrap();
                }
                _ => {
                    let mut client = Client::connect(stream, "disk", &[]).unwrap();
                    client.submit_read(0, vec![0; 1 << 20]).unwrap();
                    client.write(at as u64 * 4096, &[1; 4096]).unwrap();
                }
            }
        }
    };
    open(20);
    settle(&server);
    let before = (status("Threads"), descriptors());
    open(1000);
    let after = settled(&server, before);
    println!("threads and descriptors: {before:?}, then {after:?}");
    assert_eq!(after, before);

    let together: Vec<_> = (0..500).map(|_| Client::connect(socket(&server), "disk", &[]).unwrap()).collect();
    assert_eq!(server.statistics().connections, 500);
    drop(together);
    assert_eq!(settled(&server, before), before);
    server.shut_down().unwrap();
}

fn memory_stays_within_its_limit() {
    const MEMORY: u64 = 64 * MIB;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(512 * MIB).unwrap();
    let server = start(MEMORY, path.to_str().unwrap());
    let before = status("VmRSS");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let stream = socket(&server);
            scope.spawn(move || {
                let mut client = Client::connect(stream, "disk", &[]).unwrap();
                let mut random = fastrand::Rng::with_seed(seed);
                let data = vec![seed as u8; MIB as usize];
                for _ in 0..150 {
                    let at = random.u64(0..511) * MIB + random.u64(0..MIB);
                    match random.bool() {
                        true => client.write(at, &data).unwrap(),
                        false => drop(client.read(at, MIB as usize).unwrap()),
                    }
                }
            });
        }
    });
    let after = status("VmRSS");
    let most = (MEMORY * 105 / 100 + 64 * MIB) / 1024;
    println!("resident before {before} KiB, after {after} KiB, allowed {most} KiB more");
    assert!(after - before <= most);
    assert!(server.statistics().host.resident_bytes <= MEMORY);
    server.shut_down().unwrap();
}

fn memory_that_is_made_smaller_is_given_back() {
    const MEMORY: u64 = 128 * MIB;
    // The client's buffers that the allocator keeps count, too.
    const PIECE: usize = 64 << 10;
    let pieces = |bytes: u64| (0..bytes).step_by(PIECE);
    let export = ExportSettings::new("disk", "delay:0.1ms:memory:256M".parse().unwrap());
    let mut settings = Settings::new(MEMORY, "lirs".parse().unwrap(), vec![export]);
    // Each has a MiB of frames for what is in progress, which is kept.
    settings.host.shards = Some(8);
    let server = Service::start(settings).unwrap();
    let before = status("VmRSS");
    let mut client = Client::connect(socket(&server), "disk", &[]).unwrap();
    // Holes of the device, so that only the cache has memory for them.
    for at in pieces(MEMORY) {
        client.read(at, PIECE).unwrap();
    }
    // Some of it is dirty, and given back when it is written.
    for at in pieces(4 * MIB) {
        client.write(at, &[1; PIECE]).unwrap();
    }
    let full = status("VmRSS");
    assert!(full > before + MEMORY / 1024 * 9 / 10, "{before} KiB, then {full} KiB");
    server.change(Some(8 * MIB), Some(&"lirs".parse().unwrap())).unwrap();
    let begin = Instant::now();
    // Those, what the device has of it, and what the allocator keeps.
    let allowed = before + (8 + 8 + 4 + 4) * 1024;
    while status("VmRSS") > allowed {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} KiB, {allowed} KiB allowed", status("VmRSS"));
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("resident: {before} KiB empty, {full} KiB with 128 MiB, {} KiB with 8 MiB", status("VmRSS"));
    assert_eq!(client.read(4 * MIB - 1, 2).unwrap(), [1, 0]);
    server.change(Some(MEMORY), Some(&"lirs".parse().unwrap())).unwrap();
    for at in pieces(MEMORY) {
        let expected = u8::from(at < 4 * MIB);
        assert!(client.read(at, PIECE).unwrap().iter().all(|&byte| byte == expected));
    }
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}

#[test]
fn resources() {
    // First: what the allocator keeps of other parts would be used again unseen.
    memory_that_is_made_smaller_is_given_back();
    a_thousand_connections_leave_nothing();
    memory_stays_within_its_limit();
}
