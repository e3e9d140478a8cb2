//! A write that fails is answered once its data were received: clients such as libnbd expect no reply while they send.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nigh_nbd::client::Client;
use nigh_nbd::{Framing, RequestHeader, wire};
use nigh_server::NBD;
use nigh_service::{ExportSettings, Service, Settings};

const MIB: u64 = 1 << 20;
/// Of a simple or structured reply: the magic number comes first.
const REPLY_LEAST: usize = 16;

fn start(export: ExportSettings) -> Service {
    let mut settings = Settings::new(4 * MIB, "lru".parse().unwrap(), vec![export]);
    settings.host.shards = Some(1);
    settings.host.patience = Duration::from_millis(100);
    Service::start(settings).unwrap()
}

fn connect(server: &Service) -> (UnixStream, Client<UnixStream>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    server.attach(NBD, theirs.try_clone().unwrap().into(), theirs.into(), || ());
    let client = Client::connect(ours.try_clone().unwrap(), "disk", &[]).unwrap();
    (ours, client)
}

/// Sends a write in two parts, and asserts that its reply comes after the second; then the connection still works.
fn fails_late(server: &Service, offset: u64, length: u32) {
    let (mut stream, mut client) = connect(server);
    let header = RequestHeader { flags: 0, command: wire::command::WRITE, cookie: 9, offset, length: length.into() };
    stream.write_all(&header.encode(Framing::Structured).unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut reply = [0; 256];
    for part in [length / 2, length - length / 2 - 1, 1] {
        let early = stream.read(&mut reply);
        let nothing = early.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(nothing, "a reply of {early:?} bytes to a write of {length} at {offset}, before its data");
        stream.write_all(&vec![3; part as usize]).unwrap();
    }
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut got = stream.read(&mut reply).unwrap();
    // The head and its error come together or one after the other.
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while let Ok(more @ 1..) = stream.read(&mut reply[got..]) {
        got += more;
    }
    assert!(got >= REPLY_LEAST, "{got} bytes");
    stream.set_read_timeout(None).unwrap();
    assert_eq!(client.read(0, 4096).unwrap().len(), 4096);
}

#[test]
fn early_1_beyond_the_end() {
    let server = start(ExportSettings::new("disk", "memory:16M".parse().unwrap()));
    for length in [4096, 256 << 10, 2 << 20] {
        fails_late(&server, 64 * MIB, length);
    }
    server.shut_down().unwrap();
}

#[test]
fn early_1_read_only() {
    let mut export = ExportSettings::new("disk", "memory:16M".parse().unwrap());
    export.disk.read_only = true;
    let server = start(export);
    for length in [4096, 256 << 10, 2 << 20] {
        fails_late(&server, 0, length);
    }
    server.shut_down().unwrap();
}

/// Memory is full of blocks that cannot be written: the next writes fail while they wait for frames.
#[test]
fn early_1_a_device_that_takes_nothing() {
    let faults: Vec<String> = (1..5000).map(|write| format!("write={write}")).collect();
    let target = format!("fault:{}:memory:64M", faults.join(","));
    let server = start(ExportSettings::new("disk", target.parse().unwrap()));
    let (_, mut client) = connect(&server);
    let mut at = 0;
    while client.write(at, &[5; 256 << 10]).is_ok() {
        at += 256 << 10;
        assert!(at < 16 * MIB, "writes do not fail");
    }
    for length in [4096, 256 << 10, 2 << 20] {
        fails_late(&server, 32 * MIB, length);
    }
    server.remove("disk", true).unwrap();
    server.shut_down().unwrap();
}
