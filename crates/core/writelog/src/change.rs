//! Changes of the disk.

use std::ops::Range;

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// New bytes.
    Data,
    /// The range reads as zeros.
    Zeroes {
        /// It keeps its storage.
        keep: bool,
    },
    /// The contents of the range are no longer needed.
    Discard,
}

impl Kind {
    pub(crate) fn code(self) -> u64 {
        match self {
            Kind::Data => 1,
            Kind::Zeroes { keep: false } => 2,
            Kind::Zeroes { keep: true } => 3,
            Kind::Discard => 4,
        }
    }

    pub(crate) fn of(code: u64) -> Option<Kind> {
        let all = [Kind::Data, Kind::Zeroes { keep: false }, Kind::Zeroes { keep: true }, Kind::Discard];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

/// A change of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its effect.
    pub kind: Kind,
    /// Of the disk, in bytes. It begins at a multiple of [`BLOCK`](crate::BLOCK), and ends at one or at the end of the disk.
    pub range: Range<u64>,
}
