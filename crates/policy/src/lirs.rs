//! LIRS: the blocks with the smallest inter-reference recency stay, whatever their own recency is.
//!
//! Stack S, list Q and the three cases of a reference are those of section 2.3.3. Where the text leaves a choice, or
//! this file deviates:
//!
//! * A reference that repeats the one before it changes nothing, which is the rule of the authors' own program and
//!   stands behind the published figures: it would make an HIR block LIR whose only re-use is the same operation.
//! * L_hirs is 1 % of the cache and at least 2 blocks (2.4.1), L_lirs at least 1. So a cache of 2 blocks has one of
//!   each, and a cache of 1 block has no LIR block: S stays empty, and the single block of Q is replaced at each miss.
//! * "When LIR block set is not full, all the referenced blocks are given LIR status" holds at any time, also after LIR
//!   blocks were invalidated.
//! * S is bounded by the host's room for ghosts, and where asked for by `stack` (2.5.2). The HIR block closest to the
//!   bottom is removed, which is always the non-resident one referenced longest ago, since Q evicts in the order of S.
//! * The recency of a block is the number of entries of S above it. Where blocks were removed by these bounds, R_max is
//!   smaller by their number.
//! * With a `threshold` above 100 % of R_max (2.4.4.2) the blocks that pruning removes from S stay behind as its
//!   extension, and re-use there gives LIR status too. As in stack pruning, a block leaves the extension for good
//!   once its recency reaches the threshold, even if R_max should grow afterwards. `stack` then bounds S with it.

use crate::recency::Recency;
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

// Tags in S. A block that is neither resident nor a ghost is HIR, but not known.
const UNKNOWN: u32 = 0;
const LIR: u32 = 1;
/// HIR and resident: in Q, and in S or not.
const HIR: u32 = 2;
/// HIR and not resident: in S.
const GHOST: u32 = 3;

/// The place of the LIR block at the bottom of S; where there is none, S is empty.
const BOTTOM: usize = 0;
/// No ghost is before it.
const GHOSTS: usize = 1;

const NONE: u32 = u32::MAX;

/// How large a new IRR may be for an HIR block to become LIR.
enum Threshold {
    /// R_max, which is what being in S means.
    RMax,
    /// Less than this share of R_max.
    Below(f64),
    /// Up to this multiple of R_max.
    Above(f64),
    /// Any, also that of a block referenced for the first time.
    None,
}

/// Low inter-reference recency set.
pub struct Lirs {
    /// S, and before its bottom its extension. What leaves the cache without being in it is forgotten.
    stack: Recency<2>,
    /// Q.
    queue: Recency<0>,
    /// Slots to be handed back.
    forgotten: Vec<Slot>,
    threshold: Threshold,
    /// The slot of the last reference.
    last: u32,
    /// Entries of S without its extension.
    in_stack: u32,
    lir: u32,
    lir_most: u32,
    ghosts: u32,
    ghosts_most: u32,
    stack_most: u32,
}

impl Configured for Lirs {
    const INFO: Info = Info {
        name: "lirs",
        summary: "keeps the blocks that are re-used after the fewest other blocks",
        paper: "Jiang and Zhang, LIRS, SIGMETRICS 2002; Jiang, dissertation, College of William and Mary 2004, chapter 2",
        params: &[
            Param {
                key: "hir",
                default: "1%",
                doc: "L_hirs: share of the cache (at least 2 blocks) or count of blocks for resident HIR blocks",
            },
            Param {
                key: "stack",
                default: "none",
                doc: "most entries of stack S as a multiple of the cache size, 1.5 or 150% for example, or none",
            },
            Param {
                key: "threshold",
                default: "100%",
                doc: "new IRR below which an HIR block becomes LIR, in shares of R_max, or none: any block does, as in LRU",
            },
        ],
        offline: false,
    };

