//! LIRS: the blocks with the smallest inter-reference recency stay, whatever their own recency is.
//!
//! Stack S, list Q and the three cases of a reference are those of section 2.3.3. Choices where the text leaves one,
//! and deviations:
//!
//! * A reference that repeats the previous one changes nothing. This is the rule of the authors' own program, which
//!   produced the published figures; Figure 2.2 (c) counts such references. On the authors' traces, where repeats are
//!   rare, the rule is worth at most 0.15 points.
//! * L_hirs is 1 % of the cache (2.4.1), as in the authors' program rounded down, and at least 2 blocks;
//!   L_lirs is at least 1. A cache of 2 blocks thus has one of each. A cache of 1 block has no LIR block: S stays empty,
//!   and each miss replaces the single block of Q.
//! * "When LIR block set is not full, all the referenced blocks are given LIR status" holds at any time, also after LIR
//!   blocks were invalidated.
//! * `ghosts` limits the non-resident blocks in S, by default to 1.5 for each block of the cache (docs/agreement.md
//!   reports the cost and the gain); `stack` limits S itself, if it is set (2.5.2). Beyond a limit, the non-resident
//!   HIR block closest to the bottom is removed. With a threshold of at most 100 % no HIR block is closer, since Q
//!   evicts in the order of S. In the extension (see below) a resident one can be closer; it stays.
//! * The recency of a block is the number of entries of S above it. If these limits removed blocks, R_max is smaller by
//!   their number.
//! * With a `threshold` above 100 % of R_max (2.4.4.2) the blocks that pruning removes from S stay behind as its
//!   extension, and re-use there gives LIR status too. As in stack pruning, a block leaves the extension for good once
//!   its recency reaches the threshold, even if R_max grows afterwards. `stack` then limits S with its extension.
//!
//! In a cache that becomes smaller, the LIR blocks beyond the new L_lirs turn HIR, from the bottom of S, as one does
//! whenever a block becomes LIR. If a block must leave a cache that is not full and Q is empty, the LIR block at the
//! bottom turns HIR and leaves. A cache that becomes larger gives LIR status to referenced blocks until it has L_lirs
//! of them.
//!
//! A reference costs O(1) amortized, or O(log length) with a threshold below 100 %. A single reference can cost
//! O(length of S): a pruning forgets all ghosts at once if none is above the next LIR block, and a full log is squeezed
//! (see [`recency`](crate::recency)), which reads and writes all of it.
//!
//! S and Q are logs in a replay, for speed. They are lists in a host that keeps cached data next to policy state
//! (`Visit::SMALL`), to save memory, if the threshold allows it. Both behave alike.

mod linked;
mod orders;

use self::linked::Linked;
pub use self::orders::Logs;
use self::orders::Orders;
use crate::spec::{Configured, Info, Param, Params, Portion, Setup, SpecError};
use crate::values::{HISTORY, Values, part};
use crate::visit::Visit;
use crate::{Access, Policy, Room, Slot};

use self::orders::{BOTTOM, DEMOTED, DEMOTED_GHOSTS, GHOST, GHOSTS, HIR, LIR, REFERENCED, UNKNOWN};

const NONE: u32 = u32::MAX;

/// The limit of a new IRR up to which an HIR block becomes LIR.
enum Threshold {
    /// R_max: the block is in S.
    RMax,
    /// Less than this share of R_max.
    Below(f64),
    /// Less than this multiple of R_max.
    Above(f64),
    /// No limit: any block, even at its first reference.
    None,
}

/// Low inter-reference recency set.
pub struct Lirs<O = Logs> {
    orders: O,
    /// Slots to return to the host.
    forgotten: Vec<Slot>,
    threshold: Threshold,
    /// The slot of the last reference.
    last: u32,
    /// Entries of S without its extension.
    in_stack: u32,
    lir: u32,
    /// L_lirs.
    lir_most: u32,
    ghosts: u32,
    ghosts_most: u32,
    stack_most: u32,
    portions: Portions,
}

