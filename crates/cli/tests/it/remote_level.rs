//! `nigh serve --level tcp:…` with `nigh level`: hits come from the level, and nothing that it returns is stale, however the level
//! fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use serde_json::Value;

use crate::serving::pki::Pki;
use crate::serving::{Folder, Server, address as address_in, until, until_listening};

pub(crate) const BLOCK: u64 = 4096;
/// Blocks of the disk: more than memory holds.
pub(crate) const BLOCKS: u64 = 2048;

pub(crate) struct Level {
    pub(crate) process: Child,
    pub(crate) address: String,
    said: Vec<String>,
    later: Arc<Mutex<Vec<String>>>,
}

impl Level {
    pub(crate) fn start(address: &str) -> Level {
        Level::start_with(address, &[])
    }

    fn start_with(address: &str, arguments: &[&str]) -> Level {
        Level::start_with_memory(address, &[&["--memory", "16M"], arguments].concat())
    }

    pub(crate) fn start_with_memory(address: &str, arguments: &[&str]) -> Level {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["level", "--listen", address]).args(arguments).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let said = until_listening(&mut lines);
        let address = address_in(&said, "listening");
        // Reads the rest, so that the server can go on to log.
        let later: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = later.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| log.lock().unwrap().push(line)));
        Level { process, address, said, later }
    }

    /// Ends in order.
    fn end(mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().unwrap().success());
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap().success());
    }

    /// The lines with `what` that it logged since it listens.
    fn logged(&self, what: &str) -> Vec<String> {
        self.later.lock().unwrap().iter().filter(|line| line.contains(what)).cloned().collect()
    }

    fn port(&self) -> &str {
        self.address.rsplit_once(':').unwrap().1
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(folder: &Folder, level: &str) -> Server {
    serve_by("lirs", folder, level)
}

/// The disk is slower than the level, also on a busy machine: the level is not left out.
fn serve_by(policy: &str, folder: &Folder, level: &str) -> Server {
    let level = format!("{level}:16M");
    let disk = format!("disk={}", slow_image(folder));
    let control = folder.text("control");
    folder.serve(&["--memory", "1M", "--policy", policy, "--level", &level, "--control", &control, &disk])
}

/// A disk that is slower than a level, also on a busy machine: the level would be left out otherwise.
fn slow_image(folder: &Folder) -> String {
    format!("delay:2ms:{}", folder.text("image"))
}

pub(crate) fn connect(server: &Server) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap()
}

fn level_status(folder: &Folder) -> Value {
    folder.status()["levels"][0].clone()
}

pub(crate) fn count(folder: &Folder, name: &str) -> u64 {
    level_status(folder)[name].as_u64().unwrap()
}

/// The contents of `block` in its state number `version`.
pub(crate) fn contents(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![(block ^ version) as u8; BLOCK as usize];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

pub(crate) fn image(folder: &Folder) {
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
    fail_the_level("lirs");
}

/// The cache directs the level, and blocks pass through memory.
#[test]
fn no_stale_byte_however_a_directed_level_fails() {
    fail_the_level("ulc");
}

fn fail_the_level(policy: &str) {
    let mut level = Level::start("tcp:127.0.0.1:0");
    let address = level.address.clone();
    write_and_read(policy, &address, |folder| {
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
            until("connecting again", || level_status(folder)["off"] == false);
        }
    });
}

/// A network between a server and its level that can be cut, or slow. Messages sent meanwhile arrive afterwards.
pub(crate) struct Wire {
    pub(crate) address: String,
    is_cut: Arc<AtomicBool>,
    /// For what is sent at a time, in ms.
    pub(crate) delay_ms: Arc<AtomicU64>,
}

impl Wire {
    pub(crate) fn to(level: &Level) -> Wire {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let is_cut = Arc::new(AtomicBool::new(false));
        let delay_ms = Arc::new(AtomicU64::new(0));
        let (cut, delay, level) =
            (is_cut.clone(), delay_ms.clone(), level.address.strip_prefix("tcp:").unwrap().to_owned());
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let Ok(other) = TcpStream::connect(&level) else { return };
                let back = (other.try_clone().unwrap(), socket.try_clone().unwrap());
                for (from, to) in [(socket, other), back] {
                    let (cut, delay) = (cut.clone(), delay.clone());
                    std::thread::spawn(move || Wire::carry(from, to, &cut, &delay));
                }
            }
        });
        Wire { address, is_cut, delay_ms }
    }

    fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool, delay_ms: &AtomicU64) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut buffer) {
            std::thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
            while is_cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
            }
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}

