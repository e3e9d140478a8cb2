//! A server in this process against this project's own client.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::{Client, Error, Handshake};
use nigh_nbd::{Command, Framing, RequestHeader, wire};
use nigh_server::NBD;
use nigh_service::{ExportOptions, ExportSettings, Service, Settings};

const MIB: u64 = 1 << 20;

fn start(memory: u64, targets: &[(&str, &str)]) -> Service {
    let export = |&(name, target): &(&str, &str)| ExportSettings::new(name, target.parse().unwrap());
    let policy = "lirs".parse().unwrap();
    Service::start(Settings::new(memory, policy, targets.iter().map(export).collect())).unwrap()
}

fn socket(server: &Service) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    ours
}

fn connect(server: &Service, export: &str) -> Client<UnixStream> {
    Client::connect(socket(server), export, &["base:allocation", "x-nigh:cache"]).unwrap()
}

/// Waits until nothing is in progress.
fn quiet(server: &Service) {
    let start = Instant::now();
    loop {
        let now = server.statistics();
        if now.host.requests == 0 && now.connections == 0 {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{now:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Random requests within a part of a disk, all of them checked against the bytes it should have.
fn drive(mut client: Client<UnixStream>, start: u64, mut model: Vec<u8>, seed: u64, count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let length = model.len();
    for step in 0..count {
        let most = *random.choice(&[600, 5000, 70_000, 1_500_000]).unwrap();
        let from = random.usize(0..length);
        let to = random.usize(from + 1..=(from + most).min(length));
        let (at, bytes) = (start + from as u64, to - from);
        match random.u32(0..12) {
            0..=4 => {
                let data = client.read(at, bytes).unwrap();
                assert!(data == model[from..to], "seed {seed}, step {step}: {bytes} bytes at {at} differ");
            }
            5..=7 => {
                random.fill(&mut model[from..to]);
                let cookie = client.submit_write(at, &model[from..to], random.u32(0..8) == 0).unwrap();
                let completion = client.receive().unwrap();
                assert_eq!(completion.cookie, cookie);
                completion.result.unwrap();
            }
            8 => {
                client.zero(at, bytes as u64).unwrap();
                model[from..to].fill(0);
            }
            9 => {
                client.trim(at, bytes as u64).unwrap();
                let data = client.read(at, bytes).unwrap();
                for (known, found) in model[from..to].iter_mut().zip(data) {
                    assert!(found == 0 || found == *known, "seed {seed}, step {step}: trimmed bytes are new");
                    *known = found;
                }
            }
            10 => client.cache(at, bytes as u64).unwrap(),
            _ => client.flush().unwrap(),
        }
    }
    client.disconnect().unwrap();
    model
}

#[test]
fn many_clients_see_what_they_wrote_and_the_file_has_it_at_the_end() {
    const CLIENTS: u64 = 4;
    // Neighbours share a block.
    const PART: u64 = 3 * MIB + 777;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut random = fastrand::Rng::with_seed(7);
    let mut disk = vec![0; (CLIENTS * PART) as usize];
    random.fill(&mut disk);
    std::fs::write(&path, &disk).unwrap();
    let server = start(4 * MIB, &[("other", "memory:16M"), ("disk", path.to_str().unwrap())]);
    let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let part = |at: u64| disk[(at * PART) as usize..((at + 1) * PART) as usize].to_vec();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| (at, connect(&server, "disk"), part(at)))
            .map(|(at, client, part)| scope.spawn(move || drive(client, at * PART, part, at, 250)))
            .collect();
        let other = connect(&server, "other");
        let other = scope.spawn(move || drive(other, 0, vec![0; 16 * MIB as usize], 99, 250));
        other.join().unwrap();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let statistics = server.statistics();
    println!("{} hits, {} misses", statistics.exports[1].disk.hits, statistics.exports[1].disk.misses);
    assert!(statistics.exports[1].disk.evictions > 0, "the cache was too large for this test");
    server.shut_down().unwrap();
    assert!(std::fs::read(&path).unwrap() == parts.concat(), "the file is not what the clients wrote");
}

#[test]
fn simple_replies_and_one_chunk_carry_long_reads() {
    let server = start(8 * MIB, &[("disk", "memory:64M")]);
    let mut client = connect(&server, "disk");
    let data: Vec<u8> = (0..24 * MIB).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    client.write(1000, &data).unwrap();
    assert!(client.read(1000, data.len()).unwrap() == data);
    let handshake = Handshake::begin(socket(&server)).unwrap();
    let mut simple = handshake.export_name("disk").unwrap();
    assert_eq!(simple.framing(), Framing::Simple);
    assert!(simple.read(1000, data.len()).unwrap() == data);
    drop((client, simple));
    quiet(&server);
    server.shut_down().unwrap();
}

#[test]
fn hits_do_not_wait_for_misses() {
    const DELAY: Duration = Duration::from_millis(50);
    let server = start(16 * MIB, &[("disk", "delay:50ms:memory:64M")]);
    let mut client = connect(&server, "disk");
    let begin = Instant::now();
    client.read(0, 4096).unwrap();
    assert!(begin.elapsed() >= DELAY);
    let mut times = Vec::new();
    for round in 1..20u64 {
        // Of this client and of another one, in the same shard and in others.
        let mut other = connect(&server, "disk");
        for at in 0..8 {
            client.submit_read(round * 2 * MIB + at * 65536, vec![0; 4096]).unwrap();
            other.submit_read(round * 65536 / 2 + at * 4096, vec![0; 4096]).unwrap();
        }
        for _ in 0..5 {
            let begin = Instant::now();
            let hit = client.submit_read(100, vec![0; 1000]).unwrap();
            let first = client.receive().unwrap();
            assert_eq!(first.cookie, hit, "a miss of 50 ms was answered before a hit");
            times.push(begin.elapsed());
        }
        while client.in_flight() > 0 {
            client.receive().unwrap();
        }
        drop(other);
    }
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{} hits while misses were in flight: median {median:?}, worst {worst:?}", times.len());
    assert!(median < Duration::from_millis(5), "{median:?}");
    assert!(worst < DELAY, "{worst:?}");
    server.shut_down().unwrap();
}

#[test]
fn a_client_that_leaves_in_mid_request_leaves_nothing_behind() {
    let server = start(8 * MIB, &[("disk", "delay:5ms:memory:64M")]);
    let mut witness = connect(&server, "disk");
    witness.write(0, &[1; 600 << 10]).unwrap();
    for length in [0u32, 1, 1000, 300 << 10] {
        let mut stream = socket(&server);
        let mut client = Client::connect(stream.try_clone().unwrap(), "disk", &[]).unwrap();
        // Replies that nobody takes.
        for at in 0..12 {
            client.submit_read(8 * MIB + at * 300_000, vec![0; 128 << 10]).unwrap();
        }
        let header = RequestHeader { flags: 0, command: wire::command::WRITE, cookie: 9, offset: 0, length: 512 << 10 };
        stream.write_all(&header.encode(Framing::Structured).unwrap()).unwrap();
        stream.write_all(&vec![2; length as usize]).unwrap();
        drop((client, stream));
    }
    // The first piece of the last one was whole.
    let data = witness.read(0, 600 << 10).unwrap();
    assert!(data[..256 << 10].iter().all(|&byte| byte == 1) || data[..256 << 10].iter().all(|&byte| byte == 2));
    assert!(data[256 << 10..].iter().all(|&byte| byte == 1), "half a piece was written");
    witness.disconnect().unwrap();
    quiet(&server);
    server.shut_down().unwrap();
}

#[test]
fn a_client_that_takes_no_replies_holds_up_nobody() {
    let server = start(8 * MIB, &[("disk", "memory:64M")]);
    let mut deaf = connect(&server, "disk");
    for at in 0..100 {
        deaf.submit_read(at * 262_144, vec![0; 256 << 10]).unwrap();
    }
    let begin = Instant::now();
    let mut client = connect(&server, "disk");
    let model = vec![0; 8 * MIB as usize];
    client.write(0, &model).unwrap();
    drive(client, 0, model, 5, 100);
    println!("the others took {:?}", begin.elapsed());
    for _ in 0..100 {
        deaf.receive().unwrap().result.unwrap();
    }
    drop(deaf);
    quiet(&server);
    server.shut_down().unwrap();
}

#[test]
fn status_tells_of_device_and_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    let server = start(8 * MIB, &[("disk", path.to_str().unwrap())]);
    let mut client = connect(&server, "disk");
    client.write(64 << 10, &[7; 64 << 10]).unwrap();
    client.flush().unwrap();
    client.write(256 << 10, &[9; 4096]).unwrap();
    client.cache(512 << 10, 128 << 10).unwrap();
    client.read(512 << 10, 128 << 10).unwrap();
    let rows: Vec<Vec<(u64, u32)>> = client
        .block_status(0, 8 * MIB)
        .unwrap()
        .into_iter()
        .map(|status| status.extents.into_iter().map(|extent| (extent.length, extent.flags)).collect())
        .collect();
    assert_eq!(rows[0], [(65536, 3), (65536, 0), (131_072, 3), (4096, 0), (8 * MIB - 266_240, 3)]);
    assert_eq!(
        rows[1],
        [(65536, 0), (65536, 1), (131_072, 0), (4096, 3), (258_048, 0), (131_072, 1), (8 * MIB - 655_360, 0)]
    );
    server.shut_down().unwrap();
}

/// Dirty blocks are found in another way for clients that do not ask what is cached.
#[test]
fn status_of_the_device_alone_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(16 * MIB).unwrap();
    let server = start(32 * MIB, &[("disk", path.to_str().unwrap())]);
    let mut both = connect(&server, "disk");
    let mut alone = Client::connect(socket(&server), "disk", &["base:allocation"]).unwrap();
    let mut random = fastrand::Rng::with_seed(18);
    for round in 0..60 {
        for _ in 0..random.usize(0..8) {
            let at = random.u64(0..15 * MIB / 512) * 512;
            both.write(at, &vec![7; random.usize(1..40_000)]).unwrap();
        }
        if round % 8 == 7 {
            both.flush().unwrap();
        }
        let from = random.u64(0..16 * MIB / 512) * 512;
        let length = (random.u64(1..=16 * MIB / 512) * 512).min(16 * MIB - from);
        let rows = both.block_status(from, length).unwrap();
        let row = alone.block_status(from, length).unwrap();
        assert_eq!(row[0].extents, rows[0].extents, "round {round}: {length} bytes at {from}");
        let length_told: u64 = row[0].extents.iter().map(|extent| extent.length).sum();
        assert_eq!(length_told, length, "round {round}");
    }
    server.shut_down().unwrap();
}

#[test]
fn a_device_that_fails_is_told_and_nothing_is_lost() {
    let export = ExportSettings::new("disk", "fault:read=1,write=1,flush=2:memory:64M".parse().unwrap());
    let mut settings = Settings::new(8 * MIB, "lru".parse().unwrap(), vec![export]);
    // Each part flushes the device.
    settings.host.shards = Some(1);
    let server = Service::start(settings).unwrap();
    let mut client = connect(&server, "disk");
    assert!(client.read(0, 4096).unwrap_err().to_string().contains("EIO"));
    assert_eq!(client.read(0, 4096).unwrap(), [0; 4096]);
    client.write(0, &[5; 4096]).unwrap();
    assert!(client.flush().unwrap_err().to_string().contains("EIO"), "the write fails");
    assert_eq!(client.read(0, 4096).unwrap(), [5; 4096]);
    client.flush().unwrap();
    client.write(4096, &[6; 4096]).unwrap();
    assert!(client.flush().unwrap_err().to_string().contains("EIO"), "the device flush fails");
    client.flush().unwrap();
    assert!(client.submit(Command::Cache, 0, 4096).is_ok());
    client.receive().unwrap().result.unwrap();
    drop(client);
    server.shut_down().unwrap();
}

/// A client's ends of two pipes.
struct Pipes(std::io::PipeReader, std::io::PipeWriter);

impl Read for Pipes {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Pipes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.1.flush()
    }
}

