//! Disks in an object store, served by the real binary: an S3 server whose requests fail, two servers on one disk, and servers
//! that are killed.

use crate::bucket;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nigh_nbd::Command as Request;
use nigh_nbd::client::Client;
use nigh_objects::{Manifest, Object, PART};
use nigh_testkit::runs;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::bucket::Bucket;
use crate::power::clients::{self, Shared};
use crate::power::disk::SECTOR;
use crate::power::history::{self, Promise, Start};
use crate::serving::pki::Pki;
use crate::serving::{Folder, nigh, until};

/// Of the disk: three parts, the last one short.
const SIZE: u64 = 2 * PART + (1 << 20);
/// How long a server may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

fn object(bucket: &Bucket, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    bucket.environment(command.arg("object").args(arguments));
    command.output().unwrap()
}

fn create(bucket: &Bucket, prefix: &str) {
    create_with(bucket, prefix, SIZE);
}

fn create_with(bucket: &Bucket, prefix: &str, bytes: u64) {
    let made = object(bucket, &["create", &format!("s3://bucket/{prefix}"), "--size", &bytes.to_string()]);
    assert!(made.status.success(), "{made:?}");
}

/// A running server, killed when dropped.
struct Server {
    process: Child,
    folder: Folder,
}

impl Server {
    /// Serves the disk under this prefix as `disk`.
    fn start(bucket: &Bucket, prefix: &str, more: &[&str]) -> Server {
        Server::start_with(&format!("s3://bucket/{prefix}"), more, |command| bucket.environment(command))
    }

    /// Serves this target as `disk`.
    fn start_with(target: &str, more: &[&str], environment: impl FnOnce(&mut Command)) -> Server {
        let folder = Folder::new();
        let (listen, disk) = (format!("unix:{}", folder.text("socket")), format!("disk={target}"));
        let mut arguments = vec!["--memory", "2M", &disk];
        arguments.extend(more);
        let mut command = nigh(&["--listen", &listen], &arguments);
        environment(&mut command);
        let log = std::fs::File::create(folder.path("log")).unwrap();
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { process, folder };
        let begin = Instant::now();
        while UnixStream::connect(server.folder.path("socket")).is_err() {
            let ended = server.process.try_wait().unwrap();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "it does not start: {}", server.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path("log")).unwrap()
    }

