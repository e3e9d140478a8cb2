//! Sources of references: how every command finds the trace, or the generated workload, that it is given.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use nigh_sim::{Loader, Options, References, TraceSummary};
use nigh_trace::generate::{Arrivals, Common, Generator};
use nigh_trace::{Note, ReadOptions, Request, Requests, Taken};

use crate::args::{GenerateArgs, InputArgs, SimArgs};
use crate::{asked, output, progress};

/// Source of the references.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) block_bytes: u32,
    /// The level at which it was recorded, if that is known.
    pub(crate) taken: Option<Taken>,
}

/// An open trace, or a generated workload.
pub(crate) type Opened = (Source, Box<dyn Requests + Send>);

/// The traces, or the generated workload, that `nigh sim` is to replay; at least one.
pub(crate) fn sources(args: &SimArgs) -> anyhow::Result<Vec<Opened>> {
    if let Some(spec) = &args.generate {
        let block_bytes = args.input.block_size.as_deref().map_or(Ok(4096), block_bytes)?;
        let requests = Generator::parse(spec, &common(&args.generation, block_bytes)?)?;
        let source = Source { name: spec.clone(), format: "generated".to_owned(), block_bytes, taken: None };
        return Ok(vec![(source, requests)]);
    }
    let GenerateArgs { requests, seed, writes, arrivals } = &args.generation;
    // A device has a seed, too.
    let seed = seed.is_some() && args.timed.device.is_none();
    let settings = requests.is_some() || seed || writes.is_some() || arrivals.is_some();
    ensure!(!settings, "--requests, --seed, --writes and --arrivals are for generated workloads: add --generate");
    let opened: Vec<Opened> = args.trace.iter().map(|path| open(path, &args.input)).collect::<anyhow::Result<_>>()?;
    for (source, _) in opened.iter().filter(|(source, _)| source.taken == Some(Taken::Below)) {
        output::tell(format_args!(
            "nigh: note: {}: it was recorded below the page cache, without what that answered: the results hold for a \
             cache below the page cache, and not for the size of the page cache itself",
            source.name
        ));
    }
    if args.join { Ok(vec![joined(opened)?]) } else { Ok(opened) }
}

/// The traces one after the other, as one.
fn joined(opened: Vec<Opened>) -> anyhow::Result<Opened> {
    let (source, parts) = together(opened, "--join")?;
    Ok((source, Box::new(Joined { parts, at: 0 })))
}

/// The requests of each trace, which are one for `flag`: their blocks have the same size.
pub(crate) fn together(opened: Vec<Opened>, flag: &str) -> anyhow::Result<(Source, Vec<Box<dyn Requests + Send>>)> {
    let block_bytes = opened.first().map_or(4096, |(source, _)| source.block_bytes);
    if let Some((other, _)) = opened.iter().find(|(source, _)| source.block_bytes != block_bytes) {
        bail!(
            "{flag}: blocks of {} have {} bytes, and those of {} {block_bytes}: set --block-size",
            other.name,
            other.block_bytes,
            opened[0].0.name
        );
    }
    let (sources, parts): (Vec<Source>, Vec<_>) = opened.into_iter().unzip();
    let mut formats: Vec<&str> = sources.iter().map(|source| source.format.as_str()).collect();
    formats.dedup();
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let source = Source { name: names.join(" + "), format: formats.join(", "), block_bytes, taken: None };
    Ok((source, parts))
}

/// Traces one after the other.
struct Joined {
    parts: Vec<Box<dyn Requests + Send>>,
    at: usize,
}

impl Requests for Joined {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
        batch.clear();
        while let Some(part) = self.parts.get_mut(self.at) {
            part.next_batch(batch)?;
            if !batch.is_empty() {
                break;
            }
            self.at += 1;
        }
        Ok(())
    }

    fn progress(&self) -> Option<f64> {
        let part = self.parts.get(self.at).map_or(Some(0.0), |part| part.progress())?;
        Some((self.at as f64 + part) / self.parts.len() as f64)
    }
}

/// How to read what `input` describes.
pub(crate) fn options(input: &InputArgs) -> anyhow::Result<ReadOptions> {
    Ok(ReadOptions {
        format: input.format.as_deref().map(str::parse).transpose()?,
        columns: input.columns.as_deref().map(str::parse).transpose()?,
        block_bytes: input.block_size.as_deref().map(block_bytes).transpose()?,
        stream: input.stream.as_deref().map(str::parse).transpose()?,
        action: input.action.as_deref().map(str::parse).transpose()?,
        recorded_sizes: input.recorded_sizes,
        skip_bad: input.skip_bad,
        limit: input.limit.as_deref().map(asked::parse_limit).transpose()?,
    })
}

/// The settings that can follow a trace's path, `FILE,format=raw-u32`, and hold for this trace only. `columns` is the last
/// one: the settings of columns follow it.
const OWN: [&str; 8] = ["format", "stream", "action", "block-size", "limit", "recorded-sizes", "skip-bad", "columns"];

