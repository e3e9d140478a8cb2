//! The hit ratio that a cache would have with less and with more memory, by miniature simulations of its policy at several sizes.
//!
//! 1. References to sampled blocks go to a shadow of each size (`shadow.rs`): with fewer than `2 * least` blocks, the cache is simulated as a whole, and else a half,
//!    a quarter and so on of its blocks, so that the shadow of its own size has `least` to `2 * least - 1` of them.
//! 2. Misses count for the group of their block, one of sixteen by its hash. Each C references, C being the size of the cache, all counts are multiplied by 0.9, so
//!    about ten C of references count.
//! 3. The sampled blocks rarely have exactly their share of the references. All references are counted, so an estimate corrects the sampled misses by the excess of
//!    references, by as much as both go together in the groups (a regression estimator).
//! 4. The error has three parts: the differences between groups; the number of a cache's blocks that are in the sample; and the number of sampled references (binomial),
//!    because later references will be others. The last one remains if all blocks are simulated.
//! 5. The ratio of a size is known when its shadow has been full for [`FULL_FOR`] times its blocks in references. One that does not become full is known after
//!    [`NOT_FULL_FOR`] times as many: more memory would have no use.
//!
//! When the policy changes, its successor gets the blocks of each shadow, and counts begin anew; when the size of the cache changes, shadows are resized. One shadow is changed at each
//! sampled reference, so none takes long.

use crate::auto;
use crate::shadow::{Sample, Shadow};
use crate::spec::{Setup, Spec, SpecError};
use crate::{Access, Block};

/// The sizes, in quarters of the size of the cache.
pub const QUARTERS: [u32; 6] = [2, 3, 4, 6, 8, 16];

/// The position of the present size in [`QUARTERS`].
pub const PRESENT: usize = 2;

/// A ratio is known when its shadow was full for this many times its blocks in references,
pub const FULL_FOR: u64 = 4;

/// or when it is not full after this many times its blocks in references.
pub const NOT_FULL_FOR: u64 = 16;

/// No ratio is known with fewer sampled references than this.
pub const REFERENCES_LEAST: u64 = 400;

/// Older counts are multiplied by this after as many references as the cache has blocks.
const KEPT: f64 = 0.9;

/// Groups of blocks.
const GROUPS: usize = 16;

/// The 97.5th percentile of Student's distribution with `GROUPS - 2` degrees of freedom.
const DEVIATIONS: f64 = 2.145;

/// References to the blocks of a group.
#[derive(Clone, Copy, Default)]
struct Group {
    references: f64,
    /// By size.
    misses: [f64; QUARTERS.len()],
}

/// A policy at several sizes.
pub struct Curve {
    spec: Spec,
    /// Whether another policy has chosen this one, whose ghosts are limited then.
    chosen: bool,
    /// Blocks of the cache.
    capacity: u32,
    block_bytes: u32,
    sample: Sample,
    shadows: Vec<Shadow>,
    /// The next shadow to be changed, during a change of policy or size.
    changing: Option<usize>,
    /// References since the last sampled one.
    unnoted: u64,
    /// References since the last time that counts were reduced.
    fresh: u64,
    /// All references, older ones reduced.
    all: f64,
    groups: [Group; GROUPS],
    since: Since,
}

/// Counts since the beginning, or since the last change of policy or size.
#[derive(Clone, Copy, Default)]
struct Since {
    references: u64,
    sampled: u64,
    /// By size.
    hits: [u64; QUARTERS.len()],
    /// By size, `sampled` when the shadow became full.
    full: [Option<u64>; QUARTERS.len()],
}

/// The curve at one moment.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The simulated policy.
    pub policy: Spec,
    /// References since the curve began, or since the policy or the size changed.
    pub references: u64,
    /// Of these, references to sampled blocks.
    pub sampled: u64,
    /// References that the ratios stand for: older ones count less.
    pub weight: f64,
    /// By size.
    pub points: [Point; QUARTERS.len()],
}

/// One size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    /// Blocks.
    pub blocks: u64,
    /// Sampled references that hit, since the same time as [`Measured::sampled`].
    pub hits: u64,
    /// Whether enough was referenced for the ratios to mean something.
    pub known: bool,
    /// The share of references that would hit.
    pub hit_ratio: f64,
    /// Half the width of its 95 % confidence interval.
    pub error: f64,
    /// The hit ratio less that of the present size.
    pub gain: f64,
    /// Half the width of the confidence interval of the gain. It is smaller than the errors of both ratios, which miss by the same.
    pub gain_error: f64,
}

/// Blocks of a cache of `capacity` blocks at `quarters` of its size.
fn scaled(capacity: u32, quarters: u32) -> u64 {
    (u64::from(capacity) * u64::from(quarters) / 4).max(1)
}

