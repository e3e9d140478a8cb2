//! Curves: the hit ratio with less and with more memory, of the whole cache or of each tenant.
//!
//! 1. Each reference that the policy receives also counts here, except prefetches. If its block is sampled, it goes to the curve (`nigh_policy::curve`).
//! 2. A curve follows the policy in charge and the size: at every 64th sampled reference, it learns both. A tenant's size changes all the time, so its curve begins anew
//!    only when the tenant has a quarter more blocks or less.

use std::borrow::Cow;

use nigh_policy::curve::{Curve, Measured};
use nigh_policy::{Access, Kind, Spec, Tenant};

use crate::config::Config;
use crate::decider::Decider;
use crate::size::Size;

/// Tenants that have a curve, at most.
const TENANTS_MOST: u32 = 16;

/// The curve of a tenant samples a fraction of the blocks that the curve of a whole cache samples, because there can be many tenants.
const SHARE: u32 = 4;

/// Sampled blocks of a tenant's curve, at least.
const SAMPLED_LEAST: u32 = 128;

/// A tenant with fewer blocks has no curve.
const BLOCKS_LEAST: u32 = 16;

/// Sampled references between two checks of the policy in charge and the size.
const LOOK: u32 = 64;

/// The curve of the cache or of a tenant.
enum Entry {
    /// None yet.
    Empty,
    /// And the sampled references until the next look.
    Kept(Box<Curve>, u32),
    /// There is none, for this reason.
    Refused(String),
}

/// The curve of the whole cache, or those of tenants.
pub(crate) struct Curves {
    /// Blocks that are sampled of a cache, at least; 0 for no curves.
    least: u32,
    block_bytes: u32,
    by_tenant: bool,
    entries: Vec<Entry>,
    /// Entries that can become a curve.
    left: u32,
}

/// The simulated policy, whether another policy has chosen it, and the blocks of the cache or tenant.
type Present<'a> = (Cow<'a, Spec>, bool, u32);

impl Curves {
    pub(crate) fn new(config: &Config) -> Curves {
        let by_tenant = config.tenants.is_some();
        let left = if by_tenant { TENANTS_MOST } else { 1 };
        let (left, least) = match config.curves {
            0 => (0, 0),
            least if by_tenant => (left, least.min((least / SHARE).max(SAMPLED_LEAST))),
            least => (left, least),
        };
        Curves { least, block_bytes: config.block_bytes, by_tenant, entries: Vec::new(), left }
    }

    #[inline(always)]
    fn at(&self, tenant: Tenant) -> usize {
        if self.by_tenant { tenant.0 as usize } else { 0 }
    }

    /// Counts a reference. Returns whether [`reference`](Curves::reference) has to follow.
    #[inline(always)]
    pub(crate) fn takes(&mut self, access: &Access) -> bool {
        let at = self.at(access.tenant);
        match self.entries.get_mut(at) {
            Some(Entry::Kept(curve, _)) => access.kind != Kind::Prefetch && curve.takes(access.block),
            Some(Entry::Refused(_)) => false,
            Some(Entry::Empty) | None => self.left > 0,
        }
    }

    /// The reference that was counted last.
    #[cold]
    #[inline(never)]
    pub(crate) fn reference(&mut self, access: &Access, decider: &dyn Decider, policy: &Spec, size: &Size) {
        let at = self.at(access.tenant);
        let present = || present(access.tenant, decider, policy, size);
        match self.entries.get_mut(at) {
            Some(Entry::Kept(curve, until)) => {
                *until -= 1;
                if *until == 0 {
                    *until = LOOK;
                    if let Err(reason) = look(curve, present(), self.by_tenant) {
                        self.entries[at] = Entry::Refused(reason);
                        self.left += 1;
                        return;
                    }
                }
                let Entry::Kept(curve, _) = &mut self.entries[at] else { unreachable!("it was one") };
                curve.reference(access);
            }
            _ => match present() {
                Ok((_, _, blocks)) if self.by_tenant && blocks < BLOCKS_LEAST => {}
                Ok((spec, chosen, blocks)) => {
                    let curve = Curve::new(&spec, chosen, blocks, self.least, self.block_bytes);
                    self.set(at, curve.map_err(|error| error.to_string()));
                    if self.takes(access) {
                        self.reference(access, decider, policy, size);
                    }
                }
                Err(reason) => self.set(at, Err(reason)),
            },
        }
    }