/// The network between both is cut again and again; what was on its way arrives late.
#[test]
fn no_stale_byte_however_the_network_fails() {
    for policy in ["lirs", "ulc"] {
        let level = Level::start("tcp:127.0.0.1:0");
        let wire = Wire::to(&level);
        write_and_read(policy, &wire.address, |folder| {
            for _ in 0..6 {
                std::thread::sleep(Duration::from_millis(700));
                wire.is_cut.store(true, Ordering::SeqCst);
                until("losing it", || level_status(folder)["off"] == true);
                std::thread::sleep(Duration::from_millis(500));
                wire.is_cut.store(false, Ordering::SeqCst);
                until("connecting again", || level_status(folder)["off"] == false);
            }
        });
        assert!(level.logged("connected again").len() >= 3, "{:?}", level.logged("connected"));
    }
}

/// One client writes and two read one export, while `fail` disturbs its level at `address`.
fn write_and_read(policy: &str, address: &str, fail: impl FnOnce(&Folder)) {
    let folder = Folder::new();
    image(&folder);
    let server = serve_by(policy, &folder, address);
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
        fail(&folder);
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
    let level = format!("tcp:{}:16M,required", free.local_addr().unwrap());
    drop(free);
    let small = format!("file:{}:72M", folder.text("small"));
    let cases = [
        (["serve", "--stdio", "--level", &level, &disk].to_vec(), "cannot connect"),
        (["serve", "--stdio", "--level", "tcp:host:16M", &disk].to_vec(), "it is written tcp:HOST:PORT:SIZE"),
        (["level", "--listen", "tcp:0.0.0.0:0", "--memory", "1M"].to_vec(), "--insecure-tcp"),
        (["level", "--listen", "127.0.0.1:1", "--memory", "1M"].to_vec(), "tcp:HOST:PORT"),
        (["level", "--listen", "tcp:127.0.0.1:0", "--memory", "x"].to_vec(), "expected a size"),
        (
            ["level", "--listen", "tcp:127.0.0.1:0", "--memory", "1M", "--level", "tcp:x:1:1M"].to_vec(),
            "it is written file:PATH:SIZE",
        ),
        (
            ["level", "--listen", "tcp:127.0.0.1:0", "--memory", "8M", "--level", &small].to_vec(),
            "larger than --memory",
        ),
        (
            ["serve", "--stdio", "--level", "tcp:h:1:16M", "--level", "tcp:h:1:16M", &disk].to_vec(),
            "this server is named twice",
        ),
        (
            ["serve", "--stdio", "--level", "tcp:h:1:16M", "--level", &small, &disk].to_vec(),
            "a level on other hosts is the last one",
        ),
        (
            ["level", "--listen", "tcp:127.0.0.1:0", "--memory", "1M", "--tls", "certificate=a,key=k"].to_vec(),
            "--tls needs client-ca=FILE",
        ),
        (["level", "--listen", "tcp:127.0.0.1:0", "--memory", "1M", "--metrics", "0.0.0.0:0"].to_vec(), "token=FILE"),
        (["serve", "--stdio", "--level", "tls:localhost:1:16M", &disk].to_vec(), "a level over tls needs ca=FILE"),
        (["serve", "--stdio", "--level", "tcp:localhost:1:16M,key=k", &disk].to_vec(), "key= has no effect"),
        (["serve", "--stdio", "--level", "tcp:localhost:1:16M,wait=x", &disk].to_vec(), "wait is a time"),
        (
            ["serve", "--stdio", "--level", "tcp:localhost:1:16M", "--level-wait", "1s", &disk].to_vec(),
            "--level-wait is now written as in --level tcp:HOST:PORT:SIZE,wait=TIME",
        ),
    ];
    for (arguments, expected) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(&arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let errors: Vec<&str> = text.lines().filter(|line| !line.contains(" INFO ")).collect();
        assert!(!output.status.success() && errors.len() == 1 && errors[0].contains(expected), "{arguments:?}: {text}");
    }
}

