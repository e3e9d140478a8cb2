//! Issues and completions become requests with their latency, in the order in which they were issued.

use std::collections::{HashMap, VecDeque};

use nigh_trace::Op;

/// A request that was not completed after this time leaves without a latency.
const PATIENCE_NS: u64 = 60_000_000_000;

/// The most requests that wait; then the oldest leaves without a latency.
const WAITING_MOST: usize = 1 << 16;

/// One request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// When it was issued, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// The operation.
    pub op: Op,
    /// First sector (512 bytes) of the whole disk; 0 for a flush.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// Nanoseconds until it was completed; 0 if that is not known.
    pub latency_ns: u64,
    /// 0, or the error that it was completed with: -errno.
    pub result: i32,
    /// The thread that issued it.
    pub tid: u32,
    /// The name of that thread, padded with zeros.
    pub name: [u8; 16],
}

/// Requests that wait for their completion, or for that of an earlier one.
#[derive(Debug, Default)]
pub struct Pairs {
    waiting: VecDeque<Waiting>,
    /// The number of the first of `waiting`.
    first: u64,
    /// The numbers of those that are not completed, by their first sector that is not.
    open: HashMap<(u64, Op), VecDeque<u64>>,
}

#[derive(Debug)]
struct Waiting {
    io: Io,
    /// Sectors that were completed.
    done: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Complete,
    /// It went back to the queue and will be issued again.
    Void,
}

impl Pairs {
    /// `io` was issued.
    pub fn issue(&mut self, io: Io) {
        let number = self.first + self.waiting.len() as u64;
        self.open.entry((io.sector, io.op)).or_default().push_back(number);
        self.waiting.push_back(Waiting { io, done: 0, state: State::Open });
    }

    /// `sectors` from `sector` on were completed with `result`: all of a request, or its next part.
    pub fn complete(&mut self, time_ns: u64, op: Op, sector: u64, sectors: u32, result: i32) {
        let Some(number) = self.close(op, sector) else { return };
        let Some(waiting) = self.at(number) else { return };
        waiting.done = waiting.done.saturating_add(sectors);
        if result == 0 && waiting.done < waiting.io.sectors {
            let next = waiting.io.sector.saturating_add(waiting.done.into());
            self.open.entry((next, op)).or_default().push_back(number);
            return;
        }
        waiting.io.latency_ns = time_ns.saturating_sub(waiting.io.time_ns).max(1);
        waiting.io.result = result;
        waiting.state = State::Complete;
    }

    /// The request at `sector` went back to the queue: it will be issued again.
    pub fn requeue(&mut self, op: Op, sector: u64) {
        let number = self.close(op, sector);
        if let Some(waiting) = number.and_then(|number| self.at(number)) {
            waiting.state = State::Void;
        }
    }

    /// Appends to `out` the requests that do not wait at `time_ns`.
    pub fn take(&mut self, time_ns: u64, out: &mut Vec<Io>) {
        while let Some(waiting) = self.waiting.front() {
            let is_old = waiting.io.time_ns.saturating_add(PATIENCE_NS) < time_ns;
            if waiting.state == State::Open && !is_old && self.waiting.len() <= WAITING_MOST {
                return;
            }
            self.leave(out);
        }
    }

    /// Appends all others: those that are not completed have no latency.
    pub fn finish(mut self, out: &mut Vec<Io>) {
        while !self.waiting.is_empty() {
            self.leave(out);
        }
    }

    fn leave(&mut self, out: &mut Vec<Io>) {
        let Some(Waiting { io, done, state }) = self.waiting.pop_front() else { return };
        let number = self.first;
        self.first += 1;
        if state == State::Open {
            let key = (io.sector.saturating_add(done.into()), io.op);
            if let Some(numbers) = self.open.get_mut(&key) {
                numbers.retain(|&open| open != number);
                if numbers.is_empty() {
                    self.open.remove(&key);
                }
            }
        }
        if state != State::Void {
            out.push(io);
        }
    }

