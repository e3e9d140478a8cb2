//! The decision which block leaves: by one policy, or by tenants and their hints.

use nigh_control::{Chunk, Directive, Index, LruSp, Refusal, Statistics};
use nigh_policy::{Access, Block, Kind, Policy, Room, Setup, Slot, Spec, SpecError, Stream, Succession, Tenant, build};

use crate::error::ConfigError;

/// Slots are numbered below this.
const SLOTS_MOST: u64 = 1 << 30;

/// Decides which block leaves. A single policy treats all tenants as tenants without hints.
pub(crate) trait Decider: Policy + Send {
    /// The number of ghosts it can use if `capacity` blocks are resident.
    fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError>;

    /// From now on `next` decides, in a host with `slots` slots; `step` does the rest. Returns `next` if there is no
    /// policy to replace.
    fn succeed(&mut self, next: Successor, slots: u32) -> Result<(), Successor>;

    /// Whether `step` can do something.
    fn is_pending(&self) -> bool;

    /// Continues a change, for at most `most` blocks. Returns whether there is more to do. `tick` is later than all
    /// references.
    fn step(&mut self, most: u32, tick: u64, index: &dyn Index) -> bool;

    /// A replaced policy, to be dropped when there is time for it.
    fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        None
    }

    /// Whether the first reference to a prefetched block must be reported although its prefetch was: a list advances
    /// with each reference.
    fn follows_lists(&self) -> bool {
        false
    }

    /// As [`LruSp::apply`].
    fn apply(&mut self, _tenant: Tenant, _directive: &Directive, _index: &dyn Index) -> Result<(), Refusal> {
        Err(Refusal::NotHeard)
    }

    /// As [`LruSp::extend`].
    fn extend(&mut self, _tenant: Tenant, _chunk: &Chunk, _index: &dyn Index) -> Result<(), Refusal> {
        Err(Refusal::NotHeard)
    }

    /// As [`LruSp::set_bounds`].
    fn set_bounds(&mut self, _tenant: Tenant, _floor: u32, _ceiling: u32) -> Result<(), Refusal> {
        Err(Refusal::NotHeard)
    }

    /// As [`LruSp::forget_files`].
    fn forget_files(&mut self, _tenant: Tenant, _gone: &dyn Fn(u32) -> bool, _index: &dyn Index) {}

    /// As [`LruSp::close`].
    fn close(&mut self, _tenant: Tenant) {}

    /// As [`LruSp::said`].
    fn said(&self, _tenant: Tenant) -> Vec<Directive> {
        Vec::new()
    }

    /// The counters of `tenant`, if there are any.
    fn statistics(&self, _tenant: Tenant) -> Option<Statistics> {
        None
    }

    /// Resident blocks that `tenant` owns, if blocks have owners.
    fn owned(&self, _tenant: Tenant) -> Option<u32> {
        None
    }

    /// As [`LruSp::has_list`].
    fn has_list(&self, _tenant: Tenant) -> bool {
        false
    }

    /// As [`LruSp::late`].
    fn late(&mut self, _slot: Slot, _tenant: Tenant) {}

    /// As [`LruSp::loaded`].
    fn loaded(&mut self, _tenant: Tenant) {}

    /// As [`LruSp::devices`].
    fn devices(&self, _tenant: Tenant) -> &[u32] {
        &[]
    }

    /// As [`LruSp::next_prefetch`].
    fn next_prefetch(&mut self, _tenant: Tenant, _device: u32, _index: &dyn Index, _now: u64) -> Option<Block> {
        None
    }

    /// As [`LruSp::prefetched`].
    fn prefetched(&mut self, _tenant: Tenant, _device: u32, _read_at: Option<u64>) {}

    /// Incomplete prefetches that lists requested, by tenant.
    fn outstanding(&self) -> Vec<(Tenant, u32)> {
        Vec::new()
    }

    /// Where the block of `slot` belongs: 0 is memory, others are levels, counted from 1.
    fn level(&self, _slot: Slot) -> Option<usize> {
        None
    }

    /// Whether the block of `slot`, for which a decider for all levels was asked to `evict` just before, is kept in memory.
    fn stays(&self, _slot: Slot) -> bool {
        true
    }

    /// The block of `slot`, if it belongs elsewhere and was kept in memory until it is written, is kept no longer. Returns whether it was so.
    fn let_go(&mut self, _slot: Slot) -> bool {
        false
    }

    /// The next block that a level below memory has to pass on or to drop. To be asked before slots are used again.
    fn next_order(&mut self) -> Option<Slot> {
        None
    }

    /// `level` does not have the block of `slot`.
    fn lose(&mut self, _slot: Slot, _level: usize) {}

    /// A reference may follow at this time.
    fn note_time(&mut self, _now: u64) {}

    /// How long ago the block of `slot` was referenced, in µs.
    fn age_us(&self, _slot: Slot, _now: u64) -> u64 {
        0
    }

    /// The last level is shared: so many blocks fit in, and the one that would leave next was referenced so long ago.
    fn share(&mut self, _now: u64, _free: u32, _oldest_us: Option<u64>) {}

    /// `level` is switched off.
    fn lose_level(&mut self, _level: usize) {}

    /// `level` has the block of `slot` from an earlier run. Returns whether it belongs there.
    fn restore(&mut self, _slot: Slot, _level: usize) -> bool {
        true
    }
}

