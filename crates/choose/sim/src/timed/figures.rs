//! The figures of one timed run, as every front end shows them.

use super::{Latencies, Outcome};
use crate::rows::{Row, ratio, rounded};

/// The figures that are one number each.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Figures {
    /// The policy with its parameters, or how tenants share the cache.
    pub policy: String,
    /// Blocks in memory.
    pub size_blocks: u64,
    /// Bytes in memory.
    pub size_bytes: u64,
    /// When the last program ended.
    pub execution_s: f64,
    /// How long the disks' devices worked, added up.
    pub device_busy_s: f64,
    /// Requests to them.
    pub device_requests: u64,
    /// Requests for which they moved.
    pub device_seeks: u64,
    /// Read operations of the cache.
    pub device_reads: u64,
    /// Bytes of these.
    pub device_read_bytes: u64,
    /// Write operations of the cache.
    pub device_writes: u64,
    /// Bytes of these.
    pub device_written_bytes: u64,
    /// Bytes of an operation, on average.
    pub mean_request_bytes: f64,
    /// Blocks in a sequence that was read, on average; nothing where nothing was read.
    pub mean_sequence_blocks: Option<f64>,
    /// References to blocks.
    pub references: u64,
    /// References to blocks in memory.
    pub hits: u64,
    /// References to blocks that were on their way.
    pub joined: u64,
    /// References for which a block was read.
    pub misses: u64,
    /// Hits, and those that joined, by references: 0 to 1.
    pub hit_ratio: f64,
    /// The mean latency of reads and writes, as programs see them.
    pub latency_mean_us: Option<f64>,
    /// The latency that half of them do not exceed.
    pub latency_p50_us: Option<f64>,
    /// The same of 99 %.
    pub latency_p99_us: Option<f64>,
    /// The same of 99.9 %.
    pub latency_p999_us: Option<f64>,
    /// The share of the programs' time in which they do not wait; nothing where some do not wait for replies.
    pub idle_share: Option<f64>,
    /// Whether requests of an open loop came faster than they could be replied to.
    pub overloaded: bool,
    /// References that write.
    pub writes: u64,
    /// Of these, those that hit, or found their block on the way.
    pub write_hits: u64,
    /// The hit ratio of reads; nothing where none reads.
    pub read_hit_ratio: Option<f64>,
    /// The hit ratio of writes; nothing where none writes.
    pub write_hit_ratio: Option<f64>,
    /// Blocks that left to make room.
    pub evictions: u64,
    /// Blocks read before a program asked for them.
    pub prefetch_issued: u64,
    /// Of these, those that were used.
    pub prefetch_used: u64,
    /// Of the used, those that a program had to wait for.
    pub prefetch_late: u64,
    /// Those that left unused.
    pub prefetch_wasted: u64,
    /// Blocks that were to be read ahead and for which there was no room.
    pub prefetch_dropped: u64,
    /// Used by issued: 0 to 1.
    pub prefetch_accuracy: Option<f64>,
    /// Blocks that were decoded.
    pub encoded_hits: u64,
    /// Blocks that were loaded from the first level below memory.
    pub level_1_hits: u64,
    /// Blocks that were loaded from the second level.
    pub level_2_hits: u64,
    /// The most blocks that the policy remembers; nothing where their number is not limited.
    pub ghosts: Option<u32>,
}

/// How long requests took.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The latency that half of them do not exceed.
    pub p50_us: f64,
    /// The same of 90 %.
    pub p90_us: f64,
    /// The same of 95 %.
    pub p95_us: f64,
    /// The same of 99 %.
    pub p99_us: f64,
    /// The same of 99.9 %.
    pub p999_us: f64,
}

impl Latency {
    /// Nothing if there were no requests.
    pub fn new(of: &Latencies) -> Option<Latency> {
        let [p50_us, p90_us, p95_us, p99_us, p999_us] =
            [0.5, 0.9, 0.95, 0.99, 0.999].map(|share| of.quantile_us(share).unwrap_or_default());
        let mean_us = of.mean()? / 1e3;
        Some(Latency { count: of.count(), mean_us, p50_us, p90_us, p95_us, p99_us, p999_us })
    }
}

