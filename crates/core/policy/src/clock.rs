//! CLOCK, also called second chance: FIFO, but a block that was hit since the hand last passed it stays for another
//! round.
//!
//! The circle is an order that begins under the hand; the hand advances by moving the slot there to the end. A new
//! block is placed just behind the hand, in the frame of its victim or in a new frame.
//!
//! Choice: the reference bit of a new block starts at 0, so that only a hit earns a second chance; this gives the hit
//! ratios of libCacheSim's CLOCK. In a paging machine the reference that loads a page also sets its bit: `first=1`.

use crate::recency::{Order, Places, SLOTS_MOST};
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::values::FLAG;
use crate::{Access, Policy, Room, Slot};

/// The tag of a slot whose reference bit is set.
const REFERENCED: u32 = 1;

/// CLOCK.
pub struct Clock {
    places: Places<1>,
    /// Resident slots from the one under the hand to the one just behind it.
    circle: Order<0, 0>,
    /// The reference bit of a new block.
    first: u32,
    /// The evicted slot, until the host takes it back.
    forgotten: Option<Slot>,
}

impl Configured for Clock {
    const INFO: Info = Info {
        name: "clock",
        summary: "evicts in the order of loading, but keeps a block that was hit for another round",
        paper: "Corbató, A Paging Experiment with the Multics System, MIT Project MAC Report MAC-M-384 1968",
        params: &[Param {
            published: None,
            key: "first",
            default: "0",
            values: FLAG,
            doc: "the reference bit of a new block; 1 as in a paging machine",
        }],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Clock, SpecError> {
        if setup.slots > SLOTS_MOST {
            return Err(SpecError::TooLarge { policy: Clock::INFO.name, slots: setup.slots, most: SLOTS_MOST });
        }
        Ok(Clock {
            places: Places::new(setup.slots),
            circle: Order::new(false),
            first: params.number("first")?,
            forgotten: None,
        })
    }
}

impl Clock {
    /// Advances the hand to a block with a clear reference bit, and takes that block out.
    #[inline]
    fn sweep(&mut self) -> Slot {
        let victim = loop {
            let slot = self.circle.pop(&mut self.places).expect("a block is resident");
            if self.circle.tag(&self.places, slot) != REFERENCED {
                break slot;
            }
            self.circle.push(&mut self.places, slot, 0);
        };
        self.forgotten = Some(victim);
        victim
    }
}

impl Policy for Clock {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.circle.set_tag(&mut self.places, slot, REFERENCED);
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.sweep())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.circle.push(&mut self.places, slot, self.first);
    }

    fn shed(&mut self) -> Slot {
        self.sweep()
    }

    fn resize(&mut self, room: Room) {
        self.places.grow(room.slots);
    }

    fn slots_most(&self) -> u32 {
        SLOTS_MOST
    }

    fn remove(&mut self, slot: Slot) {
        self.circle.leave(&mut self.places, slot, 0);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.places.warm(slot);
    }

    fn check(&self) {
        self.circle.checked(&self.places);
        let bits = self.places.slots().filter(|&slot| self.circle.tag(&self.places, slot) == REFERENCED);
        let mut outside = bits.filter(|&slot| !self.circle.contains(&self.places, slot));
        assert_eq!(outside.next(), None, "a block that is not resident has its reference bit set");
    }
}
