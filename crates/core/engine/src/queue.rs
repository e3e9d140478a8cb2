//! The queue of one port: which operation goes next, and which neighbours join it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use smallvec::{SmallVec, smallvec};

use crate::request::Volume;
use crate::scheduler::{Deadline, Scheduler};

/// The number of reads that go before one waiting write, so that reads cannot starve writes; the deadline scheduler has
/// a rule of its own.
const READS_PER_WRITE: u32 = 16;

/// The class of a waiting operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A flush, discard or zeroes.
    Control,
    /// A read that a request waits for.
    Read,
    /// A write.
    Write,
    /// A read that no request waits for.
    Prefetch,
}

/// One operation in the queue; operations are numbered in the order of their arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    /// Its first block.
    pub(crate) block: u64,
    /// Its length in blocks.
    pub(crate) blocks: u64,
    /// When it arrived, in µs.
    pub(crate) since: u64,
    /// The region of its blocks: only operations of one region are neighbours.
    pub(crate) region: u64,
    /// Whether its neighbours must not join it.
    pub(crate) alone: bool,
}

/// The waiting operations of one class.
#[derive(Default)]
struct Lane {
    by_arrival: BTreeMap<u64, Waiting>,
    /// (block, id) of each.
    by_position: BTreeSet<(u64, u64)>,
    /// The rest of the batch that is being issued. Some of its operations may have left otherwise.
    batch: VecDeque<u64>,
    /// The end of the last operation of the lane.
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

    /// Takes out `id`, which is passed to the device.
    fn take(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.remove(id)?;
        self.position = waiting.block + waiting.blocks;
        Some(waiting)
    }

    fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    fn oldest(&self) -> Option<Waiting> {
        self.by_arrival.first_key_value().map(|(_, oldest)| *oldest)
    }

    /// The lowest that begins at `position` or above.
    fn above(&self, position: u64) -> Option<u64> {
        self.by_position.range((position, 0)..).next().map(|&(_, id)| id)
    }

    /// The highest that begins below `position`; of several at one position, the one that came first.
    fn below(&self, position: u64) -> Option<u64> {
        let &(block, _) = self.by_position.range(..(position, 0)).next_back()?;
        self.above(block)
    }

    /// The next of the sorted batch, and of the batch after it.
    fn next_of_batch(&mut self, most: u32) -> Option<u64> {
        loop {
            match self.batch.pop_front() {
                Some(id) if self.by_arrival.contains_key(&id) => return Some(id),
                Some(_) => {}
                None => {
                    let first = self.by_arrival.values().take(most.max(1) as usize);
                    let mut batch: Vec<_> = first.map(|waiting| (waiting.block, waiting.id)).collect();
                    if batch.is_empty() {
                        return None;
                    }
                    batch.sort_unstable();
                    self.batch.extend(batch.into_iter().map(|(_, id)| id));
                }
            }
        }
    }

    /// Takes out the operation that begins at `block` and has at most `most` blocks.
    fn take_behind(&mut self, block: u64, region: u64, most: u64) -> Option<Waiting> {
        let id = self.above(block)?;
        let waiting = self.by_arrival[&id];
        let joins = waiting.block == block && waiting.region == region && waiting.blocks <= most && !waiting.alone;
        if joins { self.take(id) } else { None }
    }

    /// Takes out the operation that ends at `block` and has at most `most` blocks. The elevator has already passed it.
    fn take_before(&mut self, block: u64, region: u64, most: u64) -> Option<Waiting> {
        let &(_, id) = self.by_position.range(..(block, 0)).next_back()?;
        let waiting = self.by_arrival[&id];
        let ends_there = waiting.block + waiting.blocks == block && waiting.region == region;
        let joins = ends_there && waiting.blocks <= most && !waiting.alone;
        if joins { self.remove(id) } else { None }
    }
}

/// Operations that are passed to the device as one.
pub(crate) type Run = SmallVec<[Waiting; 4]>;

