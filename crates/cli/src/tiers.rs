//! `nigh sim --levels`: schemes for several cache levels, side by side.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use nigh_sim::levels::{Run, Scheme, replay};
use nigh_sim::replay::Watch;
use nigh_sim::threads::in_threads;
use nigh_sim::{Loader, Options, References, TraceSummary};
use nigh_tier::LEVELS_MAX;
use serde::Serialize;

use crate::args::SimArgs;
use crate::results::{heading, json};
use crate::size::human_bytes;
use crate::{asked, output, progress, sim, source};

/// The version of the JSON.
const SCHEMA: u32 = 1;
/// What is compared unless --policy names schemes.
const SCHEMES: &[&str] = &["ulc", "unilru", "indlru", "ind:lru/mq", "ind:lirs"];

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    // Everything on the command line is looked at before the trace is, which may take long.
    let schemes = schemes(&args.policy)?;
    let sizes = args.levels.iter().map(|text| text.parse::<nigh_sim::Sizes>()).collect::<Result<Vec<_>, _>>()?;
    ensure!(sizes.len() <= LEVELS_MAX, "--levels: {} levels; at most {LEVELS_MAX} are simulated", sizes.len());
    ensure!(sizes.iter().all(|size| size.is_one()), "--levels: expected one size for each level, not a range");
    let costs = args.costs.iter().map(|text| time_ms(text)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        costs.is_empty() || costs.len() == sizes.len() + 1,
        "--costs: expected {} times, one for a hit at each level and one for a miss, but found {}",
        sizes.len() + 1,
        costs.len()
    );
    let warmup = sim::parse_warmup(&args.warmup)?;
    let limit = args.input.limit.as_deref().map(asked::parse_limit).transpose()?;
    ensure!(args.is_one_trace(), "--levels takes one trace; --join makes one of several");
    ensure!(costs.is_sorted(), "--costs: a lower level is faster than the one above it; expected ascending times");

    let (source, mut requests) = source::sources(args)?.pop().context("no trace was given")?;
    let loader = Loader::new(Options {
        block_bytes: source.block_bytes,
        ops: args.ops.into(),
        collapse: args.collapse,
        sample: None,
        requests_most: limit.unwrap_or(u64::MAX),
    });
    let references = source::load(loader, requests.as_mut())?;
    ensure!(!references.ids.is_empty(), "{}: nothing to replay", source.name);
    let trace = source::summary(&source, &references);
    let warmup = sim::warmup_of(warmup, references.ids.len())?;
    let mut levels = Vec::new();
    for size in sizes {
        let blocks = size.blocks(references.distinct_in_trace(), references.block_bytes)?[0];
        levels.push(u32::try_from(blocks).ok().with_context(|| format!("--levels: {blocks} blocks are too many"))?);
    }
    let runs = replay_all(&references, &schemes, &levels, warmup, asked::threads(args.threads))?;
    let found = Found::new(trace, &references, &levels, &costs, &schemes, &runs);
    output::print(&if args.output.json { json(&found)? } else { found.table().into_bytes() })
}

