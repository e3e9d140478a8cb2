//! What the fuzz targets of the trace readers share.

use std::io::Cursor;
use std::path::Path;

use nigh_trace::{Error, Opened, ReadOptions, Requests, from_reader, open};

/// Reads `content` to its end or its first error: no panic, every request ends below 2^64 bytes, and a trace read to
/// its end has at least one.
pub fn read(content: &[u8], options: &ReadOptions) {
    check(from_reader(Cursor::new(content.to_owned()), Path::new("fuzz"), options));
}

/// The same for formats that are read from a file only.
pub fn read_file(content: &[u8], options: &ReadOptions) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(&file, content).expect("room for a temporary file");
    check(open(file.path(), options));
}

fn check(opened: Result<Opened, Error>) {
    match opened {
        Ok(opened) => {
            assert!(opened.block_bytes > 0);
            if let Err(error) = drain(opened.requests) {
                let _ = error.to_string();
            }
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
}

fn drain(mut requests: Box<dyn Requests + Send>) -> Result<(), Error> {
    let mut batch = Vec::new();
    let mut count = 0;
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            assert!(count > 0);
            return Ok(());
        }
        count += batch.len();
        for request in &batch {
            assert!(request.offset.checked_add(request.length.into()).is_some(), "{request:?}");
        }
    }
}

/// A target that reads its input as one format.
#[macro_export]
macro_rules! reader {
    ($format:ident) => {
        libfuzzer_sys::fuzz_target!(|content: &[u8]| {
            let format = Some(nigh_trace::Format::$format);
            nigh_fuzz::read(content, &nigh_trace::ReadOptions { format, ..Default::default() });
        });
    };
}
