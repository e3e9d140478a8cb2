//! Replies on their way to a thread that waits for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use nigh_engine::Outcome;

use crate::sync::lock;
use crate::work::{Waiter, Work};

/// A reply to the piece of a range, from a shard.
pub(crate) struct Letter {
    pub(crate) shard: u32,
    pub(crate) range: Range<u64>,
    pub(crate) outcome: Outcome,
}

/// Replies to one thread, in the order in which they came.
#[derive(Default)]
pub(crate) struct Mailbox {
    letters: Mutex<VecDeque<Letter>>,
    came: Condvar,
}

impl Waiter for Mailbox {
    fn deliver(self: Arc<Self>, shard: u32, range: Range<u64>, outcome: Outcome, _work: &mut Work) {
        lock(&self.letters).push_back(Letter { shard, range, outcome });
        self.came.notify_one();
    }
}

impl Mailbox {
    /// The next reply. The caller has already done its pending work.
    pub(crate) fn wait(&self) -> Letter {
        let mut letters = lock(&self.letters);
        loop {
            match letters.pop_front() {
                Some(letter) => return letter,
                None => letters = self.came.wait(letters).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
