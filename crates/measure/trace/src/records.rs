//! Shared parts of the binary formats: little-endian records of equal length.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Bad, Place};
use crate::input::Input;
use crate::skip::{Bounds, Skipped};
use crate::{Error, Note, Request, Requests, Result};

/// Requests in a full batch.
pub(crate) const BATCH: usize = 4096;

/// A binary format.
pub(crate) trait Records: Send {
    /// The layout of (the beginning of) a record.
    type Record: FromBytes + KnownLayout + Immutable + Unaligned;

    /// Length of a record in bytes, at least that of `Record`.
    fn stride(&self) -> usize {
        size_of::<Self::Record>()
    }

    /// The request of a record, or `None` if it moves no data.
    fn decode(&self, record: &Self::Record) -> Result<Option<Request>, Bad>;
}

/// Records of equal length and any layout.
pub(crate) trait Strides: Send {
    /// Length of a record in bytes, at least 1.
    fn stride(&self) -> usize;

    /// The request of a record of this length, or `None` if it moves no data.
    fn request(&self, record: &[u8]) -> Result<Option<Request>, Bad>;

    /// Notes about the records.
    fn notes(&self) -> Vec<Note> {
        Vec::new()
    }
}

impl<F: Records> Strides for F {
    #[inline]
    fn stride(&self) -> usize {
        Records::stride(self)
    }

    #[inline]
    fn request(&self, record: &[u8]) -> Result<Option<Request>, Bad> {
        // A record is as long as its stride, which is at least the length of `F::Record`.
        let Ok((record, _)) = F::Record::ref_from_prefix(record) else { return Ok(None) };
        self.decode(record)
    }
}

/// Decodes records until the input ends.
pub(crate) struct Binary<F> {
    input: Input,
    format: F,
    found_any: bool,
    /// The limit of requests still to be read.
    left: u64,
    skipped: Skipped,
    /// Bytes of a part of a record that was left out at the end.
    cut_bytes: u64,
}

impl<F: Strides> Binary<F> {
    /// `input` is at the first record.
    pub(crate) fn new(input: Input, format: F, bounds: Bounds) -> Binary<F> {
        Binary { input, format, found_any: false, left: bounds.limit, skipped: Skipped::new(bounds), cut_bytes: 0 }
    }
}

impl<F: Strides> Requests for Binary<F> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        let most = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
        batch.reserve(most);
        let stride = self.format.stride();
        while batch.len() < most {
            let mut used = 0;
            for bytes in self.input.data().chunks_exact(stride).take(most - batch.len()) {
                match self.format.request(bytes) {
                    Ok(request) => batch.extend(request),
                    Err(error) => {
                        let place = Place::Byte(self.input.offset() + used as u64);
                        let has_requests = self.found_any || !batch.is_empty();
                        self.skipped.take(error, place, self.input.path(), has_requests)?;
                    }
                }
                used += stride;
            }
            self.input.consume(used);
            if used == 0 && !self.input.fill()? {
                let rest = self.input.data().len();
                if rest > 0 && self.skipped.is_wanted() {
                    self.cut_bytes = rest as u64;
                } else if rest > 0 {
                    return Err(Error::Malformed {
                        path: self.input.path().to_owned(),
                        place: Place::Byte(self.input.offset()),
                        found: format!("{rest} bytes before the end"),
                        expected: format!("a record of {stride} bytes"),
                    });
                }
                self.input.consume(rest);
                break;
            }
        }
        self.found_any |= !batch.is_empty();
        self.left -= batch.len() as u64;
        if self.found_any { Ok(()) } else { Err(self.skipped.nothing_left(self.input.path())) }
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn notes(&self) -> Vec<Note> {
        let cut = (self.cut_bytes > 0).then_some(Note::CutBytes { bytes: self.cut_bytes });
        self.format.notes().into_iter().chain(self.skipped.note()).chain(cut).collect()
    }
}
