//! Identity of a trace, wherever it lies: its length and a hash of its content.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use twox_hash::XxHash3_128;

/// Up to this many bytes, all are hashed.
const WHOLE_MOST: u64 = 4 << 20;
/// In longer files, this many pages are.
const PAGES: u64 = 64;
/// The bytes of a page.
const PAGE: u64 = 16 << 10;

/// The identity of a trace's content: `LENGTH-HASH`. It does not depend on name, place or time, so copies on several machines
/// have the same.
///
/// Of files above 4 MiB, 64 pages of 16 KiB are hashed (XXH3, 128 bits), spaced evenly, with the first and the last. A change in
/// other places is noticed only if it changes the length or, as in compressed files, what follows. The hash does not protect
/// against who forges files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(String);

impl Content {
    /// The parts of a trace of `length` bytes that are hashed, in order.
    pub fn parts(length: u64) -> Vec<Range<u64>> {
        if length <= WHOLE_MOST {
            let whole = 0..length;
            return vec![whole];
        }
        let starts =
            (0..PAGES).map(|page| (u128::from(length - PAGE) * u128::from(page) / u128::from(PAGES - 1)) as u64);
        starts.map(|start| start..start + PAGE).collect()
    }

    /// The identity of a trace of `length` bytes with these [`parts`](Content::parts).
    pub fn of_parts(length: u64, parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Content {
        let mut hasher = XxHash3_128::new();
        parts.into_iter().for_each(|part| hasher.write(part.as_ref()));
        Content(format!("{length}-{:032x}", hasher.finish_128()))
    }

    /// The identity of the trace in a file.
    pub fn of_file(path: &Path) -> io::Result<Content> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let read = |part: Range<u64>| {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            file.read_exact_at(&mut bytes, part.start).map(|()| bytes)
        };
        let parts = Content::parts(metadata.len()).into_iter().map(read).collect::<io::Result<Vec<_>>>()?;
        Ok(Content::of_parts(metadata.len(), parts))
    }

    /// The identity that [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Content> {
        let (length, hash) = text.split_once('-')?;
        (length.parse::<u64>().is_ok() && is_hash(hash)).then(|| Content(text.to_owned()))
    }
}

/// Whether `text` is a hash of 128 bits in hexadecimal.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Content {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, bytes).unwrap();
        Content::of_file(&path).unwrap()
    }

    #[test]
    fn a_small_file_is_hashed_whole() {
        let mut bytes = vec![7; 1 << 20];
        let before = of(&bytes);
        assert_eq!(of(&bytes), before);
        for at in [0, 12_345, bytes.len() - 1] {
            bytes[at] ^= 1;
            assert_ne!(of(&bytes), before, "{at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Content::parse(&before.to_string()), Some(before));
        assert_eq!(of(b"").to_string(), format!("0-{:032x}", XxHash3_128::oneshot(b"")));
    }

    #[test]
    fn of_a_large_file_the_first_and_the_last_page_are_hashed() {
        let mut bytes = vec![7; (WHOLE_MOST + 12_345) as usize];
        let before = of(&bytes);
        for at in [0, bytes.len() - 1, (bytes.len() - PAGE as usize) / 63] {
            bytes[at] ^= 1;
            assert_ne!(of(&bytes), before, "{at}");
            bytes[at] ^= 1;
        }
        bytes.push(7);
        assert_ne!(of(&bytes), before);
        // An undetected change: a byte between two pages.
        bytes.pop();
        bytes[PAGE as usize + 1] ^= 1;
        assert_eq!(of(&bytes), before);
        for length in [WHOLE_MOST + 1, u64::MAX] {
            let parts = Content::parts(length);
            assert_eq!((parts.len(), parts[0].start, parts[63].end), (64, 0, length));
        }
    }
}
