//! A place for blocks that were prefetched and not referenced yet, the *promises*, beside a policy.
//!
//! A policy that distrusts new blocks evicts a block that was read ahead before its first use; a policy that trusts them treats a guess as a reference. Therefore promises wait
//! beside the policy, first in, first out. At its first use, a promise enters the policy with a reference.
//!
//! * The area of promises grows as needed, up to a quarter of a full cache. The policy's capacity is the rest.
//! * If there are fewer promises than the area has room for, the blocks that the policy evicted last stay in it. A reference to one of them is a hit for the host, and a
//!   reference to a ghost for the policy.
//! * A promise expires if half as many blocks as the cache holds entered the policy since it came. Expired promises are evicted first.
//!
//! If the host prefetches nothing, the policy has the whole cache, and the area takes no memory.
//!
//! **Invariant:** a resident block is in the policy or in the area, and the policy has at most its capacity. A block in the area can also be a ghost of the policy; such a
//! ghost is not reported as forgotten while it is resident.

use crate::chosen::Chosen;
use crate::list::{Links, List};
use crate::{Access, Block, Kind, Policy, Room, Slot, Succession};

/// The area has at most one in `SHARE` blocks of a full cache.
const SHARE: u32 = 4;

/// The area grows and shrinks by at most this many blocks at a time.
const STEP: u32 = 64;

/// A block beside the policy.
#[derive(Clone, Copy, Default)]
struct Beside {
    slot: u32,
    promise: bool,
    /// Whether the policy knows it, as a ghost.
    ghost: bool,
    /// Value of `Area::entered` when it came.
    since: u64,
}

/// The blocks beside the policy, each with a number of its own.
struct Area {
    /// By slot, its number and one; 0 for all others.
    numbers: Vec<u32>,
    links: Links<Beside>,
    free: Vec<u32>,
    /// The latest first.
    promises: List,
    /// Blocks that the policy evicted, and expired promises. The last one is evicted next.
    parked: List,
    /// Blocks of the cache that belong to the area.
    size: u32,
    /// The size that is approached in steps.
    goal: u32,
    /// Largest number of promises since `adjusted`.
    most: u32,
    /// Number of blocks that entered the policy.
    entered: u64,
    /// Value of `entered` when `goal` was last reduced.
    adjusted: u64,
}

impl Area {
    fn new(room: Room) -> Area {
        let (links, [promises, parked]) = Links::with_own(0);
        let numbers = vec![0; room.slots as usize];
        Area { numbers, links, free: Vec::new(), promises, parked, size: 0, goal: 0, most: 0, entered: 0, adjusted: 0 }
    }

    /// The number of `slot` if it is here.
    #[inline]
    fn find(&self, slot: Slot) -> Option<Slot> {
        self.numbers[slot.index()].checked_sub(1).map(Slot)
    }

    fn add(&mut self, beside: Beside) {
        if self.free.is_empty() {
            let count = self.links.owns().count() as u32;
            let more = count + count.clamp(16, 4096);
            self.links.grow(more, [&mut self.promises, &mut self.parked]);
            self.free.extend((count..more).rev());
        }
        let number = Slot(self.free.pop().expect("there are more now"));
        *self.links.own_mut(number) = beside;
        self.numbers[beside.slot as usize] = number.0 + 1;
        match beside.promise {
            true => self.promises.push_front(&mut self.links, number),
            false => self.parked.push_front(&mut self.links, number),
        }
        self.most = self.most.max(self.promises.len());
    }

    /// Takes out the block of `number`.
    fn take(&mut self, number: Slot) -> Beside {
        let beside = *self.links.own(number);
        match beside.promise {
            true => self.promises.unlink(&mut self.links, number),
            false => self.parked.unlink(&mut self.links, number),
        }
        self.numbers[beside.slot as usize] = 0;
        self.free.push(number.0);
        beside
    }

    /// Expires promises that came before `since`, at most two in each call.
    fn expire(&mut self, since: u64) {
        for _ in 0..2 {
            let Some(number) = self.promises.back(&self.links) else { return };
            if self.links.own(number).since >= since {
                return;
            }
            self.promises.unlink(&mut self.links, number);
            self.links.own_mut(number).promise = false;
            self.parked.push_back(&mut self.links, number);
        }
    }
}