    /// Its log, as soon as that has `what`.
    fn logs(&self, what: &str) -> String {
        let begin = Instant::now();
        loop {
            let log = self.log();
            if log.contains(what) {
                return log;
            }
            assert!(begin.elapsed() < PATIENCE, "no '{what}' in {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn client(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.folder.path("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::connect(stream, "disk", &[]).unwrap()
    }

    /// Whether it ended in order.
    fn end(self, signal: Signal) -> bool {
        self.end_with_log(signal).0
    }

    /// As `end`, with its log.
    fn end_with_log(mut self, signal: Signal) -> (bool, String) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        let begin = Instant::now();
        loop {
            match self.process.try_wait().unwrap() {
                Some(status) => return (status.success(), self.log()),
                None => assert!(begin.elapsed() < PATIENCE, "it does not end: {}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(client: &mut Client<UnixStream>, offset: u64, bytes: &[u8]) -> Result<(), String> {
    client.submit_write(offset, bytes, false).map_err(|error| error.to_string())?;
    let done = client.receive().map_err(|error| error.to_string())?;
    done.result.map_err(|error| error.to_string())
}

fn read(client: &mut Client<UnixStream>, offset: u64, length: usize) -> Result<Vec<u8>, String> {
    client.submit_read(offset, vec![0; length]).map_err(|error| error.to_string())?;
    let done = client.receive().map_err(|error| error.to_string())?;
    done.result.map_err(|error| error.to_string())?;
    Ok(done.buffer)
}

fn flush(client: &mut Client<UnixStream>) -> Result<(), String> {
    client.submit(Request::Flush, 0, 0).map_err(|error| error.to_string())?;
    client.receive().map_err(|error| error.to_string())?.result.map_err(|error| error.to_string())
}

/// The disk as it is in the store: without a server, from the manifest and the objects.
fn stored(bucket: &Bucket, prefix: &str) -> (Manifest, Vec<u8>) {
    let folder = bucket.folder().join(prefix);
    let manifest = Manifest::decode(&std::fs::read(folder.join("manifest")).unwrap()).unwrap();
    let mut bytes = vec![0; manifest.bytes as usize];
    for (part, to) in (0..).zip(bytes.chunks_mut(PART as usize)) {
        if let Some(object) = manifest.object(part) {
            let parts = folder.join("parts").join(format!("{:032x}", manifest.disk));
            to.copy_from_slice(&std::fs::read(parts.join(object.to_string())).unwrap());
        }
    }
    (manifest, bytes)
}

#[test]
fn a_disk_is_made_written_and_read_again() {
    let bucket = Bucket::start(1);
    let text = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
    create(&bucket, "disks/vm");
    let again = object(&bucket, &["create", "s3://bucket/disks/vm", "--size", "1G"]);
    assert!(!again.status.success());
    assert!(
        text(&again.stderr).contains("cannot create s3://bucket/disks/vm: there is a disk under this prefix already"),
        "{again:?}"
    );
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8).collect();
    let server = Server::start(&bucket, "disks/vm", &[]);
    let mut client = server.client();
    for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
        write(&mut client, at, piece).unwrap();
    }
    flush(&mut client).unwrap();
    assert!(stored(&bucket, "disks/vm").1 == data, "what is in the store");
    let reader = Server::start(&bucket, "disks/vm,read-only", &[]);
    let mut other = reader.client();
    assert_eq!(read(&mut other, PART - 4096, 8192).unwrap(), data[PART as usize - 4096..][..8192]);
    assert!(write(&mut other, 0, &[0; 4096]).unwrap_err().contains("EPERM"));
    // The writer goes on.
    write(&mut client, 0, &[9; 4096]).unwrap();
    flush(&mut client).unwrap();
    drop(client);
    assert!(server.end(Signal::TERM));
    let server = Server::start(&bucket, "disks/vm", &[]);
    let mut client = server.client();
    assert_eq!(read(&mut client, 0, 4096).unwrap(), [9; 4096]);
    for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)).skip(1) {
        assert!(read(&mut client, at, piece.len()).unwrap() == piece, "at {at}");
    }
    let shown = object(&bucket, &["show", "s3://bucket/disks/vm", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["bytes"], &shown["objects"], &shown["epoch"]), (&SIZE.into(), &3.into(), &2.into()));
    until("replaced objects are deleted", || bucket.parts("disks/vm").len() == 3);
}

#[test]
fn targets_that_cannot_be_opened_are_explained_in_a_line() {
    let bucket = Bucket::start(2);
    let start = |target: &str, change: &dyn Fn(&mut Command)| {
        let folder = Folder::new();
        let listen = format!("unix:{}", folder.text("socket"));
        let mut command = nigh(&["--listen", &listen], &[&format!("disk={target}")]);
        bucket.environment(&mut command);
        change(&mut command);
        let output = command.output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = stderr.lines().rfind(|line| line.contains("cannot")).unwrap_or_else(|| panic!("{stderr}"));
        line.to_owned()
    };
    let none = start("s3://bucket/nothing", &|_| ());
    assert!(none.contains("there is no disk under this prefix; `nigh object create` makes one"), "{none}");
    let none = start("s3://other/nothing", &|_| ());
    assert!(none.contains("there is no bucket `other`"), "{none}");
    let wrong = start("s3://bucket/nothing", &|command| _ = command.env("AWS_SECRET_ACCESS_KEY", "wrong"));
    assert!(wrong.contains("access is denied"), "{wrong}");
    let gone =
        start("s3://bucket/nothing?timeout=1s", &|command| _ = command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1"));
    assert!(gone.contains("tried for 1 s"), "{gone}");
}

#[test]
fn a_second_server_ends_the_writes_of_the_first() {
    let bucket = Bucket::start(3);
    create(&bucket, "disk");
    let first = Server::start(&bucket, "disk", &[]);
    let mut old = first.client();
    write(&mut old, 0, &[1; 4096]).unwrap();
    flush(&mut old).unwrap();
    write(&mut old, 4096, &[2; 4096]).unwrap();
    let second = Server::start(&bucket, "disk", &["--take-over"]);
    let mut new = second.client();
    second.logs("took the disk over");
    assert_eq!(read(&mut new, 0, 8192).unwrap(), [[1; 4096], [0; 4096]].concat());
    write(&mut new, 8192, &[3; 4096]).unwrap();
    flush(&mut new).unwrap();
    let failed = flush(&mut old).unwrap_err();
    assert!(failed.contains("EIO"), "{failed}");
    let refused = write(&mut old, 0, &[4; 4096]).unwrap_err();
    assert!(refused.contains("EPERM"), "{refused}");
    assert!(flush(&mut old).is_err(), "it stays so");
    let log = first.logs("opened the disk: it is in epoch");
    assert!(log.contains(&format!("another writer, process {} of host ", second.process.id())), "{log}");
    first.logs("it is read-only from now on");
    write(&mut new, 0, &[5; 4096]).unwrap();
    flush(&mut new).unwrap();
    drop((old, new));
    let log = first.end_with_log(Signal::TERM);
    assert!(!log.0, "it could not write everything");
    assert!(log.1.contains("4096 bytes that are not stable yet"), "{}", log.1);
    assert!(second.end(Signal::TERM));
    let (manifest, bytes) = stored(&bucket, "disk");
    assert_eq!(manifest.epoch, 2);
    assert_eq!(bytes[..12288], [[5; 4096], [0; 4096], [3; 4096]].concat());
}

/// A second server asks before it ends the writes of one that may live: on this machine, its process; on another one, whatever stored
/// something within a minute.
#[test]
fn owner_6_a_second_server_ends_no_writer_that_may_live() {
    let bucket = Bucket::start(11);
    create(&bucket, "disk");
    let second = |more: &[&str]| {
        let folder = Folder::new();
        let listen = format!("unix:{}", folder.text("socket"));
        let mut command = nigh(&["--listen", &listen, "disk=s3://bucket/disk"], more);
        bucket.environment(&mut command);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let first = Server::start(&bucket, "disk", &[]);
    let mut client = first.client();
    write(&mut client, 0, &[1; 4096]).unwrap();
    let said = second(&[]);
    let process = format!("process {} of host ", first.process.id());
    assert!(said.contains(&process) && said.contains("may be alive") && said.contains("--take-over"), "{said}");
    flush(&mut client).unwrap();
    drop(client);
    let (owner, manifest) = (bucket.folder().join("disk/owner"), bucket.folder().join("disk/manifest"));
    // One that ended, in order or not, is gone at once.
    assert!(first.end(Signal::TERM));
    assert!(!Server::start(&bucket, "disk", &[]).end(Signal::KILL));
    let third = Server::start(&bucket, "disk", &[]);
    assert!(!third.log().contains("took the disk over"));
    third.end(Signal::KILL);
    // Of a machine that cannot be asked, it is not known.
    let note = std::fs::read_to_string(&owner).unwrap();
    std::fs::write(&owner, note.replace("\"boot\":\"", "\"boot\":\"another-")).unwrap();
    assert!(second(&[]).contains("may be alive"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(61);
    std::fs::File::options().write(true).open(&manifest).unwrap().set_modified(long_ago).unwrap();
    let fourth = Server::start(&bucket, "disk", &[]);
    fourth.logs("took the disk over");
    assert!(fourth.end(Signal::TERM));
    assert!(!bucket.folder().join("disk/clock").read_dir().is_ok_and(|mut files| files.next().is_some()));
    assert_eq!(stored(&bucket, "disk").1[..4096], [1; 4096]);
}

/// A second start of a running server's command fails before it takes the disk from that server.
#[test]
fn a_server_that_cannot_start_ends_no_other() {
    let bucket = Bucket::start(8);
    create(&bucket, "disk");
    let first = Server::start(&bucket, "disk", &[]);
    let mut client = first.client();
    write(&mut client, 0, &[1; 4096]).unwrap();
    let again = |address: &str, disks: &[&str]| {
        let mut command = nigh(&["--listen", address], disks);
        bucket.environment(&mut command);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = again(&format!("unix:{}", first.folder.text("socket")), &["disk=s3://bucket/disk"]);
    assert!(said.contains("another server does"), "{said}");
    // Two of one server would end each other.
    let said = again("tcp:127.0.0.1:0", &["a=s3://bucket/disk", "b=s3://bucket/disk?timeout=9s"]);
    assert!(
        said.contains("disks a and b are both s3://bucket/disk?timeout=9s: a disk in an object store has one writer"),
        "{said}"
    );
    flush(&mut client).unwrap();
    drop(client);
    let log = first.log();
    assert!(first.end(Signal::TERM), "{log}");
    assert!(!log.contains(bucket::SECRET));
    let (manifest, bytes) = stored(&bucket, "disk");
    assert_eq!((manifest.epoch, bytes[0]), (1, 1));
}

/// A store that hangs, beside a disk of this machine.
#[test]
fn a_hung_store_is_no_trouble_of_other_disks() {
    let bucket = Bucket::start(9);
    create(&bucket, "disk");
    let folder = Folder::new();
    std::fs::write(folder.path("other"), vec![7; 8 << 20]).unwrap();
    let other = format!("other={}", folder.text("other"));
    let server = Server::start(&bucket, "disk?timeout=60s", &[&other, "--stop-within", "2s"]);
    let mut client = server.client();
    write(&mut client, 0, &[1; 4096]).unwrap();
    bucket.trouble.set(0, 0, 100, Duration::from_secs(3));
    for at in 0..64 {
        client.submit_read((1 << 20) + at * 4096, vec![0; 4096]).unwrap();
    }
    client.submit(Request::Flush, 0, 0).unwrap();
    let stream = UnixStream::connect(server.folder.path("socket")).unwrap();
    let mut beside = Client::connect(stream, "other", &[]).unwrap();
    let begin = Instant::now();
    for at in 0..1000 {
        assert_eq!(read(&mut beside, at * 8192, 4096).unwrap(), [7; 4096]);
        write(&mut beside, at * 8192 + 4096, &[8; 4096]).unwrap();
    }
    flush(&mut beside).unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    drop((client, beside));
    let begin = Instant::now();
    let log = server.log();
    server.end(Signal::TERM);
    assert!(begin.elapsed() < Duration::from_secs(5), "it ends in {:?}: {log}", begin.elapsed());
    let left = std::fs::read(folder.path("other")).unwrap();
    assert!(left[4096..8192] == [8; 4096], "the other disk is written");
    bucket.settle();
}

/// Requests of a store that fails, closes connections and is late now and then, by a server and its clients.
#[test]
fn troubles_of_the_store_are_not_those_of_clients() {
    let bucket = Bucket::start(4);
    create(&bucket, "disk");
    let server = Server::start(&bucket, "disk", &[]);
    bucket.trouble.set(10, 10, 10, Duration::from_millis(30));
    let mut client = server.client();
    let mut random = Rng::with_seed(4);
    let mut model = vec![0; SIZE as usize];
    for round in 0..60u8 {
        let length = random.usize(1..=64) * 4096;
        let at = random.u64(0..=(SIZE - length as u64) / 4096) * 4096;
        write(&mut client, at, &vec![round; length]).unwrap();
        model[at as usize..][..length].fill(round);
        if random.u8(0..4) == 0 {
            flush(&mut client).unwrap();
            assert!(stored(&bucket, "disk").1 == model, "round {round}");
        }
        let at = random.usize(0..=(SIZE as usize - (1 << 18)) / 4096) * 4096;
        assert!(read(&mut client, at as u64, 1 << 18).unwrap() == model[at..][..1 << 18], "round {round}");
    }
    assert!(bucket.trouble.met.load(Ordering::Relaxed) > 20, "{:?}", bucket.trouble);
    bucket.trouble.set(0, 0, 0, Duration::ZERO);
    flush(&mut client).unwrap();
    drop(client);
    assert!(server.end(Signal::TERM));
    assert!(stored(&bucket, "disk").1 == model);
}

/// A store that answers too late is an error of the request, and of nothing else.
#[test]
fn a_store_without_answers_fails_requests_in_time() {
    let bucket = Bucket::start(5);
    create(&bucket, "disk");
    let server = Server::start(&bucket, "disk?timeout=4s", &[]);
    let mut client = server.client();
    write(&mut client, 0, &[1; 4096]).unwrap();
    flush(&mut client).unwrap();
    bucket.trouble.set(0, 0, 100, Duration::from_secs(60));
    let begin = Instant::now();
    assert!(read(&mut client, 1 << 20, 4096).unwrap_err().contains("EIO"));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    write(&mut client, PART, &[2; 4096]).unwrap();
    assert!(flush(&mut client).unwrap_err().contains("EIO"));
    bucket.trouble.set(0, 0, 0, Duration::ZERO);
    until("flushes succeed again", || flush(&mut client).is_ok());
    assert_eq!(read(&mut client, PART, 4096).unwrap(), [2; 4096]);
    assert_eq!(stored(&bucket, "disk").1[PART as usize..][..4096], [2; 4096]);
}

/// Observations of clients of a server that was killed, or asked to end, again and again, against the contents of the store.
#[test]
fn killed_servers_keep_what_was_flushed() {
    const CLIENTS: usize = 2;
    // Two parts, of which one is small: a flush takes less time than a round.
    const BYTES: u64 = PART + (512 << 10);
    let rounds = std::env::var("NIGH_KILLS").map_or(runs(30, 100), |text| text.parse().expect("a number"));
    let bucket = Bucket::start(6);
    create_with(&bucket, "disk", BYTES);
    let mut random = Rng::with_seed(6);
    let sectors = BYTES as usize / SECTOR;
    let shared = Shared { sectors, now: AtomicU64::new(0), values: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    let mut starts = vec![Start::default(); sectors];
    let (mut ops, mut flushes, mut leftovers) = (0, 0, 0);
    for round in 0..rounds {
        let server = Server::start(&bucket, "disk", &[]);
        // Sometimes, the store has trouble, too.
        match round % 4 {
            3 => bucket.trouble.set(5, 5, 5, Duration::from_millis(20)),
            _ => bucket.trouble.set(0, 0, 0, Duration::ZERO),
        }
        shared.is_over.store(false, Ordering::Relaxed);
        let is_told = round % 10 == 9;
        let time = Duration::from_micros(random.u64(0..800_000));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.u64(..)).collect();
        let socket = server.folder.path("socket");
        let (log, found) = std::thread::scope(|scope| {
            let (shared, socket) = (&shared, &socket);
            let work = |(client, seed)| scope.spawn(move || clients::work(shared, socket, "disk", client, seed));
            let workers: Vec<_> = seeds.into_iter().enumerate().map(work).collect();
            std::thread::sleep(time);
            let (is_clean, log) = server.end_with_log(if is_told { Signal::TERM } else { Signal::KILL });
            assert!(is_clean || !is_told, "round {round}: {log}");
            shared.is_over.store(true, Ordering::Relaxed);
            let found: Result<Vec<_>, String> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            (log, found)
        });
        let found = found.unwrap_or_else(|error| panic!("round {round}: {error}\n{log}"));
        let (histories, shares): (Vec<_>, Vec<bool>) = found.into_iter().unzip();
        bucket.settle();
        let (manifest, bytes) = stored(&bucket, "disk");
        let left = history::decode(0, &bytes).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let promise = if is_told { Promise::Acknowledged } else { Promise::Flushed };
        let is_shared = shares.iter().all(|shared| *shared);
        history::check(&starts, &histories, &left, promise, is_shared)
            .unwrap_or_else(|error| panic!("round {round}: {error}\n{log}"));
        starts = left.into_iter().map(|value| Start { value, ..Start::default() }).collect();
        ops += histories.iter().flat_map(|history| &history.ops).filter(|op| op.ended.is_some()).count();
        flushes += histories.iter().map(|history| history.flushes.len()).sum::<usize>();
        let is_named = |name: &String| {
            let object: Object = name.parse().expect("an object");
            manifest.object(object.part) == Some(object)
        };
        leftovers += bucket.parts("disk").iter().filter(|name| !is_named(name)).count();
    }
    println!("{rounds} servers ended: {ops} requests, {flushes} flushes, {leftovers} objects left over");
    assert!(flushes > 0 && ops > 0 && leftovers > 0);
    bucket.trouble.set(0, 0, 0, Duration::ZERO);
    let server = Server::start(&bucket, "disk", &[]);
    let named = stored(&bucket, "disk").0.objects();
    until("what the killed ones left is deleted", || bucket.parts("disk").len() == named);
    drop(server);
}

/// With TLS, by an authority that the environment names: the store is used in the sandbox, and one of another authority is not.
#[test]
fn a_store_is_reached_by_tls() {
    let pki = Pki::new();
    let pem = |name: &str| std::fs::read(pki.path(name)).unwrap();
    let certificates = CertificateDer::pem_slice_iter(&pem("server.pem")).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(certificates, key).unwrap();
    let bucket = Bucket::start_with(8, Some(Arc::new(config)));
    let environment = |command: &mut Command, authority: &str| {
        bucket.environment(command);
        command.env("SSL_CERT_FILE", pki.path(authority));
    };
    let create = |authority: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["object", "create", "s3://bucket/disk?timeout=2s", "--size", "8M"]);
        environment(&mut command, authority);
        command.output().unwrap()
    };
    let refused = create("stranger.pem");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.lines().count() == 1 && said.contains("certificate"), "{said}");
    let made = create("ca.pem");
    assert!(made.status.success(), "{made:?}");
    let server = Server::start_with("s3://bucket/disk", &[], |command: &mut Command| environment(command, "ca.pem"));
    let mut client = server.client();
    write(&mut client, 0, &[7; 4096]).unwrap();
    flush(&mut client).unwrap();
    assert_eq!(read(&mut client, 0, 4096).unwrap(), [7; 4096]);
    drop(client);
    assert!(server.end(Signal::TERM));
}

/// A store that others made, by `NIGH_OBJECT_TARGET=az://CONTAINER/NEW-PREFIX` and what its client needs in the environment:
/// written, replaced, taken over and read again. The disk stays there.
#[test]
fn a_store_of_others_keeps_a_disk() {
    let Ok(target) = std::env::var("NIGH_OBJECT_TARGET") else {
        println!("skipped: a_store_of_others_keeps_a_disk: NIGH_OBJECT_TARGET names no store");
        return;
    };
    let mut made = Command::new(env!("CARGO_BIN_EXE_nigh"));
    let made = made.args(["object", "create", &target, "--size", &SIZE.to_string()]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let start = |more: &str| Server::start_with(&format!("{target}{more}"), &[], |_| ());
    let first = start("");
    let mut client = first.client();
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8).collect();
    for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
        write(&mut client, at, piece).unwrap();
    }
    flush(&mut client).unwrap();
    for round in 1..5 {
        write(&mut client, 4096, &[round; 4096]).unwrap();
        flush(&mut client).unwrap();
    }
    let second = Server::start_with(&target, &["--take-over"], |_| ());
    let mut new = second.client();
    assert_eq!(read(&mut new, 0, 12288).unwrap(), [[0; 4096], [4; 4096], [2; 4096]].concat());
    write(&mut new, 0, &[9; 4096]).unwrap();
    flush(&mut new).unwrap();
    write(&mut client, 0, &[8; 4096]).unwrap();
    assert!(flush(&mut client).unwrap_err().contains("EIO"));
    drop((client, new));
    let log = first.logs("opened the disk: it is in epoch");
    first.end(Signal::TERM);
    assert!(second.end(Signal::TERM));
    let third = start(",read-only");
    let mut reader = third.client();
    assert_eq!(read(&mut reader, 0, 8192).unwrap(), [[9; 4096], [4; 4096]].concat());
    for (at, piece) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)).skip(1) {
        assert!(read(&mut reader, at, piece.len()).unwrap() == piece, "at {at}");
    }
    assert!(!log.contains("objects are left") && !log.contains("cannot list"), "{log}");
}

