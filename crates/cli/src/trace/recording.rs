//! The reads of a recording: by which programs, of which files, how often again, and what LRU makes of them.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use nigh_sim::replay::Watch;
use nigh_sim::stack::{Curve, curve};
use nigh_sim::{Loader, Ops, Options, References};
use nigh_trace::format::parquet::ParquetReader;
use nigh_trace::{Op, Request, Requests, Taken};
use serde::Serialize;

use super::note_identity;
use crate::args::InputArgs;
use crate::results::{counted, grouped};
use crate::size::human_bytes;
use crate::source::{self, Source};
use crate::table::Table;

/// Into how many parts of equal time the recording is divided.
const SLICES: usize = 10;

/// Reads in the results of `nigh trace info`. Bytes are those of whole blocks, unless they are those of calls.
#[derive(Serialize)]
pub(super) struct Recording {
    /// Of blocks. Recording of the same block in a row by a process count once: programs read a block in parts.
    references: u64,
    distinct_bytes: u64,
    /// How often each block is read, on average.
    times: f64,
    programs: Vec<Program>,
    programs_total: usize,
    files: Vec<File>,
    files_total: usize,
    working_set: Vec<Slice>,
    lru: Lru,
    /// The same in words.
    summary: Vec<String>,
    #[serde(skip)]
    noun: &'static str,
}

#[derive(Serialize)]
struct Program {
    program: String,
    processes: usize,
    calls: u64,
    /// By its calls.
    bytes_read: u64,
    bytes_written: u64,
    files: usize,
    distinct_bytes: u64,
    /// How often it reads each block, on average.
    times: f64,
}

#[derive(Serialize)]
struct File {
    file: String,
    bytes_read: u64,
    distinct_bytes: u64,
    times: f64,
}

#[derive(Serialize)]
struct Slice {
    from_s: f64,
    to_s: f64,
    bytes_read: u64,
    distinct_bytes: u64,
    /// Of blocks that were not read before.
    new_bytes: u64,
}

/// The hits of an LRU cache on the references.
#[derive(Serialize)]
struct Lru {
    /// The highest hit ratio that any size has, 0 to 1.
    hit_ratio: f64,
    /// The smallest sizes with hits for a hundredth of the references, and with half and 99 % of the hits that any size has;
    /// null if there is none.
    hundredth_bytes: Option<u64>,
    half_bytes: Option<u64>,
    most_bytes: Option<u64>,
}

/// Counts of calls.
#[derive(Default)]
struct Calls {
    processes: HashSet<u32>,
    calls: u64,
    bytes_read: u64,
    bytes_written: u64,
}

/// Counts that are gathered while the recording is read.
struct Gathered {
    loader: Loader,
    /// By number, from 1; 0 is all where programs are not known.
    programs: Vec<Calls>,
    /// How many references there were at the end of each slice.
    ends: [usize; SLICES],
    /// When the recording begins and ends.
    time_ns: (u64, u64),
    slice: usize,
    /// Requests that are still to be read.
    left: u64,
}

impl Gathered {
    /// Recording all requests, with the number of the program as the stream if `by_program`.
    fn read(&mut self, requests: &mut dyn Requests, by_program: bool) -> anyhow::Result<()> {
        let mut batch = Vec::new();
        loop {
            requests.next_batch(&mut batch)?;
            batch.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= batch.len() as u64;
            if !by_program {
                batch.iter_mut().for_each(|request| request.stream = 0);
            }
            let mut rest = &batch[..];
            while let Some(first) = rest.first() {
                // Requests of a moment are in no order: a slice that began does not end before the next one does.
                self.slice = self.slice.max(self.slice_of(first));
                let is_later = |request: &Request| self.slice_of(request) > self.slice;
                let (now, later) = rest.split_at(rest.iter().position(is_later).unwrap_or(rest.len()));
                now.iter().for_each(|request| self.count(request));
                self.loader.push(now)?;
                self.ends[self.slice..].fill(self.loader.references());
                rest = later;
            }
            if batch.is_empty() {
                return Ok(());
            }
        }
    }

