//! The queue of one export's device: which operation goes next, and which neighbours go with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// In which order operations go to a device. Whatever the order, reads that somebody waits for go before write-back,
/// and this before prefetches; flushes, discards and zeroes, which wait for nothing in the queue, go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served.
    FirstCome,
    /// The longest waiting operations, at most so many, sorted by position; then the next such batch (Cao et al.,
    /// Implementation and Performance of Integrated Application-Controlled File Caching, Prefetching, and Disk
    /// Scheduling, ACM TOCS 1996).
    Batches {
        /// How many operations a batch has.
        most: u32,
    },
    /// By position, upwards from the last, except that an operation that has waited for too long goes first.
    Deadline {
        /// How long a read may wait.
        read_us: u64,
        /// How long a write may wait.
        write_us: u64,
    },
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler::Batches { most: 16 }
    }
}

/// While writes wait, so many reads go before one of them does, so that reads cannot starve them.
const READS_PER_WRITE: u32 = 16;

/// What kind of operation waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A flush, discard or zeroes.
    Control,
    /// A read that somebody waits for.
    Read,
    /// A write.
    Write,
    /// A read that nobody waits for.
    Prefetch,
}

/// One operation in the queue; operations are numbered in the order of their arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    /// Its first block.
    pub(crate) block: u64,
    /// How many blocks it has.
    pub(crate) blocks: u64,
    /// When it arrived, in µs.
    pub(crate) since: u64,
}

/// The waiting operations of one class.
#[derive(Default)]
struct Lane {
    by_arrival: BTreeMap<u64, Waiting>,
    /// (block, id) of each.
    by_position: BTreeSet<(u64, u64)>,
    /// The rest of the batch that is being issued. Some of it may have left otherwise.
    batch: VecDeque<u64>,
    /// Where the last one ended.
    position: u64,
}

impl Lane {
    fn push(&mut self, waiting: Waiting) {
        self.by_arrival.insert(waiting.id, waiting);
        self.by_position.insert((waiting.block, waiting.id));
    }

    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.by_arrival.remove(&id)?;
        self.by_position.remove(&(waiting.block, id));
        Some(waiting)
    }

    fn next(&mut self, scheduler: Scheduler, expiry_us: u64, now: u64) -> Option<Waiting> {
        let oldest = *self.by_arrival.first_key_value()?.1;
        let id = match scheduler {
            Scheduler::FirstCome => oldest.id,
            Scheduler::Batches { most } => loop {
                match self.batch.pop_front() {
                    Some(id) if self.by_arrival.contains_key(&id) => break id,
                    Some(_) => {}
                    None => {
                        let first = self.by_arrival.values().take(most.max(1) as usize);
                        let mut batch: Vec<_> = first.map(|waiting| (waiting.block, waiting.id)).collect();
                        batch.sort_unstable();
                        self.batch.extend(batch.into_iter().map(|(_, id)| id));
                    }
                }
            },
            Scheduler::Deadline { .. } if now.saturating_sub(oldest.since) >= expiry_us => oldest.id,
            Scheduler::Deadline { .. } => {
                let above = self.by_position.range((self.position, 0)..).next();
                above.or_else(|| self.by_position.first()).expect("as many as by_arrival").1
            }
        };
        let waiting = self.remove(id)?;
        self.position = waiting.block + waiting.blocks;
        Some(waiting)
    }

    /// Takes out the operation that begins at `block` and has at most `most` blocks.
    fn take_neighbour(&mut self, block: u64, most: u64) -> Option<Waiting> {
        let &(_, id) = self.by_position.range((block, 0)..=(block, u64::MAX)).next()?;
        if self.by_arrival[&id].blocks > most {
            return None;
        }
        self.position = block + self.by_arrival[&id].blocks;
        self.remove(id)
    }
}

/// The queue of one device.
pub(crate) struct Queue {
    scheduler: Scheduler,
    control: Lane,
    reads: Lane,
    writes: Lane,
    prefetches: Lane,
    reads_since_write: u32,
}

impl Queue {
    pub(crate) fn new(scheduler: Scheduler) -> Queue {
        let [control, reads, writes, prefetches] = Default::default();
        Queue { scheduler, control, reads, writes, prefetches, reads_since_write: 0 }
    }

    pub(crate) fn push(&mut self, class: Class, waiting: Waiting) {
        let lane = match class {
            Class::Control => &mut self.control,
            Class::Read => &mut self.reads,
            Class::Write => &mut self.writes,
            Class::Prefetch => &mut self.prefetches,
        };
        lane.push(waiting);
    }

