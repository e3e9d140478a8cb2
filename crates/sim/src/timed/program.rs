//! Programs: what a trace asked for, and how long it computed in between.

use nigh_control::{Event, Saying, When};
use nigh_trace::{Op, Request};

use crate::Ops;

/// What a step asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A trim.
    Trim,
    /// That all writes before are on the device.
    Flush,
}

/// One request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it begins on the disk, in bytes.
    pub offset: u64,
    /// How long the program computes before it, in ns.
    pub think_ns: u64,
    /// How long it is, in bytes; 0 for a flush.
    pub length: u32,
    /// What it asks for.
    pub what: What,
    /// Which code or client issued it ([`Request::issuer`]); 0 where nothing is known of it: then its program did.
    pub stream: u64,
}

impl Step {
    /// Where it ends on the disk, in bytes.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// A closed loop of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Whose they are, for people.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
    /// Which of the disks they go to.
    pub disk: usize,
    /// What it says about its accesses, in order.
    pub says: Vec<Said>,
}

/// Something that a program says, or that is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Before which of its steps.
    pub step: usize,
    /// What.
    pub saying: Saying,
}

/// How long a program computes before each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// So many ns.
    Fixed(u64),
    /// The time between the request and the one before it in the trace, times this.
    Recorded(f64),
}

/// A trace has requests to several files or disks, and no way to tell where these lie on one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has requests to several volumes ({0} and {1}), and a modelled device is one disk: \
     'nigh trace layout' gives files their places on one"
)]
pub struct TwoVolumes(pub u32, pub u32);

/// Makes a program of a trace, batch by batch.
#[derive(Clone, Debug)]
pub struct Recorder {
    program: Program,
    think: Think,
    ops: Ops,
    volume: Option<u32>,
    /// When the last request was issued, whether it counts or not.
    time_ns: Option<u64>,
    /// The think time of requests that were left out.
    owed_ns: u64,
    /// What will be said, the next last.
    events: Vec<Event>,
    /// Requests so far.
    requests: u64,
}

impl Recorder {
    /// A program called `name` that does nothing yet.
    pub fn new(name: String, think: Think, ops: Ops) -> Recorder {
        let program = Program { name, ..Program::default() };
        let (events, requests) = (Vec::new(), 0);
        Recorder { program, think, ops, volume: None, time_ns: None, owed_ns: 0, events, requests }
    }

    /// Has the program say what `events` say, each before the request that it names or the first at its time, whoever
    /// they name. They are said in their order; what comes after the last request is not said.
    pub fn saying(mut self, mut events: Vec<Event>) -> Recorder {
        events.reverse();
        self.events = events;
        self
    }

    /// Adds requests. Those of no length, and those that do not count, only add their think time.
    pub fn push(&mut self, batch: &[Request]) -> Result<(), TwoVolumes> {
        for request in batch {
            let is_due = |event: &mut Event| match event.when {
                When::Request(number) => number <= self.requests,
                When::Time(time_ns) => time_ns <= request.time_ns,
            };
            while let Some(event) = self.events.pop_if(is_due) {
                self.program.says.push(Said { step: self.program.steps.len(), saying: event.saying });
            }
            self.requests += 1;
            let think_ns = match self.think {
                Think::Fixed(ns) => ns,
                Think::Recorded(scale) => {
                    let before = self.time_ns.replace(request.time_ns).unwrap_or(request.time_ns);
                    (request.time_ns.saturating_sub(before) as f64 * scale).round() as u64
                }
            };
            let what = match request.op {
                Op::Read => What::Read,
                Op::Write => What::Write,
                Op::Trim => What::Trim,
                Op::Flush => What::Flush,
            };
            let counts = match self.ops {
                Ops::All => true,
                Ops::Reads => what == What::Read,
                Ops::Writes => what == What::Write,
            };
            if !counts || (request.length == 0 && what != What::Flush) {
                if matches!(self.think, Think::Recorded(_)) {
                    self.owed_ns = self.owed_ns.saturating_add(think_ns);
                }
                continue;
            }
            if what != What::Flush {
                let volume = *self.volume.get_or_insert(request.volume);
                if volume != request.volume {
                    return Err(TwoVolumes(volume, request.volume));
                }
            }
            let think_ns = think_ns.saturating_add(std::mem::take(&mut self.owed_ns));
            let length = if what == What::Flush { 0 } else { request.length };
            self.program.steps.push(Step { offset: request.offset, think_ns, length, what, stream: request.issuer() });
        }
        Ok(())
    }

    /// The program.
    pub fn finish(self) -> Program {
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time_ns: u64, op: Op, length: u32) -> Request {
        Request { time_ns, op, length, volume: 3, offset: 4096, ..Request::default() }
    }

    #[test]
    fn think_time_is_between_requests_and_what_is_left_out_passes_its_on() {
        let trace = [
            request(100, Op::Read, 4096),
            request(150, Op::Write, 4096),
            request(160, Op::Read, 0),
            request(200, Op::Read, 512),
            request(190, Op::Read, 512),
        ];
        let thinks = |think, ops| {
            let mut recorder = Recorder::new("p".to_owned(), think, ops);
            recorder.push(&trace[..2]).unwrap();
            recorder.push(&trace[2..]).unwrap();
            recorder.finish().steps.iter().map(|step| step.think_ns).collect::<Vec<_>>()
        };
        assert_eq!(thinks(Think::Recorded(1.0), Ops::All), [0, 50, 50, 0]);
        assert_eq!(thinks(Think::Recorded(0.5), Ops::Reads), [0, 50, 0]);
        assert_eq!(thinks(Think::Fixed(7), Ops::All), [7; 4]);
    }

    #[test]
    fn one_program_has_one_disk() {
        let mut recorder = Recorder::new("p".to_owned(), Think::Fixed(0), Ops::All);
        recorder.push(&[request(0, Op::Read, 1), Request { volume: 9, ..request(0, Op::Flush, 0) }]).unwrap();
        let other = Request { volume: 9, ..request(0, Op::Read, 1) };
        assert_eq!(recorder.push(&[other]), Err(TwoVolumes(3, 9)));
    }
}