impl<O: Orders> Configured for Lirs<O> {
    const INFO: Info = Info {
        name: "lirs",
        summary: "keeps the blocks with the fewest other blocks between their last two references",
        paper: "Jiang and Zhang, LIRS, SIGMETRICS 2002; Jiang, dissertation, College of William and Mary 2004, chapter 2",
        params: &[
            Param {
                published: None,
                key: "hir",
                default: "1%",
                values: part(1, "one less than the cache"),
                doc: "L_hirs, the resident HIR blocks: a share of the cache (at least 2 blocks) or a count",
            },
            Param {
                published: Some("unlimited"),
                key: "ghosts",
                default: "1.5",
                values: HISTORY,
                doc: "most non-resident blocks in stack S, as a multiple of the cache size",
            },
            Param {
                published: None,
                key: "stack",
                default: "none",
                values: Values::Or("none", &Values::Factor { least: 1.0, most: 1e6 }),
                doc: "most entries of stack S, as a multiple of the cache size",
            },
            Param {
                published: None,
                key: "threshold",
                default: "100%",
                values: Values::Or("none", &Values::Factor { least: 0.0, most: 1e6 }),
                doc: "an HIR block becomes LIR if its new IRR is below this multiple of R_max; with none, any block does, as in LRU",
            },
        ],
        offline: false,
        spatial: false,
        streams: false,
    };

    fn ghosts(params: &Params, capacity: u32) -> Result<u32, SpecError> {
        Ok(Portions::new(params, capacity)?.of(capacity).ghosts)
    }

    fn new(setup: &Setup, params: &Params) -> Result<Lirs<O>, SpecError> {
        if setup.slots > O::SLOTS_MOST {
            return Err(SpecError::TooLarge { policy: Self::INFO.name, slots: setup.slots, most: O::SLOTS_MOST });
        }
        let portions = Portions::new(params, setup.capacity)?;
        let limits = portions.of(setup.capacity);
        let threshold = match params.factor("threshold")? {
            Some(1.0) => Threshold::RMax,
            Some(share) if share < 1.0 => Threshold::Below(share),
            Some(multiple) => Threshold::Above(multiple),
            None => Threshold::None,
        };
        Ok(Lirs {
            orders: O::new(setup.slots, matches!(threshold, Threshold::Below(_))),
            forgotten: Vec::new(),
            threshold,
            last: NONE,
            in_stack: 0,
            lir: 0,
            lir_most: limits.lir,
            ghosts: 0,
            ghosts_most: limits.ghosts.min(setup.ghosts),
            stack_most: limits.stack,
            portions,
        })
    }

    fn visit<V: Visit>(setup: &Setup, params: &Params, visitor: V) -> Result<V::Out, SpecError>
    where
        Self: Send + 'static,
    {
        let threshold = params.factor("threshold")?;
        let small = V::SMALL && setup.slots <= Linked::SLOTS_MOST && matches!(threshold, Some(1.0) | None);
        if small {
            Ok(visitor.visit(Lirs::<Linked>::new(setup, params)?))
        } else {
            Ok(visitor.visit(Lirs::<Logs>::new(setup, params)?))
        }
    }
}

/// The parameters that limit the lists.
#[derive(Clone, Copy)]
struct Portions {
    hir: Portion,
    stack: Option<f64>,
    history: Portion,
}

/// The limits of the lists.
struct Limits {
    /// L_lirs.
    lir: u32,
    /// The most entries of S.
    stack: u32,
    ghosts: u32,
}

impl Portions {
    fn new(params: &Params, capacity: u32) -> Result<Portions, SpecError> {
        let hir = params.portion("hir", 1, (capacity - 1).max(1))?;
        Ok(Portions { hir, stack: params.factor("stack")?, history: params.history()? })
    }

