//! Latencies of throttled exports, as the server and as its clients measure them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::serving::Folder;
use nigh_testkit::tools::{fio_speaks_nbd, run};
use serde_json::Value;

/// An export's rate, and what fio does with it.
struct Load {
    name: &'static str,
    rate: &'static str,
    rw: &'static str,
    block: &'static str,
    depth: u32,
    /// Whether fewer than a hundredth of the requests are in progress at the end: fio waits for all of them before it takes
    /// the time, and its 99th percentile includes that.
    has_p99: bool,
}

const LOADS: [Load; 5] = [
    Load { name: "reads", rate: "iops=500", rw: "randread", block: "4k", depth: 16, has_p99: true },
    Load { name: "writes", rate: "iops=500", rw: "randwrite", block: "4k", depth: 64, has_p99: false },
    Load { name: "long", rate: "bandwidth=20M", rw: "randread", block: "64k", depth: 8, has_p99: true },
    // More than a socket holds, by far.
    Load { name: "deep", rate: "bandwidth=20M", rw: "randwrite", block: "64k", depth: 64, has_p99: false },
    Load { name: "many", rate: "bandwidth=20M", rw: "randwrite", block: "4k", depth: 256, has_p99: false },
];

fn json(text: &str) -> Value {
    // The engine prints in front of it that it is connected.
    serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
}

fn assert_close(what: &str, ours: f64, theirs: f64) {
    assert!((ours / theirs - 1.0).abs() < 0.1, "{what}: {ours:.0} µs, but fio measures {theirs:.0} µs");
}

#[test]
fn latency_1_of_a_throttled_export_is_what_fio_sees() {
    if !fio_speaks_nbd("latency_1_of_a_throttled_export_is_what_fio_sees") {
        return;
    }
    let folder = Folder::new();
    let control = folder.text("control");
    let exports: Vec<String> = LOADS.iter().map(|load| format!("{}=memory:16M,{}", load.name, load.rate)).collect();
    let mut arguments: Vec<&str> = exports.iter().map(String::as_str).collect();
    arguments.extend(["--control", &control, "--memory", "96M"]);
    let server = folder.serve(&arguments);
    let nigh = |arguments: &[&str]| run(env!("CARGO_BIN_EXE_nigh"), &[arguments, &["--control", &control]].concat());
    let (seen, top) = std::thread::scope(|scope| {
        let fio = |load: &'static Load| {
            let (uri, depth) = (server.uri(load.name), load.depth);
            move || {
                let said = run(
                    "fio",
                    &[
                        "--name=load",
                        "--ioengine=nbd",
                        &format!("--uri={uri}"),
                        &format!("--rw={}", load.rw),
                        &format!("--bs={}", load.block),
                        &format!("--iodepth={depth}"),
                        "--size=16m",
                        "--norandommap",
                        "--time_based",
                        "--runtime=5",
                        "--percentile_list=50:90:99",
                        "--output-format=json",
                    ],
                );
                json(&said)["jobs"][0].take()
            }
        };
        let running: Vec<_> = LOADS.iter().map(|load| scope.spawn(fio(load))).collect();
        std::thread::sleep(Duration::from_millis(1500));
        let top = json(&nigh(&["top", "--json", "--interval", "2"]));
        (running.into_iter().map(|load| load.join().unwrap()).collect::<Vec<_>>(), top)
    });
    let status = json(&nigh(&["ctl", "status", "--json"]));
    let rows = |from: &Value| from["exports"].as_array().unwrap().clone();
    for (load, seen) in LOADS.iter().zip(seen) {
        let name = load.name;
        let kind = if load.rw == "randread" { "read" } else { "write" };
        let percentile = |share: &str| seen[kind]["clat_ns"]["percentile"][share].as_f64().unwrap() / 1000.0;
        let [p50, p90, p99] = ["50.000000", "90.000000", "99.000000"].map(percentile);
        let find = |rows: Vec<Value>| rows.into_iter().find(|export| export["name"] == name).unwrap();
        let export = find(rows(&status));
        // A read is either of two. fio has one distribution of both.
        let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
        for of in ["hit_latency", "miss_latency", "write_latency"] {
            for bucket in export[of]["buckets"].as_array().unwrap() {
                *buckets.entry(bucket[0].as_u64().unwrap()).or_default() += bucket[1].as_u64().unwrap();
            }
        }
        let count: u64 = buckets.values().sum();
        for (share, theirs) in [(50, p50), (90, p90), (99, p99)] {
            if share < 99 || load.has_p99 {
                let mut below = 0;
                let reached = buckets.iter().find(|(_, more)| {
                    below += *more;
                    below >= (count * share).div_ceil(100)
                });
                let (what, ours) = (format!("{name}: p{share} of status"), *reached.unwrap().0 as f64);
                if share < 99 {
                    assert_close(&what, ours, theirs);
                } else {
                    // fio's slowest requests may have waited for a busy processor, which the server does not see.
                    assert!(ours < 1.1 * theirs, "{what}: {ours:.0} µs, but fio measures {theirs:.0} µs");
                }
            }
        }
        let longest = if kind == "read" { "miss_latency" } else { "write_latency" };
        assert_close(&format!("{name}: p50_us of status"), export[longest]["p50_us"].as_f64().unwrap(), p50);
        assert_close(&format!("{name}: p50 of top"), find(rows(&top))["p50_us"].as_f64().unwrap(), p50);
    }
    server.end();
}
