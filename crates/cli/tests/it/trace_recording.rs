//! Results of `nigh trace info` for recordings.

use std::path::Path;

use nigh_trace::format::parquet::{Call, Context, Did, ParquetWriter, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Op, Request, Taken};
use serde_json::{Value, json};

use crate::command::{json, printed};

const BLOCK: u64 = 4096;

fn read(time_s: u64, tenant: u32, volume: u32, block: u64) -> Request {
    let (time_ns, offset) = (time_s * 1_000_000_000, block * BLOCK);
    Request {
        time_ns,
        op: Op::Read,
        volume,
        offset,
        length: BLOCK as u32,
        tenant,
        stream: 7,
        latency_ns: 0,
        content: 0,
    }
}

/// Three processes of grep read 8 files of 5 blocks, one after the other; before each, the shell reads a block of another file
/// twice, and maps one in between.
fn greps(file: &Path) {
    let mut recorder =
        Recorder::create(&Destination::new(file, true, &[]).unwrap(), Taken::Above, BLOCK as u32).unwrap();
    let (shell, grep) = (recorder.program("sh"), recorder.program("grep"));
    for number in 0..8 {
        recorder.file(&format!("/notes/{number}"));
    }
    let profile = recorder.file("/etc/profile");
    recorder.context(Context { pcs: [1; 4], depth: 0, stack: String::new() });
    let mut push = |request: Request, did: Did, program: u32| {
        let (tid, asked, result) = (request.tenant, request.length, i64::from(request.length));
        recorder.push(Call { request, did, program, context: 0, tid, asked, result, device_bytes: 0 }).unwrap();
    };
    for round in 0..3 {
        // It takes 90 seconds: 9 for each of the ten slices.
        let begin_s = u64::from(round) * 40;
        for did in [Did::Request(Op::Read), Did::Map, Did::Request(Op::Read)] {
            push(read(begin_s, 10, profile, 0), did, shell);
        }
        for volume in 0..8 {
            for block in 0..5 {
                push(read(begin_s + u64::from(volume), 20 + round, volume, block), Did::Request(Op::Read), grep);
            }
        }
    }
    push(Request { op: Op::Write, length: 100, ..read(90, 10, profile, 0) }, Did::Request(Op::Write), shell);
    recorder.finish().unwrap();
}