#[test]
fn an_export_whose_writes_all_fail_is_removed_and_its_clients_are_told() {
    let faults: Vec<String> = (1..1000).map(|write| format!("write={write}")).collect();
    let target = format!("fault:{}:memory:64M", faults.join(","));
    let export = ExportSettings::new("disk", target.parse().unwrap());
    let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), vec![export]);
    settings.host.shards = Some(1);
    let server = Service::start(settings).unwrap();
    let ((from_server, output), (input, to_server)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    server.attach(NBD, input.into(), output.into(), || ());
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(Pipes(from_server, to_server), "disk", &[]).unwrap();
        // Two of them may be dirty.
        let writes = [0, 1, 2, 3].map(|at| client.submit_write(at << 18, &[5; 1 << 18], false).unwrap());
        let ended = writes.map(|_| client.receive().unwrap());
        writes.map(|write| ended.iter().find(|ended| ended.cookie == write).unwrap().result.is_ok())
    });
    while server.statistics().host.waiting == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.remove("disk", true).unwrap();
    assert_eq!(client.join().unwrap(), [true, true, false, false]);
    server.shut_down().unwrap();
}

#[test]
fn a_target_that_grew_is_larger_for_new_clients_and_old_ones_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![3; MIB as usize]).unwrap();
    let server = start(8 * MIB, &[("disk", path.to_str().unwrap())]);
    let mut old = connect(&server, "disk");
    old.write(1000, &[4; 1000]).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * MIB).unwrap();
    let mut new = connect(&server, "disk");
    assert_eq!(new.export().size, 2 * MIB);
    assert_eq!(new.read(1000, 1000).unwrap(), [4; 1000]);
    new.write(2 * MIB - 100, &[5; 100]).unwrap();
    assert_eq!(old.read(0, 1000).unwrap(), [3; 1000]);
    old.write(0, &[6; 10]).unwrap();
    drop((old, new));
    server.shut_down().unwrap();
    let file = std::fs::read(&path).unwrap();
    assert_eq!((file.len() as u64, file[0], file[1000], file[2 * MIB as usize - 1]), (2 * MIB, 6, 4, 5));
}

