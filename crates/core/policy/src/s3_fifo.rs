//! S3-FIFO: a small FIFO that blocks must be hit in twice to stay, a main FIFO with lazy reinsertion, and a ghost FIFO.
//!
//! Deviations and choices:
//! * Each miss evicts exactly one block: EVICTS ends as soon as one block has left, even if it left M to make room
//!   there.
//! * If S becomes empty because all of its blocks moved to M, the victim comes from M. This happens only if M has no
//!   share of the cache.
//! * M is full when it holds the cache without the share of S; room is made in it before the block from S enters.
//! * A block referenced while it is a ghost leaves the ghost queue before the victim enters it.
//! * A cache that becomes smaller or larger divides itself anew; blocks keep their queues. If a block must leave a
//!   cache that is not full and M is empty, it comes from S, however short S is.
//! * With `warmup=main`, blocks are placed and evicted as by libCacheSim 0.3.5, to its digit (`cargo xtask bench rivals`): until the first eviction, new
//!   blocks enter M once S has its share; the victim comes from M only if M exceeds its share or S is empty; and a block moves to M without
//!   an eviction there. Shares are rounded down.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{HISTORY, Values, part};
use crate::{Access, Policy, Room, Slot};

/// Which queue a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    None,
    Small,
    Main,
    Ghost,
}

#[derive(Clone, Copy)]
struct State {
    queue: Queue,
    /// Hits, capped; each reinsertion into the main queue takes one.
    freq: u8,
}

/// The cap of a block's counter, which has two bits: "min(x.freq + 1, 3)".
const FREQ_MOST: u8 = 3;

/// Simple, scalable caching with three static FIFO queues.
pub struct S3Fifo {
    links: Links,
    state: Vec<State>,
    /// S: resident slots on probation, the one loaded last first.
    small: List,
    /// M: the other resident slots.
    main: List,
    /// G: ghosts that left `small`.
    ghost: List,
    /// With this many slots or more in `small`, the victim comes from it.
    small_share: u32,
    /// With this many slots, `main` is full.
    main_share: u32,
    ghosts_most: u32,
    /// Whether `warmup` is `main`.
    as_libcachesim: bool,
    /// Whether a block was evicted.
    evicted: bool,
    /// The shares of S and G in the cache.
    portions: [Portion; 2],
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
}

