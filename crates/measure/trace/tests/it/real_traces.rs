//! Published traces are recognized by their content, and read in full.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use nigh_trace::Stream;
use nigh_trace::{Format, Op, ReadOptions, Request, open};

/// The file in the folder of traces, or `None` with a remark where that is missing.
fn find(test: &str, name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces")).join(name);
    if !path.exists() {
        println!("skipped: {test}: {} is missing", path.display());
        return None;
    }
    Some(path)
}

fn read_all(path: &Path, format: Format, options: &ReadOptions) -> Vec<Request> {
    let mut opened = open(path, options).unwrap();
    assert_eq!(opened.format, format, "{}", path.display());
    let mut all = Vec::new();
    let mut batch = Vec::new();
    let mut progress = 0.0;
    loop {
        opened.requests.next_batch(&mut batch).unwrap();
        let now = opened.requests.progress().unwrap();
        assert!((progress..=1.0).contains(&now));
        progress = now;
        if batch.is_empty() {
            assert_eq!(progress, 1.0);
            return all;
        }
        all.extend_from_slice(&batch);
    }
}

fn count(requests: &[Request], op: Op) -> usize {
    requests.iter().filter(|request| request.op == op).count()
}

#[test]
fn lirs_text() {
    for (name, requests, distinct) in [
        ("cs", 6781, 1409),
        ("cpp", 9047, 1223),
        ("gli", 6015, 2529),
        ("multi1", 15858, 2606),
        ("2_pools", 100_000, 9939),
    ] {
        let Some(path) = find("lirs_text", &format!("lirs/{name}.trace.gz")) else { continue };
        let all = read_all(&path, Format::Lirs, &ReadOptions::default());
        assert_eq!(all.len(), requests, "{name}");
        assert!(all.iter().all(|request| request.offset.is_multiple_of(4096) && request.length == 4096));
        let blocks: HashSet<_> = all.iter().map(|request| request.offset).collect();
        assert_eq!(blocks.len(), distinct, "{name}");
    }
}

#[test]
fn arc_text() {
    for (name, requests, blocks) in [("OLTP", 914_145, 914_145), ("P3", 238_578, 3_912_296)] {
        let Some(path) = find("arc_text", &format!("block/{name}.lis.zst")) else { continue };
        assert_eq!(open(&path, &ReadOptions::default()).unwrap().block_bytes, 512);
        let all = read_all(&path, Format::Arc, &ReadOptions::default());
        assert_eq!(all.len(), requests);
        assert_eq!(all.iter().map(|request| u64::from(request.length)).sum::<u64>(), blocks * 512);
    }
}

#[test]
fn vscsi_binary() {
    let Some(path) = find("vscsi_binary", "block/cloudPhysicsIO.vscsi.zst") else { return };
    let all = read_all(&path, Format::Vscsi, &ReadOptions::default());
    assert_eq!(all.len(), 113_872);
    let times = all.iter().map(|request| request.time_ns);
    let hours = (times.clone().max().unwrap() - times.min().unwrap()) as f64 / 3.6e12;
    assert!((1.9..2.1).contains(&hours), "{hours} hours");
    assert_eq!((all[0].op, all[0].length, all[0].offset), (Op::Write, 512, 0x028f_1a09 * 512));
}

#[test]
fn microsoft_server_in_nanoseconds() {
    let Some(path) = find("microsoft_server_in_nanoseconds", "block/DTRS100M.trace.gz") else { return };
    let all = read_all(&path, Format::MqSim, &ReadOptions::default());
    assert_eq!(all.len(), 127_043);
    assert_eq!((count(&all, Op::Read), count(&all, Op::Write)), (113_123, 13_920));
    let hours = (all.last().unwrap().time_ns - all[0].time_ns) as f64 / 3.6e12;
    assert!((8.3..8.35).contains(&hours), "{hours} hours");
}

