//! Changes of size and policy at run time, in steps that touch a limited number of blocks each.

use nigh_policy::{Policy, Setup, Spec};

use crate::choice;
use crate::decider::Successor;
use crate::engine::Engine;
use crate::error::ConfigError;
use crate::slots::Slots;

/// The most blocks that leave, change policy or get room in one step.
const BLOCKS_A_STEP: u32 = 128;
/// The most slots that one step allocates memory for.
const SLOTS_A_STEP: u32 = 4096;

impl Engine {
    /// From now on the policy keeps at most `capacity` blocks resident, which is limited to `Config::capacity_max`;
    /// after an error nothing has changed. [`step`](Engine::step) carries it out. Order and ghosts are kept. The blocks
    /// that leave are those that the policy would evict; dirty ones are written first.
    pub fn resize(&mut self, capacity: u32) -> Result<(), ConfigError> {
        self.change(capacity, None).map(drop)
    }

    /// An error if `next` cannot be the policy of a cache of `capacity` blocks.
    fn check_policy(&self, next: &Successor, capacity: u32) -> Result<(), ConfigError> {
        let ghosts = choice::ghosts(&self.config, next.spec(), capacity)?;
        let most = match self.policy.tenants() {
            Some(tenants) => {
                tenants.try_out(&next.spec().clone().into(), self.size.numbers(&self.slots, capacity, ghosts))?
            }
            None => next.slots_most(),
        };
        self.size.check_slots(&self.slots, next.spec(), capacity, ghosts, most)
    }

    /// An error if [`change`](Engine::change) would be one.
    pub fn check_change(&self, capacity: u32, next: Option<&Successor>) -> Result<(), ConfigError> {
        let (policy, most) = (&self.config.policy, self.policy.slots_most());
        if capacity == 0 || capacity > self.config.capacity_max {
            return Err(ConfigError::Impossible { what: "capacity must be from 1 to capacity_max" });
        }
        self.size.check_slots(&self.slots, policy, capacity, self.ghosts(capacity)?, most)?;
        if next.is_some() && self.levels.unified {
            return Err(ConfigError::Impossible {
                what: "its policy decides for its levels, too, so it keeps it: restart for another one",
            });
        }
        let waiting = self.size.next.as_ref().filter(|_| next.is_none());
        for next in next.into_iter().chain(waiting) {
            for capacity in [self.size.capacity, self.size.goal, capacity] {
                self.check_policy(next, capacity)?;
            }
        }
        Ok(())
    }

    /// [`resize`](Engine::resize) and, with `next`, [`set_policy`](Engine::set_policy): both, or after an error none of them.
    pub fn change(&mut self, capacity: u32, next: Option<Successor>) -> Result<Option<Successor>, ConfigError> {
        self.check_change(capacity, next.as_ref())?;
        let slots = self.size.numbers(&self.slots, capacity, self.ghosts(capacity)?);
        if let Some(tenants) = self.policy.tenants_mut() {
            tenants.expect_slots(slots);
        }
        self.size.goal = capacity;
        self.size.stepping = true;
        Ok(next.and_then(|next| self.size.next.replace(next)))
    }

    /// The ghosts that the decider can use if `capacity` blocks are resident.
    fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError> {
        choice::ghosts(&self.config, &self.config.policy, capacity)
    }

    /// The argument of [`Successor::new`] for a policy of this engine.
    pub fn setup(&self, policy: &Spec) -> Result<Setup, ConfigError> {
        let (capacity, block_bytes) = (self.size.capacity, self.config.block_bytes);
        if let Some(tenants) = self.policy.tenants() {
            // Each tenant's policy numbers its own blocks, and this one will have none.
            tenants.try_out(&policy.clone().into(), 0)?;
            return Ok(Setup { capacity, slots: 2, block_bytes, ghosts: 0, future: None, patterns: None });
        }
        let ghosts = choice::ghosts(&self.config, policy, capacity)?;
        let slots = self.size.numbers(&self.slots, capacity, ghosts);
        Ok(Setup { capacity, slots, block_bytes, ghosts, future: None, patterns: None })
    }

    /// From now on `next` is the policy. [`step`](Engine::step) carries this out after the previous change is complete.
    /// The blocks move in the order in which the present policy would evict them; its ghosts are lost. Returns a policy
    /// that was still waiting and is now superseded. With tenants, it is the policy of each that has none of its own.
    pub fn set_policy(&mut self, next: Successor) -> Result<Option<Successor>, ConfigError> {
        self.change(self.size.goal, Some(next))
    }

