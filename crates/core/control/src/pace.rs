//! The size of a tenant's batches by what a device takes for a block (`Config::adapt_batch`), beyond the paper.
//!
//! In a batch, requests are sorted, so a scattered block takes less of the device's time, and a device with many queues works
//! on several at once; but a block that is needed soon waits for others (5.3, figures 6 and 7). Large batches are right if a
//! block takes less time in them, and single blocks everywhere else. Both are tried, and measured from the start of a batch to
//! its end, including the time that it waits for other requests at the device. In a host without a clock, blocks take no time, and batches are large.

/// Large batches of a trial, and their most blocks: a program that waits for the first one waits less than with the largest.
const BATCHES: u32 = 4;
const TRIED_MOST: u32 = 32;
/// Blocks of a trial of single ones.
const SINGLES: u32 = 64;
/// A block in a large batch must take less than this share of a single one's time: a smaller difference may be chance.
const GAIN: f64 = 0.97;
/// A trial ends after this many blocks if one takes so much longer.
const FEW: u32 = 16;
const MUCH: f64 = 1.5;
/// Blocks after a trial that changed something, until the next one; after others it is twice as many as before, but at most `STAY_MOST`.
const STAY: u32 = 1024;
const STAY_MOST: u32 = 1 << 14;
/// The same if single blocks were chosen, but large batches are better if the mean of single blocks is wrong by this many standard errors.
const SOON: u32 = 256;
const ERRORS: f64 = 2.0;
/// Blocks whose times are kept in full; with more, all count half.
const KEPT: f64 = 1024.0;

/// Time of the blocks. Earlier trials count less.
#[derive(Clone, Copy, Default)]
struct Cost {
    blocks: f64,
    time: f64,
    /// Of the squares of what each took.
    squares: f64,
}

impl Cost {
    fn add(&mut self, blocks: u32, time: u64) {
        if self.blocks > KEPT {
            self.fade();
        }
        let (blocks, time) = (f64::from(blocks), time as f64);
        self.blocks += blocks;
        self.time += time;
        self.squares += time * time / blocks;
    }

    fn fade(&mut self) {
        for sum in [&mut self.blocks, &mut self.time, &mut self.squares] {
            *sum /= 2.0;
        }
    }

    fn of_a_block(&self) -> f64 {
        self.time / self.blocks.max(1.0)
    }

    /// The standard error of that, if they were fetched one by one.
    fn error(&self) -> f64 {
        let blocks = self.blocks.max(1.0);
        ((self.squares / blocks - self.of_a_block().powi(2)).max(0.0) / blocks).sqrt()
    }
}

/// The state of one tenant on one device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Whether batches are large: at first, they have one block.
    is_large: bool,
    /// Whether this size is being tried, beside the one that was chosen.
    is_trial: bool,
    /// Blocks fetched since the last change.
    fetched: u32,
    /// Blocks until the next trial; 0 before the first.
    stay: u32,
    /// Of single blocks, and of large batches.
    costs: [Cost; 2],
    /// When the batch that is underway began, and its blocks.
    began: u64,
    blocks: u32,
}

impl Pace {
    /// The size of the next batch, at most `most`.
    pub(crate) fn batch(&self, most: u32) -> u32 {
        match (self.is_large, self.is_trial) {
            (false, _) => 1,
            (true, false) => most,
            (true, true) => tried(most),
        }
    }

    /// A block is being fetched at `now`, beside `underway` others.
    pub(crate) fn fetch(&mut self, underway: u32, now: u64) {
        // Others may be of a tenant that had this number before.
        if underway == 0 || self.blocks == 0 {
            (self.began, self.blocks) = (now, 0);
        }
        self.blocks += 1;
    }

    /// A block of the batch that is underway was not read.
    pub(crate) fn skip(&mut self) {
        self.blocks = self.blocks.saturating_sub(1);
    }

    /// All blocks of a batch, of at most `most`, are complete at `now`.
    pub(crate) fn over(&mut self, now: u64, most: u32) {
        if self.blocks == 0 {
            return;
        }
        // The first block of all: the head comes from elsewhere.
        if self.fetched > 0 || self.is_trial || self.stay > 0 {
            self.costs[usize::from(self.is_large)].add(self.blocks, now.saturating_sub(self.began));
        }
        self.fetched += self.blocks;
        let trial = if self.is_large { tried(most) * BATCHES } else { SINGLES };
        let span = if self.is_trial || self.stay == 0 { trial } else { self.stay };
        if self.fetched >= span || self.is_trial && self.fetched >= FEW && self.is_much_worse() {
            self.change();
        }
    }

    fn is_much_worse(&self) -> bool {
        let [tried, other] =
            [self.is_large, !self.is_large].map(|is_large| self.costs[usize::from(is_large)].of_a_block());
        tried > MUCH * other
    }

