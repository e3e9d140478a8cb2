//! `nigh trace`: inspect, convert and generate traces.

mod cached;
mod histograms;
mod recording;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use nigh_output::Destination;
use nigh_sim::{Loader, Ops, Options, References};
use nigh_trace::generate::Generator;
use nigh_trace::write::{self, WriteOptions, Writer};
use nigh_trace::{Field, Format, Op, Request, Requests};
use serde::Serialize;

use crate::args::{GenerateArgs, InputArgs, TraceCommand};
use crate::results::{counted, grouped};
use crate::size::human_bytes;
use crate::source::{self, Source};
use crate::{layout, output, progress, written};
use histograms::Histograms;

pub(crate) fn run(command: &TraceCommand) -> anyhow::Result<()> {
    match command {
        TraceCommand::Info { trace, input, top, histograms, json } => info(trace, input, *top, *histograms, *json),
        TraceCommand::Cached { files, with, top, json } => cached::run(files, with.as_deref(), *top, *json),
        TraceCommand::Head { trace, count, input } => head(trace, *count, input),
        TraceCommand::Convert { from, to, input, to_format, force } => {
            let to = Destination::new(to, *force, &[from])?;
            convert(from, &to, input, to_format.as_deref())
        }
        TraceCommand::Generate { spec, to, generation, block_size, to_format, force } => {
            let to = Destination::new(to, *force, &[])?;
            generate(spec, &to, generation, block_size, to_format.as_deref())
        }
        TraceCommand::Layout(args) => layout::run(args),
        TraceCommand::Formats => formats(),
    }
}

fn formats() -> anyhow::Result<()> {
    let mut text = String::new();
    for format in Format::all() {
        let written = if write::FORMATS.contains(format) { "read, written" } else { "read" };
        let _ = writeln!(text, "{:15} {written:14} {}", format.name(), format.summary());
    }
    output::print(text.as_bytes())
}

fn head(path: &Path, count: u64, input: &InputArgs) -> anyhow::Result<()> {
    let mut left = usize::try_from(count)?;
    // Requests that are not printed are not read.
    let limit = input.limit.clone().or_else(|| (left > 0).then(|| left.to_string()));
    let (_, mut requests) = source::open(path, &InputArgs { limit, ..input.clone() })?;
    let mut batch = Vec::new();
    let mut text = Field::ALL.map(Field::name).join(",") + "\n";
    while left > 0 {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        for Request { time_ns, op, volume, offset, length, tenant, stream, latency_ns, content } in
            batch.iter().take(left)
        {
            let _ = writeln!(
                text,
                "{time_ns},{},{volume},{offset},{length},{tenant},{stream},{latency_ns},{content}",
                op.name()
            );
        }
        output::print(text.as_bytes())?;
        text.clear();
        left = left.saturating_sub(batch.len());
    }
    Ok(())
}

fn convert(from: &Path, to: &Destination, input: &InputArgs, to_format: Option<&str>) -> anyhow::Result<()> {
    let (source, mut requests) = source::open(from, input)?;
    let options = WriteOptions { format: format(to_format)?, block_bytes: source.block_bytes, taken: source.taken };
    copy(requests.as_mut(), to, &options, "converting")
}

fn generate(
    spec: &str,
    to: &Destination,
    generation: &GenerateArgs,
    block_size: &str,
    to_format: Option<&str>,
) -> anyhow::Result<()> {
    let block_bytes = source::block_bytes(block_size)?;
    let mut requests = Generator::parse(spec, &source::common(generation, block_bytes)?)?;
    let options = WriteOptions { format: format(to_format)?, block_bytes, taken: None };
    copy(requests.as_mut(), to, &options, "generating")
}

fn format(given: Option<&str>) -> anyhow::Result<Option<Format>> {
    Ok(given.map(str::parse).transpose()?)
}