    /// Continues the closing of volumes, a change of size or policy, or the application of hints, for a limited number
    /// of blocks. Returns whether more can be done at once. Work that waits for write-back continues when
    /// [`next_wakeup`](Engine::next_wakeup) is due.
    pub fn step(&mut self, now: u64) -> bool {
        if let Some((volume, from)) = self.volumes.forgetting() {
            self.forget_some(volume, from);
            self.pump(now);
        } else if self.is_cramped() && self.volumes.ending {
            self.give_way(BLOCKS_A_STEP, now);
        } else if self.volumes.ending {
            self.serve_untried(now);
        } else if self.policy.is_pending() {
            self.step_policy();
        } else if self.size.ghosts_before > 0 {
            // A call of a tenant completed what was pending.
            self.end_succession();
        } else if self.size.next.is_some() {
            self.step_to_next();
        } else if self.size.goal > self.size.capacity {
            self.step_up(now);
        } else if self.size.goal < self.size.capacity && self.memory.can_shrink() {
            self.step_down();
        } else if self.is_cramped() {
            self.give_way(BLOCKS_A_STEP, now);
        } else if self.line.untried > 0 {
            self.serve_untried(now);
        }
        self.size.stepping = self.is_changing();
        self.can_step()
    }

    /// Whether a change is incomplete.
    pub fn is_changing(&self) -> bool {
        self.volumes.forgetting().is_some()
            || self.policy.is_pending()
            || self.size.ghosts_before > 0
            || self.size.next.is_some()
            || self.size.goal != self.size.capacity
    }

    /// A policy that was replaced and has handed over everything: the host should free its memory while no request
    /// waits for the engine.
    pub fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        self.policy.take_retired()
    }

    /// The number of blocks that the policy may keep resident at present.
    pub fn capacity(&self) -> u32 {
        self.size.capacity
    }

    /// Whether `step` can do something at once.
    pub(crate) fn can_step(&self) -> bool {
        self.is_cramped()
            || self.line.untried > 0
            || !self.volumes.ending
                && self.size.stepping
                && (self.size.goal >= self.size.capacity
                    || self.memory.can_shrink()
                    || self.size.next.is_some()
                    || self.policy.is_pending()
                    || self.size.ghosts_before > 0
                    || self.volumes.forgetting().is_some())
    }

    fn step_policy(&mut self) {
        self.drain_forgotten();
        let tick = self.tick;
        self.tick += 1;
        let (decider, known) = self.deciding();
        decider.step(BLOCKS_A_STEP, tick, &known);
        self.drain_forgotten();
        self.end_succession();
    }

    /// If the previous policy has handed over everything, there is no room for its ghosts any more.
    fn end_succession(&mut self) {
        if self.policy.is_pending() {
            return;
        }
        if std::mem::take(&mut self.size.ghosts_before) > 0 && self.hears_tenants() {
            self.policy.resize(self.size.room(&self.slots));
            self.drain_forgotten();
        }
        self.size.set_slots(&mut self.slots);
    }

    fn step_to_next(&mut self) {
        let next = self.size.next.as_ref().expect("one that waits");
        let ghosts = choice::ghosts(&self.config, next.spec(), self.size.capacity).expect("it was asked before");
        let most = Slots::most(self.size.capacity, ghosts.max(self.size.ghosts));
        if !self.slots.lengthen(most, SLOTS_A_STEP) {
            return;
        }
        let next = self.size.next.take().expect("one that waits");
        self.size.ghosts_before = std::mem::replace(&mut self.size.ghosts, ghosts);
        self.size.set_slots(&mut self.slots);
        self.drain_forgotten();
        self.config.policy = next.spec().clone();
        self.policy.succeed(next, self.size.room(&self.slots));
        self.curves.retry();
        self.end_succession();
    }

    fn step_up(&mut self, now: u64) {
        let ghosts = self.ghosts(self.size.goal).expect("it was asked before");
        let most = Slots::most(self.size.goal, ghosts.max(self.size.ghosts));
        if self.slots.numbers() < self.slots.numbers_for(most) {
            self.slots.lengthen(most, SLOTS_A_STEP);
            self.policy.resize(self.size.room(&self.slots));
            self.drain_forgotten();
            return;
        }
        self.slots.set_limit(most);
        self.set_capacity(self.size.goal.min(self.size.capacity + BLOCKS_A_STEP));
        self.pump(now);
    }

    fn step_down(&mut self) {
        self.set_capacity(self.size.goal.max(self.size.capacity.saturating_sub(BLOCKS_A_STEP)));
    }

    /// From now on the policy keeps `capacity` blocks, and the others leave.
    fn set_capacity(&mut self, capacity: u32) {
        self.size.capacity = capacity;
        self.size.ghosts = self.ghosts(capacity).expect("it was asked before, for more or less blocks");
        self.drain_forgotten();
        self.policy.resize(self.size.room(&self.slots));
        self.drain_forgotten();
        while self.slots.resident > capacity {
            let victim = self.policy.shed();
            self.depart(victim);
            self.drain_forgotten();
        }
        self.size.set_slots(&mut self.slots);
        self.memory.frames.set_limit(capacity + self.config.spare + self.config.storing);
        self.size.marks = self.config.marks(capacity);
        self.cleaner.look_again();
        self.cleaner.dirty_most = self.size.marks.most.max(self.cleaner.dirty + self.requests.filling);
    }
}
