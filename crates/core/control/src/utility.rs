//! Memory by marginal gain: the share of the cache that each tenant has under [`Allocation::Utility`](crate::Allocation::Utility).
//!
//! 1. A tenant's references, except prefetches, go to a curve of its policy around an equal part of the cache ([`nigh_policy::curve`]).
//! 2. Every M references, M being the blocks of the cache, its memory is divided anew ([`divide`]): each tenant gets its floor, and the rest goes where a block saves
//!    most misses, by the upper hulls of the curves, up to each ceiling. Floors are half an equal part unless they are set, and ceilings two equal parts.
//! 3. Shares change by M/16 in all at a time, and only if the curves promise to save [`GAIN_LEAST`] of the references.
//! 4. A tenant keeps its share while its curve is not known, and an equal part before.
//!
//! Hulls promise what a curve with a cliff does not have between two corners. Only LRU has such cliffs, so a tenant under LRU gets corners of its hull only (UCP's
//! look-ahead and Talus deal with the same).

use nigh_policy::curve::Curve;
use nigh_policy::{Access, Spec};

/// Sampled references between two checks of a tenant's policy.
const LOOK: u32 = 64;
/// Sampled blocks of an equal part, at least.
const SAMPLED_LEAST: u32 = 256;
/// Tenants with curves, at most: further ones keep equal parts.
const CURVES_MOST: usize = 64;
/// An equal part of fewer blocks has no curve.
const BLOCKS_LEAST: u32 = 16;
/// A division has to save this share of the references.
const GAIN_LEAST: f64 = 0.002;
/// Of the cache, this part changes its tenant at a time.
const MOVED_MOST: u32 = 16;
/// Each M references, those before count as this much.
const KEPT: f64 = 0.9;

/// The shares, and the data that decides them.
pub(crate) struct Utility {
    /// By owner.
    tenants: Vec<Tenant>,
    /// References since memory was divided.
    since: u32,
    curves: usize,
    block_bytes: u32,
}

#[derive(Default)]
struct Tenant {
    curve: Option<Box<Curve>>,
    /// Sampled references until the next check of its policy.
    until: u32,
    /// Its references, older ones reduced.
    references: f64,
    /// Blocks; `None` for an equal part.
    share: Option<u32>,
}

/// The limits of a tenant's share: its own, or the defaults.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) floor: Option<u32>,
    pub(crate) ceiling: Option<u32>,
}

/// A tenant to whom memory is given.
#[derive(Clone, Debug, Default)]
struct Want {
    floor: u32,
    ceiling: u32,
    /// Its present share.
    share: u32,
    /// The upper hull of its curve: blocks, and the references that they save. Empty if it is not known.
    hull: Vec<(f64, f64)>,
    /// It gets a corner of the hull, and nothing between two.
    corners: bool,
}

impl Utility {
    pub(crate) fn new(block_bytes: u32) -> Utility {
        Utility { tenants: Vec::new(), since: 0, curves: 0, block_bytes }
    }

    /// Blocks that `owner` may have, if it is not an equal part.
    pub(crate) fn share(&self, owner: u16) -> Option<u32> {
        self.tenants.get(owner as usize)?.share
    }

    /// Counts a reference of `owner`, whose policy is `present`, in a cache of `capacity` blocks of which `equal` are an equal part. Returns whether memory is to be divided.
    pub(crate) fn reference(
        &mut self,
        owner: u16,
        access: &Access,
        (capacity, equal): (u32, u32),
        present: impl FnOnce() -> Option<(Spec, bool)>,
    ) -> bool {
        if self.tenants.len() <= owner as usize {
            self.tenants.resize_with(owner as usize + 1, Tenant::default);
        }
        self.since += 1;
        let tenant = &mut self.tenants[owner as usize];
        tenant.references += 1.0;
        let is_sampled = tenant.curve.as_mut().is_none_or(|curve| curve.takes(access.block));
        if is_sampled && tenant.until == 0 {
            tenant.until = LOOK;
            self.look(owner, equal, present());
        }
        let tenant = &mut self.tenants[owner as usize];
        if is_sampled {
            tenant.until -= 1;
            if let Some(curve) = &mut tenant.curve {
                curve.reference(access);
            }
        }
        self.since >= capacity
    }

