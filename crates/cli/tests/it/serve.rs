//! `nigh serve` as its users meet it: the real binary, against clients that others wrote.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::serving::{Folder, nigh};
use nigh_nbd::client::Client;
use nigh_testkit::tools::{fio_speaks_nbd, half_empty, installed, python_with_libnbd, qemu_io, run};

use crate::command::refusal;

const MIB: u64 = 1 << 20;

fn script(python: &str, script: &str, arguments: &[&str]) {
    let mut all = vec!["-c", script];
    all.extend(arguments);
    assert_eq!(run(python, &all).trim(), "done");
}

#[test]
fn nbdinfo_describes_lists_and_maps() {
    if !installed("nbdinfo_describes_lists_and_maps", "nbdinfo") {
        return;
    }
    let folder = Folder::new();
    let image = folder.image("image", &half_empty(8 << 20));
    let server = folder.serve(&[&format!("root={image}"), "data=memory:3M", "--read-only"]);
    let text = run("nbdinfo", &[&server.uri("root")]);
    for line in ["export-size: 8388608", "is_read_only: true", "can_multi_conn: true", "can_cache: true"] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let list = run("nbdinfo", &["--list", &server.uri("")]);
    assert!(list.contains("export=\"root\"") && list.contains("export=\"data\""), "{list}");
    let map = run("nbdinfo", &["--map=x-nigh:cache", &server.uri("root")]);
    // nbdinfo itself looked at the beginning.
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows, [["0", "8192", "1"], ["8192", "8380416", "0"]], "{map}");
    server.end();
}

#[test]
fn an_export_without_a_name_is_the_default_one() {
    let folder = Folder::new();
    let image = folder.image("image", &[7; 1 << 20]);
    let server = folder.serve(&[&format!("={image}")]);
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, "", &[]).unwrap();
    assert_eq!(client.read(4096, 4096).unwrap(), [7; 4096]);
    client.disconnect().unwrap();
    server.end();
}

#[test]
fn nbdcopy_both_ways() {
    if !installed("nbdcopy_both_ways", "nbdcopy") {
        return;
    }
    let folder = Folder::new();
    let source = folder.image("source", &half_empty(64 << 20));
    let image = folder.empty_image("image", 64 * MIB);
    let server = folder.serve(&[&format!("disk={image}")]);
    run("nbdcopy", &["--flush", &source, &server.uri("disk")]);
    run("cmp", &[&source, &image]);
    run("nbdcopy", &[&server.uri("disk"), &folder.text("copy")]);
    run("cmp", &[&source, &folder.text("copy")]);
    server.end();
}

#[test]
fn nbdcopy_to_a_disk_over_two_files() {
    if !installed("nbdcopy_to_a_disk_over_two_files", "nbdcopy") {
        return;
    }
    let folder = Folder::new();
    let bytes = half_empty(24 << 20);
    let border = (9 << 20) + 4096;
    let source = folder.image("source", &bytes);
    let (a, b) = (folder.empty_image("a", border as u64), folder.empty_image("b", 24 * MIB - border as u64));
    let config = format!("[[export]]\nname = 'disk'\ntarget = '{a}'\nnext = ['{b}']\n");
    let config = folder.image("nigh.toml", config.as_bytes());
    let server = folder.serve(&[&format!("disk={a},next={b}")]);
    run("nbdcopy", &["--flush", &source, &server.uri("disk")]);
    assert!(std::fs::read(&a).unwrap() == bytes[..border] && std::fs::read(&b).unwrap() == bytes[border..]);
    server.end();
    let server = folder.serve(&["--config", &config, "--read-only"]);
    run("nbdcopy", &[&server.uri("disk"), &folder.text("copy")]);
    run("cmp", &[&source, &folder.text("copy")]);
    server.end();
}

#[test]
fn qemu_img_converts_and_compares() {
    if !installed("qemu_img_converts_and_compares", "qemu-img") {
        return;
    }
    let folder = Folder::new();
    let source = folder.image("source", &half_empty(32 << 20));
    let image = folder.empty_image("image", 32 * MIB);
    let server = folder.serve(&[&format!("disk={image}"), "--write-mode", "through"]);
    let uri = server.uri("disk");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &source, &uri]);
    let compared = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &uri]);
    assert!(compared.contains("Images are identical."), "{compared}");
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, &folder.text("copy")]);
    run("cmp", &[&source, &folder.text("copy")]);
    server.end();
    run("cmp", &[&source, &image]);
}

