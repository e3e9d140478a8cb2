//! Changes of a part that no object has yet.

use std::collections::BTreeMap;
use std::ops::Range;

/// Memory of an entry beside its bytes.
const OVERHEAD: usize = 96;

#[derive(Clone, Debug)]
struct Entry {
    end: u32,
    /// None for zeros.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    fn cost(&self) -> usize {
        OVERHEAD + self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// Of each byte of a part, the last change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// By their beginning in the part. They do not overlap.
    entries: BTreeMap<u32, Entry>,
    /// Memory that they take, in bytes.
    memory: usize,
}

impl Changes {
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// How many bytes were changed.
    pub(crate) fn length(&self) -> u64 {
        self.entries.iter().map(|(start, entry)| u64::from(entry.end - start)).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// # Panics
    /// If there are no bytes.
    pub(crate) fn write(&mut self, start: u32, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        let end = start + bytes.len() as u32;
        self.cut(&(start..end));
        self.put(start, Entry { end, bytes: Some(bytes.to_vec()) });
    }

    /// # Panics
    /// If the range is empty.
    pub(crate) fn zero(&mut self, range: Range<u32>) {
        assert!(!range.is_empty());
        self.cut(&range);
        self.put(range.start, Entry { end: range.end, bytes: None });
    }

    /// Adds `later` to these changes.
    pub(crate) fn append(&mut self, later: Changes) {
        for (start, entry) in later.entries {
            self.cut(&(start..entry.end));
            self.put(start, entry);
        }
    }

    /// Copies what `range` was changed to into `out`, which has its length, and returns the gaps, where nothing was changed.
    pub(crate) fn read(&self, range: &Range<u32>, out: &mut [u8]) -> Vec<Range<u32>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let first = self.entries.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        for (&start, entry) in self.entries.range(first..range.end) {
            let (from, to) = (start.max(range.start), entry.end.min(range.end));
            if from >= to {
                continue;
            }
            if at < from {
                gaps.push(at..from);
            }
            let out = &mut out[(from - range.start) as usize..(to - range.start) as usize];
            match &entry.bytes {
                Some(bytes) => out.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]),
                None => out.fill(0),
            }
            at = to;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Whether `range` was changed as a whole.
    pub(crate) fn covers(&self, range: &Range<u32>) -> bool {
        let mut at = range.start;
        for (&start, entry) in self.entries.range(..range.end) {
            if entry.end <= at {
                continue;
            }
            if start > at {
                return false;
            }
            at = entry.end;
        }
        at >= range.end
    }

    fn put(&mut self, start: u32, entry: Entry) {
        self.memory += entry.cost();
        self.entries.insert(start, entry);
    }

    /// Forgets the changes of `range`.
    fn cut(&mut self, range: &Range<u32>) {
        while let Some((&start, _)) =
            self.entries.range(..range.end).next_back().filter(|(_, entry)| entry.end > range.start)
        {
            let entry = self.entries.remove(&start).expect("it was found");
            self.memory -= entry.cost();
            let part = |from: u32, to: u32| {
                let bytes =
                    entry.bytes.as_ref().map(|bytes| bytes[(from - start) as usize..(to - start) as usize].to_vec());
                Entry { end: to, bytes }
            };
            if entry.end > range.end {
                self.put(range.end, part(range.end, entry.end));
            }
            if start < range.start {
                self.put(start, part(start, range.start));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes against an array.
    #[test]
    fn the_last_change_of_each_byte_counts() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model = [None; 64];
            let (mut changes, mut later) = (Changes::default(), Changes::default());
            for step in 1..40 {
                let start = random.u32(0..64);
                let end = random.u32(start + 1..=64);
                let zero = random.bool();
                let value = if zero { 0 } else { step };
                model[start as usize..end as usize].fill(Some(value));
                let target = if step < 20 { &mut changes } else { &mut later };
                match zero {
                    true => target.zero(start..end),
                    false => target.write(start, &vec![value; (end - start) as usize]),
                }
            }
            changes.append(later);
            let cost: usize = changes.entries.values().map(Entry::cost).sum();
            assert_eq!(cost, changes.memory(), "seed {seed}");
            for _ in 0..20 {
                let start = random.u32(0..64);
                let range = start..random.u32(start + 1..=64);
                let mut out = vec![255; range.len()];
                let gaps = changes.read(&range, &mut out);
                let seen: Vec<Option<u8>> = (range.clone())
                    .zip(&out)
                    .map(|(at, byte)| (!gaps.iter().any(|gap| gap.contains(&at))).then_some(*byte))
                    .collect();
                assert_eq!(seen, model[start as usize..range.end as usize], "seed {seed}");
                assert_eq!(gaps.is_empty(), changes.covers(&range), "seed {seed}");
            }
        }
    }
}
