//! A trace decoded once: the column of dense block numbers that every replay shares.

use std::sync::Arc;

use nigh_pattern::Table;
use nigh_policy::{Block, Spec, Stream};
use nigh_trace::{Op, Request, Requests};

use crate::number::{Numbering, TooMany};
use crate::sample::{BLOCKS_LEAST, Sample};
use crate::writes::Writes;

/// Which requests count as references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ops {
    /// Reads and writes.
    #[default]
    All,
    /// Reads only.
    Reads,
    /// Writes only.
    Writes,
}

/// The text is none of the [`Ops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected all, reads or writes")]
pub struct NoOps;

impl std::str::FromStr for Ops {
    type Err = NoOps;

    fn from_str(name: &str) -> Result<Ops, NoOps> {
        match name {
            "all" => Ok(Ops::All),
            "reads" => Ok(Ops::Reads),
            "writes" => Ok(Ops::Writes),
            _ => Err(NoOps),
        }
    }
}

impl Ops {
    /// The word that is read as these.
    pub fn name(self) -> &'static str {
        match self {
            Ops::All => "all",
            Ops::Reads => "reads",
            Ops::Writes => "writes",
        }
    }
}

/// How requests become references.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes in a block; a power of two.
    pub block_bytes: u32,
    /// Which requests count.
    pub ops: Ops,
    /// Whether references of a tenant that repeat its one before are dropped.
    pub collapse: bool,
    /// Which blocks are taken.
    pub sample: Option<Sample>,
    /// At most this many requests are read.
    pub requests_most: u64,
}

/// Counts of the input, before anything was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of every kind.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// The earliest and latest time, in nanoseconds on the trace's clock; equal where the format has no time.
    pub time_ns: (u64, u64),
    /// References, before sampling.
    pub references: u64,
}

impl Totals {
    fn add(&mut self, batch: &[Request]) {
        let Some(first) = batch.first() else { return };
        if self.requests == 0 {
            self.time_ns = (first.time_ns, first.time_ns);
        }
        self.requests += batch.len() as u64;
        for request in batch {
            self.time_ns.0 = self.time_ns.0.min(request.time_ns);
            self.time_ns.1 = self.time_ns.1.max(request.time_ns);
            let (read, write) = (request.op == Op::Read, request.op == Op::Write);
            self.reads += u64::from(read);
            self.writes += u64::from(write);
            self.bytes += if read || write { u64::from(request.length) } else { 0 };
        }
    }
}

/// Which stream each reference belongs to. If all belong to one, it takes no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// By number, in the order of their first reference.
    streams: Vec<u64>,
    /// The number of each reference's stream; empty while there is one stream.
    numbers: Vec<u32>,
}

impl Streams {
    /// The stream of reference number `at`. Nothing is loaded for a policy that does not use it.
    #[inline(always)]
    pub fn of(&self, at: usize) -> Stream {
        let number = self.numbers.get(at).copied().unwrap_or(0);
        Stream(self.streams.get(number as usize).copied().unwrap_or(0))
    }

    /// All streams, in the order of their first reference.
    pub fn all(&self) -> &[u64] {
        &self.streams
    }

    /// The place in [`Streams::all`] of the stream of reference number `at`.
    #[inline]
    pub fn number(&self, at: usize) -> u32 {
        self.numbers.get(at).copied().unwrap_or(0)
    }

    /// Those of the references at `places`.
    pub(crate) fn select(&self, places: impl Iterator<Item = u32>) -> Streams {
        let numbers =
            if self.numbers.is_empty() { Vec::new() } else { places.map(|at| self.numbers[at as usize]).collect() };
        Streams { streams: self.streams.clone(), numbers }
    }
}

/// Numbers streams while references are gathered.
#[derive(Default)]
struct StreamNumbers {
    streams: Streams,
    numbers: hashbrown::HashMap<u64, u32>,
    /// The stream of the last reference, and its number.
    last: Option<(u64, u32)>,
    references: usize,
}