#[test]
fn policy_and_memory_change_while_clients_work() {
    let export = ExportSettings::new("disk", "memory:32M".parse().unwrap());
    let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), vec![export]);
    settings.host.memory_max = 16 * MIB;
    let server = Service::start(settings).unwrap();
    std::thread::scope(|scope| {
        let client = connect(&server, "disk");
        let client = scope.spawn(move || drive(client, 0, vec![0; 32 * MIB as usize], 3, 1000));
        for (memory, policy) in [(16, "lirs"), (2, "s3-fifo"), (8, "arc"), (8, "clock-pro"), (1, "lru")] {
            std::thread::sleep(Duration::from_millis(30));
            server.change(Some(memory * MIB), Some(&policy.parse().unwrap())).unwrap();
        }
        assert!(server.change(Some(32 * MIB), Some(&"lru".parse().unwrap())).is_err());
        let mut changes = 0;
        while !client.is_finished() || changes < 100 {
            let policy = ["lru", "lirs", "arc", "clock-pro", "s3-fifo"][changes % 5];
            server.change(Some([1, 7, 16][changes % 3] * MIB), Some(&policy.parse().unwrap())).unwrap();
            server.add(ExportSettings::new("extra", "memory:4M".parse().unwrap())).unwrap();
            let mut extra = connect(&server, "extra");
            extra.write(0, &[changes as u8; 100_000]).unwrap();
            assert_eq!(extra.read(4096, 1000).unwrap(), [changes as u8; 1000]);
            server.remove("extra", changes % 2 == 0).unwrap();
            assert!(extra.read(0, 1).is_err());
            changes += 1;
        }
        println!("{changes} changes");
        client.join().unwrap();
    });
    server.change(Some(MIB), Some(&"lru".parse().unwrap())).unwrap();
    assert!(server.statistics().host.resident_bytes <= MIB);
    server.shut_down().unwrap();
}

