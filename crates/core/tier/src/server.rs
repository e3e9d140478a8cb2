//! The level that several clients share: *gLRU*, the owners of its blocks, and the notices that are due (section 5.3.2.2).
//!
//! The server decides nothing about levels: it keeps what a client directs here, and replaces the bottom block when it is full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nigh_policy::Slot;
use nigh_policy::list::{Links, List};

/// The number of a client.
pub type Client = u16;

/// The most clients of a server.
pub const CLIENTS_MAX: Client = Client::MAX - 1;

/// Not cached.
const ABSENT: u16 = 0;
/// Cached without an owner, who would be noticed.
const NOBODY: u16 = u16::MAX;
/// The list of blocks that were retrieved; the others are those of demoted blocks, by client.
const RETRIEVED: usize = 0;

#[derive(Clone, Copy, Default)]
struct Cached {
    /// The number of the last reference, as far as the server knows.
    last: u64,
    /// The owner's number plus one.
    owner: u16,
    /// The list that has it.
    list: u16,
    /// Whether another client than the owner directed it here too.
    shared: bool,
}

impl Cached {
    /// The same block, which `owner` directs here.
    fn directed(self, last: u64, owner: u16, list: usize) -> Cached {
        let shared = self.shared || self.owner != ABSENT && self.owner != owner;
        Cached { last, owner, list: list as u16, shared }
    }
}

/// Blocks of all clients in the order of their last references. 24 bytes a slot.
///
/// gLRU is kept as several lists, each in this order: a block that is retrieved enters at the top of the first one. A client demotes
/// blocks of a level in the order of their last references, so they enter near the top of a list of its own. The bottom of gLRU is
/// the oldest of the bottoms.
pub struct Server {
    links: Links<Cached>,
    lists: Vec<List>,
    len: u32,
    capacity: u32,
    /// By client: its blocks that were replaced, or that others own now, since its last request.
    notices: Vec<Vec<Slot>>,
    /// By client: the blocks that it owns.
    shares: Vec<u32>,
    /// Blocks that were passed on the way to the place of a demoted one, and the most for one of them.
    steps: u64,
    most_steps: u32,
}

/// The result of Retrieve(b, i, j) at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the server had the block.
    pub found: bool,
    /// The block that left to make room.
    pub replaced: Option<Slot>,
}

impl Server {
    /// Room for `capacity` blocks in slots below `slots`, shared by `clients`.
    ///
    /// # Panics
    /// Without room, without clients, or with more than [`CLIENTS_MAX`].
    pub fn new(slots: u32, clients: Client, capacity: u32) -> Server {
        assert!(capacity > 0 && (1..=CLIENTS_MAX).contains(&clients), "a server has room, and clients");
        let (mut links, [retrieved]) = Links::with_own(slots);
        let clients = usize::from(clients);
        let mut lists = vec![retrieved];
        lists.extend((0..clients).map(|_| links.list()));
        Server {
            links,
            lists,
            len: 0,
            capacity,
            notices: vec![Vec::new(); clients],
            shares: vec![0; clients],
            steps: 0,
            most_steps: u32::MAX,
        }
    }

    /// A block that would have to pass more than `most` others on the way to its place stays above the next one, as if it had been referenced when that was.
    #[must_use]
    pub fn with_most_steps(self, most: u32) -> Server {
        Server { most_steps: most, ..self }
    }

    /// `client` retrieves the block of `slot`, in the reference numbered `now`. It is kept here if its level tag names this level. A block that
    /// goes to a higher level of its owner leaves; one that another client directed here stays, for that client. If the owner takes it,
    /// it has no owner then.
    pub fn retrieve(&mut self, client: Client, slot: Slot, keep: bool, now: u64) -> Answer {
        let before = *self.links.own(slot);
        let mut replaced = None;
        if keep {
            self.take(client + 1, slot);
            self.enter(RETRIEVED, slot, before.directed(now, client + 1, RETRIEVED));
            replaced = self.replace();
        } else if before.owner == client + 1 && before.shared {
            self.shares[usize::from(client)] -= 1;
            self.links.own_mut(slot).owner = NOBODY;
        } else if before.owner == client + 1 {
            self.unlink(slot);
        }
        Answer { found: before.owner != ABSENT, replaced }
    }

    /// `client` demotes the block of `slot`, which was last referenced in the reference numbered `last`. Returns the block that left to
    /// make room; that can be the same one.
    pub fn demote(&mut self, client: Client, slot: Slot, last: u64) -> Option<Slot> {
        let before = *self.links.own(slot);
        self.take(client + 1, slot);
        let list = usize::from(client) + 1;
        self.enter(list, slot, before.directed(last.max(before.last), client + 1, list));
        self.replace()
    }

    /// Puts the block of `slot` on top, in the reference numbered `now`. It has no owner: nobody is noticed when it is replaced. Returns
    /// the block that left to make room.
    pub fn put(&mut self, slot: Slot, now: u64) -> Option<Slot> {
        let before = *self.links.own(slot);
        self.take(NOBODY, slot);
        self.enter(RETRIEVED, slot, before.directed(now, NOBODY, RETRIEVED));
        self.replace()
    }

