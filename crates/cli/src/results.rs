//! Results of a replay, as a table, as JSON (docs/json.md) and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write;

use nigh_policy::Spec;
use nigh_sim::{Row, TraceSummary};
use serde::Serialize;

use crate::grid::Grid;
use crate::leaders::{self, Leader};
use crate::size::human_bytes;
use crate::wrap::wrapped;

/// The policy that knows the future: it is compared with others, and none with it.
pub(crate) const OPT: &str = "opt";

/// The version of the JSON and CSV that [`Results`] becomes.
const SCHEMA: u32 = 1;

/// Results of a plan.
pub(crate) struct Found {
    pub(crate) results: Results,
    /// The policies' internals, with policy and size.
    pub(crate) internals: Vec<(String, u64, nigh_sim::replay::Series)>,
}

/// Everything one `nigh sim` found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) trace: TraceSummary,
    /// Parts of each cache.
    pub(crate) shards: u32,
    /// The read-ahead of the replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) readahead: Option<String>,
    pub(crate) results: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) curves: Vec<Curve>,
    /// The policies that are the best at ranges of sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) best_by_size: Vec<Leader>,
    pub(crate) notes: Vec<String>,
    /// The most memory that the process had resident, if the system reports it.
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// Description of the trace, in a line that is left open.
pub(crate) fn heading(trace: &TraceSummary) -> String {
    format!(
        "{} ({}): {} requests, {} references to {} distinct blocks of {} ({})",
        trace.name,
        trace.format,
        grouped(trace.requests),
        grouped(trace.references),
        grouped(trace.distinct_blocks),
        human_bytes(u64::from(trace.block_bytes)),
        human_bytes(trace.distinct_blocks * u64::from(trace.block_bytes)),
    )
}

/// The hits of one policy at every size: only the sizes are listed at which there are more than one block below.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) policy: String,
    pub(crate) references: u64,
    pub(crate) size_blocks: Vec<u64>,
    pub(crate) hits: Vec<u64>,
    pub(crate) cpu_s: f64,
}

impl Results {
    pub(crate) fn new(trace: TraceSummary, shards: u32) -> Results {
        Results {
            schema: SCHEMA,
            trace,
            shards,
            readahead: None,
            results: Vec::new(),
            curves: Vec::new(),
            best_by_size: Vec::new(),
            notes: Vec::new(),
            peak_memory_bytes: None,
        }
    }

    /// The policies in the order in which they were asked for.
    pub(crate) fn policies(&self) -> Vec<&str> {
        distinct(self.results.iter().map(|row| row.policy.as_str()))
    }

    /// Hit ratios, a row for each size and a column for each policy, the best of a row marked; those of reads by themselves
    /// where the trace has writes, too. In `width` columns.
    pub(crate) fn table(&self, width: usize) -> String {
        let mut text = String::new();
        wrapped(&mut text, &self.heading(), width);
        let policies = self.policies();
        let mut hits = self.grid(&policies, true, |row| Some(row.hit_ratio));
        let rate = |name: &&str| {
            let rows = self.results.iter().filter(|row| row.policy == *name);
            let (references, cpu_s) = rows.fold((0, 0.0), |(references, cpu_s), row| match row.cpu_s {
                Some(own) => (references + row.references, cpu_s + own),
                None => (references, cpu_s),
            });
            if cpu_s > 0.0 { format!("{:.1}", references as f64 / cpu_s / 1e6) } else { "-".to_owned() }
        };
        if self.results.iter().any(|row| row.cpu_s.is_some()) {
            hits.row("M references/s".to_owned(), policies.iter().map(rate));
        }
        hits.show(&mut text, width);
        if let Some(row) = self.results.iter().find(|row| row.writes > 0 && row.read_hit_ratio.is_some()) {
            let share = 100.0 * row.writes as f64 / row.references.max(1) as f64;
            let _ = writeln!(text, "\nreads alone ({:.1} % of the references)", 100.0 - share);
            self.grid(&policies, true, |row| row.read_hit_ratio).show(&mut text, width);
        }
        if self.readahead.is_some() {
            text.push_str("\nblocks read from the device, for 100 references\n");
            self.grid(&policies, false, Row::read_ratio).show(&mut text, width);
        }
        if let Some(sentence) = leaders::sentence(&self.best_by_size) {
            wrapped(&mut text, &sentence, width);
        }
        for note in &self.notes {
            wrapped(&mut text, &format!("note: {note}"), width);
        }
        wrapped(&mut text, &unpublished(&policies), width);
        text
    }