fn options(list: &[&str]) -> ExportOptions {
    let mut options = ExportOptions::default();
    list.iter().for_each(|option| options.add(option).unwrap());
    options
}

#[test]
fn who_leaves_while_it_is_throttled_leaves_its_turn_to_the_others() {
    let server = start(8 * MIB, &[("disk", "memory:64M")]);
    let mut leaves = connect(&server, "disk");
    server.set("disk", &options(&["bandwidth=64K"])).unwrap();
    let stream = socket(&server);
    let mut stays = Client::connect(stream.try_clone().unwrap(), "disk", &[]).unwrap();
    // Many minutes' worth.
    for _ in 0..4 {
        leaves.submit_read(0, vec![0; 16 * MIB as usize]).unwrap();
    }
    leaves.submit_write(0, &[1; 4096], false).unwrap();
    let submitted = stays.submit_read(0, vec![1; 4096]).unwrap();
    drop(leaves);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reply = stays.receive().expect("it has to wait for one that is gone");
    assert_eq!((reply.cookie, reply.buffer), (submitted, vec![0; 4096]));
    assert_eq!(server.statistics().exports[0].disk.read_bytes, 4096, "what nobody waits for is read");
    drop((stays, stream));
    quiet(&server);
    server.shut_down().unwrap();
}

/// A request to fetch is charged as the reads that it replaces.
#[test]
fn cache_14_counts_against_the_rates() {
    let server = start(128 * MIB, &[("disk", "memory:96M")]);
    let mut client = connect(&server, "disk");
    server.set("disk", &options(&["bandwidth=64M"])).unwrap();
    let begin = Instant::now();
    client.cache(0, 96 * MIB).unwrap();
    assert!(begin.elapsed() > Duration::from_secs(1), "{:?}", begin.elapsed());
    server.set("disk", &options(&["bandwidth=none", "iops=10"])).unwrap();
    let begin = Instant::now();
    (0..6).for_each(|_| client.cache(0, 96 * MIB).unwrap());
    (0..6).for_each(|_| client.flush().unwrap());
    // 24 requests, of which a tenth of a second's are free.
    assert!(begin.elapsed() > Duration::from_secs(2), "{:?}", begin.elapsed());
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}

