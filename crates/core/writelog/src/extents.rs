//! The newest change of each range of the disk, as far as it is not home.
//!
//! 1. `insert` puts a range in place of what was there.
//! 2. `remove` takes the parts of a range away that belong to an epoch.

use std::collections::BTreeMap;
use std::ops::Range;

/// The source of a range's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the log, from this byte on: positions of blocks, in bytes.
    Log(u64),
    /// Zeros, and whether they keep their storage.
    Zeroes {
        /// As in [`Kind::Zeroes`](crate::Kind::Zeroes).
        keep: bool,
    },
    /// Any bytes: it was discarded when the log had nothing of it, so the disk's own bytes are read.
    Discarded,
}

impl Place {
    fn after(self, bytes: u64) -> Place {
        match self {
            Place::Log(at) => Place::Log(at + bytes),
            other => other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    place: Place,
    epoch: u64,
}

/// Extents by their start: they do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// An extent that `at` is inside of becomes two.
    fn split(&mut self, at: u64) {
        if let Some((&start, extent)) = self.0.range_mut(..at).next_back()
            && extent.end > at
        {
            let later = Extent { place: extent.place.after(at - start), ..*extent };
            extent.end = at;
            self.0.insert(at, later);
        }
    }

    pub(crate) fn insert(&mut self, range: Range<u64>, place: Place, epoch: u64) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, _)) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
        }
        self.0.insert(range.start, Extent { end: range.end, place, epoch });
    }

    /// Removes the parts of `range` that belong to `epoch`.
    pub(crate) fn remove(&mut self, range: Range<u64>, epoch: u64) {
        self.split(range.start);
        self.split(range.end);
        let of_epoch: Vec<u64> =
            self.0.range(range).filter(|(_, extent)| extent.epoch == epoch).map(|(start, _)| *start).collect();
        of_epoch.iter().for_each(|start| _ = self.0.remove(start));
    }

    /// The parts of `range` that are here, in order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Place)> {
        let first =
            self.0.range(..range.start).next_back().filter(|(_, extent)| extent.end > range.start && !range.is_empty());
        first.into_iter().chain(self.0.range(range.clone())).map(move |(&start, extent)| {
            let from = start.max(range.start);
            (from..extent.end.min(range.end), extent.place.after(from - start))
        })
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Range<u64>, Place)> {
        self.0.iter().map(|(&start, extent)| (start..extent.end, extent.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes, against an array of bytes.
    #[test]
    fn extents_are_what_an_array_is() {
        const SIZE: u64 = 64;
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut extents = Extents::default();
            let mut array: Vec<Option<(u64, u64)>> = vec![None; SIZE as usize];
            for step in 0..200u64 {
                let start = random.u64(..SIZE);
                let end = random.u64(start..=SIZE);
                let epoch = random.u64(..4);
                if random.bool() {
                    extents.insert(start..end, Place::Log(step * 1000), epoch);
                    (start..end).for_each(|at| array[at as usize] = Some((step * 1000 + at - start, epoch)));
                } else {
                    extents.remove(start..end, epoch);
                    let of_epoch = |value: &Option<(u64, u64)>| value.is_some_and(|value| value.1 == epoch);
                    array[start as usize..end as usize]
                        .iter_mut()
                        .filter(|value| of_epoch(value))
                        .for_each(|value| *value = None);
                }
                let from = random.u64(..SIZE);
                let to = random.u64(from..=SIZE);
                let mut found = vec![None; SIZE as usize];
                for (range, place) in extents.within(from..to) {
                    assert!(!range.is_empty());
                    let Place::Log(at) = place else { panic!("nothing else was inserted") };
                    range.clone().for_each(|byte| found[byte as usize] = Some(at + byte - range.start));
                }
                for at in from..to {
                    assert_eq!(
                        found[at as usize],
                        array[at as usize].map(|value| value.0),
                        "seed {seed}, step {step}, {at}"
                    );
                }
            }
        }
    }
}
