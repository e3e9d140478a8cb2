//! Doubly linked lists over slots, like `nigh_policy::list`, but of memory that is initially zero: a cache of any size
//! allocates it without touching it, in the call with the first hint of a tenant.

use nigh_policy::Slot;

/// The links of all slots for one family of lists; a slot is in at most one of them, once.
pub(crate) struct Chains {
    /// By slot, the neighbours towards the front and the back: their numbers plus one, or 0.
    links: Vec<[u32; 2]>,
}

/// One list of a family. Every operation takes the family; a slot passed to it must be in this list, or in none if it
/// is to be added.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chain {
    /// The slots at the ends, encoded as in the links.
    front: u32,
    back: u32,
    len: u32,
}

fn slot(link: u32) -> Option<Slot> {
    link.checked_sub(1).map(Slot)
}

fn link(slot: Option<Slot>) -> u32 {
    slot.map_or(0, |slot| slot.0 + 1)
}

impl Chains {
    /// For slots `0..slots`.
    pub(crate) fn new(slots: u32) -> Chains {
        Chains { links: vec![[0; 2]; slots as usize] }
    }

    /// From now on for slots `0..slots`, at least as many as before.
    pub(crate) fn grow(&mut self, slots: u32) {
        self.links.resize(slots as usize, [0; 2]);
    }
}

impl Chain {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<Slot> {
        slot(self.front)
    }

    pub(crate) fn back(&self) -> Option<Slot> {
        slot(self.back)
    }

    /// The slot after `at`, nearer to the back.
    pub(crate) fn after(&self, chains: &Chains, at: Slot) -> Option<Slot> {
        slot(chains.links[at.index()][1])
    }

    /// The slot before `at`, nearer to the front.
    pub(crate) fn before(&self, chains: &Chains, at: Slot) -> Option<Slot> {
        slot(chains.links[at.index()][0])
    }

    pub(crate) fn push_front(&mut self, chains: &mut Chains, at: Slot) {
        self.insert(chains, None, at, self.front());
    }

    pub(crate) fn push_back(&mut self, chains: &mut Chains, at: Slot) {
        self.insert(chains, self.back(), at, None);
    }

    /// Adds `at` directly before `next`, which is in the list.
    pub(crate) fn insert_before(&mut self, chains: &mut Chains, at: Slot, next: Slot) {
        self.insert(chains, self.before(chains, next), at, Some(next));
    }

    fn insert(&mut self, chains: &mut Chains, front: Option<Slot>, at: Slot, back: Option<Slot>) {
        chains.links[at.index()] = [link(front), link(back)];
        match front {
            Some(front) => chains.links[front.index()][1] = at.0 + 1,
            None => self.front = at.0 + 1,
        }
        match back {
            Some(back) => chains.links[back.index()][0] = at.0 + 1,
            None => self.back = at.0 + 1,
        }
        self.len += 1;
    }

    pub(crate) fn unlink(&mut self, chains: &mut Chains, at: Slot) {
        let [front, back] = std::mem::take(&mut chains.links[at.index()]);
        match slot(front) {
            Some(front) => chains.links[front.index()][1] = back,
            None => self.front = back,
        }
        match slot(back) {
            Some(back) => chains.links[back.index()][0] = front,
            None => self.back = front,
        }
        self.len -= 1;
    }

    /// Makes `at`, which is in the list, the first.
    pub(crate) fn move_to_front(&mut self, chains: &mut Chains, at: Slot) {
        if self.front() != Some(at) {
            self.unlink(chains, at);
            self.push_front(chains, at);
        }
    }

    /// Checks that both directions of every link agree and that `len` is right, and returns the slots from front to
    /// back.
    pub(crate) fn checked(&self, chains: &Chains) -> Vec<Slot> {
        let slots: Vec<Slot> = std::iter::successors(self.front(), |&at| self.after(chains, at)).collect();
        let back: Vec<Slot> = std::iter::successors(self.back(), |&at| self.before(chains, at)).collect();
        assert!(slots.iter().eq(back.iter().rev()), "the directions of a list disagree");
        assert_eq!(slots.len(), self.len as usize, "the length of a list is wrong");
        slots
    }
}
