//! Clients that mean harm, or do it: what they cost the server, and the others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::{Client, Handshake};
use nigh_nbd::{Command, Framing, RequestHeader, wire};
use nigh_server::NBD;
use nigh_service::{ExportSettings, Listen, Service, Settings};

const MIB: u64 = 1 << 20;

fn settings(memory: u64, targets: &[(&str, &str)]) -> Settings {
    let export = |&(name, target): &(&str, &str)| ExportSettings::new(name, target.parse().unwrap());
    Settings::new(memory, "lru".parse().unwrap(), targets.iter().map(export).collect())
}

fn start(memory: u64, targets: &[(&str, &str)]) -> Service {
    Service::start(settings(memory, targets)).unwrap()
}

fn socket(server: &Service) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    ours
}

/// A client of `export` with simple replies, whose bytes are the test's own.
fn simple(server: &Service, export: &str) -> UnixStream {
    choose(socket(server), export)
}

fn choose<S: Read + Write>(mut stream: S, export: &str) -> S {
    stream.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle without zeroes.
    let mut choice = 3_u32.to_be_bytes().to_vec();
    choice.extend(wire::OPTION_MAGIC.to_be_bytes());
    choice.extend(wire::option::EXPORT_NAME.to_be_bytes());
    choice.extend((export.len() as u32).to_be_bytes());
    choice.extend(export.as_bytes());
    stream.write_all(&choice).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}

fn header(command: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let header = RequestHeader { flags: 0, command, cookie, offset, length };
    header.encode(Framing::Simple).unwrap().to_vec()
}

/// Reads so much from the beginning of a disk.
fn read(client: &mut (impl Read + Write), length: u64) {
    client.write_all(&header(wire::command::READ, 7, 0, length)).unwrap();
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4], "the read fails");
    client.read_exact(&mut vec![0; length as usize]).unwrap();
}

/// Waits until no client is left. `check` is called meanwhile.
fn wait_until_left(server: &Service, check: impl Fn()) {
    let begin = Instant::now();
    while server.statistics().connections > 0 {
        check();
        assert!(begin.elapsed() < Duration::from_secs(20), "clients that left are still served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Their replies have nobody to go to, and cost as much as all others.
#[test]
fn left_18_reads_of_a_client_that_left_are_not_executed() {
    const LONG: u64 = 32 * MIB;
    let server = start(64 * MIB, &[("disk", "memory:32M")]);
    let check = || {
        let read = server.statistics().exports[0].disk.read_bytes;
        assert!(read <= 8 * LONG, "{} reads of a client that left", read / LONG);
    };
    let requests: Vec<u8> = (0..4096).flat_map(|cookie| header(wire::command::READ, cookie, 0, LONG)).collect();
    let mut collected = simple(&server, "disk");
    collected.write_all(&requests).unwrap();
    drop(collected);
    wait_until_left(&server, check);
    let mut in_chunks = socket(&server);
    let client = Client::connect(in_chunks.try_clone().unwrap(), "disk", &[]).unwrap();
    assert_eq!(client.framing(), Framing::Structured);
    in_chunks.write_all(&requests).unwrap();
    drop((client, in_chunks));
    wait_until_left(&server, check);
    check();
    server.shut_down().unwrap();
}

/// Connections that choose no export take no place of others, however many there are.
#[test]
fn descriptors_1_newcomers_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), vec![]);
    settings.exports = vec![ExportSettings::new("disk", "memory:1M".parse().unwrap())];
    settings.connections_max = 200;
    let server = Service::start(settings).unwrap();
    server.listen(NBD, &Listen::Unix(path.clone()), false).unwrap();
    let connect = || UnixStream::connect(&path).unwrap();
    let mut first = Client::connect(connect(), "disk", &[]).unwrap();
    let silent: Vec<UnixStream> = (0..400).map(|_| connect()).collect();
    let mut last = Client::connect(connect(), "disk", &[]).unwrap();
    last.write(0, &[1; 512]).unwrap();
    assert_eq!(first.read(0, 512).unwrap(), [1; 512]);
    let begin = Instant::now();
    while server.statistics().connections > 2 + 25 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} connections", server.statistics().connections);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.statistics().refused, 0);
    drop((first, last, silent));
    server.shut_down().unwrap();
}

