//! CLOCK as an array of frames with their reference bits, and a hand.

use crate::Outcome;
use crate::naive::{Model, Settings};

struct Frame {
    block: u64,
    referenced: bool,
}

pub(crate) struct Clock {
    capacity: usize,
    first: bool,
    frames: Vec<Frame>,
    hand: usize,
}

impl Clock {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Clock {
        Clock { capacity, first: settings.number("first", "0") == 1, frames: Vec::new(), hand: 0 }
    }
}

impl Model for Clock {
    fn access(&mut self, block: u64) -> Outcome {
        if let Some(frame) = self.frames.iter_mut().find(|frame| frame.block == block) {
            frame.referenced = true;
            return Outcome { hit: true, evicted: None };
        }
        let loaded = Frame { block, referenced: self.first };
        let evicted = (self.frames.len() == self.capacity).then(|| self.shed());
        // Just behind the hand.
        self.frames.insert(self.hand, loaded);
        self.hand = (self.hand + 1) % self.frames.len();
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        while self.frames[self.hand].referenced {
            self.frames[self.hand].referenced = false;
            self.hand = (self.hand + 1) % self.frames.len();
        }
        let evicted = self.frames.remove(self.hand).block;
        self.hand %= self.frames.len().max(1);
        evicted
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