impl StreamNumbers {
    /// The next `count` references belong to `stream`.
    #[inline]
    fn add(&mut self, stream: u64, count: usize) {
        let number = match self.last {
            Some((last, number)) if last == stream => number,
            _ => self.number(stream),
        };
        if self.streams.streams.len() > 1 {
            self.streams.numbers.extend(std::iter::repeat_n(number, count));
        }
        self.references += count;
    }

    fn number(&mut self, stream: u64) -> u32 {
        let known = &mut self.streams.streams;
        let number = *self.numbers.entry(stream).or_insert_with(|| {
            known.push(stream);
            known.len() as u32 - 1
        });
        if known.len() == 2 && self.streams.numbers.is_empty() {
            self.streams.numbers.resize(self.references, 0);
        }
        self.last = Some((stream, number));
        number
    }
}

/// A table of patterns, and where it is used.
#[derive(Clone, Debug)]
pub struct Patterns {
    /// The pattern of each piece of code.
    pub table: Arc<Table>,
    /// Policies, each with a capacity in blocks, that do without it.
    pub without: Vec<(Spec, u32)>,
}

impl Patterns {
    /// The table, for a policy that does not do without it at this capacity.
    pub(crate) fn at(&self, spec: &Spec, capacity: u32) -> Option<Arc<Table>> {
        let is_without = self.without.iter().any(|(other, at)| (other, *at) == (spec, capacity));
        (!is_without).then(|| self.table.clone())
    }
}

/// The references of a trace, to blocks numbered in the order of their first reference.
pub struct References {
    /// The number of the referenced block, reference by reference.
    pub ids: Vec<u32>,
    /// Their streams.
    pub streams: Streams,
    /// Which of them write.
    pub writes: Writes,
    /// The block of each number.
    pub blocks: Vec<Block>,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Counts of the input.
    pub totals: Totals,
    /// The sample that `ids` are, if they are one.
    pub sample: Option<Sample>,
    /// Patterns of the code that issues them, for policies that use it.
    pub patterns: Option<Patterns>,
    /// The identity of the contents that each of them read or wrote, 0 if the trace has none; empty if it never has one, or if only some
    /// references are taken.
    pub contents: Vec<u64>,
}

impl References {
    /// How many distinct blocks are referenced.
    pub fn distinct(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// How many distinct blocks the whole trace has; an estimate where the references are a sample.
    pub fn distinct_in_trace(&self) -> u64 {
        match self.sample {
            Some(sample) => (self.blocks.len() as f64 / sample.rate()).round() as u64,
            None => self.blocks.len() as u64,
        }
    }

    /// A warning where the references are a sample of so few blocks that estimates are far off.
    pub fn note_on_sample(&self) -> Option<String> {
        let blocks = self.blocks.len();
        (self.sample.is_some() && blocks < BLOCKS_LEAST).then(|| {
            format!(
                "the sample has only {blocks} blocks; below {BLOCKS_LEAST} its error is large: sample at a higher rate"
            )
        })
    }

    /// The share of the references, 0 to 1, after which a cache of `size` blocks is full; `None` if the trace does not fill it.
    pub fn filled(&self, size: u64) -> Option<f64> {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let last = self.sample.map_or(size, |sample| sample.scaled(size)).checked_sub(1)?;
        // Blocks are numbered in the order of their first reference.
        let at = self.ids.iter().position(|&id| id == last)?;
        Some((at + 1) as f64 / self.ids.len() as f64)
    }

    /// The first `count` references, without a table of patterns and without contents.
    pub fn first(&self, count: usize) -> References {
        let ids = self.ids[..count.min(self.ids.len())].to_vec();
        let places = 0..ids.len() as u32;
        let blocks = ids.iter().max().map_or(0, |&last| last as usize + 1);
        References {
            streams: self.streams.select(places.clone()),
            writes: self.writes.select(places),
            // Blocks are numbered in the order of their first reference.
            blocks: self.blocks[..blocks].to_vec(),
            ids,
            block_bytes: self.block_bytes,
            totals: self.totals,
            sample: self.sample,
            patterns: None,
            contents: Vec::new(),
        }
    }

    /// For each reference, the position of the next one to the same block; `u32::MAX` for none.
    pub fn future(&self) -> Arc<[u32]> {
        let mut later = vec![u32::MAX; self.blocks.len()];
        let mut next: Arc<[u32]> = std::iter::repeat_n(u32::MAX, self.ids.len()).collect();
        let column = Arc::get_mut(&mut next).expect("nobody else has it yet");
        for (at, &id) in self.ids.iter().enumerate().rev() {
            column[at] = std::mem::replace(&mut later[id as usize], at as u32);
        }
        next
    }
}

/// Why references could not be gathered.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// More than about four thousand million references or distinct blocks.
    TooMany,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::TooMany => {
                write!(f, "the trace has more references or distinct blocks than can be numbered (4,294,967,231)")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Why a trace could not be read as references.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] nigh_trace::Error),
    /// The references.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<TooMany> for LoadError {
    fn from(_: TooMany) -> LoadError {
        LoadError::TooMany
    }
}

