//! The arithmetic of shares: how much of a limit one volume may use, and which part of the recent writes is its own.

/// Of a shared resource, a volume may use this many times the rest that is then left to the others.
const LENT: u64 = 7;
/// Of a limit, this part is each volume's own, however much the others use.
const OWN: u32 = 64;
/// After this time, what was written before counts half.
const PERIOD_US: u64 = 1_000_000;

/// The most that all volumes together may use of a resource of which one may use `limit`, besides what is each one's own.
fn shared(limit: u32) -> u64 {
    u64::from(limit) + u64::from(limit).div_ceil(LENT)
}

/// The most that this many volumes together may use of a resource of which one may use `limit`. Each has one at least, however small
/// the limit is.
pub(crate) fn most(limit: u32, volumes: usize) -> u64 {
    shared(limit) + u64::from(limit / OWN).max(1) * volumes as u64
}

/// Whether a volume that has `own` of the `all` that are in use may use `count` more. A volume that is alone may use
/// `limit`, and each one a 64th of that whatever the others use; beyond that, all together use at most a seventh more.
pub(crate) fn fits(own: u32, all: u32, count: u32, limit: u32) -> bool {
    let wanted = u64::from(own) + u64::from(count);
    let left = shared(limit).checked_sub(u64::from(all) + u64::from(count));
    wanted <= u64::from(limit / OWN) || left.is_some_and(|left| wanted <= LENT * left)
}

/// Blocks that were written recently: those of a period count half as much as those of the next.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recent {
    period: u64,
    blocks: u64,
}

impl Recent {
    fn at(self, period: u64) -> u64 {
        self.blocks.checked_shr((period - self.period).min(64) as u32).unwrap_or(0)
    }

    pub(crate) fn add(&mut self, now: u64, blocks: u64) {
        let period = now / PERIOD_US;
        *self = Recent { period, blocks: self.at(period) + blocks };
    }

    /// The part of `most` that is in proportion to the part of `all`.
    pub(crate) fn part_of(self, all: Recent, most: u32) -> u32 {
        let part = self.at(all.period).saturating_mul(most.into()).checked_div(all.blocks);
        part.map_or(0, |part| part.min(most.into()) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_alone_has_the_limit_and_others_find_room() {
        for limit in 0..200 {
            let alone = (0..).take_while(|&own| fits(own, own, 1, limit)).count() as u32;
            assert_eq!(alone, limit);
            // Others begin, one after the other; each takes what it can.
            let mut all = alone;
            for others in 1..10 {
                let more = (0..).take_while(|&own| fits(own, all + own, 1, limit)).count() as u32;
                assert!(more >= limit / 64, "{more} of {limit}");
                assert!(others > 2 || more > 0 || limit < 64, "{more} of {limit}");
                all += more;
                assert!(u64::from(all) <= most(limit, others));
                assert!(u64::from(all) <= shared(limit) + u64::from(limit / OWN) * others as u64);
            }
        }
    }

    #[test]
    fn parts_follow_what_was_written() {
        let (mut slow, mut fast, mut all) = (Recent::default(), Recent::default(), Recent::default());
        assert_eq!(slow.part_of(all, 100), 0);
        let mut write = |of: &mut Recent, now, blocks| {
            of.add(now, blocks);
            all.add(now, blocks);
            all
        };
        let sum = write(&mut slow, 0, 1000);
        assert_eq!(slow.part_of(sum, 100), 100);
        let sum = (1..20).map(|second| write(&mut fast, second * PERIOD_US, 1000)).last().unwrap();
        assert_eq!((slow.part_of(sum, 100), fast.part_of(sum, 100)), (0, 100));
        let sum = write(&mut slow, 1 << 60, 1);
        assert_eq!((slow.part_of(sum, 100), fast.part_of(sum, 100)), (100, 0));
    }
}
