//! `nigh serve` day by day: who can connect, the log, and the configuration file.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::serving::{Folder, nigh};
use nigh_testkit::tools::{installed, run};

use crate::command::refusal;

/// Runs a tool as a user and group without privileges, in no other group.
fn as_nobody(group: &str, arguments: &[&str]) -> Output {
    let rights = [format!("--regid={group}"), "--reuid=65534".to_owned(), "--clear-groups".to_owned()];
    Command::new("setpriv").args(rights).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn sockets_9_can_be_opened_to_other_users() {
    const TEST: &str = "sockets_9_can_be_opened_to_other_users";
    let folder = Folder::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let server = folder.serve(&["d=memory:1M", "--control", &folder.text("control")]);
    assert_eq!(mode(&server.socket), 0o600);
    server.end();
    let config = folder.image("nigh.toml", b"socket-mode = '0666'\n");
    let server = folder.serve(&["d=memory:1M", "--config", &config, "--control", &folder.text("control")]);
    assert_eq!((mode(&server.socket), mode(&folder.path("control"))), (0o666, 0o600));
    server.end();

    let listen = format!("unix:{}", folder.text("other"));
    let fails = |more: &[&str]| {
        let said = refusal(&nigh(&["--listen", &listen, "d=memory:1M"], more).output().unwrap());
        assert!(!folder.path("other").exists(), "the socket is left behind");
        said
    };
    for wrong in ["888", "1777", "rw", ""] {
        assert!(fails(&["--socket-mode", wrong]).contains("octal digits from 0 to 0777"), "{wrong}");
    }
    assert!(fails(&["--socket-group", "no-such-group"]).contains("there is no group `no-such-group`"));

    if !rustix::process::geteuid().is_root() {
        println!("skipped: {TEST}: the rest needs root");
        return;
    }
    if !installed(TEST, "setpriv") || !installed(TEST, "nbdinfo") {
        return;
    }
    let others = |path: &str| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    others(&folder.text("."));
    // A number that no group has: only the one that is asked for matters.
    let server = folder.serve(&["d=memory:1M", "--socket-group", "54321"]);
    assert_eq!((mode(&server.socket), std::fs::metadata(&server.socket).unwrap().gid()), (0o660, 54321));
    let (uri, asks) = (server.uri("d"), |group, uri: &str| as_nobody(group, &["nbdinfo", "--size", uri]));
    let stranger = asks("54322", &uri);
    assert!(!stranger.status.success() && String::from_utf8_lossy(&stranger.stderr).contains("Permission denied"));
    let member = asks("54321", &uri);
    assert_eq!(String::from_utf8_lossy(&member.stdout).trim(), "1048576", "{member:?}");
    server.end();
    let server = folder.serve(&["d=memory:1M", "--socket-group", "root", "--socket-mode", "0606"]);
    assert!(asks("54322", &server.uri("d")).status.success());
    server.end();
}

/// Killed when dropped, as when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The log of a server with these arguments from its start to its end, while `act` runs.
fn log_of(folder: &Folder, arguments: &[&str], act: impl FnOnce(&dyn Fn(&[&str]) -> Output)) -> String {
    let (listen, control) = (format!("unix:{}", folder.text("s ocket")), folder.text("control"));
    let log = std::fs::File::create(folder.path("log")).unwrap();
    let mut server =
        Running(nigh(&["--listen", &listen, "--control", &control], arguments).stderr(log).spawn().unwrap());
    let read = || std::fs::read_to_string(folder.path("log")).unwrap();
    let start = Instant::now();
    while !read().contains("serving") {
        assert!(start.elapsed() < Duration::from_secs(20) && server.0.try_wait().unwrap().is_none(), "{}", read());
        std::thread::sleep(Duration::from_millis(10));
    }
    act(&|arguments| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["ctl", "--control", &control]).args(arguments).stdin(Stdio::null()).output().unwrap()
    });
    run("kill", &["-TERM", &server.0.id().to_string()]);
    server.0.wait().unwrap();
    read()
}

