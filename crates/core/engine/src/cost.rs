//! The cost of a read at the devices of a volume: a constant for the request, and an amount for each block.

/// Sums for a line through the times of recent reads by their number of blocks.
#[derive(Default)]
pub(crate) struct Cost {
    count: f64,
    blocks: f64,
    us: f64,
    blocks_squared: f64,
    product: f64,
}

/// Weight of a read relative to the next one.
const FADES: f64 = 63.0 / 64.0;

/// Least weight of all reads for an estimate.
const FEW: f64 = 8.0;

impl Cost {
    /// Adds a read of `blocks` that took `us`.
    pub(crate) fn note(&mut self, blocks: u32, us: u64) {
        let (blocks, us) = (f64::from(blocks), us as f64);
        self.count = self.count * FADES + 1.0;
        self.blocks = self.blocks * FADES + blocks;
        self.us = self.us * FADES + us;
        self.blocks_squared = self.blocks_squared * FADES + blocks * blocks;
        self.product = self.product * FADES + blocks * us;
    }

    /// Number of blocks whose transfer takes as long as a request; `None` if all reads had the same length, or took no time.
    pub(crate) fn request_blocks(&self) -> Option<u64> {
        let mean = self.blocks / self.count;
        let variance = self.blocks_squared / self.count - mean * mean;
        if self.count < FEW || variance < 1.0 || self.us == 0.0 {
            return None;
        }
        let each = (self.product / self.count - mean * self.us / self.count) / variance;
        let request = self.us / self.count - each * mean;
        // Long reads take no longer than short ones, for instance because short ones need a seek.
        Some(if each <= 0.0 { u64::MAX } else { (request / each).max(0.0) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_as_much_as_so_many_blocks() {
        let mut cost = Cost::default();
        for at in 0..40 {
            cost.note(1, 1000 + 20 + at % 3);
            assert_eq!(cost.request_blocks(), None, "reads of one length");
        }
        for at in 0..100u32 {
            let blocks = 1 + at * 7 % 40;
            cost.note(blocks, u64::from(1000 + 20 * blocks));
        }
        let blocks = cost.request_blocks().unwrap();
        assert!((48..=52).contains(&blocks), "{blocks}");
        // Another device.
        (0..1000u32).for_each(|at| cost.note(1 + at % 9, u64::from(80 + 10 * (1 + at % 9))));
        let blocks = cost.request_blocks().unwrap();
        assert!((7..=9).contains(&blocks), "{blocks}");
        (0..1000u32).for_each(|at| cost.note(1 + at % 9, u64::from(9000 - 100 * (at % 9))));
        assert_eq!(cost.request_blocks(), Some(u64::MAX), "seeks");
    }
}