/// Blocks that wait for their numbers, at most this many and those of one request: they stay in the processor's cache.
const WAITING_MOST: usize = 1 << 14;

/// Gathers references from batches of requests.
pub struct Loader {
    options: Options,
    block_shift: u32,
    ids: Vec<u32>,
    streams: StreamNumbers,
    writes: Writes,
    numbering: Numbering,
    /// Referenced blocks that have no number yet.
    waiting: Vec<Block>,
    contents: Vec<u64>,
    totals: Totals,
    /// The block that each tenant referenced last, where repeats are dropped.
    last: hashbrown::HashMap<u32, Block>,
    /// Above this many references, a sample of the blocks is taken.
    most: usize,
}

impl Loader {
    /// A loader of nothing yet.
    ///
    /// # Panics
    /// If the block size is not a power of two.
    pub fn new(options: Options) -> Loader {
        assert!(options.block_bytes.is_power_of_two(), "the block size is a power of two");
        Loader {
            options,
            block_shift: options.block_bytes.trailing_zeros(),
            ids: Vec::new(),
            streams: StreamNumbers::default(),
            writes: Writes::default(),
            numbering: Numbering::default(),
            waiting: Vec::new(),
            contents: Vec::new(),
            totals: Totals::default(),
            last: hashbrown::HashMap::new(),
            most: usize::MAX,
        }
    }

    /// Whenever there are more references than `most`, those to half of the blocks are dropped, as if the trace had been read with
    /// `--sample`. At least [`BLOCKS_LEAST`] blocks remain, whatever the number of their references.
    pub fn sampling_above(self, most: usize) -> Loader {
        Loader { most, ..self }
    }

