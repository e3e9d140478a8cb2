//! Changes by an administrator while the engine is in use.

use nigh_control::Allocation;
use nigh_engine::{Successor, Volume};
use nigh_policy::Spec;
use rand::RngExt;

use crate::simulation::{World, policies};

impl World {
    pub(crate) fn administer(&mut self) {
        match self.random.random_range(0..5) {
            0 => {
                let capacity = self.random.random_range(1..=self.engine.config().capacity_max);
                self.engine.resize(capacity).expect("possible");
            }
            1 => {
                let policies = policies();
                let policy = policies[self.random.random_range(0..policies.len())];
                let policy = policy.parse::<Spec>().expect("registered");
                let config = self.engine.config();
                let tenants = config.tenants.as_ref();
                let is_one_list = tenants.is_some_and(|tenants| tenants.control.allocation == Allocation::Global);
                let keeps = is_one_list && policy.name() != "lru" || config.policy.is_unified();
                let set = self.engine.setup(&policy).and_then(|setup| {
                    let next = Successor::new(&policy, &setup).expect("possible");
                    match self.random.random_bool(0.5) {
                        true => self.engine.set_policy(next),
                        false => {
                            let capacity = self.random.random_range(1..=self.engine.config().capacity_max);
                            self.engine.change(capacity, Some(next))
                        }
                    }
                });
                assert_eq!(set.is_err(), keeps);
            }
            2 => {
                if let Some(mut surplus) = self.engine.surplus_memory(self.random.random_range(1..30)) {
                    surplus.slices_mut().for_each(|slice| slice.fill(0));
                    self.engine.return_memory(self.now, surplus);
                }
            }
            3 => self.freeze_or_thaw(),
            _ if !self.levels.is_empty() && self.random.random_bool(0.1) => {
                self.administer_level();
            }
            _ if self.plan.calm || self.plan.dead_from.is_none() && self.random.random_bool(0.3) => self.restart(),
            _ => {
                let at = self.random.random_range(0..self.disks.len());
                if !self.closed[at] && self.random.random_bool(0.3) {
                    let discard = self.random.random_bool(0.5);
                    self.close(at, discard);
                }
            }
        }
        self.replies();
    }

    fn freeze_or_thaw(&mut self) {
        let at = self.random.random_range(0..self.disks.len());
        let (volume, until) = (Volume(at as u32), self.now + self.random.random_range(1..50_000));
        if self.random.random_bool(0.3) {
            let was_frozen = self.engine.is_frozen(volume);
            self.frozen[at] = None;
            assert_eq!(self.engine.thaw(self.now, volume), was_frozen);
        } else if self.engine.freeze(volume, until).is_ok() {
            self.frozen[at] = Some((until, self.frozen[at].is_some_and(|(before, still)| self.now < before && still)));
        }
    }

    /// The devices of a frozen volume have everything from some time on, and nothing changes them. It is frozen until its time, unless a flush fails.
    pub(crate) fn check_frozen(&mut self) {
        for (at, frozen) in self.frozen.iter_mut().enumerate() {
            let Some((until, was_still)) = frozen.filter(|&(until, _)| self.now < until) else { continue };
            let volume = Volume(at as u32);
            assert!(self.engine.is_frozen(volume), "volume {at} is frozen no more");
            let is_still = self.engine.is_still(volume);
            assert!(is_still || !was_still, "volume {at} changed while it was frozen");
            *frozen = Some((until, is_still));
        }
    }
}
