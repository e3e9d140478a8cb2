//! Big-endian fields in byte slices, without allocation and without indexing.

use std::ops::Deref;

/// Result of decoding the bytes received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A message, and the number of bytes it took.
    Whole(T, usize),
    /// The message is incomplete; at least this many bytes are missing (never 0).
    Need(usize),
}

/// A message header of at most 48 bytes, built in place.
#[derive(Clone, Copy)]
pub struct Header {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl Header {
    /// The longest header: an extended reply of type ERROR_OFFSET takes 46 bytes.
    const MAX: usize = 48;

    pub(crate) fn new() -> Self {
        Self { bytes: [0; Self::MAX], length: 0 }
    }

    fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        let room = self.bytes.get_mut(self.length..).and_then(|rest| rest.first_chunk_mut::<N>());
        debug_assert!(room.is_some(), "header longer than {} bytes", Self::MAX);
        if let Some(room) = room {
            *room = field;
            self.length += N;
        }
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(value.to_be_bytes())
    }
}

impl Deref for Header {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.deref().fmt(f)
    }
}

/// Takes fields from the front of a slice; `None` when it is too short.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    pub(crate) fn take(&mut self, length: u32) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(field)
    }
}

/// Appends a string behind its length in 32 bits.
pub(crate) fn put_counted(out: &mut Vec<u8>, string: &str) {
    out.extend_from_slice(&length_of(string.len()).to_be_bytes());
    out.extend_from_slice(string.as_bytes());
}

/// A length as the protocol's 32 bits. Everything encoded here is far below 4 GiB.
pub(crate) fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