/// A policy, and promises beside it.
pub struct Promises {
    policy: Succession,
    room: Room,
    /// Whether prefetched blocks wait here; if not, they enter the policy at once.
    waits: bool,
    area: Option<Box<Area>>,
    /// Slots that neither the policy nor the area uses any more.
    forgotten: Vec<Slot>,
}

impl Promises {
    /// `policy` in a host with this `room`. Prefetched blocks wait beside the policy, or enter it at once, as in published systems.
    pub fn new(policy: Succession, room: Room, waits: bool) -> Promises {
        Promises { policy, room, waits, area: None, forgotten: Vec::new() }
    }

    /// Whether prefetched blocks wait beside the policy, so that their first use is a reference.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The room of the host.
    pub fn room(&self) -> Room {
        self.room
    }

    /// The policy, and its predecessor.
    pub fn policy(&self) -> &Succession {
        &self.policy
    }

    /// As `policy`; a change of its room is one of the host's.
    pub fn policy_mut(&mut self) -> &mut Succession {
        &mut self.policy
    }

    /// From now on `policy` decides, which must have no blocks yet, in a host with this `room`.
    ///
    /// # Panics
    /// If the previous policy has not handed over everything yet.
    pub fn succeed(&mut self, mut policy: Box<dyn Policy + Send>, room: Room) {
        self.room = room;
        if let Some(area) = &mut self.area {
            let slots = area.numbers.len().max(room.slots as usize);
            area.numbers.resize(slots, 0);
        }
        policy.resize(self.inner());
        self.policy.succeed(policy, self.inner());
    }

    /// The room of the policy.
    fn inner(&self) -> Room {
        let size = self.area.as_ref().map_or(0, |area| area.size);
        Room { capacity: self.room.capacity - size, ..self.room }
    }

    /// Maximum number of promises in a full cache, if they wait.
    pub fn most(&self) -> u32 {
        self.room.capacity / SHARE
    }

    /// Takes the slots that the policy forgot, except those of blocks in the area.
    fn drain(&mut self) {
        while let Some(slot) = self.policy.take_forgotten() {
            match self.area.as_mut().and_then(|area| Some((area.find(slot)?, area))) {
                Some((number, area)) => area.links.own_mut(number).ghost = false,
                None => self.forgotten.push(slot),
            }
        }
    }

    /// Keeps `slot`, which the policy has just evicted, in the area.
    fn park(&mut self, slot: Slot) {
        let area = self.area.as_mut().expect("a policy alone has all blocks");
        area.add(Beside { slot: slot.0, promise: false, ghost: true, since: 0 });
        self.drain();
    }

    /// Evicts a block from the area, if it has any.
    fn leave(&mut self) -> Option<Slot> {
        let area = self.area.as_mut()?;
        let number = area.parked.back(&area.links).or_else(|| area.promises.back(&area.links))?;
        let Beside { slot, ghost, .. } = area.take(number);
        let slot = Slot(slot);
        self.forgotten.extend((!ghost).then_some(slot));
        Some(slot)
    }

    /// Makes room in the policy for `slot`, which is inserted next.
    fn make_room(&mut self, slot: Slot, access: &Access) {
        if self.policy.resident() >= self.inner().capacity {
            let victim = self.policy.evict(slot, access).expect("a policy of the registry keeps what comes in");
            self.park(victim);
        }
    }

    fn enter(&mut self, slot: Slot, access: &Access) {
        self.policy.insert(slot, access);
        self.area.iter_mut().for_each(|area| area.entered += 1);
    }

    /// Before a block enters the policy: expires promises, and shrinks the area if it was larger than needed.
    fn adjust(&mut self) {
        let half = u64::from(self.room.capacity / 2);
        let Some(area) = &mut self.area else { return };
        area.expire(area.entered.saturating_sub(half));
        if area.entered - area.adjusted > half {
            area.adjusted = area.entered;
            area.goal = area.size.min(area.most.max(area.size / 2));
            area.most = area.promises.len();
        }
        let size = area.size.min(area.goal.max(area.size.saturating_sub(STEP)));
        self.set_size(size);
    }

    /// Sets the size of the area to `size` blocks.
    fn set_size(&mut self, size: u32) {
        let area = self.area.as_mut().expect("it has a size");
        if std::mem::replace(&mut area.size, size) != size {
            self.fit();
        }
    }

