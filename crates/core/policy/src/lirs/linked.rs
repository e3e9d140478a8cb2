//! S as a linked list of six bytes a slot, and Q beside it: the small representation.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::orders::{HANDS, Orders, REFERENCED};
use crate::Slot;
use crate::prefetch::prefetch;

const LINK_BITS: u32 = 23;
const LINK: u64 = (1 << LINK_BITS) - 1;
/// The link of a slot that is not in S.
const NOWHERE: u32 = LINK as u32;
/// First bit of a node's status.
const STATUS_AT: u32 = 2 * LINK_BITS;

/// S and Q with S as a linked list, where a block's place is its slot's number.
///
/// Q has few blocks, by default a hundredth of the cache, so its positions are in a table of their own, and other
/// blocks need no memory for them: a miss hashes the numbers of two slots, and a hit of an LIR block hashes nothing.
/// The origin of a block in Q is known only while it is there. That suffices for thresholds of at most 100 %; the
/// extension would need it for ghosts too.
pub(crate) struct Linked {
    /// Per slot, and for the head, as bits from the lowest: the next above, the next below, the status.
    nodes: Vec<[u8; 6]>,
    len: u32,
    hands: [u32; HANDS],
    queue: Queue,
}

/// By slot. Slots are numbers of ours, so this need not withstand keys that were chosen to collide.
type Numbers = HashMap<u32, (u32, u32), RandomState>;

/// Q as a log of numbered entries.
struct Queue {
    /// Slots with the numbers of their entries, from the front; an entry is stale if it is not the last of its slot.
    entries: VecDeque<(u32, u32)>,
    /// The number of the entry of each block in Q, and its origin.
    numbers: Numbers,
    next: u32,
}

impl Queue {
    fn append(&mut self, slot: Slot, came: u32) {
        self.next = self.next.wrapping_add(1);
        self.numbers.insert(slot.0, (self.next, came));
        self.entries.push_back((slot.0, self.next));
        if self.entries.len() > 2 * self.numbers.len() + 64 {
            let Queue { entries, numbers, .. } = self;
            entries.retain(|&entry| is_live(numbers, entry));
        }
    }
}

fn is_live(numbers: &Numbers, (slot, number): (u32, u32)) -> bool {
    numbers.get(&slot).is_some_and(|&(last, _)| last == number)
}

/// The node of a slot that is not in S and has status 0.
fn nowhere() -> [u8; 6] {
    let node = u64::from(NOWHERE).to_le_bytes();
    std::array::from_fn(|byte| node[byte])
}

impl Linked {
    #[inline(always)]
    fn node(&self, place: u32) -> u64 {
        let [a, b, c, d, e, f] = self.nodes[place as usize];
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    #[inline(always)]
    fn set_node(&mut self, place: u32, node: u64) {
        let [a, b, c, d, e, f, _, _] = node.to_le_bytes();
        self.nodes[place as usize] = [a, b, c, d, e, f];
    }

    #[inline(always)]
    fn above(&self, place: u32) -> u32 {
        (self.node(place) & LINK) as u32
    }

    #[inline(always)]
    fn below(&self, place: u32) -> u32 {
        (self.node(place) >> LINK_BITS & LINK) as u32
    }

    #[inline(always)]
    fn link(&mut self, below: u32, above: u32) {
        self.set_node(below, self.node(below) & !LINK | u64::from(above));
        self.set_node(above, self.node(above) & !(LINK << LINK_BITS) | u64::from(below) << LINK_BITS);
    }

    #[inline(always)]
    fn move_hands(&mut self, from: u32, to: u32) {
        for hand in &mut self.hands {
            *hand = if *hand == from { to } else { *hand };
        }
    }
}

impl Orders for Linked {
    /// One number is the head's, and one stands for a slot that is nowhere.
    const SLOTS_MOST: u32 = NOWHERE - 1;
    const LOOK: u32 = 1;

    fn new(slots: u32, _counting: bool) -> Linked {
        let head = u64::from(slots);
        let queue = Queue { entries: VecDeque::new(), numbers: Numbers::default(), next: 0 };
        let mut orders = Linked { nodes: vec![nowhere(); slots as usize + 1], len: 0, hands: [slots; HANDS], queue };
        orders.set_node(slots, head << LINK_BITS | head);
        orders
    }

    fn grow(&mut self, slots: u32) {
        assert!(slots <= Linked::SLOTS_MOST, "{slots} slots are more than {}", Linked::SLOTS_MOST);
        let head = self.head();
        if slots == head {
            return;
        }
        let (top, bottom) = (self.below(head), self.above(head));
        self.nodes.resize(slots as usize + 1, nowhere());
        self.nodes[head as usize] = nowhere();
        let ends = if self.len == 0 { [slots; 2] } else { [top, bottom] };
        self.link(ends[0], slots);
        self.link(slots, ends[1]);
        self.move_hands(head, slots);
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.head()).map(Slot)
    }

    #[inline(always)]
    fn status(&self, slot: Slot) -> u32 {
        (self.node(slot.0) >> STATUS_AT) as u32
    }

