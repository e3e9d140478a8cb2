//! Clients that mean harm, or do it: what they cost the server, and the others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use nigh_nbd::{Framing, RequestHeader, wire};
use nigh_server::{ExportSettings, Listen, Server, Settings};

const MIB: u64 = 1 << 20;

fn start(memory: u64, targets: &[(&str, &str)]) -> Server {
    let export = |&(name, target): &(&str, &str)| ExportSettings::new(name, target.parse().unwrap());
    let policy = "lru".parse().unwrap();
    Server::start(Settings::new(memory, policy, targets.iter().map(export).collect())).unwrap()
}

fn socket(server: &Server) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(theirs.try_clone().unwrap().into(), theirs.into(), || ());
    ours
}

/// A client of `export` with simple replies, whose bytes are the test's own.
fn simple(server: &Server, export: &str) -> UnixStream {
    let mut stream = socket(server);
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

/// Waits until no client is left. `check` is called meanwhile.
fn wait_until_left(server: &Server, check: impl Fn()) {
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
    let mut server = Server::start(settings).unwrap();
    server.listen(&Listen::Unix(path.clone()), false).unwrap();
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
