//! The policies of tenants, without their hints: that of the cache, or their own. Level 0 has it until a hint gives it another.

use super::LruSp;
use crate::config::{Allocation, ghosts_of};
use crate::directive::{Order, Refusal};
use crate::local::Local;

impl LruSp {
    /// The most slots that `policy` can number for a tenant of a cache that has or gets `slots`, or an error if tenants cannot have it.
    pub fn try_out(&self, policy: &Order, slots: u32) -> Result<u32, Refusal> {
        match policy {
            Order::Mru | Order::Policy(_) if self.config.allocation == Allocation::Global => Err(Refusal::OneList),
            Order::Policy(spec) if spec.is_unified() => Err(Refusal::Unified { policy: spec.clone() }),
            Order::Policy(spec) => {
                let cache = self.largest.with(0, slots);
                ghosts_of(spec, cache.capacity)?;
                Ok(Local::new(spec, self.block_bytes, cache)?.slots_most())
            }
            Order::Lru | Order::Mru => Ok(u32::MAX),
        }
    }

    /// The policy of `owner`, or of an owner that is not known yet.
    pub(crate) fn policy_of(&self, owner: u16) -> &Order {
        self.shares.get(owner as usize).and_then(|share| share.policy.as_ref()).unwrap_or(&self.policy)
    }

    /// Level 0 of `owner` gets the policy of `owner`: now, or by steps if its blocks are on their way to another one.
    pub(super) fn want_policy(&mut self, owner: u16) {
        let share = &self.shares[owner as usize];
        if share.gone || share.levels.is_none() && *self.policy_of(owner) == Order::Lru {
            return;
        }
        self.manage(owner);
        if !self.give_policy(owner) && !self.tasks.policies.contains(&owner) {
            self.tasks.policies.push(owner);
        }
    }

    /// Gives level 0 of `owner` the policy of `owner`. Returns false if that has to wait.
    fn give_policy(&mut self, owner: u16) -> bool {
        let Some(levels) = self.shares[owner as usize].levels.as_ref().filter(|levels| !levels.is_ground_named())
        else {
            return true;
        };
        let (ground, wanted) = (levels.ground(), self.policy_of(owner).clone());
        let largest = self.largest;
        let pools = &mut self.managed().pools;
        if *pools.order(ground) == wanted {
            return true;
        }
        if pools.is_handing_over(ground) {
            return false;
        }
        // Parameters that are numbers of blocks were possible when the policy was set, and are in a cache as large as it was then.
        let given = pools.set_order(ground, wanted, largest);
        debug_assert!(given.is_ok(), "{given:?}");
        true
    }

    /// Continues with policies that had to wait.
    pub(super) fn give_policies(&mut self) {
        let waiting = std::mem::take(&mut self.tasks.policies);
        self.tasks.policies = waiting.into_iter().filter(|&owner| !self.give_policy(owner)).collect();
    }

    /// Levels of all tenants that a hint gave a policy of the registry.
    pub(crate) fn hinted_policies(&self) -> usize {
        let Some(managed) = &self.managed else { return 0 };
        let grounds = self.shares.iter().filter_map(|share| share.levels.as_ref());
        let grounds = grounds.filter(|levels| !levels.is_ground_named()).map(|levels| levels.ground());
        let own = grounds.filter(|&ground| matches!(managed.pools.order(ground), Order::Policy(_))).count();
        managed.pools.policies() - own
    }
}