    #[inline(always)]
    fn set_status(&mut self, slot: Slot, status: u32) {
        let links = self.node(slot.0) & ((1 << STATUS_AT) - 1);
        self.set_node(slot.0, links | u64::from(status) << STATUS_AT);
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        prefetch(&self.nodes, slot.index());
    }

    #[inline(always)]
    fn stack_len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    fn stacked(&self, slot: Slot) -> bool {
        self.above(slot.0) != NOWHERE
    }

    #[inline(always)]
    fn push(&mut self, slot: Slot, status: u32) {
        let head = self.head();
        self.link(self.below(head), slot.0);
        self.link(slot.0, head);
        self.set_status(slot, status);
        self.move_hands(head, slot.0);
        self.len += 1;
    }

    #[inline(always)]
    fn refresh(&mut self, slot: Slot, status: u32) {
        self.leave(slot, status);
        self.push(slot, status);
    }

    #[inline(always)]
    fn leave(&mut self, slot: Slot, status: u32) {
        let (below, above) = (self.below(slot.0), self.above(slot.0));
        self.move_hands(slot.0, above);
        self.link(below, above);
        self.set_node(slot.0, u64::from(NOWHERE));
        self.set_status(slot, status);
        self.len -= 1;
    }

    #[inline(always)]
    fn place(&self, slot: Slot) -> u32 {
        slot.0
    }

    #[inline(always)]
    fn slot(&self, place: u32) -> Slot {
        Slot(place)
    }

    #[inline(always)]
    fn at(&self, place: u32) -> Option<Slot> {
        (place != self.head()).then_some(Slot(place))
    }

    #[inline(always)]
    fn live(&self, place: u32) -> u32 {
        u32::from(place != self.head())
    }

    #[inline(always)]
    fn ahead(&self, place: u32, ahead: u32) -> u32 {
        if ahead == 0 { place } else { self.above(place) }
    }

    /// O(blocks above `place`): only checks and thresholds that use logs call it.
    fn before(&self, place: u32, other: u32) -> bool {
        let head = self.head();
        let mut above = place;
        while above != head && above != other {
            above = self.above(above);
        }
        place != other && above == other
    }

    #[inline(always)]
    fn head(&self) -> u32 {
        self.nodes.len() as u32 - 1
    }

    fn tail(&self) -> u32 {
        self.above(self.head())
    }

    /// Nothing to do: the blocks below have already left.
    fn set_tail(&mut self, _place: u32) {}

    #[inline(always)]
    fn hand(&self, hand: usize) -> u32 {
        self.hands[hand]
    }

    #[inline(always)]
    fn set_hand(&mut self, hand: usize, place: u32) {
        self.hands[hand] = place;
    }

    /// O(blocks above `slot`): thresholds that need it use logs.
    fn after(&self, slot: Slot) -> u32 {
        let mut after = 0;
        let mut place = self.above(slot.0);
        while place != self.head() {
            after += 1;
            place = self.above(place);
        }
        after
    }

    fn stack(&self) -> Vec<Slot> {
        let head = self.head();
        let mut slots = Vec::new();
        let mut place = self.above(head);
        while place != head {
            assert_eq!(self.above(self.below(place)), place, "links that do not meet");
            slots.push(Slot(place));
            place = self.above(place);
        }
        assert_eq!(slots.len(), self.len as usize, "the length of S is wrong");
        assert_eq!(self.slots().filter(|&slot| self.stacked(slot)).count(), slots.len(), "a slot linked from nowhere");
        for hand in self.hands {
            assert!(hand == head || self.stacked(Slot(hand)), "a hand outside of S");
        }
        slots
    }

    #[inline(always)]
    fn queue_len(&self) -> u32 {
        self.queue.numbers.len() as u32
    }

    fn queued(&self, slot: Slot) -> bool {
        self.queue.numbers.contains_key(&slot.0)
    }

    fn came(&self, slot: Slot) -> u32 {
        self.queue.numbers.get(&slot.0).map_or(REFERENCED, |&(_, came)| came)
    }

    fn enqueue(&mut self, slot: Slot, came: u32) {
        self.queue.append(slot, came);
    }

    fn requeue(&mut self, slot: Slot, came: u32) {
        self.queue.append(slot, came);
    }

    fn leave_queue(&mut self, slot: Slot, _came: u32) {
        self.queue.numbers.remove(&slot.0).expect("it is in Q");
    }

    fn pop_queue(&mut self) -> Option<Slot> {
        while let Some((slot, number)) = self.queue.entries.pop_front() {
            if is_live(&self.queue.numbers, (slot, number)) {
                self.queue.numbers.remove(&slot);
                return Some(Slot(slot));
            }
        }
        None
    }

    fn queue(&self) -> Vec<Slot> {
        let live = self.queue.entries.iter().filter(|&&entry| is_live(&self.queue.numbers, entry));
        let slots: Vec<Slot> = live.map(|&(slot, _)| Slot(slot)).collect();
        assert_eq!(slots.len(), self.queue.numbers.len(), "the length of Q is wrong");
        slots
    }
}
