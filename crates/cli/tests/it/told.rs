//! Messages for operators: in the log, from `nigh ctl` and `--check`, and in refusals.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nigh_nbd::client::Client;
use nigh_testkit::tools::installed;

use crate::serving::pki::Pki;
use crate::serving::{Folder, Server, nigh, until};

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), export, &[]).unwrap()
}

/// The message of a command that fails.
fn refusal(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn told_9_reads_that_a_device_fails_are_in_the_log() {
    let folder = Folder::new();
    let server = folder.serve(&["disk=memory:4M,next=fault:read=1,read=2,read=3:memory:4M", "--readahead", "none"]);
    let mut client = connect(&server, "disk");
    client.read(0, 4096).unwrap();
    for at in [0, 1, 2] {
        client.read((4 << 20) + at * 8192, 4096).unwrap_err();
    }
    let lines = server.logged("failed to read these bytes");
    let is_told =
        |line: &String| ["disk=\"disk\"", "from=4194304", "to=4198400"].iter().all(|word| line.contains(word));
    assert!(lines.len() == 1 && lines.iter().all(is_told), "{lines:#?}");
    assert_eq!(client.read(4 << 20, 4096).unwrap(), [0; 4096]);
    server.end();
}

/// Writes that an NBD server acknowledged and did not flush are lost with it: the end of the server reports them, and so does the status
/// before.
#[test]
fn told_9_what_an_nbd_server_may_lose_is_counted() {
    let (above, below) = (Folder::new(), Folder::new());
    let upstream = below.serve(&["disk=memory:4M"]);
    let target = format!("disk=nbd+unix:///disk?socket={}&x-reconnect=1s", upstream.socket.display());
    let control = above.text("control");
    let mut server = above.serve(&[&target, "--write-mode", "through", "--stop-within", "4s", "--control", &control]);
    let mut client = connect(&server, "disk");
    client.write(0, &[1; 12288]).unwrap();
    let staged = || above.status()["exports"][0]["targets"][0]["staged_bytes"].as_u64().unwrap();
    assert_eq!(staged(), 12288);
    client.flush().unwrap();
    assert_eq!(staged(), 0);
    client.write(4096, &[2; 8192]).unwrap();
    upstream.kill();
    until("the status tells of the server that is gone", || {
        let status = above.status();
        let target = &status["exports"][0]["targets"][0];
        target["trouble"].as_str().is_some_and(|trouble| trouble.contains("NBD server"))
    });
    let text = String::from_utf8(above.ctl(&["status"]).stdout).unwrap();
    assert!(text.contains("trouble") && text.contains("8 KiB that it has received may be lost"), "{text}");
    drop(client);
    server.signal("-TERM");
    assert_eq!(server.process.wait().unwrap().code(), Some(2));
    let said = server.logged("not everything is written");
    assert!(said[0].contains("8192 bytes that are not stable yet"), "{said:#?}");
}

#[test]
fn told_9_check_looks_at_targets_certificates_and_levels() {
    let folder = Folder::new();
    let (image, odd) = (folder.empty_image("image", 1 << 20), folder.empty_image("odd", 5000));
    let empty = folder.empty_image("empty", 0);
    symlink(&image, folder.path("link")).unwrap();
    let pki = Pki::new();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| pki.path(name).to_str().unwrap().to_owned());
    let tls = |key: &str| ["--tls".to_owned(), format!("certificate={certificate},key={key}")];
    let check = |arguments: &[&str]| {
        let mut check = nigh(&["--check", "--listen", "tcp:localhost:0"], arguments);
        check.stdout(Stdio::null()).output().unwrap()
    };
    let good = tls(&key);
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let level = format!("file:{}:1M", folder.text("level"));
    let disk = format!("disk={image}");
    let fine = [&[&*disk, "two=memory:1M", "--level", &level], &good[..]].concat();
    let checked = check(&fine);
    assert!(checked.status.success(), "{checked:?}");
    assert!(!folder.path("level").exists(), "it made the level");
    // A server that runs is no reason to reject its own configuration.
    let server = folder.serve(&[&disk]);
    let checked = check(&fine);
    assert!(checked.status.success(), "{checked:?}");
    server.end();

    let nowhere = folder.text("nowhere");
    let without_key = tls(&nowhere);
    let without_key: Vec<&str> = without_key.iter().map(String::as_str).collect();
    let (link, level) = (format!("other={}", folder.text("link")), format!("file:{nowhere}/level:1M"));
    let socket = format!("disk=nbd+unix:///x?socket={nowhere}");
    for (arguments, word) in [
        (&[&*format!("disk={nowhere}")][..], "nowhere"),
        (&[&format!("disk=memory:1M,next={nowhere}")], "nowhere"),
        (&[&format!("disk={odd},next=memory:1M")], "must be a multiple of 4096"),
        (&[&format!("disk={empty}")], "is empty"),
        (&[&format!("disk=delay:disk={nowhere}.toml:memory:1M")], "use the profile"),
        (&[&disk, &link], "disks disk and other are both"),
        (&[&socket], "connect to"),
        (&[&disk, "--level", &level], "level"),
        (&[&disk, "--control", &format!("{nowhere}/control")], "there is no folder"),
        (&[&disk, "--record", &format!("{nowhere}/trace.parquet")], "there is no folder"),
        (&[&disk, "--metrics", &format!("127.0.0.1:0,token={nowhere}")], "the token"),
        (&[&disk, "--memory", "1000T"], "MiB of memory"),
        (&[&[&*disk], &without_key[..]].concat(), "nowhere"),
        (&["a=memory:1M", "b=/nowhere1", "c=/nowhere2"], "nowhere2"),
    ] {
        let said = refusal(&check(arguments));
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    let both = check(&[&disk, &link, "--read-only"]);
    assert!(both.status.success(), "{both:?}");
}

#[test]
fn told_9_a_policy_that_tenants_cannot_have_is_not_set() {
    let folder = Folder::new();
    let control = folder.text("control");
    let server = folder.serve(&["disk=memory:1M", "--allocate", "global", "--control", &control]);
    let said = refusal(&folder.ctl(&["set", "policy", "lirs"]));
    assert!(said.contains("in one list under lru"), "{said}");
    server.end();
    let server = folder.serve(&["disk=memory:1M", "--allocate", "lru-sp", "--control", &control]);
    let said = refusal(&folder.ctl(&["set", "policy", "ulc"]));
    assert!(said.contains("does not go with tenants"), "{said}");
    // A change that is refused in part is refused as a whole.
    let said = refusal(&folder.ctl(&["set", "export", "disk", "floor=100K,policy=ulc"]));
    assert!(said.contains("does not go with tenants"), "{said}");
    assert_eq!(folder.status()["tenants"][0]["floor"], 0);
    assert!(folder.ctl(&["set", "policy", "lirs:hir=100"]).status.success(), "a number of blocks is a parameter");
    server.end();
}

#[test]
fn told_9_names_of_others_control_no_terminal() {
    let folder = Folder::new();
    let control = folder.text("control");
    let server = folder.serve(&["disk=memory:1M", "--control", &control, "--log", "debug"]);
    let is_clean = |text: &str| !text.replace('\n', "").contains(char::is_control);
    // A client may ask for any name, and the log may contain it.
    let stream = UnixStream::connect(&server.socket).unwrap();
    assert!(Client::connect(stream, "\u{1b}[31mred\nnigh: fine", &[]).is_err());
    let odd = folder.text("\u{1b}[31m.parquet");
    for arguments in [
        &["export", "add", "\u{1b}[2J=memory:1M"][..],
        &["export", "remove", "\u{1b}[2J"],
        &["flush", "\u{9b}2J"],
        &["record", &odd],
    ] {
        let said = refusal(&folder.ctl(arguments));
        assert!(is_clean(&said) && said.lines().count() == 1, "{arguments:?}: {said:?}");
    }
    assert!(!folder.path("\u{1b}[31m.parquet").exists());
    let said = refusal(&nigh(&["--stdio"], &["\u{7}=memory:1M"]).output().unwrap());
    assert!(is_clean(&said) && said.contains("no control characters"), "{said:?}");
    let text = String::from_utf8(folder.ctl(&["status"]).stdout).unwrap();
    assert!(is_clean(&text), "{text:?}");
    let all = server.all("");
    assert!(all.iter().all(|line| is_clean(line)), "{all:#?}");
    server.end();
}

#[test]
fn told_9_the_status_has_rates_latencies_limits_and_why_a_recording_ended() {
    let folder = Folder::new();
    let control = folder.text("control");
    let (allow, disk) = (folder.text(""), "disk=memory:1M,iops=100000");
    let server = folder.serve(&[disk, "--control", &control, "--connections", "9", "--sandbox-allow", &allow]);
    let mut client = connect(&server, "disk");
    for (limit, ended) in [("3", "limit"), ("1M", "stopped")] {
        let trace = folder.text(&format!("{ended}.csv"));
        assert!(folder.ctl(&["record", &trace, "--limit", limit]).status.success());
        (0..4).for_each(|at| drop(client.read(at * 4096, 4096).unwrap()));
        if ended == "stopped" {
            assert!(folder.ctl(&["record", "--stop"]).status.success());
        }
        until("the recording ends", || folder.status()["recording"]["ended"] == ended);
    }
    client.write(0, &[1; 4096]).unwrap();
    client.flush().unwrap();
    until("there are rates", || folder.status()["exports"][0]["rates"]["reads_per_s"].as_f64() > Some(0.0));
    let status = folder.status();
    let fields = ["version", "uptime_seconds", "memory_max_bytes", "connections_max"].map(|name| status[name].clone());
    assert_eq!(fields[0], env!("CARGO_PKG_VERSION"));
    assert!(fields[1].is_u64() && fields[2] == 32 << 20 && fields[3] == 9, "{fields:?}");
    let export = &status["exports"][0];
    assert_eq!(export["targets"][0], serde_json::json!({"target": "memory:1M", "bytes": 1 << 20, "staged_bytes": 0}));
    let text = String::from_utf8(folder.ctl(&["status"]).stdout).unwrap();
    for part in [
        concat!("nigh     ", env!("CARGO_PKG_VERSION"), ", for "),
        "1 of at most 9, 1 since the start",
        "16 MiB of at most 32 MiB",
        "it ended because it was stopped",
        "LAST MINUTE",
        "iops=100000",
        "P50, P99",
        "µs",
        " ok  memory:1M",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    server.end();
}

#[test]
fn told_9_refusals_say_what_is_wrong_and_what_helps() {
    let folder = Folder::new();
    let said = |arguments: &[&str]| refusal(&nigh(&["--listen", "tcp:localhost:0"], arguments).output().unwrap());
    let image = folder.empty_image("image", 1 << 20);
    let one_file = said(&[&format!("a={image}"), &format!("b=raw:{image}")]);
    assert!(one_file.contains("disks a and b are both") && !one_file.contains("process"), "{one_file}");

    let pki = Pki::new();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| pki.path(name).to_str().unwrap().to_owned());
    let upstream = Folder::new();
    let served = upstream.serve(&[
        "--listen",
        "tcp:localhost:0",
        "--tls",
        &format!("certificate={certificate},key={key}"),
        "one=memory:1M",
        "two=memory:1M",
    ]);
    let unknown = said(&[&format!("disk={}", served.uri("three"))]);
    assert!(
        unknown.contains("the server has no export 'three'") && unknown.contains("it has 'one', 'two'"),
        "{unknown}"
    );
    let line = served.all("listening on tcp:");
    let at = line[0].rsplit_once("tcp:").unwrap().1;
    let needs_tls = said(&[&format!("disk=nbd://{at}/one")]);
    assert!(needs_tls.contains("the server requires TLS") && needs_tls.contains("tunnel"), "{needs_tls}");
    served.end();

    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/serving");
    let file = |name: &str| here.join(name).to_str().unwrap().to_owned();
    let (version1, its_key, encrypted) = (file("version1.pem"), file("version1.key"), file("encrypted.key"));
    for (certificate, key, words) in [
        (&version1, &its_key, ["version 1", "version 3"]),
        (&certificate, &encrypted, ["is encrypted", "openssl pkey"]),
    ] {
        let refused = said(&["disk=memory:1M", "--tls", &format!("certificate={certificate},key={key}")]);
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    }
}

/// The kernel opens a read-only block device for writing, and may take what is written without keeping it.
#[test]
fn device_6_a_read_only_block_device_is_not_served_for_writing() {
    let test = "device_6_a_read_only_block_device_is_not_served_for_writing";
    let folder = Folder::new();
    let image = folder.empty_image("image", 1 << 20);
    if !installed(test, "losetup") {
        return;
    }
    let made = Command::new("losetup").args(["--read-only", "--find", "--show", &image]).output().unwrap();
    if !made.status.success() {
        println!("skipped: {test}: losetup attaches no device here");
        return;
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let disk = format!("disk={device}");
    let serve = |more: &[&str]| nigh(&["--listen", "tcp:localhost:0", &disk], more).output().unwrap();
    let tried = std::panic::catch_unwind(|| {
        for more in [&[][..], &["--check"]] {
            let said = refusal(&serve(more));
            assert!(said.contains("the block device is read-only"), "{said}");
        }
        let checked = serve(&["--check", "--read-only"]);
        assert!(checked.status.success(), "{checked:?}");
        let server = folder.serve(&[&disk, "--read-only"]);
        assert_eq!(connect(&server, "disk").read(0, 4096).unwrap(), [0; 4096]);
        server.end();
    });
    assert!(Command::new("losetup").args(["--detach", &device]).status().unwrap().success());
    tried.unwrap();
}
