//! The table for the adviser's caller: the class of code, by its identity and the file.

use core::fmt;

use crate::Class;

/// Bytes of an entry: the code, the file, the class (0 sequential, 1 loop, 2 short, 3 random, 4 no advice) and the run of a short
/// loop, each a number of 64 bits with the lowest byte first.
pub const ENTRY_BYTES: usize = 32;

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
        let count = bytes.len() / ENTRY_BYTES;
        let words = |at| table.words(at).ok_or(NoTable);
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
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

    /// As [`Table::new`], for entries that were checked when they were mapped.
    pub fn mapped(bytes: &'a [u8]) -> Table<'a> {
        Table { entries: bytes }
    }

    /// The class of `code` in `file`: that of the code in this file if it differs there, otherwise that in any file.
    pub fn class(&self, code: u64, file: u64) -> Option<Class> {
        self.entry(code, file)?.1
    }

    /// As [`Table::class`], with the number of the entry. Code that gets no advice has one, too, without a class.
    pub fn entry(&self, code: u64, file: u64) -> Option<(usize, Option<Class>)> {
        self.find(code, file).or_else(|| self.find(code, 0))
    }

    /// The code of each entry.
    pub fn codes(&self) -> impl Iterator<Item = u64> + 'a {
        let table = *self;
        (0..self.entries.len() / ENTRY_BYTES).filter_map(move |at| table.words(at)).map(|[code, ..]| code)
    }

    fn find(&self, code: u64, file: u64) -> Option<(usize, Option<Class>)> {
        let (mut low, mut high) = (0, self.entries.len() / ENTRY_BYTES);
        while low < high {
            let middle = low.midpoint(high);
            let [of, in_file, class, run] = self.words(middle)?;
            match (of, in_file).cmp(&(code, file)) {
                core::cmp::Ordering::Equal => return Some((middle, class_of(class, run)?)),
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn words(&self, at: usize) -> Option<Words> {
        let bytes = self.entries.get(at * ENTRY_BYTES..(at + 1) * ENTRY_BYTES)?;
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|&word| u64::from_le_bytes(word));
        Some([words.next()?, words.next()?, words.next()?, words.next()?])
    }
}

/// The class with a number; `None` inside for no advice.
fn class_of(class: u64, run: u64) -> Option<Option<Class>> {
    Some(match class {
        0 => Some(Class::Sequential),
        1 => Some(Class::Loop),
        2 => Some(Class::Short { run }),
        3 => Some(Class::Random),
        4 => None,
        _ => return None,
    })
}

/// The entry of `code` in `file`, which is 0 for any file; without a class, it gets no advice.
pub fn entry(code: u64, file: u64, class: Option<Class>) -> [u8; ENTRY_BYTES] {
    let (number, run) = match class {
        Some(Class::Sequential) => (0, 0),
        Some(Class::Loop) => (1, 0),
        Some(Class::Short { run }) => (2, run),
        Some(Class::Random) => (3, 0),
        None => (4, 0),
    };
    let mut bytes = [0; ENTRY_BYTES];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (word, value) in words.iter_mut().zip([code, file, number, run]) {
        *word = u64::to_le_bytes(value);
    }
    bytes
}
