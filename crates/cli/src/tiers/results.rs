//! Results of schemes for several cache levels, as a table and as JSON (docs/json.md).

use std::fmt::Write;

use nigh_sim::levels::{Interval, Run, Scheme};
use nigh_sim::{References, TraceSummary};
use nigh_tier::Counts;
use serde::Serialize;

use crate::results::heading;
use crate::size::human_bytes;

/// The version of the JSON.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
pub(super) struct Found {
    pub(super) schema: u32,
    pub(super) trace: TraceSummary,
    pub(super) levels: Vec<LevelSize>,
    /// Milliseconds of a hit at each level and of a miss.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) costs_ms: Vec<f64>,
    pub(super) results: Vec<Row>,
}

/// Counts of one scheme, for all clients or for one.
#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) references: u64,
    /// By level.
    pub(super) hits: Vec<u64>,
    pub(super) misses: u64,
    /// By the upper level of each boundary.
    pub(super) demotions: Vec<u64>,
    pub(super) demoted_bytes: u64,
    /// Of the blocks that came from levels below the first.
    pub(super) fetched_bytes: u64,
    pub(super) transit_hits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mean_ms: Option<f64>,
}

impl Figures {
    fn new(counts: &Counts, levels: usize, block_bytes: u64, costs_ms: &[f64]) -> Figures {
        let demotions = counts.demotions[..levels - 1].to_vec();
        Figures {
            references: counts.references,
            hits: counts.hits[..levels].to_vec(),
            misses: counts.misses(),
            fetched_bytes: counts.hits[1..levels].iter().sum::<u64>() * block_bytes,
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
pub(super) struct LevelSize {
    pub(super) size_blocks: u32,
    pub(super) size_bytes: u64,
}

/// One scheme.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) scheme: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// At the end, blocks that more than one cache holds.
    pub(super) duplicated_blocks: u64,
    /// Of their copies beyond the first one of each.
    pub(super) duplicated_bytes: u64,
    /// In the order of their traces or numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) clients: Vec<ClientRow>,
    /// Requests to the shared level for blocks that it had replaced, while the notice was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stale: Option<u64>,
    pub(super) intervals: Intervals,
    pub(super) cpu_s: f64,
}

/// Counts in each of equal intervals of the references.
#[derive(Serialize)]
pub(super) struct Intervals {
    /// References of the trace up to the end of each.
    pub(super) end: Vec<u64>,
    /// By level.
    pub(super) hits: Vec<Vec<u64>>,
    pub(super) misses: Vec<u64>,
    /// By the upper level of each boundary.
    pub(super) demotions: Vec<Vec<u64>>,
    /// At the end of each; nothing with several clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) duplicated_bytes: Vec<u64>,
}

impl Intervals {
    fn new(intervals: &[Interval], levels: usize, block_bytes: u64) -> Intervals {
        let each = |count: &dyn Fn(&Counts) -> u64| intervals.iter().map(|interval| count(&interval.counts)).collect();
        let duplicates = intervals.iter().filter_map(|interval| interval.duplicates);
        Intervals {
            end: intervals.iter().map(|interval| interval.end).collect(),
            hits: (0..levels).map(|level| each(&|counts| counts.hits[level])).collect(),
            misses: each(&Counts::misses),
            demotions: (0..levels - 1).map(|level| each(&|counts| counts.demotions[level])).collect(),
            duplicated_bytes: duplicates.map(|duplicates| duplicates.copies * block_bytes).collect(),
        }
    }
}

/// One client.
#[derive(Serialize)]
pub(super) struct ClientRow {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

impl Found {
    pub(super) fn new(
        trace: TraceSummary,
        references: &References,
        levels: &[u32],
        costs_ms: &[f64],
        clients: Option<Vec<(u64, String)>>,
        schemes: &[Scheme],
        runs: &[Run],
    ) -> Found {
        let block_bytes = u64::from(references.block_bytes);
        let figures = |counts: &Counts| Figures::new(counts, levels.len(), block_bytes, costs_ms);
        let names = clients.as_deref().unwrap_or_default();
        let results = schemes.iter().zip(runs).map(|(scheme, run)| {
            let mut clients: Vec<_> = names.iter().zip(&run.clients).collect();
            clients.sort_by_key(|((number, _), _)| *number);
            Row {
                scheme: scheme.to_string(),
                figures: figures(&run.counts),
                duplicated_blocks: run.duplicates.blocks,
                duplicated_bytes: run.duplicates.copies * block_bytes,
                stale: (matches!(scheme, Scheme::Ulc(_)) && !clients.is_empty()).then_some(run.counts.stale),
                clients: clients
                    .into_iter()
                    .map(|((_, name), counts)| ClientRow { name: name.clone(), figures: figures(counts) })
                    .collect(),
                intervals: Intervals::new(&run.intervals, levels.len(), block_bytes),
                cpu_s: run.cpu_s,
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

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", heading(&self.trace));
        let sizes: Vec<String> = self.levels.iter().map(|level| human_bytes(level.size_bytes)).collect();
        let _ = writeln!(text, "levels of {}; hits and demotions in % of the references", sizes.join(", "));
        text.push_str("duplicated: memory that further copies of the same blocks take at the end\n\n");
        let mut head = vec!["scheme".to_owned()];
        head.extend((1..=self.levels.len()).map(|level| format!("level {level}")));
        head.extend(["hits".to_owned(), "misses".to_owned()]);
        head.extend((1..self.levels.len()).map(|level| format!("demoted {level}-{}", level + 1)));
        head.push("duplicated".to_owned());
        head.extend((!self.costs_ms.is_empty()).then(|| "mean ms".to_owned()));
        let best = self.results.iter().filter_map(|row| row.figures.mean_ms).min_by(f64::total_cmp);
        let mut lines = vec![head];
        for Row { scheme, figures, duplicated_bytes, .. } in &self.results {
            let mark = |ms: f64| if Some(ms) == best && self.results.len() > 1 { "*" } else { "" };
            let mut cells = vec![scheme.clone()];
            cells.extend(figures.hits.iter().map(|&hits| figures.share(hits)));
            cells.extend([figures.share(figures.hits.iter().sum()), figures.share(figures.misses)]);
            cells.extend(figures.demotions.iter().map(|&count| figures.share(count)));
            cells.push(human_bytes(*duplicated_bytes));
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
