#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();

// The content as it is, and as a version and records behind a header that is in order.
fuzz_target!(|content: &[u8]| {
    for recorded_sizes in [false, true] {
        let options = ReadOptions { format: Some(Format::Lcs), recorded_sizes, ..Default::default() };
        nigh_fuzz::read(content, &options);
        if let [version, records @ ..] = content {
            let version = u64::from(*version).to_le_bytes();
            let whole = [&MAGIC, &version, &[0; 8192 - 24][..], &MAGIC, records].concat();
            nigh_fuzz::read(&whole, &options);
        }
    }
});
