//! `nigh serve` in front of other NBD servers: qemu-nbd, nbdkit and nigh itself, which are killed, stopped and changed.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::serving::{Folder, Server, nigh};
use nigh_nbd::client::{Client, Error, Failure};
use nigh_nbd::{Errno, state};
use nigh_testkit::tools::{half_empty, installed, qemu_io, run};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;

/// A server in the rear, killed when dropped.
struct Rear {
    process: Child,
    socket: PathBuf,
}

impl Rear {
    fn start(tool: &str, arguments: &[&str], socket: PathBuf) -> Rear {
        let _ = std::fs::remove_file(&socket);
        let (stdin, stdout, stderr) = (Stdio::null(), Stdio::null(), Stdio::null());
        let process = Command::new(tool).args(arguments).stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        let rear = Rear { process, socket };
        wait_for("the rear server listens", || UnixStream::connect(&rear.socket).is_ok());
        rear
    }

    /// nbdkit with these arguments.
    fn nbdkit(folder: &Folder, arguments: &[&str]) -> Rear {
        let socket = folder.text("rear");
        Rear::start("nbdkit", &[&["-f", "-U", &socket][..], arguments].concat(), folder.path("rear"))
    }

    fn target(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.process.id().to_string()]);
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Rear {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn client(socket: &Path, export: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    Client::connect(stream, export, &["base:allocation"]).unwrap()
}

/// A server of the real binary in front of `target`, as the disk `d`.
fn front(folder: &Folder, target: &str, more: &[&str]) -> Server {
    let disk = format!("d={target}");
    folder.serve(&[&[disk.as_str()], more].concat())
}

fn fails_with(result: Result<impl std::fmt::Debug, Error>, errno: Errno) {
    match result {
        Err(Error::Failed(Failure { errno: found, .. })) if found == errno => {}
        other => panic!("{other:?} instead of {errno}"),
    }
}

/// How `nigh serve` with this disk refuses to start.
fn refusal(folder: &Folder, disk: &str) -> String {
    let listen = format!("unix:{}", folder.text("refused"));
    let Output { status, stderr, .. } = nigh(&["--listen", &listen], &[disk]).output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

/// A qcow2 image of qemu-nbd is cached and changed through nigh, and the image stays sound.
#[test]
fn qcow2_behind_qemu_nbd() {
    const SIZE: usize = 32 << 20;
    let name = "qcow2_behind_qemu_nbd";
    if !["qemu-nbd", "qemu-img"].iter().all(|tool| installed(name, tool)) {
        return;
    }
    let folder = Folder::new();
    let (image, socket) = (folder.text("disk.qcow2"), folder.text("rear"));
    run("qemu-img", &["create", "-q", "-f", "qcow2", &image, &SIZE.to_string()]);
    let start = || Rear::start("qemu-nbd", &["-t", "-f", "qcow2", "--socket", &socket, &image], socket.clone().into());
    let rear = start();
    let server = front(&folder, &rear.target(), &["--memory", "8M"]);
    let mut data = half_empty(SIZE);
    let mut client = client(&server.socket, "d");
    for (at, part) in (0..).zip(data.chunks(1 << 20)) {
        client.write(at << 20, part).unwrap();
    }
    client.zero(1 << 20, 3 << 20).unwrap();
    data[1 << 20..4 << 20].fill(0);
    client.flush().unwrap();
    drop(client);
    qemu_io(&server.uri("d"));
    let read = Command::new("nbdcopy").args([&server.uri("d"), "-"]).output().unwrap().stdout;
    server.end();
    rear.signal("-TERM");
    drop(rear);
    run("qemu-img", &["check", "-q", &image]);
    let raw = folder.text("raw");
    run("qemu-img", &["convert", "-O", "raw", &image, &raw]);
    let stored = std::fs::read(raw).unwrap();
    assert!(stored == read, "the image has what was read through nigh");
    assert!(stored[6 << 20..] == data[6 << 20..], "and what was written");
}

/// Servers that know little: without structured replies, zeroes, trim, extents, several connections, or with small requests.
#[test]
fn servers_with_few_features() {
    if !["nbdkit", "qemu-io"].iter().all(|tool| installed("servers_with_few_features", tool)) {
        return;
    }
    for arguments in [
        &["memory", "64M"][..],
        &["--no-sr", "memory", "64M"],
        &["--filter=nozero", "memory", "64M"],
        &["--filter=nozero", "--filter=noextents", "--filter=multi-conn", "memory", "64M", "multi-conn-mode=disable"],
        &["--filter=noparallel", "memory", "64M", "serialize=requests"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "64M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=256K",
            "blocksize-error-policy=error",
        ],
        &["--filter=delay", "memory", "64M", "rdelay=1ms", "wdelay=1ms"],
    ] {
        let folder = Folder::new();
        let rear = Rear::nbdkit(&folder, arguments);
        let server = front(&folder, &rear.target(), &["--memory", "4M"]);
        qemu_io(&server.uri("d"));
        let mut client = client(&server.socket, "d");
        let data = half_empty(8 << 20);
        client.write(16 << 20, &data).unwrap();
        client.flush().unwrap();
        assert!(client.read(16 << 20, data.len()).unwrap() == data, "{arguments:?}");
        let mut direct = self::client(&rear.socket, "");
        for (at, part) in (0..).zip(data.chunks(256 << 10)) {
            let stored = direct.read((16 << 20) + (at << 18), part.len()).unwrap();
            assert!(stored == part, "{arguments:?}: it is not in the rear server");
        }
        server.end();
    }
}

/// Ranges that the server in the rear does not store are shown as holes, and written ones are none.
#[test]
fn holes_of_the_server_are_shown() {
    if !installed("holes_of_the_server_are_shown", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let rear = Rear::nbdkit(&folder, &["memory", "64M"]);
    let server = front(&folder, &rear.target(), &[]);
    let mut client = client(&server.socket, "d");
    client.write(8 << 20, &[1; 1 << 20]).unwrap();
    client.flush().unwrap();
    let status = client.block_status(0, 64 << 20).unwrap();
    let flags: Vec<(u64, u32)> = status[0].extents.iter().map(|extent| (extent.length, extent.flags)).collect();
    let hole = state::HOLE | state::ZERO;
    assert_eq!(flags, [(8 << 20, hole), (1 << 20, 0), (55 << 20, hole)]);
}

/// Targets that cannot be served are refused with the command that helps.
#[test]
fn servers_that_cannot_be_used_are_refused() {
    if !installed("servers_that_cannot_be_used_are_refused", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let nobody = refusal(&folder, &format!("d=nbd+unix:///?socket={}", folder.text("nobody")));
    assert!(nobody.contains("cannot connect to nbd+unix:///?socket=") && nobody.contains("No such file"), "{nobody}");
    assert!(refusal(&folder, "d=nbds://localhost/").contains("TLS to an NBD server is not supported"));
    let refused = |arguments: &[&str]| {
        let rear = Rear::nbdkit(&folder, arguments);
        refusal(&folder, &format!("d={}", rear.target()))
    };
    let read_only = refused(&["-r", "memory", "64M"]);
    assert!(read_only.contains("offers it for reading only: add `read-only`"), "{read_only}");
    let policy = ["--filter=blocksize-policy", "memory", "blocksize-preferred=64K", "blocksize-maximum=1M"];
    let coarse = refused(&[&policy[..], &["64M", "blocksize-minimum=64K"]].concat());
    assert!(coarse.contains("it takes requests of 65536 bytes and more, and blocks here have 4096"), "{coarse}");
    let odd = refused(&[&policy[..], &["1049088", "blocksize-minimum=4096"]].concat());
    assert!(odd.contains("its size of 1049088 bytes is not a multiple of 4096"), "{odd}");
    let empty = refused(&["memory", "0"]);
    assert!(empty.contains("is empty"), "{empty}");
    for line in [nobody, read_only, coarse, odd, empty] {
        assert_eq!(line.trim().lines().count(), 1, "{line}");
    }
}

/// A disk can be read from a server that allows no writes; sizes that are no multiple of a block work where the server has none.
#[test]
fn read_only_and_odd_sizes() {
    if !installed("read_only_and_odd_sizes", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let data = half_empty((1 << 20) + 1234);
    let image = folder.image("image", &data);
    let rear = Rear::nbdkit(&folder, &["-r", "file", &image]);
    let other = folder.image("other", &data[..1 << 20]);
    let next = format!("{},read-only", rear.target());
    let server = folder.serve(&[&format!("d={other},next={next}"), &format!("r={next}")]);
    let mut both = client(&server.socket, "d");
    assert_eq!(both.export().size, (2 << 20) + 1234);
    assert!(both.read(1 << 20, data.len()).unwrap() == data);
    let mut reader = client(&server.socket, "r");
    assert!(reader.read(0, data.len()).unwrap() == data);
    fails_with(reader.write(0, &[1; 512]), Errno::Perm);
}

/// Errors of the server are errors of those who asked, and nothing else.
#[test]
fn errors_of_the_server_arrive() {
    if !installed("errors_of_the_server_arrive", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let trigger = folder.text("trigger");
    let file = format!("error-file={trigger}");
    let rear = Rear::nbdkit(&folder, &["--filter=error", "memory", "64M", "error=EIO", "error-rate=100%", &file]);
    let server = front(&folder, &rear.target(), &["--memory", "4M"]);
    let mut client = client(&server.socket, "d");
    client.write(0, &[7; 4096]).unwrap();
    client.flush().unwrap();
    std::fs::write(&trigger, "").unwrap();
    fails_with(client.read(1 << 20, 4096), Errno::Io);
    client.write(4096, &[8; 4096]).unwrap();
    fails_with(client.flush(), Errno::Io);
    std::fs::remove_file(&trigger).unwrap();
    assert_eq!(client.read(1 << 20, 4096).unwrap(), [0; 4096]);
    client.flush().unwrap();
    let mut direct = self::client(&rear.socket, "");
    assert!(direct.read(0, 8192).unwrap() == [[7; 4096], [8; 4096]].concat());
}

/// The contents of a disk of which some changes were not flushed.
struct Model {
    bytes: Vec<u8>,
    random: fastrand::Rng,
}

impl Model {
    /// Writes, zeroes or reads a random range, and compares what is read.
    fn step(&mut self, client: &mut Client<UnixStream>) -> Result<(), Error> {
        let blocks = self.bytes.len() as u64 / BLOCK;
        let first = self.random.u64(0..blocks);
        let count = self.random.u64(1..=32).min(blocks - first);
        let (at, length) = (first * BLOCK, (count * BLOCK) as usize);
        let range = at as usize..at as usize + length;
        match self.random.u32(0..100) {
            0..50 => {
                let data: Vec<u8> = std::iter::repeat_with(|| self.random.u8(..)).take(length).collect();
                client.write(at, &data)?;
                self.bytes[range].copy_from_slice(&data);
            }
            50..55 => {
                client.zero(at, length as u64)?;
                self.bytes[range].fill(0);
            }
            55..60 => client.flush()?,
            _ => {
                let read = client.read(at, length)?;
                let differs = read.iter().zip(&self.bytes[range]).position(|(read, known)| read != known);
                assert_eq!(differs, None, "stale bytes from {at} on");
            }
        }
        Ok(())
    }
}

/// The server in the rear loses what nobody flushed, again and again. Its clients notice only that it takes longer.
fn survives_kills(mode: &str, connections: u32) {
    const SIZE: usize = 24 << 20;
    const ROUNDS: u32 = 8;
    let (rear_folder, folder) = (Folder::new(), Folder::new());
    let image = rear_folder.empty_image("image", SIZE as u64);
    // It writes back late, so that a kill loses much.
    let start = || rear_folder.serve(&[&format!("d={image}"), "--memory", "64M", "--accept-loss"]);
    let mut rear = Some(start());
    let socket = rear_folder.path("socket");
    let target = format!("nbd+unix:///d?socket={}&x-connections={connections}", socket.display());
    let disk = format!("{target},write-mode={mode}");
    let server = front(&folder, &disk, &["--memory", "4M"]);
    let is_over = AtomicBool::new(false);
    let mut model = Model { bytes: vec![0; SIZE], random: fastrand::Rng::with_seed(u64::from(connections)) };
    let (start, rear) = (&start, &mut rear);
    std::thread::scope(|scope| {
        let (model, is_over, socket) = (&mut model, &is_over, &server.socket);
        let writer = scope.spawn(move || {
            let mut client = client(socket, "d");
            let mut steps = 0;
            while !is_over.load(Ordering::Relaxed) {
                model.step(&mut client).unwrap_or_else(|error| panic!("step {steps}: {error}"));
                steps += 1;
            }
            client.flush().unwrap();
            assert!(client.read(0, SIZE).unwrap() == model.bytes, "all of it, after the last flush");
            steps
        });
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(150 + u64::from(round) * 40));
            rear.take().expect("it runs").kill();
            std::thread::sleep(Duration::from_millis(u64::from(round % 3) * 100));
            *rear = Some(start());
        }
        std::thread::sleep(Duration::from_millis(200));
        is_over.store(true, Ordering::Relaxed);
        let steps = writer.join().unwrap();
        println!("{steps} steps with {ROUNDS} kills");
    });
    // The last flush was true: nothing else makes the rear server write anything.
    rear.take().expect("it runs").kill();
    assert!(std::fs::read(&image).unwrap() == model.bytes, "what was flushed is in the image");
    server.kill();
}

#[test]
fn no_write_is_lost_when_the_server_is_killed() {
    survives_kills("back", 1);
}

#[test]
fn no_write_is_lost_on_several_connections() {
    survives_kills("back", 4);
}

#[test]
fn no_write_is_lost_with_write_through() {
    survives_kills("through", 1);
}

/// Changes that were acknowledged but not flushed, when the server died with nothing else going on, are there after the next flush.
#[test]
fn unflushed_writes_are_sent_again() {
    const SIZE: u64 = 64 << 20;
    let (rear_folder, folder) = (Folder::new(), Folder::new());
    let image = rear_folder.empty_image("image", SIZE);
    let start = || rear_folder.serve(&[&format!("d={image}"), "--memory", "128M", "--accept-loss"]);
    let rear = start();
    let target = format!("nbd+unix:///d?socket={}", rear.socket.display());
    let server = front(&folder, &target, &["--memory", "4M"]);
    let mut client = client(&server.socket, "d");
    let data = half_empty(32 << 20);
    for (at, part) in (0..).zip(data.chunks(1 << 20)) {
        client.write(at << 20, part).unwrap();
    }
    // Most of it has left the cache in front by now.
    rear.kill();
    let rear = start();
    assert!(client.read(0, data.len()).unwrap() == data, "nothing is stale before the flush");
    client.flush().unwrap();
    rear.kill();
    assert!(std::fs::read(&image).unwrap()[..data.len()] == data);
}

/// A stopped server keeps its own clients waiting, and nobody else.
#[test]
fn a_stopped_server_stops_no_other_export() {
    let name = "a_stopped_server_stops_no_other_export";
    if !installed(name, "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let rear = Rear::nbdkit(&folder, &["memory", "64M"]);
    let image = folder.empty_image("image", 64 << 20);
    let control = folder.text("control");
    let server = folder.serve(&[
        &format!("d={}", rear.target()),
        &format!("other={image}"),
        "--memory",
        "8M",
        "--control",
        &control,
    ]);
    let mut stuck = client(&server.socket, "d");
    stuck.write(0, &[5; 4096]).unwrap();
    stuck.flush().unwrap();
    rear.signal("-STOP");
    for at in 0..64 {
        stuck.submit_read(at << 20 | 1 << 19, vec![0; 4096]).unwrap();
    }
    let mut slowest = Duration::ZERO;
    let mut timed = |what: &str, work: &mut dyn FnMut()| {
        let begin = Instant::now();
        work();
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(2), "{what} took {took:?}");
        slowest = slowest.max(took);
    };
    let mut other = client(&server.socket, "other");
    for round in 0..50u64 {
        timed("a write", &mut || other.write(round << 20, &[round as u8; 8192]).unwrap());
        timed("a hit", &mut || drop(other.read(round << 20, 4096).unwrap()));
        timed("a miss", &mut || drop(other.read((63 - round) << 20 | 1 << 19, 4096).unwrap()));
        timed("a flush", &mut || other.flush().unwrap());
        timed("connecting", &mut || drop(client(&server.socket, "other")));
        timed("connecting to the stopped one", &mut || drop(client(&server.socket, "d")));
    }
    timed("the status", &mut || {
        let text = run(env!("CARGO_BIN_EXE_nigh"), &["ctl", "--control", &control, "status"]);
        assert!(text.contains("nbd+unix:///?socket="), "{text}");
    });
    println!("the slowest took {slowest:?}");
    rear.signal("-CONT");
    while stuck.in_flight() > 0 {
        stuck.receive().unwrap().result.unwrap();
    }
}

/// Beyond the limit of patience requests fail, then at once; when the server is back they are done again.
#[test]
fn patience_has_an_end() {
    if !installed("patience_has_an_end", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let image = folder.empty_image("image", 64 << 20);
    let start = || Rear::nbdkit(&folder, &["file", &image]);
    let rear = start();
    let socket = folder.path("front");
    let disk = format!("d={}&x-reconnect=2s", rear.target());
    let mut command = nigh(&["--listen", &format!("unix:{}", socket.display())], &[&disk, "--memory", "4M"]);
    let process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut front = Rear { process, socket };
    wait_for("it listens", || UnixStream::connect(&front.socket).is_ok());
    let mut client = client(&front.socket, "d");
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    // Blocks that are not in the cache.
    let next = Cell::new(0);
    let miss = |client: &mut Client<UnixStream>| {
        next.set(next.get() + (64 << 10));
        client.read(next.get(), 4096)
    };
    // Killed, it is gone; stopped, it is silent.
    let check = |client: &mut Client<UnixStream>| {
        let begin = Instant::now();
        fails_with(miss(client), Errno::Io);
        let took = begin.elapsed();
        assert!((Duration::from_millis(1900)..Duration::from_secs(5)).contains(&took), "{took:?}");
        let begin = Instant::now();
        fails_with(miss(client), Errno::Io);
        assert!(begin.elapsed() < Duration::from_secs(1), "the second one waited, too");
        assert_eq!(client.read(0, 4096).unwrap(), [1; 4096], "a hit needs no server");
    };
    rear.kill();
    check(&mut client);
    let rear = start();
    wait_for("it is back", || miss(&mut client).is_ok());
    rear.signal("-STOP");
    // Its threads stop one after the other.
    std::thread::sleep(Duration::from_millis(100));
    check(&mut client);
    rear.signal("-CONT");
    wait_for("it goes on", || miss(&mut client).is_ok());
    // Another size is another disk.
    rear.kill();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(32 << 20).unwrap();
    let rear = start();
    wait_for("it is refused", || miss(&mut client).is_err());
    rear.kill();
    std::fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
    let _rear = start();
    wait_for("it is the same again", || miss(&mut client).is_ok());
    client.write(4096, &[2; 4096]).unwrap();
    client.flush().unwrap();
    front.signal("-TERM");
    assert!(front.process.wait().unwrap().success());
    let mut said = String::new();
    front.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("requests fail until it is back").count(), 3, "{said}");
    assert!(said.contains("its size is now 33554432 bytes, and was 67108864"), "{said}");
    assert!(said.lines().filter(|line| line.contains("NBD server")).all(|line| line.contains("disk=\"d\"")), "{said}");
}

/// Exports of NBD servers are added, listed and removed while the server runs, also when theirs is dead.
#[test]
fn exports_are_added_and_removed() {
    if !installed("exports_are_added_and_removed", "nbdkit") {
        return;
    }
    let folder = Folder::new();
    let rear = Rear::nbdkit(&folder, &["memory", "64M"]);
    let control = folder.text("control");
    let server = folder.serve(&["one=memory:16M", "--control", &control]);
    let ctl =
        |arguments: &[&str]| run(env!("CARGO_BIN_EXE_nigh"), &[&["ctl", "--control", &control], arguments].concat());
    ctl(&["export", "add", &format!("d={}&x-reconnect=1s", rear.target())]);
    let mut client = client(&server.socket, "d");
    client.write(0, &[3; 4096]).unwrap();
    drop(client);
    rear.kill();
    // Blocks that cannot be written back are dropped, after the second that requests may wait.
    ctl(&["export", "remove", "d", "--discard"]);
    let rear = Rear::nbdkit(&folder, &["memory", "32M"]);
    ctl(&["export", "add", &format!("d={}", rear.target())]);
    assert_eq!(self::client(&server.socket, "d").export().size, 32 << 20);
    ctl(&["export", "remove", "d"]);
    server.end();
}

/// How much longer a miss takes through an NBD server than from the file itself. The file is in memory where that is possible, since
/// nbdkit would read it from the page cache otherwise, and nigh from the disk.
#[test]
fn a_miss_beside_one_from_a_file() {
    const SIZE: u64 = 64 << 20;
    const READS: u32 = 4000;
    if !installed("a_miss_beside_one_from_a_file", "nbdkit") {
        return;
    }
    let folders = [Folder::new(), Folder::new()];
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let image = memory.path().join("image").to_str().unwrap().to_owned();
    std::fs::write(&image, half_empty(SIZE as usize)).unwrap();
    let rear = Rear::nbdkit(&folders[0], &["file", &image, "fadvise=random"]);
    let targets = [rear.target(), image];
    for depth in [1, 16] {
        let mut took = [Duration::ZERO; 2];
        for ((took, target), folder) in took.iter_mut().zip(&targets).zip(&folders) {
            let server = front(folder, target, &["--memory", "4M"]);
            let mut client = client(&server.socket, "d");
            // The same blocks for both, where there is data.
            let mut random = fastrand::Rng::with_seed(7);
            let begin = Instant::now();
            for at in 0..READS + depth {
                if at >= depth {
                    client.receive().unwrap().result.unwrap();
                }
                if at < READS {
                    client.submit_read(random.u64(0..SIZE / 4 / BLOCK) * BLOCK, vec![0; BLOCK as usize]).unwrap();
                }
            }
            *took = begin.elapsed() / READS;
            server.end();
        }
        let ratio = took[0].as_secs_f64() / took[1].as_secs_f64();
        println!(
            "depth {depth}: a miss takes {:?} through nbdkit, {:?} from the file: {ratio:.2} times as long",
            took[0], took[1]
        );
    }
}
