//! Which candidate decides: scores that forget, a lead that a change needs, and a guard against changes that do not pay.
//!
//! 1. At each sampled reference, the score of each candidate that hit in its shadow increases by 1.
//! 2. The largest score is subtracted from all, so the leader has 0. No score falls below the *floor*: a candidate forgets what it lost beyond that.
//! 3. A leader whose score exceeds that of the candidate in charge by the *lead* takes charge. Scores stay as they are: resetting them lets policies
//!    whose hits come in bursts take turns, each change costing the cache's contents.
//! 4. Guard: if the cache hit less than the best shadow by three floors since the last check, changes do not pay, and the floor doubles. If it lost less than half
//!    a floor in 256 floors of references, the floor is halved again.
//!
//! **Invariant:** since the last change, no shadow has more hits than that of the candidate in charge by more than the floor and the lead, over any stretch of references.

/// The floor is at most this many times the size of a shadow.
const FLOOR_MOST: i64 = 16;

/// A change needs a lead of one in `LEAD` hits of the floor.
const LEAD: i64 = 4;
/// The floor is at least this, or the size of a shadow.
const FLOOR_LEAST: i64 = 128;

/// The guard loses patience at this many floors.
const PATIENCE: i64 = 3;

/// A check ends after this many floors of references.
const CHECK: i64 = 256;

/// Hits since the guard's last check.
#[derive(Clone, Default)]
struct Check {
    references: i64,
    /// In the cache.
    hits: i64,
    /// In each shadow.
    shadows: Vec<i64>,
}

/// The scores of candidates, and the one in charge.
pub(super) struct Choice {
    /// 0 for the leader, and not above for the others.
    scores: Vec<i64>,
    in_charge: usize,
    /// Blocks in a shadow.
    size: i64,
    floor: i64,
    check: Check,
}

impl Choice {
    /// Among `count` candidates with shadows of `size` blocks. The first is in charge.
    pub(super) fn new(count: usize, size: u32) -> Choice {
        let mut choice = Choice { scores: vec![0; count], in_charge: 0, size: 0, floor: 0, check: Check::default() };
        choice.resize(size);
        choice.begin_check();
        choice
    }

    /// The one in charge.
    pub(super) fn in_charge(&self) -> usize {
        self.in_charge
    }

    /// `candidate` takes charge.
    pub(super) fn put_in_charge(&mut self, candidate: usize) {
        self.in_charge = candidate;
    }

    /// Hits by which the leader must exceed the candidate in charge.
    fn lead(&self) -> i64 {
        self.floor / LEAD
    }

    /// The lowest floor.
    fn floor_least(&self) -> i64 {
        self.size.max(FLOOR_LEAST)
    }

    /// Hits by which a candidate can be behind at most.
    pub(super) fn floor(&self) -> i64 {
        self.floor
    }

    /// How far `candidate` is behind the leader.
    pub(super) fn behind(&self, candidate: usize) -> i64 {
        -self.scores[candidate]
    }

    /// Shadows have `size` blocks from now on.
    pub(super) fn resize(&mut self, size: u32) {
        self.size = size.into();
        let least = self.floor_least();
        self.floor = self.floor.clamp(least, FLOOR_MOST * least);
    }

    /// As `resize`, and of as many references, `after` are sampled where `before` were.
    pub(super) fn rescale(&mut self, size: u32, after: i64, before: i64) {
        for score in &mut self.scores {
            *score = *score * after / before;
        }
        self.floor = self.floor * after / before;
        self.resize(size);
        self.begin_check();
    }

    /// A sampled reference, with a bit in `hits` for each candidate whose shadow hit, and whether the cache did. Returns who should take charge.
    pub(super) fn note(&mut self, hits: u32, hit: bool) -> Option<usize> {
        for (at, score) in self.scores.iter_mut().enumerate() {
            *score += i64::from(hits >> at & 1);
        }
        let best = self.scores.iter().copied().max().expect("there are candidates");
        for score in &mut self.scores {
            *score = (*score - best).max(-self.floor);
        }
        self.guard(hits, hit);
        let due = self.behind(self.in_charge) >= self.lead();
        due.then(|| self.scores.iter().position(|&score| score == 0).expect("one of them leads"))
    }

