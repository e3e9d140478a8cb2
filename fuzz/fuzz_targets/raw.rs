#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

fuzz_target!(|input: &[u8]| {
    for format in [Format::RawU32, Format::RawU64] {
        nigh_fuzz::read(input, &ReadOptions { format: Some(format), limit: Some(5000), ..Default::default() });
    }
});
