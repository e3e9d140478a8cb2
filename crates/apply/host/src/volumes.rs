//! Disks in the engines: opening, closing, write-back and counters, and the size of all shards.

use std::sync::Arc;

use nigh_engine::{ConfigError, Counters, Gauges, Outcome, Port, PortConfig, Refusal, WriteMode};
use nigh_policy::Tenant;

use crate::cache::Cache;
use crate::curve::CurveStatistics;
use crate::disk::Disk;
use crate::error::{HostError, Poisoned, SubmitError};
use crate::mailbox::Mailbox;
use crate::settings::PAUSE;
use crate::statistics::ChoiceStatistics;
use crate::sync::lock;
use crate::work::{Waiter, Waiting, Work};

/// A write-back of a disk on its way.
pub(crate) struct WriteBack {
    mailbox: Arc<Mailbox>,
    /// Shards that have not replied.
    waiting: usize,
    /// Of the others.
    result: Result<(), HostError>,
}

impl Cache {
    /// Opens `disk` in the engines where it is closed, with this many bytes.
    pub(crate) fn open(&self, disk: &Disk, size: u64, mode: WriteMode) -> Result<Result<(), ConfigError>, Poisoned> {
        let regions = disk.regions(size);
        let mut work = Work::default();
        let mut poisoned = Ok(());
        let opened = (0..self.shards()).try_for_each(|shard| {
            let opened = self.with(shard, &mut work, |core, _| {
                for (region, device) in regions.iter().zip(&disk.devices) {
                    let config = PortConfig { replays: device.replays, ..self.ports };
                    match core.engine.attach(region.port, config) {
                        Ok(()) | Err(ConfigError::PortTaken(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                core.engine.open(disk.volume, mode, &regions)
            });
            match opened {
                Ok(Ok(())) => {
                    // The end of earlier failures is reported by nobody.
                    lock(&disk.failing).remove(&shard);
                    Ok(())
                }
                Ok(Err(ConfigError::Taken(_))) => Ok(()),
                Ok(Err(error)) => Err(error),
                // The others are opened all the same.
                Err(error) => {
                    poisoned = Err(error);
                    Ok(())
                }
            }
        });
        if let Some(fault) = disk.lost() {
            self.condemn(disk, fault, &mut work);
        }
        self.dispatch(&mut work, None);
        poisoned.map(|()| opened)
    }

    /// Closes a port of a disk that is closed in all engines.
    pub(crate) fn detach(&self, port: Port) {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            // An error means that the shard never had it, or is poisoned.
            let _ = self.with(shard, &mut work, |core, _| core.engine.detach(port));
        }
        self.dispatch(&mut work, None);
    }

    /// Writes back the dirty blocks of `disk`, or drops them with `discard`, flushes its devices and forgets its
    /// blocks. After an error it stays open in the shards that had it.
    pub(crate) fn close(&self, disk: &Disk, discard: bool) -> Result<(), HostError> {
        let mailbox = Arc::new(Mailbox::default());
        let (closing, mut result) = self.begin_to_close(disk, discard, &mailbox);
        // The timer continues if there is something to wait for.
        self.step_all();
        for _ in 0..closing {
            result = result.and(self.result_of(&mailbox));
        }
        if self.has_tenants() && result.is_ok() {
            self.forget_files(disk)?;
        }
        result
    }

    /// Begins to close `disk` as `close` does, without waiting. Returns the number of shards whose replies go to `waiter`,
    /// and the error of the others.
    pub(crate) fn begin_to_close<W: Waiter + 'static>(
        &self,
        disk: &Disk,
        discard: bool,
        waiter: &Arc<W>,
    ) -> (usize, Result<(), HostError>) {
        let mut work = Work::default();
        let (mut closing, mut result) = (0, Ok(()));
        for shard in 0..self.shards() {
            let begun = self.with(shard, &mut work, |core, now| {
                let token = core.waiters.insert(Waiting { waiter: waiter.clone(), range: 0..0 });
                let begun = core.engine.close(now, disk.volume, discard, token as u64);
                if begun.is_err() {
                    core.waiters.remove(token);
                }
                begun.is_ok()
            });
            match begun {
                Ok(begun) => closing += usize::from(begun),
                Err(poisoned) => result = Err(poisoned.into()),
            }
        }
        self.dispatch(&mut work, None);
        (closing, result)
    }

    /// Does the steps of all shards that can be done at once.
    pub(crate) fn step_all(&self) {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            while self.step(shard, &mut work) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Disks are only closed from now on: their blocks are not forgotten.
    pub(crate) fn end(&self) {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            // A poisoned shard forgets nothing.
            let _ = self.with(shard, &mut work, |core, _| core.engine.end());
        }
        self.dispatch(&mut work, None);
    }

    /// From now on, dirty blocks are written whatever their age.
    pub(crate) fn hurry(&self) {
        let mut work = Work::default();
        for shard in 0..self.shards() {
            // A poisoned shard writes nothing.
            let _ = self.with(shard, &mut work, |core, _| core.engine.hurry());
        }
        self.dispatch(&mut work, None);
    }

    /// Waits for a reply without data.
    fn result_of(&self, mailbox: &Mailbox) -> Result<(), HostError> {
        let letter = mailbox.wait();
        match letter.outcome {
            Outcome::Failed(fault) => Err(self.failure(letter.shard, fault)),
            _ => Ok(()),
        }
    }

    /// Begins to write back the dirty blocks of `disk` and to flush its devices. An error if an engine does not have it, or,
    /// unless `waits`, has no room for the request: some may have begun.
    pub(crate) fn begin_write_back(&self, disk: &Disk, waits: bool) -> Result<WriteBack, Refusal> {
        let mailbox = Arc::new(Mailbox::default());
        let mut work = Work::default();
        let mut result = Ok(());
        let mut waiting = 0;
        for shard in 0..self.shards() {
            let submitted = loop {
                match self.flush(shard, disk, &mut work, || mailbox.clone()) {
                    Err(SubmitError::Refused(Refusal::Busy)) => {
                        self.dispatch(&mut work, None);
                        if !waits {
                            return Err(Refusal::Busy);
                        }
                        self.wait_for_room_in(shard);
                    }
                    submitted => break submitted,
                }
            };
            match submitted {
                Ok(submitted) => match submitted.outcome {
                    Some(Outcome::Failed(fault)) => result = result.and(Err(self.failure(shard, fault))),
                    Some(_) => {}
                    None => waiting += 1,
                },
                Err(SubmitError::Poisoned(poisoned)) => result = result.and(Err(poisoned.into())),
                Err(SubmitError::Refused(refusal)) => {
                    self.dispatch(&mut work, None);
                    return Err(refusal);
                }
            }
        }
        self.dispatch(&mut work, None);
        Ok(WriteBack { mailbox, waiting, result })
    }

    /// As `begin_write_back`, and waits until everything is written and flushed.
    pub(crate) fn write_back(&self, disk: &Disk) -> Result<Result<(), HostError>, Refusal> {
        Ok(self.finish_write_back(self.begin_write_back(disk, true)?))
    }

    /// Waits until everything is written and flushed.
    pub(crate) fn finish_write_back(
        &self,
        WriteBack { mailbox, waiting, mut result }: WriteBack,
    ) -> Result<(), HostError> {
        for _ in 0..waiting {
            result = result.and(self.result_of(&mailbox));
        }
        result
    }

    /// From now on, writes of `disk` reach its devices according to `mode`. No effect in engines that do not have it.
    pub(crate) fn set_mode(&self, disk: &Disk, mode: WriteMode) -> Result<(), Poisoned> {
        let mut work = Work::default();
        let set = (0..self.shards()).try_for_each(|shard| {
            match self.with(shard, &mut work, |core, _| core.engine.set_mode(disk.volume, mode))? {
                // It is closed for good only when it is removed.
                Ok(()) | Err(Refusal::NoVolume) => Ok(()),
                Err(refusal) => unreachable!("{refusal:?}"),
            }
        });
        self.dispatch(&mut work, None);
        set
    }

    /// The contents of the shards, in sum, without poisoned ones.
    pub(crate) fn gauges(&self) -> Gauges {
        let mut sum = Gauges::default();
        for of in (0..self.shards()).filter_map(|shard| self.peek(shard, |core| core.engine.gauges()).ok()) {
            sum += of;
        }
        sum
    }

    /// The choice of a policy that chooses among others, in all shards that are not poisoned; nothing with tenants, which have their own.
    pub(crate) fn chosen(&self) -> Option<ChoiceStatistics> {
        if self.has_tenants() {
            return None;
        }
        let chosen = |shard| self.peek(shard, |core| core.engine.chosen(Tenant(0))).ok().flatten();
        ChoiceStatistics::of(&(0..self.shards()).filter_map(chosen).collect::<Vec<_>>())
    }

    /// The hit ratio with less and with more memory, in all shards that are not poisoned; nothing with tenants, which have their own.
    pub(crate) fn curve(&self) -> Option<CurveStatistics> {
        if self.has_tenants() {
            return None;
        }
        let curve = |shard| self.peek(shard, |core| core.engine.curve(Tenant(0))).ok().flatten();
        CurveStatistics::of((0..self.shards()).filter_map(curve).collect())
    }

    /// The counters of `disk` and the number of its dirty blocks, in sum, without poisoned shards.
    pub(crate) fn counters(&self, disk: &Disk) -> (Counters, u64) {
        self.report_all();
        let mut sum = Counters::default();
        let mut dirty = 0;
        for shard in 0..self.shards() {
            let of = self.peek(shard, |core| {
                let engine = &core.engine;
                Some((engine.counters(disk.volume)?, engine.dirty(disk.volume).unwrap_or(0)))
            });
            if let Ok(Some((counters, blocks))) = of {
                sum += counters;
                dirty += u64::from(blocks);
            }
        }
        (sum, dirty)
    }

    /// Whether a shard has something of `disk`, which is being closed, to write or to flush.
    pub(crate) fn is_unwritten(&self, disk: &Disk) -> bool {
        (0..self.shards()).any(|shard| self.peek(shard, |core| core.engine.is_written(disk.volume)) == Ok(false))
    }

    /// Memory of the indexes and the frames' bookkeeping, in bytes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        (0..self.shards()).filter_map(|shard| self.peek(shard, |core| core.engine.metadata_bytes()).ok()).sum()
    }
}
