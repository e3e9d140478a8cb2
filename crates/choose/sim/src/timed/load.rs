//! Traces read as programs, and as references.

use std::collections::{HashMap, HashSet};

use nigh_control::Event;
use nigh_trace::{Request, Requests};

use super::{Pace, Pacing, Program, Recorder, Think, TooManyVolumes, Volumes};
use crate::references::LoadError;
use crate::{Loader, Ops, Options, References};

/// The format of a generated workload. Its times are even, unless the user asked for others.
const GENERATED: &str = "generated";

/// The formats of recorded programs. Their volumes are files, not disks.
const FORMATS_OF_FILES: [&str; 2] = ["pc", "strace"];

/// Reads traces, each of which is a program.
pub struct Programs {
    think: Think,
    /// Decided by each trace if it is not given.
    pace: Option<Pace>,
    ops: Ops,
    block_bytes: u32,
    requests_most: u64,
    programs: Vec<Program>,
    volumes: Volumes,
    loader: Loader,
    /// Whether equal volumes of several traces are one disk.
    shares_disks: bool,
}

/// The loaded programs.
pub struct Loaded {
    /// The programs, in the order in which they were read.
    pub programs: Vec<Program>,
    /// Those that the programs refer to, each with a device of its own.
    pub volumes: Volumes,
    /// The references of all programs, in their order.
    pub references: References,
}

/// A trace that is to be read.
pub struct Recorded<'a> {
    /// Its name, and that of its program.
    pub name: &'a str,
    /// Its format, in a word.
    pub format: &'a str,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Its requests, from the first.
    pub requests: &'a mut dyn Requests,
    /// Its program's directives.
    pub says: Vec<Event>,
}

/// Why a trace cannot be a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] nigh_trace::Error),
    /// There are too many references.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There are too many volumes.
    #[error("{name}: {error}")]
    Volumes {
        /// The trace.
        name: String,
        /// Why.
        error: TooManyVolumes,
    },
    /// Its blocks differ in size from those of the first trace.
    #[error("{name}: its blocks have {bytes} bytes, those of {first} {expected}")]
    Blocks {
        /// The trace.
        name: String,
        /// Bytes in its blocks.
        bytes: u32,
        /// The first trace.
        first: String,
        /// Bytes in the blocks of that.
        expected: u32,
    },
    /// Its volumes are files.
    #[error(
        "{name}: it has requests to several files ({one} and {other}), and does not show where these lie on a disk: \
         'nigh trace layout' gives files their places on one"
    )]
    Files {
        /// The trace.
        name: String,
        /// A file.
        one: u32,
        /// Another one.
        other: u32,
    },
    /// Its requests have no times.
    #[error("{name}: its requests have no times at which they could be issued")]
    Times {
        /// The trace.
        name: String,
    },
    /// None of its requests counts.
    #[error("{name}: nothing to replay")]
    Nothing {
        /// The trace.
        name: String,
    },
}

impl Programs {
    /// None yet. Requests that `ops` leaves out are not theirs, and of each trace at most this many requests are read. All traces
    /// have blocks of `block_bytes`.
    ///
    /// With neither `pacing` nor `think`, traces with times are issued at these, except those of programs, which wait for replies, and
    /// generated ones.
    /// `think` alone is that of a closed loop, in which it is the recorded time unless it is given; an open loop has none.
    ///
    /// Each trace has disks of its own, as those of different machines. The volumes of the first one keep their numbers; each volume of
    /// the others gets the lowest number that is free, in the order of their first requests.
    pub fn new(
        pacing: Option<Pacing>,
        think: Option<Think>,
        ops: Ops,
        block_bytes: u32,
        requests_most: u64,
    ) -> Programs {
        let (think, pace) = match (pacing, think) {
            (Some(Pacing::Open { speed }), _) => (Think::Recorded(1.0 / speed), Some(Pace::Open)),
            (None, None) => (Think::Recorded(1.0), None),
            (_, think) => (think.unwrap_or(Think::Recorded(1.0)), Some(Pace::Closed)),
        };
        let options = Options { block_bytes, ops, collapse: false, sample: None, requests_most: u64::MAX };
        let (programs, volumes, loader) = (Vec::new(), Volumes::default(), Loader::new(options));
        Programs { think, pace, ops, block_bytes, requests_most, programs, volumes, loader, shares_disks: false }
    }

    /// Equal volumes of several traces are one disk.
    pub fn sharing_disks(self) -> Programs {
        Programs { shares_disks: true, ..self }
    }

    /// Reads a trace. After each batch, `goes_on` gets the number of its requests and how far the trace is read, 0 to 1, where
    /// that is known, and returns whether to continue.
    pub fn read(
        &mut self,
        recorded: Recorded,
        mut goes_on: impl FnMut(usize, Option<f64>) -> bool,
    ) -> Result<(), ProgramError> {
        let Recorded { name, format, block_bytes, requests, says } = recorded;
        if block_bytes != self.block_bytes {
            let first = self.programs.first().map_or_else(String::new, |first| first.name.clone());
            let (name, bytes, expected) = (name.to_owned(), block_bytes, self.block_bytes);
            return Err(ProgramError::Blocks { name, bytes, first, expected });
        }
        let mut recorder = Recorder::new(name.to_owned(), self.think, self.ops).saying(says);
        let (mut batch, mut left) = (Vec::<Request>::new(), self.requests_most);
        // Here, by the number in the trace.
        let mut renumbered: HashMap<u32, u32> = HashMap::new();
        let taken: HashSet<u32> = self.volumes.numbers().iter().copied().collect();
        let mut free = (0..).filter(|number| !taken.contains(number));
        while left > 0 {
            requests.next_batch(&mut batch)?;
            if batch.is_empty() {
                break;
            }
            batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= batch.len() as u64;
            if !self.shares_disks && !self.programs.is_empty() {
                for request in &mut batch {
                    let here = renumbered.entry(request.volume);
                    request.volume = *here.or_insert_with(|| free.next().expect("at most DISKS_MOST are taken"));
                }
            }
            let many = |error| ProgramError::Volumes { name: name.to_owned(), error };
            recorder.push(&batch, &mut self.volumes).map_err(many)?;
            let others = if self.shares_disks { 0 } else { taken.len() };
            if FORMATS_OF_FILES.contains(&format)
                && let &[one, other, ..] = &self.volumes.numbers()[others..]
            {
                let in_trace =
                    |here| renumbered.iter().find(|(_, of)| **of == here).map_or(here, |(&number, _)| number);
                let [one, other] = [one, other].map(in_trace);
                return Err(ProgramError::Files { name: name.to_owned(), one, other });
            }
            self.loader.push(&batch)?;
            if !goes_on(batch.len(), requests.progress()) {
                return Ok(());
            }
        }
        let is_of_program = FORMATS_OF_FILES.contains(&format) || format == GENERATED || recorder.has_streams();
        let pace = match self.pace {
            Some(Pace::Open) if !recorder.has_times() => {
                return Err(ProgramError::Times { name: name.to_owned() });
            }
            Some(pace) => pace,
            None if recorder.has_times() && !is_of_program => Pace::Open,
            None => Pace::Closed,
        };
        let program = Program { pace, ..recorder.finish() };
        if program.steps.is_empty() {
            return Err(ProgramError::Nothing { name: name.to_owned() });
        }
        self.programs.push(program);
        Ok(())
    }

    /// The loaded programs.
    pub fn finish(self) -> Loaded {
        Loaded { programs: self.programs, volumes: self.volumes, references: self.loader.finish() }
    }
}