impl Curve {
    /// For a cache of `capacity` blocks of `block_bytes` bytes under `spec`, which another policy has chosen or not. The shadow of its size has at least `least` blocks, if the cache has so
    /// many. An error if a parameter of the policy is a number of blocks.
    pub fn new(spec: &Spec, chosen: bool, capacity: u32, least: u32, block_bytes: u32) -> Result<Curve, SpecError> {
        spec.check_scales(spec.info())?;
        let sample = Sample::new(capacity, least, spec.info().spatial);
        let mut curve = Curve {
            spec: spec.clone(),
            chosen,
            capacity,
            block_bytes,
            sample,
            shadows: Vec::new(),
            changing: None,
            unnoted: 0,
            fresh: 0,
            all: 0.0,
            groups: [Group::default(); GROUPS],
            since: Since::default(),
        };
        for at in 0..QUARTERS.len() {
            let (size, ghosts) = curve.room(at);
            curve.shadows.push(Shadow::new(spec, size, ghosts, &curve.setup())?);
        }
        Ok(curve)
    }

    /// Counts a reference to `block`. Returns whether it is sampled, so that [`reference`](Curve::reference) has to follow.
    #[inline(always)]
    pub fn takes(&mut self, block: Block) -> bool {
        self.unnoted += 1;
        self.sample.takes(block)
    }

    /// The reference that was counted last.
    pub fn reference(&mut self, access: &Access) {
        self.change();
        let group = (self.sample.hash(access.block) >> 32) as usize % GROUPS;
        self.note_all();
        self.since.sampled += 1;
        let counts = &mut self.groups[group];
        counts.references += 1.0;
        for (at, shadow) in self.shadows.iter_mut().enumerate() {
            if shadow.reference(access) {
                self.since.hits[at] += 1;
            } else {
                counts.misses[at] += 1.0;
                if shadow.is_full() {
                    self.since.full[at].get_or_insert(self.since.sampled);
                }
            }
        }
    }

    /// Reduces older counts, and adds the references since the last sampled one.
    fn note_all(&mut self) {
        let references = std::mem::take(&mut self.unnoted);
        self.since.references += references;
        self.fresh += references;
        if self.fresh >= u64::from(self.capacity) {
            self.fresh = 0;
            self.all *= KEPT;
            for group in &mut self.groups {
                group.references *= KEPT;
                group.misses.iter_mut().for_each(|misses| *misses *= KEPT);
            }
        }
        // After the reduction, as the reference in the counts of its group.
        self.all += references as f64;
    }

    /// The policy that is simulated, whether another one chose it, and the blocks of the cache.
    pub fn of(&self) -> (&Spec, bool, u32) {
        (&self.spec, self.chosen, self.capacity)
    }

    /// From now on the cache has `capacity` blocks under `spec`. An error, after which nothing has changed, if a parameter of the policy is a number
    /// of blocks.
    pub fn fit(&mut self, spec: &Spec, chosen: bool, capacity: u32) -> Result<(), SpecError> {
        if self.of() == (spec, chosen, capacity) {
            return Ok(());
        }
        spec.check_scales(spec.info())?;
        let spatial = spec.info().spatial;
        let sample = match spatial == self.sample.extents {
            true => self.sample.resize(capacity),
            false => Sample::new(capacity, self.sample.least(), spatial),
        };
        (self.spec, self.chosen, self.capacity, self.sample) = (spec.clone(), chosen, capacity, sample);
        self.changing = Some(0);
        Ok(())
    }

    /// Continues a change by one shadow.
    fn change(&mut self) {
        let Some(at) = self.changing else { return };
        let ((size, ghosts), setup, sample) = (self.room(at), self.setup(), self.sample);
        let shadow = &mut self.shadows[at];
        shadow.retain(|block| sample.takes(block));
        shadow.resize(size, ghosts);
        if *shadow.spec() != self.spec {
            shadow.succeed(&self.spec, ghosts, &setup).expect("its parameters are shares");
        }
        self.changing = Some(at + 1).filter(|&next| next < self.shadows.len());
        if self.changing.is_none() {
            let full = std::array::from_fn(|at| self.shadows[at].is_full().then_some(0));
            self.since = Since { full, ..Since::default() };
            (self.unnoted, self.fresh, self.all) = (1, 0, 0.0);
            self.groups = [Group::default(); GROUPS];
        }
    }

    /// Blocks and the most ghosts of the shadow number `at`.
    fn room(&self, at: usize) -> (u32, u32) {
        let size = u32::try_from(scaled(self.capacity, QUARTERS[at])).unwrap_or(u32::MAX);
        let ghosts = if self.chosen { self.sample.of(auto::ghosts_most(size)) } else { u32::MAX };
        (self.sample.of(size).max(1), ghosts)
    }

