//! Counters of a scheme of levels.

use std::ops::AddAssign;

use crate::levels::{LEVELS_MAX, Level, Retrieve};

/// Hits and moves. Blocks, not bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// References.
    pub references: u64,
    /// References to blocks that a level had, by level.
    pub hits: [u64; LEVELS_MAX],
    /// Blocks that went from a level to the next lower one, by the upper level. The last level demotes nothing.
    pub demotions: [u64; LEVELS_MAX],
    /// Of the hits below the first level and of the misses: those to blocks that had passed through the client's transit buffer
    /// a moment ago. They are not counted as hits of the first level.
    pub transit: u64,
    /// Requests for blocks that the client assumed to be at the server, which had replaced them: the notice was still due.
    pub stale: u64,
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        let Counts { references, hits, demotions, transit, stale } = other;
        self.references += references;
        self.hits.iter_mut().zip(hits).for_each(|(own, other)| *own += other);
        self.demotions.iter_mut().zip(demotions).for_each(|(own, other)| *own += other);
        self.transit += transit;
        self.stale += stale;
    }
}

impl Counts {
    /// Difference to `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let Counts { references, hits, demotions, transit, stale } = before;
        Counts {
            references: self.references - references,
            hits: std::array::from_fn(|level| self.hits[level] - hits[level]),
            demotions: std::array::from_fn(|level| self.demotions[level] - demotions[level]),
            transit: self.transit - transit,
            stale: self.stale - stale,
        }
    }

    pub(crate) fn count(&mut self, retrieve: Retrieve) {
        self.references += 1;
        if let Some(from) = retrieve.from {
            self.hits[usize::from(from)] += 1;
        }
    }

    pub(crate) fn demoted(&mut self, from: Level) {
        self.demotions[usize::from(from)] += 1;
    }

    /// References to blocks that no level had.
    pub fn misses(&self) -> u64 {
        self.references - self.hits.iter().sum::<u64>()
    }

    /// The mean access time of section 5.4.1. `times` are the time of a hit at each level, then that of a miss. A demotion
    /// costs as much as the hit times of its two levels differ. Not a number without references.
    ///
    /// # Panics
    /// If `times` are more than levels and a miss.
    pub fn mean_time(&self, times: &[f64]) -> f64 {
        let (miss, levels) = times.split_last().expect("a miss takes time");
        assert!(levels.len() <= LEVELS_MAX, "a time for each level");
        let hits: f64 = self.hits.iter().zip(levels).map(|(&hits, time)| hits as f64 * time).sum();
        let steps = levels.windows(2).map(|pair| pair[1] - pair[0]);
        let demotions: f64 = self.demotions.iter().zip(steps).map(|(&count, cost)| count as f64 * cost).sum();
        (hits + demotions + self.misses() as f64 * miss) / self.references as f64
    }
}
