//! Numbers for the names of disks and files, in order of first appearance.

use std::collections::HashMap;

use crate::error::Bad;

/// The limit of memory for all names, in bytes.
const BYTES_MOST: usize = 256 << 20;
/// The overhead of a name, in bytes.
const NAME_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Numbering {
    known: HashMap<Vec<u8>, u32>,
    bytes: usize,
    /// The name of the last call, and its number.
    last: (Vec<u8>, u32),
}

impl Numbering {
    /// The number of `name`.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<u32, Bad> {
        if !self.known.is_empty() && self.last.0 == name {
            return Ok(self.last.1);
        }
        let number = match self.known.get(name) {
            Some(&number) => number,
            None => {
                self.bytes += name.len() + NAME_BYTES;
                if self.bytes > BYTES_MOST {
                    return Err(Bad::field(name, "less than 256 MiB of names of disks or files"));
                }
                let number = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
                self.known.insert(name.to_owned(), number);
                number
            }
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(name);
        self.last.1 = number;
        Ok(number)
    }
}