#[test]
fn qemu_io_reads_writes_discards_and_zeroes() {
    if !installed("qemu_io_reads_writes_discards_and_zeroes", "qemu-io") {
        return;
    }
    let folder = Folder::new();
    let image = folder.empty_image("image", 16 * MIB);
    let server = folder.serve(&[&format!("disk={image}")]);
    qemu_io(&server.uri("disk"));
    server.end();
}

#[test]
fn qemu_compares_every_read_with_a_file() {
    if !installed("qemu_compares_every_read_with_a_file", "qemu-io") {
        return;
    }
    let folder = Folder::new();
    let (reference, image) = (folder.empty_image("reference", 32 * MIB), folder.empty_image("image", 32 * MIB));
    // Half of the disk fits into the cache.
    let server = folder.serve(&[&format!("disk={image}")]);
    let mut random = 1_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let mut commands = Vec::new();
    for step in 0..800 {
        let length = 512 * (1 + below([8, 64, 600][step % 3]));
        let offset = 512 * below((32 * MIB - length) / 512);
        let pattern = 1 + below(255);
        commands.push(match below(8) {
            0..3 => format!("write -P {pattern} {offset} {length}"),
            3 => format!("aio_write -P {pattern} {offset} {length}"),
            4 if step % 5 == 0 => "flush".to_owned(),
            _ => format!("read {offset} {length}"),
        });
        if commands[step].starts_with("aio") {
            // Of requests that overlap in time, blkverify cannot know which wins.
            commands[step].insert_str(0, "aio_flush\n");
            commands[step].push_str("\naio_flush");
        }
    }
    commands.push("read 0 32M".to_owned());
    let disks = format!(
        "driver=blkverify,raw.driver=file,raw.filename={reference},\
         test.driver=nbd,test.export=disk,test.server.type=unix,test.server.path={}",
        server.socket.display()
    );
    let script = folder.image("script", (commands.join("\n") + "\n").as_bytes());
    let text = run("sh", &["-c", &format!("qemu-io -t writeback -d unmap --image-opts '{disks}' < '{script}'")]);
    assert!(!text.contains("failed") && !text.contains("error"), "{text}");
    assert_eq!(text.matches("read 33554432/33554432 bytes").count(), 1, "{text}");
    server.end();
    run("cmp", &[&reference, &image]);
}

#[test]
fn fio_verifies() {
    if !fio_speaks_nbd("fio_verifies") {
        return;
    }
    let folder = Folder::new();
    let image = folder.empty_image("image", 128 * MIB);
    let server = folder.serve(&[&format!("disk={image}")]);
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bssplit=512/20:4k/40:64k/30:1m/10",
        "--bs_unaligned=0",
        "--iodepth=8",
        "--numjobs=16",
        "--size=8m",
        "--offset_increment=8m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--group_reporting",
        &format!("--uri={}", server.uri("disk")),
    ];
    run("fio", &arguments);
    server.end();
}

const WRITE: &str = r#"
import nbd, sys
uri, pattern, flush = sys.argv[1], sys.argv[2].encode(), sys.argv[3] == "flush"
h = nbd.NBD()
h.connect_uri(uri)
for at in range(0, h.get_size(), 65536):
    h.pwrite(pattern * 10000, at + 77)
if flush:
    h.flush()
print("done")
"#;

/// Contents of a disk of zeros after `WRITE`.
fn written(length: usize, pattern: u8) -> Vec<u8> {
    let mut disk = vec![0; length];
    for at in (0..length).step_by(65536) {
        disk[at + 77..at + 10077].fill(pattern);
    }
    disk
}

