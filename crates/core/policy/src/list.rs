//! Intrusive doubly linked lists over slots, shared by all policies.
//!
//! One [`Links`] holds the links of every slot for a family of lists; a slot is in at most one of them, once. Each list
//! of the family is a ring through a sentinel, so linking and unlinking never branch.

use crate::Slot;
use crate::prefetch::prefetch;

#[derive(Clone, Copy)]
struct Link<T> {
    /// Towards the back.
    next: u32,
    /// Towards the front.
    prev: u32,
    own: T,
}

/// The links of all slots for one family of lists: 8 bytes a slot, and the data that its owner keeps in the same cache
/// line.
pub struct Links<T = ()> {
    links: Vec<Link<T>>,
    slots: u32,
}

impl Links {
    /// Links for slots `0..slots` in a family of `N` lists, and the lists, all empty.
    pub fn new<const N: usize>(slots: u32) -> (Links, [List; N]) {
        Links::with_own(slots)
    }
}

impl<T: Copy + Default> Links<T> {
    /// As [`new`](Links::new), for an owner that keeps a `T` of each slot.
    pub fn with_own<const N: usize>(slots: u32) -> (Links<T>, [List; N]) {
        let sentinels = slots..slots + N as u32;
        let mut links = vec![Link { next: 0, prev: 0, own: T::default() }; slots as usize];
        links.extend(sentinels.map(|at| Link { next: at, prev: at, own: T::default() }));
        let lists = std::array::from_fn(|i| List { sentinel: slots + i as u32, len: 0 });
        (Links { links, slots }, lists)
    }

    /// Makes room for slots `0..slots`, at least as many as before. `lists` are all lists of the family.
    ///
    /// # Panics
    /// If a list is missing.
    pub fn grow<'a>(&mut self, slots: u32, lists: impl IntoIterator<Item = &'a mut List>) {
        if slots == self.slots {
            return;
        }
        let sentinels: Vec<Link<T>> = self.links.drain(self.slots as usize..).collect();
        let mut left = sentinels.len();
        self.links.resize(slots as usize + left, Link { next: 0, prev: 0, own: T::default() });
        for list in lists {
            let number = list.sentinel - self.slots;
            let Link { next, prev, .. } = sentinels[number as usize];
            list.sentinel = slots + number;
            let (front, back) = if list.is_empty() { (list.sentinel, list.sentinel) } else { (next, prev) };
            self.join(list.sentinel, front);
            self.join(back, list.sentinel);
            left -= 1;
        }
        assert_eq!(left, 0, "lists of the family that are missing");
        self.slots = slots;
    }

    /// One more list of the family, empty.
    pub fn list(&mut self) -> List {
        let sentinel = self.links.len() as u32;
        self.links.push(Link { next: sentinel, prev: sentinel, own: T::default() });
        List { sentinel, len: 0 }
    }

    /// The owner's data of `slot`.
    #[inline(always)]
    pub fn own(&self, slot: Slot) -> &T {
        &self.links[slot.index()].own
    }

    /// The owner's data of `slot`.
    #[inline(always)]
    pub fn own_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.links[slot.index()].own
    }

    /// The owner's data of every slot, by number.
    pub fn owns(&self) -> impl Iterator<Item = &T> {
        self.links[..self.slots as usize].iter().map(|link| &link.own)
    }

    /// Loads the links of `slot` into the processor's cache.
    #[inline(always)]
    pub fn warm(&self, slot: Slot) {
        prefetch(&self.links, slot.index());
    }

    /// Loads the links of the neighbours of `slot`, whose own links are already loaded, into the processor's cache.
    #[inline(always)]
    pub fn approach(&self, slot: Slot) {
        let Link { next, prev, .. } = self.links[slot.index()];
        prefetch(&self.links, next as usize);
        prefetch(&self.links, prev as usize);
    }

    #[inline(always)]
    fn slot(&self, link: u32) -> Option<Slot> {
        (link < self.slots).then_some(Slot(link))
    }

    #[inline(always)]
    fn join(&mut self, front: u32, back: u32) {
        self.links[front as usize].next = back;
        self.links[back as usize].prev = front;
    }

    #[inline(always)]
    fn between(&mut self, front: u32, slot: u32, back: u32) {
        let link = &mut self.links[slot as usize];
        (link.next, link.prev) = (back, front);
        self.links[front as usize].next = slot;
        self.links[back as usize].prev = slot;
    }
}

/// One list of a family. Every operation takes the family's [`Links`]; a slot passed to it must be in this list, or in
/// none if it is to be added.
pub struct List {
    sentinel: u32,
    len: u32,
}

