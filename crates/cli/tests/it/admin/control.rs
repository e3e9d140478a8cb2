//! `nigh ctl`: changes of a server that clients are using.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use nigh_nbd::client::Client;
use serde_json::Value;
use tempfile::TempDir;

use super::{MIB, Server, empty_image, nigh, refusal, text};

/// A server with a control socket.
pub(super) struct Controlled {
    pub(super) folder: TempDir,
    pub(super) server: Server,
}

impl Controlled {
    pub(super) fn start(folder: TempDir, arguments: &[&str]) -> Controlled {
        Controlled::start_as(folder, &[&["--memory-max", "64M"], arguments].concat())
    }

    pub(super) fn start_as(folder: TempDir, arguments: &[&str]) -> Controlled {
        let (listen, control) =
            (format!("unix:{}", folder.path().join("nbd").display()), folder.path().join("control"));
        let own = ["--listen", &listen, "--control", text(&control), "--sandbox-allow", text(folder.path())];
        let server = Server::start(&[&own, arguments].concat());
        Controlled { folder, server }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn connect(&self, export: &str) -> Client<UnixStream> {
        self.try_connect(export).unwrap()
    }

    fn try_connect(&self, export: &str) -> nigh_nbd::client::Result<Client<UnixStream>> {
        Client::connect(UnixStream::connect(self.path("nbd"))?, export, &[])
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let control = self.path("control");
        nigh(&["ctl", "--control", text(&control)]).args(arguments).output().unwrap()
    }

    /// A command that succeeds, and what it prints.
    pub(super) fn does(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command that fails, and its message.
    pub(super) fn refuses(&self, arguments: &[&str]) -> String {
        refusal(&self.ctl(arguments))
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_str(&self.does(&["status", "--json"])).unwrap()
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn byte_at(path: &Path, at: usize) -> u8 {
    std::fs::read(path).unwrap()[at]
}

#[test]
fn memory_and_policy_are_set_and_status_tells() {
    let nigh = Controlled::start(folder(), &["disk=memory:64M", "--policy", "lru"]);
    assert_eq!(std::fs::metadata(nigh.path("control")).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = nigh.connect("disk");
    client.write(5, b"before").unwrap();
    nigh.does(&["set", "memory", "32M"]);
    nigh.does(&["set", "policy", "lirs:hir=2%"]);
    assert_eq!(client.read(5, 6).unwrap(), b"before");
    nigh.does(&["set", "readahead", "extent:64K"]);
    client.read(MIB, 1).unwrap();
    let status = nigh.status();
    assert_eq!((&status["readahead"], &status["exports"][0]["prefetch_issued"]), (&"extent:64K".into(), &15.into()));
    assert_eq!((&status["memory_bytes"], &status["connections"]), (&(32 * MIB).into(), &1.into()));
    assert!(status["policy"].as_str().unwrap().starts_with("lirs"));
    assert_eq!((&status["exports"][0]["name"], &status["exports"][0]["options"]["iops"]), (&"disk".into(), &0.into()));
    let text = nigh.does(&["status"]);
    assert!(text.contains("disk") && text.contains("memory:64M") && text.contains("32 MiB"), "{text}");
    assert!(text.contains("ahead    extent:64K") && text.contains("1 since the start, 0 refused"), "{text}");

    assert!(nigh.refuses(&["set", "memory", "65M"]).contains("a limit of 64 MiB"));
    assert!(nigh.refuses(&["set", "memory", "12"]).contains("amount of memory"));
    assert!(nigh.refuses(&["set", "policy", "lrv"]).contains("lrv"));
    assert!(nigh.refuses(&["set", "readahead", "windows"]).contains("no read-ahead 'windows'"));
    assert!(nigh.refuses(&["set", "export", "disc", "read-only"]).contains("no export disc"));
    assert!(nigh.refuses(&["set", "export", "disk", "iops=0"]).contains("iops"));
    assert!(nigh.refuses(&["flush", "disc"]).contains("no export disc"));
    client.disconnect().unwrap();
    nigh.server.end();
    let nowhere = super::nigh(&["ctl", "--control", "/nowhere/control", "status"]).output().unwrap();
    assert!(refusal(&nowhere).contains("/nowhere/control"));
    let none = super::nigh(&["ctl", "status"]).env_remove("NIGH_CONTROL").output().unwrap();
    assert!(refusal(&none).contains("--control"));
}

#[test]
fn exports_come_and_go_and_their_writes_stay() {
    let folder = folder();
    let (first, second) = (empty_image(folder.path(), "first", 8 * MIB), empty_image(folder.path(), "second", 8 * MIB));
    let nigh = Controlled::start(folder, &["first=memory:8M"]);
    let mut stays = nigh.connect("first");
    stays.write(0, &[7; 4096]).unwrap();
    assert!(nigh.try_connect("second").is_err());
    nigh.does(&["export", "add", &format!("second={}", second.display()), "requests=4,connections=2"]);
    let mut goes = nigh.connect("second");
    let mut also = nigh.connect("second");
    // One more than it may have.
    assert!(nigh.try_connect("second").is_err());
    goes.write(100, &[9; 5000]).unwrap();
    also.write(MIB, &[8; 10]).unwrap();
    assert_eq!(nigh.status()["exports"][1]["connections"], 2);
    assert!(nigh.refuses(&["export", "add", "second=memory:1M"]).contains("two exports are named"));
    assert!(
        nigh.refuses(&["export", "add", &format!("more={}", second.display())])
            .contains("disks more and second are both")
    );
    assert!(nigh.refuses(&["export", "add", "more=/nowhere"]).contains("/nowhere"));

    nigh.does(&["export", "remove", "second"]);
    assert_eq!((byte_at(&second, 100), byte_at(&second, MIB as usize)), (9, 8));
    assert!(goes.read(0, 1).is_err() && also.read(0, 1).is_err());
    assert!(nigh.try_connect("second").is_err());
    assert_eq!(stays.read(0, 4096).unwrap(), [7; 4096]);
    // Its number and its file are free again, and nothing of it is left in the cache.
    nigh.does(&["export", "add", &format!("third={}", first.display())]);
    assert_eq!(nigh.connect("third").read(0, 8192).unwrap(), [0; 8192]);
    nigh.does(&["export", "add", &format!("fourth={}", second.display())]);
    assert_eq!(nigh.connect("fourth").read(100, 1).unwrap(), [9]);
    for _ in 0..20 {
        nigh.does(&["export", "remove", "third"]);
        nigh.does(&["export", "add", &format!("third={}", first.display())]);
    }
    stays.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn an_export_whose_device_fails_stays_until_its_writes_are_dropped() {
    let nigh = Controlled::start(folder(), &["good=memory:8M"]);
    nigh.does(&["export", "add", "bad=fault:write=1,write=2,write=3,write=4,write=5,write=6:memory:8M"]);
    let mut good = nigh.connect("good");
    nigh.connect("bad").write(0, &[5; 4096]).unwrap();
    assert!(nigh.refuses(&["export", "remove", "bad"]).contains("not everything is written"));
    // Written data is still there for those who come.
    assert_eq!(nigh.connect("bad").read(0, 4096).unwrap(), [5; 4096]);
    nigh.does(&["export", "remove", "bad", "--discard"]);
    assert!(nigh.try_connect("bad").is_err());
    good.read(0, 4096).unwrap();
    good.disconnect().unwrap();
    nigh.server.end();
}

#[test]
fn an_export_over_two_files_comes_and_goes() {
    let folder = folder();
    let [a, b] = ["a", "b"].map(|name| empty_image(folder.path(), name, MIB));
    let nigh = Controlled::start(folder, &["other=memory:1M"]);
    let disk = format!("disk={},next={}", a.display(), b.display());
    nigh.does(&["export", "add", &disk, "iops=100000"]);
    let mut client = nigh.connect("disk");
    client.write(MIB - 1, &[1, 2]).unwrap();
    client.flush().unwrap();
    assert_eq!((byte_at(&a, MIB as usize - 1), byte_at(&b, 0)), (1, 2));
    let of = &nigh.status()["exports"][1];
    let next: Value = vec![text(&b)].into();
    assert_eq!((&of["size"], &of["target"], &of["next"]), (&(2 * MIB).into(), &text(&a).into(), &next));
    assert_eq!((&of["options"]["next"], &of["options"]["iops"]), (&next, &100_000.into()));
    let shown = format!("{}, then {}", a.display(), b.display());
    assert!(nigh.does(&["status"]).contains(&shown));
    assert!(nigh.refuses(&["set", "export", "disk", "next=memory:1M"]).contains("cannot change while it is open"));
    nigh.does(&["set", "export", "disk", "read-only"]);
    nigh.does(&["export", "remove", "disk"]);
    assert!(
        nigh.refuses(&["export", "add", &disk, &format!("next={}", a.display())])
            .contains("two targets of disk disk are")
    );
    nigh.does(&["export", "add", &disk]);
    assert_eq!(nigh.connect("disk").read(MIB - 1, 2).unwrap(), [1, 2]);
    nigh.server.end();
}

#[test]
fn an_export_becomes_read_only_and_is_flushed_and_slowed() {
    let folder = folder();
    let image = empty_image(folder.path(), "image", 8 * MIB);
    let (disk, set) = (format!("disk={}", image.display()), "ro:read-only,write-mode=through");
    let nigh = Controlled::start(folder, &[&disk, "ro=memory:1M", "--set", set]);
    let mut client = nigh.connect("disk");
    client.write(0, &[1; 4096]).unwrap();
    nigh.does(&["flush", "disk"]);
    assert_eq!(byte_at(&image, 0), 1);
    nigh.does(&["set", "export", "disk", "read-only"]);
    assert!(client.write(0, &[2; 4096]).unwrap_err().to_string().contains("EPERM"));
    assert!(client.zero(0, 4096).is_err() && client.trim(0, 4096).is_err());
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    assert!(nigh.connect("disk").export().features.read_only);
    nigh.does(&["set", "export", "disk", "read-only=no", "write-mode=through"]);
    client.write(0, &[3; 4096]).unwrap();
    assert_eq!(byte_at(&image, 0), 3, "it is written through");
    assert!(nigh.connect("ro").write(0, &[1]).unwrap_err().to_string().contains("EPERM"));
    assert!(nigh.refuses(&["set", "export", "ro", "read-only=no"]).contains("remove it and add it again"));
    nigh.does(&["flush"]);

    // No faster than the rate allows, of which a tenth of a second is kept.
    nigh.does(&["set", "export", "disk", "iops=100"]);
    let begin = Instant::now();
    (0..60).for_each(|_| drop(client.read(0, 4096).unwrap()));
    assert!(begin.elapsed() >= Duration::from_millis(480), "{:?}", begin.elapsed());
    nigh.does(&["set", "export", "disk", "iops=none,bandwidth=1M"]);
    let begin = Instant::now();
    (0..6).for_each(|_| drop(client.read(0, MIB as usize / 10).unwrap()));
    assert!(begin.elapsed() >= Duration::from_millis(480), "{:?}", begin.elapsed());
    // One whose turn comes in minutes is not waited for: neither by who removes the export nor at the end.
    nigh.does(&["set", "export", "disk", "bandwidth=1K"]);
    client.submit_read(0, vec![0; 64 << 10]).unwrap();
    client.submit_read(0, vec![0; 64 << 10]).unwrap();
    let mut other = nigh.connect("ro");
    other.read(0, 1).unwrap();
    nigh.does(&["export", "remove", "disk"]);
    nigh.does(&["set", "export", "ro", "bandwidth=1K"]);
    other.submit_read(0, vec![0; 64 << 10]).unwrap();
    other.submit_read(0, vec![0; 64 << 10]).unwrap();
    nigh.server.end();
}

#[test]
fn a_reload_adds_changes_and_removes_exports() {
    let folder = folder();
    let config = folder.path().join("nigh.toml");
    let a = empty_image(folder.path(), "a", 4 * MIB);
    let write = |exports: &[(&str, &str, &str)]| {
        let mut text = "policy = 'lru'\nmemory-max = '64M'\n".to_owned();
        for (name, target, more) in exports {
            text += &format!("[[export]]\nname = '{name}'\ntarget = '{target}'\n{more}\n");
        }
        std::fs::write(&config, text).unwrap();
    };
    write(&[("a", text(&a), ""), ("b", "memory:2M", ""), ("c", "memory:3M", "read-only = true")]);
    let path = text(&config).to_owned();
    let nigh = Controlled::start(folder, &["--config", &path, "flag=memory:1M"]);
    let (mut on_a, mut on_b, mut on_flag) = (nigh.connect("a"), nigh.connect("b"), nigh.connect("flag"));
    on_a.write(0, b"a").unwrap();
    on_b.write(0, b"b").unwrap();
    nigh.does(&["export", "add", "by-hand=memory:1M"]);
    let limited = "write-mode = 'through'\niops = 100000\nbandwidth = '1G'\nconnections = 9";
    write(&[("b", "memory:2M", limited), ("c", "memory:3M", ""), ("d", "memory:5M", "")]);
    nigh.does(&["reload"]);
    let status = nigh.status();
    let names: Vec<&str> = status["exports"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["b", "c", "d", "flag"], "what the file does not say is gone");
    let b = &status["exports"].as_array().unwrap()[names.iter().position(|name| *name == "b").unwrap()]["options"];
    assert_eq!(
        (&b["write_mode"], &b["iops"], &b["bandwidth"]),
        (&"through".into(), &100_000.into(), &(1u64 << 30).into())
    );
    assert!(on_a.read(0, 1).is_err());
    assert_eq!(byte_at(&a, 0), b'a');
    assert_eq!(on_b.read(0, 1).unwrap(), b"b", "its client was not disturbed");
    on_flag.read(0, 1).unwrap();
    nigh.connect("c").write(0, b"now it is writable").unwrap();
    // One that cannot be opened is reported, and the rest done; a slip changes nothing.
    write(&[("b", "memory:2M", ""), ("e", "/nowhere", ""), ("f", "memory:1M", "")]);
    assert!(nigh.refuses(&["reload"]).contains("/nowhere"));
    nigh.connect("f").read(0, 1).unwrap();
    assert!(nigh.try_connect("d").is_err());
    write(&[("b", "memory:2M", ""), ("f", "memory:1M", "")]);
    std::fs::write(&config, "readahead = 'linux'\n".to_owned() + &std::fs::read_to_string(&config).unwrap()).unwrap();
    nigh.does(&["reload"]);
    assert_eq!(nigh.status()["readahead"], "linux:max=128K");
    write(&[("b", "memory:2M", "iosp = 3")]);
    assert!(nigh.refuses(&["reload"]).contains("iosp"));
    nigh.connect("f").read(0, 1).unwrap();
    on_b.read(0, 1).unwrap();
    nigh.server.end();
}

#[test]
fn the_socket_answers_every_line() {
    let nigh = Controlled::start(folder(), &["disk=memory:1M"]);
    let stream = UnixStream::connect(nigh.path("control")).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut ask = |line: &str| -> Value {
        (&stream).write_all(line.as_bytes()).unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    for wrong in
        ["", "{}", "null", "{\"command\":\"stats\"}", "{\"command\":\"set\",\"memroy\":5}", "\u{0}\u{7}", "[[[["]
    {
        let answer = ask(&format!("{wrong}\n"));
        assert!(answer["schema"] == 1 && answer["error"].as_str().unwrap().contains("no command"), "{wrong}: {answer}");
    }
    // An answer about a client's words is one line.
    for line in ["{\"command\":\"flush\",\"name\":\"a\\nb\"}\n", "{\"command\":\"st\\natus\"}\n"] {
        let answer = ask(line);
        assert!(!answer["error"].as_str().unwrap().contains(char::is_control), "{answer}");
    }
    assert!(ask("{\"command\":\"set\",\"memory\":4000}\n")["error"].as_str().unwrap().contains("4096"));
    assert!(ask("{\"command\":\"set-export\",\"name\":\"disk\",\"options\":{\"iops\":7}}\n")["error"].is_null());
    assert_eq!(ask("{\"command\":\"status\"}\n")["status"]["exports"][0]["options"]["iops"], 7);
    assert!(ask(&"x".repeat(1 << 20))["error"].as_str().unwrap().contains("1 MiB"));
    // A silent connection is in nobody's way.
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(nigh.path("control")).unwrap()).collect();
    drop(silent);
    let begin = Instant::now();
    while !nigh.ctl(&["status"]).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(10), "nobody is let in any more");
    }
    let _still_there = UnixStream::connect(nigh.path("control")).unwrap();
    let control = nigh.path("control");
    nigh.server.end();
    assert!(!control.exists(), "the socket is left behind");
}

#[test]
fn a_policy_that_remembers_without_limit_is_for_replay_only() {
    let serve = nigh(&["serve", "disk=memory:1M", "--policy", "lirs:ghosts=unlimited", "--stdio"]).output().unwrap();
    let said = refusal(&serve);
    assert!(
        said.contains(
            "policy 'lirs:ghosts=unlimited' remembers an unlimited number of blocks, which only a replay allows"
        ),
        "{said}"
    );
    let nigh = Controlled::start(tempfile::tempdir().unwrap(), &["disk=memory:1M"]);
    assert!(nigh.refuses(&["set", "policy", "lirs:ghosts=unlimited"]).contains("which only a replay allows"));
    nigh.server.end();
}