    /// The limits for a cache of `capacity` blocks.
    fn of(&self, capacity: u32) -> Limits {
        let most = (capacity - 1).max(1);
        let least = if matches!(self.hir, Portion::Share(_)) { most.min(2) } else { 1 };
        let lir = capacity - self.hir.within(capacity, least, most);
        let stack = self.stack.map_or(u32::MAX, |multiple| (f64::from(capacity) * multiple) as u32);
        // A full S has L_lirs LIR blocks.
        let ghosts_most = if stack == u32::MAX { u32::MAX } else { stack - lir };
        Limits { lir, stack, ghosts: self.history.of(capacity, 0, ghosts_most) }
    }
}

impl<O: Orders> Lirs<O> {
    #[inline(always)]
    fn status(&self, slot: Slot) -> u32 {
        self.orders.status(slot)
    }

    #[inline(always)]
    fn extended(&self) -> bool {
        matches!(self.threshold, Threshold::Above(_))
    }

    /// Whether `place`, that of a block, is below the bottom of S.
    #[inline(always)]
    fn is_extension(&self, place: u32) -> bool {
        self.extended() && self.orders.before(place, self.orders.hand(BOTTOM))
    }

    /// Whether `slot`, which is HIR and known, becomes LIR by this reference.
    #[inline(always)]
    fn becomes_lir(&self, slot: Slot) -> bool {
        let stacked = self.orders.stacked(slot);
        match self.threshold {
            // A block in S has a recency, which is its new IRR, below that of the LIR block at the bottom (2.3.2).
            Threshold::RMax | Threshold::Above(_) => stacked,
            Threshold::Below(share) => {
                stacked && f64::from(self.orders.after(slot)) < share * f64::from(self.in_stack - 1)
            }
            Threshold::None => true,
        }
    }

    /// Moves `slot` to the top of S, or adds it there.
    #[inline(always)]
    fn put_on_top(&mut self, slot: Slot, status: u32) {
        if self.in_stack == 0 {
            self.orders.set_hand(BOTTOM, self.orders.head());
        }
        if self.orders.stacked(slot) {
            let place = self.orders.place(slot);
            self.in_stack += u32::from(self.is_extension(place));
            self.orders.refresh(slot, status);
        } else {
            self.in_stack += 1;
            self.orders.push(slot, status);
        }
    }

    /// Takes an HIR block out of S or its extension.
    #[inline(always)]
    fn drop_hir(&mut self, slot: Slot) {
        if self.status(slot) == GHOST {
            self.orders.leave(slot, UNKNOWN);
            self.ghosts -= 1;
            self.forgotten.push(slot);
        } else {
            self.orders.leave(slot, HIR);
        }
    }

