//! The box with which the page of a simulation opens: what follows from the sizes that were replayed.

use nigh_policy::Spec;
use nigh_report::Verdict;

use crate::results::{Results, distinct};
use crate::size::human_bytes;
use nigh_sim::TraceSummary;

/// A policy at a size: how well it did, the higher the better.
pub(crate) struct Score<'a> {
    pub(crate) policy: &'a str,
    pub(crate) bytes: u64,
    pub(crate) value: f64,
}

/// The best policy at the size where policies differ most.
pub(crate) struct Comparison<'a> {
    /// The size at which they do.
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
        let full = sizes.iter().copied().filter(|&bytes| at(bytes).count() == policies.len());
        let bytes = full.max_by(|&one, &other| spread(one).total_cmp(&spread(other)))?;
        let value = |policy: &str, bytes: u64| at(bytes).find(|score| score.policy == policy).map(|score| score.value);
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
        let same = [score("lru", 1, 0.5), score("lirs", 1, 0.5)];
        assert_eq!(Comparison::new(&same).unwrap().best, "lru");
        assert!(Comparison::new(&same).unwrap().memory().is_none());
        assert!(Comparison::new(&[]).is_none());
    }
}