/// The queue of one port.
pub(crate) struct Queue {
    scheduler: Scheduler,
    control: Lane,
    reads: Lane,
    writes: Lane,
    prefetches: Lane,
    /// The end of the last operation of any class.
    head: u64,
    /// Whether LOOK moves downwards.
    downwards: bool,
    /// Reads, or the deadline scheduler's batches of them, that went before a waiting write.
    reads_since_write: u32,
    /// The direction of the deadline scheduler's batch, and its number of operations so far.
    batch: (Class, u32),
}

impl Queue {
    pub(crate) fn new(scheduler: Scheduler) -> Queue {
        let [control, reads, writes, prefetches] = Default::default();
        let (head, downwards, reads_since_write, batch) = (0, false, 0, (Class::Control, 0));
        Queue { scheduler, control, reads, writes, prefetches, head, downwards, reads_since_write, batch }
    }

    fn lane(&mut self, class: Class) -> &mut Lane {
        match class {
            Class::Control => &mut self.control,
            Class::Read => &mut self.reads,
            Class::Write => &mut self.writes,
            Class::Prefetch => &mut self.prefetches,
        }
    }

    pub(crate) fn push(&mut self, class: Class, waiting: Waiting) {
        self.lane(class).push(waiting);
    }

    /// The next operation, with the neighbours on the device that join it, in ascending order and limited to `most`
    /// blocks together. A read that a request waits for takes along the prefetches next to it: on their own they would
    /// cost the device another positioning, and some devices a revolution.
    pub(crate) fn pop(&mut self, most: u64, now: u64) -> Option<Run> {
        if let Some(first) = self.control.oldest() {
            return Some(smallvec![self.control.take(first.id)?]);
        }
        let (class, id) = match self.scheduler {
            Scheduler::Deadline(rules) => self.next_by_deadline(rules, now)?,
            _ => {
                let class = self.next_class()?;
                (class, self.next_of(class)?)
            }
        };
        let chosen = self.lane(class).take(id)?;
        let mut end = chosen.block + chosen.blocks;
        let mut run: Run = smallvec![chosen];
        // Writes were merged when they were created.
        if class != Class::Write && !chosen.alone {
            let mut room = most.saturating_sub(chosen.blocks);
            while let Some(next) = self.take_neighbour(|lane| lane.take_behind(end, chosen.region, room)) {
                end += next.blocks;
                room -= next.blocks;
                run.push(next);
            }
            while let Some(next) = self.take_neighbour(|lane| lane.take_before(run[0].block, chosen.region, room)) {
                room -= next.blocks;
                run.insert(0, next);
            }
        }
        self.head = end;
        Some(run)
    }

    fn take_neighbour(&mut self, take: impl Fn(&mut Lane) -> Option<Waiting>) -> Option<Waiting> {
        take(&mut self.reads).or_else(|| take(&mut self.prefetches))
    }

    /// The class whose turn it is if the scheduler treats reads and writes alike.
    fn next_class(&mut self) -> Option<Class> {
        if self.writes.is_empty() {
            self.reads_since_write = 0;
        }
        if !self.reads.is_empty() && self.reads_since_write < READS_PER_WRITE {
            self.reads_since_write += u32::from(!self.writes.is_empty());
            Some(Class::Read)
        } else if !self.writes.is_empty() {
            self.reads_since_write = 0;
            Some(Class::Write)
        } else {
            (!self.prefetches.is_empty()).then_some(Class::Prefetch)
        }
    }

    fn next_of(&mut self, class: Class) -> Option<u64> {
        let (scheduler, head) = (self.scheduler, self.head);
        let downwards = self.downwards;
        let lane = self.lane(class);
        match scheduler {
            Scheduler::FirstCome => lane.oldest().map(|oldest| oldest.id),
            Scheduler::Batches { most } => lane.next_of_batch(most),
            Scheduler::Elevator | Scheduler::Deadline(_) => lane.above(head).or_else(|| lane.above(0)),
            Scheduler::Look => {
                let (ahead, behind) =
                    if downwards { (lane.below(head), lane.above(head)) } else { (lane.above(head), lane.below(head)) };
                if ahead.is_none() {
                    self.downwards = !downwards;
                }
                ahead.or(behind)
            }
        }
    }

