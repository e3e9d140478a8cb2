#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

// The first line describes the records behind it.
fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (first, content) = input.split_at(end);
    let columns = std::str::from_utf8(first).ok().and_then(|first| first.parse().ok());
    let content = content.get(1..).unwrap_or_default();
    nigh_fuzz::read(content, &ReadOptions { format: Some(Format::Records), columns, ..Default::default() });
});