#[test]
fn sigterm_loses_nothing_and_exports_never_mix() {
    let test = "sigterm_loses_nothing_and_exports_never_mix";
    let Some(python) = python_with_libnbd(test) else { return };
    let folder = Folder::new();
    let images = ["a", "b"].map(|name| folder.empty_image(name, 32 * MIB));
    let server = folder.serve(&[&format!("a={}", images[0]), &format!("b={}", images[1])]);
    let uris = ["a", "b"].map(|name| server.uri(name));
    std::thread::scope(|scope| {
        for (uri, pattern) in uris.iter().zip(["A", "B"]) {
            scope.spawn(move || script(python, WRITE, &[uri, pattern, "no"]));
        }
    });
    server.end();
    for (image, pattern) in images.iter().zip(*b"AB") {
        assert!(std::fs::read(image).unwrap() == written(32 << 20, pattern), "{image} has other bytes");
    }
}

#[test]
fn sigkill_loses_only_what_was_not_flushed() {
    let test = "sigkill_loses_only_what_was_not_flushed";
    let Some(python) = python_with_libnbd(test) else { return };
    let folder = Folder::new();
    let image = folder.empty_image("image", 8 * MIB);
    let server = folder.serve(&[&format!("disk={image}")]);
    script(python, WRITE, &[&server.uri("disk"), "F", "flush"]);
    let flushed = written(8 << 20, b'F');
    assert!(std::fs::read(&image).unwrap() == flushed, "a flush wrote less than everything");
    script(python, WRITE, &[&server.uri("disk"), "U", "no"]);
    server.kill();
    let unflushed = written(8 << 20, b'U');
    let found = std::fs::read(&image).unwrap();
    for (at, block) in found.chunks(4096).enumerate() {
        let range = at * 4096..at * 4096 + block.len();
        assert!(block == &flushed[range.clone()] || block == &unflushed[range], "block {at} is neither old nor new");
    }
    // The socket of the killed server is in nobody's way.
    let server = folder.serve(&[&format!("disk={image}")]);
    server.end();
}

#[test]
fn a_client_on_standard_input_and_output() {
    let test = "a_client_on_standard_input_and_output";
    let Some(python) = python_with_libnbd(test) else { return };
    let folder = Folder::new();
    let image = folder.empty_image("image", MIB);
    let script = r#"
import nbd, sys
h = nbd.NBD()
h.connect_command([sys.argv[1], "serve", "--memory", "16M", "--log", "warn", "--stdio", "disk=" + sys.argv[2]])
h.pwrite(b"stdio" * 1000, 5)
assert h.pread(5000, 5) == b"stdio" * 1000
h.shutdown()
h = nbd.NBD()
h.connect_systemd_socket_activation([sys.argv[1], "serve", "--log", "warn", "memory=memory:1M"])
assert h.pread(4096, 0) == bytes(4096)
h.shutdown()
print("done")
"#;
    self::script(python, script, &[env!("CARGO_BIN_EXE_nigh"), &image]);
    let start = Instant::now();
    // The server ends when its client has left, which does not wait for it.
    while &std::fs::read(&image).unwrap()[..10] != b"\0\0\0\0\0stdio" {
        assert!(start.elapsed() < Duration::from_secs(10), "what was written is lost");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As from the host to a server in a container: the server's kernel has no number for the client's process.
#[test]
fn clients_of_another_pid_namespace_are_served() {
    let alone = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut command = Command::new(alone[0]);
    if !command.args(&alone[1..]).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("skipped: clients_of_another_pid_namespace_are_served: no PID namespaces");
        return;
    }
    let folder = Folder::new();
    let server = folder.serve_under(&alone, &["disk=memory:1M"]);
    let mut client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap();
    assert_eq!(client.read(0, 5).unwrap(), [0; 5]);
    client.disconnect().unwrap();
}

/// As of a service manager that connects the output to its log.
#[test]
fn stdio_21_is_a_socket_as_input_whatever_the_output_is() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["serve", "--stdio", "--log", "warn", "disk=memory:1M"]).stdin(OwnedFd::from(theirs));
    let mut server = command.stdout(Stdio::null()).spawn().unwrap();
    // It holds an end of the pair.
    drop(command);
    ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut client = Client::connect(ours, "disk", &[]).unwrap();
    client.write(5, b"stdio").unwrap();
    assert_eq!(client.read(5, 5).unwrap(), b"stdio");
    client.disconnect().unwrap();
    let start = Instant::now();
    let ended = loop {
        match server.try_wait().unwrap() {
            None if start.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(10)),
            ended => break ended,
        }
    };
    let _ = server.kill();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// Policies that need the code that reads have only connections here.
