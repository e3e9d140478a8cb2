//! The hit ratio with less and with more memory, of all shards together.

use nigh_policy::curve::{Measured, PRESENT, Point, QUARTERS};

use crate::settings::BLOCK;

/// The hit ratio that the cache or a tenant would have with less and with more memory, by miniature simulations.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct CurveStatistics {
    /// The simulated policies: one, unless shards have different ones.
    pub policy: String,
    /// If there is no curve, the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none: Option<String>,
    /// References since the curve began, or since the policy or the size changed.
    pub references: u64,
    /// Of these, references to blocks of the sample.
    pub sampled: u64,
    /// The sizes, the smallest first.
    pub points: Vec<CurvePoint>,
}

/// One size.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct CurvePoint {
    /// By the present size.
    pub times: f64,
    /// Memory for blocks.
    pub bytes: u64,
    /// Of `sampled` references, those that would have hit.
    pub hits: u64,
    /// The share of recent references that would hit; nothing before it is known.
    pub hit_ratio: Option<f64>,
    /// Half the width of its 95 % confidence interval.
    pub error: Option<f64>,
    /// `hit_ratio` less that of the present size.
    pub gain: Option<f64>,
    /// Half the width of the confidence interval of the gain.
    pub gain_error: Option<f64>,
}

impl CurveStatistics {
    /// Of shards, each with a part of the blocks.
    pub(crate) fn of(shards: Vec<Result<Measured, String>>) -> Option<CurveStatistics> {
        let mut policies = Vec::new();
        let mut measured = Vec::new();
        for shard in shards {
            match shard {
                Ok(shard) => {
                    let policy = shard.policy.to_string();
                    if !policies.contains(&policy) {
                        policies.push(policy);
                    }
                    measured.push(shard);
                }
                Err(reason) => return Some(CurveStatistics::none(reason)),
            }
        }
        if measured.is_empty() {
            return None;
        }
        Some(CurveStatistics {
            policy: policies.join(", "),
            none: None,
            references: measured.iter().map(|shard| shard.references).sum(),
            sampled: measured.iter().map(|shard| shard.sampled).sum(),
            points: (0..QUARTERS.len()).map(|at| CurvePoint::of(&measured, at)).collect(),
        })
    }

    fn none(reason: String) -> CurveStatistics {
        CurveStatistics { policy: String::new(), none: Some(reason), references: 0, sampled: 0, points: Vec::new() }
    }

    /// The point of the present size.
    pub fn present(&self) -> Option<&CurvePoint> {
        self.points.get(PRESENT)
    }
}

impl CurvePoint {
    fn of(shards: &[Measured], at: usize) -> CurvePoint {
        let weight = shards.iter().map(|shard| shard.weight).sum::<f64>().max(1.0);
        let parts = || shards.iter().map(|shard| (shard.weight / weight, &shard.points[at]));
        let mean = |of: fn(&Point) -> f64| parts().map(|(part, point)| part * of(point)).sum::<f64>();
        // Shards have different blocks, so they err independently.
        let error = |of: fn(&Point) -> f64| parts().map(|(part, point)| (part * of(point)).powi(2)).sum::<f64>().sqrt();
        let is_known = shards.iter().all(|shard| shard.points[at].known);
        let has_gain = is_known && shards.iter().all(|shard| shard.points[PRESENT].known);
        CurvePoint {
            times: f64::from(QUARTERS[at]) / 4.0,
            bytes: shards.iter().map(|shard| shard.points[at].blocks * BLOCK).sum(),
            hits: shards.iter().map(|shard| shard.points[at].hits).sum(),
            hit_ratio: is_known.then(|| mean(|point| point.hit_ratio)),
            error: is_known.then(|| error(|point| point.error)),
            gain: has_gain.then(|| mean(|point| point.gain)),
            gain_error: has_gain.then(|| error(|point| point.gain_error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(weight: f64, hit_ratio: f64, known: bool) -> Measured {
        let point = Point { blocks: 10, hits: 5, known, hit_ratio, error: 0.03, gain: 0.1, gain_error: 0.04 };
        let policy = "lru".parse().expect("registered");
        Measured { policy, references: 100, sampled: 10, weight, points: [point; QUARTERS.len()] }
    }

    #[test]
    fn shards_count_by_their_references() {
        let both = CurveStatistics::of(vec![Ok(measured(100.0, 0.5, true)), Ok(measured(300.0, 0.9, true))]).unwrap();
        let point = both.present().unwrap();
        assert_eq!((both.policy.as_str(), both.references, both.sampled), ("lru", 200, 20));
        assert_eq!((point.times, point.bytes, point.hits), (1.0, 20 * BLOCK, 10));
        assert!((point.hit_ratio.unwrap() - 0.8).abs() < 1e-9, "{point:?}");
        let error = (0.25_f64.powi(2) + 0.75_f64.powi(2)).sqrt();
        assert!((point.error.unwrap() - 0.03 * error).abs() < 1e-9, "{point:?}");
        assert!((point.gain_error.unwrap() - 0.04 * error).abs() < 1e-9, "{point:?}");
    }

    #[test]
    fn a_shard_that_does_not_know_leaves_the_point_unknown() {
        let both = CurveStatistics::of(vec![Ok(measured(1.0, 0.5, true)), Ok(measured(1.0, 0.9, false))]).unwrap();
        let point = both.present().unwrap();
        assert_eq!((point.hit_ratio, point.error, point.gain), (None, None, None));
        let none = CurveStatistics::of(vec![Ok(measured(1.0, 0.5, true)), Err("no".into())]).unwrap();
        assert_eq!((none.none.as_deref(), none.points.len()), (Some("no"), 0));
        assert!(CurveStatistics::of(Vec::new()).is_none());
    }
}