    fn guard(&mut self, hits: u32, hit: bool) {
        let check = &mut self.check;
        check.references += 1;
        check.hits += i64::from(hit);
        for (at, count) in check.shadows.iter_mut().enumerate() {
            *count += i64::from(hits >> at & 1);
        }
        let best = check.shadows.iter().copied().max().unwrap_or(0);
        let (lost, ends) = (best - check.hits, check.references >= CHECK * self.floor);
        let least = self.floor_least();
        if lost > PATIENCE * self.floor {
            self.floor = (2 * self.floor).min(FLOOR_MOST * least);
        } else if ends && 2 * lost < self.floor {
            self.floor = (self.floor / 2).max(least);
        } else if !ends {
            return;
        }
        self.begin_check();
    }

    fn begin_check(&mut self) {
        self.check = Check { shadows: vec![0; self.scores.len()], ..Check::default() };
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// The rule once more, over all that happened, with none or one of these faults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        /// The score of each candidate that missed increases.
        Inverted,
        /// The scores begin anew with each change.
        Reset,
        /// No score has a floor.
        NoFloor,
        /// Every lead is enough.
        NoLead,
        /// The floor stays as it is.
        NoGuard,
    }

    const FAULTS: [Fault; 5] = [Fault::Inverted, Fault::Reset, Fault::NoFloor, Fault::NoLead, Fault::NoGuard];

    struct Plain {
        fault: Fault,
        scores: Vec<i64>,
        in_charge: usize,
        size: i64,
        floor: i64,
        /// Since the last check: what the cache hit, and what each shadow did.
        seen: Vec<(u32, bool)>,
    }

    impl Plain {
        fn new(count: usize, size: u32, fault: Fault) -> Plain {
            let size = i64::from(size);
            Plain { fault, scores: vec![0; count], in_charge: 0, size, floor: size.max(128), seen: Vec::new() }
        }

        fn note(&mut self, hits: u32, hit: bool) -> Option<usize> {
            let has = |hits: u32, at: usize| (hits >> at & 1 == 1) != (self.fault == Fault::Inverted);
            let raised: Vec<i64> =
                self.scores.iter().enumerate().map(|(at, score)| score + i64::from(has(hits, at))).collect();
            let best = raised.iter().max().copied().unwrap_or(0);
            let floor = if self.fault == Fault::NoFloor { i64::MAX } else { self.floor };
            self.scores = raised.iter().map(|score| (score - best).max(-floor)).collect();
            self.seen.push((hits, hit));
            let count = |of: &dyn Fn(&(u32, bool)) -> bool| self.seen.iter().filter(|seen| of(seen)).count() as i64;
            let best = (0..self.scores.len()).map(|at| count(&|seen| seen.0 >> at & 1 == 1)).max().unwrap_or(0);
            let lost = best - count(&|seen| seen.1);
            let (ends, least) = (self.seen.len() as i64 >= 256 * self.floor, self.size.max(128));
            if self.fault != Fault::NoGuard && (lost > 3 * self.floor || ends) {
                if lost > 3 * self.floor {
                    self.floor = (2 * self.floor).min(16 * least);
                } else if 2 * lost < self.floor {
                    self.floor = (self.floor / 2).max(least);
                }
                self.seen.clear();
            }
            let lead = if self.fault == Fault::NoLead { 1 } else { self.floor / 4 };
            let due = -self.scores[self.in_charge] >= lead;
            due.then(|| self.scores.iter().position(|&score| score == 0).expect("one leads"))
        }

        fn put_in_charge(&mut self, candidate: usize) {
            self.in_charge = candidate;
            if self.fault == Fault::Reset {
                self.scores.fill(0);
            }
        }
    }