/// The path in a trace's argument, and how that trace is read.
fn own(argument: &Path, input: &InputArgs) -> anyhow::Result<(PathBuf, InputArgs)> {
    let mut input = input.clone();
    let text = argument.to_str().filter(|text| text.contains(',') && !argument.exists());
    let key = |setting: &str| setting.split(['=', ',']).next().unwrap_or_default().to_owned();
    let split = text.and_then(|text| {
        let mut commas = text.match_indices(',').map(|(at, _)| at);
        let own = commas.find(|at| OWN.contains(&&*key(&text[at + 1..])));
        Some(text.split_at(own.or_else(|| text.rfind(',').filter(|at| text[*at..].contains('=')))?))
    });
    let Some((path, settings)) = split else { return Ok((argument.to_owned(), input)) };
    let mut rest = settings.strip_prefix(',');
    while let Some(setting) = rest {
        let name = key(setting);
        if name == "columns" {
            input.columns = setting.split_once('=').map(|(_, columns)| columns.to_owned());
            break;
        }
        let (own, after) = setting.split_once(',').map_or((setting, None), |(own, after)| (own, Some(after)));
        let value = own.split_once('=').map(|(_, value)| value.to_owned());
        match (&*name, &value) {
            ("format", Some(_)) => input.format = value,
            ("stream", Some(_)) => input.stream = value,
            ("action", Some(_)) => input.action = value,
            ("block-size", Some(_)) => input.block_size = value,
            ("limit", Some(_)) => input.limit = value,
            ("recorded-sizes", None) => input.recorded_sizes = true,
            ("skip-bad", None) => input.skip_bad = true,
            _ => bail!(
                "{}: `{own}` is no setting of a trace: expected {}{}",
                argument.display(),
                OWN.join(", "),
                nigh_text::did_you_mean(nigh_text::nearest(&name, OWN))
            ),
        }
        rest = after;
    }
    Ok((PathBuf::from(path), input))
}

pub(crate) fn open(path: &Path, input: &InputArgs) -> anyhow::Result<Opened> {
    let (source, requests) = unreported(path, input)?;
    let requests = Box::new(Reported::new(source.name.clone(), requests));
    Ok((source, requests))
}

/// The trace without its notes, for those who open it more than once.
pub(crate) fn unreported(argument: &Path, input: &InputArgs) -> anyhow::Result<Opened> {
    let (path, input) = own(argument, input)?;
    let path = &*path;
    let opened = nigh_trace::open(path, &options(&input)?).map_err(|error| match error {
        // The setting is a flag here.
        nigh_trace::Error::NotOfFormat { .. } => anyhow!("--{error}"),
        error => error.into(),
    })?;
    ensure!(
        opened.block_bytes.is_power_of_two(),
        "{}: its blocks have {} bytes, which is no power of two: set --block-size",
        path.display(),
        opened.block_bytes
    );
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    };
    let (block_bytes, taken) = (opened.block_bytes, opened.taken);
    Ok((Source { name, format: opened.format.to_string(), block_bytes, taken }, opened.requests))
}

/// Reads all requests.
pub(crate) fn load(mut loader: Loader, requests: &mut dyn Requests) -> anyhow::Result<References> {
    let bar = progress::share("reading");
    loader.read(requests, |_, share| progress::at(&bar, share))?;
    bar.finish_and_clear();
    Ok(loader.finish())
}

/// Reads all requests that `nigh sim` is to replay whole, without a sample.
pub(crate) fn load_whole(
    args: &SimArgs,
    source: &Source,
    requests: &mut dyn Requests,
    limit: Option<u64>,
) -> anyhow::Result<(References, TraceSummary)> {
    let loader = Loader::new(Options {
        block_bytes: source.block_bytes,
        ops: args.ops.into(),
        collapse: args.collapse,
        sample: None,
        requests_most: limit.unwrap_or(u64::MAX),
    });
    let references = load(loader, requests)?;
    ensure!(!references.ids.is_empty(), "{}: nothing to replay", source.name);
    let trace = summary(source, &references);
    Ok((references, trace))
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
                output::tell(format_args!("nigh: note: {}: {note}", self.name));
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

    fn notes(&self) -> Vec<Note> {
        self.requests.notes()
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        self.print();
    }
}

/// A block size as a user writes it.
pub(crate) fn block_bytes(text: &str) -> anyhow::Result<u32> {
    let bytes = nigh_text::bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= nigh_trace::BLOCK_BYTES_MAX)
        .with_context(|| format!("--block-size {text}: expected a power of two up to 1G, such as 4096 or 64K"))
}

/// The longest mean time between two requests, in seconds: 11 days.
const GAP_MOST: f64 = 1e6;

/// Settings of a generated workload in the flags.
pub(crate) fn common(args: &GenerateArgs, block_bytes: u32) -> anyhow::Result<Common> {
    let requests = args.requests.as_deref().unwrap_or("1M");
    let writes = args.writes.as_deref().unwrap_or("0");
    let text = args.arrivals.as_deref().unwrap_or("100us");
    let (time, arrivals) = match text.strip_prefix("poisson:") {
        Some(mean) => (mean, Arrivals::Exponential),
        None => (text, Arrivals::Constant),
    };
    let gap = nigh_text::seconds(time).filter(|gap| (0.0..=GAP_MOST).contains(gap));
    let gap =
        gap.with_context(|| format!("--arrivals {text}: expected a time up to 1e6s, such as 500us or poisson:2ms"))?;
    Ok(Common {
        requests: nigh_text::count(requests)
            .filter(|&requests| requests > 0)
            .with_context(|| format!("--requests {requests}: expected a number above 0, such as 100k or 20M"))?,
        block_bytes,
        seed: args.seed.unwrap_or(1),
        writes: nigh_text::share(writes)
            .with_context(|| format!("--writes {writes}: expected a share from 0 to 1, such as 0.3 or 30%"))?,
        gap_ns: (gap * 1e9).round() as u64,
        arrivals,
    })
}

/// Description of the trace.
pub(crate) fn summary(source: &Source, references: &References) -> TraceSummary {
    TraceSummary::new(&source.name, &source.format, references)
}