    /// Makes the curve of `owner` that of its policy at an equal part.
    fn look(&mut self, owner: u16, equal: u32, present: Option<(Spec, bool)>) {
        let room = self.curves < CURVES_MOST;
        let tenant = &mut self.tenants[owner as usize];
        let had = tenant.curve.is_some();
        let present = present.filter(|_| equal >= BLOCKS_LEAST);
        let curve = tenant.curve.take();
        tenant.curve = present.and_then(|(spec, chosen)| match curve {
            // Policies with parameters in blocks have no curve.
            Some(mut curve) => curve.fit(&spec, chosen, equal).is_ok().then_some(curve),
            None if room => Curve::new(&spec, chosen, equal, SAMPLED_LEAST, self.block_bytes).ok().map(Box::new),
            None => None,
        });
        self.curves = self.curves + usize::from(tenant.curve.is_some()) - usize::from(had);
    }

    /// `owner` has left.
    pub(crate) fn forget(&mut self, owner: u16) {
        if let Some(tenant) = self.tenants.get_mut(owner as usize) {
            self.curves -= usize::from(tenant.curve.is_some());
            *tenant = Tenant::default();
        }
    }

    /// Adapts the shares after the `present` tenants or the size of the cache changed: shares are scaled in proportion, and new tenants get an equal part.
    pub(crate) fn settle(&mut self, present: &[(u16, Bounds)], capacity: u32) {
        if self.tenants.iter().all(|tenant| tenant.share.is_none()) || present.is_empty() {
            return;
        }
        let equal = (capacity / present.len() as u32).max(1);
        let wants = self.wants(present, capacity);
        let all: u64 = wants.iter().map(|want| u64::from(want.share)).sum();
        for (&(owner, _), want) in present.iter().zip(wants) {
            let scaled = (u64::from(want.share) * u64::from(capacity) / all.max(1)) as u32;
            let tenant = &mut self.tenants[owner as usize];
            tenant.share =
                Some(scaled.clamp(want.floor, want.ceiling.max(want.floor)).max(1)).filter(|&share| share != equal);
        }
    }

    /// The demands of the tenants that are `present`.
    fn wants(&mut self, present: &[(u16, Bounds)], capacity: u32) -> Vec<Want> {
        let most = present.iter().map(|&(owner, _)| owner as usize + 1).max().unwrap_or(0);
        if self.tenants.len() < most {
            self.tenants.resize_with(most, Tenant::default);
        }
        let equal = (capacity / present.len().max(1) as u32).max(1);
        let said: u64 = present.iter().filter_map(|(_, bounds)| bounds.floor).map(u64::from).sum();
        let silent = present.iter().filter(|(_, bounds)| bounds.floor.is_none()).count().max(1) as u64;
        let left = (u64::from(capacity).saturating_sub(said) / silent) as u32;
        let want = |&(owner, bounds): &(u16, Bounds)| {
            let tenant = &self.tenants[owner as usize];
            let ceiling = bounds.ceiling.unwrap_or(equal.saturating_mul(2)).min(capacity);
            let floor = bounds.floor.unwrap_or((equal / 2).min(left)).min(ceiling).max(1);
            let ceiling = ceiling.max(floor);
            let share = tenant.share.unwrap_or(equal);
            let (hull, corners) =
                tenant.curve.as_ref().map_or_else(Default::default, |curve| hull(curve, tenant.references));
            Want { floor, ceiling, share, hull, corners }
        };
        present.iter().map(want).collect()
    }