    /// The next operation, and those behind it on the device that join it, so that they have at most `most` blocks.
    pub(crate) fn pop(&mut self, most: u64, now: u64) -> Option<(Waiting, Vec<Waiting>)> {
        if let Some(first) = self.control.next(Scheduler::FirstCome, 0, now) {
            return Some((first, Vec::new()));
        }
        let (read_us, write_us) = match self.scheduler {
            Scheduler::Deadline { read_us, write_us } => (read_us, write_us),
            _ => (u64::MAX, u64::MAX),
        };
        let late = |lane: &Lane| {
            lane.by_arrival.first_key_value().is_some_and(|(_, oldest)| now.saturating_sub(oldest.since) >= write_us)
        };
        if self.writes.by_arrival.is_empty() {
            self.reads_since_write = 0;
        }
        let write_first = self.reads_since_write >= READS_PER_WRITE || late(&self.writes);
        let (first, lane) = if !self.reads.by_arrival.is_empty() && !write_first {
            self.reads_since_write += 1;
            (self.reads.next(self.scheduler, read_us, now)?, &mut self.reads)
        } else if !self.writes.by_arrival.is_empty() {
            self.reads_since_write = 0;
            // Writes were coalesced when they were made.
            return Some((self.writes.next(self.scheduler, write_us, now)?, Vec::new()));
        } else {
            (self.prefetches.next(self.scheduler, u64::MAX, now)?, &mut self.prefetches)
        };
        let mut end = first.block + first.blocks;
        let mut joined = Vec::new();
        while let Some(next) = lane.take_neighbour(end, (first.block + most).saturating_sub(end)) {
            end += next.blocks;
            joined.push(next);
        }
        Some((first, joined))
    }

    /// Somebody waits for the prefetch `id` now. Says whether it was still waiting.
    pub(crate) fn promote(&mut self, id: u64) -> bool {
        let Some(waiting) = self.prefetches.remove(id) else { return false };
        self.reads.push(waiting);
        true
    }

    pub(crate) fn len(&self) -> usize {
        [&self.control, &self.reads, &self.writes, &self.prefetches].map(|lane| lane.by_arrival.len()).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(scheduler: Scheduler, reads: &[(u64, u64)]) -> Queue {
        let mut queue = Queue::new(scheduler);
        for (id, &(block, blocks)) in (0..).zip(reads) {
            queue.push(Class::Read, Waiting { id, block, blocks, since: id });
        }
        queue
    }

    fn order(mut queue: Queue, most: u64, now: u64) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| queue.pop(most, now)).map(|(first, joined)| (first.block, joined.len())).collect()
    }

    #[test]
    fn first_come_keeps_the_order() {
        let reads = [(50, 1), (10, 1), (30, 1)];
        assert_eq!(order(queue(Scheduler::FirstCome, &reads), 1, 0), [(50, 0), (10, 0), (30, 0)]);
    }

    #[test]
    fn batches_are_sorted_one_by_one() {
        let reads = [(50, 1), (10, 1), (30, 1), (5, 1), (7, 1)];
        let batches = queue(Scheduler::Batches { most: 3 }, &reads);
        assert_eq!(order(batches, 1, 0), [(10, 0), (30, 0), (50, 0), (5, 0), (7, 0)]);
    }

    #[test]
    fn deadline_goes_upwards_until_one_is_late() {
        let reads = [(50, 1), (10, 1), (30, 1)];
        let deadline = Scheduler::Deadline { read_us: 100, write_us: 100 };
        assert_eq!(order(queue(deadline, &reads), 1, 50), [(10, 0), (30, 0), (50, 0)]);
        assert_eq!(order(queue(deadline, &reads), 1, 100), [(50, 0), (10, 0), (30, 0)]);
    }

    #[test]
    fn neighbours_join_up_to_the_limit() {
        let reads = [(10, 2), (14, 4), (12, 2), (18, 1)];
        assert_eq!(order(queue(Scheduler::FirstCome, &reads), 8, 0), [(10, 2), (18, 0)]);
    }

    #[test]
    fn writes_and_prefetches_wait_but_writes_do_not_starve() {
        let mut queue = queue(Scheduler::FirstCome, &[(1, 1); 20]);
        queue.push(Class::Prefetch, Waiting { id: 30, block: 500, blocks: 1, since: 0 });
        queue.push(Class::Write, Waiting { id: 31, block: 400, blocks: 1, since: 0 });
        queue.push(Class::Control, Waiting { id: 32, block: 300, blocks: 0, since: 0 });
        let order = order(queue, 1, 0);
        assert_eq!(order[0].0, 300);
        assert_eq!(order.iter().position(|&(block, _)| block == 400), Some(1 + READS_PER_WRITE as usize));
        assert_eq!(order.last(), Some(&(500, 0)));
    }
}
