//! `nigh trace`: look at, convert and generate traces; and how every command finds the trace it is given.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, ensure};
use nigh_sim::{Loader, Ops, Options, References};
use nigh_trace::generate::{Arrivals, Common, Generator, Param, component_params, generators};
use nigh_trace::write::{self, WriteOptions, Writer, Written};
use nigh_trace::{Field, Format, Note, Op, ReadOptions, Request, Requests};
use serde::Serialize;

use crate::args::{GenerateArgs, InputArgs, SimArgs, TraceCommand};
use crate::results::grouped;
use crate::sim::{self, Source};
use crate::size::human_bytes;
use crate::{layout, output, progress, quantity};

pub(crate) fn run(command: &TraceCommand) -> anyhow::Result<()> {
    match command {
        TraceCommand::Info { trace, input, json } => info(trace, input, *json),
        TraceCommand::Head { trace, count, input } => head(trace, *count, input),
        TraceCommand::Convert { from, to, input, to_format, force } => {
            spare(to, Some(from), *force)?;
            convert(from, to, input, to_format.as_deref())
        }
        TraceCommand::Generate { spec, to, generation, block_size, to_format, force } => {
            spare(to, None, *force)?;
            generate(spec, to, generation, block_size, to_format.as_deref())
        }
        TraceCommand::Layout(args) => layout::run(args),
        TraceCommand::Formats => formats(),
    }
}

/// An open trace, or a generated workload.
pub(crate) type Opened = (Source, Box<dyn Requests + Send>);

/// The traces, or the generated workload, that `nigh sim` is to replay; at least one.
pub(crate) fn sources(args: &SimArgs) -> anyhow::Result<Vec<Opened>> {
    if let Some(spec) = &args.generate {
        let block_bytes = args.input.block_size.as_deref().map_or(Ok(4096), block_bytes)?;
        let requests = Generator::parse(spec, &common(&args.generation, block_bytes)?)?;
        let source = Source { name: spec.clone(), format: "generated".to_owned(), block_bytes };
        return Ok(vec![(source, requests)]);
    }
    let GenerateArgs { requests, seed, writes, gap, poisson } = &args.generation;
    // A device has a seed, too.
    let seed = seed.is_some() && args.timed.device.is_none();
    let settings = requests.is_some() || seed || writes.is_some() || gap.is_some() || *poisson;
    ensure!(!settings, "--requests, --seed, --writes, --gap and --poisson are for generated workloads: add --generate");
    let several = args.trace.len() > 1 && args.timed.device.is_none();
    ensure!(!several, "several traces are programs that run at the same time: add --device");
    args.trace.iter().map(|path| open(path, &args.input)).collect()
}

pub(crate) fn open(path: &Path, input: &InputArgs) -> anyhow::Result<Opened> {
    let options = ReadOptions {
        format: input.format.as_deref().map(str::parse).transpose()?,
        columns: input.columns.as_deref().map(str::parse).transpose()?,
        block_bytes: input.block_size.as_deref().map(block_bytes).transpose()?,
        stream: input.stream.as_deref().map(str::parse).transpose()?.unwrap_or_default(),
        action: input.action.as_deref().map(str::parse).transpose()?,
        recorded_sizes: input.recorded_sizes,
        limit: input.limit.as_deref().map(sim::parse_limit).transpose()?,
    };
    let opened = nigh_trace::open(path, &options)?;
    ensure!(
        opened.block_bytes.is_power_of_two(),
        "{}: its blocks have {} bytes, which is no power of two: set --block-size",
        path.display(),
        opened.block_bytes
    );
    let is = |formats: &[Format]| formats.contains(&opened.format);
    ensure!(input.stream.is_none() || is(&[Format::Pc]), "--stream is for the pc format, not for {}", opened.format);
    let events = input.action.is_none() || is(&[Format::Blkparse, Format::Perf]);
    ensure!(events, "--action is for the formats blkparse and perf, not for {}", opened.format);
    let objects = !input.recorded_sizes || is(&[Format::OracleGeneral, Format::Lcs]);
    ensure!(objects, "--recorded-sizes is for formats that record objects, not for {}", opened.format);
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    };
    let requests = Box::new(Reported::new(name.clone(), opened.requests));
    Ok((Source { name, format: opened.format.to_string(), block_bytes: opened.block_bytes }, requests))
}