    /// Divides `capacity` blocks among the tenants that are `present`.
    pub(crate) fn divide(&mut self, present: &[(u16, Bounds)], capacity: u32) {
        self.since = 0;
        let wants = self.wants(present, capacity);
        let all: f64 = present.iter().map(|&(owner, _)| self.tenants[owner as usize].references).sum();
        for tenant in &mut self.tenants {
            tenant.references *= KEPT;
        }
        let shares = divide(&wants, capacity);
        let saved = |want: &Want, share: u32| value(&want.hull, f64::from(share));
        let gain: f64 =
            wants.iter().zip(&shares).map(|(want, &share)| saved(want, share) - saved(want, want.share)).sum();
        let given: u64 = wants.iter().map(|want| u64::from(want.share)).sum();
        let fits =
            given <= u64::from(capacity) && wants.iter().all(|want| (want.floor..=want.ceiling).contains(&want.share));
        if gain < GAIN_LEAST * all && fits {
            return;
        }
        let moved: u64 =
            wants.iter().zip(&shares).map(|(want, &share)| u64::from(share.saturating_sub(want.share))).sum();
        let part = (f64::from((capacity / MOVED_MOST).max(1)) / moved.max(1) as f64).min(1.0);
        for ((&(owner, _), want), share) in present.iter().zip(&wants).zip(shares) {
            let change = (f64::from(share) - f64::from(want.share)) * part;
            self.tenants[owner as usize].share = Some((f64::from(want.share) + change).round().max(1.0) as u32);
        }
    }

    /// Panics on a broken invariant.
    pub(crate) fn check(&self) {
        let curves: Vec<&Curve> = self.tenants.iter().filter_map(|tenant| tenant.curve.as_deref()).collect();
        assert_eq!(curves.len(), self.curves);
        assert!(self.curves <= CURVES_MOST);
        curves.iter().for_each(|curve| curve.check());
    }
}

/// The upper hull of a curve over the sizes that are known, in references of `references` that are saved, and whether only its corners are to be had. Empty if the present size is not
/// known.
fn hull(curve: &Curve, references: f64) -> (Vec<(f64, f64)>, bool) {
    let measured = curve.measured();
    let mut points = vec![(0.0, 0.0)];
    for point in measured.points.iter().take_while(|point| point.known) {
        let (blocks, saved) = (point.blocks as f64, references * point.hit_ratio);
        // More memory saves no less.
        let saved = saved.max(points.last().map_or(0.0, |&(_, before)| before));
        while let [.., one, two] = points[..]
            && (two.1 - one.1) * (blocks - two.0) <= (saved - two.1) * (two.0 - one.0)
        {
            points.pop();
        }
        points.push((blocks, saved));
    }
    if !measured.points[nigh_policy::curve::PRESENT].known {
        points.clear();
    }
    (points, measured.policy.name() == "lru")
}

/// The references that `blocks` save by a hull; those of its last corner beyond it.
fn value(hull: &[(f64, f64)], blocks: f64) -> f64 {
    let at = hull.partition_point(|&(corner, _)| corner < blocks);
    match (at.checked_sub(1).map(|before| hull[before]), hull.get(at)) {
        (Some(before), Some(&after)) => before.1 + (after.1 - before.1) * (blocks - before.0) / (after.0 - before.0),
        (Some(last), None) => last.1,
        (None, first) => first.map_or(0.0, |first| first.1),
    }
}

