//! What earlier runs of reads tell about the next blocks of one. A *run* is a read and those that continue it, each the one before.

/// How many of the last cases came true.
#[derive(Clone, Copy, Debug)]
struct Share {
    came: u16,
    cases: u16,
}

/// Older cases count half.
const CASES_MOST: u16 = 64;

impl Share {
    /// So far, as many came true as not.
    const EVEN: Share = Share { came: 1, cases: 2 };
    /// So far, all came true.
    const SURE: Share = Share { came: 1, cases: 1 };

    fn case(&mut self) {
        if self.cases == CASES_MOST {
            self.cases /= 2;
            self.came /= 2;
        }
        self.cases += 1;
    }

    fn came_true(&mut self) {
        self.came = (self.came + 1).min(self.cases);
    }

    fn value(self) -> f64 {
        f64::from(self.came) / f64::from(self.cases)
    }
}

/// Runs of this many reads are as long as any.
const READS: usize = 8;

/// Runs of two to the power of this many blocks are as long as any.
const LENGTHS: usize = 16;

/// A window is begun if the run goes on in so many of the cases.
const BEGIN_LEAST: f64 = 0.5;

/// A window is as long as runs are in so many of the cases.
const LENGTH_LEAST: f64 = 0.5;

/// A run of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Reads after the first, up to `READS`.
    reads: u8,
    pub(crate) begin: u64,
}

/// What runs did.
#[derive(Clone, Debug)]
pub(crate) struct Experience {
    /// Of the runs with so many reads after the first, those that went on.
    reads: [Share; READS],
    /// Of the runs of at least so many blocks, as a power of two, those that got twice as long.
    lengths: [Share; LENGTHS],
}

/// The power of two of the longest of the counted lengths that `blocks` reach.
fn power(blocks: u64) -> usize {
    (blocks.max(1).ilog2() as usize).min(LENGTHS - 1)
}

impl Experience {
    pub(crate) fn new() -> Experience {
        Experience { reads: [Share::EVEN; READS], lengths: [Share::SURE; LENGTHS] }
    }

    /// A read that continues none.
    pub(crate) fn begin(&mut self, blocks: &std::ops::Range<u64>) -> Run {
        self.reads[0].case();
        self.lengths[power(blocks.end - blocks.start)].case();
        Run { reads: 0, begin: blocks.start }
    }

    /// The run, which ended at `end` so far, goes on with `blocks`, unless these are blocks that it had.
    pub(crate) fn go_on(&mut self, run: &mut Run, end: u64, blocks: &std::ops::Range<u64>) {
        if blocks.end <= end {
            return;
        }
        let reads = usize::from(run.reads);
        self.reads[reads].came_true();
        run.reads = (reads + 1).min(READS - 1) as u8;
        self.reads[usize::from(run.reads)].case();
        for power in power(end - run.begin)..power(blocks.end - run.begin) {
            self.lengths[power].came_true();
            self.lengths[power + 1].case();
        }
    }

    /// Whether a window is worth it.
    pub(crate) fn begins(&self, run: &Run) -> bool {
        self.reads[usize::from(run.reads)].value() >= BEGIN_LEAST
    }

    /// How many blocks more the run has in most cases, if it has got to `end`: up to a power of two.
    pub(crate) fn likely(&self, run: &Run, end: u64) -> u64 {
        let length = end - run.begin;
        let mut share = 1.0;
        for power in power(length)..LENGTHS - 1 {
            share *= self.lengths[power].value();
            if share < LENGTH_LEAST {
                // In the cases where it goes on from there, the next window does.
                let end = 1 << power;
                return if length < end { end - length } else { 2 * end - length };
            }
        }
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs of one client, each of `reads` reads of one block.
    fn runs(experience: &mut Experience, count: u64, reads: u64) {
        for first in (0..count).map(|at| at * 100_000) {
            let mut run = experience.begin(&(first..first + 1));
            (first + 1..first + reads).for_each(|block| experience.go_on(&mut run, block, &(block..block + 1)));
        }
    }

    #[test]
    fn random_reads_begin_no_window() {
        let mut experience = Experience::new();
        let run = experience.begin(&(7..8));
        assert!(!experience.begins(&run), "one read");
        for _ in 0..40 {
            runs(&mut experience, 9, 1);
            // Neighbours by chance.
            runs(&mut experience, 1, 2);
        }
        let mut run = experience.begin(&(7..8));
        experience.go_on(&mut run, 8, &(8..9));
        assert!(!experience.begins(&run));
    }

    #[test]
    fn runs_are_followed_as_far_as_they_usually_go() {
        let mut experience = Experience::new();
        runs(&mut experience, 50, 20);
        let mut run = experience.begin(&(7..8));
        assert!(experience.begins(&run), "the first read");
        assert_eq!(experience.likely(&run, 8), 15, "the power of two before 20 blocks");
        for block in 8..28 {
            experience.go_on(&mut run, block, &(block..block + 1));
        }
        assert_eq!(experience.likely(&run, 28), 11, "and after");
        // They got longer.
        runs(&mut experience, 60, 600);
        assert_eq!(experience.likely(&run, 28), 491);
    }

    #[test]
    fn long_reads_are_no_long_runs() {
        let mut experience = Experience::new();
        for first in (0..60).map(|at| at * 100_000) {
            experience.begin(&(first..first + 32));
        }
        let run = experience.begin(&(5..37));
        assert!(!experience.begins(&run));
        assert_eq!(experience.likely(&run, 37), 32);
    }
}