/// The certificates of a level server.
fn lend_over_tls(pki: &Pki) -> String {
    let path = |name: &str| pki.path(name).display().to_string();
    format!("certificate={},key={},client-ca={}", path("server.pem"), path("server.key"), path("ca.pem"))
}

/// The options of the level at its clients, with the certificate in the folder `name`.
fn certificates(pki: &Pki, name: &str) -> String {
    let path = |name: &str| pki.path(name).display().to_string();
    let [certificate, key] = ["cert", "key"].map(|file| path(&format!("{name}/client-{file}.pem")));
    format!(",ca={},certificate={certificate},key={key}", path("ca.pem"))
}

fn serve_with(folder: &Folder, level: &str, options: &str, more: &[&str]) -> Server {
    serve_disk(folder, &folder.text("image"), level, options, more)
}

fn serve_disk(folder: &Folder, disk: &str, level: &str, options: &str, more: &[&str]) -> Server {
    let level = format!("{level}:16M{options}");
    let disk = format!("disk={disk}");
    let control = folder.text("control");
    let mut arguments = vec!["--memory", "1M", "--level", &level, "--control", &control, &disk];
    arguments.extend(more);
    folder.serve(&arguments)
}

fn ctl(control: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    let output = command.args(["ctl", "--control", control]).args(arguments).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// The answer of a server of statistics to GET `path`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a metric without labels, or with those given.
fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[test]
fn over_tls_the_certificate_names_the_client() {
    let (folder, pki) = (Folder::new(), Pki::new());
    image(&folder);
    pki.client("alice", &["alice.example"], true);
    pki.client("bob", &[], true);
    pki.client("eve", &[], false);
    let lent = lend_over_tls(&pki);
    let mut flags = vec!["--tls", &*lent];
    let control = folder.text("level-control");
    flags.extend(["--control", &control]);
    let level = Level::start_with("tcp:localhost:0", &flags);
    let address = format!("tls:localhost:{}", level.port());
    for (client, name) in [("alice", "alice.example"), ("bob", "bob")] {
        let server = serve_disk(&folder, &slow_image(&folder), &address, &certificates(&pki, client), &[]);
        let mut client = connect(&server);
        read_all(&mut client, 0);
        until("storing", || count(&folder, "stores") > BLOCKS / 2);
        read_all(&mut client, 0);
        let (hits, mismatches) = (count(&folder, "hits"), count(&folder, "mismatches"));
        assert!(hits > BLOCKS / 4 && mismatches == 0, "{hits} hits, {mismatches} mismatches");
        let status: Value = serde_json::from_str(&ctl(&control, &["status", "--json"])).unwrap();
        assert_eq!(status["clients"][0]["name"], name, "{status}");
        server.end();
        until("forgetting", || {
            let status: Value = serde_json::from_str(&ctl(&control, &["status", "--json"])).unwrap();
            status["clients"].as_array().unwrap().is_empty()
        });
    }
    // A certificate of another authority; none; a server of another authority.
    let refused = |address: &str, options: &str| {
        let disk = format!("disk={}", folder.text("image"));
        let level = format!("{address}:16M,required{options}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["serve", "--stdio", "--memory", "1M", "--level", &level, &disk]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
    };
    let line = refused(&address, &certificates(&pki, "eve"));
    assert!(line.contains("UnknownCA") || line.contains("DecryptError") || line.contains("BadCertificate"), "{line}");
    until("logging", || !level.logged("rejected: TLS").is_empty());
    let line = refused(&level.address, "");
    assert!(line.contains("does not speak the protocol of levels") || line.contains("closed the connection"), "{line}");
    let line = refused(&address, &certificates(&pki, "alice").replace("/ca.pem", "/stranger.pem"));
    assert!(line.contains("UnknownIssuer"), "{line}");
    let line = refused(&address.replace("localhost", "127.0.0.1"), &certificates(&pki, "alice"));
    assert!(line.contains("not valid for name"), "{line}");
    // The certificates can be replaced, and a wrong file changes nothing.
    assert_eq!(ctl(&control, &["reload"]), "");
    std::fs::write(pki.path("server.pem"), "nothing").unwrap();
    assert!(ctl(&control, &["reload"]).contains("has no certificate in PEM form"));
    let server = serve_with(&folder, &address, &certificates(&pki, "bob"), &[]);
    assert_eq!(level_status(&folder)["off"], false);
    server.end();
}

/// Of two servers with one name, the first has the level until it ends; both sides log that. The second one takes over then.
#[test]
fn two_servers_with_one_name_do_not_take_the_level_from_each_other() {
    let (folder, other) = (Folder::new(), Folder::new());
    image(&folder);
    image(&other);
    let level = Level::start("tcp:127.0.0.1:0");
    let first = serve_with(&folder, &level.address, ",name=twin", &[]);
    assert_eq!(level_status(&folder)["off"], false);
    let second = serve_with(&other, &level.address, ",name=twin", &[]);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!((level_status(&folder)["off"].clone(), count(&folder, "lost")), (false.into(), 0));
    assert_eq!((level_status(&other)["off"].clone(), count(&other, "lost")), (true.into(), 0));
    let logged = level.logged("another server with this name has the level");
    assert!(logged.len() == 1 && logged[0].contains("twin") && logged[0].contains("its own name="), "{logged:?}");
    let said =
        second.all("another server with this name has the level, twin: give each server its own name= behind --level");
    assert_eq!(said.len(), 1, "{said:?}");
    let mut client = connect(&second);
    read_all(&mut client, 0);
    first.kill();
    until("taking over", || level_status(&other)["off"] == false);
    read_all(&mut client, 0);
    second.end();
}

#[test]
fn what_a_level_server_does_can_be_seen() {
    let folder = Folder::new();
    image(&folder);
    let control = folder.text("level-control");
    let level = Level::start_with("tcp:127.0.0.1:0", &["--metrics", "127.0.0.1:0", "--control", &control]);
    let metrics = address_in(&level.said, "metrics");
    let server = serve_with(&folder, &level.address, ",name=one", &["--metrics", "127.0.0.1:0"]);
    let mut client = connect(&server);
    for _ in 0..3 {
        read_all(&mut client, 0);
    }
    until("storing", || count(&folder, "stores") > BLOCKS / 2);
    until("agreeing", || {
        let (page, status) = (get(&metrics, "/metrics"), level_status(&folder));
        let of = |name: &str| metric(&page, &format!("nigh_level_server_{name}_total"));
        of("hits") >= status["hits"].as_u64().unwrap() && of("stores") == status["stores"].as_u64().unwrap()
    });
    let page = get(&metrics, "/metrics");
    let of = |name: &str| metric(&page, &format!("nigh_level_server_{name}"));
    assert_eq!(of("retrieves_total"), of("hits_total") + of("misses_total"));
    assert_eq!((of("connections"), of("clients"), of("connections_accepted_total")), (1, 1, 1));
    assert_eq!(of("memory_bytes"), 16 << 20);
    assert!(of("received_bytes_total") > BLOCK * of("stores_total"), "{page}");
    assert!(of("sent_bytes_total") > BLOCK * of("hits_total"), "{page}");
    assert_eq!(of("client_stores_total{client=\"one\"}"), of("stores_total"));
    assert_eq!(of("client_used_bytes{client=\"one\"}"), of("used_bytes"));
    let json: Value = serde_json::from_str(get(&metrics, "/json").split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(json["clients"][0]["name"], "one");
    let text = ctl(&control, &["status"]);
    assert!(text.contains("memory   16 MiB") && text.contains("one  "), "{text}");
    assert_eq!(level.logged("sandbox").len(), 1);
    assert!(ctl(&control, &["flush"]).contains("'status' and 'reload' only"));
    let top = Command::new(env!("CARGO_BIN_EXE_nigh")).args(["top", "--once", "--control", &control]).output().unwrap();
    let text = String::from_utf8(top.stdout).unwrap();
    assert!(
        text.contains("of 16 MiB  1 connection  ") && text.contains("RETRIEVED/S") && text.contains("one  "),
        "{text}"
    );
    let mut json = Command::new(env!("CARGO_BIN_EXE_nigh"));
    let json = json.args(["top", "--json", "--interval", "0.1", "--control", &control]).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["clients"][0]["name"], &json["total"]["used_bytes"]), (&"one".into(), &json["used_bytes"]));

    // Others than clients: all are counted, and one line is logged.
    for _ in 0..20 {
        let mut stranger = TcpStream::connect(level.address.strip_prefix("tcp:").unwrap()).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = stranger.read_to_end(&mut Vec::new());
    }
    until("counting", || metric(&get(&metrics, "/metrics"), "nigh_level_server_connections_refused_total") == 20);
    let logged = level.logged("rejected");
    assert!(logged.len() == 1 && logged[0].contains("does not speak the protocol of levels"), "{logged:?}");

    // The client counts what it lost.
    let address = level.address.clone();
    drop(level);
    until("losing it", || level_status(&folder)["off"] == true);
    let _level = Level::start(&address);
    until("connecting", || level_status(&folder)["off"] == false);
    read_all(&mut client, 0);
    let page = get(&server.metrics(), "/metrics");
    let of = |name: &str| metric(&page, &format!("nigh_{name}_total{{level=\"{address}\"}}"));
    assert_eq!((of("level_lost"), of("level_missed")), (1, count(&folder, "missed")));
    let text = ctl(&folder.text("control"), &["status"]);
    assert!(text.contains("MISSED") && text.contains("LOST"), "{text}");
    server.end();
}

/// Silent connections take no place of clients, however many there are.
#[test]
fn silent_connections_do_not_keep_clients_from_a_level() {
    let folder = Folder::new();
    image(&folder);
    let level = Level::start("tcp:127.0.0.1:0");
    // As many as `--connections` allows, and more.
    let address = level.address.strip_prefix("tcp:").unwrap();
    let silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begin = Instant::now();
    let server = serve(&folder, &level.address);
    let mut client = connect(&server);
    until("connecting", || level_status(&folder)["off"] == false);
    // Sooner than silent connections are closed anyway.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    read_all(&mut client, 0);
    until("storing", || count(&folder, "stores") > 0);
    assert_eq!(level.logged("say nothing").len(), 1);
    drop(silent);
    server.end();
}

/// Its activity is not part of its log.
#[test]
fn a_level_listens_whatever_it_logs() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for log in ["error", "debug"] {
        let address = format!("tcp:127.0.0.1:{port}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["level", "--listen", &address, "--memory", "16M", "--log", log]).stderr(Stdio::null());
        let mut level = command.spawn().unwrap();
        until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        level.kill().unwrap();
        level.wait().unwrap();
    }
}

/// With `wait=`, the start waits for a level that comes late, ends when its time is over, and can be interrupted.
#[test]
fn a_level_is_waited_for() {
    let folder = Folder::new();
    image(&folder);
    let address = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp:{}", socket.local_addr().unwrap())
    };
    let begin = Instant::now();
    let level = std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            Level::start(&address)
        });
        let server = serve_with(&folder, &address, ",wait=30s,required", &[]);
        let took = begin.elapsed();
        assert!((2..20).contains(&took.as_secs()), "{took:?}");
        assert_eq!(level_status(&folder)["off"], false);
        assert_eq!(server.all("waiting for the level").len(), 1);
        server.end();
        late.join().unwrap()
    });
    drop(level);
    let begin = Instant::now();
    let server = serve_with(&folder, &address, ",wait=2s", &[]);
    assert!((2..10).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(level_status(&folder)["off"], true);
    server.end();
    // Without the level, and with it required.
    let start = |time: &str| {
        let (level, disk) = (format!("{address}:16M,required,wait={time}"), format!("disk={}", folder.text("image")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command
            .args(["serve", "--stdio", "--level", &level, &disk])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let output = start("1s").wait_with_output().unwrap();
    assert!(!output.status.success() && String::from_utf8(output.stderr).unwrap().contains("cannot connect"));
    let begin = Instant::now();
    let mut waiting = start("1h");
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("waiting for the level")));
    assert!(Command::new("kill").arg(waiting.id().to_string()).status().unwrap().success());
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(20));
}