/// The share of each tenant in `memory` blocks, chosen so that together they save the most misses.
fn divide(wants: &[Want], memory: u32) -> Vec<u32> {
    // A tenant whose curve is not known keeps its share.
    let range = |want: &Want| match want.hull.is_empty() {
        true => (want.share.clamp(want.floor, want.ceiling), want.share.clamp(want.floor, want.ceiling)),
        false => (want.floor, want.ceiling),
    };
    let mut shares: Vec<u32> = wants.iter().map(|want| range(want).0).collect();
    let given: u64 = shares.iter().map(|&share| u64::from(share)).sum();
    let mut left = u64::from(memory).saturating_sub(given);
    let mut over = given.saturating_sub(u64::from(memory));
    // Those that would keep their shares give what others' floors need.
    let mut spare: u64 = shares.iter().zip(wants).map(|(share, want)| u64::from(share - want.floor)).sum();
    for (share, want) in shares.iter_mut().zip(wants) {
        let own = u64::from(*share - want.floor);
        let less = (over * own).div_ceil(spare.max(1)).min(own);
        (*share, over, spare) = (*share - less as u32, over - less.min(over), spare - own);
    }
    let mut steps: Vec<(usize, u32, f64)> = Vec::new();
    for (at, want) in wants.iter().enumerate() {
        let (floor, ceiling) = range(want);
        let corners =
            want.hull.iter().map(|&(blocks, _)| blocks as u32).filter(|&blocks| blocks > floor && blocks < ceiling);
        let mut from = floor;
        for to in corners.chain((ceiling > floor).then_some(ceiling)) {
            let saved = value(&want.hull, f64::from(to)) - value(&want.hull, f64::from(from));
            steps.push((at, to - from, saved / f64::from(to - from)));
            from = to;
        }
    }
    // Steps of one tenant stay in their order, because each saves less than the one before.
    steps.sort_by(|one, other| other.2.total_cmp(&one.2));
    let mut full = vec![false; wants.len()];
    for (at, blocks, _) in steps.into_iter().filter(|(.., slope)| *slope > 0.0) {
        if full[at] {
            continue;
        }
        let fits = u64::from(blocks) <= left;
        full[at] = !fits;
        if fits || !wants[at].corners {
            let given = u64::from(blocks).min(left);
            shares[at] += given as u32;
            left -= given;
        }
    }
    // The rest, which saves nothing that is known, in equal parts.
    let mut open: Vec<usize> = (0..wants.len()).filter(|&at| shares[at] < range(&wants[at]).1).collect();
    open.sort_by_key(|&at| range(&wants[at]).1 - shares[at]);
    let mut count = open.len() as u64;
    for at in open {
        let given = (left / count).min(u64::from(range(&wants[at]).1 - shares[at]));
        shares[at] += given as u32;
        left -= given;
        count -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(floor: u32, ceiling: u32, hull: &[(f64, f64)]) -> Want {
        Want { floor, ceiling, share: 50, hull: hull.to_vec(), corners: false }
    }

    #[test]
    fn memory_goes_where_a_block_saves_most() {
        let steep = want(10, 100, &[(0.0, 0.0), (60.0, 600.0), (100.0, 610.0)]);
        let flat = want(10, 100, &[(0.0, 0.0), (100.0, 200.0)]);
        assert_eq!(divide(&[steep.clone(), flat.clone()], 100), [60, 40]);
        assert_eq!(divide(&[flat.clone(), steep.clone()], 40), [10, 30]);
        // Ceilings leave memory to others, and floors take it.
        assert_eq!(divide(&[Want { ceiling: 30, ..steep.clone() }, flat.clone()], 100), [30, 70]);
        assert_eq!(divide(&[steep.clone(), Want { floor: 70, ..flat.clone() }], 100), [30, 70]);
        // One that is not known keeps its share.
        assert_eq!(divide(&[steep.clone(), want(10, 100, &[])], 100), [50, 50]);
        // Memory that saves nothing is divided all the same.
        let useless = want(10, 100, &[(0.0, 0.0), (100.0, 0.0)]);
        assert_eq!(divide(&[useless.clone(), useless], 100), [50, 50]);
    }

    #[test]
    fn only_corners_are_given_where_there_are_cliffs() {
        let cliff = Want { corners: true, ..want(10, 100, &[(0.0, 0.0), (80.0, 1000.0), (100.0, 1000.0)]) };
        let flat = want(10, 100, &[(0.0, 0.0), (100.0, 100.0)]);
        assert_eq!(divide(&[cliff.clone(), flat.clone()], 100), [80, 20]);
        assert_eq!(divide(&[cliff, flat], 85), [10, 75]);
    }

    #[test]
    fn values_lie_on_the_hull() {
        let hull = [(0.0, 0.0), (10.0, 100.0), (20.0, 150.0)];
        let values = [0.0, 5.0, 10.0, 15.0, 20.0, 30.0].map(|blocks| value(&hull, blocks));
        assert_eq!(values, [0.0, 50.0, 100.0, 125.0, 150.0, 150.0]);
        assert_eq!(value(&[], 5.0), 0.0);
    }
}
