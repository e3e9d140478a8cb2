//! Small numbers for the pieces of code that issue references.

use std::collections::HashMap;

/// The most pieces of code that are distinguished. The first number stands for all others.
pub(crate) const CODES: usize = 1024;

/// The numbers of pieces of code, by their identities.
pub(crate) struct Codes {
    numbers: HashMap<u64, u16>,
    /// The code of the last reference.
    recent: (u64, u16),
}

impl Codes {
    pub(crate) fn new() -> Codes {
        Codes { numbers: HashMap::new(), recent: (0, 0) }
    }

    /// The number of the code with the identity `stream`: the next one if it is new, from 1 on, and 0 beyond `CODES`.
    #[inline]
    pub(crate) fn number(&mut self, stream: u64) -> u16 {
        if self.recent.0 == stream && self.recent.1 != 0 {
            return self.recent.1;
        }
        let next = self.numbers.len() + 1;
        let number = match self.numbers.get(&stream) {
            Some(&number) => number,
            None if next < CODES => *self.numbers.entry(stream).or_insert(next as u16),
            None => 0,
        };
        self.recent = (stream, number);
        number
    }
}