    fn next_by_deadline(&mut self, rules: Deadline, now: u64) -> Option<(Class, u64)> {
        let (class, count) = self.batch;
        if matches!(class, Class::Read | Class::Write) && count < rules.batch {
            let lane = self.lane(class);
            if let Some(id) = lane.above(lane.position) {
                self.batch.1 += 1;
                return Some((class, id));
            }
        }
        let writes = !self.writes.is_empty();
        let write_first = writes && self.reads_since_write >= rules.reads_per_write;
        let class = if !self.reads.is_empty() && !write_first {
            self.reads_since_write += u32::from(writes);
            Class::Read
        } else if writes {
            self.reads_since_write = 0;
            Class::Write
        } else {
            return Some((Class::Prefetch, self.next_of(Class::Prefetch)?));
        };
        let expiry_us = if class == Class::Read { rules.read_us } else { rules.write_us };
        let lane = self.lane(class);
        let oldest = lane.oldest()?;
        let late = now.saturating_sub(oldest.since) >= expiry_us;
        let next = lane.above(lane.position).filter(|_| !late);
        self.batch = (class, 1);
        Some((class, next.unwrap_or(oldest.id)))
    }

    /// A request now waits for the prefetch `id`. Returns whether the prefetch was still queued.
    pub(crate) fn promote(&mut self, id: u64) -> bool {
        let Some(waiting) = self.prefetches.remove(id) else { return false };
        self.reads.push(waiting);
        true
    }

    /// Takes out the reads and prefetches that `choose` chooses by their numbers: first the reads, in the order of their arrival.
    pub(crate) fn take_reads(&mut self, choose: impl Fn(u64) -> bool) -> Vec<u64> {
        let lanes = [&mut self.reads, &mut self.prefetches];
        let taken = lanes.into_iter().flat_map(|lane| {
            let chosen: Vec<u64> = lane.by_arrival.keys().copied().filter(|&id| choose(id)).collect();
            chosen.iter().for_each(|&id| _ = lane.remove(id));
            chosen
        });
        taken.collect()
    }

    pub(crate) fn len(&self) -> usize {
        [&self.control, &self.reads, &self.writes, &self.prefetches].map(|lane| lane.by_arrival.len()).iter().sum()
    }
}

/// One port.
pub(crate) struct PortState {
    pub(crate) depth: u32,
    pub(crate) replays: bool,
    pub(crate) queue: Queue,
    /// Operations at the device.
    pub(crate) at_device: u32,
    /// Write operations queued or at the device.
    pub(crate) writes: u32,
    /// Whether it is in `Engine::ready`.
    pub(crate) ready: bool,
    /// Volumes whose write-back waits until `writes` is below the depth.
    pub(crate) blocked: VecDeque<Volume>,
    /// Regions of open volumes, and levels.
    pub(crate) users: u32,
    /// Open volumes with regions here.
    pub(crate) volumes: Vec<Volume>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue whose operations arrived at intervals of one µs.
    fn queue(scheduler: Scheduler, reads: &[(u64, u64)]) -> Queue {
        let mut queue = Queue::new(scheduler);
        push(&mut queue, Class::Read, 0, reads);
        queue
    }

    fn push(queue: &mut Queue, class: Class, first: u64, operations: &[(u64, u64)]) {
        for (id, &(block, blocks)) in (first..).zip(operations) {
            queue.push(class, Waiting { id, block, blocks, since: id, region: 0, alone: false });
        }
    }

