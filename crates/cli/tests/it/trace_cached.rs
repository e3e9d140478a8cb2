//! `nigh trace cached`: what the page cache holds of files, beside a recording.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nigh_trace::format::parquet::{Call, Context, Did, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Op, Request, Taken};
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::command::{json, nigh, printed};

const PAGE: u64 = 4096;

/// A recording whose reads of `file` are `pages`, one page each.
fn recording(to: &Path, file: &Path, pages: &[u64]) {
    let mut recorder = Recorder::create(&Destination::new(to, true, &[]).unwrap(), Taken::Above, PAGE as u32).unwrap();
    let (program, volume) = (recorder.program("db"), recorder.file(file.to_str().unwrap()));
    recorder.context(Context { pcs: [1; 4], depth: 0, stack: String::new() });
    for (at, page) in pages.iter().enumerate() {
        let request = Request {
            time_ns: at as u64,
            op: Op::Read,
            volume,
            offset: page * PAGE,
            length: PAGE as u32,
            tenant: 7,
            stream: 1,
            latency_ns: 0,
            content: 0,
        };
        let did = Did::Request(Op::Read);
        let (asked, result) = (request.length, i64::from(request.length));
        recorder.push(Call { request, did, program, context: 0, tid: 7, asked, result, device_bytes: 0 }).unwrap();
    }
    recorder.finish().unwrap();
}

#[test]
fn files_that_were_read_in_part_and_dropped() {
    // A temporary folder may be in memory, where nothing can be dropped.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, vec![1; 64 * PAGE as usize]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let drop = || fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    drop();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut page = vec![0; PAGE as usize];
    (8..24).for_each(|number| file.read_exact_at(&mut page, number * PAGE).unwrap());

    // Pages 8 to 11 are read again, and 40 and 41 only once.
    let trace = folder.path().join("trace.parquet");
    recording(&trace, &path, &[8, 9, 10, 11, 40, 41, 8, 9, 10, 11]);
    let [path, trace, below] = [&path, &trace, folder.path()].map(|path| path.to_str().unwrap());
    let expected = |value: &Value, name: &str| value[name].as_u64().unwrap() / PAGE;
    let value = json(&["trace", "cached", path, "--with", trace]);
    assert_eq!(
        (&value["page_bytes"], &value["has_evicted"], &value["files_total"]),
        (&PAGE.into(), &true.into(), &1.into())
    );
    let file = &value["files"][0];
    assert_eq!((file["file"].as_str(), expected(file, "bytes"), expected(file, "cached_bytes")), (Some(path), 64, 16));
    assert_eq!((&file["dirty_bytes"], &file["recently_evicted_bytes"]), (&0.into(), &0.into()));
    let read = &file["recording"];
    let figures =
        ["distinct_bytes", "cached_bytes", "again_bytes", "again_cached_bytes"].map(|name| expected(read, name));
    assert_eq!((figures, &read["recently_evicted_bytes"]), ([6, 4, 4, 4], &0.into()));
    // Without names, the recording names the files; a folder stands for all files in it.
    assert_eq!(json(&["trace", "cached", "--with", trace])["files"][0], *file);
    assert_eq!(json(&["trace", "cached", below])["files_total"], 2);
    let table = printed(&["trace", "cached", path, "--with", trace]);
    assert!(
        table.starts_with("64 KiB of 256 KiB (25 %) in 1 file are in the page cache, 0 B of them dirty;"),
        "{table}"
    );
    assert!(table.contains("reads 24 KiB of these files, of which 16 KiB (67 %) are cached"), "{table}");

    drop();
    let value = json(&["trace", "cached", path, "--with", trace]);
    assert_eq!((&value["total"]["cached_bytes"], &value["total"]["recording"]["cached_bytes"]), (&0.into(), &0.into()));

    let missing = folder.path().join("missing");
    let output = nigh(&["trace", "cached", missing.to_str().unwrap()]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("No such file"), "{output:?}");
    let nameless = folder.path().join("plain.csv");
    std::fs::write(&nameless, "0,4096\n").unwrap();
    let output = nigh(&["trace", "cached", path, "--with", nameless.to_str().unwrap()]);
    assert!(!output.status.success(), "{output:?}");
}
