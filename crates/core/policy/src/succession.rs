//! A policy that takes over from another one while the cache is in use, a few blocks at a time.
//!
//! The predecessor names its blocks by `shed`, worst first, and the successor receives them in this order, so that it
//! starts with the predecessor's order as far as its own rules allow. A block that is referenced meanwhile moves to the
//! successor at once. While the predecessor has blocks, it names the victims. Its ghosts are returned to the host,
//! because the interface passes no history of a ghost from one policy to another.
//!
//! **Invariant:** each slot that the host knows is known to exactly one of the two. The ghosts of both together are
//! limited to the predecessor's number of ghosts or the successor's limit, whichever is greater.

use crate::chosen::Chosen;
use crate::{Access, Block, Policy, Room, Slot};

/// The state of each slot in one policy: unknown, a ghost or a resident block. Two bits a slot.
struct Known {
    words: Vec<u64>,
    resident: u32,
    ghosts: u32,
}

const PER_WORD: usize = 32;
const GHOST: u64 = 1;
const RESIDENT: u64 = 3;
/// The lower bit of each slot of a word.
const LOWER: u64 = 0x5555_5555_5555_5555;

impl Known {
    fn new(slots: u32) -> Known {
        Known { words: vec![0; (slots as usize).div_ceil(PER_WORD)], resident: 0, ghosts: 0 }
    }

    fn grow(&mut self, slots: u32) {
        let words = (slots as usize).div_ceil(PER_WORD);
        self.words.resize(words.max(self.words.len()), 0);
    }

    #[inline(always)]
    fn get(&self, slot: Slot) -> u64 {
        self.words.get(slot.index() / PER_WORD).map_or(0, |word| word >> (2 * (slot.index() % PER_WORD)) & RESIDENT)
    }

    #[inline(always)]
    fn set(&mut self, slot: Slot, state: u64) {
        let (word, shift) = (&mut self.words[slot.index() / PER_WORD], 2 * (slot.index() % PER_WORD));
        let before = *word >> shift & RESIDENT;
        *word = *word & !(RESIDENT << shift) | state << shift;
        self.resident = self.resident + u32::from(state == RESIDENT) - u32::from(before == RESIDENT);
        self.ghosts = self.ghosts + u32::from(state == GHOST) - u32::from(before == GHOST);
    }

    fn check(&self) {
        let count = |of: fn(u64) -> u64| self.words.iter().map(|&word| of(word).count_ones()).sum::<u32>();
        assert_eq!(self.resident, count(|word| word & LOWER & word >> 1));
        assert_eq!(self.ghosts, count(|word| word & LOWER & !(word >> 1)));
    }
}

/// A policy that hands over its blocks.
struct Predecessor {
    policy: Box<dyn Policy + Send>,
    known: Known,
    room: Room,
}

impl Predecessor {
    /// Frees the slots that the policy no longer remembers, except `but`, which the caller uses. Returns whether that
    /// was among them.
    fn drain(&mut self, forgotten: &mut Vec<Slot>, but: Option<Slot>) -> bool {
        let mut among = false;
        while let Some(slot) = self.policy.take_forgotten() {
            self.known.set(slot, 0);
            match but == Some(slot) {
                true => among = true,
                false => forgotten.push(slot),
            }
        }
        among
    }

    /// Takes the worst block from it.
    fn give_worst(&mut self, forgotten: &mut Vec<Slot>) -> Slot {
        let victim = self.policy.shed();
        self.known.set(victim, GHOST);
        if !self.drain(forgotten, Some(victim)) {
            self.give(victim, forgotten);
        }
        victim
    }

    /// Takes `slot` from it.
    fn give(&mut self, slot: Slot, forgotten: &mut Vec<Slot>) {
        self.policy.remove(slot);
        self.known.set(slot, 0);
        self.drain(forgotten, None);
    }

    /// Takes up to `most` ghosts from it, the oldest first. Returns how many.
    fn give_ghosts(&mut self, most: u32, forgotten: &mut Vec<Slot>) -> u32 {
        let ghosts = self.known.ghosts;
        if ghosts > 0 {
            self.policy.resize(Room { ghosts: ghosts.saturating_sub(most), ..self.room });
            self.drain(forgotten, None);
        }
        ghosts - self.known.ghosts
    }
}

/// A policy and, temporarily, its predecessor.
pub struct Succession {
    policy: Box<dyn Policy + Send>,
    known: Known,
    room: Room,
    before: Option<Box<Predecessor>>,
    /// Slots that the host has not taken back yet and that neither policy knows.
    forgotten: Vec<Slot>,
    /// A predecessor that has handed over everything.
    retired: Option<Box<dyn Policy + Send>>,
}

impl Succession {
    /// `policy`, which must have no blocks yet, in a host with this `room`.
    pub fn new(policy: Box<dyn Policy + Send>, room: Room) -> Succession {
        Succession { policy, known: Known::new(room.slots), room, before: None, forgotten: Vec::new(), retired: None }
    }

