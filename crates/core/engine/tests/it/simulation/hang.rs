//! A disk that completes nothing for long, and what the other volumes notice of it: nothing.

use nigh_engine::Config;

use crate::simulation::World;

/// The guaranteed share of each volume needs a cache that is large enough.
pub(crate) fn enlarge(config: &mut Config) {
    (config.capacity, config.capacity_max) = (160, 160);
    let least = config.limits.request_bytes / config.block_bytes + 1;
    config.limits.dirty = config.limits.dirty.min(least + 20);
    config.limits.loading = config.limits.loading.min(least + 20);
    config.write_back.start = config.write_back.start.min(config.limits.dirty);
    config.write_back.stop = config.write_back.stop.min(config.write_back.start);
}

impl World {
    /// While the first disk hangs, the requests of all other volumes come to an end, and so do further ones.
    pub(crate) fn others_go_on(&mut self) {
        let over = |world: &World| world.pending.values().all(|pending| pending.request.volume.0 == 0);
        self.settle(over);
        for _ in 0..100 {
            let before = self.done.refused;
            while over(self) && self.done.refused == before {
                self.submit();
            }
            self.settle(over);
        }
        self.done.hung += self.stuck.len() as u64;
        self.in_flight.append(&mut self.stuck);
        self.hangs_from = u64::MAX;
    }
}