#[test]
fn streams_10_a_policy_without_code_is_reported() {
    for (policy, is_reported) in [("aoio", true), ("pcc", true), ("amp", true), ("lirs", false)] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["serve", "--stdio", "--log", "warn", "--policy", policy, "disk=memory:1M"]);
        let output = command.stdin(OwnedFd::from(theirs)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains(&format!("policy {policy} distinguishes the code that reads")), is_reported, "{said}");
    }
    // Of one tenant, and while the server runs.
    let (folder, errors) = (Folder::new(), tempfile::NamedTempFile::new().unwrap());
    let control = folder.text("control");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["serve", "--log", "warn", "--allocate", "static", "--set", "one:policy=amp", "--control", &control]);
    command.args(["--listen", &format!("unix:{}", folder.text("socket")), "one=memory:1M", "two=memory:1M"]);
    let mut server = command.stderr(errors.reopen().unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(errors.path()).unwrap();
    let is_told = |policy: &str| said().contains(&format!("policy {policy} distinguishes"));
    let wait = |is_done: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !is_done() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_done()
    };
    let ctl = |what: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["ctl", "--control", &control]).args(what).output().unwrap().status.success()
    };
    let began = wait(&|| ctl(&["status"]));
    let changed = [ctl(&["set", "policy", "pcc"]), ctl(&["set", "export", "two", "policy=aoio"])];
    let told = ["amp", "pcc", "aoio"].map(|policy| wait(&|| is_told(policy)));
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((began, changed, told), (true, [true; 2], [true; 3]), "{}", said());
}

/// A client that sends a byte now and then holds up neither the next client nor the end.
#[test]
fn metrics_14_are_not_held_up() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:8M", "--metrics", "127.0.0.1:0"]);
    let address = server.metrics();
    let slow = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n").unwrap();
        std::thread::spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(60) && stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        })
    };
    let begin = Instant::now();
    let first = slow();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("nigh_memory_bytes"), "{text}");
    let second = slow();
    server.end();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    first.join().unwrap();
    second.join().unwrap();
}

/// However many clients are silent, the next one is answered at once.
#[test]
fn metrics_14_are_not_held_up_by_many() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:8M", "--metrics", "127.0.0.1:0"]);
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.metrics()).unwrap()).collect();
    let begin = Instant::now();
    let mut stream = TcpStream::connect(server.metrics()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("nigh_memory_bytes"), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?} behind others", begin.elapsed());
    drop(silent);
    server.end();
}