/// A level server that is cut off and returns has what it had; one that ends in order gives back what it used.
#[test]
fn a_connection_that_is_lost_costs_nothing_but_time() {
    let folder = Folder::new();
    image(&folder);
    let control = folder.text("level-control");
    let level = Level::start_with("tcp:127.0.0.1:0", &["--control", &control]);
    let server = serve(&folder, &level.address);
    let mut client = connect(&server);
    fill(&folder, &mut client);
    level.signal("-STOP");
    // It is noticed when something is asked for.
    until("losing it", || {
        read_all(&mut client, 0);
        level_status(&folder)["off"] == true
    });
    level.signal("-CONT");
    until("connecting again", || level_status(&folder)["off"] == false);
    assert_eq!(server.logged("connected to the level again; it has what it had").len(), 1);
    let (hits, missed) = (count(&folder, "hits"), count(&folder, "missed"));
    read_all(&mut client, 0);
    assert!(count(&folder, "hits") > hits + BLOCKS / 2, "it has nothing any more");
    assert_eq!((count(&folder, "missed"), count(&folder, "mismatches")), (missed, 0));
    server.end();
    until("giving it back", || {
        let status: Value = serde_json::from_str(&ctl(&control, &["status", "--json"])).unwrap();
        status["used_bytes"] == 0
    });
}

