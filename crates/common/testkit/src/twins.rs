//! The fast and the small variant of a policy, which must behave alike.

use std::any::type_name;

use nigh_policy::{Access, Policy, Room, Setup, Slot, Spec, SpecError, Visit, visit};

type Boxed = Box<dyn Policy + Send>;

/// Creates a policy's variant, and identifies it.
struct Variant<const SMALL: bool>;

impl<const SMALL: bool> Visit for Variant<SMALL> {
    type Out = (Boxed, &'static str);
    const SMALL: bool = SMALL;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Out {
        (Box::new(policy), type_name::<P>())
    }
}

/// The policy `spec`; if it has two variants, both, each checked against the other.
pub(crate) fn build(spec: &Spec, setup: &Setup) -> Result<Boxed, SpecError> {
    let (fast, name) = visit(spec, setup, Variant::<false>)?;
    let (small, small_name) = visit(spec, setup, Variant::<true>)?;
    Ok(if name == small_name { fast } else { Box::new(Twins { fast, small }) })
}

struct Twins {
    fast: Boxed,
    small: Boxed,
}

impl Policy for Twins {
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.fast.hit(slot, access);
        self.small.hit(slot, access);
    }

    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        let victim = self.fast.evict(incoming, access);
        assert_eq!(self.small.evict(incoming, access), victim, "the small variant evicts another block");
        victim
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.fast.insert(slot, access);
        self.small.insert(slot, access);
    }

    fn shed(&mut self) -> Slot {
        let victim = self.fast.shed();
        assert_eq!(self.small.shed(), victim, "the small variant sheds another block");
        victim
    }

    fn resize(&mut self, room: Room) {
        self.fast.resize(room);
        self.small.resize(room);
    }

    fn slots_most(&self) -> u32 {
        self.fast.slots_most().min(self.small.slots_most())
    }

    fn remove(&mut self, slot: Slot) {
        self.fast.remove(slot);
        self.small.remove(slot);
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        let forgotten = self.fast.take_forgotten();
        assert_eq!(self.small.take_forgotten(), forgotten, "the small variant forgets another block");
        forgotten
    }

    fn check(&self) {
        self.fast.check();
        self.small.check();
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        let (mut fast, mut small) = (Vec::new(), Vec::new());
        self.fast.gauges(&mut |name, value| fast.push((name, value)));
        self.small.gauges(&mut |name, value| small.push((name, value)));
        assert_eq!(fast, small, "the variants' gauges");
        fast.into_iter().for_each(|(name, value)| report(name, value));
    }
}