impl List {
    /// Slots in the list.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no slot is in the list.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first slot.
    #[inline(always)]
    pub fn front<T: Copy + Default>(&self, links: &Links<T>) -> Option<Slot> {
        links.slot(links.links[self.sentinel as usize].next)
    }

    /// The last slot.
    #[inline(always)]
    pub fn back<T: Copy + Default>(&self, links: &Links<T>) -> Option<Slot> {
        links.slot(links.links[self.sentinel as usize].prev)
    }

    /// The slot after `slot`, nearer to the back.
    #[inline(always)]
    pub fn after<T: Copy + Default>(&self, links: &Links<T>, slot: Slot) -> Option<Slot> {
        links.slot(links.links[slot.index()].next)
    }

    /// The slot before `slot`, nearer to the front.
    #[inline(always)]
    pub fn before<T: Copy + Default>(&self, links: &Links<T>, slot: Slot) -> Option<Slot> {
        links.slot(links.links[slot.index()].prev)
    }

    /// Adds `slot` as the first.
    #[inline(always)]
    pub fn push_front<T: Copy + Default>(&mut self, links: &mut Links<T>, slot: Slot) {
        let first = links.links[self.sentinel as usize].next;
        links.between(self.sentinel, slot.0, first);
        self.len += 1;
    }

    /// Adds `slot` as the last.
    #[inline(always)]
    pub fn push_back<T: Copy + Default>(&mut self, links: &mut Links<T>, slot: Slot) {
        let last = links.links[self.sentinel as usize].prev;
        links.between(last, slot.0, self.sentinel);
        self.len += 1;
    }

    /// Adds `slot` directly before `next`, which is in the list.
    #[inline(always)]
    pub fn insert_before<T: Copy + Default>(&mut self, links: &mut Links<T>, slot: Slot, next: Slot) {
        let prev = links.links[next.index()].prev;
        links.between(prev, slot.0, next.0);
        self.len += 1;
    }

    /// Takes `slot` out.
    #[inline(always)]
    pub fn unlink<T: Copy + Default>(&mut self, links: &mut Links<T>, slot: Slot) {
        let Link { next, prev, .. } = links.links[slot.index()];
        links.join(prev, next);
        self.len -= 1;
    }

    /// Makes `slot`, which is in the list, the first.
    #[inline(always)]
    pub fn move_to_front<T: Copy + Default>(&mut self, links: &mut Links<T>, slot: Slot) {
        let Link { next, prev, .. } = links.links[slot.index()];
        if prev == self.sentinel {
            return;
        }
        links.join(prev, next);
        let first = links.links[self.sentinel as usize].next;
        links.between(self.sentinel, slot.0, first);
    }

    /// Takes the first slot out.
    #[inline(always)]
    pub fn pop_front<T: Copy + Default>(&mut self, links: &mut Links<T>) -> Option<Slot> {
        let slot = self.front(links)?;
        self.unlink(links, slot);
        // The new first slot is popped next, which touches the slot after it.
        let first = links.links[self.sentinel as usize].next;
        prefetch(&links.links, links.links[first as usize].next as usize);
        Some(slot)
    }

    /// Takes the last slot out.
    #[inline(always)]
    pub fn pop_back<T: Copy + Default>(&mut self, links: &mut Links<T>) -> Option<Slot> {
        let slot = self.back(links)?;
        self.unlink(links, slot);
        let last = links.links[self.sentinel as usize].prev;
        prefetch(&links.links, links.links[last as usize].prev as usize);
        Some(slot)
    }

    /// The slots from front to back.
    pub fn iter<'a, T: Copy + Default>(&'a self, links: &'a Links<T>) -> impl Iterator<Item = Slot> + 'a {
        std::iter::successors(self.front(links), |&slot| self.after(links, slot))
    }

    /// Checks that both directions of every link agree and that `len` is right, and returns the slots from front to
    /// back.
    ///
    /// # Panics
    /// On a broken link or count.
    pub fn checked<T: Copy + Default>(&self, links: &Links<T>) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut at = self.sentinel;
        loop {
            let next = links.links[at as usize].next;
            assert_eq!(links.links[next as usize].prev, at, "the links between {at} and {next} disagree");
            if next == self.sentinel {
                break;
            }
            slots.push(Slot(next));
            assert!(slots.len() <= links.slots as usize, "the list does not end");
            at = next;
        }
        assert_eq!(slots.len(), self.len as usize, "the list's length is wrong");
        slots
    }
}
