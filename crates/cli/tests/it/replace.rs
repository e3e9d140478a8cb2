//! `nigh serve --replace`: a server takes the place of another one, and its clients meet no refused connection, no error and no older data.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_testkit::runs;

use crate::serving::{Folder, nigh, until};

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
const BLOCKS: u64 = SIZE / BLOCK as u64;

/// A server of a folder's `disk` at its `socket`, killed when dropped.
struct Server {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(folder: &Folder, arguments: &[&str]) -> Server {
        let (listen, control) = (format!("unix:{}", folder.text("socket")), folder.text("control"));
        let mut command = nigh(&["--listen", &listen, "--control", &control], arguments);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (all, read) = (lines.clone(), BufReader::new(process.stderr.take().unwrap()).lines());
        std::thread::spawn(move || read.map_while(Result::ok).for_each(|line| all.lock().unwrap().push(line)));
        Server { process, lines }
    }

    /// The first server, which serves when this returns.
    fn first(folder: &Folder, arguments: &[&str]) -> Server {
        let server = Server::start(folder, arguments);
        until("it serves", || server.said("serving disk").is_some());
        server
    }

    fn said(&self, what: &str) -> Option<String> {
        self.lines.lock().unwrap().iter().find(|line| line.contains(what)).cloned()
    }

    fn all(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for its end, and returns its exit code.
    fn code(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                // Its last lines are read.
                std::thread::sleep(Duration::from_millis(50));
                return status.code();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not end:\n{}", self.all());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(mut self) {
        nigh_testkit::tools::run("kill", &["-TERM", &self.process.id().to_string()]);
        assert_eq!(self.code(), Some(0), "{}", self.all());
    }

    /// Has a server with `arguments` and `--replace` take its place.
    fn replaced(&mut self, folder: &Folder, arguments: &[&str]) -> Server {
        let next = Server::start(folder, &[arguments, &["--replace"]].concat());
        assert_eq!(self.code(), Some(0), "{}\nthe next one:\n{}", self.all(), next.all());
        until("it took the place", || next.said("took the place").is_some());
        next
    }
}

fn connect(folder: &Folder) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(folder.path("socket")).unwrap(), "disk", &[]).unwrap()
}

/// The error of a server that cannot take the place of another.
fn refused(folder: &Folder, arguments: &[&str]) -> String {
    let mut server = Server::start(folder, &[arguments, &["--replace"]].concat());
    assert_eq!(server.code(), Some(2), "{}", server.all());
    server.all()
}

/// A client that connects again when its connection ends: writes and reads blocks of which it knows the contents, and flushes.
struct Worker {
    socket: PathBuf,
    client: Option<Client<UnixStream>>,
    rng: Rng,
    first: u64,
    blocks: u64,
    /// The last acknowledged value of each block.
    acknowledged: HashMap<u64, u8>,
    /// How long requests took at most.
    longest: Duration,
    requests: u64,
    connections: u64,
    /// Connections that ended before an export was chosen.
    cut_off: u64,
}

impl Worker {
    fn new(folder: &Folder, number: u64, of: u64) -> Worker {
        let (blocks, rng) = (BLOCKS / of, Rng::with_seed(number));
        let (acknowledged, longest) = (HashMap::new(), Duration::ZERO);
        let (socket, first) = (folder.path("socket"), number * blocks);
        let (requests, connections, cut_off) = (0, 0, 0);
        let client = None;
        Worker { socket, client, rng, first, blocks, acknowledged, longest, requests, connections, cut_off }
    }

