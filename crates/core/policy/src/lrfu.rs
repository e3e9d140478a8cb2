//! LRFU: the block whose past references have the least weight leaves; the weight of a reference halves every 1/lambda
//! references.
//!
//! The combined recency and frequency (CRF) of a block at time t is the sum of F(t - t_i) over its references t_i, with
//! the paper's F(x) = (1/2)^(lambda x). It is stored as the base-2 logarithm of 2^(lambda t) CRF(t). That does not
//! change while the block is not referenced, orders blocks as CRF does, and neither under- nor overflows.
//!
//! Of equal CRFs, the least recently used leaves. A block that left starts again with CRF = F(0) when it is loaded.
//! LRFU needs a lambda that suits the trace and the cache size, and no value suits all: the default is ours. With it, a
//! cache of more than some ten thousand blocks evicts almost as LRU does and needs a smaller lambda.

use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::Values;
use crate::{Access, Policy, Room, Slot};

/// Least recently/frequently used.
pub struct Lrfu {
    lambda: f64,
    correlated_period: u64,
    /// By slot, the logarithm of the weight of all its references but the latest and those correlated with it.
    older: Vec<f64>,
    /// By slot, the tick of the latest reference.
    last: Vec<u64>,
    /// By slot, its position in the heap, if it is resident.
    position: Vec<u32>,
    /// Resident slots, a binary heap with the least weight on top.
    heap: Vec<Entry>,
    forgotten: Option<Slot>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The logarithm of the weight of all references.
    weight: f64,
    slot: u32,
}

impl Lrfu {
    /// Takes out the block with the least weight.
    #[inline]
    fn pop(&mut self) -> Slot {
        let victim = Slot(self.heap.first().expect("a block is resident").slot);
        self.take(0);
        self.forgotten = Some(victim);
        victim
    }

    /// The logarithm of the sum of the weight of a reference at `tick` and the weight with logarithm `older`.
    fn weight(&self, tick: u64, older: f64) -> f64 {
        let own = self.lambda * tick as f64;
        own + (older - own).exp2().ln_1p() * std::f64::consts::LOG2_E
    }

    fn less(&self, one: Entry, other: Entry) -> bool {
        if one.weight == other.weight {
            self.last[one.slot as usize] < self.last[other.slot as usize]
        } else {
            one.weight < other.weight
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.position[entry.slot as usize] = at as u32;
    }

    /// Moves `entry` up from `at`, which is free, to its place.
    fn rise(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.less(entry, self.heap[parent]) {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    /// Moves `entry` down from `at`, which is free, to its place.
    fn sink(&mut self, mut at: usize, entry: Entry) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.less(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.less(self.heap[child], entry) {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, entry);
    }

    fn take(&mut self, at: usize) {
        let moved = self.heap.pop().expect("the heap holds what is taken out");
        if at == self.heap.len() {
            return;
        }
        if at > 0 && self.less(moved, self.heap[(at - 1) / 2]) {
            self.rise(at, moved);
        } else {
            self.sink(at, moved);
        }
    }
}

impl Configured for Lrfu {
    const INFO: Info = Info {
        name: "lrfu",
        summary: "evicts the block with the least sum of references; older references weigh less",
        paper: "Lee et al., LRFU: A Spectrum of Policies that Subsumes the Least Recently Used and Least Frequently Used \
                Policies, IEEE Transactions on Computers 2001",
        params: &[
            Param {
                published: Some("found for each workload"),
                key: "lambda",
                default: "0.001",
                values: Values::Real { least: 0.0, most: 1.0 },
                doc: "the weight of a reference halves every 1/lambda references: 0 is LFU, 1 is LRU",
            },
            Param {
                published: None,
                key: "correlated",
                default: "0",
                values: Values::Whole { least: 0, most: u32::MAX as u64 },
                doc: "the correlated period: a reference does not count if its block is referenced again within this many references",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Lrfu, SpecError> {
        let slots = setup.slots as usize;
        Ok(Lrfu {
            lambda: params.real("lambda")?,
            correlated_period: params.number("correlated")?,
            older: vec![f64::NEG_INFINITY; slots],
            last: vec![0; slots],
            position: vec![0; slots],
            heap: Vec::with_capacity(setup.capacity.min(setup.slots) as usize),
            forgotten: None,
        })
    }
}

impl Policy for Lrfu {
    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        let at = self.position[slot.index()] as usize;
        // Of correlated references only the latest counts.
        if access.tick - self.last[slot.index()] > self.correlated_period {
            self.older[slot.index()] = self.heap[at].weight;
        }
        self.last[slot.index()] = access.tick;
        let weight = self.weight(access.tick, self.older[slot.index()]);
        self.sink(at, Entry { weight, slot: slot.0 });
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.older[slot.index()] = f64::NEG_INFINITY;
        self.last[slot.index()] = access.tick;
        let entry = Entry { weight: self.weight(access.tick, f64::NEG_INFINITY), slot: slot.0 };
        self.heap.push(entry);
        self.rise(self.heap.len() - 1, entry);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.older.resize(room.slots as usize, f64::NEG_INFINITY);
        self.last.resize(room.slots as usize, 0);
        self.position.resize(room.slots as usize, 0);
    }

    fn remove(&mut self, slot: Slot) {
        self.take(self.position[slot.index()] as usize);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.position, slot.index());
        prefetch(&self.last, slot.index());
        prefetch(&self.older, slot.index());
    }

    fn check(&self) {
        for (at, &entry) in self.heap.iter().enumerate() {
            let slot = entry.slot as usize;
            assert_eq!(self.position[slot] as usize, at, "slot {slot} stands elsewhere");
            assert_eq!(entry.weight, self.weight(self.last[slot], self.older[slot]), "slot {slot} has another weight");
            assert!(at == 0 || !self.less(entry, self.heap[(at - 1) / 2]), "slot {slot} weighs less than its parent");
        }
    }
}
