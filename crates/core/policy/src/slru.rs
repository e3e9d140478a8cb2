//! SLRU: a block enters the probationary segment; a hit moves it to the protected one, whose oldest block returns to probation.
//!
//! If a block must leave and none is on probation, the least recently used protected one leaves. A cache that becomes smaller
//! moves the protected blocks beyond its share to probation.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::part;
use crate::{Access, Policy, Room, Slot};

/// Segmented LRU.
pub struct Slru {
    links: Links,
    /// Both segments: the most recently used block first.
    probation: List,
    protected: List,
    /// For each resident slot, whether it is in the protected segment.
    is_protected: Vec<bool>,
    share: Portion,
    protected_most: u32,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Slru {
    fn pop(&mut self) -> Slot {
        let probation = self.probation.pop_back(&mut self.links);
        let victim = probation.or_else(|| self.protected.pop_back(&mut self.links)).expect("a block is resident");
        self.forgotten = Some(victim);
        victim
    }

    /// Moves protected blocks beyond the segment's share to probation, the least recently used first.
    #[inline]
    fn limit(&mut self) {
        while self.protected.len() > self.protected_most {
            let oldest = self.protected.pop_back(&mut self.links).expect("it is not empty");
            self.is_protected[oldest.index()] = false;
            self.probation.push_front(&mut self.links, oldest);
        }
    }
}

impl Configured for Slru {
    const INFO: Info = Info {
        name: "slru",
        summary: "evicts the oldest block on probation; a block that is hit is protected from that for a while",
        paper: "Karedla, Love, Wherry, Caching Strategies to Improve Disk System Performance, IEEE Computer 1994",
        params: &[Param {
            published: Some("found for each workload"),
            key: "protected",
            default: "80%",
            values: part(0, "the size of the cache"),
            doc: "most blocks in the protected segment: a share of the cache or a count",
        }],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Slru, SpecError> {
        let (links, [probation, protected]) = Links::new(setup.slots);
        let share = params.portion("protected", 0, setup.capacity)?;
        Ok(Slru {
            links,
            probation,
            protected,
            is_protected: vec![false; setup.slots as usize],
            share,
            protected_most: share.of(setup.capacity, 0, setup.capacity),
            forgotten: None,
        })
    }
}

impl Policy for Slru {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if self.is_protected[slot.index()] {
            self.protected.move_to_front(&mut self.links, slot);
            return;
        }
        self.probation.unlink(&mut self.links, slot);
        self.protected.push_front(&mut self.links, slot);
        self.is_protected[slot.index()] = true;
        self.limit();
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.is_protected[slot.index()] = false;
        self.probation.push_front(&mut self.links, slot);
    }

    fn shed(&mut self) -> Slot {
        self.pop()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.probation, &mut self.protected]);
        self.is_protected.resize(room.slots as usize, false);
        self.protected_most = self.share.of(room.capacity, 0, room.capacity);
        self.limit();
    }

    fn remove(&mut self, slot: Slot) {
        let segment = if self.is_protected[slot.index()] { &mut self.protected } else { &mut self.probation };
        segment.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.links.warm(slot);
        prefetch(&self.is_protected, slot.index());
    }

    #[inline(always)]
    fn approach(&self, slot: Slot) {
        self.links.approach(slot);
    }

    fn check(&self) {
        let segments = [(&self.probation, false), (&self.protected, true)];
        for (segment, is_protected) in segments {
            let members = segment.checked(&self.links);
            assert!(
                members.iter().all(|slot| self.is_protected[slot.index()] == is_protected),
                "a slot is in the wrong segment"
            );
        }
        assert!(self.protected.len() <= self.protected_most, "too many blocks are protected");
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("protected", self.protected.len().into());
    }
}
