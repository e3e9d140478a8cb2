//! A verdict in words, and how it is laid out.

use std::fmt;

use serde::Serialize;

use crate::output;

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
        let width = output::width();
        writeln!(f, "{}", wrapped(&self.headline, width, 0))?;
        let label = self.facts.iter().map(|fact| fact.about.len()).max().unwrap_or(0) + 2;
        for Fact { about, sentence } in &self.facts {
            writeln!(f, "  {about:label$}{}", wrapped(sentence, width, label + 2))?;
        }
        writeln!(f, "next:\n  {}", self.next)
    }
}

/// `text` in lines of at most `width` characters, all but the first indented. Words are not cut.
fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word.replace(NO_BREAK, " "));
        column += length;
    }
    lines
}

/// Stands between a number and its unit until lines are broken.
pub(super) const NO_BREAK: char = '\u{a0}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_words_stay_whole() {
        assert_eq!(wrapped("one two three four", 12, 4), "one two\n    three\n    four");
        assert_eq!(wrapped("a 5.00\u{a0}% share", 8, 0), "a 5.00 %\nshare");
        assert_eq!(wrapped("immeasurably", 4, 2), "immeasurably");
    }
}
