//! The end of a host: all disks are closed at once, and what is not written in time is named.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nigh_engine::Outcome;

use crate::admin::CLOSING_TRIES;
use crate::common::Common;
use crate::disk::{Disk, Opening};
use crate::error::{HostError, Unwritten};
use crate::sync::{lock, lock_within};
use crate::warm::Warm;
use crate::work::{Waiter, Work};

/// How long an end with a limit waits for a change of the host in progress, which may wait for a device.
const CHANGING: Duration = Duration::from_secs(1);
/// The interval between checks of disks that are being changed.
const GLANCE: Duration = Duration::from_millis(5);

/// Receives the shards' replies about one disk.
struct Closer {
    at: usize,
    replies: Sender<(usize, u32, Outcome)>,
}

impl Waiter for Closer {
    fn deliver(self: Arc<Self>, shard: u32, _: std::ops::Range<u64>, outcome: Outcome, _work: &mut Work) {
        // Nobody waits any more if the time was over.
        let _ = self.replies.send((self.at, shard, outcome));
    }
}

/// A disk that is being closed.
struct Closing {
    disk: Arc<Disk>,
    closer: Arc<Closer>,
    /// Shards without a reply.
    left: usize,
    result: Result<(), HostError>,
    tries: u32,
    /// Its dirty blocks are dropped: they could not be written.
    discard: bool,
}

impl Common {
    /// Closes every disk, all at once: writes back dirty blocks, and drops those that cannot be written. The disks with
    /// dropped blocks are added to `unwritten`.
    fn close_all(&self, unwritten: &Mutex<Vec<Unwritten>>) {
        self.cache.end();
        let (sender, replies) = channel();
        let closing = |(at, disk): (usize, Arc<Disk>)| {
            let closer = Arc::new(Closer { at, replies: sender.clone() });
            Closing { disk, closer, left: 0, result: Ok(()), tries: 0, discard: false }
        };
        let mut closings: Vec<Closing> = self.cache.disks.all().into_iter().enumerate().map(closing).collect();
        let mut open = closings.len();
        // Some are being changed: their turn comes when that is over.
        let mut waiting: Vec<usize> = (0..open).collect();
        while open > 0 {
            let before = waiting.len();
            waiting.retain(|&at| {
                let begins = hide(&closings[at].disk);
                if begins {
                    open -= usize::from(self.begin_closing(&mut closings[at], unwritten));
                }
                !begins
            });
            if waiting.len() < before {
                self.cache.step_all();
            }
            let reply = match waiting.is_empty() {
                true if open == 0 => break,
                true => replies.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => replies.recv_timeout(GLANCE),
            };
            let Ok((at, shard, outcome)) = reply else { continue };
            let closing = &mut closings[at];
            closing.left -= 1;
            if let Outcome::Failed(fault) = outcome
                && closing.result.is_ok()
            {
                closing.result = Err(self.cache.failure(shard, fault));
            }
            if closing.left == 0 {
                open -= usize::from(self.go_on_closing(closing, unwritten));
            }
        }
    }

    /// Begins to close a disk; returns whether it is closed already.
    fn begin_closing(&self, closing: &mut Closing, unwritten: &Mutex<Vec<Unwritten>>) -> bool {
        closing.tries += 1;
        (closing.left, closing.result) = self.cache.begin_to_close(&closing.disk, closing.discard, &closing.closer);
        closing.left == 0 && self.go_on_closing(closing, unwritten)
    }

    /// All shards have replied: the disk is closed, or it is tried again. Returns whether it is closed.
    fn go_on_closing(&self, closing: &mut Closing, unwritten: &Mutex<Vec<Unwritten>>) -> bool {
        let disk = closing.disk.clone();
        match std::mem::replace(&mut closing.result, Ok(())) {
            // The loss was already noted.
            _ if closing.discard => return true,
            Ok(()) => {
                if self.cache.has_tenants() {
                    // A poisoned shard forgets everything.
                    let _ = self.cache.forget_files(&disk);
                }
                return true;
            }
            Err(_) if closing.tries < CLOSING_TRIES => {}
            Err(cause) => {
                lock(unwritten).push(self.unwritten(&disk, cause));
                closing.discard = true;
            }
        }
        self.begin_closing(closing, unwritten)
    }