    fn slice_of(&self, request: &Request) -> usize {
        let (begin, end) = self.time_ns;
        let length = u128::from(end.saturating_sub(begin)).max(1);
        let at = u128::from(request.time_ns.saturating_sub(begin)) * SLICES as u128 / length;
        usize::try_from(at).unwrap_or(SLICES).min(SLICES - 1)
    }

    fn count(&mut self, request: &Request) {
        let number = request.stream as usize;
        if self.programs.len() <= number {
            self.programs.resize_with(number + 1, Calls::default);
        }
        let calls = &mut self.programs[number];
        note_identity(&mut calls.processes, request.tenant);
        calls.calls += 1;
        match request.op {
            Op::Read => calls.bytes_read += u64::from(request.length),
            Op::Write => calls.bytes_written += u64::from(request.length),
            Op::Trim | Op::Flush => {}
        }
    }
}

/// The reads of the recording at `path`, with the `top` programs and files that read and are read most. It begins and ends
/// at `time_ns`.
pub(super) fn recording(
    path: &Path,
    input: &InputArgs,
    source: &Source,
    time_ns: (u64, u64),
    top: usize,
) -> anyhow::Result<Recording> {
    let options = Options {
        block_bytes: source.block_bytes,
        ops: Ops::Reads,
        collapse: true,
        sample: None,
        requests_most: u64::MAX,
    };
    let mut gathered = Gathered {
        loader: Loader::new(options),
        programs: Vec::new(),
        ends: [0; SLICES],
        time_ns,
        slice: 0,
        left: source::options(input)?.limit.unwrap_or(u64::MAX),
    };
    let (mut programs, mut paths) = (Vec::new(), HashMap::new());
    // A compressed file has no names here. Errors in it were reported when it was read first.
    match ParquetReader::open(path, None, None).ok().map(ParquetReader::by_program).transpose()?.flatten() {
        Some(mut requests) => {
            gathered.read(&mut requests, true)?;
            programs = requests.programs().to_vec();
            paths.clone_from(requests.files());
        }
        None => gathered.read(source::unreported(path, input)?.1.as_mut(), false)?,
    }
    let Gathered { loader, programs: calls, ends, .. } = gathered;
    let references = loader.finish();
    let noun = match source.taken {
        Some(Taken::Below) => "disk",
        Some(Taken::Server) => "export",
        _ => "file",
    };
    let (files_total, files) = files(&references, &paths, noun, top);
    let programs_total = programs.len();
    let programs = by_program(&references, &programs, &calls, top);
    let curve = curve(&references, Watch::default());
    let lru = lru(&curve, references.block_bytes);
    let mut recording = Recording {
        references: references.ids.len() as u64,
        distinct_bytes: references.blocks.len() as u64 * u64::from(references.block_bytes),
        times: ratio(references.ids.len() as u64, references.blocks.len() as u64),
        programs,
        programs_total,
        files,
        files_total,
        working_set: working_set(&references, &ends, time_ns),
        lru,
        summary: Vec::new(),
        noun,
    };
    recording.summary = recording.sentences();
    Ok(recording)
}

/// Which blocks were seen.
struct Seen(Vec<u64>);

impl Seen {
    fn new(blocks: usize) -> Seen {
        Seen(vec![0; blocks.div_ceil(64)])
    }

