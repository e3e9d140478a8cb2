//! Slow requests: counted, and logged with what they waited for (`--slow`).

use std::os::unix::net::UnixStream;
use std::time::Duration;

use nigh_nbd::client::Client;
use nigh_testkit::tools::run;

use crate::serving::{Folder, Server, until};

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(&server.socket).unwrap();
    Client::connect(stream, export, &[]).unwrap()
}

fn ctl(folder: &Folder, arguments: &[&str]) -> String {
    run(env!("CARGO_BIN_EXE_nigh"), &[&["ctl", "--control", &folder.text("control")], arguments].concat())
}

/// The slow requests of each export.
fn counted(folder: &Folder) -> Vec<u64> {
    let status = folder.status();
    let exports = status["exports"].as_array().unwrap();
    exports.iter().map(|export| export["slow_requests"].as_u64().unwrap()).collect()
}

#[test]
fn slow_requests_are_logged_with_what_they_waited_for() {
    let folder = Folder::new();
    let control = folder.text("control");
    let exports = ["far=delay:150ms:memory:16M", "near=memory:16M", "paced=memory:16M,iops=5"];
    let flags = [
        "--slow",
        "100ms",
        "--readahead",
        "none",
        "--metrics",
        "127.0.0.1:0",
        "--control",
        &control,
        "--memory",
        "16M",
    ];
    let server = folder.serve(&[&exports[..], &flags].concat());
    connect(&server, "far").read(8192, 4096).unwrap();
    connect(&server, "near").read(8192, 4096).unwrap();
    let line = server.logged("slow request").remove(0);
    for part in [
        "WARN",
        "export=\"far\"",
        "op=\"read\"",
        "offset=8192",
        "length=4096",
        "in cache and devices",
        "for its client",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    let took = |line: &str, after: &str| -> f64 {
        let rest = &line[line.find(after).unwrap() + after.len()..];
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (all, device) = (took(&line, "slow request: "), took(&line, " ms: "));
    assert!(all >= 150.0 && device >= 150.0 && device <= all, "{line}");

    // The last of these waits for its turn for most of a second.
    let mut paced = connect(&server, "paced");
    (0..6).for_each(|at| _ = paced.read(4096 * at, 4096).unwrap());
    until("a request waits for the rate of its export", || !server.later("for its rate").is_empty());
    let line = server.later("for its rate").remove(0);
    assert!(line.contains("export=\"paced\"") && took(&line, " ms: ") > 100.0, "{line}");

    let slow = counted(&folder);
    assert!(slow[0] == 1 && slow[1] == 0 && slow[2] >= 1, "{slow:?}");
    let page = server.metrics_page();
    assert!(page.contains("nigh_slow_requests_total{export=\"far\"} 1\n"), "{page}");
    let text = ctl(&folder, &["status"]);
    assert!(text.contains("SLOW") && text.contains("1 > 100.0 ms"), "{text}");

    // Others are slow from now on, and then none.
    ctl(&folder, &["set", "slow", "10s"]);
    connect(&server, "far").read(1 << 20, 4096).unwrap();
    assert_eq!(counted(&folder)[0], 1);
    ctl(&folder, &["set", "slow", "100ms"]);
    connect(&server, "far").read(2 << 20, 4096).unwrap();
    until("the limit is in effect again", || counted(&folder)[0] == 2);
    ctl(&folder, &["set", "slow", "none"]);
    connect(&server, "far").read(3 << 20, 4096).unwrap();
    assert_eq!(counted(&folder)[0], 2);
    assert!(folder.status().get("slow_limit_us").is_none());
    server.end();
}

#[test]
fn a_burst_of_slow_requests_has_ten_lines_and_a_count() {
    const CLIENTS: u64 = 40;
    let folder = Folder::new();
    let control = folder.text("control");
    let flags = ["--slow", "50ms", "--readahead", "none", "--metrics", "127.0.0.1:0", "--control", &control];
    let server = folder.serve(&[&["far=delay:200ms:memory:64M"][..], &flags].concat());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(&server, "far")).collect();
    std::thread::scope(|scope| {
        for (at, client) in (0..).zip(&mut clients) {
            scope.spawn(move || client.read(at << 20, 4096).unwrap());
        }
    });
    until("all are counted", || counted(&folder)[0] == CLIENTS);
    // Without another slow request, those without a line are told within a second or two.
    let line = server.logged("more slow requests were counted and not logged").remove(0);
    let left_out: u64 = line.split("left_out=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let lines = server.later("slow request:").len() as u64;
    let told = server.later("not logged").len() as u64;
    // On a busy machine, the burst may reach into a second one.
    assert!((10..=20).contains(&lines) && told <= 2, "{lines} lines, {told} counts");
    if told == 1 {
        assert_eq!(lines + left_out, CLIENTS);
    }
    server.end();
}

#[test]
fn limits_that_are_none_are_rejected_where_they_are_given() {
    let folder = Folder::new();
    for arguments in
        [["serve", "disk=memory:1M", "--check", "--slow", "0s"], ["serve", "disk=memory:1M", "--check", "--slow", "2h"]]
    {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("1ms to 1h"), "{said}");
    }
    let config = folder.image("nigh.toml", b"slow = \"250ms\"\nlisten = [\"unix:socket\"]\n");
    let explained = run(env!("CARGO_BIN_EXE_nigh"), &["serve", "disk=memory:1M", "--check", "--config", &config]);
    assert!(explained.contains("slow     requests of more than 0.25 s are logged"), "{explained}");
    let printed = run(env!("CARGO_BIN_EXE_nigh"), &["serve", "disk=memory:1M", "--print-config", "--config", &config]);
    assert!(printed.contains("slow = \"0.25s\""), "{printed}");
}