    /// Hits of three shadows of `size` blocks that lead in turn, in bursts of up to `size` references, and of a cache that hits half as often.
    fn bursts(seed: u64, size: u64, count: usize) -> Vec<(u32, bool)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut all = Vec::new();
        while all.len() < count {
            let (leader, length) = (random.random_range(0..3), random.random_range(1..=2 * size));
            for _ in 0..length {
                let others = random.random_range(0..8_u32) & random.random_range(0..8_u32);
                all.push((1 << leader | others, random.random()));
            }
        }
        all
    }

    /// The candidate in charge after each reference; a change takes place at once.
    fn run(hits: &[(u32, bool)], mut note: impl FnMut(u32, bool) -> usize) -> Vec<usize> {
        hits.iter().map(|&(hits, hit)| note(hits, hit)).collect()
    }

    fn plain(hits: &[(u32, bool)], size: u32, fault: Fault) -> Vec<usize> {
        let mut rule = Plain::new(3, size, fault);
        run(hits, |hits, hit| {
            if let Some(next) = rule.note(hits, hit) {
                rule.put_in_charge(next);
            }
            rule.in_charge
        })
    }

    fn chosen(hits: &[(u32, bool)], size: u32) -> Vec<usize> {
        let mut rule = Choice::new(3, size);
        run(hits, |hits, hit| {
            if let Some(next) = rule.note(hits, hit) {
                rule.put_in_charge(next);
            }
            rule.in_charge()
        })
    }

    #[test]
    fn decides_as_the_plain_rule_and_unlike_every_faulty_one() {
        let mut caught = [false; FAULTS.len()];
        for seed in 0..6 {
            let size = [16, 100, 300][seed as usize % 3];
            let hits = bursts(seed, size, 6_000);
            let decided = chosen(&hits, size as u32);
            assert_eq!(decided, plain(&hits, size as u32, Fault::None), "seed {seed}");
            for (caught, fault) in caught.iter_mut().zip(FAULTS) {
                *caught |= decided != plain(&hits, size as u32, fault);
            }
        }
        assert_eq!(caught, [true; FAULTS.len()], "of {FAULTS:?}");
    }

    /// The bound that the module promises, at every reference.
    #[test]
    fn no_candidate_is_ahead_by_more_than_floor_and_lead() {
        for seed in 0..40 {
            let size = [8, 64, 512, 2_000][seed as usize % 4];
            let mut rule = Choice::new(3, size);
            // By how much each is ahead since the last change, over the best stretch that ends here.
            let mut ahead = [0_i64; 3];
            let mut floor = rule.floor();
            for (hits, hit) in bursts(seed, size.into(), 20_000) {
                if let Some(next) = rule.note(hits, hit) {
                    rule.put_in_charge(next);
                    ahead = [0; 3];
                    floor = rule.floor();
                    continue;
                }
                floor = floor.max(rule.floor());
                let own = i64::from(hits >> rule.in_charge() & 1);
                for (at, ahead) in ahead.iter_mut().enumerate() {
                    *ahead = (*ahead + i64::from(hits >> at & 1) - own).max(0);
                    assert!(*ahead <= floor + rule.lead(), "seed {seed}, size {size}: {ahead:?}");
                }
            }
        }
    }

    fn note(rule: &mut Choice, count: u32, hits: u32, hit: bool) {
        for _ in 0..count {
            assert_eq!(rule.note(hits, hit), None, "no lead is enough");
        }
    }

    #[test]
    fn the_guard_doubles_the_floor_and_halves_it_again() {
        let mut rule = Choice::new(2, 200);
        note(&mut rule, 3 * 200 + 1, 3, false);
        assert_eq!(rule.floor(), 400, "more than three floors were lost");
        note(&mut rule, 256 * 400, 3, true);
        assert_eq!(rule.floor(), 200, "nothing was lost for 256 floors");
        note(&mut rule, 100_000, 3, false);
        assert_eq!(rule.floor(), 16 * 200, "it has a limit");
    }

    #[test]
    fn scores_keep_their_proportion_when_the_sample_changes() {
        let mut rule = Choice::new(2, 400);
        note(&mut rule, 80, 2, true);
        rule.resize(300);
        rule.resize(500);
        assert_eq!((rule.behind(0), rule.floor()), (80, 500), "the same references are sampled");
        rule.rescale(1_000, 2, 1);
        assert_eq!((rule.behind(0), rule.floor()), (160, 1_000));
        rule.rescale(250, 1, 4);
        assert_eq!((rule.behind(0), rule.floor()), (40, 250));
    }
}