/// A trace of which the notes are printed on standard error: those on its units when it is opened, the others at the end.
struct Reported {
    name: String,
    requests: Box<dyn Requests + Send>,
    printed: Vec<Note>,
}

impl Reported {
    fn new(name: String, requests: Box<dyn Requests + Send>) -> Reported {
        let mut reported = Reported { name, requests, printed: Vec::new() };
        reported.print();
        reported
    }

    fn print(&mut self) {
        for note in self.requests.notes() {
            if !self.printed.contains(&note) {
                eprintln!("nigh: note: {}: {note}", self.name);
                self.printed.push(note);
            }
        }
    }
}

impl Requests for Reported {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
        self.requests.next_batch(batch)
    }

    fn progress(&self) -> Option<f64> {
        self.requests.progress()
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        self.print();
    }
}

/// Refuses to replace a file without `force`, and to replace the trace that is read at all. Pipes and devices are no files.
pub(crate) fn spare(to: &Path, from: Option<&Path>, force: bool) -> anyhow::Result<()> {
    if to == Path::new("-") {
        return Ok(());
    }
    let Some(existing) = std::fs::metadata(to).ok().filter(std::fs::Metadata::is_file) else { return Ok(()) };
    let from = from.map(|from| if from == Path::new("-") { Path::new("/dev/stdin") } else { from });
    let source = from.and_then(|from| std::fs::metadata(from).ok());
    let is_same = source.is_some_and(|source| (source.dev(), source.ino()) == (existing.dev(), existing.ino()));
    ensure!(!is_same, "{}: this is the trace that is read; write to another file", to.display());
    ensure!(force, "{}: the file exists; add --force to replace it", to.display());
    Ok(())
}

/// A block size as a user writes it.
fn block_bytes(text: &str) -> anyhow::Result<u32> {
    let bytes = quantity::bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= nigh_trace::BLOCK_BYTES_MAX)
        .with_context(|| format!("--block-size {text}: expected a power of two up to 1G, such as 4096 or 64K"))
}

/// The longest mean time between two requests, in microseconds: 11 days.
const GAP_US_MOST: f64 = 1e12;

fn common(args: &GenerateArgs, block_bytes: u32) -> anyhow::Result<Common> {
    let requests = args.requests.as_deref().unwrap_or("1M");
    let writes = args.writes.as_deref().unwrap_or("0");
    let gap_us = args.gap.unwrap_or(100.0);
    ensure!((0.0..=GAP_US_MOST).contains(&gap_us), "--gap {gap_us}: expected microseconds from 0 to {GAP_US_MOST}");
    Ok(Common {
        requests: quantity::count(requests)
            .filter(|&requests| requests > 0)
            .with_context(|| format!("--requests {requests}: expected a number above 0, such as 100k or 20M"))?,
        block_bytes,
        seed: args.seed.unwrap_or(1),
        writes: quantity::share(writes)
            .with_context(|| format!("--writes {writes}: expected a share from 0 to 1, such as 0.3 or 30%"))?,
        gap_ns: (gap_us * 1_000.0).round() as u64,
        arrivals: if args.poisson { Arrivals::Exponential } else { Arrivals::Constant },
    })
}