    /// "Removes the HIR blocks in the bottom of the stack until an LIR block sits in the stack bottom" (2.3.3).
    #[inline]
    fn prune(&mut self) {
        let extended = self.extended();
        let mut base = self.orders.hand(BOTTOM);
        let bottom = 'found: loop {
            let beyond = self.orders.ahead(base, O::LOOK);
            let mut live = self.orders.live(base);
            while live != 0 && self.in_stack > 0 {
                let place = self.orders.ahead(base, live.trailing_zeros());
                let slot = self.orders.slot(place);
                if self.status(slot) == LIR {
                    break 'found place;
                }
                self.in_stack -= 1;
                if !extended {
                    self.drop_hir(slot);
                }
                live &= live - 1;
            }
            if self.in_stack == 0 {
                break self.orders.head();
            }
            base = beyond;
        };
        self.orders.set_hand(BOTTOM, bottom);
        if extended {
            self.trim();
        } else {
            self.orders.set_tail(bottom);
        }
    }

    /// Shortens the extension to blocks with a recency below the threshold.
    fn trim(&mut self) {
        let Threshold::Above(multiple) = self.threshold else { return };
        let limit = multiple * f64::from(self.in_stack.saturating_sub(1));
        let mut place = self.orders.tail();
        while self.orders.stack_len() > self.in_stack && f64::from(self.orders.stack_len() - 1) >= limit {
            if let Some(slot) = self.orders.at(place) {
                self.drop_hir(slot);
            }
            place = self.orders.ahead(place, 1);
        }
        self.orders.set_tail(place);
    }

    /// Moves `hand` forward to the first HIR block whose origin in Q is `tag`, at most to `end`. Returns its place if
    /// it is a ghost. Blocks of one origin are in the same order in S and in Q, so a ghost comes before all resident
    /// ones.
    fn oldest(&mut self, hand: usize, tag: u32, end: u32) -> Option<u32> {
        let mut place = self.orders.hand(hand);
        let found = loop {
            if place == end {
                break None;
            }
            if let Some(slot) = self.orders.at(place)
                && self.status(slot) != LIR
                && self.orders.came(slot) == tag
            {
                break (self.status(slot) == GHOST).then_some(place);
            }
            place = self.orders.ahead(place, 1);
        };
        self.orders.set_hand(hand, place);
        found
    }

    /// Removes the non-resident HIR block closest to the bottom of S.
    fn forget_oldest(&mut self) {
        let referenced = self.oldest(GHOSTS, REFERENCED, self.orders.head());
        let demoted =
            if self.extended() { self.oldest(DEMOTED_GHOSTS, DEMOTED, self.orders.hand(BOTTOM)) } else { None };
        let place = match (referenced, demoted) {
            (Some(one), Some(other)) if self.orders.before(other, one) => other,
            (one, other) => one.or(other).expect("a ghost"),
        };
        let slot = self.orders.slot(place);
        self.in_stack -= u32::from(!self.is_extension(place));
        self.drop_hir(slot);
    }

    /// Gives LIR status to `slot` and puts it on top of S. If there are then too many LIR blocks, the one at the bottom
    /// becomes HIR.
    #[inline(always)]
    fn become_lir(&mut self, slot: Slot) {
        self.put_on_top(slot, LIR);
        self.lir += 1;
        if self.lir > self.lir_most {
            self.demote();
        } else if self.orders.stack_len() > self.stack_most {
            self.forget_oldest();
        }
    }

    /// "The LIR block at the bottom of S is moved to the end of list Q with its status changed to HIR. A stack pruning is
    /// then conducted." (2.3.3, cases 2 and 3)
    #[inline(always)]
    fn demote(&mut self) {
        let bottom = self.orders.slot(self.orders.hand(BOTTOM));
        self.lir -= 1;
        self.orders.set_status(bottom, HIR);
        self.orders.enqueue(bottom, DEMOTED);
        self.prune();
    }

    /// Case 3: "We remove the HIR resident block at the front of list Q (it then becomes a non-resident block)."
    #[inline]
    fn pop_hir(&mut self) -> Slot {
        let victim = self.orders.pop_queue().expect("the LIR blocks do not fill a cache");
        if self.orders.stacked(victim) {
            self.orders.set_status(victim, GHOST);
            self.ghosts += 1;
        } else {
            self.orders.set_status(victim, UNKNOWN);
            self.forgotten.push(victim);
        }
        victim
    }

    /// Forgets ghosts beyond their limit or that of S; R_max and with it the extension become smaller.
    fn shorten(&mut self) {
        while self.ghosts > self.ghosts_most || self.ghosts > 0 && self.orders.stack_len() > self.stack_most {
            self.forget_oldest();
        }
        self.trim();
    }

    /// Puts `slot`, which is resident HIR, on top of S.
    #[inline(always)]
    fn remain_hir(&mut self, slot: Slot) {
        if self.lir == 0 {
            self.orders.set_status(slot, HIR);
            return;
        }
        self.put_on_top(slot, HIR);
        if self.orders.stack_len() > self.stack_most {
            self.forget_oldest();
        }
    }
}

