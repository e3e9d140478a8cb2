//! The box with which the page of a simulation opens: what follows from the sizes that were replayed.

use nigh_policy::Spec;
use nigh_report::Verdict;

use crate::compare;
use crate::leaders;
use crate::results::{Results, distinct};
use crate::size::human_bytes;
use nigh_sim::TraceSummary;

/// A policy at a size: how well it did, the higher the better.
pub(crate) struct Score<'a> {
    pub(crate) policy: &'a str,
    pub(crate) bytes: u64,
    pub(crate) value: f64,
}

/// The best policy at the size where policies differ most; where that is the smallest of several, at the knee of the present policy.
pub(crate) struct Comparison<'a> {
    /// The size that is judged.
    pub(crate) bytes: u64,
    /// LRU, or else the first policy.
    pub(crate) present: &'a str,
    pub(crate) best: &'a str,
    /// The smallest of the sizes replayed at which the best does as well as the present policy does at `bytes`.
    pub(crate) equal_bytes: u64,
}

impl<'a> Comparison<'a> {
    /// Of the sizes at which all policies were replayed, if there are any.
    pub(crate) fn new(scores: &[Score<'a>]) -> Option<Comparison<'a>> {
        let policies = distinct(scores.iter().map(|score| score.policy));
        let present = policies.iter().copied().find(|&policy| policy == "lru").or(policies.first().copied())?;
        let mut sizes: Vec<u64> = scores.iter().map(|score| score.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let at = |bytes: u64| scores.iter().filter(move |score| score.bytes == bytes);
        let spread = |bytes: u64| {
            let values = || at(bytes).map(|score| score.value);
            values().fold(f64::NEG_INFINITY, f64::max) - values().fold(f64::INFINITY, f64::min)
        };
        let full: Vec<u64> = sizes.iter().copied().filter(|&bytes| at(bytes).count() == policies.len()).collect();
        let value = |policy: &str, bytes: u64| at(bytes).find(|score| score.policy == policy).map(|score| score.value);
        let widest = full.iter().copied().max_by(|&one, &other| spread(one).total_cmp(&spread(other)))?;
        let curve: Vec<(u64, f64)> = full.iter().filter_map(|&bytes| Some((bytes, value(present, bytes)?))).collect();
        let bytes = if Some(&widest) == full.first() { knee(&curve).unwrap_or(widest) } else { widest };
        let known = value(present, bytes)?;
        let better = |score: &&&Score| score.value > known;
        let best = at(bytes).filter(|score| better(&score)).max_by(|one, other| one.value.total_cmp(&other.value));
        let best = best.map_or(present, |score| score.policy);
        let reaches = |size: &u64| value(best, *size).is_some_and(|value| value >= known);
        let equal_bytes = sizes.iter().copied().find(reaches).unwrap_or(bytes);
        Some(Comparison { bytes, present, best, equal_bytes })
    }

    /// Smaller memory that is enough for the same hits, if there is any.
    pub(crate) fn memory(&self) -> Option<(String, String)> {
        let Comparison { bytes, present, best, equal_bytes } = *self;
        (equal_bytes < bytes && best != present).then(|| {
            let saved = 100.0 * (bytes - equal_bytes) as f64 / bytes as f64;
            let sentence = format!(
                "{best} does as well with {} as {present} with {}: {saved:.0} % of the memory saved.",
                human_bytes(equal_bytes),
                human_bytes(bytes)
            );
            ("memory".to_owned(), sentence)
        })
    }

    /// The command that judges the size.
    pub(crate) fn next(&self, trace: &TraceSummary, more: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        if trace.format == "generated" || !trace.name.chars().all(is_plain) {
            return String::new();
        }
        format!("nigh plan {} --have {}b{more}", trace.name, self.bytes / u64::from(trace.block_bytes))
    }
}

/// The size above which a curve gains least for its size: that at which it is highest above the line between its ends, if it is above
/// that line anywhere. The sizes ascend.
fn knee(curve: &[(u64, f64)]) -> Option<u64> {
    let (first, last) = (*curve.first()?, *curve.last()?);
    let slope = (last.1 - first.1) / last.0.saturating_sub(first.0).max(1) as f64;
    let above = |&(bytes, value): &(u64, f64)| value - first.1 - slope * (bytes - first.0) as f64;
    let best = curve.iter().max_by(|one, other| above(one).total_cmp(&above(other)))?;
    // Sums of a straight line differ by rounding.
    (above(best) > 1e-9).then_some(best.0)
}

/// Whether a policy, as results name it, needs to know the future.
pub(super) fn is_offline(policy: &str) -> bool {
    policy.parse::<Spec>().is_ok_and(|spec| spec.info().offline)
}

/// The verdict of a replay.
pub(super) fn of_replay(results: &Results) -> Option<Verdict> {
    let online = || results.results.iter().filter(|row| !is_offline(&row.policy));
    let scores: Vec<Score> =
        online().map(|row| Score { policy: &row.policy, bytes: row.size_bytes, value: row.hit_ratio }).collect();
    let comparison = Comparison::new(&scores)?;
    let Comparison { bytes, present, best, .. } = comparison;
    let hits = |policy: &str| {
        let row = results.results.iter().find(|row| row.policy == policy && row.size_bytes == bytes);
        row.map_or_else(String::new, |row| format!("{:.2} %", 100.0 * row.hit_ratio))
    };
    let size = human_bytes(bytes);
    let headline = if best == present {
        format!(
            "With {size}, {present} hits {} of the references, and no other policy replayed hits more.",
            hits(present)
        )
    } else {
        format!("With {size}, {best} hits {} of the references and {present} {}.", hits(best), hits(present))
    };
    let mut facts: Vec<(String, String)> = comparison.memory().into_iter().collect();
    let mut means: Vec<(&str, f64)> = Vec::new();
    for policy in distinct(scores.iter().map(|score| score.policy)) {
        let of_policy = || scores.iter().filter(|score| score.policy == policy);
        means.push((policy, of_policy().map(|score| score.value).sum::<f64>() / of_policy().count() as f64));
    }
    means.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    if let [(first, ratio), (second, next), ..] = means[..] {
        facts.push((
            "all sizes".to_owned(),
            format!("On average over them, {first} hits {:.2} % and {second} {:.2} %.", 100.0 * ratio, 100.0 * next),
        ));
    }
    facts.extend(leaders::fact(&results.best_by_size).map(|sentence| ("by size".to_owned(), sentence)));
    let points = scores.iter().filter(|score| score.policy == present).map(|score| (score.bytes, score.value));
    let mut curve: Vec<(u64, f64)> = points.collect();
    curve.sort_unstable_by_key(|&(bytes, _)| bytes);
    if let (Some(knee), Some(&(largest, most))) = (knee(&curve), curve.last())
        && let Some(&(_, ratio)) = curve.iter().find(|&&(bytes, _)| bytes == knee)
    {
        let sentence = format!(
            "{present} gains least by memory beyond {}: it hits {:.2} % there, and {:.2} % with {}.",
            human_bytes(knee),
            100.0 * ratio,
            100.0 * most,
            human_bytes(largest)
        );
        facts.push(("knee".to_owned(), sentence));
    }
    let bound = results.results.iter().find(|row| row.size_bytes == bytes && is_offline(&row.policy));
    facts.extend(bound.map(|row| {
        let sentence = format!(
            "No policy can hit more than {:.2} % with {size} ({}, which knows the future).",
            100.0 * row.hit_ratio,
            row.policy
        );
        ("bound".to_owned(), sentence)
    }));
    let trace = &results.trace;
    if let Some(readahead) = &results.readahead {
        let read = |policy: &str| {
            let row = results.results.iter().find(|row| row.policy == policy && row.size_bytes == bytes)?;
            Some(format!("{policy} {:.0}", 100.0 * row.read_ratio()?))
        };
        let read: Vec<String> = distinct([best, present].into_iter()).into_iter().filter_map(read).collect();
        facts.push((
            "read-ahead".to_owned(),
            format!("{readahead}; loads take no time. Blocks read for 100 references: {}.", read.join(", ")),
        ));
    } else if online().all(|row| row.references == trace.references) {
        let most = 100.0 * (1.0 - trace.distinct_blocks as f64 / trace.references as f64);
        facts.push((
            "at most".to_owned(),
            format!("{most:.2} % can hit, whatever the size: the other references are the first to their block."),
        ));
    }
    let mut next = comparison.next(trace, "");
    if let (Some(readahead), false) = (&results.readahead, next.is_empty()) {
        next = format!("nigh sim {} --device ssd-sata --readahead {readahead}", trace.name);
    }
    Some(Verdict { headline, facts, next })
}

/// The verdict of several traces.
pub(super) fn of_comparison(comparison: &compare::Comparison) -> Option<Verdict> {
    let headline = format!("{}.", comparison.best()?);
    let mut saved: Vec<_> =
        comparison.standings.iter().filter_map(|one| Some((one, one.reduction.as_ref()?))).collect();
    saved.retain(|(one, _)| !is_offline(&one.policy));
    saved.sort_by(|(_, one), (_, other)| other.mean.total_cmp(&one.mean));
    let mut facts = Vec::new();
    if let (Some(against), Some((first, reduction))) = (&comparison.against, saved.first()) {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        facts.push((
            "misses".to_owned(),
            format!(
                "On average, {} has {} fewer misses than {against}; median {}, in the worst case {}.",
                first.policy,
                percent(reduction.mean),
                percent(reduction.median),
                percent(reduction.worst)
            ),
        ));
    }
    let changing: Vec<&str> = comparison
        .traces
        .iter()
        .filter(|trace| trace.best_by_size.len() > 1)
        .map(|trace| trace.trace.name.as_str())
        .collect();
    if !changing.is_empty() {
        let sentence =
            format!("The best policy changes with the size, by a point or more, in {}.", changing.join(", "));
        facts.push(("by size".to_owned(), sentence));
    }
    Some(Verdict { headline, facts, next: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_named_where_policies_differ_most() {
        let score = |policy, bytes, value| Score { policy, bytes, value };
        let scores = [
            score("fifo", 1, 0.1),
            score("fifo", 2, 0.2),
            score("lru", 1, 0.1),
            score("lru", 2, 0.3),
            score("lirs", 1, 0.3),
            score("lirs", 2, 0.6),
            // A size of one policy alone is not compared.
            score("lru", 3, 0.9),
        ];
        let Comparison { bytes, present, best, equal_bytes } = Comparison::new(&scores).unwrap();
        assert_eq!((bytes, present, best, equal_bytes), (2, "lru", "lirs", 1));
        assert!(Comparison::new(&scores).unwrap().memory().unwrap().1.contains("50 % of the memory saved"));
        // Policies differ most at the smallest size, which decides nothing: the curve of LRU bends at the second.
        let bent = [("lru", [0.0, 0.5, 0.6]), ("lirs", [0.4, 0.6, 0.7])];
        let bent =
            bent.iter().flat_map(|(policy, values)| (1..).zip(values).map(|(size, &value)| score(policy, size, value)));
        assert_eq!(Comparison::new(&bent.collect::<Vec<_>>()).unwrap().bytes, 2);
        let same = [score("lru", 1, 0.5), score("lirs", 1, 0.5)];
        assert_eq!(Comparison::new(&same).unwrap().best, "lru");
        assert!(Comparison::new(&same).unwrap().memory().is_none());
        assert!(Comparison::new(&[]).is_none());
    }
}
