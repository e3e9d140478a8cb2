//! `nigh sim --levels`: schemes for several cache levels, side by side.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, ensure};
use nigh_sim::levels::{self, ClientsRun, Run, Scheme, replay, replay_clients};
use nigh_sim::replay::Watch;
use nigh_sim::threads::in_threads;
use nigh_sim::{References, TraceSummary};
use nigh_tier::{Counts, LEVELS_MAX};
use serde::Serialize;

use crate::args::SimArgs;
use crate::results::{heading, json};
use crate::size::human_bytes;
use crate::{asked, clients, output, progress, sim, source};

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
    ensure!(
        args.is_one_trace() || args.clients,
        "--levels takes one trace; --join makes one of several, and with --clients each is a client"
    );
    ensure!(
        !args.clients || sizes.len() > 1,
        "--clients: expected at least two levels, of which clients share the last one"
    );
    ensure!(costs.is_sorted(), "--costs: a lower level is faster than the one above it; expected ascending times");

    let mut opened = source::sources(args)?;
    let (source, mut requests, names) = if args.clients {
        clients::clients(opened)?
    } else {
        let (source, requests) = opened.pop().context("no trace was given")?;
        (source, requests, Vec::new())
    };
    let (references, trace) = source::load_whole(args, &source, requests.as_mut(), limit)?;
    let warmup = sim::warmup_of(warmup, references.ids.len())?;
    let mut levels = Vec::new();
    for size in sizes {
        let blocks = size.blocks(references.distinct_in_trace(), references.block_bytes)?[0];
        levels.push(u32::try_from(blocks).ok().with_context(|| format!("--levels: {blocks} blocks are too many"))?);
    }
    let clients = args.clients.then(|| client_names(&references, &names)).transpose()?;
    let runs = replay_all(&references, &schemes, &levels, clients.is_some(), warmup, asked::threads(args.threads))?;
    let found = Found::new(trace, &references, &levels, &costs, clients, &schemes, &runs);
    output::print(&if args.output.json { json(&found)? } else { found.table().into_bytes() })
}

/// The clients, and their names: those of their traces, or the numbers of tenants.
fn client_names(references: &References, traces: &[String]) -> anyhow::Result<Vec<(u64, String)>> {
    levels::clients(references)?;
    let name = |&stream: &u64| (stream, traces.get(stream as usize).cloned().unwrap_or_else(|| stream.to_string()));
    Ok(references.streams.all().iter().map(name).collect())
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

/// Counts of all, those of each client if there are several, and processor time in seconds.
type Counted = (Counts, Vec<Counts>, f64);

fn replay_all(
    references: &References,
    schemes: &[Scheme],
    levels: &[u32],
    clients: bool,
    warmup: usize,
    threads: usize,
) -> anyhow::Result<Vec<Counted>> {
    let done = AtomicU64::new(0);
    let bar = progress::references(schemes.len() as u64 * references.ids.len() as u64);
    let watch = Watch { warmup, progress: Some(&done), ..Watch::default() };
    let replay = |scheme: &Scheme| {
        if !clients {
            return replay(references, scheme, levels, watch).map(|Run { counts, cpu_s }| (counts, Vec::new(), cpu_s));
        }
        let ClientsRun { clients, cpu_s } = replay_clients(references, scheme, levels, watch)?;
        let mut all = Counts::default();
        clients.iter().for_each(|counts| all += counts);
        Ok((all, clients, cpu_s))
    };
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

/// What was counted of one scheme, for all clients or for one.
#[derive(Serialize)]
struct Figures {
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
}

impl Figures {
    fn new(counts: &Counts, levels: usize, block_bytes: u64, costs_ms: &[f64]) -> Figures {
        let demotions = counts.demotions[..levels - 1].to_vec();
        Figures {
            references: counts.references,
            hits: counts.hits[..levels].to_vec(),
            misses: counts.misses(),
            demoted_bytes: demotions.iter().sum::<u64>() * block_bytes,
            demotions,
            transit_hits: counts.transit,
            mean_ms: (!costs_ms.is_empty() && counts.references > 0).then(|| counts.mean_time(costs_ms)),
        }
    }

    fn share(&self, count: u64) -> String {
        format!("{:.2}", 100.0 * count as f64 / self.references.max(1) as f64)
    }
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
    #[serde(flatten)]
    figures: Figures,
    /// In the order of their traces or numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<ClientRow>,
    /// Requests to the shared level for blocks that it had replaced, while the notice was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<u64>,
    cpu_s: f64,
}

/// One client.
#[derive(Serialize)]
struct ClientRow {
    name: String,
    #[serde(flatten)]
    figures: Figures,
}

impl Found {
    fn new(
        trace: TraceSummary,
        references: &References,
        levels: &[u32],
        costs_ms: &[f64],
        clients: Option<Vec<(u64, String)>>,
        schemes: &[Scheme],
        runs: &[Counted],
    ) -> Found {
        let block_bytes = u64::from(references.block_bytes);
        let figures = |counts: &Counts| Figures::new(counts, levels.len(), block_bytes, costs_ms);
        let names = clients.as_deref().unwrap_or_default();
        let results = schemes.iter().zip(runs).map(|(scheme, (counts, of_clients, cpu_s))| {
            let mut clients: Vec<_> = names.iter().zip(of_clients).collect();
            clients.sort_by_key(|((number, _), _)| *number);
            Row {
                scheme: scheme.to_string(),
                figures: figures(counts),
                stale: (matches!(scheme, Scheme::Ulc(_)) && !clients.is_empty()).then_some(counts.stale),
                clients: clients
                    .into_iter()
                    .map(|((_, name), counts)| ClientRow { name: name.clone(), figures: figures(counts) })
                    .collect(),
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
        let best = self.results.iter().filter_map(|row| row.figures.mean_ms).min_by(f64::total_cmp);
        let mut lines = vec![head];
        for Row { scheme, figures, .. } in &self.results {
            let mark = |ms: f64| if Some(ms) == best && self.results.len() > 1 { "*" } else { "" };
            let mut cells = vec![scheme.clone()];
            cells.extend(figures.hits.iter().map(|&hits| figures.share(hits)));
            cells.extend([figures.share(figures.hits.iter().sum()), figures.share(figures.misses)]);
            cells.extend(figures.demotions.iter().map(|&count| figures.share(count)));
            cells.extend(figures.mean_ms.map(|ms| format!("{}{ms:.3}", mark(ms))));
            lines.push(cells);
        }
        align(&lines, &mut text);
        let clients = &self.results[0].clients;
        if !clients.is_empty() {
            let unit = if self.costs_ms.is_empty() { "hits" } else { "mean ms" };
            let _ = writeln!(text, "\n{unit} of each client; they share the last level\n");
            let mut lines = vec![vec!["client".to_owned(), "references".to_owned()]];
            lines[0].extend(self.results.iter().map(|row| row.scheme.clone()));
            for (at, ClientRow { name, figures }) in clients.iter().enumerate() {
                let of = |row: &Row| {
                    let Figures { mean_ms, hits, .. } = &row.clients[at].figures;
                    mean_ms.map_or_else(|| figures.share(hits.iter().sum()), |ms| format!("{ms:.3}"))
                };
                let mut cells = vec![name.clone(), figures.references.to_string()];
                cells.extend(self.results.iter().map(of));
                lines.push(cells);
            }
            align(&lines, &mut text);
        }
        text
    }
}

/// Appends `lines` as columns, the first one to the left.
fn align(lines: &[Vec<String>], text: &mut String) {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for line in lines {
        let _ = write!(text, "{:1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
}
