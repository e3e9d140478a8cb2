//! A verdict in words, and how it is laid out.

use std::fmt;

use serde::Serialize;

use crate::wrap::{broken, terminal_columns};

/// Columns of a verdict that goes elsewhere than to a terminal.
const WIDTH: usize = 120;
/// Stands between a number and its unit until lines are broken.
pub(super) const NO_BREAK: char = '\u{a0}';

/// A number and its unit, kept in one line.
pub(super) fn unbroken(text: &str) -> String {
    text.replace(' ', &NO_BREAK.to_string())
}

/// A verdict in words.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Told {
    /// The advice.
    pub(super) headline: String,
    pub(super) facts: Vec<Fact>,
    /// A command.
    pub(super) next: String,
}

/// One answer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fact {
    pub(super) about: &'static str,
    pub(super) sentence: String,
}

impl Told {
    pub(super) fn box_of_page(&self) -> nigh_report::Verdict {
        nigh_report::Verdict {
            headline: self.headline.clone(),
            facts: self.facts.iter().map(|Fact { about, sentence }| ((*about).to_owned(), sentence.clone())).collect(),
            next: self.next.clone(),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = terminal_columns().unwrap_or(WIDTH);
        writeln!(f, "{}", wrapped(&self.headline, width, 0))?;
        let label = self.facts.iter().map(|fact| fact.about.len()).max().unwrap_or(0) + 2;
        for Fact { about, sentence } in &self.facts {
            writeln!(f, "  {about:label$}{}", wrapped(sentence, width, label + 2))?;
        }
        writeln!(f, "next:\n  {}", self.next)
    }
}

/// `text` in lines of at most `width` characters, all but the first indented; numbers stay beside their units.
fn wrapped(text: &str, width: usize, indent: usize) -> String {
    broken(text, width, indent).replace(NO_BREAK, " ")
}