/// What can be generated, as the last part of the help.
pub(crate) fn generators_help() -> String {
    let mut text = String::from(
        "A workload is one generator with parameters, NAME:KEY=VALUE:KEY=VALUE; several joined by '+', which take turns \
         by their weights, each with its own region of the disk and as its own tenant; or several of these joined by \
         ',', one after the other, each for as many requests as stand behind its '@':\n\n    \
         zipf:blocks=1M:alpha=0.9\n    loop:blocks=2k:weight=3+uniform:blocks=50k@200k,scan:blocks=100k@100k\n\n\
         Generators:\n",
    );
    for info in generators() {
        let _ = writeln!(text, "  {:10} {}", info.name, info.summary);
        params(&mut text, info.params);
    }
    text.push_str("\nParameters of every generator:\n");
    params(&mut text, component_params());
    text
}

fn params(text: &mut String, params: &[Param]) {
    for param in params {
        let _ = writeln!(text, "      {}={}  {}", param.key, param.default, param.doc);
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
    // What is not printed is not read.
    let limit = input.limit.clone().or_else(|| (left > 0).then(|| left.to_string()));
    let (_, mut requests) = open(path, &InputArgs { limit, ..input.clone() })?;
    let mut batch = Vec::new();
    let mut text = Field::ALL.map(Field::name).join(",") + "\n";
    while left > 0 {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        for Request { time_ns, op, volume, offset, length, tenant, stream } in batch.iter().take(left) {
            let _ = writeln!(text, "{time_ns},{},{volume},{offset},{length},{tenant},{stream}", op.name());
        }
        output::print(text.as_bytes())?;
        text.clear();
        left = left.saturating_sub(batch.len());
    }
    Ok(())
}

fn convert(from: &Path, to: &Path, input: &InputArgs, to_format: Option<&str>) -> anyhow::Result<()> {
    let (source, mut requests) = open(from, input)?;
    copy(requests.as_mut(), to, source.block_bytes, to_format, "converting")
}

fn generate(
    spec: &str,
    to: &Path,
    generation: &GenerateArgs,
    block_size: &str,
    to_format: Option<&str>,
) -> anyhow::Result<()> {
    let block_bytes = block_bytes(block_size)?;
    let mut requests = Generator::parse(spec, &common(generation, block_bytes)?)?;
    copy(requests.as_mut(), to, block_bytes, to_format, "generating")
}

/// Writes all `requests` to a file, and says on standard error what was lost by it.
fn copy(
    requests: &mut dyn Requests,
    to: &Path,
    block_bytes: u32,
    format: Option<&str>,
    doing: &'static str,
) -> anyhow::Result<()> {
    let format = format.map(str::parse).transpose()?;
    let mut writer = Writer::create(to, &WriteOptions { format, block_bytes })?;
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
    report(&writer.finish()?, to);
    Ok(())
}

/// Says on standard error what became of the requests.
pub(crate) fn report(written: &Written, to: &Path) {
    let Written { requests, records, skipped, lost } = written;
    let (requests, records, skipped) = (*requests, *records, *skipped);
    let records = if records == requests { String::new() } else { format!(" as {} records", grouped(records)) };
    eprintln!("nigh: wrote {} requests{records} to {}", grouped(requests), to.display());
    if !lost.is_empty() {
        let names: Vec<_> = lost.iter().copied().map(Field::name).collect();
        eprintln!("nigh: note: the format does not hold every {}", names.join(", "));
    }
    if skipped > 0 {
        eprintln!(
            "nigh: note: {} trims, flushes and requests of no length were left out: the format does not know them",
            grouped(skipped)
        );
    }
}

/// What `nigh trace info` tells.
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
}

/// More identities than this are not told apart.
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

fn info(path: &Path, input: &InputArgs, json: bool) -> anyhow::Result<()> {
    let (source, mut requests) = open(path, input)?;
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
    let info = finish(gathered, source, &loader.finish());
    if json {
        return output::print(format!("{}\n", serde_json::to_string(&info)?).as_bytes());
    }
    output::print(describe(&info).as_bytes())
}

fn finish(gathered: Gathered, source: Source, references: &References) -> Info {
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
        name: source.name,
        format: source.format,
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
    rows.push(("from", format!("{} volumes, {} tenants, {} streams", info.volumes, info.tenants, info.streams)));
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
    rows.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:13} {value}");
        text
    })
}