/// Writes all `requests` to a file, and reports on standard error what was lost by it.
fn copy(
    requests: &mut dyn Requests,
    to: &Destination,
    options: &WriteOptions,
    doing: &'static str,
) -> anyhow::Result<()> {
    let mut writer = Writer::create(to, options)?;
    let bar = progress::share(doing);
    let mut batch = Vec::new();
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        writer.push(&batch)?;
        if let Some(share) = requests.progress() {
            bar.set_position((share * 1_000.0) as u64);
        }
    }
    bar.finish_and_clear();
    written::keep_gaps(&mut writer, requests, to);
    written::report(&writer.finish()?, to.path());
    Ok(())
}

/// Results of `nigh trace info`.
#[derive(Default, Serialize)]
struct Info {
    schema: u32,
    name: String,
    format: String,
    block_bytes: u32,
    requests: u64,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Smallest, mean and largest read or write.
    length_bytes: (u32, f64, u32),
    duration_s: Option<f64>,
    volumes: usize,
    tenants: usize,
    streams: usize,
    /// Reads and writes that begin where the one before them in the same volume ended.
    sequential_requests: u64,
    references: u64,
    distinct_blocks: u64,
    /// References to blocks that were referenced before: the hit ratio of a cache that holds everything.
    reuse_ratio: f64,
    /// Share of the references that go to the most referenced hundredth of the blocks.
    hottest_hundredth_ratio: f64,
    /// If they were asked for.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    histograms: Option<Histograms>,
    /// Of recordings.
    recording: Option<recording::Recording>,
}

/// More identities than this are not distinguished.
const IDENTITIES_MOST: usize = 1 << 20;

#[derive(Default)]
struct Gathered {
    info: Info,
    volumes: HashSet<u32>,
    tenants: HashSet<u32>,
    streams: HashSet<u64>,
    ends: HashMap<u32, u64>,
}

impl Gathered {
    fn add(&mut self, request: &Request) {
        let info = &mut self.info;
        note_identity(&mut self.volumes, request.volume);
        note_identity(&mut self.tenants, request.tenant);
        note_identity(&mut self.streams, request.stream);
        match request.op {
            Op::Read => info.bytes_read += u64::from(request.length),
            Op::Write => info.bytes_written += u64::from(request.length),
            Op::Trim => return info.trims += 1,
            Op::Flush => return info.flushes += 1,
        }
        if self.ends.is_empty() {
            info.length_bytes = (request.length, 0.0, request.length);
        }
        info.length_bytes.0 = info.length_bytes.0.min(request.length);
        info.length_bytes.2 = info.length_bytes.2.max(request.length);
        let end = request.offset.saturating_add(u64::from(request.length));
        if self.ends.len() < IDENTITIES_MOST && self.ends.insert(request.volume, end) == Some(request.offset) {
            info.sequential_requests += 1;
        }
    }
}

fn note_identity<T: std::hash::Hash + Eq>(identities: &mut HashSet<T>, identity: T) {
    if identities.len() < IDENTITIES_MOST {
        identities.insert(identity);
    }
}

fn info(path: &Path, input: &InputArgs, top: u64, histograms: bool, json: bool) -> anyhow::Result<()> {
    let (source, mut requests) = source::open(path, input)?;
    let mut loader = Loader::new(Options {
        block_bytes: source.block_bytes,
        ops: Ops::All,
        collapse: false,
        sample: None,
        requests_most: u64::MAX,
    });
    let mut gathered = Gathered::default();
    let bar = progress::share("reading");
    let mut batch = Vec::new();
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|request| gathered.add(request));
        loader.push(&batch)?;
        if let Some(share) = requests.progress() {
            bar.set_position((share * 1_000.0) as u64);
        }
    }
    bar.finish_and_clear();
    // Its notes are printed by now.
    drop(requests);
    let references = loader.finish();
    let time_ns = references.totals.time_ns;
    let mut info = finish(gathered, &source, &references);
    info.histograms = histograms.then(|| Histograms::new(&references));
    drop(references);
    // Standard input cannot be read again.
    if source.taken.is_some() && path != Path::new("-") {
        info.recording = Some(recording::recording(path, input, &source, time_ns, usize::try_from(top)?)?);
    }
    if json {
        return output::print(format!("{}\n", serde_json::to_string(&info)?).as_bytes());
    }
    output::print(describe(&info).as_bytes())
}

