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
//!   once its recency reaches the threshold, even if R_max should grow afterwards. `stack` then bounds S with it, and
//!   the ghost that is removed is the one evicted longest ago.

use crate::list::{Links, List};
use crate::spec::{Configured, Info, Param, Params, Setup, SpecError};
use crate::{Access, Policy, Slot};

// The state of a slot: one of four, and flags. A block that is neither resident nor a ghost is HIR, but not known.
const UNKNOWN: u8 = 0;
const LIR: u8 = 1;
/// HIR and resident: in Q, and in S or not.
const HIR: u8 = 2;
/// HIR and not resident: in S.
const GHOST: u8 = 3;
const STATUS: u8 = 3;
/// In S or its extension.
const STACKED: u8 = 4;
/// In the extension of S.
const BELOW: u8 = 8;
/// Of a recency below the threshold; used where that is smaller than R_max.
const NEAR: u8 = 16;

const NONE: u32 = u32::MAX;

/// How large a new IRR may be for an HIR block to become LIR.
enum Threshold {
    /// R_max, which is what being in S means.
    RMax,
    /// Less than this share of R_max.
    Below(f64),
    /// Less than this multiple of R_max.
    Above(f64),
    /// Any, also that of a block referenced for the first time.
    None,
}

/// Low inter-reference recency set.
pub struct Lirs {
    states: Vec<u8>,
    stack_links: Links,
    /// S with its top in front, and behind its bottom its extension.
    stack: List,
    /// Links of all that follows.
    links: Links,
    /// Q.
    queue: List,
    /// Ghosts, the one evicted longest ago in front.
    ghosts: List,
    /// Slots to be handed back.
    forgotten: List,
    threshold: Threshold,
    /// The slot of the last reference.
    last: u32,
    /// The LIR block at the bottom of S; where there is none, S is empty.
    bottom: u32,
    /// Blocks in the extension of S.
    below: u32,
    /// Blocks that are NEAR, and the one of them nearest to the bottom.
    near: u32,
    near_edge: u32,
    lir: u32,
    lir_most: u32,
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
        let (stack_links, [stack]) = Links::new(setup.slots);
        let (links, [queue, ghosts, forgotten]) = Links::new(setup.slots);
        Ok(Lirs {
            states: vec![UNKNOWN; setup.slots as usize],
            stack_links,
            stack,
            links,
            queue,
            ghosts,
            forgotten,
            threshold,
            last: NONE,
            bottom: NONE,
            below: 0,
            near: 0,
            near_edge: NONE,
            lir: 0,
            lir_most: capacity - hir,
            ghosts_most: setup.ghosts,
            stack_most,
        })
    }
}

impl Lirs {
    #[inline(always)]
    fn status(&self, slot: Slot) -> u8 {
        self.states[slot.index()] & STATUS
    }

    #[inline(always)]
    fn is(&self, slot: Slot, flag: u8) -> bool {
        self.states[slot.index()] & flag != 0
    }

    #[inline(always)]
    fn set_status(&mut self, slot: Slot, status: u8) {
        let state = &mut self.states[slot.index()];
        *state = *state & !STATUS | status;
    }

    /// Whether `slot`, which is HIR and known, becomes LIR by this reference.
    #[inline(always)]
    fn becomes_lir(&self, slot: Slot) -> bool {
        match self.threshold {
            // A block in S has a recency, which is its new IRR, below that of the LIR block at the bottom (2.3.2).
            Threshold::RMax | Threshold::Above(_) => self.is(slot, STACKED),
            Threshold::Below(_) => self.is(slot, NEAR),
            Threshold::None => true,
        }
    }

    /// Moves `slot` to the top of S, or puts it there.
    #[inline(always)]
    fn to_top(&mut self, slot: Slot) {
        if !self.is(slot, STACKED) {
            self.states[slot.index()] |= STACKED;
            self.stack.push_front(&mut self.stack_links, slot);
        } else {
            if self.is(slot, BELOW) {
                self.states[slot.index()] &= !BELOW;
                self.below -= 1;
            }
            if let Threshold::Below(_) = self.threshold {
                self.leave_near(slot);
            }
            self.stack.move_to_front(&mut self.stack_links, slot);
        }
        if let Threshold::Below(_) = self.threshold {
            self.states[slot.index()] |= NEAR;
            self.near += 1;
            if self.near == 1 {
                self.near_edge = slot.0;
            }
        }
    }

    /// Takes `slot` out of S or its extension.
    #[inline(always)]
    fn unstack(&mut self, slot: Slot) {
        self.below -= u32::from(self.is(slot, BELOW));
        self.leave_near(slot);
        self.states[slot.index()] &= STATUS;
        self.stack.unlink(&mut self.stack_links, slot);
    }

