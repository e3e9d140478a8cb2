//! `nigh sim`: a trace against policies and sizes.

use std::io::Write;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, bail, ensure};
use nigh_policy::Spec;
use nigh_report::Report;
use nigh_sim::replay::Watch;
use nigh_sim::sample::Misses;
use nigh_sim::shards::{as_served, sweep_parts};
use nigh_sim::{Job, Loader, Options, References, Run, Sample, stack, sweep};
use nigh_trace::Requests;

use crate::args::{OutputArgs, SimArgs};
use crate::compare::Comparison;
use crate::results::{Curve, Found, Results, Row, TraceSummary, csv, ghosts, json, peak_memory_bytes};
use crate::size::Sizes;
use crate::source::Opened;
use crate::{asked, grid, output, page, progress, source};

/// From this many sizes on, the pass that counts LRU's hits at all sizes takes less time than a replay of each.
const LRU_SIZES_IN_ONE_PASS: usize = 8;

/// How often a policy's internals are read for the page.
const INTERNALS_POINTS: usize = 500;

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    // Everything on the command line is looked at before the trace is, which may take long.
    args.output.html.as_deref().map_or(Ok(()), output::check)?;
    let mut specs = asked::parse_policies(&args.policy)?;
    let given = asked::parse_sizes(&args.size)?;
    let internals = args.internals.as_deref().map(str::parse::<Sizes>).transpose()?;
    let warmup: Warmup = args.warmup.parse()?;
    let sample = args.sample.as_deref().map(parse_rate).transpose()?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    let left_out = if sample.is_some() { leave_out_spatial(&mut specs, &args.policy)? } else { None };

    let asked = Asked { specs, sizes: given, internals, warmup, sample, limit: limit.unwrap_or(u64::MAX), left_out };
    let mut sources = source::sources(args)?;
    if sources.len() > 1 {
        ensure!(args.output.html.is_none(), "--html: the page shows one trace; --join makes one of several");
        let found = sources.into_iter().map(|opened| asked.replay(args, opened).map(|(found, _)| found.results));
        let comparison = Comparison::new(found.collect::<anyhow::Result<_>>()?);
        return write_comparison(&args.output, &comparison);
    }
    let (found, references) = asked.replay(args, sources.pop().context("no trace was given")?)?;
    write(&args.output, &found, || page::page(&found, &references))
}

/// What the command line asks for, read.
struct Asked {
    specs: Vec<Spec>,
    sizes: Option<Vec<Sizes>>,
    internals: Option<Sizes>,
    warmup: Warmup,
    sample: Option<Sample>,
    limit: u64,
    /// A note on policies that were left out.
    left_out: Option<String>,
}

impl Asked {
    /// Replays one trace.
    fn replay(&self, args: &SimArgs, (source, mut requests): Opened) -> anyhow::Result<(Found, References)> {
        let loader = Loader::new(Options {
            block_bytes: source.block_bytes,
            ops: args.ops.into(),
            collapse: args.collapse,
            sample: self.sample,
            requests_most: self.limit,
        });
        let references = load(loader, requests.as_mut())?;
        ensure!(
            !references.ids.is_empty(),
            "{}: nothing to replay: none of its {} requests {}",
            source.name,
            references.totals.requests,
            if self.sample.is_some() {
                "refers to a block of the sample"
            } else {
                "reads or writes what --ops asks for"
            }
        );
        let (shards, is_one) = (args.shards, args.trace.len() <= 1 || args.join);
        let default_sizes = if is_one { asked::default_sizes() } else { asked::few_sizes() };
        let plan = Plan {
            specs: self.specs.clone(),
            sizes: self.sizes.clone().unwrap_or(default_sizes),
            exact_lru: args.size.is_empty() && shards == 1 && is_one,
            internals: self.internals.filter(|_| args.output.html.is_some()),
            record_internals: args.output.html.is_some() && shards == 1,
            shards,
            warmup: self.warmup.references(references.ids.len())?,
            threads: asked::threads(args.threads),
        };
        let mut found = execute(&plan, &references, source::summary(&source, &references))?;
        found.results.notes.extend(self.left_out.clone());
        Ok((found, references))
    }
}

