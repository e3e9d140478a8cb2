//! Helpers of the fuzz targets of the trace readers, and of the decoders of blocks.

pub mod secure;

use std::io::Cursor;
use std::path::Path;

use nigh_trace::{Error, Opened, ReadOptions, Requests, from_reader, open};

/// Reads `content` to its end or its first error, and again without what does not match the format: no panic, every request
/// ends below 2^64 bytes, and a trace read to its end has at least one.
pub fn read(content: &[u8], options: &ReadOptions) {
    for skip_bad in [false, true] {
        let options = ReadOptions { skip_bad, ..options.clone() };
        check(from_reader(Cursor::new(content.to_owned()), Path::new("fuzz"), &options));
    }
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
            requests.notes().iter().for_each(|note| assert!(!note.to_string().is_empty()));
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

/// Bytes of a fuzz input that the base is made of: it repeats them.
const PATTERN: usize = 64;

/// Decodes an encoding of a block against a base made of the first bytes of `input`. The result is a block, which is
/// encoded and decoded again; a line difference is its only encoding.
pub fn decode(codec: nigh_content::Codec, input: &[u8]) {
    use nigh_content::{BLOCK_BYTES, Codec, Codecs, ENCODED_MAX};
    let (pattern, encoded) = input.split_at(input.len().min(PATTERN));
    let mut base = [0; BLOCK_BYTES];
    base.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
    let mut codecs = Codecs::new();
    let (mut block, mut again) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    if codecs.decode(codec, encoded, &base, &mut block).is_err() {
        return;
    }
    let mut out = [0; ENCODED_MAX];
    let length = codecs.encode(codec, &block, &base, &mut out).expect("the block can be encoded");
    assert!(codec != Codec::Line || out[..length] == *encoded, "one encoding of a difference");
    codecs.decode(codec, &out[..length], &base, &mut again).expect("what was encoded is decoded");
    assert!(block == again);
}

/// A target that decodes its input by one codec.
#[macro_export]
macro_rules! decoder {
    ($codec:ident) => {
        libfuzzer_sys::fuzz_target!(|input: &[u8]| nigh_fuzz::decode(nigh_content::Codec::$codec, input));
    };
}
