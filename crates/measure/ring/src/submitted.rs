//! Requests that a program submits to the kernel by `io_submit` (libaio).

use crate::Kind;

/// Bytes of a request (`struct iocb`).
pub const BLOCK_BYTES: usize = 64;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// A read, a write, or a flush.
    pub kind: Kind,
    /// The descriptor.
    pub descriptor: u32,
    /// First byte of the file.
    pub offset: u64,
    /// The length that is asked for.
    pub bytes: Bytes,
}

/// The length of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// This many bytes.
    Of(u64),
    /// Those of a vector of buffers.
    OfVector {
        /// Its address.
        at: u64,
        /// How many buffers it has.
        parts: u64,
    },
}

impl Submitted {
    /// The request in `block`; `None` if it transfers nothing to or from a file.
    pub fn parse(block: &[u8; BLOCK_BYTES]) -> Option<Submitted> {
        let number = |at: usize, bytes: usize| {
            let mut word = [0; 8];
            word.iter_mut().zip(block.iter().skip(at).take(bytes)).for_each(|(to, byte)| *to = *byte);
            u64::from_le_bytes(word)
        };
        let (buffer, length) = (number(24, 8), number(32, 8));
        // The codes of linux/aio_abi.h.
        let (kind, bytes) = match number(16, 2) {
            0 => (Kind::Read, Bytes::Of(length)),
            1 => (Kind::Write, Bytes::Of(length)),
            2 | 3 => (Kind::Sync, Bytes::Of(0)),
            7 => (Kind::Read, Bytes::OfVector { at: buffer, parts: length }),
            8 => (Kind::Write, Bytes::OfVector { at: buffer, parts: length }),
            _ => return None,
        };
        let offset = if kind == Kind::Sync { 0 } else { number(40, 8) };
        Some(Submitted { kind, descriptor: number(20, 4) as u32, offset, bytes })
    }
}
