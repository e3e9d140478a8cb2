//! The best policy by size of the cache, and the sizes at which another one takes over.

use std::collections::{BTreeMap, BTreeSet};

use nigh_policy::Spec;
use nigh_sim::Row;
use nigh_sim::plan::GAIN_LEAST;
use serde::Serialize;

use crate::size::human_bytes;

/// A policy that hits the most, or less by under a point and the errors of both figures, at each replayed size of a range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Leader {
    policy: String,
    from_blocks: u64,
    from_bytes: u64,
    to_blocks: u64,
    to_bytes: u64,
}

/// A policy at a size.
#[derive(Clone, Copy, Debug)]
struct Point<'a> {
    policy: &'a str,
    blocks: u64,
    bytes: u64,
    ratio: f64,
    /// Of `ratio`.
    error: f64,
}

/// As few policies as cover the sizes at which all policies were replayed, smallest sizes first; none if fewer than two policies
/// can be chosen, or there is one such size. A policy is followed by another where it certainly hits a point less than the best.
pub(crate) fn leaders(rows: &[Row]) -> Vec<Leader> {
    let points = rows.iter().map(|row| Point {
        policy: &row.policy,
        blocks: row.size_blocks,
        bytes: row.size_bytes,
        ratio: row.hit_ratio,
        error: row.error.unwrap_or(0.0),
    });
    of_points(points.filter(|point| point.policy.parse::<Spec>().is_ok_and(|spec| !spec.info().offline)).collect())
}

fn of_points(points: Vec<Point>) -> Vec<Leader> {
    let policies: BTreeSet<&str> = points.iter().map(|point| point.policy).collect();
    let mut by_size: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for point in points {
        by_size.entry(point.blocks).or_default().push(point);
    }
    let sizes: Vec<Vec<Point>> = by_size.into_values().filter(|at| at.len() == policies.len()).collect();
    let mut found = Vec::new();
    let mut rest = &sizes[..];
    while let ([first, ..], true) = (rest, policies.len() > 1 && sizes.len() > 1) {
        // The policy that stays near the best for the most sizes, and of such policies the one with the most hits there.
        let reach = |policy: &str| {
            rest.iter().map_while(|at| near_best(at, policy)).fold((0, 0.0), |(n, sum), ratio| (n + 1, sum + ratio))
        };
        let mut best = (first[0], reach(first[0].policy));
        for &point in &first[1..] {
            let (length, hits) = reach(point.policy);
            if length > best.1.0 || length == best.1.0 && hits > best.1.1 {
                best = (point, (length, hits));
            }
        }
        let (Point { policy, blocks, bytes, .. }, (length, _)) = best;
        let last = rest[length - 1][0];
        found.push(Leader {
            policy: policy.to_owned(),
            from_blocks: blocks,
            from_bytes: bytes,
            to_blocks: last.blocks,
            to_bytes: last.bytes,
        });
        rest = &rest[length..];
    }
    found
}

/// The hit ratio of a policy, unless another one of `points`, which have one size, is certainly better by a point.
fn near_best(points: &[Point], policy: &str) -> Option<f64> {
    let own = points.iter().find(|point| point.policy == policy)?;
    let is_better = |other: &Point| other.ratio - own.ratio - (other.error + own.error) >= GAIN_LEAST;
    (!points.iter().any(is_better)).then_some(own.ratio)
}

/// `leaders` in words, without a full stop, if there are any.
pub(crate) fn sentence(leaders: &[Leader]) -> Option<String> {
    let upto = |leader: &Leader| format!("{} up to {}", leader.policy, human_bytes(leader.to_bytes));
    match leaders {
        [] => None,
        [only] => Some(format!("{} hits the most at each of these sizes, or within a point of it", only.policy)),
        [before @ .., last] => Some(format!(
            "the best policy changes with the size, by a point or more: {}, {} from {} on",
            before.iter().map(upto).collect::<Vec<_>>().join(", "),
            last.policy,
            human_bytes(last.from_bytes)
        )),
    }
}

/// `sentence` with a capital and a full stop.
pub(crate) fn fact(leaders: &[Leader]) -> Option<String> {
    let text = sentence(leaders)?;
    match leaders {
        // Names of policies have no capitals.
        [_] => Some(format!("{text}.")),
        _ => Some(format!("T{}.", text.strip_prefix('t').unwrap_or(&text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policies with their ratios at 1, 2, … blocks.
    fn leaders(ratios: &[(&'static str, &[f64])], error: f64) -> Vec<(String, u64, u64)> {
        let points = ratios.iter().flat_map(|&(policy, ratios)| {
            (1..).zip(ratios).map(move |(blocks, &ratio)| Point { policy, blocks, bytes: blocks * 4096, ratio, error })
        });
        let found = of_points(points.collect());
        found.into_iter().map(|leader| (leader.policy, leader.from_blocks, leader.to_blocks)).collect()
    }

    #[test]
    fn the_best_policy_changes_where_another_is_a_point_better() {
        let lru: &[f64] = &[0.10, 0.20, 0.50, 0.60];
        let change = leaders(&[("lru", lru), ("lirs", &[0.30, 0.40, 0.45, 0.60])], 0.0);
        assert_eq!(change, [("lirs".to_owned(), 1, 2), ("lru".to_owned(), 3, 4)]);
        // Within the errors of both, the difference of 0.05 at the third size is none.
        let noise = leaders(&[("lru", lru), ("lirs", &[0.30, 0.40, 0.45, 0.60])], 0.021);
        assert_eq!(noise, [("lirs".to_owned(), 1, 4)]);
        // Less than a point is no change; of policies that hold for as long, the one with the most hits is named.
        let near = leaders(&[("lru", lru), ("arc", &[0.105, 0.205, 0.495, 0.60])], 0.0);
        assert_eq!(near, [("arc".to_owned(), 1, 4)]);
        assert_eq!(leaders(&[("lru", lru)], 0.0), []);
        // A size at which one policy was not replayed is not compared.
        assert_eq!(leaders(&[("lru", lru), ("lirs", &[0.30])], 0.0), []);
    }
}
