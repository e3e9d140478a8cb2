//! Changes of size or policy of every shard while it is in use, in steps.

use std::time::Duration;

use nigh_engine::{ConfigError, Successor};
use nigh_policy::Spec;

use crate::cache::Cache;
use crate::error::Poisoned;
use crate::settings::PAUSE;
use crate::work::Work;

/// Frames of one shard whose memory is returned to the system at a time.
const SURPLUS: usize = 4096;

impl Cache {
    /// Runs on its own thread: calls the engines at the times they request, until `over`.
    pub(crate) fn keep_time(&self, over: impl Fn() -> bool) {
        self.timer.begin();
        let mut work = Work::default();
        while !over() {
            self.timer.clear();
            let mut least = Duration::from_millis(1);
            for shard in 0..self.shards() {
                // Also ends the waits for a poisoned shard.
                if self.step(shard, &mut work) {
                    least = PAUSE;
                } else {
                    self.return_surplus(shard, &mut work);
                }
            }
            self.dispatch(&mut work, None);
            let wait = Duration::from_micros(self.timer.due().saturating_sub(self.now()));
            std::thread::park_timeout(wait.clamp(least, Duration::from_secs(3600)));
        }
    }

    /// Changes the memory, of which frames and encoded blocks have parts, and if one is given the policy.
    pub(crate) fn change_memory(
        &self,
        policy: Option<&Spec>,
        memory: u64,
        blocks_per_shard: u32,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        let next = match policy.map_or_else(|| Ok(Ok(Vec::new())), |policy| self.successors(policy))? {
            Ok(next) => next,
            Err(error) => return Ok(Err(error)),
        };
        match &self.contents {
            Some(contents) => contents.resize(memory, self.shards(), |frames| self.change(next, frames)),
            None => self.change(next, blocks_per_shard),
        }
    }

    /// The policy `policy` for each shard. An error if it cannot be theirs, before encoded blocks have given up memory for it.
    fn successors(&self, policy: &Spec) -> Result<Result<Vec<Successor>, ConfigError>, Poisoned> {
        let mut work = Work::default();
        let next = (0..self.shards()).map(|shard| self.successor(shard, policy, &mut work));
        let next = next.collect::<Result<Vec<_>, Poisoned>>();
        self.dispatch(&mut work, None);
        Ok(next?.into_iter().collect())
    }

    fn successor(
        &self,
        shard: u32,
        policy: &Spec,
        work: &mut Work,
    ) -> Result<Result<Successor, ConfigError>, Poisoned> {
        let setup = self.with(shard, work, |core, _| core.engine.setup(policy))?;
        // Created without the engine's lock, because allocating its arrays takes time.
        let next = match setup.and_then(|setup| Successor::new(policy, &setup)) {
            Ok(next) => next,
            Err(error) => return Ok(Err(error)),
        };
        let check = self.with(shard, work, |core, _| core.engine.check_change(core.engine.capacity(), Some(&next)))?;
        Ok(check.map(|()| next))
    }

    /// Changes the capacity of all shards and, if `next` has one for each, their policies. Either all shards change or none: they
    /// have the same configuration, so the first one rejects for all. Returns when nothing more can be done at once; the timer
    /// continues the steps that wait for writes.
    pub(crate) fn change(
        &self,
        next: Vec<Successor>,
        blocks_per_shard: u32,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        let mut work = Work::default();
        let begun = self.begin_change(next, blocks_per_shard, &mut work);
        for shard in 0..self.shards() {
            // A hit in between waits for one step at most.
            while self.step(shard, &mut work) {
                std::thread::sleep(PAUSE);
            }
            self.return_surplus(shard, &mut work);
        }
        self.dispatch(&mut work, None);
        begun
    }

    fn begin_change(
        &self,
        next: Vec<Successor>,
        blocks_per_shard: u32,
        work: &mut Work,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        let mut next = next.into_iter();
        for shard in 0..self.shards() {
            let next = next.next();
            if let Err(error) = self.with(shard, work, |core, _| core.engine.change(blocks_per_shard, next))? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Continues changes of `shard` by one step. Returns whether more can be done at once.
    pub(crate) fn step(&self, shard: u32, work: &mut Work) -> bool {
        let stepped = self.with(shard, work, |core, now| (core.engine.step(now), core.engine.take_retired()));
        self.dispatch(work, None);
        // Replaced policies are freed here, while no request waits for the engine.
        stepped.is_ok_and(|(more, _retired)| more)
    }

    /// Returns the memory of frames that a smaller cache does not need to the system.
    pub(crate) fn return_surplus(&self, shard: u32, work: &mut Work) {
        while let Ok(Some(mut frames)) = self.with(shard, work, |core, _| core.engine.surplus_memory(SURPLUS)) {
            nigh_backend::release_memory(&mut frames);
            // A poisoned shard does not need it.
            let _ = self.with(shard, work, |core, now| core.engine.return_memory(now, frames));
        }
    }
}
