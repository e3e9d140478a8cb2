//! Traces read as programs, and as references.

use std::collections::{HashMap, HashSet};

use nigh_control::Event;
use nigh_trace::{Request, Requests};

use super::{Program, Recorder, Think, TooManyVolumes, Volumes};
use crate::references::LoadError;
use crate::{Loader, Ops, Options, References};

/// The formats of which volumes are files, not disks.
const FORMATS_OF_FILES: [&str; 2] = ["pc", "strace"];

/// Reads traces, each of which is a program.
pub struct Programs {
    think: Think,
    ops: Ops,
    block_bytes: u32,
    requests_most: u64,
    programs: Vec<Program>,
    volumes: Volumes,
    loader: Loader,
    /// Whether equal volumes of several traces are one disk.
    shares_disks: bool,
}

/// What was read.
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
    /// What its program says.
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
    /// None of its requests counts.
    #[error("{name}: nothing to replay")]
    Nothing {
        /// The trace.
        name: String,
    },
}

impl Programs {
    /// None yet. Programs think so before each request, requests that `ops` leaves out are not theirs, and of each trace at
    /// most so many requests are read. All traces have blocks of `block_bytes`.
    ///
    /// Each trace has disks of its own, as those of different machines. The volumes of the first one keep their numbers; each volume of
    /// the others gets the lowest number that is free, in the order of their first requests.
    pub fn new(think: Think, ops: Ops, block_bytes: u32, requests_most: u64) -> Programs {
        let options = Options { block_bytes, ops, collapse: false, sample: None, requests_most: u64::MAX };
        let (programs, volumes, loader) = (Vec::new(), Volumes::default(), Loader::new(options));
        Programs { think, ops, block_bytes, requests_most, programs, volumes, loader, shares_disks: false }
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
        let program = recorder.finish();
        if program.steps.is_empty() {
            return Err(ProgramError::Nothing { name: name.to_owned() });
        }
        self.programs.push(program);
        Ok(())
    }

    /// What was read.
    pub fn finish(self) -> Loaded {
        Loaded { programs: self.programs, volumes: self.volumes, references: self.loader.finish() }
    }
}
