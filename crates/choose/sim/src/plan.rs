//! Verdicts on changes of a cache: hit ratios at a few sizes in, a verdict out. Pure: the caller replays.

/// The hit ratio of one policy at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Size of the cache in blocks.
    pub blocks: u64,
    /// Hits per reference, 0 to 1.
    pub hit_ratio: f64,
    /// Half the width of its 95 % confidence interval; 0 where the whole trace was replayed.
    pub error: f64,
}

/// A cell, and what it consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The hit ratio over the whole trace.
    pub cell: Cell,
    /// The hit ratios in the first and the second half of the references, of the same replay.
    pub halves: [f64; 2],
}

impl Measured {
    /// From the hit ratio over the whole trace, and that of its last `share` (0 to 1, exclusive).
    pub fn new(cell: Cell, last: f64, share: f64) -> Measured {
        let first = (cell.hit_ratio - share * last) / (1.0 - share);
        Measured { cell, halves: [first, last] }
    }
}

/// How much may be concluded from a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// The trace does not show it.
    Low,
    /// The direction is right, the amount may be twice or half as large.
    Medium,
    /// Direction and amount are right for this workload.
    High,
}

/// Above this share of lost requests, the trace shows nothing.
const LOST_MOST: f64 = 0.05;

impl Certainty {
    /// The certainty where requests are missing: `lost` is their share (0 to 1), `None` if it is not known, and `is_partial` whether some
    /// programs or calls were not recorded at all.
    pub fn with_gaps(self, lost: Option<f64>, is_partial: bool) -> Certainty {
        match lost {
            Some(lost) if lost <= 0.0 && !is_partial => self,
            Some(lost) if lost <= LOST_MOST => self.min(Certainty::Medium),
            _ => Certainty::Low,
        }
    }
}

/// Gains below this do not matter.
pub const GAIN_LEAST: f64 = 0.01;

/// Effect of a change of the cache on its hit ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The hit ratio after the change minus that before it.
    pub ratio: f64,
    /// The same in each half of the trace.
    pub halves: [f64; 2],
    /// How wrong `ratio` may be because blocks were sampled: the errors of both hit ratios together.
    pub error: f64,
}

impl Gain {
    /// From `before` to `after`.
    pub fn between(before: &Measured, after: &Measured) -> Gain {
        let half = |at: usize| after.halves[at] - before.halves[at];
        Gain {
            ratio: after.cell.hit_ratio - before.cell.hit_ratio,
            halves: [half(0), half(1)],
            error: before.cell.error + after.cell.error,
        }
    }

    /// Half the difference between the halves of the trace, and the error of the sample.
    pub fn uncertainty(&self) -> f64 {
        (self.halves[0] - self.halves[1]).abs() / 2.0 + self.error
    }

    /// Certainty of the effect if the larger of both caches is full after `filled` of the references (0 to 1), if ever.
    pub fn certainty(&self, filled: Option<f64>) -> Certainty {
        let scale = self.ratio.abs().max(GAIN_LEAST);
        match self.uncertainty() {
            _ if filled.is_none_or(|filled| filled > 0.5) => Certainty::Low,
            uncertainty if uncertainty >= scale => Certainty::Low,
            uncertainty if uncertainty >= scale / 2.0 => Certainty::Medium,
            _ => Certainty::High,
        }
    }
}

/// Hit ratios for judging an addition of memory and a change of policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The present policy with the present memory.
    pub present: Measured,
    /// The present policy with the addition.
    pub grown: Measured,
    /// The best other policy with the present memory.
    pub changed: Option<Measured>,
    /// The same with the addition.
    pub both: Option<Measured>,
    /// Distinct blocks of the trace.
    pub distinct: u64,
}

/// Advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Record a longer trace: all blocks of this one fit in the present memory.
    Record,
    /// Change the policy; an addition of memory instead would not gain more.
    Change,
    /// Add the memory; another policy in addition gains nothing that matters.
    Grow,
    /// Add the memory and change the policy: the change matters in addition to the memory, or only both together matter.
    Both,
    /// Nothing: neither gains anything that matters, nor do both together.
    Keep,
}

impl Evidence {
    /// Gain of the addition under the present policy.
    pub fn addition(&self) -> Gain {
        Gain::between(&self.present, &self.grown)
    }

    /// Gain of the best other policy with the present memory.
    pub fn change(&self) -> Option<Gain> {
        self.changed.map(|changed| Gain::between(&self.present, &changed))
    }

    /// The advice, by [`GAIN_LEAST`].
    pub fn advice(&self) -> Advice {
        if self.present.cell.blocks >= self.distinct {
            return Advice::Record;
        }
        let matters = |gain: f64| gain >= GAIN_LEAST;
        let addition = self.addition().ratio;
        let change = self.change().map_or(0.0, |gain| gain.ratio);
        if matters(change) && change >= addition {
            return Advice::Change;
        }
        let both = self.both.map_or(0.0, |both| both.cell.hit_ratio - self.grown.cell.hit_ratio);
        match (matters(addition), matters(both)) {
            (true, true) => Advice::Both,
            (true, false) => Advice::Grow,
            (false, _) if matters(addition + both) => Advice::Both,
            (false, _) => Advice::Keep,
        }
    }
}