    /// `ratio` of each policy at each size, in percent. With `marked`, the highest has a mark.
    fn grid(&self, policies: &[&str], marked: bool, ratio: impl Fn(&Row) -> Option<f64>) -> Grid {
        let sizes: BTreeMap<u64, u64> = self.results.iter().map(|row| (row.size_blocks, row.size_bytes)).collect();
        let mut grid = Grid::new(policies);
        for (&blocks, &bytes) in &sizes {
            let shown = |name: &&str| self.row(name, blocks).and_then(|row| Some((row, percent(ratio(row)?))));
            let cells: Vec<Option<(&Row, f64)>> = policies.iter().map(shown).collect();
            let best = Results::best(cells.iter().flatten().map(|&(row, shown)| (row.policy.as_str(), shown)));
            let best = best.filter(|_| marked);
            let cell = |cell: &Option<(&Row, f64)>| match cell {
                Some((row, shown)) if Some(*shown) == best && row.policy != OPT => format!("*{shown:.2}"),
                Some((_, shown)) => format!("{shown:.2}"),
                None => String::new(),
            };
            grid.size(blocks, bytes, cells.iter().map(cell));
        }
        grid
    }

    /// The greatest figure of policies that do not know the future, where there are several and not all have the same.
    pub(crate) fn best<'a>(figures: impl Iterator<Item = (&'a str, f64)>) -> Option<f64> {
        let online: Vec<f64> = figures.filter(|(policy, _)| *policy != OPT).map(|(_, figure)| figure).collect();
        let best = online.iter().copied().max_by(f64::total_cmp)?;
        online.iter().any(|&figure| figure < best).then_some(best)
    }

    fn row(&self, policy: &str, size_blocks: u64) -> Option<&Row> {
        self.results.iter().find(|row| row.policy == policy && row.size_blocks == size_blocks)
    }

    fn heading(&self) -> String {
        let mut text = heading(&self.trace);
        if let Some(sample) = &self.trace.sample {
            let _ = write!(
                text,
                "\nsampled at {}: {} references to {} distinct blocks; the errors are at most {:.2} points (95 %)",
                sample.rate,
                grouped(sample.references),
                grouped(sample.distinct_blocks),
                100.0 * self.results.iter().filter_map(|row| row.error).fold(0.0, f64::max),
            );
        }
        if let Some(readahead) = &self.readahead {
            let _ = write!(text, "\nread-ahead {readahead}; loads take no time");
        }
        if self.shards > 1 {
            let _ = write!(text, "\neach cache in {} parts", self.shards);
        }
        text.push_str("\nhit ratio in %");
        let policies = self.policies();
        if policies.iter().filter(|policy| **policy != OPT).count() > 1 {
            text.push_str("; * is the best at its size");
            text.push_str(if policies.contains(&OPT) { " but for opt, which knows the future" } else { "" });
        }
        text
    }
}

/// Which of these policies have defaults that are not the published values; nothing if none has.
pub(crate) fn unpublished(policies: &[&str]) -> String {
    let specs = policies.iter().filter_map(|policy| policy.parse::<Spec>().ok());
    let of_policy = |spec: Spec| {
        let params = spec.unpublished();
        let each =
            params.map(|param| format!("{}={} ({})", param.key, param.default, param.published.unwrap_or_default()));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("{spec} {}", each.join(", ")))
    };
    let all: Vec<String> = specs.filter_map(of_policy).collect();
    if all.is_empty() {
        String::new()
    } else {
        format!("defaults that differ from the published values: {}", all.join("; "))
    }
}

/// Each of `names` once, in the order in which they come.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

pub(crate) fn json(results: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(results)?;
    text.push(b'\n');
    Ok(text)
}

pub(crate) fn csv(rows: impl Iterator<Item = impl Serialize>) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.into_inner()?)
}

/// The most memory that this process has had resident.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// A ratio in percent, as precise as it is shown.
pub(crate) fn percent(ratio: f64) -> f64 {
    (ratio * 10_000.0).round() / 100.0
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 file`, `2,000 files`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let ending = match noun {
        _ if number == 1 => "",
        noun if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(number))
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands() {
        assert_eq!(super::grouped(0), "0");
        assert_eq!(super::grouped(999), "999");
        assert_eq!(super::grouped(1_234_567), "1,234,567");
    }
}
