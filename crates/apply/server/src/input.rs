//! Bytes that were received from a client, and when.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_engine::Exclusive;
use nigh_host::front::Budget;
use nigh_service::front::Stream;

/// Bytes that are received ahead. Payloads of writes go past it into the engines' frames.
pub(crate) const BUFFER: usize = 16 << 10;
/// Frames wait for a payload for as long, and then once more for a byte of it, since others need them. A read of the socket waits as
/// long.
pub(crate) const PATIENCE_FRAMES: Duration = Duration::from_millis(20);
/// Most arrivals that are remembered: nothing more is received ahead then.
const ARRIVALS_MAX: usize = 1024;

/// Bytes that were received and not yet used.
pub(crate) struct Input {
    pub(crate) stream: Arc<Stream>,
    buffer: Box<[u8]>,
    pub(crate) start: usize,
    end: usize,
    /// Bytes received since the connection began.
    received: u64,
    /// When what is not used yet was received, oldest first. Never empty.
    arrivals: VecDeque<Arrival>,
    /// The client sends nothing more.
    ended: bool,
    /// How long `receive` waits after the stream did.
    pub(crate) patience: Duration,
    /// Memory of the buffer beyond `BUFFER`.
    borrowed: Option<Loan>,
}

/// Memory that was taken from a budget, until it is dropped.
pub(crate) struct Loan {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Loan {
    /// None if there is not so much left.
    pub(crate) fn take(budget: &Arc<Budget>, bytes: usize) -> Option<Loan> {
        budget.take(bytes).then(|| Loan { budget: budget.clone(), bytes })
    }

    /// Becomes part of `whole`, of the same budget.
    fn join(mut self, whole: &mut Option<Loan>) {
        match whole {
            Some(whole) => whole.bytes += std::mem::take(&mut self.bytes),
            None => *whole = Some(self),
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

struct Arrival {
    /// `Input::received` afterwards.
    received: u64,
    at: Instant,
}

impl Input {
    pub(crate) fn new(stream: Arc<Stream>) -> Input {
        Input {
            stream,
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            received: 0,
            arrivals: VecDeque::from([Arrival { received: 0, at: Instant::now() }]),
            ended: false,
            patience: Duration::ZERO,
            borrowed: None,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// When the last of the bytes that are used so far was received.
    pub(crate) fn arrival(&mut self) -> Instant {
        let used = self.received - self.bytes().len() as u64;
        while self.arrivals[0].received < used {
            self.arrivals.pop_front();
        }
        self.arrivals[0].at
    }

    /// Notes that this many more bytes were received now. All that were received before are used unless `ahead`.
    fn arrived(&mut self, bytes: usize, ahead: bool) {
        self.received += bytes as u64;
        if !ahead {
            self.arrivals.clear();
        }
        self.arrivals.push_back(Arrival { received: self.received, at: Instant::now() });
    }

    /// Receives more; returns false at the end of the stream. Waits as long as the stream does, and after that for `patience`.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        self.compact();
        let mut deadline = None;
        let read = loop {
            match self.stream.read(&mut [IoSliceMut::new(&mut self.buffer[self.end..])], true) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    let left = deadline.get_or_insert(now + self.patience).saturating_duration_since(now);
                    if left.is_zero() || !self.stream.wait_for_input(left) {
                        return Err(error);
                    }
                }
                read => break read?,
            }
        };
        // The remaining bytes are the beginning of the next message.
        self.arrived(read, false);
        self.end += read;
        Ok(read > 0)
    }

    /// Receives what there is without waiting, in a buffer that grows within `budget`. Returns whether there is room for
    /// more.
    pub(crate) fn receive_ahead(&mut self, budget: &Arc<Budget>) -> bool {
        while !self.ended && self.arrivals.len() < ARRIVALS_MAX && self.make_room(budget) {
            match self.stream.read(&mut [IoSliceMut::new(&mut self.buffer[self.end..])], false) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    self.arrived(read, true);
                    self.end += read;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // Waiters for bytes are woken.
                Err(_) => self.ended = true,
            }
        }
        false
    }

    /// Has room at the end of the buffer, if it can.
    fn make_room(&mut self, budget: &Arc<Budget>) -> bool {
        let length = self.buffer.len();
        if self.end < length {
            return true;
        }
        if self.start >= length / 2 {
            self.compact();
            return true;
        }
        let Some(loan) = Loan::take(budget, length) else { return false };
        loan.join(&mut self.borrowed);
        self.grow(2 * length);
        true
    }

    /// Grows to this many bytes in all, within `budget`; returns false if that does not allow it.
    pub(crate) fn has_room(&mut self, bytes: usize, budget: &Arc<Budget>) -> bool {
        if self.buffer.len() < bytes {
            let more = bytes.next_power_of_two() - self.buffer.len();
            let Some(loan) = Loan::take(budget, more) else { return false };
            loan.join(&mut self.borrowed);
            self.grow(bytes);
        }
        true
    }

    /// Receives until there are this many bytes, for which there is room. That may take as long as is `left`, of which it takes
    /// what it took.
    pub(crate) fn gather(&mut self, bytes: usize, left: &mut Duration) -> io::Result<()> {
        let begin = Instant::now();
        while self.bytes().len() < bytes {
            if begin.elapsed() > *left {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !self.receive()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        *left = left.saturating_sub(begin.elapsed());
        Ok(())
    }

    /// Moves what is left to the beginning of the buffer.
    fn compact(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// Makes room for messages of this many bytes.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            let mut larger = vec![0; bytes.next_power_of_two()];
            larger[self.start..self.end].copy_from_slice(self.bytes());
            self.buffer = larger.into();
        }
    }

    /// Gives memory back, if little of it is in use.
    pub(crate) fn shrink(&mut self) {
        let left = self.bytes().len();
        if left <= BUFFER && self.borrowed.take().is_some() {
            let mut smaller = vec![0; BUFFER];
            smaller[..left].copy_from_slice(self.bytes());
            self.buffer = smaller.into();
            (self.start, self.end) = (0, left);
        }
    }

    /// Copies the received part of a payload into `frames`, and returns its length.
    pub(crate) fn copy_to(&mut self, frames: &mut Exclusive) -> usize {
        let done = frames.len().min(self.end - self.start);
        let mut ready = &self.buffer[self.start..self.start + done];
        for slice in frames.slices_mut() {
            let (now, later) = ready.split_at(slice.len().min(ready.len()));
            slice[..now.len()].copy_from_slice(now);
            ready = later;
        }
        self.start += done;
        done
    }

    /// Receives a payload into `frames`, unless the client takes longer than `PATIENCE_FRAMES`. Then it returns false, and what
    /// it received is unused again, in the memory of `loan`, which is as much as `frames` and has room for the rest.
    pub(crate) fn fill(&mut self, frames: &mut Exclusive, loan: Loan) -> io::Result<bool> {
        let total = frames.len();
        let mut done = self.copy_to(frames);
        let (deadline, waits) = (Instant::now() + PATIENCE_FRAMES, self.stream.keeps_patience());
        while done < total {
            let mut slices = Vec::with_capacity(frames.slices_mut().len() + 1);
            let mut skip = done;
            for slice in frames.slices_mut() {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                if skipped < slice.len() {
                    slices.push(IoSliceMut::new(&mut slice[skipped..]));
                }
            }
            slices.push(IoSliceMut::new(&mut self.buffer));
            let is_over = match self.stream.read(&mut slices, waits) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.arrived(read, false);
                    done += read;
                    done < total && Instant::now() > deadline
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    waits || left.is_zero() || !self.stream.wait_for_input(left)
                }
                Err(error) => return Err(error),
            };
            if is_over {
                self.take_back(frames, done, loan);
                return Ok(false);
            }
        }
        if done > total {
            (self.start, self.end) = (0, done - total);
        }
        Ok(true)
    }