    /// Does something, and again on a new connection if the one that there was ended. A refused connection is a failure.
    fn step(&mut self) {
        let begin = Instant::now();
        let block = self.first + self.rng.u64(..self.blocks);
        let choice = self.rng.u8(..8);
        let value = self.rng.u8(1..);
        loop {
            let done = match self.client.as_mut() {
                None => {
                    let stream = UnixStream::connect(&self.socket).expect("nobody refuses a connection");
                    match Client::connect(stream, "disk", &[]) {
                        Ok(client) => {
                            self.connections += 1;
                            self.client = Some(client);
                        }
                        // The last ones that the old server accepted.
                        Err(_) => self.cut_off += 1,
                    }
                    continue;
                }
                Some(client) => match choice {
                    0 => client.flush(),
                    1..4 => client.write(block * BLOCK as u64, &[value; BLOCK]).map(|()| {
                        self.acknowledged.insert(block, value);
                    }),
                    _ => client.read(block * BLOCK as u64, BLOCK).map(|read| {
                        let expected = self.acknowledged.get(&block).copied().unwrap_or(0);
                        assert!(read.iter().all(|byte| *byte == expected), "block {block}: {} for {expected}", read[0]);
                    }),
                },
            };
            match done {
                Ok(()) => break,
                Err(nigh_nbd::client::Error::Io(_)) => self.client = None,
                Err(error) => panic!("the client sees {error}"),
            }
        }
        self.requests += 1;
        self.longest = self.longest.max(begin.elapsed());
    }

    /// Every acknowledged block is there.
    fn check(&self, bytes: &[u8]) {
        for (block, value) in &self.acknowledged {
            let at = *block as usize * BLOCK;
            assert!(bytes[at..at + BLOCK].iter().all(|byte| byte == value), "block {block} is lost");
        }
    }
}

#[test]
fn clients_go_on_over_many_replacements() {
    let rounds = runs(6, 50);
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", SIZE));
    let mut server = Server::first(&folder, &[&disk]);
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let (mut worker, stop) = (Worker::new(&folder, number, 3), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    worker.step();
                }
                worker
            })
        })
        .collect();
    for _ in 0..rounds {
        std::thread::sleep(Duration::from_millis(50));
        server = server.replaced(&folder, &[&disk]);
    }
    stop.store(true, Ordering::Relaxed);
    let workers: Vec<Worker> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    server.end();
    assert!(!folder.path("socket").exists() && !folder.path("control").exists(), "the sockets are left behind");
    let bytes = std::fs::read(folder.path("image")).unwrap();
    workers.iter().for_each(|worker| worker.check(&bytes));
    let longest = workers.iter().map(|worker| worker.longest).max().unwrap();
    let requests: u64 = workers.iter().map(|worker| worker.requests).sum();
    let cut_off: u64 = workers.iter().map(|worker| worker.cut_off).sum();
    println!(
        "{rounds} replacements, {requests} requests, the longest took {:.3} s; {cut_off} connections were cut off at their beginning",
        longest.as_secs_f64()
    );
    assert!(workers.iter().all(|worker| worker.connections > rounds), "every worker was disconnected by every one");
}