    fn setup(&self) -> Setup {
        // The numbers are those of the shadow.
        Setup { capacity: 1, slots: 1, block_bytes: self.block_bytes, ghosts: 0, future: None, patterns: None }
    }

    /// The share of all blocks that is simulated.
    pub fn share(&self) -> f64 {
        1.0 / f64::from(1u32 << self.sample.bits)
    }

    /// Blocks and ghosts that all simulations together have room for.
    pub fn slots(&self) -> u64 {
        self.shadows.iter().map(|shadow| u64::from(shadow.slots())).sum()
    }

    /// The share of the references that `of` counts in a group, and the variance of that.
    fn estimate(&self, of: impl Fn(&Group) -> f64) -> (f64, f64) {
        let all = (self.all + self.unnoted as f64).max(1.0);
        let (share, count) = (self.share(), GROUPS as f64);
        let counts: Vec<(f64, f64)> = self.groups.iter().map(|group| (group.references, of(group))).collect();
        let references: f64 = counts.iter().map(|(references, _)| references).sum();
        let sum: f64 = counts.iter().map(|(_, of)| of).sum();
        if share == 1.0 {
            return (sum / all, 0.0);
        }
        let (mean, mean_of) = (references / count, sum / count);
        let together: f64 = counts.iter().map(|(references, of)| (references - mean) * (of - mean_of)).sum();
        let apart: f64 = counts.iter().map(|(references, _)| (references - mean).powi(2)).sum();
        let slope = if apart > 0.0 { together / apart } else { 0.0 };
        let expected = share * all;
        let ratio = (sum - slope * (references - expected)) / expected;
        let rest = |(references, of): &(f64, f64)| (of - mean_of - slope * (references - mean)).powi(2);
        let spread = counts.iter().map(rest).sum::<f64>() / (count - 2.0);
        (ratio, (1.0 - share) * count * spread / expected.powi(2))
    }

    /// The curve as it is known now.
    pub fn measured(&self) -> Measured {
        let sampled: f64 = self.groups.iter().map(|group| group.references).sum();
        let binomial = |ratio: f64| (ratio * (1.0 - ratio)).max(0.0) / sampled.max(1.0);
        let estimates: Vec<(f64, f64)> =
            (0..QUARTERS.len()).map(|at| self.estimate(|group| group.misses[at])).collect();
        let sizes = self.shadows.iter().map(|shadow| f64::from(shadow.capacity())).collect::<Vec<f64>>();
        let steps = estimates.windows(2).zip(sizes.windows(2));
        let slopes: Vec<f64> =
            steps.map(|(of, size)| (of[0].0 - of[1].0).abs() / (size[1] - size[0]).max(1.0)).collect();
        // Of the blocks of a cache, a share is in the sample, give or take a standard deviation. A curve can be steep on one side only.
        let of_size = |at: usize| {
            let slope = slopes[at.saturating_sub(1)].max(slopes[at.min(slopes.len() - 1)]);
            slope.powi(2) * sizes[at] * (1.0 - self.share())
        };
        let error = |variance: f64| DEVIATIONS * variance.sqrt();
        let points = std::array::from_fn(|at| {
            let (misses, of_blocks) = estimates[at];
            let hit_ratio = (1.0 - misses).clamp(0.0, 1.0);
            let (gain, of_gain) = self.estimate(|group| group.misses[PRESENT] - group.misses[at]);
            let of_sizes = if at == PRESENT { 0.0 } else { of_size(at) + of_size(PRESENT) };
            Point {
                blocks: scaled(self.capacity, QUARTERS[at]),
                hits: self.since.hits[at],
                known: self.is_known(at),
                hit_ratio,
                error: error(of_blocks + of_size(at) + binomial(hit_ratio)),
                gain,
                gain_error: error(of_gain + of_sizes + binomial(gain.abs().min(1.0))),
            }
        });
        Measured {
            policy: self.spec.clone(),
            references: self.since.references + self.unnoted,
            sampled: self.since.sampled,
            weight: self.all + self.unnoted as f64,
            points,
        }
    }

    fn is_known(&self, at: usize) -> bool {
        let Since { sampled, full, .. } = self.since;
        let size = u64::from(self.shadows[at].capacity());
        let long_enough = match full[at] {
            Some(since) => sampled - since >= FULL_FOR * size,
            None => sampled >= NOT_FULL_FOR * size,
        };
        self.changing.is_none() && sampled >= REFERENCES_LEAST && long_enough
    }

    /// Panics on a broken invariant (tests and fuzzing only).
    pub fn check(&self) {
        self.shadows.iter().for_each(Shadow::check);
    }
}
