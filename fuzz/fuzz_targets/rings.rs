#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use nigh_record::{Collector, Writer};
use nigh_trace::format::parquet::Recorder;
use nigh_trace::write::Destination;
use nigh_trace::{ReadOptions, Taken};

// A recorded program writes anything into its shared file: behind the magic number, and into the first rings. The recording can be read.
fuzz_target!(|content: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).expect("a temporary folder");
    let file = File::create_new(shared.join("1-1")).expect("a temporary file");
    file.set_len(nigh_ring::BYTES as u64).expect("room for a temporary file");
    let (head, rest) = content.split_at(content.len().min(HEAD));
    file.write_all_at(head, 8).expect("room for a temporary file");
    for (ring, part) in rest.chunks(RING_PART).take(RINGS).enumerate() {
        file.write_all_at(part, (RINGS_BEGIN + ring * RING_BYTES) as u64).expect("room for a temporary file");
    }
    file.write_all_at(&nigh_ring::MAGIC.to_ne_bytes(), 0).expect("room for a temporary file");
    let path = folder.path().join("a.parquet");
    let to = Destination::new(&path, true, &[]).expect("a new file");
    let recorder = Recorder::create(&to, Taken::Above, 4096).expect("a new file");
    let mut collector = Collector::new(shared, 0, false);
    let mut writer = Writer::new(recorder, u64::MAX, 0);
    collector.collect(&mut writer);
    collector.collect_rest(&mut writer);
    let calls = collector.summary().calls;
    let _ = (collector.gaps(), collector.modules());
    let (recorder, written) = writer.end();
    written.expect("calls that can be written");
    if calls == 0 {
        return recorder.discard().expect("the file is removed");
    }
    recorder.finish().expect("a file that can be completed");
    let mut requests = nigh_trace::open(&path, &ReadOptions::default()).expect("a trace").requests;
    let mut batch = Vec::new();
    while requests.next_batch(&mut batch).is_ok() && !batch.is_empty() {}
});

/// Bytes of the input for the beginning of the file, with the program and the first module, and for each ring.
const HEAD: usize = 536;
const RING_PART: usize = 1024;
const RINGS: usize = 4;

/// A ring is four numbers and its slots; the rings are at the end of the file.
const RING_BYTES: usize = 16 + nigh_ring::SLOTS * size_of::<nigh_ring::Record>();
const RINGS_BEGIN: usize = nigh_ring::BYTES - (nigh_ring::RINGS + 1) * RING_BYTES;