#[test]
fn everything_moves_to_the_next_server() {
    let folder = Folder::new();
    let (image, log) = (folder.empty_image("image", SIZE), folder.text("log"));
    let (disk, level) = (format!("disk={image},write-log={log}:2M"), format!("file:{}:8M", folder.text("level")));
    let arguments =
        ["--level", &level, "--metrics", "127.0.0.1:0", "--listen", "tcp:127.0.0.1:0", "--socket-mode", "0660", &disk];
    let socket = format!("unix:{}", folder.text("socket"));
    let arguments = [&["--listen", &socket][..], &arguments].concat();
    let control = folder.text("control");
    let mut server = {
        let mut command = nigh(&["--control", &control], &arguments);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (all, read) = (lines.clone(), BufReader::new(process.stderr.take().unwrap()).lines());
        std::thread::spawn(move || read.map_while(Result::ok).for_each(|line| all.lock().unwrap().push(line)));
        Server { process, lines }
    };
    until("it serves", || server.said("serving disk").is_some());
    let address = |what: &str| server.said(what).unwrap().rsplit(' ').next().unwrap().to_owned();
    let (tcp, metrics) = (address("listening on tcp:").replace("tcp:", ""), address("metrics on "));
    let mut client = connect(&folder);
    for block in 0..64 {
        client.write(block * BLOCK as u64, &[block as u8; BLOCK]).unwrap();
    }
    // The ports that the system chose.
    let (tcp_flag, mut next) = (format!("tcp:{tcp}"), arguments.clone());
    for (at, value) in [("--metrics", &metrics), ("--listen", &tcp_flag)] {
        let at = next.iter().rposition(|argument| *argument == at).unwrap();
        next[at + 1] = value;
    }
    let mut next: Vec<&str> = next;
    next.extend(["--replace", "--control", &control]);
    let mut process = nigh(&[], &next).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    assert_eq!(server.code(), Some(0), "{}", server.all());
    let mut lines = String::new();
    while !lines.contains("took the place") {
        assert!(said.read_line(&mut lines).unwrap() > 0, "{lines}");
    }
    let (mut over_tcp, mut again) =
        (Client::connect(TcpStream::connect(&tcp).unwrap(), "disk", &[]).unwrap(), connect(&folder));
    for block in 0..64 {
        assert_eq!(over_tcp.read(block * BLOCK as u64, BLOCK).unwrap(), [block as u8; BLOCK]);
        assert_eq!(again.read(block * BLOCK as u64, BLOCK).unwrap(), [block as u8; BLOCK]);
    }
    let mut scrape = TcpStream::connect(&metrics).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    scrape.read_to_string(&mut page).unwrap();
    assert!(page.contains("nigh_"), "{page}");
    let status = folder.status();
    let hits = status["exports"][0]["hits"].as_u64().unwrap();
    assert!(hits > 0, "nothing was in memory: {status:#}");
    nigh_testkit::tools::run("kill", &["-TERM", &process.id().to_string()]);
    assert!(process.wait().unwrap().success());
    for name in ["socket", "control"] {
        assert!(!folder.path(name).exists(), "{name} is left behind");
    }
}

#[test]
fn a_server_that_could_not_serve_changes_nothing() {
    let folder = Folder::new();
    let (image, other) = (folder.empty_image("image", SIZE), folder.empty_image("other", SIZE));
    let (disk, moved, missing) =
        (format!("disk={image}"), format!("disk={other}"), format!("disk={}", folder.text("missing")));
    let said = refused(&folder, &[&disk]);
    assert!(said.contains("no server runs at") && said.contains("without --replace"), "{said}");

    let server = Server::first(&folder, &[&disk]);
    let mut client = connect(&folder);
    client.write(0, &[7; BLOCK]).unwrap();
    let second = format!("second={other}");
    for (arguments, words) in [
        (&[&second as &str][..], "serves export disk, which this one would not"),
        (&[&moved], "would meet another disk"),
        (&[&missing], "missing"),
        (&[&disk, &format!("second={}", folder.text("missing"))], "missing"),
        (&[&disk, "--tls", "certificate=/no-such,key=/no-such"], "/no-such"),
    ] {
        let said = refused(&folder, arguments);
        assert!(said.contains(words), "{words}: {said}");
    }
    let (control, listen) = (folder.text("control"), format!("unix:{}", folder.text("elsewhere")));
    let output = nigh(&["--listen", &listen, "--control", &control, "--replace"], &[&disk]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("listens on unix:") && said.contains("could not connect again"), "{said}");
    // The same connection goes on.
    assert_eq!(client.read(0, BLOCK).unwrap(), [7; BLOCK]);
    client.write(0, &[8; BLOCK]).unwrap();
    assert!(server.said("takes this one's place").is_none(), "{}", server.all());
    server.end();

    // As systemd starts it.
    let control = folder.text("control");
    let program = env!("CARGO_BIN_EXE_nigh");
    let script = format!(
        "SYSTEMD_EXEC_PID=$$ exec {program} serve --memory 16M --control {control} --listen unix:{} {disk}",
        folder.text("socket")
    );
    let mut unit = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap();
    until("it serves", || UnixStream::connect(folder.path("socket")).is_ok());
    let said = refused(&folder, &[&disk]);
    assert!(said.contains("systemctl restart"), "{said}");
    nigh_testkit::tools::run("kill", &["-TERM", &unit.id().to_string()]);
    assert!(unit.wait().unwrap().success());

    // A server of before knows no such command.
    let older = UnixListener::bind(folder.path("control")).unwrap();
    let answering = std::thread::spawn(move || {
        let (stream, _) = older.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let answer = "{\"schema\":1,\"error\":\"no command: unknown variant `offer`, expected one of `status`\"}\n";
        (&stream).write_all(answer.as_bytes()).unwrap();
    });
    let said = refused(&folder, &[&disk]);
    assert!(said.contains("is of another version") && said.contains("SIGTERM"), "{said}");
    answering.join().unwrap();
}