    /// Takes the oldest request that is open at `sector`.
    fn close(&mut self, op: Op, sector: u64) -> Option<u64> {
        let numbers = self.open.get_mut(&(sector, op))?;
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.open.remove(&(sector, op));
        }
        number
    }

    fn at(&mut self, number: u64) -> Option<&mut Waiting> {
        self.waiting.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(time_ns: u64, sector: u64, sectors: u32) -> Io {
        Io { time_ns, op: Op::Read, sector, sectors, latency_ns: 0, result: 0, tid: 7, name: [0; 16] }
    }

    fn taken(pairs: &mut Pairs, time_ns: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        pairs.take(time_ns, &mut out);
        out.iter().map(|io| (io.time_ns, io.latency_ns)).collect()
    }

    #[test]
    fn requests_leave_in_the_order_in_which_they_were_issued() {
        let mut pairs = Pairs::default();
        pairs.issue(io(10, 0, 8));
        pairs.issue(io(11, 8, 8));
        pairs.issue(io(12, 16, 8));
        pairs.complete(20, Op::Read, 8, 8, 0);
        assert_eq!(taken(&mut pairs, 30), [], "the first is not completed");
        pairs.complete(35, Op::Read, 0, 8, 0);
        assert_eq!(taken(&mut pairs, 40), [(10, 25), (11, 9)]);
        let mut out = Vec::new();
        pairs.finish(&mut out);
        assert_eq!(out, [io(12, 16, 8)]);
    }

    #[test]
    fn a_request_is_completed_in_parts() {
        let mut pairs = Pairs::default();
        pairs.issue(io(10, 100, 8));
        pairs.complete(20, Op::Read, 100, 3, 0);
        pairs.complete(25, Op::Write, 103, 5, 0);
        assert_eq!(taken(&mut pairs, 30), []);
        pairs.complete(30, Op::Read, 103, 5, 0);
        assert_eq!(taken(&mut pairs, 30), [(10, 20)]);
        assert!(pairs.open.is_empty());
    }

    #[test]
    fn equal_requests_are_completed_in_their_order_and_an_error_ends_one() {
        let mut pairs = Pairs::default();
        pairs.issue(io(10, 100, 8));
        pairs.issue(io(11, 100, 8));
        pairs.complete(20, Op::Read, 100, 0, -5);
        pairs.complete(30, Op::Read, 100, 8, 0);
        let mut out = Vec::new();
        pairs.take(40, &mut out);
        let found: Vec<_> = out.iter().map(|io| (io.time_ns, io.latency_ns, io.result)).collect();
        assert_eq!(found, [(10, 10, -5), (11, 19, 0)]);
    }

    #[test]
    fn a_request_that_is_issued_again_counts_once() {
        let mut pairs = Pairs::default();
        pairs.issue(io(10, 100, 8));
        pairs.requeue(Op::Read, 100);
        pairs.issue(io(20, 100, 8));
        pairs.complete(25, Op::Read, 100, 8, 0);
        assert_eq!(taken(&mut pairs, 30), [(20, 5)]);
    }

    #[test]
    fn requests_without_completion_leave_after_a_minute_and_are_limited() {
        let mut pairs = Pairs::default();
        pairs.issue(io(10, 100, 8));
        assert_eq!(taken(&mut pairs, PATIENCE_NS), []);
        assert_eq!(taken(&mut pairs, PATIENCE_NS + 11), [(10, 0)]);
        pairs.complete(PATIENCE_NS + 12, Op::Read, 100, 8, 0);
        for number in 0..=WAITING_MOST as u64 {
            pairs.issue(io(PATIENCE_NS + 13, number * 8, 8));
        }
        assert_eq!(taken(&mut pairs, PATIENCE_NS + 14).len(), 1);
        assert_eq!((pairs.waiting.len(), pairs.open.len()), (WAITING_MOST, WAITING_MOST));
    }
}