    /// Gives the policy its room.
    fn fit(&mut self) {
        let room = self.inner();
        self.drain();
        self.policy.resize(room);
        self.drain();
        while self.area.is_some() && self.policy.resident() > room.capacity {
            let victim = self.policy.shed();
            self.park(victim);
        }
    }

    /// Before `incoming` enters the full cache: grows the area by up to `more` promises if it holds nothing but promises.
    fn widen(&mut self, incoming: Slot, more: u32) {
        let most = self.most();
        let area = self.area.as_mut().expect("there are promises");
        let size = (area.promises.len() + more).min(most);
        if area.parked.is_empty() && size > area.size {
            area.goal = size;
            self.set_size(size);
        }
        self.keep(incoming);
    }

    /// The host still uses the slot of `incoming`, even if the policy has forgotten it.
    fn keep(&mut self, incoming: Slot) {
        self.drain();
        self.forgotten.retain(|&slot| slot != incoming);
    }
}

impl Policy for Promises {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        match self.area.as_ref().and_then(|area| area.find(slot)) {
            None => self.policy.hit(slot, access),
            Some(number) => {
                self.adjust();
                self.drain();
                self.area.as_mut().expect("it is there").take(number);
                self.make_room(slot, access);
                self.enter(slot, access);
            }
        }
    }

    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        let room = self.room;
        if access.kind == Kind::Prefetch && self.waits {
            self.area.get_or_insert_with(|| Box::new(Area::new(room)));
            self.widen(incoming, 1 + (room.capacity / 64).min(STEP));
            let victim = self.shed();
            self.keep(incoming);
            return Some(victim);
        }
        if self.area.is_none() {
            return self.policy.evict(incoming, access);
        }
        self.adjust();
        self.widen(incoming, 0);
        self.make_room(incoming, access);
        Some(self.leave().expect("the policy has less than all blocks"))
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        if access.kind == Kind::Prefetch && self.waits {
            let room = self.room;
            let area = self.area.get_or_insert_with(|| Box::new(Area::new(room)));
            let (ghost, since) = (self.policy.knows(slot), area.entered);
            return area.add(Beside { slot: slot.0, promise: true, ghost, since });
        }
        if self.area.is_some() {
            self.make_room(slot, access);
        }
        self.enter(slot, access);
    }

    fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        self.policy.go_on(access, block);
    }

    fn shed(&mut self) -> Slot {
        self.leave().unwrap_or_else(|| self.policy.shed())
    }

    fn resize(&mut self, room: Room) {
        self.room = room;
        let most = self.most();
        if let Some(area) = &mut self.area {
            let slots = area.numbers.len().max(room.slots as usize);
            area.numbers.resize(slots, 0);
            area.size = area.size.min(most);
            area.goal = area.goal.min(most);
        }
        self.fit();
    }

    fn slots_most(&self) -> u32 {
        self.policy.slots_most()
    }

    fn remove(&mut self, slot: Slot) {
        self.drain();
        let beside = self.area.as_mut().and_then(|area| Some(area.take(area.find(slot)?)));
        if beside.is_none_or(|beside| beside.ghost) {
            self.policy.remove(slot);
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        if self.area.is_some() {
            self.drain();
        }
        self.forgotten.pop().or_else(|| self.policy.take_forgotten())
    }

    fn check(&self) {
        self.policy.check();
        let Some(area) = &self.area else { return };
        assert!(self.policy.resident() <= self.inner().capacity, "more blocks than the policy has room for");
        let (promises, parked) = (area.promises.checked(&area.links), area.parked.checked(&area.links));
        assert!(promises.iter().all(|&number| area.links.own(number).promise));
        for &number in promises.iter().chain(&parked) {
            let Beside { slot, ghost, .. } = *area.links.own(number);
            assert_eq!(area.find(Slot(slot)), Some(number));
            assert!(!ghost || self.policy.knows(Slot(slot)), "a ghost that the policy does not know");
        }
        let used = area.numbers.iter().filter(|&&number| number > 0).count();
        assert_eq!(used, promises.len() + parked.len());
        assert_eq!(used + area.free.len(), area.links.owns().count());
    }

    fn chosen(&self) -> Option<Chosen> {
        self.policy.chosen()
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policy.gauges(report);
        if let Some(area) = &self.area {
            report("promises", area.promises.len().into());
            report("parked", area.parked.len().into());
        }
    }
}
