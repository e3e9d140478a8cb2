#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_trace::{Format, ReadOptions};

fuzz_target!(|content: &[u8]| {
    let columns = "time=0,offset=offset,length=length,op=op,volume=2,write=fill".parse().ok();
    for columns in [None, columns] {
        nigh_fuzz::read_file(content, &ReadOptions { format: Some(Format::Parquet), columns, ..Default::default() });
    }
});
