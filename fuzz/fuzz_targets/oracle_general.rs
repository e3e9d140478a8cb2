#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

// Each object as one block, and with its size.
fuzz_target!(|content: &[u8]| {
    for recorded_sizes in [false, true] {
        let options = ReadOptions { format: Some(Format::OracleGeneral), recorded_sizes, ..Default::default() };
        nigh_fuzz::read(content, &options);
    }
});