pub(crate) fn ghosts_of(policy: &Spec, capacity: u32) -> Result<u32, ConfigError> {
    match nigh_policy::ghosts(policy, capacity)? {
        u32::MAX => Err(ConfigError::Unlimited { policy: Box::new(policy.clone()) }),
        ghosts => checked(ghosts, capacity),
    }
}

pub(crate) fn checked(ghosts: u32, capacity: u32) -> Result<u32, ConfigError> {
    if u64::from(ghosts) + u64::from(capacity) >= SLOTS_MOST {
        return Err(ConfigError::Impossible { what: "blocks and ghosts together must be less than 2^30" });
    }
    Ok(ghosts)
}

/// A policy that is to replace that of an engine. It is created without the engine, because allocating its arrays takes
/// time.
pub struct Successor {
    spec: Spec,
    policy: Box<dyn Policy + Send>,
    /// The number of slots it was created for: possibly more than the engine has, if the engine became smaller
    /// meanwhile.
    slots: u32,
}

impl Successor {
    /// The policy `spec` for an engine that returned `setup` for it. If the size of the engine has changed when it
    /// receives the policy, the policy is resized.
    pub fn new(spec: &Spec, setup: &Setup) -> Result<Successor, ConfigError> {
        Ok(Successor { spec: spec.clone(), policy: build(spec, setup)?, slots: setup.slots })
    }

    /// The spec it was created from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(crate) fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError> {
        ghosts_of(&self.spec, capacity)
    }

    /// The most slots that the policy can number.
    pub(crate) fn slots_most(&self) -> u32 {
        self.policy.slots_most()
    }

    pub(crate) fn resize(&mut self, room: Room) {
        self.slots = self.slots.max(room.slots);
        self.policy.resize(Room { slots: self.slots, ..room });
    }
}

/// One policy, for all tenants.
pub(crate) struct Single {
    spec: Spec,
    policies: Succession,
    /// Of the present policy.
    slots: u32,
}

impl Single {
    pub(crate) fn new(spec: &Spec, setup: &Setup) -> Result<Single, SpecError> {
        let policies = Succession::new(build(spec, setup)?, setup.slots);
        Ok(Single { spec: spec.clone(), policies, slots: setup.slots })
    }
}

impl Policy for Single {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.policies.hit(slot, access);
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        self.policies.evict(incoming, access)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.policies.insert(slot, access);
    }

    fn shed(&mut self) -> Slot {
        self.policies.shed()
    }

    fn resize(&mut self, room: Room) {
        self.slots = self.slots.max(room.slots);
        self.policies.resize(Room { slots: self.slots, ..room });
    }

    fn slots_most(&self) -> u32 {
        self.policies.slots_most()
    }

    fn remove(&mut self, slot: Slot) {
        self.policies.remove(slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.policies.take_forgotten()
    }

    fn check(&self) {
        self.policies.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policies.gauges(report);
    }
}

impl Decider for Single {
    fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError> {
        ghosts_of(&self.spec, capacity)
    }

    fn succeed(&mut self, next: Successor, slots: u32) -> Result<(), Successor> {
        self.spec = next.spec;
        self.slots = next.slots;
        self.policies.succeed(next.policy, slots.max(next.slots));
        Ok(())
    }

    fn is_pending(&self) -> bool {
        self.policies.is_pending()
    }

    fn step(&mut self, most: u32, tick: u64, index: &dyn Index) -> bool {
        let (tenant, stream, kind) = (Tenant(0), Stream(0), Kind::Read);
        self.policies.step(most, &mut |slot| Access { block: index.block(slot), tenant, stream, kind, tick })
    }

    fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        self.policies.take_retired()
    }
}

impl Decider for LruSp {
    fn ghosts(&self, capacity: u32) -> Result<u32, ConfigError> {
        checked(self.config().ghosts(capacity), capacity)
    }

    fn succeed(&mut self, next: Successor, _slots: u32) -> Result<(), Successor> {
        Err(next)
    }

    fn is_pending(&self) -> bool {
        LruSp::is_pending(self)
    }

    fn step(&mut self, most: u32, _tick: u64, index: &dyn Index) -> bool {
        LruSp::step(self, most, index)
    }

    fn follows_lists(&self) -> bool {
        true
    }