fn write_comparison(args: &OutputArgs, comparison: &Comparison) -> anyhow::Result<()> {
    if args.json || args.csv {
        comparison.notes().for_each(|note| eprintln!("nigh: note: {note}"));
    }
    match (args.json, args.csv) {
        (true, _) => output::print(&json(comparison)?),
        (_, true) => output::print(&comparison.csv()?),
        _ => output::print(comparison.table(grid::terminal_width()).as_bytes()),
    }
}

/// What is to be replayed.
pub(crate) struct Plan {
    pub(crate) specs: Vec<Spec>,
    pub(crate) sizes: Vec<Sizes>,
    /// Whether LRU's exact curve of all sizes is a result.
    pub(crate) exact_lru: bool,
    /// The size whose replays record internals.
    pub(crate) internals: Option<Sizes>,
    pub(crate) record_internals: bool,
    /// Parts of each cache.
    pub(crate) shards: u32,
    /// References that are not counted.
    pub(crate) warmup: usize,
    pub(crate) threads: usize,
}

/// Takes policies out that a sample misleads; those named themselves are an error. Returns what to say about it.
pub(crate) fn leave_out_spatial(specs: &mut Vec<Spec>, named: &[String]) -> anyhow::Result<Option<String>> {
    if let Some(name) = named.iter().find(|name| name.parse::<Spec>().is_ok_and(|spec| spec.info().spatial)) {
        bail!("--sample: policy '{name}' looks at which blocks are neighbours on disk, and a sample has hardly any");
    }
    let names: Vec<String> = specs.extract_if(.., |spec| spec.info().spatial).map(|spec| spec.to_string()).collect();
    let note =
        || format!("left out, as a sample has hardly any blocks that are neighbours on disk: {}", names.join(", "));
    Ok((!names.is_empty()).then(note))
}

pub(crate) fn parse_rate(text: &str) -> anyhow::Result<Sample> {
    nigh_text::share(text)
        .and_then(Sample::new)
        .with_context(|| format!("--sample {text}: expected a rate above 0 and up to 1, such as 0.1 or 10%"))
}

/// How many references warm the cache.
pub(crate) enum Warmup {
    References(usize),
    Share(f64),
}

impl std::str::FromStr for Warmup {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Warmup> {
        let warmup = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..100.0).contains(percent));
                percent.map(|percent| Warmup::Share(percent / 100.0))
            }
            None => nigh_text::count(text).and_then(|count| usize::try_from(count).ok()).map(Warmup::References),
        };
        warmup.with_context(|| format!("--warmup {text}: expected a number of references, or a share below 100%"))
    }
}

impl Warmup {
    pub(crate) fn references(&self, length: usize) -> anyhow::Result<usize> {
        let references = match *self {
            Warmup::References(references) => references,
            Warmup::Share(share) => (length as f64 * share) as usize,
        };
        ensure!(references < length, "--warmup {references}: only {length} references are replayed");
        Ok(references)
    }
}

/// Reads all requests.
pub(crate) fn load(mut loader: Loader, requests: &mut dyn Requests) -> anyhow::Result<References> {
    let bar = progress::share("reading");
    let mut batch = Vec::new();
    loop {
        requests.next_batch(&mut batch)?;
        if batch.is_empty() || !loader.push(&batch)? {
            break;
        }
        if let Some(share) = requests.progress() {
            bar.set_position((share * 1_000.0) as u64);
        }
    }
    bar.finish_and_clear();
    Ok(loader.finish())
}

