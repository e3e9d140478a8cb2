//! Lines and records that do not match their format, and are left out if the user wants that.

use std::path::Path;

use crate::error::{Bad, Place};
use crate::{Error, Note, Result};

/// The number of bad lines or records that a note names.
const NAMED: usize = 3;

const HINT: &str = " (--skip-bad leaves such parts out and counts them)";

/// How much of a file is read.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The most requests.
    pub(crate) limit: u64,
    /// Whether lines and records that do not match the format are left out.
    pub(crate) skips_bad: bool,
}

/// The bad lines or records of a file so far.
pub(crate) struct Skipped {
    is_wanted: bool,
    count: u64,
    /// The first ones.
    named: Vec<(Place, Bad)>,
}

impl Skipped {
    pub(crate) fn new(bounds: Bounds) -> Skipped {
        Skipped { is_wanted: bounds.skips_bad, count: 0, named: Vec::new() }
    }

    /// Whether bad lines and records are left out.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Counts the bad line or record at `place` of the file `path`, or returns its error if none are left out. In a file that has
    /// requests, the error names the setting.
    #[cold]
    pub(crate) fn take(&mut self, bad: Bad, place: Place, path: &Path, has_requests: bool) -> Result<()> {
        if !self.is_wanted {
            return Err(match (bad.at(path.to_owned(), place), has_requests) {
                (Error::Malformed { path, place, found, expected }, true) => {
                    Error::Malformed { path, place, found, expected: expected + HINT }
                }
                (error, _) => error,
            });
        }
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push((place, bad));
        }
        Ok(())
    }

    /// The error of a file without requests: that of the first bad line or record, if there is one.
    pub(crate) fn nothing_left(&mut self, path: &Path) -> Error {
        let path = path.to_owned();
        match self.named.drain(..).next() {
            Some((place, bad)) => bad.at(path, place),
            None => Error::Empty { path },
        }
    }

    pub(crate) fn note(&self) -> Option<Note> {
        let name = |(place, bad): &(Place, Bad)| format!("{place}: found {}, expected {}", bad.found, bad.expected);
        (self.count > 0).then(|| Note::Skipped { count: self.count, first: self.named.iter().map(name).collect() })
    }
}
