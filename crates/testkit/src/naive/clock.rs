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
        if self.frames.len() < self.capacity {
            self.frames.push(loaded);
            return Outcome { hit: false, evicted: None };
        }
        while self.frames[self.hand].referenced {
            self.frames[self.hand].referenced = false;
            self.hand = (self.hand + 1) % self.capacity;
        }
        let evicted = std::mem::replace(&mut self.frames[self.hand], loaded).block;
        self.hand = (self.hand + 1) % self.capacity;
        Outcome { hit: false, evicted: Some(evicted) }
    }
}
