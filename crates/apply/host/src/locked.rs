//! A shard's engine, called under its lock.
//!
//! 1. A call takes the lock, and a shard whose engine failed an assertion is left out (`Poisoned`).
//! 2. Its consequences are collected as work, which is done without the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nigh_engine::{Fault, Outcome, Volume};

use crate::cache::Cache;
use crate::content;
use crate::error::Poisoned;
use crate::shard::Core;
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

    /// Number of calls that took the lock of a shard.
    pub fn acquisitions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.core.lock().acquisitions).sum()
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
        let at = &self.shards[shard as usize];
        let called = self.guarded(&mut at.lock(), shard, |core| {
            let now = self.now();
            at.report(core);
            (call(core, now), self.collect(core, shard, now, work))
        });
        let (result, After { room, wakeup }) = called.inspect_err(|_| self.fail_waiters(shard, work))?;
        for _ in 0..room {
            at.room.notify_one();
        }
        wakeup.into_iter().for_each(|at| self.timer.note(at));
        Ok(result)
    }

    /// Calls `shard`. A panic in `call` poisons it, because the state of its engine is then unknown.
    pub(crate) fn peek<R>(&self, shard: u32, call: impl FnOnce(&mut Core) -> R) -> Result<R, Poisoned> {
        self.guarded(&mut self.shards[shard as usize].lock(), shard, call)
    }

    /// Reports the lists of all clients, each in a call of its own.
    pub(crate) fn report_all(&self) {
        for (shard, at) in (0..).zip(&self.shards) {
            let lists = at.unknown.lock().len();
            for _ in 0..lists {
                // The hits of a poisoned shard are not counted any more.
                let _ = self.peek(shard, |core| at.report(core));
            }
        }
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
            self.shards[shard as usize].published.shut();
            tracing::error!(shard, "an assertion of the cache failed: the shard is out of use");
            // The next caller replies to its waiters.
            self.timer.wake();
            Poisoned { shard }
        })
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