/// Zeroes may have to be written, and long trims and zeroes are many operations of the device.
#[test]
fn zeroes_14_count_against_the_rates() {
    const LONG: u64 = 96 * MIB;
    let server = start(8 * MIB, &[("disk", "memory:96M")]);
    let mut client = connect(&server, "disk");
    let mut took = |rate: &[&str], times: u32, command: Command| {
        server.set("disk", &options(rate)).unwrap();
        let begin = Instant::now();
        for _ in 0..times {
            client.submit(command, 0, LONG).unwrap();
            client.receive().unwrap().result.unwrap();
        }
        begin.elapsed()
    };
    let zeroes = |fast: bool| Command::WriteZeroes { fua: false, no_hole: !fast, fast };
    let trim = Command::Trim { fua: false };
    let slow = took(&["bandwidth=64M"], 1, zeroes(false));
    assert!(slow > Duration::from_secs(1), "{slow:?}");
    // Nothing is written.
    for command in [trim, zeroes(true)] {
        let free = took(&["bandwidth=64M"], 4, command);
        assert!(free < Duration::from_secs(1), "{free:?}");
    }
    for command in [trim, zeroes(false)] {
        // 12 requests, of which a tenth of a second's are free.
        let slow = took(&["bandwidth=none", "iops=10"], 4, command);
        assert!(slow > Duration::from_secs(1), "{command:?}: {slow:?}");
    }
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}

#[test]
fn connections_beyond_the_limits_are_refused_and_counted() {
    let mut settings = Settings::new(
        4 * MIB,
        "lru".parse().unwrap(),
        ["one", "two"].map(|name| ExportSettings::new(name, "memory:1M".parse().unwrap())).to_vec(),
    );
    settings.exports[0].connections = 1;
    settings.connections_max = 3;
    let server = Service::start(settings).unwrap();
    let (_one, _two) = (connect(&server, "one"), connect(&server, "two"));
    // The old way there is no answer.
    let old = Handshake::begin(socket(&server)).unwrap().export_name("one");
    assert!(matches!(old, Err(Error::Io(error)) if error.kind() == ErrorKind::UnexpectedEof));
    while server.statistics().connections > 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let stream = socket(&server);
    match Handshake::begin(stream.try_clone().unwrap()).unwrap().go("one") {
        Err(Error::Refused { message, .. }) => assert_eq!(message, "the export has as many clients as allowed"),
        _ => panic!("it is let in, or nothing said"),
    }
    for _ in 0..2 {
        assert_eq!(socket(&server).read(&mut [0; 18]).unwrap(), 0, "it is greeted");
    }
    let now = server.statistics();
    assert_eq!((now.refused, now.accepted, now.connections), (2, 4, 3));
    assert_eq!((now.exports[0].refused, now.exports[1].refused), (2, 0));
    let text = now.prometheus();
    assert!(text.contains("nigh_connections_refused_total 2"), "{text}");
    assert!(text.contains("nigh_clients_refused_total{export=\"one\"} 2"), "{text}");
    server.shut_down().unwrap();
}

#[test]
fn read_ahead_changes_while_clients_read() {
    let mut settings =
        Settings::new(4 * MIB, "lru".parse().unwrap(), vec![ExportSettings::new("disk", "memory:8M".parse().unwrap())]);
    let server = Service::start(settings.clone()).unwrap();
    let mut client = connect(&server, "disk");
    let mut ahead = |at: u64| {
        client.read(at, 4096).unwrap();
        server.statistics().exports[0].disk.prefetch_issued
    };
    let mut reload = |readahead: &str| {
        settings.host.readahead = readahead.parse().unwrap();
        server.reload(&settings).unwrap();
        assert_eq!(server.statistics().host.readahead, readahead);
    };
    assert_eq!(ahead(0), 0);
    reload("extent:64K");
    assert_eq!(ahead(MIB), 15);
    reload("extent:32K");
    assert_eq!(ahead(2 * MIB), 15 + 7);
    reload("none");
    assert_eq!(ahead(3 * MIB), 15 + 7);
    reload("extent:64K");
    assert_eq!(ahead(4 * MIB), 15 + 7 + 15);
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}
