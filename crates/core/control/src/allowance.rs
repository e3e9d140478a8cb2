//! The prefetch allowance of a tenant: how many blocks its lists may have fetched ahead, by how many it used before.
//!
//! It belongs to the tenant, not to a list, so a tenant that replaces its list gets no more. A tenant starts with two
//! batches. A fetched block takes one; when the tenant uses that block, it gets it back and one in addition, so that
//! it can get further ahead. A miss that the list predicted gives one: otherwise a tenant without allowance could not
//! show that its lists have become correct. A tenant's gain is limited to a window: uses further back than that
//! do not count.
//!
//! **Invariant:** in any period, the blocks fetched for a tenant and not used are at most two batches and the window,
//! and as many as it used or missed as predicted in that period; from its first list on, without the window.
//! `tests/allowance.rs` holds lists, extensions and reads at random to it.

/// By how much a use exceeds what the block took.
const GROWTH: u32 = 1;
/// Allowance for a miss that the list predicted.
const MISS: u32 = 1;
/// Allowance of a new tenant, in batches: one at the device and the next one.
const BATCHES: u32 = 2;

/// The limits of all allowances.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) batch: u32,
    /// 0: no limit.
    pub(crate) window: u32,
}

/// The state of one tenant.
#[derive(Clone, Copy, Default)]
pub(crate) struct Allowance {
    /// Blocks fetched on it that are in the cache and not used yet.
    ahead: u32,
    /// Blocks that left or were flushed unused, beyond what was gained.
    spent: u32,
    /// The gain beyond that: at most the window. One of both is 0.
    gained: u32,
}

impl Allowance {
    /// Whether a further block may be fetched.
    pub(crate) fn has_any(&self, terms: Terms) -> bool {
        let start = BATCHES.saturating_mul(terms.batch);
        terms.window == 0 || self.ahead.saturating_add(self.spent) < start.saturating_add(self.gained)
    }

    /// A block is fetched.
    pub(crate) fn fetch(&mut self) {
        self.ahead += 1;
    }

    /// A fetched block was used.
    pub(crate) fn used(&mut self, terms: Terms) {
        self.ahead -= 1;
        self.gain(GROWTH, terms);
    }

    /// A fetched block was flushed or left before it was used.
    pub(crate) fn unused(&mut self) {
        self.ahead -= 1;
        match self.gained.checked_sub(1) {
            Some(gained) => self.gained = gained,
            None => self.spent = self.spent.saturating_add(1),
        }
    }

    /// A flushed block was used after all.
    pub(crate) fn used_late(&mut self, terms: Terms) {
        self.gain(1 + GROWTH, terms);
    }

    /// The list predicted a miss.
    pub(crate) fn missed(&mut self, terms: Terms) {
        self.gain(MISS, terms);
    }

    fn gain(&mut self, blocks: u32, terms: Terms) {
        let repaid = blocks.min(self.spent);
        self.spent -= repaid;
        self.gained = (self.gained + (blocks - repaid)).min(terms.window);
    }

    /// Blocks fetched and not used yet.
    pub(crate) fn ahead(&self) -> u32 {
        self.ahead
    }
}
