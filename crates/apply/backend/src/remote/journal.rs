//! Changes that an NBD server has acknowledged but not flushed: what it may lose when it dies.

use std::collections::BTreeMap;
use std::ops::Range;

/// Memory of an entry beside its data, in bytes.
const OVERHEAD: usize = 128;

/// A change of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was written: these bytes.
    Data(Vec<u8>),
    /// It reads as zeros.
    Zeroes {
        /// It stays allocated.
        keep: bool,
    },
    /// It was discarded.
    Discard,
}

#[derive(Debug)]
struct Entry {
    end: u64,
    change: Change,
    /// Later changes have higher numbers.
    number: u64,
}

impl Entry {
    fn cost(&self) -> usize {
        OVERHEAD + if let Change::Data(bytes) = &self.change { bytes.len() } else { 0 }
    }
}

/// The changes: only the last one of each byte, so that they can be repeated in any order.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By first byte. They do not overlap.
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
    /// The number of the server's bytes that the changes affect.
    covered: u64,
    made: u64,
}

impl Journal {
    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes the server may lose.
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// `change` of `range` was acknowledged.
    pub(crate) fn add(&mut self, range: Range<u64>, change: Change) {
        self.cut(&range);
        let number = self.made;
        self.made += 1;
        self.put(range.start, Entry { end: range.end, change, number });
    }

    /// The changes that a flush sent at this moment covers, for [`Journal::flushed`].
    pub(crate) fn mark(&self) -> u64 {
        self.made
    }

    /// Everything before the `mark` is on stable storage.
    pub(crate) fn flushed(&mut self, mark: u64) {
        let (bytes, covered) = (&mut self.bytes, &mut self.covered);
        self.entries.retain(|start, entry| {
            let stays = entry.number >= mark;
            if !stays {
                *bytes -= entry.cost();
                *covered -= entry.end - start;
            }
            stays
        });
    }

    /// Beginnings of the changes, in order.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        self.entries.keys().copied()
    }

    /// The change that begins at `start`, with its range.
    pub(crate) fn get(&self, start: u64) -> Option<(Range<u64>, &Change)> {
        let entry = self.entries.get(&start)?;
        Some((start..entry.end, &entry.change))
    }

    fn put(&mut self, start: u64, entry: Entry) {
        self.bytes += entry.cost();
        self.covered += entry.end - start;
        self.entries.insert(start, entry);
    }

    /// Forgets what was done to `range`.
    fn cut(&mut self, range: &Range<u64>) {
        while let Some((&start, _)) =
            self.entries.range(..range.end).next_back().filter(|(_, entry)| entry.end > range.start)
        {
            let entry = self.entries.remove(&start).expect("it was found");
            self.bytes -= entry.cost();
            self.covered -= entry.end - start;
            let Entry { end, change, number } = entry;
            let part = |from: u64, to: u64| {
                let change = match &change {
                    Change::Data(bytes) => Change::Data(bytes[(from - start) as usize..(to - start) as usize].to_vec()),
                    other => other.clone(),
                };
                Entry { end: to, change, number }
            };
            let (head, tail) = (start < range.start, end > range.end);
            let head = head.then(|| part(start, range.start));
            let tail = tail.then(|| part(range.end, end));
            if let Some(tail) = tail {
                self.put(range.end, tail);
            }
            if let Some(head) = head {
                self.put(start, head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes and flushes against one number per byte: what remains is the last change of each byte since the flush.
    #[test]
    fn the_last_change_of_each_byte_is_kept() {
        const SIZE: u64 = 128;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut journal = Journal::default();
            let mut bytes: Vec<Option<(u64, u8)>> = vec![None; SIZE as usize];
            let mut mark = 0;
            for step in 0..100u8 {
                let start = random.u64(0..SIZE);
                let range = start..random.u64(start + 1..=SIZE);
                match random.u32(0..8) {
                    0 => mark = journal.mark(),
                    1 => {
                        journal.flushed(mark);
                        bytes.iter_mut().for_each(|byte| *byte = byte.filter(|(number, _)| *number >= mark));
                    }
                    kind => {
                        let number = journal.mark();
                        let (change, byte) = match kind {
                            2 => (Change::Zeroes { keep: false }, 0),
                            _ => (Change::Data(vec![step + 1; (range.end - range.start) as usize]), step + 1),
                        };
                        bytes[range.start as usize..range.end as usize].fill(Some((number, byte)));
                        journal.add(range, change);
                    }
                }
                let mut kept = vec![None; SIZE as usize];
                let mut cost = 0;
                for start in journal.starts() {
                    let (range, change) = journal.get(start).unwrap();
                    let byte = |at: usize| if let Change::Data(bytes) = change { bytes[at] } else { 0 };
                    cost += OVERHEAD + if let Change::Data(bytes) = change { bytes.len() } else { 0 };
                    for at in range.clone() {
                        assert!(kept[at as usize].replace(byte((at - start) as usize)).is_none(), "seed {seed}");
                    }
                }
                assert_eq!(
                    kept,
                    bytes.iter().map(|byte| byte.map(|(_, byte)| byte)).collect::<Vec<_>>(),
                    "seed {seed}"
                );
                assert_eq!(cost, journal.bytes(), "seed {seed}");
                assert_eq!(journal.is_empty(), bytes.iter().all(Option::is_none), "seed {seed}");
            }
        }
    }
}
