//! 2Q, the full version: blocks enter a FIFO, and those referenced again after they have left it enter an LRU list.
//!
//! Choice: a referenced block of A1out leaves A1out before its length is compared with Kout; the paper does not define
//! when it leaves. The paper compares lengths with shares of the cache, so the shares are rounded down here.
//!
//! A cache that becomes smaller or larger has new values of Kin and Kout; blocks keep their queues. If a block must
//! leave a cache that is not full and Am is empty, it comes from A1in, however short A1in is.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{multiple, part};
use crate::{Access, Policy, Room, Slot};

/// Which queue a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    None,
    A1in,
    A1out,
    Am,
}

/// Two queues.
pub struct TwoQ {
    links: Links,
    queue: Vec<Queue>,
    /// Resident slots not yet referenced again after their stay here, in FIFO order, the one loaded last first.
    a1in: List,
    /// Ghosts that left `a1in`, in FIFO order.
    a1out: List,
    /// Resident slots that were referenced while in `a1out`, the most recently used first.
    am: List,
    /// With more slots than this in `a1in`, the victim comes from it: Kin.
    kin: u32,
    /// The most slots in `a1out`: Kout.
    kout: u32,
    /// The shares of Kin and Kout in the cache.
    portions: [Portion; 2],
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl Configured for TwoQ {
    const INFO: Info = Info {
        name: "2q",
        summary: "evicts new blocks from a short FIFO queue; blocks referenced again after that enter an LRU list",
        paper: "Johnson, Shasha, 2Q: A Low Overhead High Performance Buffer Management Replacement \
                Algorithm, VLDB 1994",
        params: &[
            Param {
                published: None,
                key: "in",
                default: "25%",
                values: part(0, "one less than the cache"),
                doc: "Kin, the length of A1in above which victims come from it: a share of the cache or a count",
            },
            Param {
                published: None,
                key: "out",
                default: "50%",
                values: multiple(0),
                doc: "Kout, the most blocks that A1out remembers: a share of the cache or a count",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.portion("out", 0, u32::MAX)?.within(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<TwoQ, SpecError> {
        let (links, [a1in, a1out, am]) = Links::new(setup.slots);
        let portions = [params.portion("in", 0, setup.capacity - 1)?, params.portion("out", 0, u32::MAX)?];
        let (kin, kout) = thresholds(portions, setup.capacity, setup.ghosts);
        Ok(TwoQ {
            links,
            queue: vec![Queue::None; setup.slots as usize],
            a1in,
            a1out,
            am,
            kin,
            kout,
            portions,
            forgotten: Vec::new(),
        })
    }
}

/// Kin and Kout.
fn thresholds([kin, kout]: [Portion; 2], capacity: u32, ghosts: u32) -> (u32, u32) {
    // If at most this many slots of a full cache are in A1in, at least one is in Am.
    (kin.within(capacity, 0, capacity - 1), kout.within(capacity, 0, ghosts))
}

impl TwoQ {
    /// The part of `reclaimfor` that pages something out.
    #[inline]
    fn page_out(&mut self) -> Slot {
        if self.a1in.len() > self.kin || self.am.is_empty() {
            // Its identifier moves to the head of A1out; `limit_out` removes the tail if A1out is then too long.
            let victim = self.a1in.pop_back(&mut self.links).expect("a block is resident");
            self.a1out.push_front(&mut self.links, victim);
            self.queue[victim.index()] = Queue::A1out;
            return victim;
        }
        // "Do not put it on A1out; it hasn't been accessed for a while."
        let victim = self.am.pop_back(&mut self.links).expect("Am is not empty");
        self.queue[victim.index()] = Queue::None;
        self.forgotten.push(victim);
        victim
    }

    #[inline]
    fn limit_out(&mut self) {
        while self.a1out.len() > self.kout {
            let oldest = self.a1out.pop_back(&mut self.links).expect("A1out is not empty");
            self.queue[oldest.index()] = Queue::None;
            self.forgotten.push(oldest);
        }
    }
}

impl Policy for TwoQ {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        // "If X is on A1in: do nothing."
        if self.queue[slot.index()] == Queue::Am {
            self.am.move_to_front(&mut self.links, slot);
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.page_out())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.queue[slot.index()] == Queue::A1out {
            self.a1out.unlink(&mut self.links, slot);
            self.am.push_front(&mut self.links, slot);
            self.queue[slot.index()] = Queue::Am;
        } else {
            self.a1in.push_front(&mut self.links, slot);
            self.queue[slot.index()] = Queue::A1in;
        }
        self.limit_out();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.page_out();
        self.limit_out();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.a1in, &mut self.a1out, &mut self.am]);
        self.queue.resize(room.slots as usize, Queue::None);
        (self.kin, self.kout) = thresholds(self.portions, room.capacity, room.ghosts);
        self.limit_out();
    }

    fn remove(&mut self, slot: Slot) {
        match std::mem::replace(&mut self.queue[slot.index()], Queue::None) {
            Queue::None => unreachable!("only known slots are removed"),
            Queue::A1in => self.a1in.unlink(&mut self.links, slot),
            Queue::A1out => self.a1out.unlink(&mut self.links, slot),
            Queue::Am => self.am.unlink(&mut self.links, slot),
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.queue, slot.index());
        self.links.warm(slot);
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        for (list, queue) in [(&self.a1in, Queue::A1in), (&self.a1out, Queue::A1out), (&self.am, Queue::Am)] {
            let members = list.checked(&self.links);
            assert!(members.iter().all(|slot| self.queue[slot.index()] == queue), "a slot of {queue:?} says otherwise");
            let all = self.queue.iter().filter(|&&other| other == queue).count();
            assert_eq!(members.len(), all, "a slot says {queue:?} and is not there");
        }
        let unknown = |slot: &Slot| self.queue[slot.index()] == Queue::None;
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
        assert!(self.a1out.len() <= self.kout, "A1out is longer than Kout");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("a1in", self.a1in.len().into());
    }
}
