//! MQ: one LRU queue per order of magnitude of reference counts; the head of the lowest queue leaves.
//!
//! Deviations:
//! * `life` is a fixed number of references. The paper sets it to the peak temporal distance: the distance between two
//!   references to a block that is most frequent in the workload, which is not known beforehand. The default is the
//!   time for which Qout remembers a block when every reference misses.
//! * A block found in Qout leaves it before the victim enters, so that a full Qout cannot drop the block whose
//!   reference count is needed.
//! * If the cache becomes smaller or larger, the new `life` also applies to resident blocks.
//! * If the cache becomes smaller or larger, the new `life` also holds for the blocks that are resident.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{Values, multiple};
use crate::{Access, Policy, Room, Slot};

const QUEUES_MOST: usize = 16;
/// In `Mq::queue`: in Qout.
const OUT: u8 = 254;
/// In `Mq::queue`: unknown.
const NONE: u8 = 255;
/// In `Mq::oldest`: the queue is empty.
const NEVER: u64 = u64::MAX;

/// Multi-queue.
pub struct Mq {
    links: Links,
    /// Q0 to Qm-1, resident slots, the least recently used or demoted first.
    queues: Vec<List>,
    /// Qout: ghosts, the first evicted first.
    out: List,
    /// Slots that the host has not taken back yet.
    forgotten: List,
    /// By slot, the number of its queue, or `OUT` or `NONE`.
    queue: Vec<u8>,
    /// By slot, the references counted, resident or in Qout.
    references: Vec<u32>,
    /// By slot, the time at which it entered its queue: one `life` before its expireTime.
    since: Vec<u64>,
    /// By queue, the time at which its head entered.
    oldest: [u64; QUEUES_MOST],
    /// The paper's currentTime: references so far.
    now: u64,
    life: u64,
    out_most: u32,
    /// The shares of `life` and Qout in the cache.
    portions: [Portion; 2],
}

impl Mq {
    fn unlink(&mut self, slot: Slot) {
        let queue = self.queue[slot.index()] as usize;
        self.queues[queue].unlink(&mut self.links, slot);
        self.see_head(queue);
    }

    fn see_head(&mut self, queue: usize) {
        self.oldest[queue] = self.queues[queue].front(&self.links).map_or(NEVER, |head| self.since[head.index()]);
    }

    fn append(&mut self, queue: usize, slot: Slot) {
        self.queue[slot.index()] = queue as u8;
        self.since[slot.index()] = self.now;
        self.queues[queue].push_back(&mut self.links, slot);
        self.see_head(queue);
    }

    /// `EvictBlock()`: the head of the lowest queue that is not empty goes to Qout.
    #[inline]
    fn retire(&mut self) -> Slot {
        let queue = self.queues.iter().position(|queue| !queue.is_empty()).expect("a block is resident");
        let victim = self.queues[queue].pop_front(&mut self.links).expect("the queue is not empty");
        self.see_head(queue);
        self.queue[victim.index()] = OUT;
        self.out.push_back(&mut self.links, victim);
        victim
    }

    #[inline]
    fn limit_out(&mut self) {
        while self.out.len() > self.out_most {
            let oldest = self.out.pop_front(&mut self.links).expect("Qout is not empty");
            self.queue[oldest.index()] = NONE;
            self.forgotten.push_back(&mut self.links, oldest);
        }
    }

    /// Counts the reference, appends `slot` to the queue QueueNum(reference) = log2(reference), and does `Adjust()`.
    fn refer(&mut self, slot: Slot) {
        let references = &mut self.references[slot.index()];
        *references = references.saturating_add(1);
        let queue = (references.ilog2() as usize).min(self.queues.len() - 1);
        self.append(queue, slot);
        self.now += 1;
        // expireTime < currentTime.
        let expired = self.now.saturating_sub(self.life);
        for queue in 1..self.queues.len() {
            if self.oldest[queue] < expired {
                let head = self.queues[queue].pop_front(&mut self.links).expect("what is due is in the queue");
                self.see_head(queue);
                self.append(queue - 1, head);
            }
        }
    }
}

