//! Which parts of a file are known to be holes, so that they are not read.

use std::collections::BTreeMap;
use std::ops::Range;

/// Extents that are remembered; when there are more, all are forgotten and looked up again as needed.
const EXTENTS_MAX: usize = 1 << 14;

/// The known extents of a file: data or hole.
///
/// **Invariant:** a range that was written is not remembered as a hole once its write is complete. Data that became a
/// hole may stay noted as data: it reads as zeros either way.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// Disjoint extents by their start: end, and whether it is a hole. Neighbours differ.
    known: BTreeMap<u64, (u64, bool)>,
}

impl Allocation {
    /// Whether all of `range` is a hole; the first offset of which that is not known, if it depends on that.
    pub(crate) fn is_hole(&self, range: Range<u64>) -> Result<bool, u64> {
        let mut at = range.start;
        while at < range.end {
            let known = self.known.range(..=at).next_back().filter(|(_, (end, _))| *end > at);
            let (_, &(end, hole)) = known.ok_or(at)?;
            if !hole {
                return Ok(false);
            }
            at = end;
        }
        Ok(true)
    }

    /// `range` is a hole, or data.
    pub(crate) fn learn(&mut self, mut range: Range<u64>, hole: bool) {
        if let Some((_, &(end, known))) = self.known.range(..=range.start).next_back()
            && end >= range.end
            && known == hole
        {
            return;
        }
        self.forget(range.clone());
        if self.known.len() >= EXTENTS_MAX {
            self.known.clear();
        }
        if let Some((&start, &(end, known))) = self.known.range(..range.start).next_back()
            && end == range.start
            && known == hole
        {
            self.known.remove(&start);
            range.start = start;
        }
        if let Some(&(end, known)) = self.known.get(&range.end)
            && known == hole
        {
            self.known.remove(&range.end);
            range.end = end;
        }
        self.known.insert(range.start, (range.end, hole));
    }

    /// Nothing is known of `range`.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        while let Some((&start, &(end, hole))) =
            self.known.range(..range.end).next_back().filter(|(_, (end, _))| *end > range.start)
        {
            self.known.remove(&start);
            if end > range.end {
                self.known.insert(range.end, (end, hole));
            }
            if start < range.start {
                self.known.insert(start, (range.start, hole));
            }
        }
    }

    /// Nothing is known.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes against one flag per byte.
    #[test]
    fn extents_agree_with_a_map_of_bytes() {
        const SIZE: u64 = 256;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut allocation = Allocation::default();
            let mut bytes = vec![None; SIZE as usize];
            for _ in 0..200 {
                let start = random.u64(0..SIZE);
                let range = start..random.u64(start + 1..=SIZE);
                let within = range.start as usize..range.end as usize;
                match random.u32(0..4) {
                    0 => {
                        allocation.forget(range);
                        bytes[within].fill(None);
                    }
                    1 | 2 => {
                        let hole = random.bool();
                        allocation.learn(range, hole);
                        bytes[within].fill(Some(hole));
                    }
                    _ => {
                        let answer = allocation.is_hole(range);
                        let first = bytes[within].iter().find(|byte| **byte != Some(true));
                        match first {
                            None => assert_eq!(answer, Ok(true)),
                            Some(Some(_)) => assert_eq!(answer, Ok(false)),
                            Some(None) => assert_eq!(bytes[answer.expect_err("not known") as usize], None),
                        }
                    }
                }
                let edges = allocation.known.iter().zip(allocation.known.iter().skip(1));
                for ((_, &(end, hole)), (&next, &(_, other))) in edges {
                    assert!(end < next || end == next && hole != other, "seed {seed}: neighbours are merged");
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut allocation = Allocation::default();
        for at in 0..3 * EXTENTS_MAX as u64 {
            allocation.learn(2 * at..2 * at + 1, true);
            assert!(allocation.known.len() <= EXTENTS_MAX);
        }
    }
}