    /// From now on `policy`, which must have no blocks yet, decides in a host with this `room`. Takes constant time
    /// whatever the size of the cache; [`step`](Succession::step) does the rest.
    ///
    /// # Panics
    /// If the previous policy has not handed over everything yet.
    pub fn succeed(&mut self, policy: Box<dyn Policy + Send>, room: Room) {
        assert!(self.before.is_none(), "one after the other");
        let policy = std::mem::replace(&mut self.policy, policy);
        let known = std::mem::replace(&mut self.known, Known::new(room.slots));
        let mut before = Predecessor { policy, known, room: std::mem::replace(&mut self.room, room) };
        before.drain(&mut self.forgotten, None);
        self.before = Some(Box::new(before));
    }

    /// The blocks that either has.
    pub(crate) fn resident(&self) -> u32 {
        self.known.resident + self.before.as_ref().map_or(0, |before| before.known.resident)
    }

    /// Whether `slot` is a ghost or a block of either.
    pub(crate) fn knows(&self, slot: Slot) -> bool {
        self.known.get(slot) != 0 || self.before.as_ref().is_some_and(|before| before.known.get(slot) != 0)
    }

    /// Whether the policy has not taken over everything yet.
    pub fn is_pending(&self) -> bool {
        self.before.is_some()
    }

    /// Continues to take over, at most `most` blocks or ghosts. `access` returns a reference to a resident block as it
    /// could have been at its insertion. Returns whether more remains to be done.
    pub fn step(&mut self, most: u32, access: &mut dyn FnMut(Slot) -> Access) -> bool {
        let Some(before) = &mut self.before else { return false };
        let mut left = most.saturating_sub(before.give_ghosts(most, &mut self.forgotten));
        while left > 0 && before.known.ghosts == 0 && before.known.resident > 0 {
            let slot = before.give_worst(&mut self.forgotten);
            self.known.set(slot, RESIDENT);
            self.policy.insert(slot, &access(slot));
            left -= 1;
        }
        if before.known.ghosts + before.known.resident == 0 {
            self.retired = self.before.take().map(|before| before.policy);
        }
        self.before.is_some()
    }

    /// A predecessor that has handed over everything. Dropping it takes time in proportion to its arrays.
    pub fn take_retired(&mut self) -> Option<Box<dyn Policy + Send>> {
        self.retired.take()
    }

    /// Takes a ghost from the predecessor before the policy creates one.
    fn make_way(&mut self) {
        if let Some(before) = &mut self.before {
            before.give_ghosts(1, &mut self.forgotten);
        }
    }

    /// The victim of the predecessor, as long as it has blocks.
    fn shed_before(&mut self) -> Option<Slot> {
        let before = self.before.as_mut().filter(|before| before.known.resident > 0)?;
        let victim = before.give_worst(&mut self.forgotten);
        self.forgotten.push(victim);
        Some(victim)
    }

    /// Takes `slot` from the predecessor. Returns whether the predecessor knew it.
    fn take(&mut self, slot: Slot) -> bool {
        match &mut self.before {
            Some(before) if before.known.get(slot) != 0 => {
                before.give(slot, &mut self.forgotten);
                true
            }
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn hit_while_pending(&mut self, slot: Slot, access: &Access) {
        if self.take(slot) {
            self.known.set(slot, RESIDENT);
            self.policy.insert(slot, access);
        } else {
            self.policy.hit(slot, access);
        }
    }
}

impl Policy for Succession {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        if self.before.is_some() {
            return self.hit_while_pending(slot, access);
        }
        self.policy.hit(slot, access);
    }

    fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
        // First, because the slot could otherwise be forgotten for the victim.
        let taken = self.take(incoming);
        if let Some(victim) = self.shed_before() {
            return Some(victim);
        }
        self.make_way();
        match self.policy.evict(incoming, access) {
            Some(victim) => {
                self.known.set(victim, GHOST);
                Some(victim)
            }
            None => {
                self.forgotten.extend(taken.then_some(incoming));
                None
            }
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.take(slot);
        self.known.set(slot, RESIDENT);
        self.policy.insert(slot, access);
    }

    fn go_on(&mut self, access: &Access, block: &dyn Fn(Slot) -> Block) {
        self.policy.go_on(access, block);
    }

    fn shed(&mut self) -> Slot {
        if let Some(victim) = self.shed_before() {
            return victim;
        }
        self.make_way();
        let victim = self.policy.shed();
        self.known.set(victim, GHOST);
        victim
    }

    fn resize(&mut self, room: Room) {
        self.room = room;
        self.known.grow(room.slots);
        self.policy.resize(room);
    }

    fn slots_most(&self) -> u32 {
        self.policy.slots_most()
    }

    fn remove(&mut self, slot: Slot) {
        if !self.take(slot) {
            self.known.set(slot, 0);
            self.policy.remove(slot);
        }
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        if let Some(slot) = self.forgotten.pop() {
            return Some(slot);
        }
        let slot = self.policy.take_forgotten()?;
        self.known.set(slot, 0);
        Some(slot)
    }

    fn check(&self) {
        self.policy.check();
        self.known.check();
        if let Some(before) = &self.before {
            before.policy.check();
            before.known.check();
            let words = self.known.words.iter().zip(&before.known.words);
            assert!(words.into_iter().all(|(one, other)| one & other & LOWER == 0), "both know a slot");
        }
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.policy.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.policy.approach(slot);
    }

    fn chosen(&self) -> Option<Chosen> {
        self.policy.chosen()
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        self.policy.gauges(report);
    }
}