    /// Removes the block of `slot`, without a notice. Returns whether it was here.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let is_here = self.has(slot);
        if is_here {
            self.unlink(slot);
        }
        is_here
    }

    /// Takes the block of `slot` out, for `owner`.
    fn take(&mut self, owner: u16, slot: Slot) {
        let before = self.links.own(slot).owner;
        if before != ABSENT {
            self.unlink(slot);
            if before != owner {
                self.notice(before, slot);
            }
        }
    }

    fn enter(&mut self, list: usize, slot: Slot, mut cached: Cached) {
        let of = &mut self.lists[list];
        let mut above = None;
        let mut at = of.front(&self.links);
        let mut steps = 0;
        while let Some(next) = at.filter(|&next| self.links.own(next).last > cached.last) {
            if steps == self.most_steps {
                cached.last = self.links.own(next).last;
                break;
            }
            steps += 1;
            self.steps += 1;
            above = Some(next);
            at = of.after(&self.links, next);
        }
        match (above, at) {
            (None, _) => of.push_front(&mut self.links, slot),
            (_, Some(next)) => of.insert_before(&mut self.links, slot, next),
            (_, None) => of.push_back(&mut self.links, slot),
        }
        *self.links.own_mut(slot) = cached;
        self.len += 1;
        if cached.owner != NOBODY {
            self.shares[usize::from(cached.owner - 1)] += 1;
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Cached { owner, list, .. } = std::mem::take(self.links.own_mut(slot));
        self.lists[usize::from(list)].unlink(&mut self.links, slot);
        self.len -= 1;
        if owner != NOBODY {
            self.shares[usize::from(owner - 1)] -= 1;
        }
    }

    fn bottom(&self) -> Option<Slot> {
        let bottoms = self.lists.iter().filter_map(|list| list.back(&self.links));
        bottoms.min_by_key(|&slot| self.links.own(slot).last)
    }

    /// The number of the last reference to the bottom of gLRU; 0 if there is none.
    pub fn oldest(&self) -> u64 {
        self.bottom().map_or(0, |slot| self.links.own(slot).last)
    }

    /// Replaces the bottom of gLRU if there is too much.
    fn replace(&mut self) -> Option<Slot> {
        if self.len <= self.capacity {
            return None;
        }
        let bottom = self.bottom().expect("the server is too full");
        let owner = self.links.own(bottom).owner;
        self.unlink(bottom);
        self.notice(owner, bottom);
        Some(bottom)
    }

    fn notice(&mut self, owner: u16, slot: Slot) {
        if owner != NOBODY {
            self.notices[usize::from(owner - 1)].push(slot);
        }
    }

    /// Moves the notices for `client` to the end of `into`: they travel with the next block that it retrieves.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn take_notices(&mut self, client: Client, into: &mut Vec<Slot>) {
        into.append(&mut self.notices[usize::from(client)]);
    }

    /// All blocks, the bottom of gLRU first.
    pub fn from_the_bottom(&self) -> impl Iterator<Item = Slot> + '_ {
        let next = |list: usize, slot: Slot| Reverse((self.links.own(slot).last, list, slot));
        let bottoms = self.lists.iter().enumerate().filter_map(|(list, of)| Some((list, of.back(&self.links)?)));
        let mut heap: BinaryHeap<_> = bottoms.map(|(list, slot)| next(list, slot)).collect();
        std::iter::from_fn(move || {
            let Reverse((_, list, slot)) = heap.pop()?;
            heap.extend(self.lists[list].before(&self.links, slot).map(|above| next(list, above)));
            Some(slot)
        })
    }

    /// Blocks that fit in before one is replaced.
    pub fn free(&self) -> u32 {
        self.capacity - self.len
    }

    /// Blocks that `client` owns.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn share(&self, client: Client) -> u32 {
        self.shares[usize::from(client)]
    }

    /// Whether the block of `slot` is here.
    pub fn has(&self, slot: Slot) -> bool {
        self.links.own(slot).owner != ABSENT
    }

    /// The owner of the block of `slot`.
    pub fn owner(&self, slot: Slot) -> Option<Client> {
        Some(self.links.own(slot).owner).filter(|&owner| owner != ABSENT && owner != NOBODY).map(|owner| owner - 1)
    }

    /// Blocks that were passed on the way to the places of demoted ones.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Recounts every invariant. `assumed` are the blocks that each client assumes to be here and its own: those that it owns, and
    /// those of its notices.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, assumed: &[Vec<Slot>]) {
        let mut owned = vec![Vec::new(); self.shares.len()];
        let mut len = 0;
        for (number, list) in self.lists.iter().enumerate() {
            let slots = list.checked(&self.links);
            let cached = |slot: &Slot| *self.links.own(*slot);
            assert!(slots.is_sorted_by_key(|slot| std::cmp::Reverse(cached(slot).last)), "gLRU is out of order");
            assert!(slots.iter().all(|slot| usize::from(cached(slot).list) == number), "a block is in another list");
            len += slots.len();
            for slot in slots {
                match cached(&slot).owner {
                    ABSENT => panic!("a cached block is marked as absent"),
                    NOBODY => {}
                    owner => owned[usize::from(owner - 1)].push(slot),
                }
            }
        }
        assert_eq!(len, self.len as usize, "the server is miscounted");
        assert!(self.len <= self.capacity, "the server holds too much");
        for (client, owned) in owned.iter_mut().enumerate() {
            assert_eq!(owned.len(), self.shares[client] as usize, "the share of client {client} is miscounted");
            if let Some(assumed) = assumed.get(client) {
                owned.extend(&self.notices[client]);
                owned.sort_unstable();
                let mut assumed = assumed.clone();
                assumed.sort_unstable();
                assert_eq!(&assumed, owned, "client {client} and the server disagree");
            }
        }
    }
}
