//! Unified level-aware caching for one of several clients of a server (section 5.3.2.2).
//!
//! The levels above the last one belong to the client; the last one is the server's. How many blocks the client has there changes:
//! each block that it directs there is one more, and each notice that the server has replaced one is one less, as in figure 5.8.

use nigh_policy::Slot;

use crate::counts::Counts;
use crate::levels::{Level, Move, Retrieve, Tier};
use crate::ulc::Ulc;

/// The state of the server for a client. It travels with the next block that the client retrieves.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// Blocks that the server replaced, or that another client owns now.
    pub notices: &'a [Slot],
    /// Blocks that fit into the server before it replaces one.
    pub free: u32,
    /// The number of the last reference to the bottom of gLRU, the next block to be replaced; 0 if there is none.
    pub oldest: u64,
}

/// Messages of the server.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Whether the server had the block.
    pub found: bool,
    /// Its state.
    pub update: Update<'a>,
}

/// The levels of one client.
pub struct UlcClient {
    ulc: Ulc,
    /// The server's level.
    shared: Level,
    /// Free blocks at the server, by its last reply and the client's own demotions since.
    free: u32,
}

impl UlcClient {
    /// Levels of `capacities` blocks, the first one first, above a server that is empty with room for `free` blocks. Blocks are in slots below `slots`.
    ///
    /// # Panics
    /// Without a level of its own, with [`LEVELS_MAX`](crate::LEVELS_MAX), or if one holds no block.
    pub fn new(slots: u32, capacities: &[u32], free: u32) -> UlcClient {
        assert!(!capacities.is_empty(), "a client has a level of its own");
        let ulc = Ulc::new(slots, &[capacities, &[u32::MAX]].concat());
        UlcClient { ulc, shared: capacities.len() as Level, free }
    }

    /// The request for the block of `slot`. [`UlcClient::settle`] must follow. The server is asked unless `from` is a level of
    /// the client.
    pub fn retrieve(&mut self, slot: Slot) -> Retrieve {
        // The level is full when the server is: what the client has there bounds it then.
        self.ulc.bound_lowest(self.ulc.lowest().saturating_add(self.free));
        self.ulc.decide(slot)
    }

    /// The server's level.
    pub fn shared(&self) -> Level {
        self.shared
    }

    /// Whether `retrieve` is a request to the server.
    pub fn is_remote(&self, retrieve: Retrieve) -> bool {
        retrieve.from.is_none_or(|from| from == self.shared)
    }

    /// The block of `slot` came, from the server with `reply`. `now` numbers this reference among those of all clients, in growing
    /// order. Blocks that have to move are added to `moves`: a Demote from the lowest level of the client is a request to the server, with
    /// [`UlcClient::last`] of the block. Returns where the block was found.
    pub fn settle(
        &mut self,
        slot: Slot,
        retrieve: Retrieve,
        reply: Option<Reply<'_>>,
        now: u64,
        moves: &mut Vec<Move>,
    ) -> Retrieve {
        let mut found = retrieve;
        if let Some(reply) = reply {
            self.ulc.counts_mut().stale += u64::from(retrieve.from.is_some() && reply.update.notices.contains(&slot));
            self.update(reply.update);
            found.from = reply.found.then_some(self.shared);
        }
        // The server makes room for whatever is directed there.
        self.ulc.bound_lowest(u32::MAX);
        let before = moves.len();
        self.ulc.place(slot, found, now, moves);
        let is_sent = |step: &&Move| matches!(step, Move::Demote(_, from) if from + 1 == self.shared);
        self.free = self.free.saturating_sub(moves[before..].iter().filter(is_sent).count() as u32);
        found
    }

    /// For each block that the server no longer has for this client: the yardstick is adjusted if it was this block, and the
    /// client has one block less there.
    pub fn update(&mut self, update: Update<'_>) {
        update.notices.iter().for_each(|&slot| self.ulc.lose_lowest(slot));
        self.free = update.free;
        self.ulc.set_floor(update.oldest);
    }

    /// The number of the last reference to the block of `slot`; 0 if it is not in the stack.
    pub fn last(&self, slot: Slot) -> u64 {
        self.ulc.last(slot)
    }

    /// The level that caches the block of `slot`, as far as the client knows.
    pub fn level(&self, slot: Slot) -> Option<Level> {
        self.ulc.level(slot)
    }

    /// Blocks in the stack.
    pub fn known(&self) -> u32 {
        self.ulc.known()
    }

    /// Counts since the start.
    pub fn counts(&self) -> &Counts {
        self.ulc.counts()
    }

    /// Counts anew.
    pub fn restart(&mut self) {
        self.ulc.restart();
    }

    /// The blocks that the client assumes to be at the server, and its own.
    pub fn assumed(&self) -> Vec<Slot> {
        self.ulc.at(self.shared)
    }

    /// Recounts every invariant.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        self.ulc.check();
    }
}
