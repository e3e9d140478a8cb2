//! Policies at sizes over one trace, as rows: what every front end shows of a replay.

use nigh_policy::{Spec, SpecError};

use crate::replay::{Series, Watch};
use crate::sample::Misses;
use crate::shards::{as_served, sweep_parts};
use crate::{Job, References, Run, stack, sweep};

/// From this many sizes on, the pass that counts LRU's hits at all sizes takes less time than a replay of each.
const LRU_SIZES_IN_ONE_PASS: usize = 8;

/// One policy at one size.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The policy with its parameters.
    pub policy: String,
    /// Blocks in the cache.
    pub size_blocks: u64,
    /// Bytes in the cache.
    pub size_bytes: u64,
    /// References counted; with a sample, those of the sample.
    pub references: u64,
    /// Of these, those to resident blocks.
    pub hits: u64,
    /// The others.
    pub misses: u64,
    /// 0 to 1; with a sample, estimated for the whole trace.
    pub hit_ratio: f64,
    /// 1 less the hit ratio.
    pub miss_ratio: f64,
    /// References that write; with a sample, of the sample.
    pub writes: u64,
    /// Of these, those to resident blocks.
    pub write_hits: u64,
    /// The hit ratio of references that read; nothing where none reads.
    pub read_hit_ratio: Option<f64>,
    /// The hit ratio of references that write; nothing where none writes.
    pub write_hit_ratio: Option<f64>,
    /// Bytes of the blocks that missed; with a sample, estimated for the whole trace.
    pub bytes_missed: u64,
    /// Blocks that left to make room; nothing where the replay did not count them.
    pub evictions: Option<u64>,
    /// Processor time of the replay, in seconds; nothing where one pass gave several rows.
    pub cpu_s: Option<f64>,
    /// References replayed in a second of processor time.
    pub references_per_s: Option<f64>,
    /// Half the width of the 95 % confidence interval of the ratios, where they come from a sample.
    pub error: Option<f64>,
    /// The most ghosts that the policy remembers at this size; nothing where their number is not limited.
    pub ghosts: Option<u32>,
    /// Blocks fetched ahead; nothing without read-ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch_issued: Option<u64>,
    /// Of these, those that were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch_used: Option<u64>,
}

impl Row {
    /// Blocks read from the device for each reference; nothing without read-ahead.
    pub fn read_ratio(&self) -> Option<f64> {
        self.prefetch_issued.map(|ahead| (self.misses + ahead) as f64 / self.references as f64)
    }

    /// With the references that write, and those of them that hit, beside all.
    pub fn with_writes(self, writes: u64, write_hits: u64) -> Row {
        let (reads, read_hits) = (self.references - writes, self.hits - write_hits);
        Row {
            writes,
            write_hits,
            read_hit_ratio: ratio(read_hits, reads),
            write_hit_ratio: ratio(write_hits, writes),
            ..self
        }
    }
}

/// The replays.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policies.
    pub specs: Vec<Spec>,
    /// The sizes, in blocks of the whole trace.
    pub sizes: Vec<u64>,
    /// Whether LRU's hits at all sizes are wanted. It works on whole caches only.
    pub exact_lru: bool,
    /// The size whose replays read the policy's gauges, and how often.
    pub gauges: Option<(u64, usize)>,
    /// Parts of each cache.
    pub shards: u32,
    /// Threads that replay.
    pub threads: usize,
}

/// Results of the replays.
pub struct Replayed {
    /// A row for each policy and size, in their order.
    pub rows: Vec<Row>,
    /// LRU's hits at all sizes, if the plan asked for them and for LRU.
    pub curve: Option<stack::Curve>,
    /// The gauges over time, with policy and size.
    pub internals: Vec<(String, u64, Series)>,
}

impl Plan {
    fn in_one_pass(&self, spec: &Spec) -> bool {
        let wanted = self.exact_lru || self.sizes.len() >= LRU_SIZES_IN_ONE_PASS;
        wanted && self.shards == 1 && spec.name() == "lru"
    }

    fn jobs(&self, references: &References) -> Vec<Job> {
        let mut jobs = Vec::new();
        for spec in self.specs.iter().filter(|spec| !self.in_one_pass(spec)) {
            for &size in &self.sizes {
                for (at, capacity) in replayed_sizes(references, size).into_iter().enumerate() {
                    let gauges = self.gauges.filter(|&(of, _)| at == 0 && of == size).map_or(0, |(_, points)| points);
                    jobs.push(Job { spec: spec.clone(), capacity, gauges });
                }
            }
        }
        jobs
    }

    /// How many references will be replayed, all passes together: the length of a bar of progress.
    pub fn steps(&self, references: &References) -> u64 {
        let passes = self.jobs(references).len() + self.specs.iter().filter(|spec| self.in_one_pass(spec)).count();
        passes as u64 * references.ids.len() as u64
    }