/// A connection that asks as a successor does.
struct Asker(BufReader<UnixStream>);

impl Asker {
    fn ask(&mut self, command: &str) -> Option<serde_json::Value> {
        writeln!(self.0.get_mut(), "{{\"command\":\"{command}\"}}").unwrap();
        let mut line = String::new();
        // The server may end first.
        let read = self.0.read_line(&mut line).unwrap_or(0);
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }
}

#[test]
fn a_successor_that_dies_is_noticed() {
    let folder = Folder::new();
    let image = folder.empty_image("image", SIZE);
    // Its writes take long.
    let disk = format!("disk=delay:30ms:{image}");
    let mut server = Server::first(&folder, &["--depth", "1", &disk]);
    let asker = || Asker(BufReader::new(UnixStream::connect(folder.path("control")).unwrap()));
    let mut client = connect(&folder);
    for block in 0..64 {
        client.write(2 * block * BLOCK as u64, &[3; BLOCK]).unwrap();
    }
    // While everything is written, it leaves.
    let mut successor = asker();
    let offer = successor.ask("offer").unwrap();
    assert_eq!(offer["offer"]["process"], server.process.id(), "{offer:#}");
    writeln!(successor.0.get_mut(), "{{\"command\":\"hand-over\"}}").unwrap();
    until("it begins", || server.said("takes this one's place").is_some());
    drop(successor);
    until("it notices", || server.said("serving on").is_some());
    client.write(0, &[4; BLOCK]).unwrap();
    // After everything is written, it leaves.
    let mut successor = asker();
    successor.ask("offer").unwrap();
    let answer = successor.ask("hand-over").unwrap();
    assert_eq!(answer["departure"]["unwritten"], serde_json::json!([]), "{answer:#}");
    drop(successor);
    assert_eq!(server.code(), Some(2));
    let said = server.all();
    assert!(said.contains("ended before it served: nothing is served now; everything is written"), "{said}");
    let is_left = ["socket", "control"].map(|name| folder.path(name).exists());
    assert_eq!(is_left, [false; 2], "the next server would take it for killed");
    let bytes = std::fs::read(&image).unwrap();
    assert!((0..64).all(|block| bytes[2 * block * BLOCK] == if block == 0 { 4 } else { 3 }));
}

#[test]
fn what_is_flushed_survives_a_kill_of_either_at_any_moment() {
    let rounds = runs(6, 100);
    let mut rng = Rng::with_seed(5);
    for round in 0..rounds {
        let folder = Folder::new();
        let disk = format!("disk={}", folder.empty_image("image", SIZE));
        let mut old = Server::first(&folder, &[&disk]);
        let mut client = connect(&folder);
        let written: Vec<(u64, u8)> = (0..200).map(|_| (rng.u64(..BLOCKS), rng.u8(1..))).collect();
        let mut expected = HashMap::new();
        for (block, value) in &written {
            client.write(block * BLOCK as u64, &[*value; BLOCK]).unwrap();
            expected.insert(*block, *value);
        }
        client.flush().unwrap();
        // Not flushed, to other blocks, so that there is something to write.
        for block in (0..BLOCKS).filter(|block| !expected.contains_key(block)).take(500) {
            client.write(block * BLOCK as u64, &[1; BLOCK]).unwrap();
        }
        let mut new = Server::start(&folder, &[&disk, "--replace"]);
        let kills_old = rng.bool();
        std::thread::sleep(Duration::from_micros(rng.u64(..120_000)));
        let victim = if kills_old { &mut old } else { &mut new };
        victim.process.kill().unwrap();
        victim.process.wait().unwrap();
        drop((old, new, client));
        let server = Server::first(&folder, &[&disk, "--accept-loss"]);
        let mut client = connect(&folder);
        for (block, value) in &expected {
            let read = client.read(block * BLOCK as u64, BLOCK).unwrap();
            assert!(read.iter().all(|byte| byte == value), "round {round}, old {kills_old}: block {block} is lost");
        }
        drop(client);
        server.end();
    }
}

