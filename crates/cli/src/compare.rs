//! `nigh sim` of several traces: each is replayed by itself, and policies are compared over all of them.

use std::fmt::Write;

use anyhow::bail;
use nigh_sim::Row;
use serde::Serialize;

use crate::grid::Grid;
use crate::results::{OPT, Results, csv, distinct, grouped, heading, percent, unpublished};
use crate::size::human_bytes;
use crate::wrap::wrapped;

/// The version of the JSON that [`Comparison`] becomes.
const SCHEMA: u32 = 1;

/// Policies whose misses others are compared with, in the order of preference.
const BASELINES: [&str; 2] = ["lru", "fifo"];

/// Longer names of traces are shown by their ends.
const NAME_MOST: usize = 24;

/// Results of several traces.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    schema: u32,
    pub(crate) traces: Vec<Results>,
    /// The policy whose misses others are compared with.
    pub(crate) against: Option<String>,
    pub(crate) standings: Vec<Standing>,
}

/// How often a policy is better or worse than others, over all traces and sizes.
#[derive(Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) policy: String,
    /// Traces times sizes.
    pub(crate) cells: usize,
    /// Those in which no other policy hits more, and one hits less. OPT does not take part.
    pub(crate) wins: usize,
    /// Those in which it hits less than the first policy.
    pub(crate) losses: usize,
    /// The reduction of the misses of the policy in `against`, by it; `None` for that policy, and where no cell has both.
    pub(crate) reduction: Option<Reduction>,
}

/// By how much of the baseline's misses a policy has fewer, over all traces and sizes: 0.25 is a quarter fewer, and a negative
/// number is more misses.
#[derive(Debug, Serialize)]
pub(crate) struct Reduction {
    pub(crate) mean: f64,
    pub(crate) worst: f64,
    pub(crate) p10: f64,
    pub(crate) p25: f64,
    pub(crate) median: f64,
    pub(crate) p75: f64,
    pub(crate) p90: f64,
}

impl Reduction {
    fn of(mut each: Vec<f64>) -> Option<Reduction> {
        each.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| each[((each.len() - 1) as f64 * share).round() as usize];
        (!each.is_empty()).then(|| Reduction {
            mean: each.iter().sum::<f64>() / each.len() as f64,
            worst: at(0.0),
            p10: at(0.1),
            p25: at(0.25),
            median: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
        })
    }

    /// Its figures with their names, in the order of a table.
    fn figures(&self) -> [(&'static str, f64); 7] {
        [
            ("mean", self.mean),
            ("worst", self.worst),
            ("10th percentile", self.p10),
            ("25th percentile", self.p25),
            ("median", self.median),
            ("75th percentile", self.p75),
            ("90th percentile", self.p90),
        ]
    }
}

impl Comparison {
    /// `against` names the policy whose misses others are compared with, one of those of the results; by default LRU, or else FIFO, if
    /// it is one.
    pub(crate) fn new(traces: Vec<Results>, against: Option<&str>) -> anyhow::Result<Comparison> {
        let policies = distinct(traces.iter().flat_map(Results::policies));
        let is_there = |name: &str| policies.contains(&name);
        let against = match against {
            Some(name) if !is_there(name) => {
                bail!("--against {name}: expected one of the policies {}", policies.join(", "))
            }
            Some(name) => Some(name.to_owned()),
            None => BASELINES.iter().copied().find(|name| is_there(name)).map(str::to_owned),
        };
        let first = policies.iter().find(|policy| **policy != OPT).copied().unwrap_or_default();
        let mut standings: Vec<Standing> = policies
            .iter()
            .map(|policy| Standing { policy: (*policy).to_owned(), cells: 0, wins: 0, losses: 0, reduction: None })
            .collect();
        for cells in traces.iter().flat_map(Results::cells) {
            let figure = |name: &str| cells.iter().find(|row| row.policy == name).map(|row| percent(row.hit_ratio));
            let (best, of_first) = (best(&cells), figure(first));
            for standing in &mut standings {
                let Some(own) = figure(&standing.policy) else { continue };
                standing.cells += 1;
                standing.wins += usize::from(Some(own) == best && standing.policy != OPT);
                standing.losses += usize::from(of_first.is_some_and(|first| own < first));
            }
        }
        for standing in standings.iter_mut().filter(|standing| Some(&standing.policy) != against.as_ref()) {
            let Some(baseline) = &against else { break };
            let of_cell = |cells: Vec<&Row>| reduction(&cells, baseline, &standing.policy);
            standing.reduction = Reduction::of(traces.iter().flat_map(Results::cells).filter_map(of_cell).collect());
        }
        Ok(Comparison { schema: SCHEMA, traces, against, standings })
    }

    /// How often the policy that wins most often does so, if there are several.
    pub(crate) fn best(&self) -> Option<String> {
        let mut online = self.standings.iter().filter(|standing| standing.policy != OPT);
        let first = online.next().filter(|_| online.next().is_some())?;
        let Standing { policy, cells, wins, losses, .. } =
            self.standings.iter().max_by_key(|standing| standing.wins)?;
        let first = &first.policy;
        let lost = if policy == first { String::new() } else { format!(", and hits less than {first} in {losses}") };
        Some(format!("{policy} is the best, alone or with others, in {wins} of {cells} rows{lost}"))
    }

