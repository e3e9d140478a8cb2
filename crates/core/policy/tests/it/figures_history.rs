//! Hits of OPT and LRU on recorded reference strings, against figures computed elsewhere.
//!
//! Sources:
//! * OPT on `cpp`: Song Jiang, Efficient Caching Algorithms for Memory Management in Computer Systems, dissertation,
//!   College of William and Mary 2004, Table 3.1.
//! * `pc/*`: recorded programs, with the hits that are published beside the traces. References are 4 KiB pages of reads
//!   of at least one byte from files outside `/etc`, without a page that repeats the one before it of the same process;
//!   the cache holds half of the distinct pages.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use nigh_policy::{Access, Block, Kind, Setup, Slot, Spec, Stream, Tenant, build};
use nigh_testkit::host::future;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces");

/// The text of a compressed trace, or `None` where the traces are missing, which it reports.
fn text(test: &str, name: &str) -> Option<String> {
    let path = Path::new(TRACES).join(name);
    if !path.exists() {
        println!("skipped: {test}: no {name} in {TRACES}");
        return None;
    }
    let mut text = String::new();
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    MultiGzDecoder::new(file).read_to_string(&mut text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(text)
}

/// Numbers distinct blocks `0..`, in the order of their first reference.
fn number<T: std::hash::Hash + Eq>(references: impl IntoIterator<Item = T>) -> (Vec<u64>, u32) {
    let mut numbers = HashMap::new();
    let mut numbered = Vec::new();
    for block in references {
        let fresh = numbers.len() as u64;
        numbered.push(*numbers.entry(block).or_insert(fresh));
    }
    (numbered, numbers.len() as u32)
}

fn hits(spec: &str, references: &[u64], blocks: u32, future: &Arc<[u32]>, capacity: u32) -> usize {
    let setup = Setup {
        capacity,
        slots: blocks,
        block_bytes: 4096,
        ghosts: blocks,
        future: Some(future.clone()),
        patterns: None,
    };
    let mut policy = build(&spec.parse::<Spec>().unwrap(), &setup).unwrap();
    let mut resident = vec![false; blocks as usize];
    let (mut frames, mut hits) = (0, 0);
    for (tick, &block) in references.iter().enumerate() {
        let access = Access {
            block: Block { volume: 0, index: block },
            tenant: Tenant(0),
            stream: Stream(0),
            kind: Kind::Read,
            tick: tick as u64,
        };
        let slot = Slot(block as u32);
        if resident[slot.index()] {
            policy.hit(slot, &access);
            hits += 1;
        } else {
            if frames == capacity {
                let victim = policy.evict(slot, &access).expect("a policy of the registry keeps what comes in");
                resident[victim.index()] = false;
            } else {
                frames += 1;
            }
            while policy.take_forgotten().is_some() {}
            policy.insert(slot, &access);
            resident[slot.index()] = true;
        }
        while policy.take_forgotten().is_some() {}
    }
    policy.check();
    hits
}

#[test]
fn opt_on_cpp() {
    let sizes = [20, 35, 50, 80, 100, 200, 300, 400, 500, 600, 700, 800, 900];
    let figures =
        ["26.4", "46.5", "62.8", "79.1", "82.5", "86.0", "86.5", "86.5", "86.5", "86.5", "86.5", "86.5", "86.5"];
    let Some(text) = text("opt_on_cpp", "lirs/cpp.trace.gz") else { return };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('*'));
    let (references, blocks) = number(lines);
    let future = future(&references);
    let ratio = |size| 100.0 * hits("opt", &references, blocks, &future, size) as f64 / references.len() as f64;
    assert_eq!(sizes.map(|size| format!("{:.1}", ratio(size))), figures);
}

/// The pages that the reads of a recorded program touch.
fn pages(trace: &str, files: &str) -> Vec<(u64, u64)> {
    let mut system = HashSet::new();
    for line in files.lines().skip(1) {
        let [file, _size, path] = *line.splitn(3, ',').collect::<Vec<_>>() else { panic!("not a file: {line}") };
        if path.starts_with("/etc/") {
            system.insert(file);
        }
    }
    let mut before = HashMap::new();
    let mut pages = Vec::new();
    for line in trace.lines().skip(1) {
        let [_t, pid, _app, op, file, offset, length, ..] = *line.split(',').collect::<Vec<_>>() else {
            panic!("not an operation: {line}")
        };
        if !["read", "pread"].contains(&op) || system.contains(file) {
            continue;
        }
        let [file, offset, length] = [file, offset, length].map(|number| number.parse::<u64>().unwrap());
        for page in offset / 4096..(offset + length).div_ceil(4096) {
            if length > 0 && before.insert(pid, (file, page)) != Some((file, page)) {
                pages.push((file, page));
            }
        }
    }
    pages
}

/// A trace, its references and pages, and the hits of LRU and OPT.
struct Figure(&'static str, usize, u32, usize, usize);

#[test]
fn opt_and_lru_on_recorded_programs() {
    for Figure(name, count, distinct, lru, opt) in [
        Figure("sqlite", 57_355, 11_589, 4, 28_973),
        Figure("gcc_build", 41_683, 1_702, 12_729, 38_631),
        Figure("grep_loop", 25_395, 14_681, 0, 7_340),
    ] {
        let text = |part: &str| text("opt_and_lru_on_recorded_programs", &format!("pc/{name}.{part}"));
        let (Some(trace), Some(files)) = (text("csv.gz"), text("files.csv.gz")) else { return };
        let (references, blocks) = number(pages(&trace, &files));
        assert_eq!((references.len(), blocks), (count, distinct), "{name}");
        let future = future(&references);
        let hits = |spec| hits(spec, &references, blocks, &future, blocks / 2);
        assert_eq!((hits("lru"), hits("opt")), (lru, opt), "{name}");
    }
}
