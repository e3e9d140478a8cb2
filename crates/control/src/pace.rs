//! The size of a tenant's batches by what it waits for (`Config::adapt_batch`), beyond the paper.
//!
//! In a batch, requests are sorted, so a scattered block takes less of the device's time; but a block that is needed
//! soon waits for others (5.3, figures 6 and 7). Which effect is larger depends on what the device takes for a block,
//! mostly to position itself, and on what the program computes between two. Neither is measured here, but what follows from both:
//! whether the program waits. If it computes longer than the device takes, prefetches get further and further ahead, it waits for none
//! of them, and a batch of one delays nothing. If the device takes longer, the program has to wait at least once for each batch, and
//! only less positioning makes it faster.

/// Large batches that are used between two decisions.
const BATCHES: u32 = 2;
/// Single prefetched blocks that are used between two decisions.
const SINGLES: u32 = 32;
/// The share of them, as a divisor, for which a program waits if the device is the bottleneck.
const MANY: u32 = 4;

/// The state of one tenant.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    used: u32,
    waited: u32,
    /// Whether batches have one block: at first, they are large.
    is_ahead: bool,
}

impl Pace {
    /// The size of the next batch, at most `most`.
    pub(crate) fn batch(&self, most: u32) -> u32 {
        if self.is_ahead { 1 } else { most }
    }

    /// The tenant is about to wait for a block that is being prefetched.
    pub(crate) fn waits(&mut self) {
        self.waited += 1;
    }

    /// The tenant, whose batches have at most `most` blocks, used a prefetched one.
    pub(crate) fn used(&mut self, most: u32) {
        self.used += 1;
        let span = if self.is_ahead { SINGLES } else { most.saturating_mul(BATCHES) };
        if self.used >= span {
            self.is_ahead = if self.is_ahead { self.waited * MANY < self.used } else { self.waited == 0 };
            (self.used, self.waited) = (0, 0);
        }
    }

    /// The tenant missed a block that its list predicted: it would have waited for its prefetch, too.
    pub(crate) fn missed(&mut self, most: u32) {
        self.waits();
        self.used(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = 64;

    /// The size of batches after the next decision, if the tenant waits for so many blocks until then.
    fn after(pace: &mut Pace, waits: u32) -> u32 {
        let span = if pace.batch(MOST) == 1 { SINGLES } else { BATCHES * MOST };
        for at in 0..span {
            if at < waits {
                pace.waits();
            }
            pace.used(MOST);
        }
        pace.batch(MOST)
    }

    #[test]
    fn who_waits_for_a_quarter_gets_large_batches_until_it_waits_for_none() {
        let mut pace = Pace::default();
        assert_eq!(pace.batch(MOST), MOST);
        let sizes = [1, 0, 7, 8, 1, 0].map(|waits| after(&mut pace, waits));
        assert_eq!(sizes, [MOST, 1, 1, MOST, MOST, 1]);
    }

    #[test]
    fn a_miss_is_a_wait() {
        let mut pace = Pace::default();
        after(&mut pace, 0);
        (0..SINGLES).for_each(|_| pace.missed(MOST));
        assert_eq!(pace.batch(MOST), MOST);
    }
}