    /// Ends what was tried or has been chosen for a while.
    fn change(&mut self) {
        self.fetched = 0;
        if self.is_trial {
            let [single, large] = self.costs.map(|cost| cost.of_a_block());
            let chosen = !self.is_large;
            self.is_large = large < GAIN * single || single == 0.0;
            let is_doubtful = !self.is_large && large < GAIN * single + ERRORS * self.costs[0].error();
            let is_new = self.stay == 0 || self.is_large != chosen;
            self.stay = match (is_new, is_doubtful) {
                (true, true) => SOON,
                (true, false) => STAY,
                (false, true) => (2 * self.stay).min(STAY_MOST),
                (false, false) => (2 * self.stay).clamp(STAY, STAY_MOST),
            };
        } else {
            self.is_large = !self.is_large;
        }
        self.is_trial = !self.is_trial;
        self.costs[usize::from(self.is_large)].fade();
    }
}

/// The size of a large batch of a trial.
fn tried(most: u32) -> u32 {
    most.div_ceil(2).clamp(2, TRIED_MOST).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = 64;

    /// Fetches `blocks` blocks, of which one takes `large` in a batch of `MOST` and `single` otherwise; how many of them were single.
    fn fetch(pace: &mut Pace, blocks: u32, large: u64, single: u64) -> u32 {
        let (mut left, mut singles, mut now) = (blocks, 0, 0);
        while left > 0 {
            let batch = pace.batch(MOST).min(left);
            (0..batch).for_each(|at| pace.fetch(at, now));
            now += u64::from(batch) * if batch == 1 { single } else { large };
            pace.over(now, MOST);
            (left, singles) = (left - batch, singles + u32::from(batch == 1));
        }
        singles
    }

    /// As many blocks as both first trials have.
    const TRIALS: u32 = SINGLES + BATCHES * MOST / 2;

    #[test]
    fn single_blocks_are_tried_first_and_then_half_of_a_large_batch() {
        let mut pace = Pace::default();
        assert_eq!(fetch(&mut pace, SINGLES, 10, 10), SINGLES);
        assert_eq!(pace.batch(MOST), MOST / 2);
        assert_eq!(fetch(&mut pace, BATCHES * MOST / 2, 10, 10), 0);
        assert_eq!(pace.batch(MOST), 1);
    }

    #[test]
    fn batches_are_large_only_where_a_block_takes_less_time_in_them() {
        for (large, expected) in [(90, MOST), (96, MOST), (98, 1), (100, 1), (200, 1)] {
            let mut pace = Pace::default();
            fetch(&mut pace, TRIALS, large, 100);
            assert_eq!(pace.batch(MOST), expected, "{large}");
        }
    }

    #[test]
    fn the_other_size_is_tried_soon_where_single_blocks_differ_much() {
        for (others, singles) in [([100, 100], STAY), ([50, 150], SOON)] {
            let mut pace = Pace::default();
            for at in 0..SINGLES {
                fetch(&mut pace, 1, 0, others[at as usize % 2]);
            }
            fetch(&mut pace, BATCHES * MOST / 2, 99, 100);
            assert_eq!(fetch(&mut pace, singles, 99, 100), singles);
            assert_eq!(pace.batch(MOST), MOST / 2, "{others:?}");
        }
    }

    #[test]
    fn what_is_better_later_is_noticed() {
        let mut pace = Pace::default();
        fetch(&mut pace, TRIALS + STAY / 2, 100, 100);
        assert_eq!(pace.batch(MOST), 1);
        fetch(&mut pace, 4 * STAY, 50, 100);
        assert_eq!(pace.batch(MOST), MOST);
    }

    #[test]
    fn what_is_much_worse_is_not_tried_for_long() {
        let mut pace = Pace::default();
        fetch(&mut pace, TRIALS, 50, 100);
        assert_eq!(fetch(&mut pace, 2 * STAY, 50, 100), FEW);
    }

    #[test]
    fn trials_become_rare_where_they_change_nothing() {
        let mut pace = Pace::default();
        let (first, later) = (fetch(&mut pace, 100_000, 80, 100), fetch(&mut pace, 100_000, 80, 100));
        assert!((2 * SINGLES..=10 * SINGLES).contains(&first), "{first}");
        assert!((SINGLES..=7 * SINGLES).contains(&later), "{later}");
    }

    #[test]
    fn trials_become_rare_where_single_blocks_differ_much() {
        let mut pace = Pace::default();
        let singles: u32 = (0..100_000).map(|at| fetch(&mut pace, 1, 100, [50, 150][at as usize % 2])).sum();
        assert!(singles > 90_000, "{singles}");
    }

    #[test]
    fn trials_are_short_whatever_the_largest_batch() {
        for most in [2, 3, 16, 4096] {
            assert!((2..=TRIED_MOST).contains(&tried(most)), "{most}");
        }
        assert_eq!(tried(1), 1);
    }

    #[test]
    fn blocks_that_were_not_read_are_not_measured() {
        let mut pace = Pace::default();
        for now in 0..10 * SINGLES {
            pace.fetch(0, now.into());
            pace.skip();
            pace.over(now.into(), MOST);
        }
        assert_eq!((pace.batch(MOST), pace.fetched), (1, 0));
    }

    #[test]
    fn without_a_clock_batches_are_large() {
        let mut pace = Pace::default();
        fetch(&mut pace, 10_000, 0, 0);
        assert_eq!(pace.batch(MOST), MOST);
    }
}