#[test]
fn metrics_8_statistics_are_served_and_sighup_reloads() {
    let folder = Folder::new();
    let config = folder.text("nigh.toml");
    let write = |memory: &str, policy: &str| {
        let text = format!(
            "policy = '{policy}'\nmemory-max = '64M'\n# {memory}\n[[export]]\nname = 'disk'\ntarget = 'memory:8M'\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    write("16M", "lru");
    let server = folder.serve(&["--config", &config, "--metrics", "127.0.0.1:0"]);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(server.metrics()).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = get("/metrics");
    for line in ["nigh_hits_total{export=\"disk\"} 0", "nigh_memory_bytes 16777216", "nigh_latency_seconds_bucket{le="]
    {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    // As parsers of OpenMetrics want it: each histogram ends in a bucket without end, which has all.
    let counts: Vec<&str> = text.lines().filter(|line| line.contains("_seconds_count{")).collect();
    assert!(!counts.is_empty());
    for line in counts {
        let (labels, count) = line.split_once("_seconds_count{").unwrap().1.split_once("} ").unwrap();
        let last = text.lines().filter(|line| line.contains(&format!("_bucket{{le=\"+Inf\",{labels}}} {count}")));
        assert_eq!(last.count(), 1, "{line}\n{text}");
    }
    let json = get("/json");
    let value: serde_json::Value = serde_json::from_str(json.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(value["policy"], "lru");
    assert!(get("/nothing").starts_with("HTTP/1.0 404"));
    write("16M", "s3-fifo");
    server.signal("-HUP");
    let start = Instant::now();
    while !get("/json").contains("\"policy\": \"s3-fifo\"") {
        assert!(start.elapsed() < Duration::from_secs(10), "the policy does not change");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A slip leaves everything as it is.
    write("16M", "no-such-policy");
    server.signal("-HUP");
    std::thread::sleep(Duration::from_millis(200));
    assert!(get("/json").contains("\"policy\": \"s3-fifo\""));
    server.end();
}

#[test]
fn connections_beyond_the_limit_are_told_once() {
    let folder = Folder::new();
    let socket = folder.path("limited");
    let listen = format!("unix:{}", socket.display());
    let arguments = ["disk=memory:1M", "--connections", "1"];
    let mut process = nigh(&["--listen", &listen], &arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.contains("listening")));
    let mut first = UnixStream::connect(&socket).unwrap();
    first.read_exact(&mut [0; 18]).unwrap();
    for _ in 0..20 {
        assert_eq!(UnixStream::connect(&socket).unwrap().read(&mut [0; 18]).unwrap(), 0);
    }
    run("kill", &["-TERM", &process.id().to_string()]);
    let told: Vec<String> = lines.filter(|line| line.contains("refused")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("WARN") && told[0].contains("most=1"), "{told:?}");
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_one_line() {
    let folder = Folder::new();
    let image = folder.empty_image("image", MIB);
    let disk = format!("disk={image}");
    let socket = format!("unix:{}", folder.text("other"));
    let fails = |arguments: &[&str]| {
        refusal(&Command::new(env!("CARGO_BIN_EXE_nigh")).arg("serve").args(arguments).output().unwrap())
    };
    let missing = format!("disk={}", folder.text("missing"));
    assert!(fails(&[&missing, "--listen", &socket]).contains("missing"));
    assert!(fails(&[&disk, "--listen", &socket, "--memory", "900T"]).contains("the machine has"));
    assert!(fails(&[&disk, "--listen", &socket, "--memory", "12"]).contains("amount of memory"));
    assert!(fails(&[&disk, "--listen", &socket, "--policy", "lrv"]).contains("lrv"));
    assert!(fails(&[&disk, "--listen", &socket, "--policy", "opt"]).contains("opt"));
    let config = folder.image("nobody.toml", b"[[export]]\nname = 'disk'\ntarget = 'memory:1M'\nclients = []\n");
    assert!(fails(&["--config", &config, "--listen", &socket]).contains("clients is an empty list"));
    assert!(fails(&[&disk, "--listen", "/tmp/x"]).contains("unix:PATH"));
    assert!(fails(&[&disk, "--listen", "tcp:0.0.0.0:0"]).contains("--insecure-tcp"));
    assert!(fails(&[&disk]).contains("nobody can connect"));
    assert!(fails(&["--listen", &socket]).contains("nothing to serve"));
    assert!(fails(&[&disk, &disk, "--listen", &socket]).contains("same name"));
    assert!(fails(&["disk", "--listen", &socket]).contains("NAME=TARGET"));
    assert!(fails(&["disk=memroy:1G", "--listen", &socket]).contains("memory"));
    assert!(fails(&["disk=memory:1G,next=memroy:1G", "--listen", &socket]).contains("`memroy` is no kind of target"));
    assert!(fails(&["disk=memory:1G,next=", "--listen", &socket]).contains("a target is missing"));
    assert!(fails(&[&format!("{disk},next={image}"), "--listen", &socket]).contains("two targets of disk disk are"));
    let odd = folder.empty_image("odd", 5000);
    let said = fails(&[&format!("disk={odd},next=memory:1M"), "--listen", &socket]);
    assert!(
        said.contains("odd has 5000 bytes: for all targets but the last the size must be a multiple of 4096"),
        "{said}"
    );
    let config = folder.image("bad.toml", b"memory = 3\n");
    assert!(fails(&[&disk, "--config", &config]).contains("bad.toml:1"));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", taken.local_addr().unwrap());
    assert!(fails(&[&disk, "--listen", &address]).contains("another server"));
    let server = folder.serve(&[&disk]);
    let same = format!("unix:{}", server.socket.display());
    assert!(fails(&["m=memory:1M", "--listen", &same]).contains("another server"));
    assert!(fails(&[&disk, "--listen", &socket]).contains("may change it"));
    server.end();
    assert!(Path::new(&image).exists());
}

/// Served as raw, the header of an image would be its guest's first sector.
#[test]
fn images_2_of_another_format_are_not_served_as_raw() {
    let test = "images_2_of_another_format_are_not_served_as_raw";
    if !installed(test, "qemu-img") {
        return;
    }
    let folder = Folder::new();
    let socket = format!("unix:{}", folder.text("other"));
    for format in ["qcow2", "vmdk", "vhdx", "vdi", "qed", "vpc", "parallels", "luks"] {
        let image = folder.text(format);
        if format == "luks" {
            // To make one, qemu-img measures the processor, which fails on a busy machine.
            let mut luks = vec![0; 1 << 20];
            luks[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
            folder.image(format, &luks);
        } else {
            run("qemu-img", &["create", "-q", "-f", format, &image, "1M"]);
        }
        let disk = format!("disk={image}");
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(["serve", &disk, "--listen", &socket]).output();
        let said = refusal(&output.unwrap());
        assert!(said.contains("not a raw disk") && said.contains("raw:PATH"), "{format}: {said}");
        folder.serve(&[&format!("disk=raw:{image}")]).end();
    }
}

#[test]
fn memory_is_not_in_core_dumps() {
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", 1 << 20));
    let script = format!("cd {} && ulimit -c unlimited && exec \"$@\"", folder.path("").display());
    let dumps = |arguments: &[&str]| {
        let mut server = folder.serve_under(&["sh", "-c", &script, "sh"], arguments);
        server.signal("-ABRT");
        let status = server.process.wait().unwrap();
        assert_eq!(status.signal(), Some(6), "{status}");
        status.core_dumped()
    };
    if dumps(&[&disk, "--core-dumps"]) {
        assert!(!dumps(&[&disk]));
    } else {
        println!("skipped: memory_is_not_in_core_dumps: the system writes no core dumps");
    }
}

/// QEMU locks single bytes by open file description, which `flock` does not see.
#[test]
fn locks_11_are_those_of_qemu() {
    if !installed("locks_11_are_those_of_qemu", "qemu-io") {
        return;
    }
    let folder = Folder::new();
    let image = folder.empty_image("image", 1 << 20);
    let socket = format!("unix:{}", folder.text("other"));
    let qemu_io = |arguments: &[&str]| {
        let output = Command::new("qemu-io").args(["-f", "raw"]).args(arguments).arg(&image).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };

    let qemu = Command::new("qemu-io").args(["-f", "raw", &image]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut qemu = qemu.unwrap();
    // Its prompt shows that it has opened the image.
    qemu.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    for more in [&[][..], &["--read-only"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["serve", &format!("disk={image}"), "--listen", &socket]).args(more);
        let said = refusal(&command.output().unwrap());
        assert!(said.contains(&format!("process {} (qemu-io)", qemu.id())) && said.contains("unlocked:PATH"), "{said}");
    }
    folder.serve(&[&format!("disk=unlocked:{image}")]).end();
    drop(qemu.stdin.take());
    assert!(qemu.wait().unwrap().success());

    let server = folder.serve(&[&format!("disk={image}")]);
    let (opened, said) = qemu_io(&["-c", "write 0 4k"]);
    assert!(!opened && said.contains("lock"), "{said}");
    assert!(qemu_io(&["-r", "-c", "read 0 4k"]).0, "QEMU may read");
    server.end();
    assert!(qemu_io(&["-c", "write 0 4k"]).0, "the locks go with the server");
    let server = folder.serve(&["--read-only", &format!("disk={image}")]);
    assert!(!qemu_io(&["-c", "write 0 4k"]).0);
    server.end();
}

#[test]
fn check_explains_and_serves_nothing() {
    let folder = Folder::new();
    let socket = format!("unix:{}", folder.text("socket"));
    let output = nigh(&["--listen", &socket, "--check"], &["disk=delay:5ms:memory:1G"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["disk from delay:5ms:memory:1G", "unix:", "16 MiB", "lirs", "back"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!folder.path("socket").exists());
    let more =
        ["disk=a.img,next=delay:5ms,100M/s:b.img,read-only", "d=x", "--set", "d:next=y,iops=5,next=z", "--check"];
    let output = nigh(&["--listen", &socket], &more).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["disk from a.img, then delay:5ms,100M/s:b.img, read-only", "d from x, then y, then z, writes back"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}
