//! Which references write.

/// Which references write. If none does, it takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// A bit for each reference up to the last that writes.
    bits: Vec<u64>,
    references: usize,
}

impl Writes {
    /// The next `count` references write, or read.
    #[inline]
    pub(crate) fn add(&mut self, write: bool, count: usize) {
        if write && count > 0 {
            self.bits.resize((self.references + count).div_ceil(64), 0);
            for at in self.references..self.references + count {
                self.bits[at / 64] |= 1 << (at % 64);
            }
        }
        self.references += count;
    }

    /// Whether reference number `at` writes.
    #[inline(always)]
    pub fn of(&self, at: usize) -> bool {
        self.bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// How many references write, of those from number `first` on.
    pub fn count(&self, first: usize) -> u64 {
        let whole: u64 = self.bits.iter().skip(first.div_ceil(64)).map(|word| u64::from(word.count_ones())).sum();
        let part = match first % 64 {
            0 => 0,
            bits => self.bits.get(first / 64).map_or(0, |word| u64::from((word >> bits).count_ones())),
        };
        whole + part
    }

    /// Those of the references at `places`, in ascending order.
    pub(crate) fn select(&self, places: impl Iterator<Item = u32>) -> Writes {
        let mut selected = Writes::default();
        if !self.bits.is_empty() {
            places.for_each(|at| selected.add(self.of(at as usize), 1));
        }
        selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_and_counted() {
        let mut writes = Writes::default();
        writes.add(false, 70);
        assert!(writes.bits.is_empty() && !writes.of(3) && !writes.of(1000));
        writes.add(true, 60);
        writes.add(false, 10);
        writes.add(true, 1);
        assert_eq!(
            [69, 70, 129, 130, 139, 140, 141].map(|at| writes.of(at)),
            [false, true, true, false, false, true, false]
        );
        assert_eq!([0, 64, 70, 71, 128, 130, 141].map(|first| writes.count(first)), [61, 61, 61, 60, 3, 1, 0]);
        assert_eq!(writes.select([0, 70, 139, 140].into_iter()).count(0), 2);
    }
}