    /// Replays. `watch.gauges` is not looked at.
    ///
    /// # Panics
    /// If there are no references.
    pub fn replay(&self, references: &References, watch: Watch) -> Result<Replayed, SpecError> {
        assert!(!references.ids.is_empty(), "there is something to replay");
        let wants_curve = self.specs.iter().any(|spec| self.in_one_pass(spec));
        let curve = wants_curve.then(|| stack::curve(references, watch));
        let jobs = self.jobs(references);
        let runs = match self.shards {
            1 => sweep(references, &jobs, self.threads, watch)?,
            shards => sweep_parts(&as_served(references, shards), &jobs, self.threads, watch)?,
        };
        let (mut rows, mut internals) = (Vec::new(), Vec::new());
        let mut runs = runs.into_iter();
        for spec in &self.specs {
            if let Some(curve) = curve.as_ref().filter(|_| self.in_one_pass(spec)) {
                rows.extend(self.sizes.iter().map(|&size| row_of_curve(references, spec, curve, size)));
                continue;
            }
            for &size in &self.sizes {
                let of_size: Vec<Run> = runs.by_ref().take(replayed_sizes(references, size).len()).collect();
                let of_part = ghosts(spec, (size / u64::from(self.shards)).max(1));
                let ghosts = of_part.map(|of_part| of_part.saturating_mul(self.shards));
                rows.push(row(references, &spec.to_string(), size, ghosts, &of_size));
                let series = of_size.into_iter().next().map(|run| run.series);
                let series = series.filter(|series| !series.points.is_empty());
                internals.extend(series.map(|series| (spec.to_string(), size, series)));
            }
        }
        Ok(Replayed { rows, curve: curve.filter(|_| self.exact_lru), internals })
    }
}

/// The most ghosts that the policy remembers with a cache of `size` blocks, if their number is limited.
pub fn ghosts(spec: &Spec, size: u64) -> Option<u32> {
    let capacity = u32::try_from(size).unwrap_or(u32::MAX).max(1);
    nigh_policy::ghosts(spec, capacity).ok().filter(|&ghosts| ghosts < u32::MAX)
}

/// The sizes with which a cache of `size` blocks is replayed: one, and for a sample two more, from which its error is
/// estimated. More than all blocks there are never makes a difference.
pub fn replayed_sizes(references: &References, size: u64) -> Vec<u32> {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let sizes = match references.sample {
        Some(sample) => {
            let [less, more] = sample.around(size);
            vec![sample.scaled(size), less, more]
        }
        None => vec![size],
    };
    sizes.into_iter().map(|size| size.clamp(1, references.distinct())).collect()
}

/// The row of `runs`, one for each of the [`replayed_sizes`] of `size`, of a policy with this many `ghosts`.
///
/// # Panics
/// If there are fewer.
pub fn row(references: &References, policy: &str, size: u64, ghosts: Option<u32>, runs: &[Run]) -> Row {
    let run = &runs[0];
    let misses: Vec<u64> = runs.iter().map(|run| run.counts.references - run.counts.hits).collect();
    Row {
        evictions: Some(run.counts.evictions),
        cpu_s: Some(run.cpu_s),
        references_per_s: (run.cpu_s > 0.0).then(|| references.ids.len() as f64 / run.cpu_s),
        ghosts,
        ..ratios(references, policy, size, run.counts.references, &misses, run.counts.misses_squared as f64)
    }
    .with_writes(run.counts.writes, run.counts.write_hits)
}

fn row_of_curve(references: &References, spec: &Spec, curve: &stack::Curve, size: u64) -> Row {
    Row { ghosts: ghosts(spec, size), ..at_size(references, &spec.to_string(), curve, size) }
}

/// LRU at the sizes of [`corners`], without ghosts, of which it has none.
pub fn at_corners<'a>(references: &'a References, curve: &'a stack::Curve) -> impl Iterator<Item = Row> + 'a {
    corners(references, curve).0.into_iter().map(move |size| at_size(references, "lru", curve, size))
}

fn at_size(references: &References, policy: &str, curve: &stack::Curve, size: u64) -> Row {
    let sizes = replayed_sizes(references, size);
    let misses: Vec<u64> = sizes.iter().map(|&size| curve.references - curve.hits(size)).collect();
    ratios(references, policy, size, curve.references, &misses, curve.misses_squared(sizes[0]))
        .with_writes(curve.writes, curve.write_hits(sizes[0]))
}

/// Ratios of `misses` at the [`replayed_sizes`] of `size`, of `counted` references.
fn ratios(references: &References, policy: &str, size: u64, counted: u64, misses: &[u64], misses_squared: f64) -> Row {
    let counted_of_trace = references.totals.references as f64 * (counted as f64 / references.ids.len() as f64);
    let estimate = references.sample.map(|sample| {
        let around = [misses[1], misses[2]];
        sample.estimate(counted_of_trace, &Misses { counted: misses[0], squared: misses_squared, around })
    });
    let misses = misses[0];
    let miss_ratio = estimate.map_or(misses as f64 / counted as f64, |estimate| estimate.miss_ratio);
    let missed = match references.sample {
        Some(_) => (miss_ratio * counted_of_trace).round() as u64,
        None => misses,
    };
    Row {
        policy: policy.to_owned(),
        size_blocks: size,
        size_bytes: size.saturating_mul(u64::from(references.block_bytes)),
        references: counted,
        hits: counted - misses,
        misses,
        hit_ratio: rounded(1.0 - miss_ratio),
        miss_ratio: rounded(miss_ratio),
        writes: 0,
        write_hits: 0,
        read_hit_ratio: None,
        write_hit_ratio: None,
        bytes_missed: missed.saturating_mul(u64::from(references.block_bytes)),
        evictions: None,
        cpu_s: None,
        references_per_s: None,
        error: estimate.map(|estimate| rounded(estimate.error)),
        ghosts: None,
        prefetch_issued: None,
        prefetch_used: None,
    }
}

/// Ratios are given to eight digits behind the point: enough for every reference of a long trace.
pub fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}

/// The share that `part` is of `whole`, [`rounded`]; nothing of nothing.
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| rounded(part as f64 / whole as f64))
}

/// The sizes at which a block more brings hits more, in blocks of the whole trace, and the hits there.
pub fn corners(references: &References, curve: &stack::Curve) -> (Vec<u64>, Vec<u64>) {
    let scale = references.sample.map_or(1.0, |sample| 1.0 / sample.rate());
    curve.corners().map(|(size, hits)| ((f64::from(size) * scale).round() as u64, hits)).unzip()
}
