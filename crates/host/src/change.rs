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

    /// Changes the memory, of which frames and encoded blocks have parts, and as `change` the policy.
    pub(crate) fn change_memory(
        &self,
        policy: Option<&Spec>,
        memory: u64,
        blocks_per_shard: u32,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        if let (Some(policy), Some(_)) = (policy, &self.contents) {
            // Before encoded blocks give up memory for nothing.
            let mut work = Work::default();
            let setup = self.with(0, &mut work, |core, _| core.engine.setup(policy))?;
            let checked = match setup.and_then(|setup| Successor::new(policy, &setup)) {
                Ok(next) => {
                    self.with(0, &mut work, |core, _| core.engine.check_change(core.engine.capacity(), Some(&next)))?
                }
                Err(error) => Err(error),
            };
            self.dispatch(&mut work, None);
            if checked.is_err() {
                return Ok(checked);
            }
        }
        match &self.contents {
            Some(contents) => contents.resize(memory, self.shards(), |frames| self.change(policy, frames)),
            None => self.change(policy, blocks_per_shard),
        }
    }

    /// Changes capacity and, if one is given, policy of every shard, or of none: the shards have the same
    /// configuration, so the first one rejects for all. Returns when nothing can be done at once; the timer continues
    /// what has to wait for writes.
    pub(crate) fn change(
        &self,
        policy: Option<&Spec>,
        blocks_per_shard: u32,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        let mut work = Work::default();
        let begun = self.begin_change(policy, blocks_per_shard, &mut work);
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
        policy: Option<&Spec>,
        blocks_per_shard: u32,
        work: &mut Work,
    ) -> Result<Result<(), ConfigError>, Poisoned> {
        // Policies are created without the engines' locks, because allocating their arrays takes time.
        let mut next = Vec::new();
        if let Some(policy) = policy {
            for shard in 0..self.shards() {
                let setup = self.with(shard, work, |core, _| core.engine.setup(policy))?;
                match setup.and_then(|setup| Successor::new(policy, &setup)) {
                    Ok(successor) => next.push(successor),
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
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