fn finish(gathered: Gathered, source: &Source, references: &References) -> Info {
    let totals = &references.totals;
    let mut counts = vec![0u32; references.blocks.len()];
    references.ids.iter().for_each(|&id| counts[id as usize] += 1);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let hottest: u64 = counts.iter().take(counts.len().div_ceil(100)).map(|&count| u64::from(count)).sum();
    let share = |part: u64| if totals.references == 0 { 0.0 } else { part as f64 / totals.references as f64 };
    let transfers = totals.reads + totals.writes;
    let (least, _, most) = gathered.info.length_bytes;
    let mean = if transfers == 0 { 0.0 } else { totals.bytes as f64 / transfers as f64 };
    Info {
        schema: 1,
        name: source.name.clone(),
        format: source.format.clone(),
        block_bytes: source.block_bytes,
        requests: totals.requests,
        reads: totals.reads,
        writes: totals.writes,
        length_bytes: (least, mean, most),
        duration_s: (totals.time_ns.1 > totals.time_ns.0).then(|| (totals.time_ns.1 - totals.time_ns.0) as f64 / 1e9),
        volumes: gathered.volumes.len(),
        tenants: gathered.tenants.len(),
        streams: gathered.streams.len(),
        references: totals.references,
        distinct_blocks: u64::from(references.distinct()),
        reuse_ratio: share(totals.references - u64::from(references.distinct())),
        hottest_hundredth_ratio: share(hottest),
        ..gathered.info
    }
}

fn describe(info: &Info) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("trace", format!("{} ({})", info.name, info.format)),
        (
            "requests",
            format!(
                "{}: {} reads, {} writes, {} trims, {} flushes",
                grouped(info.requests),
                grouped(info.reads),
                grouped(info.writes),
                grouped(info.trims),
                grouped(info.flushes)
            ),
        ),
        ("read", human_bytes(info.bytes_read)),
        ("written", human_bytes(info.bytes_written)),
    ];
    let (least, mean, most) = info.length_bytes;
    rows.push((
        "request size",
        format!(
            "{} to {}, {} on average",
            human_bytes(least.into()),
            human_bytes(most.into()),
            human_bytes(mean as u64)
        ),
    ));
    let transfers = (info.reads + info.writes).max(1);
    rows.push((
        "sequential",
        format!("{:.1} % of the requests", 100.0 * info.sequential_requests as f64 / transfers as f64),
    ));
    rows.push(("duration", info.duration_s.map_or("not recorded".to_owned(), |seconds| format!("{seconds:.1} s"))));
    let [volumes, tenants, streams] = [(info.volumes, "volume"), (info.tenants, "tenant"), (info.streams, "stream")]
        .map(|(count, noun)| counted(count as u64, noun));
    rows.push(("from", format!("{volumes}, {tenants}, {streams}")));
    rows.push((
        "blocks",
        format!(
            "{} references to {} distinct blocks of {} ({})",
            grouped(info.references),
            grouped(info.distinct_blocks),
            human_bytes(info.block_bytes.into()),
            human_bytes(info.distinct_blocks * u64::from(info.block_bytes))
        ),
    ));
    rows.push((
        "re-use",
        format!(
            "{:.1} % of the references are to a block seen before, {:.1} % to the hottest hundredth",
            100.0 * info.reuse_ratio,
            100.0 * info.hottest_hundredth_ratio
        ),
    ));
    let text = rows.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:13} {value}");
        text
    });
    let histograms = info.histograms.as_ref().map(Histograms::describe).unwrap_or_default();
    text + &info.recording.as_ref().map(recording::Recording::describe).unwrap_or_default() + &histograms
}
