//! A shard's engine, called under its lock.
//!
//! 1. A call takes the lock, and a shard whose engine failed an assertion is left out (`Poisoned`).
//! 2. What follows from it is collected as work, which is done without the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nigh_engine::{Fault, Outcome, Volume};

use crate::cache::Cache;
use crate::content;
use crate::error::Poisoned;
use crate::shard::{Core, Held};
use crate::work::{Encoding, RANGES_NAMED, Report, Work};

/// The work to be done after a call of an engine, without its lock.
pub(crate) struct After {
    /// Of the threads that wait for room, as many as there may be room for.
    room: usize,
    /// When the engine next has something to do, in µs.
    wakeup: Option<u64>,
}

impl Cache {
    /// The number of shards.
    pub fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    /// The shard of the extent of `offset`.
    #[inline]
    pub(crate) fn shard_of(&self, volume: Volume, offset: u64) -> u32 {
        nigh_engine::shard_of(volume, offset, self.shards.len() as u32)
    }

    /// µs since the start.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Calls the engine of `shard` and collects the resulting work.
    pub(crate) fn with<R>(
        &self,
        shard: u32,
        work: &mut Work,
        call: impl FnOnce(&mut Core, u64) -> R,
    ) -> Result<R, Poisoned> {
        self.with_held(self.shards[shard as usize].hold(false), shard, work, call)
    }

    /// Calls `shard`. A panic in `call` poisons it, because the state of its engine is then unknown.
    pub(crate) fn peek<R>(&self, shard: u32, call: impl FnOnce(&mut Core) -> R) -> Result<R, Poisoned> {
        let mut held = self.shards[shard as usize].hold(false);
        let result = self.guarded(&mut held.core, shard, call);
        held.unlock();
        result
    }

    /// As `with_held`, and returns by how many there are more reads that are being started: fewer than none if one was started.
    pub(crate) fn call<R>(
        &self,
        mut held: Held<'_>,
        shard: u32,
        work: &mut Work,
        call: impl FnOnce(&mut Core, u64) -> R,
    ) -> Result<(R, isize), Poisoned> {
        let called = self.guarded(&mut held.core, shard, |core| {
            let now = self.now();
            let before = core.engine.starting();
            let result = call(core, now);
            let begun = core.engine.starting() as isize - before as isize;
            ((result, begun), self.collect(core, shard, now, work))
        });
        held.unlock();
        let (result, After { room, wakeup }) = called.inspect_err(|_| self.fail_waiters(shard, work))?;
        for _ in 0..room {
            self.shards[shard as usize].room.notify_one();
        }
        wakeup.into_iter().for_each(|at| self.timer.note(at));
        Ok(result)
    }

    /// As `peek`, with the lock of the shard.
    pub(crate) fn guarded<R>(
        &self,
        core: &mut Core,
        shard: u32,
        call: impl FnOnce(&mut Core) -> R,
    ) -> Result<R, Poisoned> {
        if core.poisoned {
            return Err(Poisoned { shard });
        }
        catch_unwind(AssertUnwindSafe(|| call(core))).map_err(|_| {
            core.poisoned = true;
            tracing::error!(shard, "an assertion of the cache failed: the shard is out of use");
            // The next caller replies to its waiters.
            self.timer.wake();
            Poisoned { shard }
        })
    }

    /// As `with`, with the lock of the shard.
    pub(crate) fn with_held<R>(
        &self,
        held: Held<'_>,
        shard: u32,
        work: &mut Work,
        call: impl FnOnce(&mut Core, u64) -> R,
    ) -> Result<R, Poisoned> {
        let (result, mut left) = self.call(held, shard, work, call)?;
        // A thread that adds reads that start in steps continues until as many have started; it releases the shard between its calls.
        while left > 0 {
            let held = self.shards[shard as usize].hold(false);
            // In a poisoned shard all requests are over.
            let Ok(((), begun)) = self.call(held, shard, work, |core, now| core.engine.go_on_starting(now)) else {
                break;
            };
            left += begun;
        }
        Ok(result)
    }

    /// Fails the requests that wait for a poisoned shard, since no reply will come.
    pub(crate) fn fail_waiters(&self, shard: u32, work: &mut Work) {
        let waiters = std::mem::take(&mut self.shards[shard as usize].core.lock().waiters);
        let fail = |(_, waiting)| (shard, waiting, Outcome::Failed(Fault::SHUT_DOWN));
        work.replies.extend(waiters.into_iter().map(fail));
    }

    /// Collects the work that a call produced.
    pub(crate) fn collect(&self, core: &mut Core, shard: u32, now: u64, work: &mut Work) -> After {
        let Core { engine, waiters, queueing, .. } = core;
        let before = work.replies.len();
        while let Some(reply) = engine.next_reply() {
            let token = reply.token as usize;
            let waiting = match (&reply.outcome, waiters.get(token)) {
                // The final reply to the write comes later.
                (Outcome::Fill(_), Some(waiting)) => waiting.clone(),
                _ => waiters.remove(token),
            };
            work.replies.push((shard, waiting, reply.outcome));
        }
        while let Some(operation) = engine.next_operation(now) {
            let is_encoding =
                self.contents.is_some() && operation.port == content::PORT && !operation.volumes.is_empty();
            if is_encoding {
                // Later, another disk may have the number of one of these.
                let of = |&volume| self.disks.numbered(volume).map(|disk| disk.domain);
                let domains = operation.volumes.iter().map(of).collect();
                work.encodings.push(Encoding { shard, operation, domains });
            } else {
                work.operations.push((shard, operation));
            }
        }
        while let Some((volume, failing)) = engine.next_report() {
            let failed = engine.failed_blocks(volume, RANGES_NAMED).1;
            work.reports.push(Report { shard, volume, failing, failed });
        }
        work.late.extend(std::iter::from_fn(|| engine.next_late()));
        work.left_out.extend(std::iter::from_fn(|| engine.next_left_out()));
        while let Some(damage) = engine.next_damage() {
            work.damages.push(damage);
        }
        // The timer also returns memory that was freed after a change.
        let wakeup = if engine.has_surplus() { Some(now) } else { engine.next_wakeup() };
        After { room: (work.replies.len() - before).min(*queueing), wakeup }
    }
}
