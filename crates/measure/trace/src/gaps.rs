//! Accesses that a recording is known to lack.

use crate::Note;

/// The accesses that a recording is known to lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Events that the recorder lost; `None` if their number is not known.
    pub lost: Option<u64>,
    /// Programs and kinds of calls that were not recorded, and why.
    pub unseen: Vec<String>,
}

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps { lost: Some(0), unseen: Vec::new() }
    }
}

const LOST_KEY: &str = "nigh.lost";
const UNSEEN_KEY: &str = "nigh.unseen";

/// The value of [`LOST_KEY`] if the number is not known.
const UNKNOWN: &str = "unknown";

/// The most that is read of a file's list of what was not recorded.
const UNSEEN_MOST: usize = 100;

impl Gaps {
    /// The gaps that these notes on a trace report.
    pub fn of(notes: &[Note]) -> Gaps {
        let mut gaps = Gaps::default();
        for note in notes {
            match note {
                Note::Lost { count } => gaps.lost = gaps.lost.zip(*count).map(|(one, other)| one.saturating_add(other)),
                Note::Unseen { what } => gaps.unseen.push(what.clone()),
                _ => {}
            }
        }
        gaps
    }

    /// Whether nothing is known to be missing.
    pub fn is_empty(&self) -> bool {
        *self == Gaps::default()
    }

    /// The share of lost events among these requests and themselves; `None` if it is not known.
    pub fn share(&self, requests: u64) -> Option<f64> {
        let lost = self.lost? as f64;
        Some(if lost > 0.0 { lost / (lost + requests as f64) } else { 0.0 })
    }

    /// The notes that report them.
    pub(crate) fn notes(&self) -> impl Iterator<Item = Note> {
        let lost = (self.lost != Some(0)).then_some(Note::Lost { count: self.lost });
        lost.into_iter().chain(self.unseen.iter().map(|what| Note::Unseen { what: what.clone() }))
    }

    /// Their form in the metadata of a file.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let lost = self.lost.map_or_else(|| UNKNOWN.to_owned(), |lost| lost.to_string());
        // A name may have any characters.
        let lines: Vec<String> = self.unseen.iter().map(|what| what.replace('\n', " ")).collect();
        let lost = (self.lost != Some(0)).then_some((LOST_KEY, lost));
        lost.into_iter().chain((!lines.is_empty()).then(|| (UNSEEN_KEY, lines.join("\n"))))
    }

    /// Reads what `pairs` wrote. A number that cannot be read is not known.
    pub(crate) fn read(value: impl Fn(&str) -> Option<String>) -> Gaps {
        let lost = value(LOST_KEY).map_or(Some(0), |lost| lost.parse().ok());
        let unseen = value(UNSEEN_KEY).unwrap_or_default();
        Gaps { lost, unseen: unseen.lines().take(UNSEEN_MOST).map(str::to_owned).collect() }
    }
}
