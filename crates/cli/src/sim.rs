//! `nigh sim`: a trace against policies and sizes.

use std::sync::atomic::AtomicU64;

use anyhow::{Context, anyhow, bail, ensure};
use nigh_policy::Spec;
use nigh_report::Report;
use nigh_sim::replay::Watch;
use nigh_sim::sizes::in_blocks;
use nigh_sim::{Loader, Options, References, Sample, Sizes, TraceSummary, Warmup, rows, stack};

use crate::args::{OutputArgs, SimArgs};
use crate::compare::Comparison;
use crate::pages::Pages;
use crate::results::{Curve, Found, Results, csv, json, peak_memory_bytes};
use crate::source::Opened;
use crate::{asked, grid, leaders, output, page, patterns, progress, source, together};

/// How often a policy's internals are read for the page.
const INTERNALS_POINTS: usize = 500;

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    // Everything on the command line is looked at before the trace is, which may take long.
    let to = args.page()?;
    let mut specs = asked::parse_policies(&args.policy)?;
    let given = asked::parse_sizes(&args.size)?;
    let warmup = parse_warmup(&args.warmup)?;
    let sample = args.sample.as_deref().map(|text| asked::parse_sample("--sample", text)).transpose()?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    let left_out = if sample.is_some() { leave_out_spatial(&mut specs, &args.policy)? } else { None };

    let asked = Asked { specs, sizes: given, warmup, sample, limit: limit.unwrap_or(u64::MAX), left_out };
    let mut sources = source::sources(args)?;
    together::check_streams(args)?;
    if sources.len() > 1 {
        let found = sources.into_iter().map(|opened| asked.replay(args, opened).map(|(found, _)| found.results));
        let comparison = Comparison::new(found.collect::<anyhow::Result<_>>()?, args.against.as_deref())?;
        return write_comparison(&args.output, &to, &comparison);
    }
    let (found, references) = asked.replay(args, sources.pop().context("no trace was given")?)?;
    write(&args.output, &to, &found, || page::page(&found, &references))
}

/// The parsed command line.
struct Asked {
    specs: Vec<Spec>,
    sizes: Option<Vec<Sizes>>,
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
        let mut references = source::load(loader, requests.as_mut())?;
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
        let (shards, is_one) = (args.shards, args.is_one_trace());
        let has_page = is_one && (args.output.html.is_some() || args.output.svg.is_some());
        let default_sizes = if is_one { asked::default_sizes() } else { asked::few_sizes() };
        let plan = Plan {
            specs: self.specs.clone(),
            sizes: self.sizes.clone().unwrap_or(default_sizes),
            exact_lru: args.size.is_empty() && shards == 1 && is_one,
            record_internals: has_page && shards == 1,
            shards,
            warmup: warmup_of(self.warmup, references.ids.len())?,
            threads: asked::threads(args.threads),
        };
        let mut notes = Vec::from_iter(self.left_out.clone());
        if let Some(path) = &args.patterns {
            let (known, unused) = patterns::patterns(path, args, &plan.rows(&references)?, plan.warmup, &references)?;
            references.patterns = Some(known);
            notes.extend(unused);
        }
        let mut found = execute(&plan, &references, source::summary(&source, &references))?;
        found.results.notes.extend(notes);
        Ok((found, references))
    }
}

fn write_comparison(args: &OutputArgs, to: &Pages, comparison: &Comparison) -> anyhow::Result<()> {
    if args.json || args.csv {
        comparison.notes().for_each(|note| output::tell(format_args!("nigh: note: {note}")));
    }
    let text = match (args.json, args.csv) {
        (true, _) => json(comparison)?,
        (_, true) => comparison.csv()?,
        _ => comparison.table(grid::terminal_width(), None).into_bytes(),
    };
    to.write(&text, !args.json && !args.csv, || page::of_comparison(comparison))
}

