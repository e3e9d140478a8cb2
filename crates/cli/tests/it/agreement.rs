//! The replayed policy is the one that serves: `nigh sim` and `nigh serve` at their default settings hit the same requests.
//!
//! `cargo xtask agreement` does this on whole traces; without it, on the first requests of each.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nigh_host::{DiskSettings, Host, HostError, Settings};
use nigh_nbd::client::Client;
use nigh_testkit::virtio::{Machine, READ, Setup, WRITE};
use nigh_trace::{Op, ReadOptions, Request};
use serde_json::Value;

use crate::serving::{Folder, Server};

const BLOCK: u64 = 4096;
/// Requests of each trace, unless all are asked for.
const REQUESTS: usize = 3000;
/// Bytes of reads on their way at a time. A connection's requests are taken in their order, and none of them has to wait
/// for frames.
const IN_FLIGHT: u64 = 512 << 10;
/// Reads on their way at a time: this client does not receive while it sends, and a server takes no more requests from those
/// that do not receive.
const READS_IN_FLIGHT: usize = 64;
/// Files of a trace lie so far from each other on the disk.
const GAP: u64 = 1 << 20;

/// Bytes of a modelled device that is large enough for most traces.
const DEVICE: u64 = 8 << 30;

/// A trace's requests, its volumes one behind the other on one disk.
struct Trace {
    name: String,
    /// As a trace of one volume.
    csv: PathBuf,
    requests: Vec<Request>,
    disk_bytes: u64,
}

fn all_requests() -> bool {
    std::env::var_os("NIGH_AGREEMENT").is_some_and(|value| value == "whole")
}

/// The folder of traces beside the repository.
fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces")
}

fn read(folder: &Folder, path: &Path) -> Trace {
    let most = if all_requests() { usize::MAX } else { REQUESTS };
    let options = ReadOptions { block_bytes: Some(BLOCK as u32), ..ReadOptions::default() };
    let mut opened = nigh_trace::open(path, &options).unwrap();
    let (mut requests, mut batch) = (Vec::new(), Vec::new());
    while requests.len() < most {
        opened.requests.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        let transfers = |request: &&Request| matches!(request.op, Op::Read | Op::Write) && request.length > 0;
        requests.extend(batch.iter().filter(transfers));
    }
    requests.truncate(most);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    place(folder, name, requests)
}

/// Reads and writes of parts of blocks, and requests of many blocks.
fn generated(folder: &Folder, name: &str) -> Trace {
    let mut random = 7_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let requests = (0..REQUESTS).map(|_| {
        let skewed = below(2000) * below(2000) / 2000;
        let (offset, length, op) = match name {
            "writes" => (skewed * 1024, 512 * (1 + below(16)), if below(3) == 0 { Op::Write } else { Op::Read }),
            _ => (skewed * 4096, 4096 * (1 + below(100)), Op::Read),
        };
        Request { offset, length: length as u32, op, ..Request::default() }
    });
    let requests = requests.collect();
    place(folder, name.to_owned(), requests)
}

/// A zigzag, a loop and a scan in turn, each with blocks of its own, for a cache of 64 blocks.
fn phases(folder: &Folder) -> Trace {
    let block = |at: u64| match at / 3_200 % 3 {
        0 if (at / 160).is_multiple_of(2) => at % 160,
        0 => 159 - at % 160,
        1 => 200 + at % 80,
        _ => 300 + at % 1_000,
    };
    let request = |at| Request { offset: block(at) * BLOCK, length: BLOCK as u32, ..Request::default() };
    place(folder, "phases".to_owned(), (0..25_600).map(request).collect())
}

fn place(folder: &Folder, name: String, mut requests: Vec<Request>) -> Trace {
    let mut ends: HashMap<u32, u64> = HashMap::new();
    for request in &requests {
        let end = ends.entry(request.volume).or_default();
        *end = (*end).max(request.offset + u64::from(request.length));
    }
    let mut volumes: Vec<(u32, u64)> = ends.into_iter().collect();
    volumes.sort_unstable();
    let (mut starts, mut disk_bytes) = (HashMap::new(), 0);
    for (volume, end) in volumes {
        starts.insert(volume, disk_bytes);
        disk_bytes += end.next_multiple_of(GAP) + GAP;
    }
    let csv = folder.path(&format!("{name}.csv"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&csv).unwrap());
    for request in &mut requests {
        request.offset += starts[&request.volume];
        writeln!(out, "{},{},{}", request.op.name(), request.offset, request.length).unwrap();
    }
    out.flush().unwrap();
    Trace { name, csv, requests, disk_bytes }
}

