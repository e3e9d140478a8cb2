//! The PC table (figure 5): what is known of each piece of code.

use std::collections::HashMap;

use crate::{Class, Counts, Thresholds};

/// Pattern of one piece of code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// How it accesses pages.
    pub class: Class,
    /// The mean number of references to pages, by any code, until one of its pages is referenced again; infinite if
    /// none is.
    pub period: f64,
    /// The mean length of its sequences, in pages.
    pub run: f64,
}

impl Pattern {
    /// The pattern that `counts` show.
    pub fn of(counts: &Counts, thresholds: &Thresholds) -> Pattern {
        let period = counts.period().unwrap_or(f64::INFINITY);
        Pattern { class: counts.class(thresholds), period, run: counts.run() }
    }
}

/// Patterns by the identity of the code, and those of code in single files that differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    codes: HashMap<u64, Pattern>,
    files: HashMap<(u64, u32), Pattern>,
}

impl Table {
    /// Sets the pattern of `code`.
    pub fn set(&mut self, code: u64, pattern: Pattern) {
        self.codes.insert(code, pattern);
    }

    /// Sets the pattern of `code` in `file`, where it differs from that in other files.
    pub fn set_file(&mut self, code: u64, file: u32, pattern: Pattern) {
        self.files.insert((code, file), pattern);
    }

    /// The pattern of `code` in `file`: in a file that is not in the table, that of the code (section 4.2: "the next
    /// requests coming with the same PC will be treated as the same pattern").
    pub fn get(&self, code: u64, file: u32) -> Option<&Pattern> {
        let special = if self.files.is_empty() { None } else { self.files.get(&(code, file)) };
        special.or_else(|| self.codes.get(&code))
    }

    /// All code of the table, in no order.
    pub fn codes(&self) -> impl Iterator<Item = (u64, &Pattern)> {
        self.codes.iter().map(|(&code, pattern)| (code, pattern))
    }

    /// Files in which code differs, in no order.
    pub fn files(&self) -> impl Iterator<Item = (u64, u32, &Pattern)> {
        self.files.iter().map(|(&(code, file), pattern)| (code, file, pattern))
    }
}
