//! Events that a recorder lost and reports in its listing.

use crate::Note;
use crate::text::number;

/// The losses reported so far.
#[derive(Default)]
pub(crate) struct Losses {
    count: u64,
    /// Whether some were reported without a number.
    is_open: bool,
}

impl Losses {
    /// Adds a loss; `None` for one without a number.
    pub(crate) fn add(&mut self, count: Option<u64>) {
        self.count = self.count.saturating_add(count.unwrap_or(0));
        self.is_open |= count.is_none();
    }

    /// Whether `line` reports a loss, which is added.
    pub(crate) fn take(&mut self, line: &[u8]) -> bool {
        let loss = reported(line);
        if let Some(count) = loss {
            self.add(count);
        }
        loss.is_some()
    }

    pub(crate) fn note(&self) -> Option<Note> {
        match self {
            Losses { is_open: true, .. } => Some(Note::Lost { count: None }),
            Losses { count: 0, .. } => None,
            Losses { count, .. } => Some(Note::Lost { count: Some(*count) }),
        }
    }
}

/// The number in a line that reports a loss: `Lost 5 events`, `Possibly lost 5 samples`, `5 events lost`, `CPU:2 [LOST 5 EVENTS]`,
/// `CPU 2: [5 EVENTS DROPPED]`, `PERF_RECORD_LOST lost 5` or `entries-in-buffer/entries-written: 95/100`. Chunks have any number of
/// events: `Processed 100 events and lost 2 chunks!`.
fn reported(line: &[u8]) -> Option<Option<u64>> {
    /// No such line is longer.
    const WORDS_MOST: usize = 16;
    let words = line.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<Vec<u8>> = words.take(WORDS_MOST).map(<[u8]>::to_ascii_lowercase).collect();
    let word = |at: usize| words.get(at).map_or(&b""[..], |word| word);
    let is_event = |at: usize| matches!(word(at), b"event" | b"events" | b"sample" | b"samples");
    let is_record = words.windows(2).any(|pair| pair == [&b"record"[..], b"lost"]);
    let is_total = word(0) == b"processed";
    let overwritten = |at: usize| number(word(at + 2))?.checked_sub(number(word(at + 1))?).filter(|&count| count > 0);
    (0..words.len()).find_map(|at| match word(at) {
        // Also a share, such as 0.50 %.
        b"lost" if is_total => [at + 1, at + 2].iter().any(|&at| number(word(at)).unwrap_or(0) > 0).then_some(None),
        b"written" if word(0) == b"entries" => overwritten(at).map(Some),
        b"lost" if is_event(at + 1) => Some(None),
        b"lost" if is_event(at + 2) || is_record => number(word(at + 1)).map(Some),
        b"lost" if at >= 2 && is_event(at - 1) => number(word(at - 2)).map(Some),
        b"dropped" if at >= 2 && is_event(at - 1) => number(word(at - 2)).map(Some),
        _ => None,
    })
}