#[test]
fn program_counters() {
    for (name, reads, writes) in
        [("cscope_build", 9932, 19830), ("gcc_build", 16_237, 875), ("grep_loop", 16_454, 0), ("sqlite", 57_361, 0)]
    {
        let Some(path) = find("program_counters", &format!("pc/{name}.csv.gz")) else { continue };
        let all = read_all(&path, Format::Pc, &ReadOptions::default());
        assert_eq!((count(&all, Op::Read), count(&all, Op::Write)), (reads, writes), "{name}");
        let by_file = ReadOptions { stream: Some(Stream::File), ..ReadOptions::default() };
        assert!(read_all(&path, Format::Pc, &by_file).iter().all(|request| request.stream == request.volume.into()));
    }
    let Some(path) = find("program_counters", "pc/sqlite.csv.gz") else { return };
    let all = read_all(&path, Format::Pc, &ReadOptions::default());
    let first = Request { length: 4096, tenant: 32355, stream: 0xec06_f7ed_a559_e759, ..Request::default() };
    assert_eq!(all[0], first);
    assert_eq!(all[1], Request { time_ns: 82_000, length: 100, stream: 0x51e3_ed05_855a_fe26, ..first });
}

/// References to 4 KiB pages and distinct pages: of reads only, with neighbouring references of a process to one page
/// counted as one, and without the files in `/etc`, whose numbers are given.
#[test]
fn pages_read_by_programs() {
    let page_counts = |name: &str, etc: &[u32]| {
        let path = find("pages_read_by_programs", &format!("pc/{name}.csv.gz"))?;
        let (mut references, mut pages, mut last) = (0, HashSet::new(), HashMap::new());
        for request in read_all(&path, Format::Pc, &ReadOptions::default()) {
            if request.op != Op::Read || request.length == 0 || etc.contains(&request.volume) {
                continue;
            }
            for page in request.offset / 4096..=(request.offset + u64::from(request.length) - 1) / 4096 {
                let page = (request.volume, page);
                if last.insert(request.tenant, page) != Some(page) {
                    references += 1;
                    pages.insert(page);
                }
            }
        }
        Some((references, pages.len()))
    };
    for (name, etc, expected) in [
        ("sqlite", &[1, 2][..], (57_355, 11_589)),
        ("gcc_build", &[0], (41_683, 1702)),
        ("grep_loop", &[0], (25_395, 14_681)),
    ] {
        assert_eq!(page_counts(name, etc).unwrap_or(expected), expected, "{name}");
    }
}

#[test]
fn lists_of_files_are_no_traces() {
    let Some(path) = find("lists_of_files_are_no_traces", "pc/sqlite.files.csv.gz") else { return };
    let error = open(&path, &ReadOptions::default()).err().unwrap().to_string();
    assert!(error.contains("not recognized") && error.contains("oracle-general"), "{error}");
}

#[test]
fn requests_without_length_are_no_references_to_blocks() {
    use nigh_trace::write::{Destination, WriteOptions, Writer};
    let Some(path) = find("requests_without_length_are_no_references_to_blocks", "pc/gcc_build.csv.gz") else { return };
    let all = read_all(&path, Format::Pc, &ReadOptions::default());
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in [("a.lirs", Format::Lirs), ("a.oracleGeneral", Format::OracleGeneral)] {
        let path = folder.path().join(name);
        let to = Destination::new(&path, true, &[]).unwrap();
        let mut writer = Writer::create(&to, &WriteOptions { format: None, block_bytes: 4096, taken: None }).unwrap();
        writer.push(&all).unwrap();
        let written = writer.finish().unwrap();
        assert_eq!((written.records, written.requests + written.skipped), (42_958, all.len() as u64));
        let empty = all.iter().filter(|request| request.length == 0).count() as u64;
        assert_eq!((written.skipped, empty), (230, 230));
        assert_eq!(read_all(&path, format, &ReadOptions::default()).len(), 42_958);
    }
}