/// The replays.
pub(crate) struct Plan {
    pub(crate) specs: Vec<Spec>,
    pub(crate) sizes: Vec<Sizes>,
    /// Whether LRU's exact curve of all sizes is a result.
    pub(crate) exact_lru: bool,
    /// Whether replays of the middle size record internals.
    pub(crate) record_internals: bool,
    /// Parts of each cache.
    pub(crate) shards: u32,
    /// References that are not counted.
    pub(crate) warmup: usize,
    pub(crate) threads: usize,
}

impl Plan {
    /// The same in blocks of the trace, without internals.
    fn rows(&self, references: &References) -> anyhow::Result<rows::Plan> {
        Ok(rows::Plan {
            specs: self.specs.clone(),
            sizes: in_blocks(&self.sizes, references.distinct_in_trace(), references.block_bytes)?,
            exact_lru: self.exact_lru,
            gauges: None,
            shards: self.shards,
            threads: self.threads,
        })
    }
}

/// Removes the policies that a sample misleads, and returns a note about them; those that the user named are an error.
pub(crate) fn leave_out_spatial(specs: &mut Vec<Spec>, named: &[String]) -> anyhow::Result<Option<String>> {
    if let Some(name) = named.iter().find(|name| name.parse::<Spec>().is_ok_and(|spec| spec.info().spatial)) {
        bail!(
            "--sample does not go with policy '{name}': it looks at which blocks are neighbours on disk, and a sample has hardly any"
        );
    }
    let names: Vec<String> = specs.extract_if(.., |spec| spec.info().spatial).map(|spec| spec.to_string()).collect();
    let note =
        || format!("left out, as a sample has hardly any blocks that are neighbours on disk: {}", names.join(", "));
    Ok((!names.is_empty()).then(note))
}

/// The value of `--warmup`.
pub(crate) fn parse_warmup(text: &str) -> anyhow::Result<Warmup> {
    text.parse().map_err(|error| anyhow!("--warmup {error}"))
}

/// The number of `warmup` of `length` references.
pub(crate) fn warmup_of(warmup: Warmup, length: usize) -> anyhow::Result<usize> {
    warmup.references(length).map_err(|error| anyhow!("--warmup {error}"))
}

/// Replays `plan`.
pub(crate) fn execute(plan: &Plan, references: &References, trace: TraceSummary) -> anyhow::Result<Found> {
    let mut results = Results::new(trace, plan.shards);
    let distinct = references.distinct_in_trace();
    let mut replay = plan.rows(references)?;
    let sizes = &replay.sizes;
    note_sizes(sizes, distinct, &mut results.notes);
    results.notes.extend(references.note_on_sample());
    note_unlimited(&plan.specs, references.distinct(), &mut results.notes);

    let internals_at = plan.record_internals.then(|| sizes[sizes.len() / 2]);
    replay.gauges = internals_at.map(|size| (size, INTERNALS_POINTS));
    let done = AtomicU64::new(0);
    let bar = progress::references(replay.steps(references));
    let watch = Watch { warmup: plan.warmup, progress: Some(&done), ..Watch::default() };
    let replayed = progress::follow(bar, &done, || replay.replay(references, watch))?;
    results.results = replayed.rows;
    results.best_by_size = leaders::leaders(&results.results);
    results.curves = replayed.curve.iter().map(|curve| all_sizes(references, curve)).collect();
    results.peak_memory_bytes = peak_memory_bytes();
    Ok(Found { results, internals: replayed.internals })
}

fn all_sizes(references: &References, curve: &stack::Curve) -> Curve {
    let (size_blocks, hits) = rows::corners(references, curve);
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

/// Prints `found` as `args` demand, and writes the page.
pub(crate) fn write(args: &OutputArgs, to: &Pages, found: &Found, page: impl FnOnce() -> Report) -> anyhow::Result<()> {
    let text = if args.json {
        json(&found.results)?
    } else if args.csv {
        csv(found.results.results.iter())?
    } else {
        found.results.table(grid::terminal_width()).into_bytes()
    };
    if args.json || args.csv {
        for note in &found.results.notes {
            output::tell(format_args!("nigh: note: {note}"));
        }
    }
    to.write(&text, !args.json && !args.csv, page)
}
