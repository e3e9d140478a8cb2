//! Programs: what a trace asked for, and how long it computed in between.

use std::collections::HashMap;

use nigh_control::{Event, Saying, When};
use nigh_trace::{Op, Request};

use crate::Ops;

/// Kind of a step's request.
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
    /// Its beginning on the disk, in bytes.
    pub offset: u64,
    /// How long the program computes before it, in ns.
    pub think_ns: u64,
    /// How long it is, in bytes; 0 for a flush.
    pub length: u32,
    /// The kind of request.
    pub what: What,
    /// Which of the disks it goes to.
    pub disk: u16,
    /// Which code or client issued it ([`Request::issuer`]); 0 where nothing is known of it: then its program did.
    pub stream: u64,
    /// The identity of what it reads or writes ([`Request::content`]); 0 where the trace has none.
    pub content: u64,
}

impl Step {
    /// Its end on the disk, in bytes.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }

    /// The blocks of `block_bytes` that it references.
    pub fn references(&self, block_bytes: u32) -> u64 {
        let block = u64::from(block_bytes);
        match self.what {
            What::Read | What::Write => self.end().div_ceil(block) - self.offset / block,
            What::Trim | What::Flush => 0,
        }
    }
}

/// Requests, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Whose they are, for people.
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
    /// When it issues them.
    pub pace: Pace,
    /// Its directives, in order.
    pub says: Vec<Said>,
}

/// When a program issues its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Each after its think time, which begins with the reply to the one before.
    #[default]
    Closed,
    /// Each at its time, whether those before have their replies or not: think times are the times between two requests.
    Open,
}

/// How the times of traces are used, as users write it: `closed`, `recorded`, or `2x` for twice as many requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// In a closed loop.
    Closed,
    /// In an open loop, this many times as fast as recorded.
    Open {
        /// From 1 / [`SPEED_MOST`] to [`SPEED_MOST`].
        speed: f64,
    },
}

/// Traces are replayed at most this many times as fast, or as slow.
pub const SPEED_MOST: f64 = 1e6;

/// The text is no pacing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: expected recorded, closed, or the recorded rate times a number, such as 2x")]
pub struct NoPacing(String);

impl std::str::FromStr for Pacing {
    type Err = NoPacing;

    fn from_str(text: &str) -> Result<Pacing, NoPacing> {
        let speed = |text: &str| {
            let speed = text.strip_suffix('x')?.parse::<f64>().ok()?;
            (1.0 / SPEED_MOST..=SPEED_MOST).contains(&speed).then_some(Pacing::Open { speed })
        };
        match text {
            "closed" => Ok(Pacing::Closed),
            "recorded" => Ok(Pacing::Open { speed: 1.0 }),
            text => speed(text).ok_or_else(|| NoPacing(text.to_owned())),
        }
    }
}

/// A directive of a program, or an administrator's about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Before which of its steps.
    pub step: usize,
    /// The directive.
    pub saying: Saying,
}

/// How long a program computes before each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// A fixed time, in ns.
    Fixed(u64),
    /// The time between the request and the one before it in the trace, times this.
    Recorded(f64),
}

/// The longest fixed think time, in ns: an hour.
const THINK_NS_MOST: f64 = 3600e9;
/// Recorded times are stretched at most so much.
const STRETCH_MOST: f64 = 1e6;

/// The text is no think time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: expected a time up to 1h such as 0.1ms, or a share such as 50%")]
pub struct NoThink(String);

impl std::str::FromStr for Think {
    type Err = NoThink;

    fn from_str(text: &str) -> Result<Think, NoThink> {
        let wrong = || NoThink(text.to_owned());
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|value| *value >= 0.0);
        if let Some(percent) = text.strip_suffix('%') {
            let scale = number(percent).map(|percent| percent / 100.0).filter(|scale| *scale <= STRETCH_MOST);
            return scale.map(Think::Recorded).ok_or_else(wrong);
        }
        let ns = nigh_text::seconds(text).map(|seconds| seconds * 1e9);
        let ns = ns.filter(|ns| *ns <= THINK_NS_MOST).ok_or_else(wrong)?;
        Ok(Think::Fixed(ns.round() as u64))
    }
}

/// The most disks of a simulation.
pub const DISKS_MOST: usize = 1024;

/// The traces refer to more volumes than there can be disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {DISKS_MOST} volumes, each of which would be a modelled device: 'nigh trace layout' gives files their \
     places on one"
)]
pub struct TooManyVolumes;

/// The volumes that traces refer to, each of which is a disk.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// By disk.
    numbers: Vec<u32>,
    disks: HashMap<u32, u16>,
}

impl Volumes {
    /// Their numbers in the traces, by disk: in the order of the first requests to them.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    fn disk(&mut self, volume: u32) -> Result<u16, TooManyVolumes> {
        if let Some(&disk) = self.disks.get(&volume) {
            return Ok(disk);
        }
        if self.numbers.len() == DISKS_MOST {
            return Err(TooManyVolumes);
        }
        let disk = self.numbers.len() as u16;
        self.numbers.push(volume);
        self.disks.insert(volume, disk);
        Ok(disk)
    }
}

/// Makes a program of a trace, batch by batch.
#[derive(Clone, Debug)]
pub struct Recorder {
    program: Program,
    think: Think,
    ops: Ops,
    /// The volume of the last request that had a place, and its disk.
    last: (Option<u32>, u16),
    /// When the first request was issued, and the latest time since, whether they count or not.
    times_ns: Option<(u64, u64)>,
    /// Whether requests name the code that issued them.
    has_streams: bool,
    /// The think time of requests that were left out.
    owed_ns: u64,
    /// Directives to come, the next last.
    events: Vec<Event>,
    /// Requests so far.
    requests: u64,
}