    fn new(setup: &Setup, params: &Params) -> Result<Lirs, SpecError> {
        let capacity = setup.capacity;
        let hir_most = (capacity - 1).max(1);
        let hir = params.blocks("hir", capacity, hir_most.min(2), hir_most);
        let hir = hir.or_else(|_| params.blocks("hir", capacity, 1, hir_most))?;
        let stack_most = match params.factor("stack", 1.0, 1e6)? {
            Some(multiple) => (f64::from(capacity) * multiple) as u32,
            None => u32::MAX,
        };
        let threshold = match params.factor("threshold", 0.0, 1e6)? {
            Some(1.0) => Threshold::RMax,
            Some(share) if share < 1.0 => Threshold::Below(share),
            Some(multiple) => Threshold::Above(multiple),
            None => Threshold::None,
        };
        let known = capacity.saturating_add(setup.ghosts).saturating_add(1);
        let mut stack = Recency::new(setup.slots, known);
        if let Threshold::Below(_) = threshold {
            stack.count_places();
        }
        Ok(Lirs {
            stack,
            queue: Recency::new(setup.slots, capacity),
            forgotten: Vec::with_capacity(setup.ghosts.min(setup.slots) as usize + 1),
            threshold,
            last: NONE,
            in_stack: 0,
            lir: 0,
            lir_most: capacity - hir,
            ghosts: 0,
            ghosts_most: setup.ghosts,
            stack_most,
        })
    }
}

impl Lirs {
    #[inline(always)]
    fn extended(&self) -> bool {
        matches!(self.threshold, Threshold::Above(_))
    }

    /// Whether `slot`, which is in the stack or its extension, may become LIR with the IRR that it gets now.
    #[inline(always)]
    fn is_low(&self, slot: Slot) -> bool {
        match self.threshold {
            Threshold::Below(share) => f64::from(self.stack.after(slot)) < share * f64::from(self.in_stack - 1),
            _ => true,
        }
    }

    /// Moves `slot` to the top of S, or puts it there.
    #[inline(always)]
    fn to_top(&mut self, slot: Slot, tag: u32) {
        if self.in_stack == 0 {
            self.stack.set_hand(BOTTOM, self.stack.head());
        }
        if self.stack.contains(slot) {
            let below = self.extended() && self.stack.before(self.stack.place(slot), self.stack.hand(BOTTOM));
            self.in_stack += u32::from(below);
            self.stack.refresh(slot, tag);
        } else {
            self.in_stack += 1;
            self.stack.push(slot, tag);
        }
    }

    /// Takes a block out of the stack or its extension that is HIR.
    #[inline(always)]
    fn drop_hir(&mut self, slot: Slot) {
        if self.stack.tag(slot) == GHOST {
            self.stack.leave(slot, UNKNOWN);
            self.ghosts -= 1;
            self.forgotten.push(slot);
        } else {
            self.stack.leave(slot, HIR);
        }
    }

    /// "Removes the HIR blocks in the bottom of the stack until an LIR block sits in the stack bottom" (2.3.3).
    #[inline(always)]
    fn prune(&mut self) {
        let mut place = self.stack.hand(BOTTOM);
        let extended = self.extended();
        while self.in_stack > 0 {
            if let Some(slot) = self.stack.at(place) {
                if self.stack.tag(slot) == LIR {
                    break;
                }
                self.in_stack -= 1;
                if !extended {
                    self.drop_hir(slot);
                }
            }
            place = self.stack.next(place);
        }
        self.stack.set_hand(BOTTOM, place);
        if extended {
            self.trim();
        } else {
            self.stack.set_tail(place);
        }
    }

    /// Shortens the extension to blocks with a recency below the threshold.
    fn trim(&mut self) {
        let Threshold::Above(multiple) = self.threshold else { return };
        let limit = multiple * f64::from(self.in_stack.saturating_sub(1));
        let mut place = self.stack.tail();
        while self.stack.len() > self.in_stack && f64::from(self.stack.len() - 1) >= limit {
            if let Some(slot) = self.stack.at(place) {
                self.drop_hir(slot);
            }
            place = self.stack.next(place);
        }
        self.stack.set_tail(place);
    }

