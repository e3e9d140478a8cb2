//! The size of a tenant's batches by what it waits for (`Config::adapt_batch`), beyond the paper.
//!
//! In a batch, requests are sorted, so a scattered block takes less of the device's time; but a block that is needed
//! soon waits for others (5.3, figures 6 and 7). Which effect is larger depends on what the device takes for a block,
//! mostly to position itself, and on what the program computes between two. Their ratio shows in how many prefetched
//! blocks the program has to wait for. If the program computes longer than the device takes, it waits for none, and a
//! batch of one delays nothing. If the device takes longer, it waits for most of them, and only less positioning makes
//! it faster.

/// Prefetched blocks that are used between two decisions.
const SPAN: u32 = 32;
/// The share of them, as a divisor, for which a program waits if the device is the bottleneck.
const MANY: u32 = 4;
/// Large batches that are used between two decisions: if the device is the bottleneck, a program waits at least once for each.
const BATCHES: u32 = 2;

/// The state of one tenant. Batches begin with single blocks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pace {
    used: u32,
    waited: u32,
    is_behind: bool,
}

impl Pace {
    /// The size of the next batch, at most `most`.
    pub(crate) fn batch(&self, most: u32) -> u32 {
        if self.is_behind { most } else { 1 }
    }

    /// The tenant is about to wait for a block that is being prefetched.
    pub(crate) fn waits(&mut self) {
        self.waited += 1;
    }

    /// The tenant used a prefetched block; its batches have at most `most`.
    pub(crate) fn used(&mut self, most: u32) {
        self.used += 1;
        let span = if self.is_behind { most.saturating_mul(BATCHES).max(SPAN) } else { SPAN };
        if self.used >= span {
            self.is_behind = if self.is_behind { self.waited > 0 } else { self.waited * MANY >= SPAN };
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

    fn after(pace: &mut Pace, waits: u32) -> u32 {
        for at in 0..SPAN {
            if at < waits {
                pace.waits();
            }
            pace.used();
        }
        pace.batch(64)
    }

    #[test]
    fn who_waits_for_a_quarter_gets_large_batches_until_it_waits_for_hardly_any() {
        let mut pace = Pace::default();
        assert_eq!(pace.batch(64), 1);
        let sizes = [7, 8, 2, 1, 7].map(|waits| after(&mut pace, waits));
        assert_eq!(sizes, [1, 64, 64, 1, 1]);
    }

    #[test]
    fn a_miss_is_a_wait() {
        let mut pace = Pace::default();
        (0..SPAN).for_each(|_| pace.missed());
        assert_eq!(pace.batch(16), 16);
    }
}