impl<O: Orders> Policy for Lirs<O> {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if slot.0 == self.last {
            return;
        }
        self.last = slot.0;
        if self.status(slot) == LIR {
            // Case 1: "We move it to the top of the stack S. If the LIR block is originally located at the bottom of
            // the stack, we conduct a stack pruning."
            let at_bottom = self.orders.place(slot) == self.orders.hand(BOTTOM);
            self.orders.refresh(slot, LIR);
            if at_bottom {
                self.prune();
            }
        } else if self.lir < self.lir_most || self.becomes_lir(slot) {
            // Case 2 (1): "If X is in the stack S, we change its status to LIR. This block is also removed from list
            // Q."
            self.orders.leave_queue(slot, REFERENCED);
            self.become_lir(slot);
        } else {
            // Case 2 (2): "If X is not in the stack S, we leave its status in HIR and move it to the end of list Q."
            self.orders.requeue(slot, REFERENCED);
            self.remain_hir(slot);
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Option<Slot> {
        Some(self.pop_hir())
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.last = slot.0;
        self.ghosts -= u32::from(self.status(slot) == GHOST);
        if self.lir < self.lir_most || self.becomes_lir(slot) {
            // Case 3 (1): "If X is in the stack S, we change its status to LIR."
            self.become_lir(slot);
        } else {
            // Case 3 (2): "If X is not in the stack S, we leave its status in HIR and place it at the end of list Q."
            self.orders.enqueue(slot, REFERENCED);
            self.remain_hir(slot);
        }
        if self.ghosts > self.ghosts_most {
            self.forget_oldest();
        }
    }

    fn shed(&mut self) -> Slot {
        if self.orders.queue_len() == 0 {
            self.demote();
        }
        let victim = self.pop_hir();
        if victim.0 == self.last {
            self.last = NONE;
        }
        self.shorten();
        victim
    }

    fn resize(&mut self, room: Room) {
        self.orders.grow(room.slots);
        let limits = self.portions.of(room.capacity);
        (self.lir_most, self.stack_most) = (limits.lir, limits.stack);
        self.ghosts_most = limits.ghosts.min(room.ghosts);
        while self.lir > self.lir_most {
            self.demote();
        }
        self.shorten();
    }

    fn slots_most(&self) -> u32 {
        O::SLOTS_MOST
    }

    fn remove(&mut self, slot: Slot) {
        if slot.0 == self.last {
            self.last = NONE;
        }
        match self.status(slot) {
            LIR => self.lir -= 1,
            HIR => self.orders.leave_queue(slot, REFERENCED),
            _ => self.ghosts -= 1,
        }
        if self.orders.stacked(slot) {
            let place = self.orders.place(slot);
            let bottom = self.orders.hand(BOTTOM);
            self.in_stack -= u32::from(!self.is_extension(place));
            self.orders.leave(slot, UNKNOWN);
            if place == bottom || self.extended() {
                self.prune();
            }
        }
        self.orders.set_status(slot, UNKNOWN);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.orders.warm(slot);
    }

    fn check(&self) {
        let stack = self.orders.stack();
        let queue = self.orders.queue();
        let bottom = self.orders.hand(BOTTOM);
        let split =
            |place| stack.split_at(stack.partition_point(|&slot| self.orders.before(self.orders.place(slot), place)));
        let (below, inside) = split(bottom);
        let with = |status| stack.iter().copied().filter(move |&slot| self.status(slot) == status);
        assert_eq!(inside.len(), self.in_stack as usize, "entries of S");
        assert_eq!(with(LIR).count(), self.lir as usize, "LIR blocks, which are all in S");
        assert_eq!(with(GHOST).count(), self.ghosts as usize, "ghosts, which are all in S or its extension");
        assert_eq!(with(UNKNOWN).count(), 0, "a block in S that is not known");
        assert!(queue.iter().all(|&slot| self.status(slot) == HIR), "a block in Q that is not resident HIR");
        assert!(with(HIR).all(|slot| self.orders.queued(slot)), "a resident HIR block is in Q");
        assert!(self.forgotten.iter().all(|&slot| self.status(slot) == UNKNOWN), "a known block is forgotten");
        assert!(self.lir <= self.lir_most, "too many LIR blocks");
        for slot in self.orders.slots() {
            let (stacked, queued) = (self.orders.stacked(slot), self.orders.queued(slot));
            let in_order = match self.status(slot) {
                UNKNOWN => !stacked && !queued,
                HIR => queued,
                _ => stacked && !queued,
            };
            assert!(in_order, "{slot:?} with status {} in S: {stacked}, in Q: {queued}", self.status(slot));
        }
        let resident = |slot| matches!(self.status(slot), LIR | HIR);
        assert!(self.last == NONE || resident(Slot(self.last)), "the block of the last reference is not resident");
        assert!(self.ghosts <= self.ghosts_most, "too many ghosts");
        // Until the host has taken out the blocks that a smaller cache cannot hold, residents alone can exceed the
        // limit.
        assert!(self.ghosts == 0 || self.orders.stack_len() <= self.stack_most, "S is longer than its limit");
        match inside.first() {
            Some(&slot) => assert_eq!((self.status(slot), self.orders.place(slot)), (LIR, bottom)),
            None => assert_eq!((self.lir, stack.len()), (0, 0), "S is empty where there is no LIR block"),
        }
        assert!(below.iter().all(|&slot| self.status(slot) != LIR), "an LIR block below the bottom of S");
        for (hand, tag) in [(GHOSTS, REFERENCED), (DEMOTED_GHOSTS, DEMOTED)] {
            let (passed, _) = split(self.orders.hand(hand));
            let with_tag = |&slot: &Slot| self.orders.came(slot) == tag;
            let missed = |slot: &Slot| self.status(*slot) == GHOST && with_tag(slot);
            assert!(!passed.iter().any(missed), "a ghost before the hand that finds it");
            let both = queue.iter().copied().filter(with_tag).filter(|&slot| self.orders.stacked(slot));
            assert!(both.eq(with(HIR).filter(with_tag)), "S and Q have their common blocks in one order");
            let mut from_resident = stack.iter().filter(|&slot| with_tag(slot) && self.status(*slot) != LIR);
            from_resident.find(|&&slot| self.status(slot) == HIR);
            assert!(from_resident.all(|&slot| self.status(slot) == HIR), "a resident HIR block below a ghost");
        }
        if let Threshold::Above(multiple) = self.threshold {
            let (reach, r_max) = (stack.len().saturating_sub(1) as f64, inside.len().saturating_sub(1) as f64);
            assert!(below.is_empty() || reach < multiple * r_max, "the extension is too long");
        } else {
            assert!(below.is_empty(), "an HIR block below the bottom of S");
            let mut demoted = stack.iter().filter(|&&slot| self.orders.came(slot) == DEMOTED);
            assert!(demoted.all(|&slot| self.status(slot) == LIR), "a demoted block in S");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("stack", self.in_stack.into());
        report("lir", self.lir.into());
        report("hir_resident", self.orders.queue_len().into());
        report("ghosts", self.ghosts.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Kind, Stream, Tenant};

    const A: Slot = Slot(0);
    const B: Slot = Slot(1);
    const C: Slot = Slot(2);
    const D: Slot = Slot(3);
    const E: Slot = Slot(4);

    fn access() -> Access {
        let block = Block { volume: 0, index: 0 };
        Access { block, tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: 0 }
    }

    impl<O: Orders> Lirs<O> {
        fn reference(&mut self, slot: Slot) -> Option<Slot> {
            let mut victim = None;
            if matches!(self.status(slot), LIR | HIR) {
                self.hit(slot, &access());
            } else {
                victim = (self.lir + self.orders.queue_len() == 3).then(|| self.evict(slot, &access())).flatten();
                self.insert(slot, &access());
            }
            self.check();
            victim
        }

        /// S from its top, each block with its status, and Q from its front.
        fn state(&self) -> (Vec<(Slot, u32)>, Vec<Slot>) {
            let stack = self.orders.stack();
            (stack.into_iter().rev().map(|slot| (slot, self.status(slot))).collect(), self.orders.queue())
        }
    }

    /// A cache with more slots than an order can number is an error, not a panic.
    #[test]
    fn too_many_slots() {
        let setup = Setup {
            capacity: 1 << 26,
            slots: crate::recency::SLOTS_MOST + 1,
            block_bytes: 4096,
            ghosts: 1 << 26,
            future: None,
            patterns: None,
        };
        let spec: crate::Spec = "lirs".parse().expect("a policy");
        let Err(error) = crate::build(&spec, &setup) else { panic!("it was made") };
        assert!(matches!(error, SpecError::TooLarge { policy: "lirs", .. }));
        assert!(error.to_string().contains("134217728 blocks"), "{error}");
    }

    /// The state of Figure 2.2 (a), which is that of Table 2.1 at virtual time 9: LIR blocks A and B, the only resident
    /// HIR block E, and the non-resident D. The table's own references give LIR status to A and D first, as "all the
    /// referenced blocks are given LIR status until its size reaches L_lirs"; B A D A E leads to the figure's state.
    fn at_time_9<O: Orders>() -> Lirs<O> {
        let setup = Setup { capacity: 3, slots: 5, block_bytes: 4096, ghosts: 5, future: None, patterns: None };
        let spec: crate::Spec = "lirs:hir=1".parse().expect("a policy");
        let mut lirs =
            Lirs::<O>::new(&setup, &spec.params(&Lirs::<O>::INFO).expect("known keys")).expect("possible values");
        for slot in [B, A, D, A, E] {
            lirs.reference(slot);
        }
        assert_eq!(lirs.state(), (vec![(E, HIR), (A, LIR), (D, GHOST), (B, LIR)], vec![E]));
        // In the figure, the reference at time 10 can repeat the one at time 9.
        lirs.last = NONE;
        lirs
    }

    /// Figure 2.2, states (b) to (e).
    fn figure_2_2<O: Orders>() {
        let mut lirs = at_time_9::<O>();
        assert_eq!(lirs.reference(B), None);
        assert_eq!(lirs.state(), (vec![(B, LIR), (E, HIR), (A, LIR)], vec![E]), "(b)");

        let mut lirs = at_time_9::<O>();
        assert_eq!(lirs.reference(E), None);
        assert_eq!(lirs.state(), (vec![(E, LIR), (A, LIR)], vec![B]), "(c)");

        let mut lirs = at_time_9::<O>();
        assert_eq!(lirs.reference(D), Some(E));
        assert_eq!(lirs.state(), (vec![(D, LIR), (E, GHOST), (A, LIR)], vec![B]), "(d)");

        let mut lirs = at_time_9::<O>();
        assert_eq!(lirs.reference(C), Some(E));
        assert_eq!(lirs.state(), (vec![(C, HIR), (E, GHOST), (A, LIR), (D, GHOST), (B, LIR)], vec![C]), "(e)");
    }

    /// "If there is a reference to block D at time 10 [...] block B becomes the only resident HIR block", which leaves
    /// at the next miss (2.3.1).
    fn the_demoted_block_leaves_next<O: Orders>() {
        let mut lirs = at_time_9::<O>();
        lirs.reference(D);
        assert_eq!(lirs.reference(C), Some(B));
    }

    #[test]
    fn transitions_of_logs() {
        figure_2_2::<Logs>();
        the_demoted_block_leaves_next::<Logs>();
    }

    #[test]
    fn transitions_of_lists() {
        figure_2_2::<Linked>();
        the_demoted_block_leaves_next::<Linked>();
    }
}
