//! Recordings of what clients ask `nigh serve`, with the real binary.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nigh_nbd::client::Client;
use nigh_trace::format::parquet::{Call, Context, Did, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Op, Request, Taken};

use crate::serving::{Folder, Server};

use crate::command::{json, nigh, refusal, stdout};
use crate::recorded::requests;

const BLOCK: u64 = 4096;

fn connect(server: &Server, export: &str) -> Client<UnixStream> {
    Client::connect(UnixStream::connect(&server.socket).unwrap(), export, &[]).unwrap()
}

/// Blocks in an order in which some repeat: a skewed one.
fn skewed(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).map(|number| number % (number % 61 + 1) * 8)
}

#[test]
fn a_recording_has_every_request_in_its_order() {
    let folder = Folder::new();
    let trace = folder.path("all.csv.zst");
    let server = folder.serve(&["one=memory:8M", "two=memory:8M", "--record", trace.to_str().unwrap()]);
    let mut one = connect(&server, "one");
    let mut two = connect(&server, "two");
    one.read(3 * BLOCK, 5000).unwrap();
    two.write(BLOCK, &[7; 8192]).unwrap();
    one.read(3 * BLOCK, 4096).unwrap();
    two.flush().unwrap();
    two.trim(0, 65536).unwrap();
    drop((one, two));
    server.end();
    let found = requests(&trace, None);
    let parts: Vec<_> =
        found.iter().map(|request| (request.op, request.volume, request.offset, request.length)).collect();
    let expected = [
        (Op::Read, 0, 3 * BLOCK, 5000),
        (Op::Write, 1, BLOCK, 8192),
        (Op::Read, 0, 3 * BLOCK, 4096),
        (Op::Flush, 1, 0, 0),
        (Op::Trim, 1, 0, 65536),
    ];
    assert_eq!(parts, expected);
    assert!(found.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    assert!(found.iter().all(|request| (1..10_000_000_000).contains(&request.latency_ns)));
    let streams: Vec<u64> = found.iter().map(|request| request.stream).collect();
    assert!(streams[0] == streams[2] && streams[1] == streams[3] && streams[0] != streams[1], "clients are told apart");
    assert!(found.iter().all(|request| request.tenant == found[(request.volume) as usize].tenant));
}

/// Measure and choose: what the server hit is what a replay of its recording hits.
#[test]
fn a_replay_of_a_recording_hits_what_the_server_hit() {
    let folder = Folder::new();
    let (trace, control) = (folder.text("served.parquet"), folder.text("control"));
    let arguments = ["disk=memory:64M", "--memory", "1M", "--shards", "1", "--policy", "lirs", "--control", &control];
    let server = folder.serve(&[&arguments[..], &["--record", &trace]].concat());
    let mut client = connect(&server, "disk");
    for block in skewed(20_000) {
        client.read(block * BLOCK, BLOCK as usize).unwrap();
    }
    let status = json(&["ctl", "--control", &control, "status"]);
    assert_eq!(status["recording"]["running"], true);
    let summary = stdout(&nigh(&["ctl", "--control", &control, "record", "--stop"]));
    assert!(summary.starts_with("recorded 20,000 requests in ") && summary.contains("nigh plan "), "{summary}");
    let replayed = json(&["sim", &trace, "--policy", "lirs", "--size", "256b"]);
    assert_eq!(replayed["results"][0]["hits"], status["exports"][0]["hits"], "{replayed}");
    assert!(replayed["results"][0]["hits"].as_u64().unwrap() > 1000);
    server.end();
}

#[test]
fn a_sampled_recording_is_the_sample_of_the_whole() {
    let folder = Folder::new();
    let control = folder.text("control");
    let server = folder.serve(&[
        "disk=memory:64M",
        "other=memory:64M",
        "--control",
        &control,
        "--sandbox-allow",
        &folder.text(""),
    ]);
    let record = |name: &str, more: &[&str]| {
        let file = folder.text(name);
        stdout(&nigh(&[&["ctl", "--control", &control, "record", &file, "--export", "other"], more].concat()));
        let (mut client, mut not_recorded) = (connect(&server, "other"), connect(&server, "disk"));
        for block in skewed(3000) {
            client.read(block * BLOCK + 100, 3 * BLOCK as usize).unwrap();
            not_recorded.read(block * BLOCK, BLOCK as usize).unwrap();
        }
        stdout(&nigh(&["ctl", "--control", &control, "record", "--stop"]));
        file
    };
    let (whole, part) = (record("whole.parquet", &[]), record("part.parquet", &["--sample", "20%"]));
    let whole = json(&["sim", &whole, "--policy", "lru", "--size", "50b", "--sample", "20%"]);
    let part = json(&["sim", &part, "--policy", "lru", "--size", "10b"]);
    assert_eq!(whole["trace"]["requests"], 3000);
    let sample = &whole["trace"]["sample"];
    assert_eq!(sample["references"], part["trace"]["references"]);
    assert_eq!(sample["distinct_blocks"], part["trace"]["distinct_blocks"]);
    assert_eq!(whole["results"][0]["hits"], part["results"][0]["hits"], "scaled sizes hit as often");
    server.end();
}

#[test]
fn recordings_end_by_time_number_and_signal() {
    let folder = Folder::new();
    let control = folder.text("control");
    let server = folder.serve(&["disk=memory:8M", "--control", &control, "--sandbox-allow", &folder.text("")]);
    let mut client = connect(&server, "disk");
    let start = |name: &str, more: &[&str]| {
        let file = folder.text(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.args(["record", "--control", &control, "-o", &file]).args(more);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let running = || {
            let status = json(&["ctl", "--control", &control, "status"]);
            status["recording"]["running"] == true && status["recording"]["file"] == file.as_str()
        };
        while !running() {
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    };
    let limited = start("limit.csv", &["--limit", "7"]);
    for at in 0..100 {
        client.read(at * BLOCK, 512).unwrap();
    }
    let printed = stdout(&limited.wait_with_output().unwrap());
    assert!(printed.starts_with("recorded 7 requests"), "{printed}");
    assert_eq!(requests(&folder.path("limit.csv"), None).len(), 7);

    let timed = start("time.csv", &["--for", "300ms"]);
    client.read(0, 512).unwrap();
    assert!(stdout(&timed.wait_with_output().unwrap()).starts_with("recorded 1 requests"));

    let interrupted = start("signal.parquet", &[]);
    client.read(0, 512).unwrap();
    nigh_testkit::tools::run("kill", &["-INT", &interrupted.id().to_string()]);
    assert!(stdout(&interrupted.wait_with_output().unwrap()).starts_with("recorded 1 requests"));
    assert_eq!(requests(&folder.path("signal.parquet"), None).len(), 1);
    server.end();
}

#[test]
fn what_cannot_be_recorded_is_one_line() {
    let folder = Folder::new();
    let (control, file) = (folder.text("control"), folder.text("trace.parquet"));
    let server = folder.serve(&["disk=memory:8M", "--control", &control, "--sandbox-allow", &folder.text("")]);
    let record = |more: &[&str]| refusal(&nigh(&[&["ctl", "--control", &control, "record"], more].concat()));
    assert!(record(&["--stop"]).contains("nothing is being recorded"));
    assert!(record(&["/nowhere/trace.parquet"]).contains("/nowhere/trace.parquet: there is no folder /nowhere"));
    assert!(record(&[&folder.text("trace.doc")]).contains("trace.doc"));
    assert!(record(&[&folder.text("trace.lirs")]).contains(".csv"));
    assert!(record(&[&file, "--export", "disc"]).contains("no export disc"));
    assert!(
        record(&[&file, "--sample", "0"])
            .contains("--sample 0: expected a rate above 0 and up to 1, such as 0.1 or 1%")
    );
    let served = ["serve", "disk=memory:8M", "--check", "--record", &format!("{file},sample=0")];
    assert!(refusal(&nigh(&served)).contains("--record FILE,sample= 0: expected a rate"));
    assert!(record(&[&file, "--for", "5"]).contains("10m"));
    stdout(&nigh(&["ctl", "--control", &control, "record", &file]));
    assert!(record(&[&folder.text("second.csv")]).contains("is being recorded"));
    stdout(&nigh(&["ctl", "--control", &control, "record", "--stop"]));
    assert!(record(&[&file]).contains("--force"));
    stdout(&nigh(&["ctl", "--control", &control, "record", &file, "--force"]));
    server.end();
    assert!(Path::new(&file).exists(), "it is complete when the server has ended");
}

/// The disk of the recording fills: clients go on, and the recording ends with the reason.
#[test]
fn a_full_disk_ends_the_recording_only() {
    let folder = Folder::new();
    let (control, small) = (folder.text("control"), folder.text("small"));
    std::fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &small]).output();
    if !mounted.is_ok_and(|mount| mount.status.success()) {
        println!("skipped: a_full_disk_ends_the_recording_only: a file system cannot be mounted");
        return;
    }
    let server = folder.serve(&["disk=memory:8M", "--control", &control, "--sandbox-allow", &folder.text("")]);
    stdout(&nigh(&["ctl", "--control", &control, "record", &format!("{small}/trace.csv")]));
    let mut client = connect(&server, "disk");
    let recording = || json(&["ctl", "--control", &control, "status"])["recording"].clone();
    let mut rounds = 0;
    while recording()["running"] == true {
        (0..500).for_each(|at| drop(client.read(at % 2000 * BLOCK, BLOCK as usize).unwrap()));
        rounds += 1;
        assert!(rounds < 500, "it goes on: {}", recording());
    }
    assert!(recording()["error"].as_str().unwrap().contains("No space left"), "{}", recording());
    client.read(0, 4096).unwrap();
    server.end();
    nigh_testkit::tools::run("umount", &[&small]);
}

/// A trace that was taken below a cache cannot size that cache.
#[test]
fn a_trace_from_below_the_page_cache_is_replayed_with_a_warning() {
    let folder = Folder::new();
    let path = folder.path("disk.parquet");
    let mut recorder = Recorder::create(&Destination::new(&path, true, &[]).unwrap(), Taken::Below, 4096).unwrap();
    let (program, context) = (recorder.program("fio"), recorder.context(Context::default()));
    let volume = recorder.file("/dev/vdb");
    for block in [1, 2, 1] {
        let request = Request { offset: block * BLOCK, length: 4096, volume, ..Request::default() };
        let call = Call {
            request,
            did: Did::Request(Op::Read),
            program,
            context,
            tid: 1,
            asked: 4096,
            result: 4096,
            device_bytes: 0,
        };
        recorder.push(call).unwrap();
    }
    recorder.finish().unwrap();
    let output = nigh(&["sim", path.to_str().unwrap(), "--size", "2b", "--policy", "lru"]);
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("disk.parquet: it was recorded below the page cache"), "{notes}");
    assert!(output.status.success());
}