    #[inline(always)]
    fn leave_near(&mut self, slot: Slot) {
        if self.is(slot, NEAR) {
            self.states[slot.index()] &= !NEAR;
            self.near -= 1;
            if self.near_edge == slot.0 {
                self.near_edge = self.stack.before(&self.stack_links, slot).map_or(NONE, |slot| slot.0);
            }
        }
    }

    /// Makes those blocks NEAR whose recency is below the share of R_max, which changed by a few.
    fn adjust_near(&mut self) {
        let Threshold::Below(share) = self.threshold else { return };
        let near = (share * f64::from(self.stack.len().saturating_sub(1))).ceil() as u32;
        while self.near < near {
            let next = match self.near_edge {
                NONE => self.stack.front(&self.stack_links),
                edge => self.stack.after(&self.stack_links, Slot(edge)),
            };
            let next = next.expect("fewer blocks are near than in S");
            self.states[next.index()] |= NEAR;
            self.near_edge = next.0;
            self.near += 1;
        }
        while self.near > near {
            self.leave_near(Slot(self.near_edge));
        }
    }

    /// Takes an HIR block out of S or its extension.
    #[inline(always)]
    fn drop_hir(&mut self, slot: Slot) {
        self.unstack(slot);
        if self.status(slot) == GHOST {
            self.set_status(slot, UNKNOWN);
            self.ghosts.unlink(&mut self.links, slot);
            self.forgotten.push_back(&mut self.links, slot);
        }
    }

    /// "Removes the HIR blocks in the bottom of the stack until an LIR block sits in the stack bottom" (2.3.3), where
    /// `bottom` is what is now at the bottom.
    #[inline(always)]
    fn prune(&mut self, mut bottom: Option<Slot>) {
        let extended = matches!(self.threshold, Threshold::Above(_));
        while let Some(slot) = bottom
            && self.status(slot) != LIR
        {
            bottom = self.stack.before(&self.stack_links, slot);
            if extended {
                self.put_below(slot);
            } else {
                self.drop_hir(slot);
            }
        }
        self.bottom = bottom.map_or(NONE, |slot| slot.0);
        if extended {
            self.trim();
        }
    }

    #[inline(always)]
    fn put_below(&mut self, slot: Slot) {
        self.states[slot.index()] |= BELOW;
        self.below += 1;
    }

    /// Shortens the extension to blocks with a recency below the threshold.
    fn trim(&mut self) {
        let Threshold::Above(multiple) = self.threshold else { return };
        let r_max = (self.stack.len() - self.below).saturating_sub(1);
        let limit = multiple * f64::from(r_max);
        while self.below > 0 && f64::from(self.stack.len() - 1) >= limit {
            let last = self.stack.back(&self.stack_links).expect("the extension is not empty");
            self.drop_hir(last);
        }
    }

    /// Removes the non-resident HIR block closest to the bottom of S.
    fn forget_oldest(&mut self) {
        let oldest = self.ghosts.front(&self.links).expect("S has no other block that it could lose");
        self.drop_hir(oldest);
    }

    /// Gives LIR status to `slot` and puts it on top of S; where there are too many LIR blocks then, the one at the
    /// bottom becomes HIR.
    #[inline(always)]
    fn become_lir(&mut self, slot: Slot) {
        self.set_status(slot, LIR);
        self.to_top(slot);
        self.lir += 1;
        if self.bottom == NONE {
            self.bottom = slot.0;
        }
        if self.lir > self.lir_most {
            // "The LIR block at the bottom of S is moved to the end of list Q with its status changed to HIR. A stack
            // pruning is then conducted." (2.3.3, cases 2 and 3)
            let bottom = Slot(self.bottom);
            let above = self.stack.before(&self.stack_links, bottom);
            self.lir -= 1;
            self.set_status(bottom, HIR);
            self.queue.push_back(&mut self.links, bottom);
            if let Threshold::Above(_) = self.threshold {
                self.put_below(bottom);
            } else {
                self.unstack(bottom);
            }
            self.prune(above);
        }
        self.adjust_near();
    }

    /// Puts `slot`, which is resident HIR, on top of S.
    #[inline(always)]
    fn remain_hir(&mut self, slot: Slot) {
        if self.lir == 0 {
            return;
        }
        self.to_top(slot);
        if self.stack.len() > self.stack_most {
            self.forget_oldest();
        }
        self.adjust_near();
    }
}