    /// Whether `id` was not seen before.
    fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = (&mut self.0[id as usize / 64], 1 << (id % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// The `top` programs of those called `names`.
fn by_program(references: &References, names: &[String], calls: &[Calls], top: usize) -> Vec<Program> {
    let mut numbers: Vec<usize> = (1..calls.len()).collect();
    numbers.sort_by_key(|&number| std::cmp::Reverse((calls[number].bytes_read, calls[number].calls)));
    let listed = numbers.into_iter().take(top);
    listed
        .map(|number| {
            let (mut seen, mut files) = (Seen::new(references.blocks.len()), HashSet::new());
            let (mut read, mut distinct) = (0, 0);
            for (at, &id) in references.ids.iter().enumerate() {
                if references.streams.of(at).0 == number as u64 {
                    read += 1;
                    if seen.insert(id) {
                        distinct += 1;
                        files.insert(references.blocks[id as usize].volume);
                    }
                }
            }
            let Calls { processes, calls, bytes_read, bytes_written } = &calls[number];
            Program {
                program: names.get(number - 1).cloned().unwrap_or_default(),
                processes: processes.len(),
                calls: *calls,
                bytes_read: *bytes_read,
                bytes_written: *bytes_written,
                files: files.len(),
                distinct_bytes: distinct * u64::from(references.block_bytes),
                times: ratio(read, distinct),
            }
        })
        .collect()
}

/// How many files are read, and those that are read most.
fn files(references: &References, paths: &HashMap<u32, String>, noun: &str, top: usize) -> (usize, Vec<File>) {
    // Blocks read, and distinct ones.
    let mut counts: HashMap<u32, (u64, u64)> = HashMap::new();
    for block in &references.blocks {
        counts.entry(block.volume).or_default().1 += 1;
    }
    for &id in &references.ids {
        counts.entry(references.blocks[id as usize].volume).or_default().0 += 1;
    }
    let mut counts: Vec<(u32, (u64, u64))> = counts.into_iter().collect();
    counts.sort_by_key(|&(volume, (read, _))| (std::cmp::Reverse(read), volume));
    let block_bytes = u64::from(references.block_bytes);
    let listed = counts.iter().take(top).map(|&(volume, (read, distinct))| File {
        file: paths.get(&volume).cloned().unwrap_or_else(|| format!("{noun} {volume}")),
        bytes_read: read * block_bytes,
        distinct_bytes: distinct * block_bytes,
        times: ratio(read, distinct),
    });
    (counts.len(), listed.collect())
}

/// The blocks that are read in each slice, which ends with the reference of this number.
fn working_set(references: &References, ends: &[usize; SLICES], time_ns: (u64, u64)) -> Vec<Slice> {
    let (begin_ns, end_ns) = time_ns;
    if end_ns <= begin_ns {
        return Vec::new();
    }
    let seconds = (end_ns - begin_ns) as f64 / 1e9;
    let bytes = |count: usize| count as u64 * u64::from(references.block_bytes);
    // Blocks are numbered in the order of their first reference.
    let (mut begin, mut known) = (0, 0);
    let slices = ends.iter().enumerate().map(|(at, &end)| {
        let ids = &references.ids[begin..end];
        let mut seen = Seen::new(references.blocks.len());
        let distinct = ids.iter().filter(|&&id| seen.insert(id)).count();
        let known_after = ids.iter().map(|&id| id as usize + 1).max().unwrap_or(0).max(known);
        let slice = Slice {
            from_s: seconds * at as f64 / SLICES as f64,
            to_s: seconds * (at + 1) as f64 / SLICES as f64,
            bytes_read: bytes(ids.len()),
            distinct_bytes: bytes(distinct),
            new_bytes: bytes(known_after - known),
        };
        (begin, known) = (end, known_after);
        slice
    });
    slices.collect()
}

fn lru(curve: &Curve, block_bytes: u32) -> Lru {
    let most = curve.hits.last().copied().unwrap_or(0);
    let size_for = |hits: u64| {
        let blocks = curve.hits.partition_point(|&with| with < hits.max(1));
        (blocks < curve.hits.len()).then_some(blocks as u64 * u64::from(block_bytes))
    };
    Lru {
        hit_ratio: ratio(most, curve.references),
        hundredth_bytes: size_for(curve.references.div_ceil(100)),
        half_bytes: size_for(most.div_ceil(2)),
        most_bytes: size_for((most * 99).div_ceil(100)),
    }
}

impl Recording {
    /// Sentences on the blocks that are read again, and their readers.
    fn sentences(&self) -> Vec<String> {
        /// Programs with a smaller share of the reads are left out.
        const SHARE_LEAST: f64 = 0.1;
        /// Closer sizes are one.
        const SAME: f64 = 1.1;

        let mut sentences = Vec::new();
        let read: u64 = self.programs.iter().map(|program| program.bytes_read).sum();
        for Program { program, processes, bytes_read, files, distinct_bytes, times, .. } in &self.programs {
            if *distinct_bytes == 0 || ratio(*bytes_read, read) < SHARE_LEAST {
                continue;
            }
            let often = if *times < 1.05 { "once".to_owned() } else { format!("{times:.1} times on average") };
            let program = if program.is_empty() { "An unknown program" } else { program };
            let by =
                if *processes > 1 { format!(" ({})", counted(*processes as u64, "process")) } else { String::new() };
            let (distinct, files) = (human_bytes(*distinct_bytes), counted(*files as u64, self.noun));
            sentences.push(format!("{program}{by} reads {distinct} of {files} {often}."));
        }
        if self.programs.is_empty() && self.references > 0 {
            let (distinct, files) = (human_bytes(self.distinct_bytes), counted(self.files_total as u64, self.noun));
            sentences.push(format!("{distinct} of {files} are read {:.1} times on average.", self.times));
        }
        let percent = self.lru.hit_ratio * 100.0;
        match (self.lru.hundredth_bytes, self.lru.half_bytes, self.lru.most_bytes) {
            _ if self.references == 0 => sentences.push("Nothing is read.".to_owned()),
            (Some(hundredth), _, Some(most)) if hundredth as f64 * SAME >= most as f64 => sentences.push(format!(
                "LRU with less than {} hits less than 1 % of the reads; {} is enough for nearly all that can be hit, {percent:.1} %.",
                human_bytes(hundredth),
                human_bytes(most),
            )),
            (Some(_), Some(half), Some(most)) if half as f64 * SAME >= most as f64 => sentences.push(format!(
                "LRU of any size hits at most {percent:.1} % of the reads: {} is enough for nearly all of that, and half of it needs \
                 nearly as much.",
                human_bytes(most)
            )),
            (Some(_), Some(half), Some(most)) => sentences.push(format!(
                "LRU of any size hits at most {percent:.1} % of the reads: {} is enough for half of that, {} for nearly all of it.",
                human_bytes(half),
                human_bytes(most)
            )),
            _ => sentences.push("Hardly anything is read again: no cache of any size hits 1 % of the reads.".to_owned()),
        }
        sentences
    }

    /// As text, in paragraphs.
    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "\nreads of {} blocks, {} of them distinct; reads of the same block in a row by a process count once\n",
            grouped(self.references),
            human_bytes(self.distinct_bytes)
        );
        self.summary.iter().for_each(|sentence| {
            let _ = writeln!(text, "{sentence}");
        });
        if !self.programs.is_empty() {
            let files = format!("{}s", self.noun);
            let head = ["program", "processes", "calls", "read", "written", &files, "distinct", "times"];
            let mut rows = Table::new(&head);
            for row in &self.programs {
                rows.row([
                    row.program.clone(),
                    grouped(row.processes as u64),
                    grouped(row.calls),
                    human_bytes(row.bytes_read),
                    human_bytes(row.bytes_written),
                    grouped(row.files as u64),
                    human_bytes(row.distinct_bytes),
                    format!("{:.1}", row.times),
                ]);
            }
            let _ = write!(text, "\n{rows}");
            more(&mut text, self.programs_total, self.programs.len());
        }
        let mut rows = Table::new(&["times", "read", "distinct", self.noun]);
        for row in &self.files {
            let (read, distinct) = (human_bytes(row.bytes_read), human_bytes(row.distinct_bytes));
            rows.row([format!("{:.1}", row.times), read, distinct, row.file.clone()]);
        }
        let _ = write!(text, "\n{rows}");
        more(&mut text, self.files_total, self.files.len());
        if let Some(last) = self.working_set.last() {
            // As many as distinguish the slices.
            let digits = if last.to_s < 10.0 { 3 } else { 1 };
            let mut rows = Table::new(&["from", "to", "read", "distinct", "for the first time"]);
            for row in &self.working_set {
                rows.row([
                    format!("{:.digits$} s", row.from_s),
                    format!("{:.digits$} s", row.to_s),
                    human_bytes(row.bytes_read),
                    human_bytes(row.distinct_bytes),
                    human_bytes(row.new_bytes),
                ]);
            }
            let _ = write!(text, "\n{rows}");
        }
        text
    }
}

fn more(text: &mut String, total: usize, listed: usize) {
    if total > listed {
        let _ = writeln!(text, "and {} more (--top)", grouped((total - listed) as u64));
    }
}