    /// Adds a batch. Returns whether more is wanted.
    pub fn push(&mut self, batch: &[Request]) -> Result<bool, LoadError> {
        let left = self.options.requests_most.saturating_sub(self.totals.requests);
        let batch = &batch[..batch.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.totals.add(batch);
        for request in batch {
            self.push_request(request);
            if self.waiting.len() >= WAITING_MOST {
                self.number_waiting()?;
            }
        }
        self.number_waiting()?;
        Ok(self.totals.requests < self.options.requests_most)
    }

    /// Adds the requests of a trace until no more are wanted. After each batch, `goes_on` gets the number of its requests and
    /// how far the trace is read, 0 to 1, where that is known, and returns whether to continue.
    pub fn read(
        &mut self,
        requests: &mut dyn Requests,
        mut goes_on: impl FnMut(usize, Option<f64>) -> bool,
    ) -> Result<(), ReadError> {
        let mut batch = Vec::new();
        loop {
            requests.next_batch(&mut batch)?;
            if batch.is_empty() || !self.push(&batch)? || !goes_on(batch.len(), requests.progress()) {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn push_request(&mut self, request: &Request) {
        let wanted = match request.op {
            Op::Read => self.options.ops != Ops::Writes,
            Op::Write => self.options.ops != Ops::Reads,
            Op::Trim | Op::Flush => false,
        };
        if !wanted || request.length == 0 {
            return;
        }
        let first = request.offset >> self.block_shift;
        let last = request.offset.saturating_add(u64::from(request.length - 1)) >> self.block_shift;
        let volume = request.volume;
        if !self.options.collapse && self.options.sample.is_none() {
            self.totals.references += last - first + 1;
            if request.content != 0 || !self.contents.is_empty() {
                // Earlier requests had no identity of their contents.
                self.contents.resize(self.ids.len() + self.waiting.len(), 0);
                self.contents.extend((0..=last - first).map(|block| content_of(request.content, block)));
            }
            self.waiting.extend((first..=last).map(|index| Block { volume, index }));
            self.writes.add(request.op == Op::Write, (last - first + 1) as usize);
            return self.streams.add(request.issuer(), (last - first + 1) as usize);
        }
        let before = self.waiting.len();
        for index in first..=last {
            let block = Block { volume, index };
            if self.options.collapse && self.last.insert(request.tenant, block) == Some(block) {
                continue;
            }
            self.totals.references += 1;
            if self.options.sample.is_none_or(|sample| sample.takes(block)) {
                self.waiting.push(block);
            }
        }
        self.writes.add(request.op == Op::Write, self.waiting.len() - before);
        self.streams.add(request.issuer(), self.waiting.len() - before);
    }

    fn number_waiting(&mut self) -> Result<(), LoadError> {
        self.numbering.number(&self.waiting, &mut self.ids)?;
        self.waiting.clear();
        while self.ids.len() > self.most && self.numbering.distinct() > 2 * BLOCKS_LEAST {
            self.halve()?;
        }
        if self.ids.len() >= u32::MAX as usize { Err(LoadError::TooMany) } else { Ok(()) }
    }

    /// Drops the references to half of the blocks, chosen by hash.
    fn halve(&mut self) -> Result<(), TooMany> {
        let rate = self.options.sample.map_or(1.0, Sample::rate) / 2.0;
        let sample = Sample::new(rate).expect("a rate above 0");
        self.options.sample = Some(sample);
        let blocks = std::mem::take(&mut self.numbering).into_blocks();
        let kept: Vec<Block> = blocks.iter().copied().filter(|&block| sample.takes(block)).collect();
        // In their order, so they are numbered as if the others had never been there.
        self.numbering.number(&kept, &mut Vec::new())?;
        let mut next = 0..;
        let numbers: Vec<Option<u32>> =
            blocks.iter().map(|&block| if sample.takes(block) { next.next() } else { None }).collect();
        let taken = || (0..).zip(&self.ids).filter_map(|(at, &id)| Some((at, numbers[id as usize]?)));
        self.writes = self.writes.select(taken().map(|(at, _)| at));
        self.streams.streams = self.streams.streams.select(taken().map(|(at, _)| at));
        let ids: Vec<u32> = taken().map(|(_, id)| id).collect();
        self.streams.references = ids.len();
        self.ids = ids;
        self.contents = Vec::new();
        Ok(())
    }

    /// How many references there are so far.
    pub fn references(&self) -> usize {
        self.ids.len()
    }

    /// The references.
    pub fn finish(self) -> References {
        References {
            ids: self.ids,
            streams: self.streams.streams,
            writes: self.writes,
            blocks: self.numbering.into_blocks(),
            block_bytes: self.options.block_bytes,
            totals: self.totals,
            sample: self.options.sample,
            patterns: None,
            contents: self.contents,
        }
    }
}

/// The identity of block number `block` of what has the identity `content`; 0 if nothing is known.
pub(crate) fn content_of(content: u64, block: u64) -> u64 {
    if content == 0 || block == 0 {
        return content;
    }
    (content ^ block.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1)
}