/// A server that is to drop privileges first accepts nobody until it has.
#[test]
fn gate_18_nobody_is_let_in_before_it_opens() {
    let server = start(4 * MIB, &[("disk", "memory:1M")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let gate = server.close_gate();
    server.listen(NBD, &Listen::Unix(path.clone()), false).unwrap();
    let mut early = UnixStream::connect(&path).unwrap();
    early.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(early.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(gate);
    early.set_read_timeout(None).unwrap();
    assert_eq!(early.read(&mut [0]).unwrap(), 1);
    drop(early);
    server.shut_down().unwrap();
}

/// The clients of one export leave connections to others.
#[test]
fn clients_18_each_export_has_connections_of_its_own() {
    let export = |name: &str| ExportSettings::new(name, "memory:1M".parse().unwrap());
    let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), ["one", "two", "three"].map(export).to_vec());
    settings.connections_max = 40;
    let server = Service::start(settings).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    server.listen(NBD, &Listen::Unix(path.clone()), false).unwrap();
    let connect = |export| Client::connect(UnixStream::connect(&path).unwrap(), export, &[]);
    let greedy: Vec<_> = std::iter::from_fn(|| connect("one").ok()).take(100).collect();
    assert_eq!(greedy.len(), 40 - 2 * 4);
    let others: Vec<_> = ["two", "two", "three", "two", "three", "two", "three", "three"].map(connect).into();
    assert!(others.iter().all(Result::is_ok));
    drop((greedy, others));
    server.shut_down().unwrap();
}

/// Clients that connect again and again without choosing an export are let in slowly, and others meanwhile all the same.
#[test]
fn newcomers_18_that_choose_nothing_are_let_in_slowly() {
    const MANY: u32 = 300;
    let server = start(4 * MIB, &[("disk", "memory:1M")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    server.listen(NBD, &Listen::Unix(path.clone()), false).unwrap();
    let begin = Instant::now();
    for _ in 0..MANY {
        let mut garbage = UnixStream::connect(&path).unwrap();
        garbage.write_all(&[0xff; 64]).unwrap();
        // Until it is closed.
        let _ = garbage.read_to_end(&mut Vec::new());
    }
    assert!(begin.elapsed() >= Duration::from_millis(1) * (MANY - 1), "{:?}", begin.elapsed());
    let begin = Instant::now();
    for _ in 0..MANY {
        drop(Client::connect(UnixStream::connect(&path).unwrap(), "disk", &[]).unwrap());
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "clients that choose an export wait: {:?}", begin.elapsed());
    server.shut_down().unwrap();
}

/// Begins to write so much at `offset`: sends the header and the first bytes.
fn begin_write(client: &mut UnixStream, offset: u64, length: u64, first: &[u8]) {
    let mut bytes = header(wire::command::WRITE, 1, offset, length);
    bytes.extend(first);
    client.write_all(&bytes).unwrap();
}

/// The blocks of a cache are for those whose data have come.
#[test]
fn slow_writers_2_hold_up_nobody() {
    const PIECE: u64 = 256 << 10;
    const PATIENCE: Duration = Duration::from_secs(5);
    let server = start(16 * MIB, &[("slow", "memory:64M"), ("other", "memory:64M")]);
    // Much more than there are frames for requests: of each one the first byte, or what a socket holds.
    let slow: Vec<UnixStream> = (0..72)
        .map(|at| {
            let mut client = simple(&server, "slow");
            let sent = if at % 2 == 0 { 1 } else { 100_000 };
            begin_write(&mut client, at * PIECE, PIECE, &vec![at as u8; sent]);
            client
        })
        .collect();
    for (export, offset) in [("other", 0), ("slow", 40 * MIB)] {
        let stream = socket(&server);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::connect(stream, export, &[]).unwrap();
        let data: Vec<u8> = (0..MIB).map(|at| (at % 251) as u8).collect();
        for at in 0..8 {
            client.write(offset + at * MIB, &data).expect("a write that waits for others' data");
            assert!(client.read(offset + at * MIB, data.len()).unwrap() == data);
        }
        assert_eq!(client.read(offset + 20 * MIB, 4096).expect("a miss that waits for others' data"), [0; 4096]);
        client.disconnect().unwrap();
    }
    // Writes of slow clients are as good as those of others, once they have arrived.
    for (at, client) in (0..).zip(&slow) {
        let left = PIECE - if at % 2 == 0 { 1 } else { 100_000 };
        let mut client = client;
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(&vec![at; left as usize]).unwrap();
        let mut reply = [0; 16];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4]);
    }
    let mut client = Client::connect(socket(&server), "slow", &[]).unwrap();
    for at in 0..72 {
        assert!(client.read(at * PIECE, PIECE as usize).unwrap().iter().all(|&byte| byte == at as u8), "{at}");
    }
    client.disconnect().unwrap();
    drop(slow);
    wait_until_left(&server, || ());
    assert_eq!(server.statistics().host.requests, 0);
    server.shut_down().unwrap();
}

/// A write of unaligned parts, with pauses between them, is what it would be at once; on an export with many of them, too.
#[test]
fn slow_writers_2_write_what_they_send() {
    const LENGTH: u64 = 600_000;
    let server = start(16 * MIB, &[("disk", "memory:64M")]);
    // They have all memory that there is for those who are slow.
    let others: Vec<UnixStream> = (0..40)
        .map(|at| {
            let mut client = simple(&server, "disk");
            begin_write(&mut client, 32 * MIB + at * MIB / 2, MIB / 2, &[1]);
            client
        })
        .collect();
    std::thread::sleep(Duration::from_millis(100));
    let data: Vec<u8> = (0..LENGTH).map(|at| (at % 253) as u8).collect();
    let mut random = fastrand::Rng::with_seed(2);
    for offset in [0, 4096, 1_000_003] {
        let mut client = simple(&server, "disk");
        begin_write(&mut client, offset, LENGTH, &[]);
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + random.usize(1..60_000));
            client.write_all(&data[at..end]).unwrap();
            at = end;
            std::thread::sleep(Duration::from_millis(random.u64(0..35)));
        }
        client.read_exact(&mut [0; 16]).unwrap();
        let mut client = Client::connect(socket(&server), "disk", &[]).unwrap();
        assert!(client.read(offset, data.len()).unwrap() == data, "{offset}");
        client.disconnect().unwrap();
    }
    drop(others);
    server.shut_down().unwrap();
}