    /// The first `done` bytes of `frames` are unused, and there are no others.
    fn take_back(&mut self, frames: &mut Exclusive, done: usize, loan: Loan) {
        let mut bytes = Vec::with_capacity(frames.len().max(BUFFER));
        frames.slices_mut().for_each(|slice| bytes.extend_from_slice(slice));
        bytes.resize(bytes.capacity(), 0);
        self.buffer = bytes.into();
        (self.start, self.end) = (0, done);
        self.borrowed = Some(loan);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(20);

    fn pair() -> (UnixStream, Input) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Input::new(Arc::new(Stream::socket(theirs.into()))))
    }

    #[test]
    fn each_byte_has_the_time_at_which_it_was_received() {
        let (mut client, mut input) = pair();
        let budget = Arc::new(Budget::new(0));
        assert!(input.receive_ahead(&budget), "there is room, and nothing to receive");
        let mut times = Vec::new();
        for byte in 0..3 {
            client.write_all(&[byte; 10]).unwrap();
            let before = Instant::now();
            assert!(input.receive_ahead(&budget));
            times.push(before..Instant::now());
            std::thread::sleep(PAUSE);
        }
        for used in 0..30 {
            assert_eq!(input.bytes().len(), 30 - used);
            input.start += 1;
            assert!(times[used / 10].contains(&input.arrival()), "{used}");
        }
        client.write_all(&[3; 10]).unwrap();
        let before = Instant::now();
        assert!(input.receive().unwrap());
        input.start += 1;
        assert!(input.arrival() >= before && input.arrivals.len() == 1);
    }

    #[test]
    fn what_is_received_ahead_is_limited_and_its_memory_is_given_back() {
        let (mut client, mut input) = pair();
        const LIMIT: usize = 1 << 20;
        let budget = Arc::new(Budget::new(LIMIT));
        let sent: Vec<u8> = (0..4 * LIMIT).map(|at| (at / 7) as u8).collect();
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || client.write_all(&sent)
        });
        let mut received = Vec::new();
        while input.receive_ahead(&budget) {
            std::thread::yield_now();
        }
        assert!((LIMIT / 4..=LIMIT + BUFFER).contains(&input.bytes().len()), "{}", input.bytes().len());
        assert!(input.arrivals.len() <= ARRIVALS_MAX);
        while received.len() < sent.len() {
            let some = input.bytes().len().min(5000);
            received.extend_from_slice(&input.bytes()[..some]);
            input.start += some;
            input.arrival();
            input.receive_ahead(&budget);
        }
        assert!(received == sent);
        writer.join().unwrap().unwrap();
        assert!(!input.receive_ahead(&budget), "the client has left");
        assert!(budget.left() < LIMIT);
        input.shrink();
        assert_eq!((budget.left(), input.buffer.len()), (LIMIT, BUFFER));
        assert!(!input.receive().unwrap());
    }
}