/// In the sandbox, which the log reports at the start.
#[test]
fn a_level_keeps_blocks_of_a_disk_in_a_store() {
    let bucket = Bucket::start(7);
    create(&bucket, "disk");
    let folder = Folder::new();
    let level = format!("file:{}:32M", folder.text("level"));
    let more = ["--level", &*level];
    let server = Server::start(&bucket, "disk", &more);
    until("the log says what the sandbox allows", || {
        let log = server.log();
        log.contains("sandboxed") || log.contains("does not limit files")
    });
    let mut client = server.client();
    for at in (0..SIZE).step_by(1 << 20) {
        write(&mut client, at, &vec![(at >> 20) as u8 + 1; 1 << 20]).unwrap();
    }
    flush(&mut client).unwrap();
    let asked_for_all = |client: &mut Client<UnixStream>| {
        bucket.trouble.requests.store(0, Ordering::Relaxed);
        for at in (0..SIZE).step_by(1 << 20) {
            assert!(read(client, at, 1 << 20).unwrap() == vec![(at >> 20) as u8 + 1; 1 << 20]);
        }
        bucket.trouble.requests.load(Ordering::Relaxed)
    };
    // A level whose disk is busy leaves blocks out, until they are read again.
    until("memory and the level have all blocks", || asked_for_all(&mut client) == 0);
    drop(client);
    assert!(server.end(Signal::TERM));
    let server = Server::start(&bucket, "disk", &more);
    let asked = asked_for_all(&mut server.client());
    assert!(asked < 9, "{asked} requests to the store, although the level has most blocks");
}
