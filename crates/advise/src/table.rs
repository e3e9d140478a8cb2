//! What the adviser's caller has to know of the code that reads: its class, by the identity of the code and the file.

use core::fmt;

use crate::Class;

/// Bytes of an entry: the code, the file, the class (0 sequential, 1 loop, 2 short, 3 random) and the run of a short
/// loop, each a number of 64 bits with the lowest byte first.
const ENTRY: usize = 32;

/// Classes by the identity of the code, and those of code in single files that differ. It borrows its entries, so that a
/// library in another program's process can use them where they are mapped.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    entries: &'a [u8],
}

/// Bytes that are not a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTable;

impl fmt::Display for NoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a table of codes and classes: entries are incomplete, not in order, or of an unknown class")
    }
}

impl core::error::Error for NoTable {}

/// An entry, for the order and the contents of a table.
type Words = [u64; 4];

impl<'a> Table<'a> {
    /// The table with these entries, as [`entry`] makes them: in ascending order of code and file, each once.
    ///
    /// # Errors
    /// If they are not.
    pub fn new(bytes: &'a [u8]) -> Result<Table<'a>, NoTable> {
        let table = Table { entries: bytes };
        let count = bytes.len() / ENTRY;
        let words = |at| table.words(at).ok_or(NoTable);
        if !bytes.len().is_multiple_of(ENTRY) {
            return Err(NoTable);
        }
        for at in 0..count {
            let [code, file, class, run] = words(at)?;
            class_of(class, run).ok_or(NoTable)?;
            if at > 0 {
                let [before_code, before_file, ..] = words(at - 1)?;
                if (before_code, before_file) >= (code, file) {
                    return Err(NoTable);
                }
            }
        }
        Ok(table)
    }

    /// The class of `code` in `file`: that of the code in this file if it differs there, otherwise that in any file.
    pub fn class(&self, code: u64, file: u64) -> Option<Class> {
        self.find(code, file).or_else(|| self.find(code, 0))
    }

    fn find(&self, code: u64, file: u64) -> Option<Class> {
        let (mut low, mut high) = (0, self.entries.len() / ENTRY);
        while low < high {
            let middle = low.midpoint(high);
            let [of, in_file, class, run] = self.words(middle)?;
            match (of, in_file).cmp(&(code, file)) {
                core::cmp::Ordering::Equal => return class_of(class, run),
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn words(&self, at: usize) -> Option<Words> {
        let bytes = self.entries.get(at * ENTRY..(at + 1) * ENTRY)?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        Some([words.next()?, words.next()?, words.next()?, words.next()?])
    }
}

fn class_of(class: u64, run: u64) -> Option<Class> {
    Some(match class {
        0 => Class::Sequential,
        1 => Class::Loop,
        2 => Class::Short { run },
        3 => Class::Random,
        _ => return None,
    })
}

/// The entry of `code` in `file`, which is 0 for any file.
pub fn entry(code: u64, file: u64, class: Class) -> [u8; ENTRY] {
    let (number, run) = match class {
        Class::Sequential => (0, 0),
        Class::Loop => (1, 0),
        Class::Short { run } => (2, run),
        Class::Random => (3, 0),
    };
    let mut bytes = [0; ENTRY];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip([code, file, number, run]) {
        *word = u64::to_le_bytes(value);
    }
    bytes
}