/// Replays what `plan` says.
pub(crate) fn execute(plan: &Plan, references: &References, trace: TraceSummary) -> anyhow::Result<Found> {
    let mut results = Results::new(trace, plan.shards);
    let distinct = references.distinct_in_trace();
    let mut sizes = Vec::new();
    for size in &plan.sizes {
        sizes.extend(size.blocks(distinct, references.block_bytes)?);
    }
    sizes.sort_unstable();
    sizes.dedup();
    note_sizes(&sizes, distinct, &mut results.notes);
    note_sample(references, &mut results.notes);
    note_unlimited(&plan.specs, references.distinct(), &mut results.notes);

    let internals_at = match plan.internals {
        Some(size) => {
            let chosen = size.blocks(distinct, references.block_bytes)?;
            let &[chosen] = &chosen[..] else { bail!("--internals takes one size, not a range") };
            ensure!(sizes.contains(&chosen), "--internals: {chosen} blocks is not among the sizes that are replayed");
            Some(chosen)
        }
        None => plan.record_internals.then(|| sizes[sizes.len() / 2]),
    };

    let in_one_pass = plan.shards == 1 && (plan.exact_lru || sizes.len() >= LRU_SIZES_IN_ONE_PASS);
    let is_exact = |spec: &Spec| in_one_pass && spec.name() == "lru";
    let mut jobs = Vec::new();
    for spec in plan.specs.iter().filter(|spec| !is_exact(spec)) {
        for &size in &sizes {
            for (at, capacity) in replayed_sizes(references, size).into_iter().enumerate() {
                let gauges = if at == 0 && Some(size) == internals_at { INTERNALS_POINTS } else { 0 };
                jobs.push(Job { spec: spec.clone(), capacity, gauges });
            }
        }
    }
    let passes = jobs.len() + plan.specs.iter().filter(|spec| is_exact(spec)).count();
    let done = AtomicU64::new(0);
    let bar = progress::references(passes as u64 * references.ids.len() as u64);
    let (curve, runs) = progress::follow(bar, &done, || {
        let watch = Watch { warmup: plan.warmup, progress: Some(&done), ..Watch::default() };
        let wants_curve = plan.specs.iter().any(is_exact);
        let curve = wants_curve.then(|| stack::curve(references, plan.warmup, Some(&done)));
        let runs = match plan.shards {
            1 => sweep(references, &jobs, plan.threads, watch),
            shards => sweep_parts(&as_served(references, shards), &jobs, plan.threads, watch),
        };
        runs.map(|runs| (curve, runs))
    })?;

    let mut internals = Vec::new();
    let mut runs = runs.into_iter();
    for spec in &plan.specs {
        if is_exact(spec) {
            let curve = curve.as_ref().expect("it was asked for");
            results.results.extend(sizes.iter().map(|&size| row_of_curve(references, spec, curve, size)));
            if plan.exact_lru {
                results.curves.push(all_sizes(references, curve));
            }
            continue;
        }
        for &size in &sizes {
            let of_size: Vec<Run> = runs.by_ref().take(replayed_sizes(references, size).len()).collect();
            let ghosts =
                ghosts(spec, (size / u64::from(plan.shards)).max(1)).map(|of_part| of_part.saturating_mul(plan.shards));
            results.results.push(Row { ghosts, ..row(references, spec, size, &of_size) });
            let series = of_size.into_iter().next().map(|run| run.series).filter(|series| !series.points.is_empty());
            internals.extend(series.map(|series| (spec.to_string(), size, series)));
        }
    }
    results.peak_memory_bytes = peak_memory_bytes();
    Ok(Found { results, internals })
}

/// The sizes with which a cache of `size` blocks is replayed: one, and for a sample two more, from which its error is
/// estimated. More than all blocks there are never makes a difference.
fn replayed_sizes(references: &References, size: u64) -> Vec<u32> {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let sizes = match references.sample {
        Some(sample) => {
            let [less, more] = sample.around(size);
            vec![sample.scaled(size), less, more]
        }
        None => vec![size],
    };
    sizes.into_iter().map(|size| size.clamp(1, references.distinct())).collect()
}

fn row(references: &References, spec: &Spec, size: u64, runs: &[Run]) -> Row {
    let run = &runs[0];
    let misses: Vec<u64> = runs.iter().map(|run| run.counts.references - run.counts.hits).collect();
    Row {
        evictions: Some(run.counts.evictions),
        cpu_s: Some(run.cpu_s),
        references_per_s: (run.cpu_s > 0.0).then(|| references.ids.len() as f64 / run.cpu_s),
        ..ratios(references, spec, size, run.counts.references, &misses, run.counts.misses_squared as f64)
    }
    .with_writes(run.counts.writes, run.counts.write_hits)
}

fn row_of_curve(references: &References, spec: &Spec, curve: &stack::Curve, size: u64) -> Row {
    let sizes = replayed_sizes(references, size);
    let misses: Vec<u64> = sizes.iter().map(|&size| curve.references - curve.hits(size)).collect();
    ratios(references, spec, size, curve.references, &misses, curve.misses_squared(sizes[0]))
        .with_writes(curve.writes, curve.write_hits(sizes[0]))
}