/// The schemes named on a command line, or the usual ones.
fn schemes(names: &[String]) -> anyhow::Result<Vec<Scheme>> {
    if asked::are_usual(names) {
        return Ok(SCHEMES.iter().map(|name| name.parse().expect("the usual schemes are schemes")).collect());
    }
    let mut schemes: Vec<Scheme> = Vec::new();
    for name in names {
        let scheme = name.parse::<Scheme>().with_context(|| format!("--policy {name}, with --levels"))?;
        scheme.check()?;
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
    Ok(schemes)
}

/// A time such as 1.2ms, in milliseconds.
fn time_ms(text: &str) -> anyhow::Result<f64> {
    let seconds = if text == "0" { Some(0.0) } else { nigh_text::seconds(text) };
    let ms = seconds.map(|seconds| seconds * 1e3);
    ms.with_context(|| format!("--costs {text}: expected a time with its unit (ns, us, ms or s), such as 1.2ms"))
}

fn replay_all(
    references: &References,
    schemes: &[Scheme],
    levels: &[u32],
    warmup: usize,
    threads: usize,
) -> anyhow::Result<Vec<Run>> {
    let done = AtomicU64::new(0);
    let bar = progress::references(schemes.len() as u64 * references.ids.len() as u64);
    let watch = Watch { warmup, progress: Some(&done), ..Watch::default() };
    let replay = |scheme: &Scheme| replay(references, scheme, levels, watch);
    let runs = progress::follow(bar, &done, || in_threads(schemes, threads, replay));
    Ok(runs.into_iter().collect::<Result<_, _>>()?)
}

#[derive(Serialize)]
struct Found {
    schema: u32,
    trace: TraceSummary,
    levels: Vec<LevelSize>,
    /// Milliseconds of a hit at each level and of a miss.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    costs_ms: Vec<f64>,
    results: Vec<Row>,
}

#[derive(Serialize)]
struct LevelSize {
    size_blocks: u32,
    size_bytes: u64,
}

/// One scheme.
#[derive(Serialize)]
struct Row {
    scheme: String,
    references: u64,
    /// By level.
    hits: Vec<u64>,
    misses: u64,
    /// By the upper level of each boundary.
    demotions: Vec<u64>,
    demoted_bytes: u64,
    transit_hits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_ms: Option<f64>,
    cpu_s: f64,
}

impl Found {
    fn new(
        trace: TraceSummary,
        references: &References,
        levels: &[u32],
        costs_ms: &[f64],
        schemes: &[Scheme],
        runs: &[Run],
    ) -> Found {
        let block_bytes = u64::from(references.block_bytes);
        let results = schemes.iter().zip(runs).map(|(scheme, Run { counts, cpu_s })| {
            let demotions = counts.demotions[..levels.len() - 1].to_vec();
            Row {
                scheme: scheme.to_string(),
                references: counts.references,
                hits: counts.hits[..levels.len()].to_vec(),
                misses: counts.misses(),
                demoted_bytes: demotions.iter().sum::<u64>() * block_bytes,
                demotions,
                transit_hits: counts.transit,
                mean_ms: (!costs_ms.is_empty()).then(|| counts.mean_time(costs_ms)),
                cpu_s: *cpu_s,
            }
        });
        let size = |&size_blocks: &u32| LevelSize { size_blocks, size_bytes: u64::from(size_blocks) * block_bytes };
        Found {
            schema: SCHEMA,
            trace,
            levels: levels.iter().map(size).collect(),
            costs_ms: costs_ms.to_vec(),
            results: results.collect(),
        }
    }

    fn table(&self) -> String {
        let mut text = format!("{}\n", heading(&self.trace));
        let sizes: Vec<String> = self.levels.iter().map(|level| human_bytes(level.size_bytes)).collect();
        let _ = writeln!(text, "levels of {}; hits and demotions in % of the references\n", sizes.join(", "));
        let mut head = vec!["scheme".to_owned()];
        head.extend((1..=self.levels.len()).map(|level| format!("level {level}")));
        head.extend(["hits".to_owned(), "misses".to_owned()]);
        head.extend((1..self.levels.len()).map(|level| format!("demoted {level}-{}", level + 1)));
        head.extend((!self.costs_ms.is_empty()).then(|| "mean ms".to_owned()));
        let best = self.results.iter().filter_map(|row| row.mean_ms).min_by(f64::total_cmp);
        let mut lines = vec![head];
        for row in &self.results {
            let share = |count: u64| format!("{:.2}", 100.0 * count as f64 / row.references as f64);
            let mark = |ms: f64| if Some(ms) == best && self.results.len() > 1 { "*" } else { "" };
            let mut cells = vec![row.scheme.clone()];
            cells.extend(row.hits.iter().map(|&hits| share(hits)));
            cells.extend([share(row.hits.iter().sum()), share(row.misses)]);
            cells.extend(row.demotions.iter().map(|&count| share(count)));
            cells.extend(row.mean_ms.map(|ms| format!("{}{ms:.3}", mark(ms))));
            lines.push(cells);
        }
        let columns = lines[0].len();
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in &lines {
            let _ = write!(text, "{:1$}", line[0], widths[0]);
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                let _ = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
        text
    }
}
