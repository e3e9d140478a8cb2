//! Statistics of earlier runs, which predict the length of a run. A *run* is a read and the reads that continue it, each the one before.

/// The share of recent cases in which a run continued.
#[derive(Clone, Copy, Debug)]
struct Share {
    continued: u16,
    cases: u16,
}

/// At this many cases, both counts are halved, so that older cases have less weight.
const CASES_MOST: u16 = 64;

impl Share {
    /// Without cases: one half.
    const EVEN: Share = Share { continued: 1, cases: 2 };
    /// Without cases: all.
    const SURE: Share = Share { continued: 1, cases: 1 };

    fn add_case(&mut self) {
        if self.cases == CASES_MOST {
            self.cases /= 2;
            self.continued /= 2;
        }
        self.cases += 1;
    }

    fn confirm(&mut self) {
        self.continued = (self.continued + 1).min(self.cases);
    }

    fn value(self) -> f64 {
        f64::from(self.continued) / f64::from(self.cases)
    }
}

/// Number of counters by reads; the last one counts all longer runs.
const READS: usize = 8;

/// Number of counters by length; the last one counts all longer runs.
const LENGTHS: usize = 16;

/// Least share of runs that continued for a window to begin, if a request costs the device no more than the window's transfer.
const BEGIN_LEAST: f64 = 0.5;

/// Least share of runs that reached the end of a window.
const LENGTH_LEAST: f64 = 0.5;

/// A run of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Reads after the first, at most `READS - 1`.
    reads: u8,
    /// Its first block.
    begin: u64,
}

/// Statistics of runs.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// By the number of reads after the first: the share of runs that continued.
    reads: [Share; READS],
    /// By length, as a power of two in blocks: the share of runs that reached twice that length.
    lengths: [Share; LENGTHS],
}

/// The counter of a run of `blocks` blocks.
fn power(blocks: u64) -> usize {
    (blocks.max(1).ilog2() as usize).min(LENGTHS - 1)
}

impl Runs {
    pub(crate) fn new() -> Runs {
        Runs { reads: [Share::EVEN; READS], lengths: [Share::SURE; LENGTHS] }
    }

    /// Starts a run with a read that continues no other.
    pub(crate) fn start(&mut self, blocks: &std::ops::Range<u64>) -> Run {
        self.reads[0].add_case();
        self.lengths[power(blocks.end - blocks.start)].add_case();
        Run { reads: 0, begin: blocks.start }
    }

    /// Extends `run`, which ended at `end`, by a read of `blocks`. A read of blocks before `end` changes nothing.
    pub(crate) fn extend(&mut self, run: &mut Run, end: u64, blocks: &std::ops::Range<u64>) {
        if blocks.end <= end {
            return;
        }
        let reads = usize::from(run.reads);
        self.reads[reads].confirm();
        run.reads = (reads + 1).min(READS - 1) as u8;
        self.reads[usize::from(run.reads)].add_case();
        for power in power(end - run.begin)..power(blocks.end - run.begin) {
            self.lengths[power].confirm();
            self.lengths[power + 1].add_case();
        }
    }

    /// Whether a window begins that fetches `ahead` blocks: enough runs of as many reads continued. If the transfer of more blocks than these takes
    /// the device as long as a request (`request_blocks`), it begins if the requests that it saves take longer than its transfers in vain.
    pub(crate) fn begins_window(&self, run: &Run, ahead: u64, request_blocks: Option<u64>) -> bool {
        let share = self.reads[usize::from(run.reads)].value();
        let saved = request_blocks.unwrap_or(0) as f64 * share;
        share >= BEGIN_LEAST || saved >= ahead as f64 * (1.0 - share)
    }

    /// Number of blocks that most runs of this length still had, up to a power of two of their length. `run` ends at `end`.
    pub(crate) fn remaining(&self, run: &Run, end: u64) -> u64 {
        let length = end - run.begin;
        let mut share = 1.0;
        for power in power(length)..LENGTHS - 1 {
            share *= self.lengths[power].value();
            if share < LENGTH_LEAST {
                // A run that continues beyond this length gets its next window there.
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

    /// Adds `count` runs, each of `reads` reads of one block.
    fn add(runs: &mut Runs, count: u64, reads: u64) {
        for first in (0..count).map(|at| at * 100_000) {
            let mut run = runs.start(&(first..first + 1));
            (first + 1..first + reads).for_each(|block| runs.extend(&mut run, block, &(block..block + 1)));
        }
    }

    #[test]
    fn random_reads_begin_no_window() {
        let mut runs = Runs::new();
        let run = runs.start(&(7..8));
        assert!(!runs.begins_window(&run, 3, None), "one read");
        for _ in 0..40 {
            add(&mut runs, 9, 1);
            // Neighbours by chance.
            add(&mut runs, 1, 2);
        }
        let mut run = runs.start(&(7..8));
        runs.extend(&mut run, 8, &(8..9));
        assert!(!runs.begins_window(&run, 3, None));
    }

    /// One in ten reads continues: a window begins where a request costs at least nine times its transfer.
    #[test]
    fn windows_begin_where_requests_are_dear() {
        let mut runs = Runs::new();
        for _ in 0..100 {
            add(&mut runs, 9, 1);
            add(&mut runs, 1, 2);
        }
        let run = runs.start(&(7..8));
        let begins = |ahead, request_blocks| runs.begins_window(&run, ahead, Some(request_blocks));
        assert!(!begins(3, 20) && begins(3, 40));
        assert!(!begins(1, 5) && begins(1, 15), "shorter ones earlier");
        assert!(!runs.begins_window(&run, 1, None), "not where this is unknown");
    }

    #[test]
    fn runs_are_followed_as_far_as_they_usually_go() {
        let mut runs = Runs::new();
        add(&mut runs, 50, 20);
        let mut run = runs.start(&(7..8));
        assert!(runs.begins_window(&run, 3, None), "the first read");
        assert_eq!(runs.remaining(&run, 8), 15, "the power of two before 20 blocks");
        for block in 8..28 {
            runs.extend(&mut run, block, &(block..block + 1));
        }
        assert_eq!(runs.remaining(&run, 28), 11, "and after");
        // They got longer.
        add(&mut runs, 60, 600);
        assert_eq!(runs.remaining(&run, 28), 491);
    }

    #[test]
    fn long_reads_are_no_long_runs() {
        let mut runs = Runs::new();
        for first in (0..60).map(|at| at * 100_000) {
            runs.start(&(first..first + 32));
        }
        let run = runs.start(&(5..37));
        assert!(!runs.begins_window(&run, 32, None));
        assert_eq!(runs.remaining(&run, 37), 32);
    }
}