#[test]
fn programs_files_and_the_working_set_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grep.parquet");
    greps(&file);
    let file = file.to_str().unwrap();
    let info = json(&["trace", "info", file]);
    assert_eq!((&info["reads"], &info["writes"]), (&json!(126), &json!(1)));
    let recording = &info["recording"];
    // The shell's six reads of one block are in a row, because other processes do not count: they are one reference.
    assert_eq!((&recording["references"], &recording["distinct_bytes"]), (&json!(121), &json!(41 * BLOCK)));
    let grep = json!({
        "program": "grep", "processes": 3, "calls": 120, "bytes_read": 120 * BLOCK, "bytes_written": 0, "files": 8,
        "distinct_bytes": 40 * BLOCK, "times": 3.0,
    });
    let shell = json!({
        "program": "sh", "processes": 1, "calls": 7, "bytes_read": 6 * BLOCK, "bytes_written": 100, "files": 1,
        "distinct_bytes": BLOCK, "times": 1.0,
    });
    assert_eq!((&recording["programs"], &recording["programs_total"]), (&json!([grep, shell]), &json!(2)));
    let note = json!({ "file": "/notes/0", "bytes_read": 15 * BLOCK, "distinct_bytes": 5 * BLOCK, "times": 3.0 });
    let files = recording["files"].as_array().unwrap();
    assert_eq!((&files[0], files.len(), &recording["files_total"]), (&note, 9, &json!(9)));

    // Rounds begin at 0, 40 and 80 s: slices 0, 4 and 8 of 9 s.
    let slices = recording["working_set"].as_array().unwrap();
    let column = |name: &str| slices.iter().map(|slice| slice[name].as_u64().unwrap() / BLOCK).collect::<Vec<_>>();
    assert_eq!(slices[4]["from_s"].as_f64().unwrap().round(), 36.0);
    assert_eq!(column("bytes_read"), [41, 0, 0, 0, 25, 15, 0, 0, 5, 35]);
    assert_eq!(column("distinct_bytes"), [41, 0, 0, 0, 25, 15, 0, 0, 5, 35]);
    assert_eq!(column("new_bytes"), [41, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

    // 40 blocks hold what is read again: the shell's block is not.
    let lru = &recording["lru"];
    let sizes = ["hundredth_bytes", "half_bytes", "most_bytes"].map(|name| lru[name].as_u64().unwrap() / BLOCK);
    assert_eq!((sizes, lru["hit_ratio"].as_f64()), ([40, 40, 40], Some(80.0 / 121.0)));
    let text = printed(&["trace", "info", file, "--top", "1"]);
    for line in [
        "grep (3 processes) reads 160 KiB of 8 files 3.0 times on average.",
        "LRU with less than 160 KiB hits less than 1 % of the reads; 160 KiB is enough for nearly all that can be hit, 66.1 %.",
        "and 1 more (--top)",
        "and 8 more (--top)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(!text.contains("/notes/1") && !text.contains("/etc/profile"), "{text}");
}

/// The hit ratio at each size is the one that `nigh sim` replays.
#[test]
fn the_sizes_for_lru_are_those_of_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grep.parquet");
    greps(&file);
    let file = file.to_str().unwrap();
    let results = json(&["sim", file, "--policy", "lru", "--size", "39b,40b", "--ops", "reads", "--collapse"]);
    let hits: Vec<&Value> = results["results"].as_array().unwrap().iter().map(|result| &result["hits"]).collect();
    assert_eq!(hits, [&json!(0), &json!(80)]);
}

/// A part of a recording is described by what is in that part.
#[test]
fn a_limit_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grep.parquet");
    greps(&file);
    // The first round: two reads of the shell, and 40 of a grep.
    let recording = &json(&["trace", "info", file.to_str().unwrap(), "--limit", "42"])["recording"];
    assert_eq!(recording["programs"][0]["calls"], 40);
    assert_eq!((&recording["references"], &recording["lru"]["most_bytes"]), (&json!(41), &Value::Null));
    let summary = json!([
        "grep reads 160 KiB of 8 files once.",
        "Hardly anything is read again: no cache of any size hits 1 % of the reads."
    ]);
    assert_eq!(recording["summary"], summary);
}

/// Recordings of servers have no names.
#[test]
fn exports_are_listed_by_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.parquet");
    let mut writer =
        ParquetWriter::new(std::fs::File::create(&file).unwrap(), BLOCK as u32, Some(Taken::Server)).unwrap();
    // The second export's 10 blocks are read ten times, and 10 blocks of the first one once.
    let again = (0..100).map(|at| read(at, 5, 1, at % 10));
    let requests: Vec<Request> = again.chain((0..10).map(|at| read(100 + at, 5, 0, at))).collect();
    writer.push(&requests).unwrap();
    writer.finish().unwrap();
    let file = file.to_str().unwrap();
    let recording = &json(&["trace", "info", file])["recording"];
    assert_eq!((&recording["programs"], &recording["programs_total"]), (&json!([]), &json!(0)));
    let export = |number: u64, blocks: u64, times: f64| {
        let (read, distinct) = (blocks * BLOCK, 10 * BLOCK);
        json!({ "file": format!("export {number}"), "bytes_read": read, "distinct_bytes": distinct, "times": times })
    };
    assert_eq!(recording["files"], json!([export(1, 100, 10.0), export(0, 10, 1.0)]));
    assert_eq!(recording["summary"][0], "80 KiB of 2 exports are read 5.5 times on average.");
}

/// Traces that are no recordings are described as ever.
#[test]
fn other_traces_have_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.lirs");
    std::fs::write(&file, "1\n2\n1\n").unwrap();
    assert_eq!(json(&["trace", "info", file.to_str().unwrap()])["recording"], Value::Null);
}