/// Subject of a row.
pub struct Subject {
    /// The policy with its parameters.
    pub policy: String,
    /// Blocks in memory.
    pub size_blocks: u32,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// The most ghosts that the policy remembers, if their number is limited.
    pub ghosts: Option<u32>,
}

impl Figures {
    /// The same without times.
    pub fn untimed(&self) -> Row {
        let Figures { size_blocks, size_bytes, references, misses, .. } = *self;
        Row {
            policy: self.policy.clone(),
            size_blocks,
            size_bytes,
            references,
            hits: references - misses,
            misses,
            hit_ratio: self.hit_ratio,
            miss_ratio: rounded(1.0 - self.hit_ratio),
            writes: self.writes,
            write_hits: self.write_hits,
            read_hit_ratio: self.read_hit_ratio,
            write_hit_ratio: self.write_hit_ratio,
            bytes_missed: misses * (size_bytes / size_blocks),
            evictions: Some(self.evictions),
            cpu_s: None,
            references_per_s: None,
            error: None,
            ghosts: self.ghosts,
            prefetch_issued: Some(self.prefetch_issued),
            prefetch_used: Some(self.prefetch_used),
        }
    }

    /// The figures of `outcome`.
    pub fn new(subject: Subject, outcome: &Outcome) -> Figures {
        let Subject { policy, size_blocks, block_bytes, ghosts } = subject;
        let (cache, device) = (&outcome.cache, &outcome.device);
        let transfers = cache.device_reads + cache.device_writes;
        let transferred = cache.device_read_bytes + cache.device_written_bytes;
        let size_blocks = u64::from(size_blocks);
        let (waited_ns, total_ns) = (outcome.waited_ns.iter().sum::<u64>(), outcome.ends_ns.iter().sum::<u64>());
        let references = cache.hits + cache.joined + cache.misses;
        let latencies = outcome.latencies();
        let (writes, write_hits) = (cache.write_references, cache.write_hits);
        // Encoded blocks are the engine's first level.
        let [encoded_hits, level_1_hits, level_2_hits] = match outcome.encoded {
            Some(_) => [cache.level_1_hits, cache.level_2_hits, 0],
            None => [0, cache.level_1_hits, cache.level_2_hits],
        };
        Figures {
            policy,
            size_blocks,
            size_bytes: size_blocks * u64::from(block_bytes),
            execution_s: seconds(outcome.execution_ns()),
            idle_share: outcome.is_closed.then(|| rounded(1.0 - waited_ns as f64 / total_ns.max(1) as f64)),
            overloaded: outcome.is_overloaded(),
            device_busy_s: seconds(device.busy_ns),
            device_requests: device.requests,
            device_seeks: device.seeks,
            device_reads: cache.device_reads,
            device_read_bytes: cache.device_read_bytes,
            device_writes: cache.device_writes,
            device_written_bytes: cache.device_written_bytes,
            mean_request_bytes: ratio(transferred, transfers).unwrap_or(0.0),
            mean_sequence_blocks: outcome.sequences.mean().map(rounded),
            references,
            hits: cache.hits,
            joined: cache.joined,
            misses: cache.misses,
            hit_ratio: rounded(outcome.hit_ratio()),
            latency_mean_us: latencies.mean().map(|ns| ns / 1e3),
            latency_p50_us: latencies.quantile_us(0.50),
            latency_p99_us: latencies.quantile_us(0.99),
            latency_p999_us: latencies.quantile_us(0.999),
            writes,
            write_hits,
            read_hit_ratio: ratio(
                (cache.hits + cache.joined).saturating_sub(write_hits),
                references.saturating_sub(writes),
            ),
            write_hit_ratio: ratio(write_hits, writes),
            evictions: cache.evictions,
            prefetch_issued: cache.prefetch_issued,
            prefetch_used: cache.prefetch_used,
            prefetch_late: cache.prefetch_late,
            prefetch_wasted: cache.prefetch_wasted,
            prefetch_dropped: cache.prefetch_dropped,
            prefetch_accuracy: ratio(cache.prefetch_used, cache.prefetch_issued),
            encoded_hits,
            level_1_hits,
            level_2_hits,
            ghosts,
        }
    }
}

/// Nanoseconds in seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