    /// (first block, number of joined operations) of each operation.
    fn order(queue: &mut Queue, most: u64, now: u64) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| queue.pop(most, now)).map(|run| (run[0].block, run.len() - 1)).collect()
    }

    fn next(queue: &mut Queue) -> u64 {
        queue.pop(1, 0).unwrap()[0].block
    }

    fn blocks(mut queue: Queue, now: u64) -> Vec<u64> {
        order(&mut queue, 1, now).into_iter().map(|(block, _)| block).collect()
    }

    const SCATTERED: [(u64, u64); 5] = [(50, 1), (10, 1), (30, 1), (5, 1), (7, 1)];

    #[test]
    fn first_come_keeps_the_order() {
        assert_eq!(blocks(queue(Scheduler::FirstCome, &SCATTERED), 0), [50, 10, 30, 5, 7]);
    }

    #[test]
    fn batches_are_sorted_one_by_one() {
        assert_eq!(blocks(queue(Scheduler::Batches { most: 3 }, &SCATTERED), 0), [10, 30, 50, 5, 7]);
        assert_eq!(blocks(queue(Scheduler::Batches { most: 1 }, &SCATTERED), 0), [50, 10, 30, 5, 7]);
        assert_eq!(blocks(queue(Scheduler::Batches { most: 16 }, &SCATTERED), 0), [5, 7, 10, 30, 50]);
    }

    #[test]
    fn a_batch_is_not_joined_by_those_that_come_later() {
        let mut queue = queue(Scheduler::Batches { most: 3 }, &SCATTERED[..3]);
        assert_eq!(next(&mut queue), 10);
        push(&mut queue, Class::Read, 3, &[(20, 1), (40, 1)]);
        assert_eq!(blocks(queue, 0), [30, 50, 20, 40]);
    }

    #[test]
    fn the_elevator_goes_up_and_begins_again() {
        let mut queue = queue(Scheduler::Elevator, &SCATTERED);
        let first: Vec<_> = (0..4).map(|_| next(&mut queue)).collect();
        assert_eq!(first, [5, 7, 10, 30]);
        push(&mut queue, Class::Read, 5, &[(20, 1), (45, 1)]);
        assert_eq!(blocks(queue, 0), [45, 50, 20]);
    }

    #[test]
    fn look_turns_around() {
        let mut queue = queue(Scheduler::Look, &SCATTERED);
        let first: Vec<_> = (0..5).map(|_| next(&mut queue)).collect();
        assert_eq!(first, [5, 7, 10, 30, 50]);
        push(&mut queue, Class::Read, 5, &[(20, 1), (45, 1), (8, 1)]);
        assert_eq!(next(&mut queue), 45);
        push(&mut queue, Class::Read, 8, &[(60, 1)]);
        assert_eq!(blocks(queue, 0), [20, 8, 60]);
    }

    fn rules(batch: u32) -> Scheduler {
        Scheduler::Deadline(Deadline { read_us: 100, write_us: 1000, batch, reads_per_write: 2 })
    }

    #[test]
    fn deadline_goes_upwards_until_one_is_late() {
        assert_eq!(blocks(queue(rules(16), &SCATTERED), 50), [5, 7, 10, 30, 50]);
        assert_eq!(blocks(queue(rules(16), &SCATTERED), 100), [50, 10, 30, 5, 7]);
    }

    #[test]
    fn deadline_looks_for_late_ones_only_between_batches() {
        // At 101 the first two are late: the batch begins with the first, and the next with the second.
        let mut queue = queue(rules(3), &[(50, 1), (10, 1), (60, 1), (70, 1), (5, 1)]);
        assert_eq!(order(&mut queue, 1, 101), [(50, 0), (60, 0), (70, 0), (10, 0), (5, 0)]);
    }

    #[test]
    fn deadline_begins_with_the_oldest_when_none_is_above() {
        let mut queue = queue(rules(16), &[(90, 1)]);
        assert_eq!(next(&mut queue), 90);
        push(&mut queue, Class::Read, 1, &[(30, 1), (20, 1), (40, 1)]);
        assert_eq!(blocks(queue, 0), [30, 40, 20]);
    }

    #[test]
    fn deadline_has_two_batches_of_reads_go_before_one_of_writes() {
        let mut queue = queue(rules(2), &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]);
        push(&mut queue, Class::Write, 10, &[(101, 1), (102, 1), (103, 1)]);
        assert_eq!(blocks(queue, 20), [1, 2, 3, 4, 101, 102, 5, 6, 7, 103]);
    }

    #[test]
    fn a_late_write_begins_its_batch() {
        let mut queue = queue(rules(16), &[]);
        push(&mut queue, Class::Write, 0, &[(80, 1), (20, 1), (90, 1)]);
        assert_eq!(blocks(queue, 1000), [80, 90, 20]);
    }

    #[test]
    fn neighbours_join_up_to_the_limit() {
        let mut queue = queue(Scheduler::FirstCome, &[(10, 2), (14, 4), (12, 2), (18, 1)]);
        assert_eq!(order(&mut queue, 8, 0), [(10, 2), (18, 0)]);
    }

    #[test]
    fn a_read_takes_along_the_prefetches_behind_it() {
        let mut queue = queue(Scheduler::FirstCome, &[(10, 2), (40, 1)]);
        push(&mut queue, Class::Prefetch, 5, &[(12, 6), (18, 4), (100, 1), (101, 1)]);
        assert_eq!(order(&mut queue, 10, 0), [(10, 1), (40, 0), (18, 0), (100, 1)]);
    }

    #[test]
    fn a_read_takes_along_the_prefetches_before_it() {
        let mut queue = queue(Scheduler::FirstCome, &[(10, 2), (40, 1)]);
        push(&mut queue, Class::Prefetch, 5, &[(8, 2), (6, 2), (12, 4), (2, 2), (34, 6)]);
        assert_eq!(order(&mut queue, 12, 0), [(6, 3), (34, 1), (2, 0)]);
    }

    #[test]
    fn regions_that_meet_on_the_device_do_not_join() {
        let mut queue = queue(Scheduler::FirstCome, &[(10, 2)]);
        queue.push(Class::Read, Waiting { id: 1, block: 12, blocks: 2, since: 1, region: 1, alone: false });
        queue.push(Class::Read, Waiting { id: 2, block: 8, blocks: 2, since: 2, region: 1, alone: false });
        assert_eq!(order(&mut queue, 8, 0), [(10, 0), (12, 0), (8, 0)]);
    }

    #[test]
    fn demand_goes_before_prefetch_under_every_scheduler() {
        let all = [Scheduler::FirstCome, Scheduler::default(), Scheduler::Elevator, Scheduler::Look, rules(1)];
        for scheduler in all {
            let mut queue = Queue::new(scheduler);
            push(&mut queue, Class::Prefetch, 0, &[(1, 1), (3, 1)]);
            push(&mut queue, Class::Read, 2, &[(50, 1), (52, 1)]);
            assert_eq!(next(&mut queue), 50, "{scheduler}");
            // A request waits for one that was a prefetch.
            assert!(queue.promote(1) && !queue.promote(1));
            let mut rest = order(&mut queue, 1, 0);
            assert_eq!(rest.pop(), Some((1, 0)), "{scheduler}");
            rest.sort_unstable();
            assert_eq!(rest, [(3, 0), (52, 0)], "{scheduler}");
        }
    }

    #[test]
    fn writes_and_prefetches_wait_but_writes_do_not_starve() {
        let mut queue = queue(Scheduler::FirstCome, &[(1, 1); 20]);
        push(&mut queue, Class::Prefetch, 30, &[(500, 1)]);
        push(&mut queue, Class::Write, 31, &[(400, 1)]);
        push(&mut queue, Class::Control, 32, &[(300, 0)]);
        let order = order(&mut queue, 1, 0);
        assert_eq!(order[0].0, 300);
        assert_eq!(order.iter().position(|&(block, _)| block == 400), Some(1 + READS_PER_WRITE as usize));
        assert_eq!(order.last(), Some(&(500, 0)));
    }
}