#[test]
fn the_next_server_is_warm() {
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", SIZE));
    let arguments = ["--memory", "8M", &disk];
    let mut server = Server::first(&folder, &arguments);
    let mut client = connect(&folder);
    let read = |client: &mut Client<UnixStream>| {
        for block in 0..1000 {
            client.read(3 * block * BLOCK as u64, BLOCK).unwrap();
        }
    };
    read(&mut client);
    let next = server.replaced(&folder, &arguments);
    until("all is loaded", || next.said("loaded what was in memory").is_some());
    until("nothing is being loaded", || folder.status()["loading"].as_u64() == Some(0));
    read(&mut connect(&folder));
    let status = folder.status();
    assert_eq!((&status["exports"][0]["hits"], &status["exports"][0]["misses"]), (&1000.into(), &0.into()));
    next.end();
}

/// A process that began after the servers so far reads the disk.
fn newcomer(folder: &Folder) -> bool {
    // Beginnings are counted in hundredths of a second.
    std::thread::sleep(Duration::from_millis(20));
    let uri = format!("nbd+unix:///disk?socket={}", folder.text("socket"));
    Command::new("nbdinfo").args(["--size", &uri]).output().unwrap().status.success()
}

#[test]
fn after_a_kill_in_write_back_mode_a_client_that_goes_on_sees_an_error() {
    if !nigh_testkit::tools::installed("after_a_kill_in_write_back_mode_a_client_that_goes_on_sees_an_error", "nbdinfo")
    {
        return;
    }
    let folder = Folder::new();
    let (image, log) = (folder.empty_image("image", SIZE), folder.text("log"));
    let disk = format!("disk={image}");
    let refused = || {
        let stream = UnixStream::connect(folder.path("socket")).unwrap();
        Client::connect(stream, "disk", &[]).err().map(|error| error.to_string())
    };
    let kill = |mut server: Server| {
        server.process.kill().unwrap();
        server.process.wait().unwrap();
    };
    let server = Server::first(&folder, &[&disk]);
    connect(&folder).write(0, &[5; BLOCK]).unwrap();
    kill(server);
    let mut server = Server::first(&folder, &[&disk]);
    assert!(refused().expect("it is refused").contains("was killed"), "{:?}", refused());
    until("it is logged", || server.said("nigh ctl accept-loss").is_some());
    assert!(newcomer(&folder), "a client that began later relies on nothing");
    // The state moves to the next server.
    server = server.replaced(&folder, &[&disk]);
    assert!(refused().is_some(), "the next server forgot it");
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_nigh"));
    assert!(ctl.args(["ctl", "--control", &folder.text("control"), "accept-loss"]).status().unwrap().success());
    assert_eq!(refused(), None);
    kill(server);
    let server = Server::first(&folder, &[&disk, "--accept-loss"]);
    assert_eq!(refused(), None);
    server.end();
    // After an orderly end, and where nothing acknowledged can be lost.
    let server = Server::first(&folder, &[&disk]);
    assert_eq!(refused(), None);
    server.end();
    for arguments in [&[&disk as &str, "--write-mode", "through"][..], &[&format!("{disk},write-log={log}:2M")]] {
        kill(Server::first(&folder, arguments));
        let server = Server::first(&folder, arguments);
        assert_eq!(refused(), None, "{arguments:?}");
        server.end();
    }
}
