//! Hints that take longer than a call may: they are applied in steps, and decisions in between use the state so far.
//!
//! One sweep through all resident blocks, the oldest first, applies all hints about present blocks of tenants: it puts
//! the blocks of a new manager into pools, moves those of a file whose priority changed, gives predicted blocks their
//! places in the list, and takes the blocks of tenants that have left from their owners. A hint during a sweep causes
//! another one to follow. A block that is referenced meanwhile does not wait for it.

use nigh_policy::{Access, Block, Kind, Slot, Stream, Tenant};

use super::{KEPT, LruSp, MANAGED, TEMPORARY};
use crate::access_list::NEVER;
use crate::directive::{Index, Refusal};
use crate::pools::Enter;
use crate::tasks::{Search, Sweep, TEMPORARIES_MOST, Temporary};
use crate::tenant::Adoption;

/// Blocks that a hint reaches in its own call.
const STEP_FIRST: u32 = 256;

impl LruSp {
    /// Whether hints are still being applied.
    pub fn is_pending(&self) -> bool {
        let tasks = &self.tasks;
        !self.swept
            || !tasks.left_over.is_empty()
            || !tasks.temporary.is_empty()
            || !tasks.policies.is_empty()
            || self.managed.as_ref().is_some_and(|managed| managed.pools.are_handing_over())
    }

    /// Applies a part of the pending hints, looking at at most `most` blocks. Returns whether there is more.
    ///
    /// The host calls it repeatedly until it returns false: after [`apply`](LruSp::apply), [`extend`](LruSp::extend),
    /// [`close`](LruSp::close), [`forget_files`](LruSp::forget_files), [`set_bounds`](LruSp::set_bounds),
    /// [`set_policy`](LruSp::set_policy) and [`set_policy_of`](LruSp::set_policy_of), and
    /// whenever [`is_pending`](LruSp::is_pending) is true after a reference that ended a list.
    pub fn step(&mut self, most: u32, index: &dyn Index) -> bool {
        if !self.is_pending() {
            return false;
        }
        let mut left = most;
        self.put_back(&mut left, index);
        self.sweep(&mut left, index);
        self.give_temporary(&mut left, index);
        self.give_policies();
        let tick = self.tick;
        if let Some(managed) = &mut self.managed {
            let access = |slot| Access {
                block: index.block(slot),
                tenant: Tenant(0),
                stream: Stream(0),
                kind: Kind::Read,
                tick,
            };
            left -= managed.pools.hand_over(left, &access);
        }
        self.tasks.visited += u64::from(most - left);
        self.collect();
        self.is_pending()
    }

    /// Applies a hint to the first blocks.
    pub(crate) fn step_first(&mut self, index: &dyn Index) {
        self.step(STEP_FIRST, index);
    }

    /// Puts blocks of lists that are over back into their pools.
    fn put_back(&mut self, left: &mut u32, index: &dyn Index) {
        while *left > 0
            && let Some(&owner) = self.tasks.left_over.last()
        {
            let Some(slot) = self.shares[owner as usize].left_over() else {
                self.tasks.left_over.pop();
                continue;
            };
            *left -= 1;
            self.leave_over(slot, owner, index.block(slot));
        }
    }

    /// `slot` is about to leave the end of the LRU list, or a list of kept blocks, and the sweep may not reach it any
    /// more.
    pub(super) fn note_unvisited(&mut self, slot: Slot) {
        let Sweep { underway, in_lru, next, .. } = self.tasks.sweep;
        if underway && (!in_lru || next == Some(slot)) {
            self.tasks.sweep.wanted = true;
        }
    }

    fn sweep(&mut self, left: &mut u32, index: &dyn Index) {
        if !self.tasks.sweep.underway {
            if !self.tasks.sweep.wanted {
                return;
            }
            self.begin_sweep();
        }
        while *left > 0 {
            let Some(slot) = self.tasks.sweep.next else {
                if !self.sweep_next_list() {
                    break;
                }
                continue;
            };
            *left -= 1;
            self.tasks.sweep.next = self.beyond(slot);
            if self.tasks.sweep.in_lru {
                self.tasks.sweep.left -= 1;
                if self.tasks.sweep.left == 0 {
                    // All blocks in front of it were referenced since the sweep began, and only their order may be
                    // wrong. References come faster than steps, so the sweep would never end.
                    self.tasks.sweep.next = None;
                }
            }
            self.visit(slot, index);
        }
    }

    fn begin_sweep(&mut self) {
        let keeping = self.keeping.clone();
        if let Some(managed) = &mut self.managed {
            managed.pools.begin_sweep();
        }
        self.tasks.sweep = Sweep { underway: true, keeping, ..Sweep::default() };
        for share in self.shares.iter_mut().filter(|share| share.adoption == Adoption::Wanted) {
            share.adoption = Adoption::Underway;
        }
        self.begin_kept();
    }

    fn begin_kept(&mut self) {
        let Some(&owner) = self.tasks.sweep.keeping.last() else { return };
        let Some(list) = self.shares[owner as usize].kept else { return };
        let kept = &self.kept_lists[list as usize];
        let from = if self.is_gone(owner) { kept.front(&self.links) } else { kept.back(&self.links) };
        self.tasks.sweep.next = from;
    }