/// A client with requests of any length.
fn extended(stream: UnixStream, export: &str) -> Client<UnixStream> {
    let mut handshake = Handshake::begin(stream).unwrap();
    assert!(handshake.extended_headers().unwrap());
    handshake.set_contexts(export, &["base:allocation", "x-nigh:cache"]).unwrap();
    handshake.go(export).unwrap()
}

/// The status of a large disk is reported in parts, and no more is examined than is asked for.
#[test]
fn cancel_8_the_status_of_a_large_disk_takes_a_moment() {
    const DISK: u64 = 1 << 40;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(DISK).unwrap();
    let server = start(8 * MIB, &[("disk", path.to_str().unwrap())]);
    let mut client = extended(socket(&server), "disk");
    client.write(100 * MIB + 4096, &[1; 4096]).unwrap();
    let begin = Instant::now();
    for one in [true, false] {
        client.submit(Command::BlockStatus { one }, 0, DISK).unwrap();
        let told = client.receive().unwrap();
        told.result.unwrap();
        for of in told.status {
            assert_eq!(of.extents[0].length, 100 * MIB + 4096, "{}", of.context);
            assert_eq!(of.extents.len() == 1, one);
        }
    }
    // All of it, as a client does.
    let mut at = DISK - 3 * (1 << 30);
    while at < DISK {
        client.submit(Command::BlockStatus { one: true }, at, DISK - at).unwrap();
        let told = client.receive().unwrap();
        told.result.unwrap();
        at += told.status[0].extents[0].length;
    }
    assert_eq!(at, DISK);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    client.disconnect().unwrap();
    server.shut_down().unwrap();
}

/// Trims and zeroes of a slow disk end soon after their client, and leave room for others.
#[test]
fn cancel_8_long_requests_end_when_their_client_leaves() {
    const LONG: u64 = 1 << 40;
    for command in [Command::Trim { fua: false }, Command::Cache] {
        let server = start(8 * MIB, &[("slow", "delay:50ms:memory:2T"), ("other", "memory:8M")]);
        let mut client = extended(socket(&server), "slow");
        client.submit(command, 0, LONG).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let mut other = Client::connect(socket(&server), "other", &[]).unwrap();
        let begin = Instant::now();
        other.write(0, &[1; 4096]).unwrap();
        assert_eq!(other.read(0, 4096).unwrap(), [1; 4096]);
        assert!(begin.elapsed() < Duration::from_secs(2), "{command:?} of another export: {:?}", begin.elapsed());
        other.disconnect().unwrap();
        drop(client);
        wait_until_left(&server, || ());
        assert!(begin.elapsed() < Duration::from_secs(8), "{command:?} goes on for {:?}", begin.elapsed());
        server.shut_down().unwrap();
    }
}