/// Reads the disk until most of it is in the level.
fn fill(folder: &Folder, client: &mut Client<UnixStream>) {
    until("storing", || {
        read_all(client, 0);
        level_status(folder)["stored"].as_u64().unwrap() > BLOCKS * 7 / 10
    });
}

/// With a file, a level server has more than its memory, and survives its own restart for clients that go on; after it was killed it
/// starts empty. Whatever happens to the file, no wrong byte is returned.
#[test]
fn a_level_server_with_a_file() {
    for policy in ["lirs", "ulc"] {
        let folder = Folder::new();
        image(&folder);
        let (control, file) = (folder.text("level-control"), folder.text("level-file"));
        let at = format!("file:{file}:96M");
        let start = |address: &str| {
            let more = ["--memory", "1M", "--level", &at, "--control", &control];
            Level::start_with_memory(address, &more)
        };
        let status = || -> Value { serde_json::from_str(&ctl(&control, &["status", "--json"])).unwrap() };
        let of_file = |name: &str| status()["file"][name].as_u64().unwrap();
        let level = start("tcp:127.0.0.1:0");
        let address = level.address.clone();
        let server = serve_by(policy, &folder, &address);
        let mut client = connect(&server);
        fill(&folder, &mut client);
        read_all(&mut client, 0);
        assert!(status()["used_bytes"].as_u64().unwrap() > BLOCKS * BLOCK / 2, "{}", status());
        assert!(of_file("writes") > 300 && of_file("reads") > 100, "{}", status());
        let text = ctl(&control, &["status"]);
        assert!(text.contains("in use") && text.contains("blocks read, 0 of them damaged"), "{text}");

        // It ends in order, and another one takes over.
        level.end();
        until("losing it", || level_status(&folder)["off"] == true);
        read_all(&mut client, 0);
        let level = start(&address);
        until("connecting again", || level_status(&folder)["off"] == false);
        assert_eq!(server.logged("connected to the level again; it has what it had").len(), 1);
        let (hits, missed) = (count(&folder, "hits"), count(&folder, "missed"));
        read_all(&mut client, 0);
        let found = count(&folder, "hits") - hits;
        assert!(
            found > BLOCKS / 3 && count(&folder, "missed") - missed < BLOCKS / 10,
            "{found} found, {policy}: {}",
            level_status(&folder)
        );

        // Its file is damaged.
        fill(&folder, &mut client);
        let whole = std::fs::read(&file).unwrap();
        let damaged: Vec<u8> = whole.iter().map(|byte| byte ^ 1).collect();
        {
            use std::os::unix::fs::FileExt;
            let file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
            file.write_all_at(&damaged[1 << 20..], 1 << 20).unwrap();
        }
        read_all(&mut client, 0);
        read_all(&mut client, 0);
        assert!(of_file("damaged") > 0 && count(&folder, "mismatches") == count(&folder, "missed"), "{}", status());
        assert_eq!(level.logged("a block cannot be read as it was written").len(), 1);

        // It is killed.
        fill(&folder, &mut client);
        level.signal("-KILL");
        drop(level);
        until("losing it", || level_status(&folder)["off"] == true);
        let level = start(&address);
        assert!(level.said.iter().any(|line| line.contains("starts empty")), "{:?}", level.said);
        until("connecting again", || level_status(&folder)["off"] == false);
        read_all(&mut client, 0);
        fill(&folder, &mut client);
        read_all(&mut client, 0);
        server.end();
    }
}

