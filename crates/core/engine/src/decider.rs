//! The decision which block leaves: by one policy, or by tenants and their hints.

use nigh_control::{Index, LruSp};
use nigh_policy::{
    Access, Block, Chosen, Kind, Policy, Promises, Room, Setup, Slot, Spec, SpecError, Stream, Succession, Tenant,
    build,
};

use crate::error::ConfigError;
use crate::unified::Unified;

/// Decides which block leaves. A single policy treats all tenants as tenants without hints.
pub(crate) trait Decider: Policy + Send {
    /// From now on `next` decides, in a host with this `room`; `step` does the rest.
    ///
    /// # Panics
    /// If it keeps its policy.
    fn succeed(&mut self, next: Successor, room: Room);

    /// Whether `step` can do something.
    fn is_pending(&self) -> bool;

    /// Continues a change, for at most `most` blocks. Returns whether there is more to do. `tick` is later than all
    /// references.
    fn step(&mut self, most: u32, tick: u64, index: &dyn Index) -> bool;

    /// A replaced policy, to be dropped when there is time for it.
    fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        None
    }

    /// Maximum number of prefetched blocks that wait for their first use. Read-ahead shortens its windows to that.
    fn room_ahead(&self) -> u32 {
        u32::MAX
    }

    /// Whether the first use of a prefetched block is a reference.
    fn counts_first_use(&self) -> bool {
        self.tenants().is_some()
    }

    /// Allocation among tenants, if that decides.
    fn tenants(&self) -> Option<&LruSp> {
        None
    }

    /// As `tenants`.
    fn tenants_mut(&mut self) -> Option<&mut LruSp> {
        None
    }

    /// Unified level-aware caching, if that decides, for levels, too.
    fn unified(&self) -> Option<&Unified> {
        None
    }

    /// As `unified`.
    fn unified_mut(&mut self) -> Option<&mut Unified> {
        None
    }
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

    /// The most slots that the policy can number.
    pub(crate) fn slots_most(&self) -> u32 {
        self.policy.slots_most()
    }
}

/// One policy, for all tenants.
pub(crate) struct Single {
    policies: Promises,
}

impl Single {
    /// The policy `spec`. Prefetched blocks wait beside it, or enter it at once.
    pub(crate) fn new(spec: &Spec, setup: &Setup, waits: bool) -> Result<Single, SpecError> {
        let Setup { capacity, slots, ghosts, .. } = *setup;
        let room = Room { capacity, slots, ghosts };
        let policies = Succession::new(build(spec, setup)?, room);
        Ok(Single { policies: Promises::new(policies, room, waits) })
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

    fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        self.policies.go_on(access, block);
    }

    fn shed(&mut self) -> Slot {
        self.policies.shed()
    }

    fn resize(&mut self, room: Room) {
        // Possibly fewer slots than the policy was created for.
        self.policies.resize(Room { slots: room.slots.max(self.policies.room().slots), ..room });
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

    fn chosen(&self) -> Option<Chosen> {
        self.policies.chosen()
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policies.gauges(report);
    }
}

impl Decider for Single {
    fn succeed(&mut self, next: Successor, room: Room) {
        self.policies.succeed(next.policy, Room { slots: room.slots.max(next.slots), ..room });
    }

    fn is_pending(&self) -> bool {
        self.policies.policy().is_pending()
    }

    fn step(&mut self, most: u32, tick: u64, index: &dyn Index) -> bool {
        let (tenant, stream, kind) = (Tenant(0), Stream(0), Kind::Read);
        let access = &mut |slot| Access { block: index.block(slot), tenant, stream, kind, tick };
        self.policies.policy_mut().step(most, access)
    }

    fn room_ahead(&self) -> u32 {
        if self.policies.waits() { self.policies.most() } else { u32::MAX }
    }

    fn counts_first_use(&self) -> bool {
        self.policies.waits()
    }

    fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        self.policies.policy_mut().take_retired()
    }
}

impl Decider for LruSp {
    fn succeed(&mut self, next: Successor, room: Room) {
        self.succeed_in(room);
        self.set_policy(next.spec.into()).expect("it was tried out");
    }

    fn is_pending(&self) -> bool {
        LruSp::is_pending(self)
    }

    fn step(&mut self, most: u32, _tick: u64, index: &dyn Index) -> bool {
        LruSp::step(self, most, index)
    }

    fn tenants(&self) -> Option<&LruSp> {
        Some(self)
    }

    fn tenants_mut(&mut self) -> Option<&mut LruSp> {
        Some(self)
    }
}

impl Decider for Unified {
    fn succeed(&mut self, _next: Successor, _room: Room) {
        unreachable!("it keeps its policy");
    }

    fn is_pending(&self) -> bool {
        self.has_lost_levels()
    }

    fn step(&mut self, most: u32, _tick: u64, _index: &dyn Index) -> bool {
        self.empty_lost_levels(most);
        self.is_pending()
    }

    fn unified(&self) -> Option<&Unified> {
        Some(self)
    }

    fn unified_mut(&mut self) -> Option<&mut Unified> {
        Some(self)
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
        let room = Room { capacity: 100, slots: 200, ghosts: 0 };
        let policies = Succession::new(Box::new(Recorder(Arc::clone(&heard))), room);
        engine.policy = Box::new(Single { policies: Promises::new(policies, room, true) });
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
        engine.submit(0, ask(Op::Read, 2, 11)).unwrap();
        // The first use of a prefetched block is its first reference.
        let expected = [(Kind::Read, 7), (Kind::Write, 9), (Kind::Read, 10), (Kind::Read, 11)];
        assert_eq!(*heard.lock().unwrap(), expected);
    }
}