    fn set(&mut self, at: usize, curve: Result<Curve, String>) {
        while self.entries.len() <= at {
            self.entries.push(Entry::Empty);
        }
        self.left -= u32::from(curve.is_ok());
        self.entries[at] = match curve {
            Ok(curve) => Entry::Kept(Box::new(curve), LOOK),
            Err(reason) => Entry::Refused(reason),
        };
    }

    /// `tenant` has left.
    pub(crate) fn forget(&mut self, tenant: Tenant) {
        let at = self.at(tenant);
        if let Some(entry) = self.entries.get_mut(at) {
            self.left += u32::from(matches!(entry, Entry::Kept(..)));
            *entry = Entry::Empty;
        }
    }

    /// Another policy is in charge, of the cache or of a tenant: what had no curve may have one.
    pub(crate) fn retry(&mut self) {
        let refused = self.entries.iter_mut().filter(|entry| matches!(entry, Entry::Refused(_)));
        refused.for_each(|entry| *entry = Entry::Empty);
    }

    /// The curve of `tenant`, or of the whole cache if there are no tenants; or the reason why there is none. `None` if there are no references yet, or no curves.
    pub(crate) fn measured(&self, tenant: Tenant) -> Option<Result<Measured, String>> {
        match self.entries.get(self.at(tenant)) {
            Some(Entry::Kept(curve, _)) => Some(Ok(curve.measured())),
            Some(Entry::Refused(reason)) => Some(Err(reason.clone())),
            Some(Entry::Empty) | None if self.by_tenant && self.left == 0 && self.least > 0 => {
                Some(Err(format!("{TENANTS_MOST} other tenants have one")))
            }
            Some(Entry::Empty) | None => None,
        }
    }

    /// Panics on a broken invariant (tests and fuzzing only).
    pub(crate) fn check(&self) {
        let kept = self.entries.iter().filter_map(|entry| match entry {
            Entry::Kept(curve, _) => Some(curve),
            _ => None,
        });
        let most = if self.by_tenant { TENANTS_MOST } else { 1 };
        assert!(self.least == 0 || kept.clone().count() as u32 + self.left == most, "curves beyond the limit");
        kept.for_each(|curve| curve.check());
    }
}

/// The policy and the size that the curve of `tenant`, or of the whole cache, has to simulate.
fn present<'a>(tenant: Tenant, decider: &dyn Decider, policy: &'a Spec, size: &Size) -> Result<Present<'a>, String> {
    if policy.is_unified() {
        return Err(format!("{policy} decides for levels, too"));
    }
    let Some(tenants) = decider.tenants() else {
        let in_charge = decider.chosen().and_then(|chosen| chosen.in_charge().cloned());
        let chosen = in_charge.is_some();
        return Ok((in_charge.map_or(Cow::Borrowed(policy), Cow::Owned), chosen, size.capacity));
    };
    let Some((spec, chosen)) = tenants.in_charge(tenant) else {
        return Err("hints put mru in charge".to_owned());
    };
    Ok((Cow::Owned(spec), chosen, tenants.size(tenant)))
}

/// Makes `curve` simulate what is present.
fn look(curve: &mut Curve, present: Result<Present<'_>, String>, by_tenant: bool) -> Result<(), String> {
    let (spec, chosen, blocks) = present?;
    let (.., before) = curve.of();
    let is_similar = 4 * u64::from(blocks) > 3 * u64::from(before) && 4 * u64::from(blocks) < 5 * u64::from(before);
    let blocks = if by_tenant && (is_similar || blocks < BLOCKS_LEAST) { before } else { blocks };
    curve.fit(&spec, chosen, blocks).map_err(|error| error.to_string())
}
