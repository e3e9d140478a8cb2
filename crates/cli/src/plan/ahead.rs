//! Which policy to serve with, and whether to read ahead: replays of both policies that a verdict is about, as `nigh serve` has them.

use nigh_prefetch::Spec;
use serde::Serialize;

use super::timed::sim;
use crate::args::PlanArgs;
use crate::timed;

/// How long the transfer of a block takes, by what a miss waits. On the modelled flash and network volumes, a block of 4 KiB takes 2 to
/// 8 % of it.
const TRANSFER: f64 = 0.05;

/// The effect of read-ahead in a cache as advised.
#[derive(Serialize)]
pub(super) struct Ahead {
    /// The rule that is compared with none.
    pub(super) readahead: String,
    /// The size of the cache.
    pub(super) blocks: u64,
    /// Those with read-ahead, then those without it.
    pub(super) combinations: Vec<Combination>,
    /// The one to serve with, of `combinations`.
    pub(super) serve: usize,
}

#[derive(Serialize)]
pub(super) struct Combination {
    pub(super) policy: String,
    pub(super) readahead: String,
    /// Share of the references whose block is in memory, or on its way.
    pub(super) hit_ratio: f64,
    /// Blocks that are read from the device for each reference.
    pub(super) read_ratio: f64,
}

impl Ahead {
    pub(super) fn to_serve(&self) -> Option<&Combination> {
        self.combinations.get(self.serve)
    }
}

/// The rule that is compared with none, unless that is all that was asked for.
pub(super) fn rule(args: &PlanArgs) -> anyhow::Result<Option<Spec>> {
    let rule = args.readahead.as_deref().map_or(Ok(Spec::SERVED), Spec::served)?;
    Ok(Some(rule).filter(|rule| *rule != Spec::None && args.sample.is_none()))
}

/// Replays the trace again with `policies` in a cache of `blocks`, with and without read-ahead.
pub(super) fn compare(args: &PlanArgs, rule: &Spec, policies: &[String], blocks: u64) -> anyhow::Result<Ahead> {
    let mut combinations = Vec::new();
    for readahead in [rule, &Spec::None] {
        let mut sim = sim(args)?;
        sim.policy = policies.to_vec();
        sim.size = vec![format!("{blocks}b")];
        sim.timed.readahead = Some(readahead.to_string());
        combinations.extend(timed::rows_at_once(&sim)?.into_iter().map(|row| Combination {
            read_ratio: row.read_ratio().unwrap_or_default(),
            policy: row.policy,
            readahead: readahead.to_string(),
            hit_ratio: row.hit_ratio,
        }));
    }
    let serve = best(&combinations);
    Ok(Ahead { readahead: rule.to_string(), blocks, combinations, serve })
}

/// The combination that waits least, for misses and for transfers; the first of several.
fn best(combinations: &[Combination]) -> usize {
    let waits = |combination: &Combination| 1.0 - combination.hit_ratio + TRANSFER * combination.read_ratio;
    let least = combinations.iter().enumerate().min_by(|(_, one), (_, other)| waits(one).total_cmp(&waits(other)));
    least.map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(combinations: &[(&str, &str, f64, f64)]) -> usize {
        let combination = |&(policy, readahead, hit_ratio, read_ratio): &(&str, &str, f64, f64)| Combination {
            policy: policy.into(),
            readahead: readahead.into(),
            hit_ratio,
            read_ratio,
        };
        best(&combinations.iter().map(combination).collect::<Vec<_>>())
    }

    #[test]
    fn read_ahead_that_does_not_pay_is_off() {
        let none = ("lru", "none", 0.5, 0.5);
        assert_eq!(chosen(&[("lru", "auto", 0.9, 0.55), none]), 0);
        assert_eq!(chosen(&[("lru", "auto", 0.5005, 0.6), none]), 1, "it reads more for nothing");
        assert_eq!(chosen(&[("lru", "auto", 0.5, 0.5), none]), 0, "it changes nothing");
        let lirs = ("lirs", "none", 0.6, 0.4);
        assert_eq!(chosen(&[("lru", "auto", 0.9, 0.5), ("lirs", "auto", 0.85, 0.4), none, lirs]), 0, "not lirs");
        assert_eq!(
            chosen(&[("lru", "auto", 0.72, 0.62), ("lirs", "auto", 0.715, 0.37), none, lirs]),
            1,
            "it reads less"
        );
    }
}
