//! GCLOCK: CLOCK with a counter in place of the reference bit.
//!
//! A hit increments the block's counter; the hand decrements each counter it passes and evicts at the first zero. The
//! circle is a list whose first slot is under the hand; the hand advances by moving that slot to the back. A new block
//! is placed just behind the hand, in the frame of its victim or in a new frame.
//!
//! Deviation: Smith's CLOCK(i) sets the counter to i at each reference. Here a hit increments it, as Jiang's
//! dissertation (2004, chapter 3) describes GCLOCK. Choices: the reference that loads a block counts as its first. A
//! maximum keeps the search for a victim short: 5 is that of PostgreSQL's buffer manager.

use crate::list::{Links, List};
use crate::prefetch::prefetch;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::Values;
use crate::{Access, Policy, Room, Slot};

/// Generalized CLOCK.
pub struct GClock {
    links: Links,
    /// Resident slots from the one under the hand to the one just behind it.
    circle: List,
    /// Counters, at most `most`; 0 for slots that are not resident.
    count: Vec<u8>,
    /// The counter of a new block.
    first: u8,
    most: u8,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Configured for GClock {
    const INFO: Info = Info {
        name: "gclock",
        summary: "evicts in the order of loading, but keeps a block for another round for each of its hits",
        paper: "Smith, Sequentiality and Prefetching in Database Systems, ACM TODS 1978; \
                Nicola, Dan, Dias, Analysis of the Generalized Clock Buffer Replacement Scheme for Database \
                Transaction Processing, SIGMETRICS 1992",
        params: &[
            Param {
                published: None,
                key: "first",
                default: "1",
                values: Values::Whole { least: 0, most: 255 },
                doc: "the counter of a new block, in rounds, at most max",
            },
            Param {
                published: None,
                key: "max",
                default: "5",
                values: Values::Whole { least: 1, most: 255 },
                doc: "the greatest value of a counter, in rounds",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<GClock, SpecError> {
        let (links, [circle]) = Links::new(setup.slots);
        let most: u8 = params.number("max")?;
        let first: u8 = params.number("first")?;
        if first > most {
            return Err(params.bad("first", format!("at most max, which is {most}")));
        }
        Ok(GClock { links, circle, count: vec![0; setup.slots as usize], first, most, forgotten: None })
    }
}

impl GClock {
    /// Advances the hand to a block whose counter is 0, and takes that block out.
    #[inline]
    fn sweep(&mut self) -> Slot {
        let victim = loop {
            let slot = self.circle.pop_front(&mut self.links).expect("a block is resident");
            match &mut self.count[slot.index()] {
                0 => break slot,
                count => *count -= 1,
            }
            self.circle.push_back(&mut self.links, slot);
        };
        self.forgotten = Some(victim);
        victim
    }
}

impl Policy for GClock {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let count = &mut self.count[slot.index()];
        if *count < self.most {
            *count += 1;
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.sweep())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.count[slot.index()] = self.first;
        self.circle.push_back(&mut self.links, slot);
    }

    fn shed(&mut self) -> Slot {
        self.sweep()
    }

    fn resize(&mut self, room: Room) {
        self.links.grow(room.slots, [&mut self.circle]);
        self.count.resize(room.slots as usize, 0);
    }

    fn remove(&mut self, slot: Slot) {
        self.count[slot.index()] = 0;
        self.circle.unlink(&mut self.links, slot);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.count, slot.index());
    }

    fn check(&self) {
        let resident = self.circle.checked(&self.links);
        assert!(self.count.iter().all(|&count| count <= self.most), "a counter is above its maximum");
        let counting = resident.iter().filter(|slot| self.count[slot.index()] > 0).count();
        let all = self.count.iter().filter(|&&count| count > 0).count();
        assert_eq!(counting, all, "a block that is not resident has a count");
    }
}