    /// The disks that are not all written yet, except those in `unwritten`, are late.
    fn add_late(&self, unwritten: &mut Vec<Unwritten>) {
        for disk in self.cache.disks.all() {
            let known = unwritten.iter().any(|unwritten| unwritten.name == disk.name());
            if !known && self.cache.is_unwritten(&disk) {
                unwritten.push(self.unwritten(&disk, HostError::Late));
            }
        }
    }
}

/// No request reaches the disk from now on. Returns false if it is being changed.
fn hide(disk: &Disk) -> bool {
    let Some(_changing) = lock_within(&disk.changing, Duration::ZERO) else { return false };
    disk.set_hidden(true);
    disk.lift_rates();
    disk.set_opening(Opening::Closed);
    true
}

/// Ends a host, whose threads these are: none if that was done before. A change in progress is waited for, but with `until`, the time
/// limit, no longer than `CHANGING`. Disks whose blocks cannot be written are added to `unwritten`.
fn end(common: &Common, threads: Vec<JoinHandle<()>>, until: Option<Instant>, unwritten: &Mutex<Vec<Unwritten>>) {
    // In a child of the process that started it, the threads do not run, and nothing is to be written.
    if threads.is_empty() || common.cache.is_forked() {
        return;
    }
    let Common { cache, handle, stopping, closed, administration, .. } = common;
    match until {
        None => {
            let changing = lock(administration);
            stopping.store(true, Ordering::Release);
            drop(changing);
        }
        Some(_) => {
            stopping.store(true, Ordering::Release);
            drop(lock_within(administration, CHANGING));
        }
    }
    common.close_all(unwritten);
    common.keep_levels(until);
    common.save_warm();
    closed.store(true, Ordering::Release);
    cache.timer.wake();
    common.warm.iter().for_each(Warm::wake);
    cache.end_encoding();
    handle.stop();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the cache panicked");
        }
    }
    // The files are unlocked, even if others still have the host.
    cache.disks.all().iter().for_each(|disk| disk.forget_devices());
}

fn result(unwritten: Vec<Unwritten>) -> Result<(), Vec<Unwritten>> {
    if unwritten.is_empty() { Ok(()) } else { Err(unwritten) }
}

/// Ends a host; waits as long as its devices take.
pub(crate) fn shut_down(common: &Common, threads: Vec<JoinHandle<()>>) -> Result<(), Vec<Unwritten>> {
    let unwritten = Mutex::new(Vec::new());
    end(common, threads, None, &unwritten);
    result(std::mem::take(&mut *lock(&unwritten)))
}

/// As `shut_down`, for at most `limit`. Work that remains then is done as long as the process lives.
pub(crate) fn shut_down_within(
    common: &Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    limit: Duration,
) -> Result<(), Vec<Unwritten>> {
    if threads.is_empty() || common.cache.is_forked() {
        return Ok(());
    }
    let until = Instant::now() + limit;
    common.cache.hurry();
    let unwritten = Arc::new(Mutex::new(Vec::new()));
    let (done, ended) = channel();
    let threads = Arc::new(Mutex::new(threads));
    let run = {
        let (common, threads, unwritten) = (common.clone(), threads.clone(), unwritten.clone());
        move || {
            end(&common, std::mem::take(&mut *lock(&threads)), Some(until), &unwritten);
            // Nobody waits any more if the time is over.
            let _ = done.send(());
        }
    };
    if let Err(error) = Builder::new().name("ending".into()).spawn(run) {
        tracing::error!(%error, "no thread to end the cache: its end has no time limit");
        end(common, std::mem::take(&mut *lock(&threads)), Some(until), &unwritten);
        return result(std::mem::take(&mut *lock(&unwritten)));
    }
    let in_time = ended.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok();
    let mut unwritten = std::mem::take(&mut *lock(&unwritten));
    if !in_time {
        common.add_late(&mut unwritten);
    }
    result(unwritten)
}