#[test]
fn the_log_says_in_words_what_is_served_and_done() {
    let folder = Folder::new();
    let config = folder.image("nigh.toml", b"");
    let image = folder.empty_image("root.img", 8 << 20);
    let (export, socket) = (format!("my disk={image},iops=1000"), folder.text("s ocket"));
    let uri = format!("nbd+unix:///my%20disk?socket={}", socket.replace(' ', "%20"));
    let log = log_of(&folder, &[&export, "bad=fault:flush=1,flush=2:memory:1M", "--config", &config], |ctl| {
        let text = |arguments: &[&str]| {
            let output = ctl(arguments);
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let said = |arguments: &[&str]| {
            let output = ctl(arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            said
        };
        let list = text(&["export", "list"]);
        assert!(list.starts_with("EXPORT") && list.contains("iops=1000") && list.contains(&uri), "{list}");
        let json: serde_json::Value = serde_json::from_str(&text(&["export", "list", "--json"])).unwrap();
        let first = &json["exports"][0];
        assert_eq!(
            (&json["schema"], &first["name"], &first["size"]),
            (&1.into(), &"my disk".into(), &(8 << 20).into())
        );
        assert_eq!((&first["uris"][0], &first["options"]["iops"]), (&uri.as_str().into(), &1000.into()));

        text(&["set", "export", "my disk", "iops=none,bandwidth=3M"]);
        assert!(said(&["set", "policy", "lrv"]).contains("lrv"));
        assert!(said(&["export", "remove", "none"]).contains("no export none"));
        assert!(said(&["flush", "bad"]).contains("Input/output error"), "a fault has words");
        std::fs::write(&config, "policy = 'much'\n").unwrap();
        assert!(said(&["reload"]).contains("much"));
    });
    let count = |part: &str| log.matches(part).count();
    assert_eq!(count(&format!("listening on unix:{socket}")), 1, "{log}");
    assert_eq!(count("cache of 16 MiB, policy lirs"), 1, "{log}");
    assert_eq!(count(&format!("serving my disk (8 MiB of {image}, iops=1000) at {uri}")), 1, "{log}");
    assert_eq!(count("INFO control: set export my disk: iops=none,bandwidth=3M"), 1, "{log}");
    assert_eq!(count("WARN control: refused to set policy to lrv: "), 1, "{log}");
    assert_eq!(count("WARN control: refused to remove export none: there is no export none"), 1, "{log}");
    assert_eq!(count("refused to flush export bad: "), 1, "{log}");
    assert_eq!((count("much"), count("not reloaded")), (1, 1), "errors appear once: {log}");
    assert!(!log.contains("None") && !log.contains("Some(") && !log.contains(" { "), "Debug in {log}");
}

#[test]
fn errors_name_their_cause_once() {
    let folder = Folder::new();
    let nowhere = folder.text("nowhere/x");
    let listen = format!("unix:{}", folder.text("socket"));
    for more in [
        &["--control", nowhere.as_str()][..],
        &["--config", &nowhere],
        &["--level", &format!("file:{nowhere}:1G")],
        &["--tls", &format!("certificate={nowhere},key={nowhere}")],
        &[&format!("e={nowhere}")],
        &[&format!("e=memory:1M,next={nowhere}")],
    ] {
        let said = refusal(&nigh(&["--listen", &listen, "d=memory:1M"], more).output().unwrap());
        assert_eq!(said.matches("No such file or directory").count(), 1, "{said}");
        assert_eq!(said.matches("nowhere/x").count(), 1, "{said}");
    }
}

#[test]
fn a_printed_configuration_is_read_again_as_it_was() {
    let folder = Folder::new();
    let prints = |arguments: &[&str], what: &str| {
        let output = nigh(&[what], arguments).output().unwrap();
        // Not all of these files are there.
        let is_fine = output.status.success() || what == "--check";
        assert!(is_fine, "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let level = format!("file:{}:256M", folder.text("level"));
    let every = [
        "a=delay:1ms:raw:x.img,next=memory:1M,next=b.img,read-only,iops=5,bandwidth=3M,client=c,client=d",
        "b=memory:1M,connections=3,requests=4",
        "--memory",
        "64M",
        "--memory-max=96M",
        "--policy=lirs:hir=2%",
        "--write=through",
        "--readahead=linux:max=256K",
        "--scheduler=deadline",
        "--depth=7",
        "--shards=3",
        "--connections=9",
        &format!("--level={level}"),
        "--listen=unix:a b.sock",
        "--listen=tcp:localhost:0",
        "--socket-mode=0640",
        "--socket-group=root",
        "--insecure-tcp",
        "--metrics=127.0.0.1:0",
        "--control=c",
        "--tls=certificate=a.pem,key=b.pem,client-ca=c.pem",
    ];
    let tenants = [
        "a=memory:1M,tenant=t,floor=1M",
        "b=memory:1M,ceiling=3M,policy=arc",
        "--allocate=lru-sp",
        "--prefetch=batch=4,adapt",
    ];
    for arguments in [&every[..], &tenants, &["d=memory:1M"]] {
        let printed = prints(arguments, "--print-config");
        let config = folder.image("printed.toml", printed.as_bytes());
        // Without the memory that the tests ask for.
        let again = ["--config", &config, "--memory", if arguments.len() > 10 { "64M" } else { "16M" }];
        assert_eq!(prints(&again, "--print-config"), printed);
        assert_eq!(prints(&again, "--check"), prints(arguments, "--check"), "{printed}");
    }
}

#[test]
fn earlier_spellings_are_refused_with_the_present_ones() {
    let folder = Folder::new();
    let config = folder.image("nigh.toml", b"memory = \"16M\"\nlevel-wait = \"2s\"\n");
    let cases = [
        (&["d=memory:1M", "--adapt-batch"][..], "--adapt-batch is now written as in --prefetch adapt"),
        (&["--config", &config], "nigh.toml:2: level-wait is now written as in --level tcp:HOST:PORT:SIZE,wait=TIME"),
    ];
    for (arguments, words) in cases {
        let said =
            refusal(&nigh(&["--listen", &format!("unix:{}", folder.text("socket"))], arguments).output().unwrap());
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_key_that_cannot_be_used_is_blamed_on_its_file() {
    if !installed("a_key_that_cannot_be_used_is_blamed_on_its_file", "openssl") {
        return;
    }
    let folder = Folder::new();
    let (certificate, key, short) = (folder.text("a.pem"), folder.text("a.key"), folder.text("short.key"));
    let make = |bits: &str, key: &str| {
        let new = ["req", "-x509", "-newkey", bits, "-nodes", "-subj", "/CN=localhost", "-days", "2"];
        run("openssl", &[&new[..], &["-keyout", key, "-out", &certificate]].concat());
    };
    let listen = format!("unix:{}", folder.text("socket"));
    let start = |key: &str| {
        let tls = ["--tls", &format!("certificate={certificate},key={key}"), "d=memory:1M"];
        refusal(&nigh(&["--listen", &listen], &tls).output().unwrap())
    };
    make("rsa:1024", &short);
    let said = start(&short);
    assert!(said.contains(&format!("{short}: the private key cannot be used")) && !said.contains("a.pem"), "{said}");
    make("rsa:2048", &key);
    make("rsa:2048", &folder.text("other.key"));
    let said = start(&key);
    assert!(said.contains(&format!("{certificate} and {key}: ")), "{said}");
}

/// The completions of fish for the last of these words.
fn completions(words: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let mut asked = Command::new(env!("CARGO_BIN_EXE_nigh"));
    asked.env_remove("NIGH_CONTROL").env("NIGH_COMPLETE", "fish").envs(environment.iter().copied());
    let output = asked.args(["--", "nigh"]).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn shells_complete_policies_devices_and_exports() {
    let folder = Folder::new();
    let control = folder.text("control");
    let _server = folder.serve(&["first=memory:1M", "second=memory:1M", "--control", &control]);
    assert_eq!(completions(&["serve", "--policy", "lir"], &[]), ["lirs"]);
    assert_eq!(completions(&["sim", "--policy", "lru,clock-"], &[]), ["lru,clock-pro"]);
    assert_eq!(completions(&["sim", "--policy", "op"], &[]), ["opt"]);
    assert!(completions(&["serve", "--policy", "op"], &[]).is_empty(), "the future is known in replays only");
    assert!(completions(&["sim", "x.csv", "--device", "hdd-"], &[]).contains(&"hdd-7200".to_owned()));
    assert_eq!(completions(&["ctl", "--control", &control, "export", "remove", "s"], &[]), ["second"]);
    let environment = [("NIGH_CONTROL", control.as_str())];
    assert_eq!(completions(&["ctl", "set", "export", "f"], &environment), ["first"]);
    assert_eq!(completions(&["ctl", "flush", "f"], &[("NIGH_CONTROL", "/nowhere")]), Vec::<String>::new());
    assert!(completions(&["ctl", "export", "l"], &[]).contains(&"list".to_owned()));
}
