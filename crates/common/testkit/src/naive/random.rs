//! Random replacement: a frame is chosen, and the last frame's block moves there.

use crate::Outcome;
use crate::naive::dice::Dice;
use crate::naive::{Model, Settings};

pub(crate) struct Random {
    capacity: usize,
    frames: Vec<u64>,
    dice: Dice,
}

impl Random {
    pub(crate) fn new(capacity: usize, settings: Settings) -> Random {
        Random { capacity, frames: Vec::new(), dice: Dice(settings.number("seed", "0")) }
    }
}

impl Model for Random {
    fn access(&mut self, block: u64) -> Outcome {
        if self.frames.contains(&block) {
            return Outcome { hit: true, evicted: None };
        }
        let evicted = (self.frames.len() == self.capacity).then(|| self.shed());
        self.frames.push(block);
        Outcome { hit: false, evicted }
    }

    fn shed(&mut self) -> u64 {
        let chosen = self.dice.side(self.frames.len());
        let last = self.frames.len() - 1;
        self.frames.swap(chosen, last);
        self.frames.pop().expect("a block")
    }

    fn resize(&mut self, capacity: usize, _ghosts: usize) {
        self.capacity = capacity;
    }
}
