//! What the binary formats share: equally long little-endian records.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{Bad, Place};
use crate::input::Input;
use crate::{Error, Request, Requests, Result};

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

    /// The request of a record, or `None` where it moves no data.
    fn decode(&self, record: &Self::Record) -> Result<Option<Request>, Bad>;
}

/// Decodes records until the input ends.
pub(crate) struct Binary<F> {
    input: Input,
    format: F,
    found_any: bool,
}

impl<F: Records> Binary<F> {
    /// `input` stands at the first record.
    pub(crate) fn new(input: Input, format: F) -> Binary<F> {
        Binary { input, format, found_any: false }
    }
}

impl<F: Records> Requests for Binary<F> {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        batch.reserve(BATCH);
        let stride = self.format.stride();
        while batch.len() < BATCH {
            let mut used = 0;
            let mut bad = None;
            for bytes in self.input.data().chunks_exact(stride).take(BATCH - batch.len()) {
                let Ok((record, _)) = F::Record::ref_from_prefix(bytes) else { break };
                match self.format.decode(record) {
                    Ok(request) => batch.extend(request),
                    Err(error) => {
                        bad = Some(error);
                        break;
                    }
                }
                used += stride;
            }
            self.input.consume(used);
            if let Some(bad) = bad {
                return Err(bad.at(self.input.path().to_owned(), Place::Byte(self.input.offset())));
            }
            if used == 0 && !self.input.fill()? {
                let rest = self.input.data().len();
                if rest > 0 {
                    return Err(Error::Malformed {
                        path: self.input.path().to_owned(),
                        place: Place::Byte(self.input.offset()),
                        found: format!("{rest} bytes before the end"),
                        expected: format!("a record of {stride} bytes"),
                    });
                }
                break;
            }
        }
        self.found_any |= !batch.is_empty();
        if self.found_any { Ok(()) } else { Err(Error::Empty { path: self.input.path().to_owned() }) }
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }
}