impl Configured for Mq {
    const INFO: Info = Info {
        name: "mq",
        summary: "keeps an LRU queue per power of two of references, demotes unused blocks, remembers counts after eviction",
        paper: "Zhou, Philbin, Li, The Multi-Queue Replacement Algorithm for Second Level Buffer Caches, USENIX 2001",
        params: &[
            Param {
                published: None,
                key: "queues",
                default: "8",
                values: Values::Whole { least: 1, most: QUEUES_MOST as u64 },
                doc: "LRU queues, the paper's m",
            },
            Param {
                published: Some("the most frequent distance between two references to a block"),
                key: "life",
                default: "400%",
                values: multiple(1),
                doc: "references after which an unused block is demoted, as a share of the cache or a count",
            },
            Param {
                published: None,
                key: "out",
                default: "400%",
                values: multiple(0),
                doc: "blocks in the history Qout, as a share of the cache or a count",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        params.blocks("out", capacity, 0, u32::MAX)
    }

    fn new(setup: &Setup, params: &Params) -> Result<Mq, SpecError> {
        let count = params.number("queues")?;
        let (mut links, [out, forgotten]) = Links::new(setup.slots);
        let slots = setup.slots as usize;
        let portions = [params.portion("life", 1, u32::MAX)?, params.portion("out", 0, u32::MAX)?];
        let (life, out_most) = lengths(portions, setup.capacity, setup.ghosts);
        let queues = (0..count).map(|_| links.list()).collect();
        Ok(Mq {
            links,
            queues,
            out,
            forgotten,
            queue: vec![NONE; slots],
            references: vec![0; slots],
            since: vec![0; slots],
            oldest: [NEVER; QUEUES_MOST],
            now: 0,
            life,
            out_most,
            portions,
        })
    }
}

/// `life`, and the length of Qout.
fn lengths([life, out]: [Portion; 2], capacity: u32, ghosts: u32) -> (u64, u32) {
    (life.of(capacity, 1, u32::MAX).into(), out.of(capacity, 0, ghosts))
}

impl Policy for Mq {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.unlink(slot);
        self.refer(slot);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.retire())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        if self.queue[slot.index()] == OUT {
            self.out.unlink(&mut self.links, slot);
        } else {
            self.references[slot.index()] = 0;
        }
        self.refer(slot);
        self.limit_out();
    }

    fn shed(&mut self) -> Slot {
        let victim = self.retire();
        self.limit_out();
        victim
    }

    fn resize(&mut self, room: Room) {
        let slots = room.slots as usize;
        self.links.grow(room.slots, self.queues.iter_mut().chain([&mut self.out, &mut self.forgotten]));
        self.queue.resize(slots, NONE);
        self.references.resize(slots, 0);
        self.since.resize(slots, 0);
        (self.life, self.out_most) = lengths(self.portions, room.capacity, room.ghosts);
        self.limit_out();
    }

    fn remove(&mut self, slot: Slot) {
        if self.queue[slot.index()] == OUT {
            self.out.unlink(&mut self.links, slot);
        } else {
            self.unlink(slot);
        }
        self.queue[slot.index()] = NONE;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.links)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        prefetch(&self.queue, slot.index());
        prefetch(&self.references, slot.index());
        prefetch(&self.since, slot.index());
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        let mut known = 0;
        for (number, queue) in self.queues.iter().enumerate() {
            let slots = queue.checked(&self.links);
            known += slots.len();
            let since: Vec<u64> = slots.iter().map(|slot| self.since[slot.index()]).collect();
            assert!(since.is_sorted(), "Q{number} is not in the order of expiration");
            assert_eq!(self.oldest[number], since.first().copied().unwrap_or(NEVER), "the head of Q{number}");
            for slot in slots {
                assert_eq!(self.queue[slot.index()] as usize, number, "{slot:?} is in another queue");
                assert!(self.references[slot.index()] >> number > 0, "{slot:?} is referenced too rarely for Q{number}");
            }
        }
        for slot in self.out.checked(&self.links) {
            known += 1;
            assert_eq!(self.queue[slot.index()], OUT, "{slot:?} is not in Qout");
        }
        for slot in self.forgotten.checked(&self.links) {
            assert_eq!(self.queue[slot.index()], NONE, "{slot:?} is forgotten");
        }
        assert_eq!(known, self.queue.iter().filter(|&&queue| queue != NONE).count(), "a known slot is in no queue");
        assert!(self.out.len() <= self.out_most, "Qout is too long");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("lowest_queue", u64::from(self.queues[0].len()));
        report("history", u64::from(self.out.len()));
    }
}