    /// Removes the non-resident HIR block closest to the bottom, other than `spared`.
    fn forget_oldest(&mut self, spared: u32) {
        let mut place = self.stack.hand(GHOSTS);
        let slot = loop {
            match self.stack.at(place) {
                Some(slot) if self.stack.tag(slot) == GHOST && slot.0 != spared => break slot,
                _ => place = self.stack.next(place),
            }
        };
        self.stack.set_hand(GHOSTS, place);
        let inside = !self.stack.before(place, self.stack.hand(BOTTOM));
        self.in_stack -= u32::from(inside);
        self.drop_hir(slot);
    }

    /// Gives LIR status to `slot` and puts it on top of S, for which the LIR block at the bottom becomes HIR where
    /// there are too many.
    #[inline(always)]
    fn become_lir(&mut self, slot: Slot) {
        self.to_top(slot, LIR);
        self.lir += 1;
        if self.lir > self.lir_most {
            // "The LIR block at the bottom of S is moved to the end of list Q with its status changed to HIR. A stack
            // pruning is then conducted." (2.3.3, cases 2 and 3)
            let place = self.stack.hand(BOTTOM);
            let bottom = self.stack.at(place).expect("an LIR block is at the bottom of S");
            self.lir -= 1;
            self.stack.set_tag(bottom, HIR);
            self.queue.push(bottom, 0);
            self.prune();
        }
    }

    /// A reference to a resident HIR block (2.3.3, case 2).
    #[inline]
    fn hit_hir(&mut self, slot: Slot) {
        if self.lir < self.lir_most
            || matches!(self.threshold, Threshold::None)
            || self.stack.contains(slot) && self.is_low(slot)
        {
            // "If X is in the stack S, we change its status to LIR. This block is also removed from list Q."
            self.queue.leave(slot, 0);
            self.become_lir(slot);
        } else {
            // "If X is not in the stack S, we leave its status in HIR and move it to the end of list Q."
            self.queue.refresh(slot, 0);
            self.remain_hir(slot);
        }
    }

    /// Puts `slot`, which is HIR and at the end of Q, on top of S.
    #[inline(always)]
    fn remain_hir(&mut self, slot: Slot) {
        self.to_top(slot, HIR);
        if self.lir == 0 {
            self.prune();
        }
        if self.stack.len() > self.stack_most {
            self.forget_oldest(NONE);
        }
    }
}