    /// A column for each policy: a row for each trace and size unless there are more traces than `most`, and how often each
    /// policy wins and loses.
    pub(crate) fn table(&self, width: usize, most: Option<usize>) -> String {
        let mut text = String::new();
        let shown = if most.is_some_and(|most| self.traces.len() > most) { &[] } else { &self.traces[..] };
        for trace in shown {
            wrapped(&mut text, &heading(&trace.trace), width);
        }
        let policies: Vec<&str> = self.standings.iter().map(|standing| standing.policy.as_str()).collect();
        let first = policies.iter().find(|policy| **policy != OPT).copied().unwrap_or_default();
        let several = policies.iter().filter(|policy| **policy != OPT).count() > 1;
        if shown.is_empty() {
            let what =
                if several { "how often each policy is the best" } else { "--csv or --json lists the hit ratios" };
            let _ = writeln!(text, "{} traces: {what}", grouped(self.traces.len() as u64));
        } else {
            let marked = if several { "; * is the best of its row but for opt" } else { "" };
            let _ = writeln!(text, "hit ratio in %{marked}");
        }
        let mut grid = Grid::new(&policies);
        let names = shown.iter().map(|trace| shortened(&trace.trace.name));
        let longest = names.clone().map(|name| name.chars().count()).max().unwrap_or(0);
        for (trace, name) in shown.iter().zip(names) {
            for cells in trace.cells() {
                let best = best(&cells);
                let cell = |policy: &&str| {
                    let Some(row) = cells.iter().find(|row| row.policy == *policy) else { return String::new() };
                    let shown = percent(row.hit_ratio);
                    format!("{}{shown:.2}", if Some(shown) == best && row.policy != OPT { "*" } else { "" })
                };
                let size = human_bytes(cells.first().map_or(0, |row| row.size_bytes));
                grid.row(format!("{name:<longest$} {size:>9}"), policies.iter().map(cell));
            }
        }
        if several {
            let count = |of: fn(&Standing) -> usize| {
                self.standings.iter().map(move |standing| match standing.policy.as_str() {
                    OPT => "-".to_owned(),
                    _ => of(standing).to_string(),
                })
            };
            grid.row("wins".to_owned(), count(|standing| standing.wins));
            grid.row(format!("losses to {first}"), count(|standing| standing.losses));
        }
        grid.show(&mut text, width);
        if let Some(best) = self.best() {
            wrapped(&mut text, &best, width);
        }
        let others: Vec<_> =
            self.standings.iter().filter_map(|own| Some((&*own.policy, own.reduction.as_ref()?))).collect();
        if let (Some(against), Some((_, first))) = (&self.against, others.first()) {
            let _ = writeln!(text, "\nfewer misses than {against}, in % of these, over all rows");
            let mut grid = Grid::new(&others.iter().map(|(policy, _)| *policy).collect::<Vec<_>>());
            for (at, (name, _)) in first.figures().into_iter().enumerate() {
                let shown = others.iter().map(|(_, reduction)| format!("{:.1}", 100.0 * reduction.figures()[at].1));
                grid.row(name.to_owned(), shown);
            }
            grid.show(&mut text, width);
        }
        let noted = self.traces.iter().filter(|trace| !trace.notes.is_empty()).count();
        match shown.is_empty() {
            false => self.notes().for_each(|note| wrapped(&mut text, &format!("note: {note}"), width)),
            true if noted > 0 => {
                let _ = writeln!(text, "note: there are notes on {} traces: --json lists them", grouped(noted as u64));
            }
            true => {}
        }
        wrapped(&mut text, &unpublished(&policies), width);
        text
    }

    /// The rows of all traces, each with its trace in front, and the share by which it has fewer misses than the policy compared with, if
    /// there is one, at the end.
    pub(crate) fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let rows = || self.traces.iter().flat_map(|trace| trace.results.iter().map(move |row| (trace, row)));
        // The library finds no names of columns in pairs.
        let first = String::from_utf8(csv(rows().take(1).map(|(_, row)| row))?)?;
        let names = first.lines().next().unwrap_or_default();
        let last = if self.against.is_some() { ",reduction" } else { "" };
        let mut writer =
            csv::WriterBuilder::new().has_headers(false).from_writer(format!("trace,{names}{last}\n").into_bytes());
        for (trace, row) in rows() {
            let name = &trace.trace.name;
            match &self.against {
                Some(against) => {
                    let of_same = trace.results.iter().filter(|other| other.size_blocks == row.size_blocks);
                    writer.serialize((name, row, reduction(&of_same.collect::<Vec<_>>(), against, &row.policy)))?;
                }
                None => writer.serialize((name, row))?,
            }
        }
        Ok(writer.into_inner()?)
    }

    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.traces.iter().flat_map(|trace| trace.notes.iter().map(|note| format!("{}: {note}", trace.trace.name)))
    }
}

/// The share of the misses of `against` that `policy` saves, if `cells`, of one trace and size, have both.
fn reduction(cells: &[&Row], against: &str, policy: &str) -> Option<f64> {
    let misses = |name: &str| cells.iter().find(|row| row.policy == name).map(|row| 1.0 - row.hit_ratio);
    let (baseline, own) = (misses(against)?, misses(policy)?);
    (baseline > 0.0).then(|| 1.0 - own / baseline)
}

/// The end of a long name, behind an ellipsis.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_MOST {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length - NAME_MOST + 1)).collect()
}

/// The best figure of `cells`, of one trace and size.
fn best(cells: &[&Row]) -> Option<f64> {
    Results::best(cells.iter().map(|row| (row.policy.as_str(), percent(row.hit_ratio))))
}

impl Results {
    /// Its rows by size.
    fn cells(&self) -> Vec<Vec<&Row>> {
        let mut sizes: Vec<u64> = self.results.iter().map(|row| row.size_blocks).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.iter().map(|size| self.results.iter().filter(|row| row.size_blocks == *size).collect()).collect()
    }
}