impl Policy for Lirs {
    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        if slot.0 == self.last {
            return;
        }
        self.last = slot.0;
        if self.status(slot) == LIR {
            // Case 1: "We move it to the top of the stack S. If the LIR block is originally located at the bottom of
            // the stack, we conduct a stack pruning."
            let above = self.stack.before(&self.stack_links, slot);
            self.to_top(slot);
            if slot.0 == self.bottom && above.is_some() {
                self.prune(above);
            }
            self.adjust_near();
        } else if self.lir < self.lir_most || self.becomes_lir(slot) {
            // Case 2 (1): "If X is in the stack S, we change its status to LIR. This block is also removed from list
            // Q."
            self.queue.unlink(&mut self.links, slot);
            self.become_lir(slot);
        } else {
            // Case 2 (2): "If X is not in the stack S, we leave its status in HIR and move it to the end of list Q."
            self.queue.unlink(&mut self.links, slot);
            self.queue.push_back(&mut self.links, slot);
            self.remain_hir(slot);
        }
    }

    #[inline]
    fn evict(&mut self, _incoming: Slot, _access: &Access) -> Slot {
        // Case 3: "We remove the HIR resident block at the front of list Q (it then becomes a non-resident block)."
        let victim = self.queue.pop_front(&mut self.links).expect("the LIR blocks do not fill a cache");
        if !self.is(victim, STACKED) {
            self.set_status(victim, UNKNOWN);
            self.forgotten.push_back(&mut self.links, victim);
            return victim;
        }
        self.set_status(victim, GHOST);
        self.ghosts.push_back(&mut self.links, victim);
        victim
    }

    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.last = slot.0;
        let ghost = self.status(slot) == GHOST;
        if ghost {
            self.ghosts.unlink(&mut self.links, slot);
        }
        if self.lir < self.lir_most || self.becomes_lir(slot) {
            // Case 3 (1): "If X is in the stack S, we change its status to LIR."
            self.become_lir(slot);
        } else {
            // Case 3 (2): "If X is not in the stack S, we leave its status in HIR and place it at the end of list Q."
            self.set_status(slot, HIR);
            self.queue.push_back(&mut self.links, slot);
            self.remain_hir(slot);
        }
        if self.ghosts.len() > self.ghosts_most {
            self.forget_oldest();
            self.adjust_near();
        }
    }

    fn remove(&mut self, slot: Slot) {
        if slot.0 == self.last {
            self.last = NONE;
        }
        match self.status(slot) {
            LIR => self.lir -= 1,
            HIR => self.queue.unlink(&mut self.links, slot),
            _ => self.ghosts.unlink(&mut self.links, slot),
        }
        if self.is(slot, STACKED) {
            let above = self.stack.before(&self.stack_links, slot);
            self.unstack(slot);
            if slot.0 == self.bottom {
                self.prune(above);
            }
            self.trim();
            self.adjust_near();
        }
        self.states[slot.index()] = UNKNOWN;
    }

    #[inline]
    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.pop_front(&mut self.links)
    }

    #[inline(always)]
    fn warm(&self, slot: Slot) {
        self.stack_links.warm(slot);
    }

    fn check(&self) {
        let stack = self.stack.checked(&self.stack_links);
        let queue = self.queue.checked(&self.links);
        let ghosts = self.ghosts.checked(&self.links);
        let forgotten = self.forgotten.checked(&self.links);
        let count = |set: &dyn Fn(u8) -> bool| self.states.iter().filter(|&&state| set(state)).count() as u32;
        assert_eq!(count(&|state| state & STATUS == LIR), self.lir, "LIR blocks");
        assert_eq!(count(&|state| state & STATUS == HIR), self.queue.len(), "resident HIR blocks, which are in Q");
        assert_eq!(count(&|state| state & STATUS == GHOST), self.ghosts.len(), "ghosts");
        assert_eq!(count(&|state| state & STACKED != 0), self.stack.len(), "entries of S");
        assert_eq!(count(&|state| state & BELOW != 0), self.below, "entries of the extension of S");
        assert_eq!(count(&|state| state & NEAR != 0), self.near, "blocks below the threshold");
        assert!(stack.iter().all(|&slot| self.is(slot, STACKED)), "a block in S that does not know it");
        assert!(queue.iter().all(|&slot| self.status(slot) == HIR), "a block in Q that is not resident HIR");
        assert!(ghosts.iter().all(|&slot| self.states[slot.index()] & (STATUS | STACKED) == GHOST | STACKED));
        assert!(forgotten.iter().all(|&slot| self.states[slot.index()] == UNKNOWN), "a known block is forgotten");
        assert!(self.lir <= self.lir_most, "too many LIR blocks");
        assert!(self.ghosts.len() <= self.ghosts_most, "too many ghosts");
        assert!(self.stack.len() <= self.stack_most, "S is longer than its limit");

        let inside = stack.len() - self.below as usize;
        assert!(stack[..inside].iter().all(|&slot| !self.is(slot, BELOW)), "a block of the extension inside S");
        assert!(stack[inside..].iter().all(|&slot| self.status(slot) != LIR), "an LIR block in the extension");
        assert_eq!(inside.checked_sub(1).map_or(NONE, |last| stack[last].0), self.bottom, "the bottom of S");
        match stack.get(inside.wrapping_sub(1)) {
            Some(&slot) => assert_eq!(self.status(slot), LIR, "the bottom of S is LIR"),
            None => assert_eq!((self.lir, stack.len()), (0, 0), "S is empty where there is no LIR block"),
        }
        let r_max = f64::from(inside.saturating_sub(1) as u32);
        match self.threshold {
            Threshold::Above(multiple) => {
                let reach = f64::from(stack.len().saturating_sub(1) as u32);
                assert!(self.below == 0 || reach < multiple * r_max, "the extension is too long");
            }
            _ => {
                assert_eq!(self.below, 0, "an HIR block below the bottom of S");
                let oldest_first = |status| stack.iter().rev().filter(move |&&slot| self.status(slot) == status);
                assert!(oldest_first(GHOST).eq(&ghosts), "ghosts are in the order of S");
                let both = queue.iter().filter(|&&slot| self.is(slot, STACKED));
                assert!(oldest_first(HIR).eq(both), "S and Q have their common blocks in one order");
            }
        }
        if let Threshold::Below(share) = self.threshold {
            for (recency, &slot) in stack.iter().enumerate() {
                assert_eq!(
                    self.is(slot, NEAR),
                    f64::from(recency as u32) < share * r_max,
                    "below the threshold or not"
                );
            }
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        report("stack", (self.stack.len() - self.below).into());
        report("lir", self.lir.into());
        report("hir_resident", self.queue.len().into());
        report("ghosts", self.ghosts.len().into());
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

    impl Lirs {
        fn reference(&mut self, slot: Slot) -> Option<Slot> {
            let mut victim = None;
            if matches!(self.status(slot), LIR | HIR) {
                self.hit(slot, &access());
            } else {
                victim = (self.lir + self.queue.len() == 3).then(|| self.evict(slot, &access()));
                self.insert(slot, &access());
            }
            self.check();
            victim
        }

        /// S from its top, each block with its status, and Q from its front.
        fn state(&self) -> (Vec<(Slot, u8)>, Vec<Slot>) {
            let stack = self.stack.checked(&self.stack_links);
            (stack.into_iter().map(|slot| (slot, self.status(slot))).collect(), self.queue.checked(&self.links))
        }
    }

    /// The state of Figure 2.2 (a), which is that of Table 2.1 at virtual time 9: LIR blocks A and B, the only resident
    /// HIR block E, and the non-resident D. The table's own references give LIR status to A and D first, as "all the
    /// referenced blocks are given LIR status until its size reaches L_lirs"; B A D A E leads to the figure's state.
    fn at_time_9() -> Lirs {
        let setup = Setup { capacity: 3, slots: 5, ghosts: 5, future: None };
        let spec: crate::Spec = "lirs:hir=1".parse().expect("a policy");
        let mut lirs = Lirs::new(&setup, &spec.params(&Lirs::INFO).expect("known keys")).expect("possible values");
        for slot in [B, A, D, A, E] {
            lirs.reference(slot);
        }
        assert_eq!(lirs.state(), (vec![(E, HIR), (A, LIR), (D, GHOST), (B, LIR)], vec![E]));
        // In the figure, the reference at time 10 may repeat the one at time 9.
        lirs.last = NONE;
        lirs
    }

    /// Figure 2.2, states (b) to (e).
    #[test]
    fn figure_2_2() {
        let mut lirs = at_time_9();
        assert_eq!(lirs.reference(B), None);
        assert_eq!(lirs.state(), (vec![(B, LIR), (E, HIR), (A, LIR)], vec![E]), "(b)");

        let mut lirs = at_time_9();
        assert_eq!(lirs.reference(E), None);
        assert_eq!(lirs.state(), (vec![(E, LIR), (A, LIR)], vec![B]), "(c)");

        let mut lirs = at_time_9();
        assert_eq!(lirs.reference(D), Some(E));
        assert_eq!(lirs.state(), (vec![(D, LIR), (E, GHOST), (A, LIR)], vec![B]), "(d)");

        let mut lirs = at_time_9();
        assert_eq!(lirs.reference(C), Some(E));
        assert_eq!(lirs.state(), (vec![(C, HIR), (E, GHOST), (A, LIR), (D, GHOST), (B, LIR)], vec![C]), "(e)");
    }

    /// "If there is a reference to block D at time 10 [...] block B becomes the only resident HIR block", which leaves
    /// at the next miss (2.3.1).
    #[test]
    fn the_demoted_block_leaves_next() {
        let mut lirs = at_time_9();
        lirs.reference(D);
        assert_eq!(lirs.reference(C), Some(B));
    }
}
