#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

fuzz_target!(|content: &[u8]| {
    nigh_fuzz::read_file(content, &ReadOptions { format: Some(Format::Parquet), ..Default::default() });
});