/// What `misses` at the [`replayed_sizes`] of `size` say, of `counted` references.
fn ratios(references: &References, spec: &Spec, size: u64, counted: u64, misses: &[u64], misses_squared: f64) -> Row {
    let counted_of_trace = references.totals.references as f64 * (counted as f64 / references.ids.len() as f64);
    let estimate = references.sample.map(|sample| {
        let around = [misses[1], misses[2]];
        sample.estimate(counted_of_trace, &Misses { counted: misses[0], squared: misses_squared, around })
    });
    let misses = misses[0];
    let miss_ratio = estimate.map_or(misses as f64 / counted as f64, |estimate| estimate.miss_ratio);
    let missed = match references.sample {
        Some(_) => (miss_ratio * counted_of_trace).round() as u64,
        None => misses,
    };
    Row {
        policy: spec.to_string(),
        size_blocks: size,
        size_bytes: size.saturating_mul(u64::from(references.block_bytes)),
        references: counted,
        hits: counted - misses,
        misses,
        hit_ratio: rounded(1.0 - miss_ratio),
        miss_ratio: rounded(miss_ratio),
        writes: 0,
        write_hits: 0,
        read_hit_ratio: None,
        write_hit_ratio: None,
        bytes_missed: missed.saturating_mul(u64::from(references.block_bytes)),
        evictions: None,
        cpu_s: None,
        references_per_s: None,
        error: estimate.map(|estimate| rounded(estimate.error)),
        ghosts: ghosts(spec, size),
    }
}

/// Ratios are given to eight digits behind the point: enough for every reference of a long trace.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}

fn all_sizes(references: &References, curve: &stack::Curve) -> Curve {
    let scale = references.sample.map_or(1.0, |sample| 1.0 / sample.rate());
    let (size_blocks, hits) =
        curve.corners().map(|(size, hits)| ((f64::from(size) * scale).round() as u64, hits)).unzip();
    Curve { policy: "lru".to_owned(), references: curve.references, size_blocks, hits, cpu_s: curve.cpu_s }
}

fn note_sizes(sizes: &[u64], distinct: u64, notes: &mut Vec<String>) {
    let beyond: Vec<String> = sizes.iter().filter(|&&size| size > distinct).map(u64::to_string).collect();
    if !beyond.is_empty() {
        let (noun, verb) = if beyond.len() == 1 { ("size", "is") } else { ("sizes", "are") };
        notes.push(format!(
            "{noun} {} blocks {verb} beyond the trace's {distinct} distinct blocks: only first references miss",
            beyond.join(", ")
        ));
    }
}

fn note_unlimited(specs: &[Spec], capacity: u32, notes: &mut Vec<String>) {
    let unlimited = |spec: &&Spec| matches!(nigh_policy::ghosts(spec, capacity), Ok(u32::MAX));
    for spec in specs.iter().filter(unlimited) {
        notes.push(format!("{spec} remembers every block it has seen: replay only, 'nigh serve' refuses it"));
    }
}

fn note_sample(references: &References, notes: &mut Vec<String>) {
    let blocks = references.blocks.len();
    if references.sample.is_some() && blocks < nigh_sim::sample::BLOCKS_LEAST {
        notes.push(format!(
            "the sample has only {blocks} blocks; below {} its error is large: sample at a higher rate",
            nigh_sim::sample::BLOCKS_LEAST
        ));
    }
}

/// Gives `found` to whom `args` says.
pub(crate) fn write(args: &OutputArgs, found: &Found, page: impl FnOnce() -> Report) -> anyhow::Result<()> {
    let text = if args.json {
        json(&found.results)?
    } else if args.csv {
        csv(found.results.results.iter())?
    } else {
        found.results.table(grid::terminal_width()).into_bytes()
    };
    if args.json || args.csv {
        for note in &found.results.notes {
            eprintln!("nigh: note: {note}");
        }
    }
    let page = args.html.as_deref().map(|path| (path, |out: &mut dyn Write| page().write_html(out)));
    output::print_and_write(&text, page, !args.json && !args.csv)
}