    fn apply(&mut self, tenant: Tenant, directive: &Directive, index: &dyn Index) -> Result<(), Refusal> {
        LruSp::apply(self, tenant, directive, index)
    }

    fn extend(&mut self, tenant: Tenant, chunk: &Chunk, index: &dyn Index) -> Result<(), Refusal> {
        LruSp::extend(self, tenant, chunk, index)
    }

    fn set_bounds(&mut self, tenant: Tenant, floor: u32, ceiling: u32) -> Result<(), Refusal> {
        LruSp::set_bounds(self, tenant, floor, ceiling)
    }

    fn forget_files(&mut self, tenant: Tenant, gone: &dyn Fn(u32) -> bool, index: &dyn Index) {
        LruSp::forget_files(self, tenant, gone, index);
    }

    fn close(&mut self, tenant: Tenant) {
        LruSp::close(self, tenant);
    }

    fn said(&self, tenant: Tenant) -> Vec<Directive> {
        LruSp::said(self, tenant)
    }

    fn statistics(&self, tenant: Tenant) -> Option<Statistics> {
        Some(LruSp::statistics(self, tenant))
    }

    fn owned(&self, tenant: Tenant) -> Option<u32> {
        Some(self.size(tenant))
    }

    fn has_list(&self, tenant: Tenant) -> bool {
        LruSp::has_list(self, tenant)
    }

    fn late(&mut self, slot: Slot, tenant: Tenant) {
        LruSp::late(self, slot, tenant);
    }

    fn loaded(&mut self, tenant: Tenant) {
        LruSp::loaded(self, tenant);
    }

    fn devices(&self, tenant: Tenant) -> &[u32] {
        LruSp::devices(self, tenant)
    }

    fn next_prefetch(&mut self, tenant: Tenant, device: u32, index: &dyn Index, now: u64) -> Option<Block> {
        LruSp::next_prefetch(self, tenant, device, index, now)
    }

    fn prefetched(&mut self, tenant: Tenant, device: u32, read_at: Option<u64>) {
        LruSp::prefetched(self, tenant, device, read_at);
    }

    fn outstanding(&self) -> Vec<(Tenant, u32)> {
        self.tenants().map(|tenant| (tenant, LruSp::outstanding(self, tenant))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{Config, Engine, Op, Outcome, Port, PortConfig, Region, Request, Volume, WriteMode};

    /// The references a policy received: kind and stream.
    type Heard = Arc<Mutex<Vec<(Kind, u64)>>>;

    /// For a cache that never fills up.
    struct Recorder(Heard);

    impl Policy for Recorder {
        fn hit(&mut self, _: Slot, access: &Access) {
            self.0.lock().unwrap().push((access.kind, access.stream.0));
        }

        fn evict(&mut self, _: Slot, _: &Access) -> Option<Slot> {
            unreachable!("there is room")
        }

        fn insert(&mut self, slot: Slot, access: &Access) {
            self.hit(slot, access);
        }

        fn shed(&mut self) -> Slot {
            unreachable!("there is room")
        }

        fn resize(&mut self, _: Room) {}

        fn remove(&mut self, _: Slot) {}

        fn take_forgotten(&mut self) -> Option<Slot> {
            None
        }

        fn check(&self) {}
    }

    #[test]
    fn policies_hear_the_stream_of_each_request() {
        let mut engine = Engine::new(Config::new(100, "fifo".parse().unwrap())).unwrap();
        engine.attach(Port(0), PortConfig::default()).unwrap();
        engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), 1 << 20)]).unwrap();
        let heard = Heard::default();
        let policies = Succession::new(Box::new(Recorder(Arc::clone(&heard))), 200);
        engine.policy = Box::new(Single { spec: "fifo".parse().unwrap(), policies, slots: 200 });
        let ask = |op, block: u64, stream| Request {
            volume: Volume(0),
            tenant: Tenant(0),
            op,
            offset: block * 4096,
            length: 4096,
            fua: false,
            stream: Stream(stream),
            token: 0,
        };
        assert!(engine.submit(0, ask(Op::Read, 1, 7)).unwrap().reply.is_none());
        engine.submit(0, ask(Op::Prefetch, 2, 8)).unwrap();
        let reply = engine.submit(0, ask(Op::Write, 3, 9)).unwrap().reply.expect("a write has its frames at once");
        let Outcome::Fill(fill) = reply.outcome else { panic!("frames to fill") };
        engine.commit(0, fill);
        while let Some(operation) = engine.next_operation(0) {
            engine.complete(0, operation, Ok(()));
        }
        let hit = engine.submit(0, ask(Op::Read, 1, 10)).unwrap().reply.expect("a hit");
        assert!(matches!(hit.outcome, Outcome::Data(_)));
        let expected = [(Kind::Read, 7), (Kind::Prefetch, 8), (Kind::Write, 9), (Kind::Read, 10)];
        assert_eq!(*heard.lock().unwrap(), expected);
    }
}