/// The servers of a level share its places; one that is away for long is replaced by the others, and the list can change.
#[test]
fn several_servers_share_a_level() {
    // Enough for several extents of 4 MiB on each server.
    const MANY: u64 = 12 << 10;
    const AT_ONCE: u64 = 64;
    let folder = Folder::new();
    let bytes: Vec<u8> = (0..MANY).flat_map(|block| contents(block, 0)).collect();
    std::fs::write(folder.path("image"), &bytes).unwrap();
    let start = || Level::start_with_memory("tcp:127.0.0.1:0", &["--memory", "64M"]);
    let levels = [start(), start(), start()];
    let config = |sizes: &[(usize, &str)]| {
        let list: Vec<String> = sizes.iter().map(|(at, size)| format!("\"{}:{size}\"", levels[*at].address)).collect();
        // Slower than the level: see `serve_by`.
        let (image, control) = (format!("delay:10ms:{}", folder.text("image")), folder.text("control"));
        let text = format!(
            "policy = \"ulc\"\ncontrol = {control:?}\nlevel = [{}]\n\n[[export]]\nname = \"disk\"\ntarget = {image:?}\n",
            list.join(", ")
        );
        std::fs::write(folder.path("config"), text).unwrap();
    };
    config(&[(0, "32M"), (1, "32M")]);
    let server = folder.serve(&["--memory", "1M", "--config", &folder.text("config")]);
    let mut client = connect(&server);
    // Reads the disk, and returns the hits in the level.
    let mut hits = || {
        let before = count(&folder, "hits");
        for first in (0..MANY).step_by(AT_ONCE as usize) {
            let range = first * BLOCK..(first + AT_ONCE) * BLOCK;
            let read = client.read(range.start, (range.end - range.start) as usize).unwrap();
            assert!(read == bytes[range.start as usize..range.end as usize], "block {first} is not what was written");
        }
        count(&folder, "hits") - before
    };
    let servers = || level_status(&folder)["servers"].as_array().unwrap().clone();
    let state = |at: usize| {
        let address = levels[at].address.strip_prefix("tcp:").unwrap().to_owned();
        servers().into_iter().find(|server| server["address"] == address.as_str()).unwrap()
    };
    let most = MANY * 7 / 10;
    until("filling", || hits() > most);
    assert!(ctl(&folder.text("control"), &["status"]).contains("SERVER"));

    // One is away for a moment: its blocks are, too, and are there again.
    levels[0].signal("-STOP");
    until("losing one", || hits() > 0 && state(0)["off"] == true);
    let some = hits();
    assert!((MANY / 20..MANY * 19 / 20).contains(&some), "{some} hits with one of two servers");
    levels[0].signal("-CONT");
    until("having it again", || state(0)["off"] == false);
    let again = hits();
    assert!(again > some + MANY / 20, "{again} hits after {some}");

    // It is away for long: the other one takes over its places.
    levels[0].signal("-STOP");
    until("taking over", || hits() > 0 && !server.all("take over its places").is_empty());
    until("filling the other", || hits() > most);
    levels[0].signal("-CONT");
    until("having it again", || state(0)["off"] == false);
    until("filling both", || hits() > most);

    // Another list.
    config(&[(1, "16M"), (2, "48M")]);
    assert_eq!(ctl(&folder.text("control"), &["reload"]), "");
    until("changing", || servers().len() == 2 && state(2)["off"] == false);
    until("filling others", || hits() > most);
    assert_eq!((state(1)["bytes"].clone(), state(2)["bytes"].clone()), ((16 << 20).into(), (48 << 20).into()));
    // Two addresses of one server: the second is of no use, and the log notes that.
    let twin = levels[2].address.replace("127.0.0.1", "localhost");
    let text = std::fs::read_to_string(folder.path("config")).unwrap();
    let with_twin = text.replacen("]\n", &format!(", \"{twin}:1M\"]\n"), 1);
    std::fs::write(folder.path("config"), with_twin).unwrap();
    assert_eq!(ctl(&folder.text("control"), &["reload"]), "");
    until("telling twins apart", || !server.all("it is the same server as").is_empty());
    assert!(hits() > most && state(2)["off"] == false);
    // Other levels need a restart.
    let file = format!("level = [\"file:{}:9M\"", folder.text("fast"));
    std::fs::write(folder.path("config"), text.replace("level = [", &format!("{file}, "))).unwrap();
    let refused = ctl(&folder.text("control"), &["reload"]);
    assert!(refused.contains("can only change with a restart"), "{refused}");
    server.end();
}