    /// A list has been swept: starts with the next one, if there is one.
    fn sweep_next_list(&mut self) -> bool {
        if self.tasks.sweep.keeping.pop().is_some() {
            self.begin_kept();
            return true;
        }
        if !self.tasks.sweep.in_lru {
            let next = self.lru.back(&self.links);
            let sweep = &mut self.tasks.sweep;
            (sweep.in_lru, sweep.next, sweep.left) = (true, next, self.lru.len().saturating_mul(2));
            return true;
        }
        for share in self.shares.iter_mut().filter(|share| share.adoption == Adoption::Underway) {
            share.adoption = Adoption::Done;
        }
        self.tasks.sweep = Sweep { wanted: self.tasks.sweep.wanted, ..Sweep::default() };
        self.swept = !self.tasks.sweep.wanted;
        self.see_bounds();
        false
    }

    /// Applies pending hints to `slot`.
    fn visit(&mut self, slot: Slot, index: &dyn Index) {
        let known = *self.links.own(slot);
        let Some(share) = self.shares.get(known.owner as usize) else { return };
        if share.gone {
            // Blocks kept for a floor are the oldest; and no other tenant should lose a block of its share before.
            if known.flags & KEPT != 0 || self.config.allocation.has_shares() {
                self.unlink(slot);
                self.lru.push_back(&mut self.links, slot);
            }
            self.abandon(slot);
            return;
        }
        let Some(levels) = &share.levels else { return };
        let (block, since, adoption) = (index.block(slot), share.since, share.adoption);
        let own = levels.pool_of_file(block.volume);
        let position = self.next_in_list(known.owner, block);
        let is_new = known.flags & MANAGED == 0;
        if is_new {
            self.note_reference(slot, since);
        }
        if position != NEVER {
            if self.position(slot) != position {
                self.place(slot, known.owner, position, block);
            }
            if self.is_in_list_only(slot) {
                return;
            }
        }
        let access = self.moving(block);
        let pool = self.managed.as_ref().and_then(|managed| managed.pools.pool(slot));
        if is_new && pool.is_some() {
            return;
        }
        if is_new {
            self.enter_pool(slot, known.owner, block.volume, &access, Enter::Referenced);
            self.note_reference(slot, since);
        } else if pool.is_some_and(|pool| pool != own) && known.flags & TEMPORARY == 0 {
            self.leave_pool(slot);
            self.enter_pool(slot, known.owner, block.volume, &access, Enter::Swept);
        } else if let (Some(_), Adoption::Underway, Some(managed)) = (pool, adoption, &mut self.managed)
            && known.flags & TEMPORARY == 0
        {
            // It was referenced before the sweep reached it, and the blocks that the sweep reached meanwhile are older.
            managed.pools.renew(slot);
        }
    }

    /// Gives blocks of a range of `owner` a temporary priority, whose level is open.
    pub(crate) fn add_temporary(&mut self, temporary: Temporary) -> Result<(), Refusal> {
        let others = self.tasks.temporary.iter().filter(|other| other.owner == temporary.owner).count();
        if others >= TEMPORARIES_MOST {
            return Err(Refusal::Busy);
        }
        self.tasks.temporary.push_back(temporary);
        Ok(())
    }

    fn give_temporary(&mut self, left: &mut u32, index: &dyn Index) {
        while *left > 0
            && let Some(&Temporary { owner, file, first, last, priority, tick, search }) = self.tasks.temporary.front()
        {
            *left -= 1;
            let is_alive = self.shares[owner as usize].levels.is_some() && !self.is_gone(owner);
            let (slot, next) = match search {
                _ if !is_alive => (None, None),
                Search::Blocks(at) => {
                    let next = (at < last).then(|| Search::Blocks(at + 1));
                    (index.resident(Block { volume: file, index: at }), next)
                }
                Search::Slots(at) => {
                    let slot = Slot(at);
                    let inside = |slot: &Slot| {
                        let block = index.block(*slot);
                        block.volume == file && (first..=last).contains(&block.index)
                    };
                    let slot = Some(slot).filter(|slot| self.owner_is(*slot, owner)).filter(inside);
                    (slot, (at + 1 < self.room.slots).then(|| Search::Slots(at + 1)))
                }
            };
            let slot = slot.filter(|&slot| self.owner_is(slot, owner));
            let is_new = slot.is_some_and(|slot| self.links.own(slot).flags & MANAGED == 0);
            if let Some(slot) = slot
                && !self.is_in_list_only(slot)
                && (is_new || self.last_reference(slot) <= tick)
            {
                if is_new {
                    self.note_reference(slot, self.shares[owner as usize].since);
                }
                self.set_temporary(slot, owner, priority, &self.moving(index.block(slot)));
            }
            match (next, self.tasks.temporary.front_mut()) {
                (Some(next), Some(front)) => front.search = next,
                _ => {
                    self.tasks.temporary.pop_front();
                    self.tidy(owner, priority);
                }
            }
        }
    }

    /// Closes the level of `priority` if nothing needs it.
    pub(crate) fn tidy(&mut self, owner: u16, priority: i32) {
        if let (Some(managed), Some(levels)) = (&mut self.managed, &mut self.shares[owner as usize].levels) {
            levels.tidy(priority, &mut managed.pools);
        }
    }
}