impl Recorder {
    /// A program called `name` that does nothing yet.
    pub fn new(name: String, think: Think, ops: Ops) -> Recorder {
        let program = Program { name, ..Program::default() };
        let (events, requests) = (Vec::new(), 0);
        let (times_ns, has_streams) = (None, false);
        Recorder { program, think, ops, last: (None, 0), times_ns, has_streams, owed_ns: 0, events, requests }
    }

    /// Whether requests so far have different times.
    pub fn has_times(&self) -> bool {
        self.times_ns.is_some_and(|(first, latest)| first < latest)
    }

    /// Whether requests so far name the code that issued them, so that they are those of a program.
    pub fn has_streams(&self) -> bool {
        self.has_streams
    }

    /// Has the program send the directives of `events`, each before the request that it names or the first at its time, whichever tenant
    /// they name. They are sent in their order; those after the last request are not sent.
    pub fn saying(mut self, mut events: Vec<Event>) -> Recorder {
        events.reverse();
        self.events = events;
        self
    }

    /// Adds requests, each to the disk that is its volume among `volumes`; a flush goes where the request before it went.
    /// Those of no length, and those that do not count, only add their think time.
    pub fn push(&mut self, batch: &[Request], volumes: &mut Volumes) -> Result<(), TooManyVolumes> {
        for request in batch {
            let is_due = |event: &mut Event| match event.when {
                When::Request(number) => number <= self.requests,
                When::Time(time_ns) => time_ns <= request.time_ns,
            };
            while let Some(event) = self.events.pop_if(is_due) {
                self.program.says.push(Said { step: self.program.steps.len(), saying: event.saying });
            }
            self.requests += 1;
            let (first_ns, before_ns) = self.times_ns.unwrap_or((request.time_ns, request.time_ns));
            self.times_ns = Some((first_ns, before_ns.max(request.time_ns)));
            self.has_streams |= request.stream != 0;
            let think_ns = match self.think {
                Think::Fixed(ns) => ns,
                // From the beginning, so that rounding does not add up.
                Think::Recorded(scale) => {
                    let since_first = |ns: u64| (ns.saturating_sub(first_ns) as f64 * scale).round() as u64;
                    since_first(request.time_ns).saturating_sub(since_first(before_ns))
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
            if what != What::Flush && self.last.0 != Some(request.volume) {
                self.last = (Some(request.volume), volumes.disk(request.volume)?);
            }
            let think_ns = think_ns.saturating_add(std::mem::take(&mut self.owed_ns));
            let length = if what == What::Flush { 0 } else { request.length };
            let (offset, disk, stream, content) = (request.offset, self.last.1, request.issuer(), request.content);
            self.program.steps.push(Step { offset, think_ns, length, what, disk, stream, content });
        }
        Ok(())
    }

    /// The program, in a closed loop.
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
    fn think_times() {
        assert_eq!("0.1ms".parse(), Ok(Think::Fixed(100_000)));
        assert_eq!("3s".parse(), Ok(Think::Fixed(3_000_000_000)));
        assert_eq!("50%".parse(), Ok(Think::Recorded(0.5)));
        for slip in ["", "1", "ms", "-1ms", "2h", "nans", "%", "inf%", "4000s"] {
            assert!(slip.parse::<Think>().is_err(), "{slip}");
        }
    }

    #[test]
    fn pacings() {
        assert_eq!("closed".parse(), Ok(Pacing::Closed));
        assert_eq!("recorded".parse(), Ok(Pacing::Open { speed: 1.0 }));
        assert_eq!("0.5x".parse(), Ok(Pacing::Open { speed: 0.5 }));
        for slip in ["", "x", "2", "0x", "-1x", "1e9x", "nanx", "infx", "open"] {
            assert!(slip.parse::<Pacing>().is_err(), "{slip}");
        }
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
            let mut volumes = Volumes::default();
            recorder.push(&trace[..2], &mut volumes).unwrap();
            recorder.push(&trace[2..], &mut volumes).unwrap();
            recorder.finish().steps.iter().map(|step| step.think_ns).collect::<Vec<_>>()
        };
        assert_eq!(thinks(Think::Recorded(1.0), Ops::All), [0, 50, 50, 0]);
        assert_eq!(thinks(Think::Recorded(0.5), Ops::Reads), [0, 50, 0]);
        assert_eq!(thinks(Think::Fixed(7), Ops::All), [7; 4]);
    }

    #[test]
    fn each_volume_is_a_disk() {
        let to = |volume, op| Request { volume, ..request(0, op, 512) };
        let mut volumes = Volumes::default();
        let mut disks = |requests: &[Request]| {
            let mut recorder = Recorder::new("p".to_owned(), Think::Fixed(0), Ops::All);
            recorder.push(requests, &mut volumes)?;
            Ok::<_, TooManyVolumes>(recorder.finish().steps.iter().map(|step| step.disk).collect::<Vec<_>>())
        };
        assert_eq!(
            disks(&[to(9, Op::Read), to(3, Op::Write), to(7, Op::Flush), to(9, Op::Read)]),
            Ok(vec![0, 1, 1, 0])
        );
        // Another trace's volume 3 is the same.
        assert_eq!(disks(&[to(3, Op::Read), to(8, Op::Read)]), Ok(vec![1, 2]));
        let many: Vec<Request> = (0..2000).map(|volume| to(volume, Op::Read)).collect();
        assert_eq!(disks(&many), Err(TooManyVolumes));
        assert_eq!(volumes.numbers()[..4], [9, 3, 8, 0]);
    }
}
