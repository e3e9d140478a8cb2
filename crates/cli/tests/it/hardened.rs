//! Requests that a server refuses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use crate::serving::{Folder, Server, nigh};
use nigh_nbd::client::Client;

/// The message of a server that does not start.
fn refusal(arguments: &[&str]) -> String {
    let output = nigh(&[], arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

/// Statistics that other machines can read need a token.
#[test]
fn metrics_14_are_not_open_to_the_network() {
    let folder = Folder::new();
    let listen = format!("unix:{}", folder.text("other"));
    let open = ["disk=memory:8M", "--listen", &listen, "--metrics", "0.0.0.0:0"];
    assert!(refusal(&open).contains("would be open to the network"));
    let token = folder.image("token", b"");
    let metrics = format!("0.0.0.0:0,token={token}");
    assert!(refusal(&[&open[..3], &["--metrics", &metrics]].concat()).contains("it is a line of 1 to"));
    folder.image("token", b"opensesame\n");
    let server = folder.serve(&["disk=memory:8M", "--metrics", &metrics]);
    let address = server.metrics().replace("0.0.0.0", "127.0.0.1");
    let ask = |header: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for header in ["", "Authorization: Bearer opensesam\r\n", "Authorization: Basic opensesame\r\n"] {
        let text = ask(header);
        assert!(text.starts_with("HTTP/1.0 401 ") && !text.contains("nigh_"), "{text}");
    }
    assert!(ask("Authorization: Bearer opensesame\r\n").contains("nigh_memory_bytes"));
    server.end();
}

/// The values in /proc of each thread of a server, behind this name.
fn of_threads(server: &Server, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.process.id())).unwrap();
    let field = |path: PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.trim().to_owned()
    };
    tasks.map(|task| field(task.unwrap().path())).collect()
}

/// Whether the kernel has Landlock; otherwise prints that the test is skipped.
fn has_landlock(server: &Server, test: &str) -> bool {
    let has = !server.logged("sandbox")[0].contains("no Landlock");
    if !has {
        println!("skipped: {test}: the kernel has no Landlock");
    }
    has
}

#[test]
fn hardened_servers_open_only_what_belongs_to_them() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let (image, other) = (folder.empty_image("image", 1 << 20), folder.empty_image("other", 1 << 20));
    let foreign = elsewhere.empty_image("foreign", 1 << 20);
    let control = folder.text("control");
    let nigh = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).args(["--control", &control]).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let disk = format!("disk={image}");
    let add = format!("foreign={foreign}");
    let server = folder.serve(&[&disk, "--control", &control]);
    let has_landlock = has_landlock(&server, "hardened_servers_open_only_what_belongs_to_them");
    assert!(of_threads(&server, "NoNewPrivs").iter().all(|value| value == "1"));
    assert!(of_threads(&server, "Seccomp").iter().all(|value| value == "2"));
    assert!(nigh(&["ctl", "export", "add", &format!("other={other}")]).0);
    if has_landlock {
        let (added, error) = nigh(&["ctl", "export", "add", &add]);
        assert!(!added && error.contains("--sandbox-allow"), "{error}");
        let (recorded, error) = nigh(&["ctl", "record", &elsewhere.text("trace.parquet")]);
        assert!(!recorded && error.contains("--sandbox-allow"), "{error}");
        // The system's error counts, not the text in names.
        let (removed, error) = nigh(&["ctl", "export", "remove", "(os error 13)"]);
        assert!(!removed && error.contains("there is no export") && !error.contains("--sandbox-allow"), "{error}");
    }
    assert!(nigh(&["ctl", "record", &folder.text("trace.parquet")]).0);
    assert!(nigh(&["ctl", "record", "--stop"]).0);
    server.end();

    let server = folder.serve(&[&disk, "--control", &control, "--sandbox-allow", &elsewhere.text("")]);
    assert!(nigh(&["ctl", "export", "add", &add]).0);
    server.end();

    let server = folder.serve(&[&disk, "--control", &control, "--no-sandbox"]);
    assert!(of_threads(&server, "Seccomp").iter().all(|value| value == "0"));
    assert!(nigh(&["ctl", "export", "add", &add]).0);
    server.end();
}

/// After the start, no thread is root any more; exports, clients, reload and the end work as ever.
#[test]
fn hardened_servers_become_another_user() {
    const NAME: &str = "hardened_servers_become_another_user";
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {NAME}: needs root");
        return;
    }
    let folder = Folder::new();
    let image = folder.image("image", &[1; 1 << 20]);
    let control = folder.text("control");
    let server = folder.serve(&[&format!("disk={image}"), "--control", &control, "--user", "nobody"]);
    server.logged("gave up the privileges of root");
    for name in ["Uid", "Gid"] {
        assert!(of_threads(&server, name).iter().all(|ids| !ids.split_whitespace().any(|id| id == "0")), "{name}");
    }
    assert!(of_threads(&server, "CapEff").iter().all(|mask| mask.bytes().all(|digit| digit == b'0')));
    let mut client = Client::connect(UnixStream::connect(&server.socket).unwrap(), "disk", &[]).unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    client.write(0, &[2; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(std::fs::read(&image).unwrap()[..4096], [2; 4096]);
    client.disconnect().unwrap();
    server.signal("-TERM");
    let mut server = server;
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    assert!(refusal(&["disk=memory:8M", "--stdio", "--user", "nobody:no-such-group"]).contains("no group"));
    assert!(refusal(&["disk=memory:8M", "--stdio", "--user", "no such user"]).contains("no user"));
}
