//! Memory that damages blocks which their disks have: nobody notices.

use nigh_engine::{BlockState, Fault, Operation, Volume};
use rand::RngExt;

use crate::simulation::World;

impl World {
    /// Flips a bit of some blocks.
    pub(crate) fn damage(&mut self) {
        for _ in 0..8 {
            let at = self.random.random_range(0..self.disks.len());
            let blocks = (self.disks[at].bytes().len() as u64).div_ceil(self.block_bytes());
            let block = self.random.random_range(0..blocks);
            let bit = self.random.random_range(0..self.block_bytes() as usize * 8);
            let volume = Volume(at as u32);
            if self.engine.state(volume, block) == BlockState::Clean {
                self.engine.flip_bit(volume, block, bit);
            }
        }
    }

    /// The next operation for a device; those that would write damaged blocks are not for devices.
    pub(crate) fn next_operation(&mut self) -> Option<Operation> {
        loop {
            let mut operation = self.engine.next_operation(self.now)?;
            if operation.verify() {
                return Some(operation);
            }
            self.engine.complete(self.now, operation, Err(Fault::DAMAGED));
            while let Some(damage) = self.engine.next_damage() {
                assert!(!damage.lost, "only clean blocks are damaged");
            }
        }
    }
}