impl S3Fifo {
    /// EVICTS: moves blocks with more than one hit to M until another one becomes a ghost or M must evict a block.
    #[inline]
    fn evict_small(&mut self) -> Option<Slot> {
        while let Some(slot) = self.small.pop_back(&mut self.links) {
            let state = &mut self.state[slot.index()];
            if state.freq <= 1 {
                state.queue = Queue::Ghost;
                self.ghost.push_front(&mut self.links, slot);
                return Some(slot);
            }
            // "Its access bits are cleared during the move."
            *state = State { queue: Queue::Main, freq: 0 };
            let is_full = !self.as_libcachesim && self.main.len() >= self.main_share;
            let victim = if is_full { self.evict_main() } else { None };
            self.main.push_front(&mut self.links, slot);
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    /// Takes out the block that leaves next: from S if it has reached its share, otherwise from M.
    #[inline]
    fn pop(&mut self) -> Slot {
        self.evicted = true;
        let is_small_due = match self.as_libcachesim {
            true => self.main.len() <= self.main_share,
            false => self.small.len() >= self.small_share,
        };
        let from_small = if is_small_due { self.evict_small() } else { None };
        let victim = from_small.or_else(|| self.evict_main()).or_else(|| self.evict_small());
        victim.or_else(|| self.evict_main()).expect("a block is resident")
    }

    /// Sets the shares of S, M and G.
    fn divide(&mut self, capacity: u32, ghosts: u32) {
        let of = if self.as_libcachesim { Portion::within } else { Portion::of };
        let [small, ghost] = self.portions;
        self.small_share = of(small, capacity, 1, capacity);
        self.main_share = capacity - self.small_share;
        self.ghosts_most = of(ghost, capacity, 0, ghosts);
    }

    #[inline]
    fn limit_ghosts(&mut self) {
        while self.ghost.len() > self.ghosts_most {
            let oldest = self.ghost.pop_back(&mut self.links).expect("G is not empty");
            self.state[oldest.index()].queue = Queue::None;
            self.forgotten.push(oldest);
        }
    }

    /// EVICTM: reinserts blocks with hits, each with one hit less, and evicts the first block without hits.
    #[inline]
    fn evict_main(&mut self) -> Option<Slot> {
        while let Some(slot) = self.main.pop_back(&mut self.links) {
            let state = &mut self.state[slot.index()];
            if state.freq == 0 {
                state.queue = Queue::None;
                self.forgotten.push(slot);
                return Some(slot);
            }
            state.freq -= 1;
            self.main.push_front(&mut self.links, slot);
        }
        None
    }
}

impl Configured for S3Fifo {
    const INFO: Info = Info {
        name: "s3-fifo",
        summary: "evicts new blocks early from a small FIFO queue unless they are hit twice, others from a main queue",
        paper: "Yang, Zhang, Qiu, Yue, Rashmi, FIFO Queues are All You Need for Cache Eviction, SOSP 2023",
        params: &[
            Param {
                published: None,
                key: "small",
                default: "10%",
                values: part(1, "the size of the cache"),
                doc: "the length of S at which victims come from it: a share of the cache or a count",
            },
            Param {
                published: None,
                key: "ghosts",
                default: "0.9",
                values: HISTORY,
                doc: "most blocks that G remembers, as a multiple of the cache size; the default is the size of M",
            },
            Param {
                published: None,
                key: "warmup",
                default: "small",
                values: Values::Words(&["small", "main"]),
                doc: "the queue of new blocks that S has no room for before the first eviction: small, or main, as in libCacheSim",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(params.history()?.of(capacity, 0, u32::MAX))
    }

    fn new(setup: &Setup, params: &Params) -> Result<S3Fifo, SpecError> {
        let (links, [small, main, ghost]) = Links::new(setup.slots);
        let portions = [params.portion("small", 1, setup.capacity)?, params.history()?];
        let mut policy = S3Fifo {
            links,
            state: vec![State { queue: Queue::None, freq: 0 }; setup.slots as usize],
            small,
            main,
            ghost,
            small_share: 0,
            main_share: 0,
            ghosts_most: 0,
            as_libcachesim: params.is("warmup", "main"),
            evicted: false,
            portions,
            forgotten: Vec::new(),
        };
        policy.divide(setup.capacity, setup.ghosts);
        Ok(policy)
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let freq = &mut self.state[slot.index()].freq;
        if *freq < FREQ_MOST {
            *freq += 1;
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        let state = &mut self.state[slot.index()];
        if state.queue == Queue::Ghost {
            *state = State { queue: Queue::Main, freq: 0 };
            self.ghost.unlink(&mut self.links, slot);
            self.main.push_front(&mut self.links, slot);
        } else if self.as_libcachesim && !self.evicted && self.small.len() >= self.small_share {
            *state = State { queue: Queue::Main, freq: 0 };
            self.main.push_front(&mut self.links, slot);
        } else {
            *state = State { queue: Queue::Small, freq: 0 };
            self.small.push_front(&mut self.links, slot);
        }
        self.limit_ghosts();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.pop();
        self.limit_ghosts();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.small, &mut self.main, &mut self.ghost]);
        self.state.resize(room.slots as usize, State { queue: Queue::None, freq: 0 });
        self.divide(room.capacity, room.ghosts);
        self.limit_ghosts();
    }

    fn remove(&mut self, slot: Slot) {
        match std::mem::replace(&mut self.state[slot.index()].queue, Queue::None) {
            Queue::None => unreachable!("only known slots are removed"),
            Queue::Small => self.small.unlink(&mut self.links, slot),
            Queue::Main => self.main.unlink(&mut self.links, slot),
            Queue::Ghost => self.ghost.unlink(&mut self.links, slot),
        }
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.state, slot.index());
    }

    fn check(&self) {
        for (list, queue) in [(&self.small, Queue::Small), (&self.main, Queue::Main), (&self.ghost, Queue::Ghost)] {
            let members = list.checked(&self.links);
            let agrees = |slot: &Slot| self.state[slot.index()].queue == queue;
            assert!(members.iter().all(agrees), "a slot of {queue:?} says otherwise");
            let all = self.state.iter().filter(|state| state.queue == queue).count();
            assert_eq!(members.len(), all, "a slot says {queue:?} and is not there");
        }
        let unknown = |slot: &Slot| self.state[slot.index()].queue == Queue::None;
        assert!(self.forgotten.iter().all(unknown), "a known block is forgotten");
        assert!(self.ghost.len() <= self.ghosts_most, "too many ghosts");
        assert!(self.state.iter().all(|state| state.freq <= FREQ_MOST), "a counter is above its cap");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("small", self.small.len().into());
    }
}