/// Sizes that [`smallest`] asks for at a time; one more if its range begins at 0.
const SIZES_AT_A_TIME: u32 = 8;
/// [`smallest`] is content with a size that exceeds one below the goal by this share.
const PRECISION: f64 = 1.0 / 64.0;

/// The smallest size that `reaches` the goal, where `range` is a size that does not (or 0) and one that does. `reaches` is
/// called with several ascending sizes at a time. If hit ratios do not grow with size, a smaller one may reach it, too; the
/// one returned always does.
pub fn smallest<E>(range: [u64; 2], mut reaches: impl FnMut(&[u64]) -> Result<Vec<bool>, E>) -> Result<u64, E> {
    let [mut low, mut high] = range;
    while high - low > ((high as f64 * PRECISION) as u64).max(1) {
        let (from, to) = ((low.max(1) as f64).ln(), (high as f64).ln());
        let step = |at: u32| (from + (to - from) * f64::from(at) / f64::from(SIZES_AT_A_TIME + 1)).exp().round() as u64;
        let mut sizes: Vec<u64> = (0..=SIZES_AT_A_TIME).map(step).filter(|&size| size > low && size < high).collect();
        sizes.dedup();
        if sizes.is_empty() {
            sizes.push(low.midpoint(high));
        }
        let answers = reaches(&sizes)?;
        let first = answers.iter().position(|&reached| reached);
        (low, high) = match first {
            Some(0) => (low, sizes[0]),
            Some(at) => (sizes[at - 1], sizes[at]),
            None => (sizes[sizes.len() - 1], high),
        };
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(hit_ratio: f64, halves: [f64; 2]) -> Measured {
        Measured { cell: Cell { blocks: 100, hit_ratio, error: 0.0 }, halves }
    }

    fn evidence(grown: f64, changed: f64, both: f64) -> Evidence {
        let of = |ratio| measured(ratio, [ratio; 2]);
        Evidence {
            present: of(0.5),
            grown: of(grown),
            changed: Some(of(changed)),
            both: Some(of(both)),
            distinct: 1_000,
        }
    }

    #[test]
    fn the_smallest_size_is_found_in_few_questions() {
        for goal in [1, 2, 3, 77, 1_000, 123_456, 999_999_999, 1_000_000_000] {
            let mut asked = 0;
            let found: Result<u64, ()> = smallest([0, 1_000_000_000], |sizes| {
                assert!(sizes.is_sorted() && sizes.len() <= 9);
                asked += 1;
                Ok(sizes.iter().map(|&size| size >= goal).collect())
            });
            let found = found.unwrap();
            assert!(found >= goal && found - goal <= (goal as f64 * 0.017) as u64, "{goal}: {found}");
            assert!(asked <= 9, "{goal}: {asked}");
        }
        assert_eq!(smallest([0, 9], |_| Err("stopped")), Err("stopped"));
    }

    #[test]
    fn halves_are_those_of_one_replay() {
        let cell = Cell { blocks: 7, hit_ratio: 0.4, error: 0.0 };
        let Measured { halves: [first, last], .. } = Measured::new(cell, 0.6, 0.5);
        assert!((first - 0.2).abs() < 1e-12 && last == 0.6);
        let Measured { halves: [first, _], .. } = Measured::new(cell, 0.6, 0.25);
        assert!((0.75 * first + 0.25 * 0.6 - 0.4).abs() < 1e-12);
    }

    #[test]
    fn halves_that_disagree_make_a_gain_uncertain() {
        let before = measured(0.50, [0.50, 0.50]);
        let gain = |halves: [f64; 2]| Gain::between(&before, &measured(0.55, halves));
        assert_eq!(gain([0.55, 0.55]).certainty(Some(0.1)), Certainty::High);
        assert_eq!(gain([0.52, 0.58]).certainty(Some(0.1)), Certainty::Medium);
        assert_eq!(gain([0.49, 0.61]).certainty(Some(0.1)), Certainty::Low);
        // A cache that is not full for most of the trace shows little.
        assert_eq!(gain([0.55, 0.55]).certainty(Some(0.6)), Certainty::Low);
        assert_eq!(gain([0.55, 0.55]).certainty(None), Certainty::Low);
        // That nothing is gained can be certain.
        assert_eq!(Gain::between(&before, &before).certainty(Some(0.1)), Certainty::High);
        let sampled = Measured { cell: Cell { error: 0.02, ..before.cell }, ..before };
        let gain = Gain::between(&sampled, &measured(0.55, [0.55, 0.55]));
        assert!((gain.uncertainty() - 0.02).abs() < 1e-12);
        assert_eq!(gain.certainty(Some(0.1)), Certainty::High);
    }

    #[test]
    fn advice_is_what_gains_most() {
        assert_eq!(evidence(0.55, 0.60, 0.62).advice(), Advice::Change);
        assert_eq!(evidence(0.60, 0.505, 0.602).advice(), Advice::Grow);
        assert_eq!(evidence(0.60, 0.55, 0.65).advice(), Advice::Both);
        assert_eq!(evidence(0.505, 0.505, 0.508).advice(), Advice::Keep);
        assert_eq!(evidence(0.505, 0.502, 0.55).advice(), Advice::Both);
        assert_eq!(Evidence { distinct: 100, ..evidence(0.55, 0.60, 0.62) }.advice(), Advice::Record);
        assert_eq!(Evidence { changed: None, both: None, ..evidence(0.55, 0.0, 0.0) }.advice(), Advice::Grow);
    }
}