/// Those who read nothing do not keep the memory for replies from clients of other exports.
#[test]
fn heap_16_a_long_read_finds_memory_beside_slow_readers_of_another_export() {
    const LONG: u64 = 32 * MIB;
    let server = start(64 * MIB, &[("greedy", "memory:64M"), ("other", "memory:64M")]);
    let mut greedy: Vec<UnixStream> = (0..16).map(|_| simple(&server, "greedy")).collect();
    greedy[0].write_all(&header(wire::command::READ, 0, 0, LONG)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    for client in &mut greedy[1..] {
        client.write_all(&header(wire::command::READ, 0, 0, MIB)).unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    let mut other = simple(&server, "other");
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (0..3).for_each(|_| read(&mut other, LONG));
    drop(greedy);
    server.shut_down().unwrap();
}

/// A client of `export` with simple replies that asked for `length` bytes, and takes few of them, now and then.
fn drip(server: &Service, export: &str, length: u64) -> TcpStream {
    let Listen::Tcp(address) = server.listen(NBD, &Listen::Tcp("127.0.0.1:0".to_owned()), false).unwrap() else {
        unreachable!("it listens there")
    };
    let address: std::net::SocketAddr = address.parse().unwrap();
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    // The server then notices each few bytes that are taken.
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let mut client = choose(TcpStream::from(socket), export);
    client.write_all(&header(wire::command::READ, 0, 0, length)).unwrap();
    let mut takes = client.try_clone().unwrap();
    std::thread::spawn(move || {
        while takes.read(&mut [0; 256]).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    client
}

/// A reader that drips is left, even if nobody needs the memory of its reply.
#[test]
fn heap_16_a_reader_that_drips_is_left() {
    let server = start(64 * MIB, &[("disk", "memory:64M")]);
    let begin = Instant::now();
    let _drips = drip(&server, "disk", 32 * MIB);
    // The bytes that the socket holds are taken at once. Then it has 30 s, and some more for those that it takes.
    while server.statistics().connections > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it takes as long as it likes");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begin.elapsed() > Duration::from_secs(29), "{:?}", begin.elapsed());
    server.shut_down().unwrap();
}

/// A server whose exports do not respond for a while, all but `well`. Its end does not wait for them.
fn start_hung(hung: &[&str]) -> Service {
    let exports = hung.iter().map(|&name| (name, "delay:30s:memory:64M")).chain([("well", "memory:64M")]);
    let exports: Vec<(&str, &str)> = exports.collect();
    let mut settings = settings(256 * MIB, &exports);
    settings.stop_within = Duration::from_millis(500);
    Service::start(settings).unwrap()
}

/// Whatever memory exports have for replies that their devices do not give, others have some of their own.
#[test]
fn heap_16_hung_exports_leave_memory_to_others() {
    let server = start_hung(&["one", "two", "three"]);
    // As much as they get.
    let mut hung = Vec::new();
    for export in ["one", "two", "three"] {
        for length in [32 * MIB, 2 * MIB, MIB, MIB, MIB, MIB / 2, MIB / 2, MIB / 2, MIB / 2] {
            let mut client = simple(&server, export);
            client.write_all(&header(wire::command::READ, 7, 0, length)).unwrap();
            hung.push(client);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let begin = Instant::now();
    let mut clients: Vec<UnixStream> = (0..4).map(|_| simple(&server, "well")).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            scope.spawn(|| (0..20).for_each(|_| read(client, MIB / 2)));
        }
    });
    let mut client = Client::connect(socket(&server), "well", &["base:allocation", "x-nigh:cache"]).unwrap();
    assert_eq!(client.block_status(0, 64 * MIB).unwrap().len(), 2);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

/// A client that leaves gives the memory of its reply back, whenever its device responds.
#[test]
fn heap_16_whoever_left_a_hung_export_has_no_memory() {
    let server = start_hung(&["hung"]);
    let mut hung = simple(&server, "hung");
    hung.write_all(&header(wire::command::READ, 7, 0, 32 * MIB)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(hung);
    let mut client = simple(&server, "well");
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    read(&mut client, 32 * MIB);
}