fn nigh(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// The size of the cache in blocks, and the hits of each policy; with `more`, for instance a device.
fn replayed(trace: &Trace, size: &str, more: &[&str]) -> (u64, Vec<(String, u64)>) {
    let csv = trace.csv.to_str().unwrap();
    let policies: Vec<&str> =
        nigh_policy::registry().iter().filter(|info| !info.offline).map(|info| info.name).collect();
    let columns = "op=0,offset=1,length=2,offset-unit=bytes";
    let policies = policies.join(",");
    let mut arguments = vec!["sim", csv, "--columns", columns, "--block-size", "4096", "--size", size, "--json"];
    arguments.extend(["--policy", &policies]);
    arguments.extend(more);
    let all = json(&nigh(&arguments));
    let rows = all["results"].as_array().unwrap();
    // In simulated time, a block on its way for another request is there.
    let hits = |row: &Value| row["hits"].as_u64().unwrap() + row["joined"].as_u64().unwrap_or(0);
    let hits = rows.iter().map(|row| (row["policy"].as_str().unwrap().to_owned(), hits(row)));
    (rows[0]["size_blocks"].as_u64().unwrap(), hits.collect())
}

fn served(folder: &Folder, trace: &Trace, policy: &str, blocks: u64, in_flight: u64, more: &[&str]) -> u64 {
    let status = status_after(folder, trace, policy, blocks, in_flight, more);
    let export = &status["exports"][0];
    let count = |name: &str| export[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"));
    count("hits") + count("joined")
}

/// The status of a server that has served the trace.
fn status_after(folder: &Folder, trace: &Trace, policy: &str, blocks: u64, in_flight: u64, more: &[&str]) -> Value {
    let look = |control: &str, _: &Server| json(&nigh(&["ctl", "--control", control, "status", "--json"]));
    look_after(folder, trace, policy, blocks, in_flight, more, look)
}

/// The result of `look` at the control socket of a server that has served the trace.
fn look_after<R>(
    folder: &Folder,
    trace: &Trace,
    policy: &str,
    blocks: u64,
    in_flight: u64,
    more: &[&str],
    look: impl FnOnce(&str, &Server) -> R,
) -> R {
    let image = folder.empty_image("image", trace.disk_bytes);
    let (memory, control) = (format!("{}K", blocks * BLOCK / 1024), folder.text("control"));
    let disk = format!("disk={image}");
    let plain = ["--memory", &memory, "--policy", policy, "--control", &control, "--warm", "none", &disk];
    // As a replay without a device, unless the rule is part of what is compared.
    let rule: &[&str] = if more.contains(&"--readahead") { &[] } else { &["--readahead", "none"] };
    let server = folder.serve(&[&plain[..], rule, more].concat());
    feed(&server, &trace.requests, in_flight);
    let found = look(&control, &server);
    server.end();
    found
}

/// Sends the requests in their order. Whatever follows a write waits until it is over, since a block is referenced when
/// its write is complete.
fn feed(server: &Server, requests: &[Request], most: u64) {
    let stream = UnixStream::connect(&server.socket).unwrap();
    let mut client = Client::connect(stream, "disk", &[]).unwrap();
    let mut in_flight = 0;
    for request in requests {
        let is_write = request.op == Op::Write;
        let most = if is_write { 0 } else { most.saturating_sub(request.length.into()) };
        while in_flight > most || client.in_flight() >= READS_IN_FLIGHT {
            let completion = client.receive().unwrap();
            completion.result.unwrap();
            in_flight -= completion.buffer.len() as u64;
        }
        if is_write {
            client.write(request.offset, &vec![1; request.length as usize]).unwrap();
            continue;
        }
        in_flight += u64::from(request.length);
        client.submit_read(request.offset, vec![0; request.length as usize]).unwrap();
    }
    while client.in_flight() > 0 {
        client.receive().unwrap().result.unwrap();
    }
    client.disconnect().unwrap();
}

/// The hits of a program that pins what it reads, if it can, with the cache inside.
fn in_program(trace: &Trace, policy: &str, blocks: u64) -> u64 {
    let disk = DiskSettings::new("disk", format!("memory:{}B", trace.disk_bytes).parse().unwrap());
    let host = Host::start(Settings::new(blocks * BLOCK, policy.parse().unwrap(), vec![disk])).unwrap();
    let session = host.open("disk").unwrap();
    for request in &trace.requests {
        let mut bytes = vec![1; request.length as usize];
        let range = request.offset..request.offset + u64::from(request.length);
        match request.op {
            Op::Write => session.write(range.start, &bytes, false).unwrap(),
            _ => match session.try_pin(range.clone()) {
                Ok(Some(pinned)) => drop(pinned),
                Ok(None) => drop(session.pin(range).unwrap()),
                Err(HostError::PinRange | HostError::TooManyPins) => session.read(range.start, &mut bytes).unwrap(),
                Err(error) => panic!("{range:?}: {error}"),
            },
        }
    }
    let disk = &host.statistics().1[0];
    disk.hits + disk.joined
}

/// Every policy of the registry, in service, inside a program, and in simulated time where the device is large enough: hit for hit.
fn replay_equals_service(folder: &Folder, trace: &Trace) {
    let mut different = Vec::new();
    let (blocks, replayed) = self::replayed(trace, "10%", &[]);
    if trace.disk_bytes < DEVICE {
        let (_, timed) = self::replayed(trace, "10%", &["--device", "hdd-10k", "--readahead", "none"]);
        for ((policy, hits), (_, timed)) in replayed.iter().zip(timed) {
            if timed != *hits {
                different.push(format!("{policy}: replayed {hits}, in simulated time {timed}"));
            }
        }
    }
    for (policy, hits) in &replayed {
        let served = served(folder, trace, policy, blocks, IN_FLIGHT, &[]);
        if served != *hits {
            different.push(format!("{policy}: replayed {hits}, served {served}"));
        }
        let pinned = in_program(trace, policy, blocks);
        if pinned != *hits {
            different.push(format!("{policy}: replayed {hits}, pinned {pinned}"));
        }
        println!("{}: {policy}: {hits} hits", trace.name);
    }
    println!("{}: {} requests, {} policies, {blocks} blocks", trace.name, trace.requests.len(), replayed.len());
    assert!(different.is_empty(), "hits on {} differ:\n  {}", trace.name, different.join("\n  "));
}

macro_rules! recorded {
    ($($test:ident: $path:literal,)*) => {
        /// Below the folder of traces.
        const RECORDED: &[&str] = &[$($path),*];

        $(#[test]
        fn $test() {
            let (folder, path) = (Folder::new(), shared().join($path));
            if path.exists() {
                replay_equals_service(&folder, &read(&folder, &path));
            } else {
                println!("skipped: agreement::{}: {} is not there", stringify!($test), path.display());
            }
        })*
    };
}

recorded! {
    dtrs100m: "block/DTRS100M.trace.gz",
    oltp: "block/OLTP.lis.zst",
    p3: "block/P3.lis.zst",
    cloud_physics: "block/cloudPhysicsIO.vscsi.zst",
    two_pools: "lirs/2_pools.trace.gz",
    cpp: "lirs/cpp.trace.gz",
    cs: "lirs/cs.trace.gz",
    gli: "lirs/gli.trace.gz",
    multi1: "lirs/multi1.trace.gz",
    cscope_build: "pc/cscope_build.csv.gz",
    gcc_build: "pc/gcc_build.csv.gz",
    grep_loop: "pc/grep_loop.csv.gz",
    sqlite: "pc/sqlite.csv.gz",
}

#[test]
fn every_recorded_trace_has_a_test() {
    for place in ["lirs", "block", "pc"] {
        let Ok(entries) = std::fs::read_dir(shared().join(place)) else {
            println!("skipped: agreement::every_recorded_trace_has_a_test: there is no {place} beside the repository");
            continue;
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        for name in names.filter(|name| !name.contains(".files.")) {
            assert!(RECORDED.contains(&&*format!("{place}/{name}")), "{place}/{name} has no test");
        }
    }
}

#[test]
fn writes_of_parts_of_blocks() {
    let folder = Folder::new();
    replay_equals_service(&folder, &generated(&folder, "writes"));
}

#[test]
fn requests_of_many_blocks() {
    let folder = Folder::new();
    replay_equals_service(&folder, &generated(&folder, "lengths"));
}

/// A machine whose driver makes the same requests: the same hits as over NBD and in the replay.
fn served_to_a_machine(folder: &Folder, trace: &Trace, policy: &str, blocks: u64) -> u64 {
    let image = folder.empty_image("image", trace.disk_bytes);
    let (memory, control) = (format!("{}K", blocks * BLOCK / 1024), folder.text("control"));
    let (disk, socket) = (format!("disk={image}"), folder.text("machine"));
    let machine = format!("disk={socket}");
    let server = folder.serve(
        &[
            &["--memory", &memory, "--policy", policy, "--control", &control, "--warm", "none"][..],
            &["--readahead", "none", "--vhost-user", &machine, &disk],
        ]
        .concat(),
    );
    let mut machine = Machine::connect(Path::new(&socket), Setup::default());
    for request in &trace.requests {
        let kind = if request.op == Op::Write { WRITE } else { READ };
        assert_eq!(machine.ask(kind, request.offset / 512, request.length), 0, "{request:?}");
    }
    drop(machine);
    let status = json(&nigh(&["ctl", "--control", &control, "status", "--json"]));
    let count = |name: &str| status["exports"][0][name].as_u64().unwrap();
    server.end();
    count("hits") + count("joined")
}

#[test]
fn a_machine_hits_what_the_replay_hits() {
    let folder = Folder::new();
    for trace in ["writes", "lengths"].map(|name| generated(&folder, name)) {
        let (blocks, replayed) = replayed(&trace, "10%", &[]);
        for (policy, hits) in replayed {
            if !["lru", "lirs", "clock-pro", "arc", "s3-fifo", "dulo"].contains(&&policy[..]) {
                continue;
            }
            let over_nbd = served(&folder, &trace, &policy, blocks, IN_FLIGHT, &[]);
            let over_vhost = served_to_a_machine(&folder, &trace, &policy, blocks);
            assert_eq!((over_nbd, over_vhost), (hits, hits), "{policy} on {}", trace.name);
        }
    }
}

/// A cache in three parts: the replay puts each block into the part that has it in service.
#[test]
fn replay_in_parts_equals_service_in_parts() {
    let folder = Folder::new();
    let parts = ["--shards", "3"];
    for trace in ["writes", "lengths"].map(|name| generated(&folder, name)) {
        let (blocks, whole) = replayed(&trace, "10%", &[]);
        let (_, replayed) = replayed(&trace, "10%", &parts);
        assert_ne!(whole, replayed, "parts make no difference on {}", trace.name);
        for (policy, hits) in
            replayed.iter().filter(|(policy, _)| ["lru", "lirs", "dulo", "arc"].contains(&&policy[..]))
        {
            assert_eq!(served(&folder, &trace, policy, blocks, IN_FLIGHT, &parts), *hits, "{policy} on {}", trace.name);
        }
    }
}

/// The same policies take charge in service, whatever a client has on its way at a time; with tenants, too.
#[test]
fn auto_changes_in_service_as_in_a_replay() {
    let folder = Folder::new();
    let trace = phases(&folder);
    let csv = trace.csv.to_str().unwrap();
    let columns = "op=0,offset=1,length=2,offset-unit=bytes";
    let sim = ["sim", csv, "--columns", columns, "--block-size", "4096", "--size", "64b", "--policy", "auto", "--json"];
    let replayed = json(&nigh(&sim));
    let hits = replayed["results"][0]["hits"].as_u64().unwrap();
    for more in [&[][..], &["--allocate", "static"]] {
        let status = status_after(&folder, &trace, "auto", 64, IN_FLIGHT, more);
        let export = &status["exports"][0];
        let served = export["hits"].as_u64().unwrap() + export["joined"].as_u64().unwrap();
        assert_eq!(served, hits, "{more:?}");
        let [of, other] = [&status["chosen"], &status["tenants"][0]["chosen"]];
        let (chosen, none) = if more.is_empty() { (of, other) } else { (other, of) };
        assert!(none.is_null() && chosen["changes"].as_u64().unwrap() >= 3, "{status}");
        let candidates = chosen["candidates"].as_array().unwrap();
        let shards: u64 = candidates.iter().map(|of| of["shards"].as_u64().unwrap()).sum();
        assert_eq!((shards, candidates.len()), (1, 4), "{status}");
        assert!(candidates.iter().all(|of| of["hit_ratio"].as_f64().is_some()), "{status}");
    }
}

/// A small cache is simulated as a whole for its curve: each size hits as often as a replay of that size.
#[test]
fn curves_equal_replays() {
    let folder = Folder::new();
    for trace in [phases(&folder), generated(&folder, "writes")] {
        let (csv, columns) = (trace.csv.to_str().unwrap(), "op=0,offset=1,length=2,offset-unit=bytes");
        let of_trace = ["sim", csv, "--columns", columns, "--block-size", "4096", "--json"];
        for policy in ["lirs", "arc", "w-tinylfu"] {
            let sizes = ["--size", "32b,48b,64b,96b,128b,256b", "--policy", policy];
            let replayed = json(&nigh(&[&of_trace[..], &sizes].concat()));
            let rows = replayed["results"].as_array().unwrap();
            let status = status_after(&folder, &trace, policy, 64, IN_FLIGHT, &[]);
            let curve = &status["curve"];
            assert_eq!(curve["policy"], policy, "{status}");
            assert_eq!(curve["references"], rows[0]["references"], "{status}");
            let points = curve["points"].as_array().unwrap();
            assert_eq!(points.len(), rows.len());
            for (point, row) in points.iter().zip(rows) {
                assert_eq!(point["bytes"].as_u64().unwrap(), BLOCK * row["size_blocks"].as_u64().unwrap());
                assert_eq!(point["hits"], row["hits"], "{policy} on {}: {point}, {row}", trace.name);
            }
        }
    }
}

/// Each tenant has a curve, of about as many blocks as it has; with `auto`, of the policy in charge.
#[test]
fn tenants_have_curves() {
    let folder = Folder::new();
    let trace = phases(&folder);
    for (policy, in_charge) in
        [("lirs", &["lirs"][..]), ("lru", &["lru"]), ("auto", &["lirs", "s3-fifo", "w-tinylfu", "mq"])]
    {
        let status = status_after(&folder, &trace, policy, 64, IN_FLIGHT, &["--allocate", "static"]);
        assert_eq!(status["curve"], Value::Null, "{status}");
        let curve = &status["tenants"][0]["curve"];
        assert!(in_charge.contains(&curve["policy"].as_str().unwrap()), "{status}");
        let present = &curve["points"][2];
        let blocks = present["bytes"].as_u64().unwrap() / BLOCK;
        assert!((50..=64).contains(&blocks), "{status}");
        assert!(present["hit_ratio"].as_f64().is_some(), "{status}");
    }
}

/// Each tenant's policy in charge, in words and live.
#[test]
fn the_choice_of_each_tenant_is_shown() {
    let folder = Folder::new();
    look_after(&folder, &phases(&folder), "auto", 64, IN_FLIGHT, &["--allocate", "static"], |control, server| {
        let status = json(&nigh(&["ctl", "--control", control, "status", "--json"]));
        let chosen = &status["tenants"][0]["chosen"];
        let (changes, candidates) = (&chosen["changes"], chosen["candidates"].as_array().unwrap());
        let in_charge = candidates.iter().find(|of| of["shards"] == 1).unwrap()["policy"].as_str().unwrap();
        let text = String::from_utf8(nigh(&["ctl", "--control", control, "status"]).stdout).unwrap();
        assert!(text.contains(&format!("\nchosen   disk: {in_charge} after {changes} changes; would hit: ")), "{text}");
        let top = json(&nigh(&["top", "--control", control, "--interval", "0.1", "--json"]));
        assert_eq!((&top["chosen"], &top["tenants"][0]["policy"]), (&Value::Null, &in_charge.into()), "{top}");
        let logged =
            server.logged(&format!("auto: {in_charge} decides, and lirs did before tenant=\"disk\" changes={changes}"));
        assert_eq!(logged.len(), 1, "{logged:?}");
    });
}

/// A loop that is longer than the cache: the server knows how much more memory brings, in words, as JSON and for Prometheus. With curves off, it is an error.
#[test]
fn a_server_says_what_more_memory_brings() {
    let folder = Folder::new();
    let request = |at: u64| Request { offset: at % 100 * BLOCK, length: BLOCK as u32, ..Request::default() };
    let trace = place(&folder, "loop".to_owned(), (0..12_800).map(request).collect());
    look_after(&folder, &trace, "lru", 64, IN_FLIGHT, &[], |control, _| {
        let plan = ["plan", "--control", control, "--cost", "4/MiB"];
        let text = String::from_utf8(nigh(&plan).stdout).unwrap();
        let expected = "disk: +256 KiB brings 0 to 100 % hits, nearly no misses (+100.0 points ± 0.0). It costs 1.00 at 4/MiB, 0.01 a point.\n";
        let next = format!("next:\n  nigh ctl --control {control} set memory 512K\n");
        assert_eq!(text, expected.to_owned() + &next);
        let answer = json(&nigh(&[&plan[..], &["--json"]].concat()));
        let answer = &answer["answers"][0];
        assert_eq!((&answer["verdict"], &answer["certainty"]), (&"grow".into(), &"high".into()), "{answer}");
        assert_eq!((&answer["bytes"], &answer["cost"]), (&(256 << 10).into(), &1.0.into()), "{answer}");
        let text = String::from_utf8(nigh(&["ctl", "--control", control, "status"]).stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("all ")).unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let ratios = ["0.0", "±0.0", "0.0", "±0.0", "0.0", "±0.0", "0.0", "±0.0", "100.0", "±0.0", "100.0", "±0.0"];
        assert_eq!(words, [&["all", "256", "KiB"], &ratios[..], &["12,800", "12,800", "lru"]].concat());
        let top = json(&nigh(&["top", "--control", control, "--interval", "0.1", "--json"]));
        assert_eq!(top["curve"]["points"][4]["hit_ratio"].as_f64().unwrap().round(), 1.0, "{top}");
    });
    let refused = look_after(&folder, &trace, "lru", 64, IN_FLIGHT, &["--curves", "0"], |control, _| {
        Command::new(env!("CARGO_BIN_EXE_nigh")).args(["plan", "--control", control]).output().unwrap()
    });
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("--curves 0"), "{message}");
}

/// A client that waits for each reply: what is fetched ahead is there, as in the replay.
#[test]
fn read_ahead_is_replayed() {
    let folder = Folder::new();
    let rule = ["--readahead", "linux"];
    for name in ["lirs/multi1.trace.gz", "lirs/cpp.trace.gz"] {
        let path = shared().join(name);
        if !path.exists() {
            println!("skipped: agreement::read_ahead_is_replayed: {} is not there", path.display());
            continue;
        }
        let trace = read(&folder, &path);
        let (_, alone) = replayed(&trace, "20%", &[]);
        let (blocks, ahead) = replayed(&trace, "20%", &rule);
        assert!(alone.iter().zip(&ahead).all(|((_, alone), (_, ahead))| ahead > alone), "{alone:?}, {ahead:?}");
        for (policy, hits) in ahead.iter().filter(|(policy, _)| ["lru", "lirs", "arc"].contains(&&policy[..])) {
            // A few blocks are not fetched ahead because too many are on their way.
            let served = served(&folder, &trace, policy, blocks, 0, &rule);
            println!("{policy} on {name}: {served} served, {hits} replayed");
            assert!(
                served.abs_diff(*hits) <= REQUESTS as u64 / 100,
                "{policy} on {name}: {served} served, {hits} replayed"
            );
        }
    }
}