impl Policy for Lirs {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if slot.0 == self.last {
            return;
        }
        self.last = slot.0;
        if self.stack.tag(slot) == LIR {
            // Case 1: "We move it to the top of the stack S. If the LIR block is originally located at the bottom of
            // the stack, we conduct a stack pruning."
            let at_bottom = self.stack.place(slot) == self.stack.hand(BOTTOM);
            self.stack.refresh(slot, LIR);
            if at_bottom {
                self.prune();
            }
        } else {
            self.hit_hir(slot);
        }
    }

    #[inline]
    fn evict(&mut self, incoming: Slot, _access: &Access) -> Slot {
        // Case 3: "We remove the HIR resident block at the front of list Q (it then becomes a non-resident block)."
        let victim = self.queue.pop().expect("the LIR blocks do not fill a cache");
        if !self.stack.contains(victim) {
            self.stack.set_tag(victim, UNKNOWN);
            self.forgotten.push(victim);
            return victim;
        }
        self.stack.set_tag(victim, GHOST);
        self.ghosts += 1;
        // The incoming block is a ghost no longer once it is inserted.
        let others = self.ghosts - u32::from(self.stack.tag(incoming) == GHOST);
        let place = self.stack.place(victim);
        if self.stack.before(place, self.stack.hand(GHOSTS)) {
            self.stack.set_hand(GHOSTS, place);
        }
        if others > self.ghosts_most {
            self.forget_oldest(incoming.0);
        }
        victim
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.last = slot.0;
        let ghost = self.stack.tag(slot) == GHOST;
        self.ghosts -= u32::from(ghost);
        if self.lir < self.lir_most || matches!(self.threshold, Threshold::None) || ghost && self.is_low(slot) {
            // Case 3 (1): "If X is in the stack S, we change its status to LIR."
            self.become_lir(slot);
        } else {
            // Case 3 (2): "We leave its status in HIR and place it at the end of list Q."
            self.queue.push(slot, 0);
            self.remain_hir(slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if slot.0 == self.last {
            self.last = NONE;
        }
        let tag = self.stack.tag(slot);
        match tag {
            LIR => self.lir -= 1,
            HIR => self.queue.leave(slot, 0),
            _ => self.ghosts -= 1,
        }
        if self.stack.contains(slot) {
            let place = self.stack.place(slot);
            let bottom = self.stack.hand(BOTTOM);
            self.in_stack -= u32::from(!self.stack.before(place, bottom));
            self.stack.leave(slot, UNKNOWN);
            if place == bottom || self.extended() {
                self.prune();
            }
        }
        self.stack.set_tag(slot, UNKNOWN);
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop()
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.stack.warm(slot);
    }

    fn check(&self) {
        let stack = self.stack.checked();
        let queue = self.queue.checked();
        let bottom = self.stack.hand(BOTTOM);
        let (below, inside): (Vec<Slot>, Vec<Slot>) =
            stack.iter().partition(|&&slot| self.stack.before(self.stack.place(slot), bottom));
        let tagged = |tag| stack.iter().filter(|&&slot| self.stack.tag(slot) == tag).count() as u32;
        assert_eq!(inside.len(), self.in_stack as usize, "entries of S");
        assert_eq!(tagged(LIR), self.lir, "LIR blocks, which are all in S");
        assert_eq!(tagged(GHOST), self.ghosts, "ghosts, which are all in S or its extension");
        assert_eq!(tagged(UNKNOWN), 0, "a block in S that is not known");
        assert!(self.lir <= self.lir_most, "too many LIR blocks");
        assert!(self.ghosts <= self.ghosts_most, "too many ghosts");
        assert!(self.stack.len() <= self.stack_most, "S is longer than its limit");
        match inside.first() {
            Some(&slot) => assert_eq!(self.stack.tag(slot), LIR, "the bottom of S is LIR"),
            None => assert_eq!((self.lir, stack.len()), (0, 0), "S is empty where there is no LIR block"),
        }
        assert!(below.iter().all(|&slot| self.stack.tag(slot) != LIR), "an LIR block below the bottom of S");
        assert!(below.is_empty() || self.extended(), "an HIR block below the bottom of S");
        assert!(queue.iter().all(|&slot| self.stack.tag(slot) == HIR), "a block in Q that is not resident HIR");
        let resident = stack.iter().filter(|&&slot| self.stack.tag(slot) == HIR);
        if self.extended() {
            assert!(resident.copied().all(|slot| self.queue.contains(slot)), "a resident HIR block is in Q");
            let first = stack.iter().find(|&&slot| self.stack.tag(slot) == GHOST);
            let hand = self.stack.hand(GHOSTS);
            assert!(first.is_none_or(|&slot| !self.stack.before(self.stack.place(slot), hand)), "a ghost before its hand");
        } else {
            let in_both = queue.iter().filter(|&&slot| self.stack.contains(slot));
            assert!(resident.eq(in_both), "S and Q have their common blocks in one order");
            let last_ghost = stack.iter().rposition(|&slot| self.stack.tag(slot) == GHOST);
            let first_hir = stack.iter().position(|&slot| self.stack.tag(slot) == HIR);
            assert!(first_hir.is_none_or(|first| last_ghost.is_none_or(|last| last < first)), "a ghost above Q in S");
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("stack", self.in_stack.into());
        report("lir", self.lir.into());
        report("hir_resident", self.queue.len().into());
        report("ghosts", self.ghosts.into());
    }
}
