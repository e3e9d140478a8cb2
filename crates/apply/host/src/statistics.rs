//! Statistics: the state of the host at one moment.

use std::ops::Range;

use nigh_backend::WriteLogState;
use nigh_engine::{Counters, Gauges};
use nigh_policy::{Candidate, Chosen};

use crate::common::Common;
use crate::content::ContentStatistics;
use crate::curve::CurveStatistics;
use crate::disk::Disk;
use crate::latency::LatencySummary;
use crate::level::LevelStatistics;
use crate::settings::{BLOCK, DiskSettings};
use crate::sync::lock;

/// The state of a host at one moment. Counts are since its start.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct HostStatistics {
    /// The policy or allocation.
    pub policy: String,
    /// The read-ahead.
    pub readahead: String,
    /// Number of shards.
    pub shards: u32,
    /// Memory for blocks, in bytes.
    pub memory_bytes: u64,
    /// The most that it can become while the host runs, in bytes.
    #[serde(default)]
    pub memory_max_bytes: u64,
    /// Of these, in use by blocks that the policy keeps.
    pub resident_bytes: u64,
    /// Memory of all blocks in use, in bytes.
    pub frames_bytes: u64,
    /// Memory of indexes and bookkeeping, in bytes; without the policies'.
    pub metadata_bytes: u64,
    /// Ghosts: blocks that the policy remembers without their contents.
    pub ghosts: u64,
    /// Blocks being loaded.
    pub loading: u64,
    /// Requests in progress, hits not counted.
    pub requests: u64,
    /// Of these, those that wait for memory or for the dirty limit.
    pub waiting: u64,
    /// The most bytes that are not on devices yet; writes wait beyond.
    #[serde(default)]
    pub dirty_limit_bytes: u64,
    /// Operations waiting for a device.
    pub device_queue: u64,
    /// The choice of a policy that chooses among others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChoiceStatistics>,
    /// The hit ratio with less and with more memory, without tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveStatistics>,
    /// Encoded blocks.
    #[serde(default)]
    pub content: Option<ContentStatistics>,
    /// The levels, the highest first.
    #[serde(default)]
    pub levels: Vec<LevelStatistics>,
}

/// The choice of a policy among others, in all shards.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ChoiceStatistics {
    /// Times that another policy took charge, in all shards.
    pub changes: u64,
    /// The policies, in the order in which they were given.
    pub candidates: Vec<CandidateStatistics>,
}

/// A policy that can be chosen.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct CandidateStatistics {
    /// Its name.
    pub policy: String,
    /// The number of shards in which it decides.
    pub shards: u32,
    /// The share of recent references that it would have hit, by its miniature simulations; nothing before the cache is full.
    pub hit_ratio: Option<f64>,
}

impl ChoiceStatistics {
    pub(crate) fn of(shards: &[Chosen]) -> Option<ChoiceStatistics> {
        let first = shards.first()?;
        let candidate = |(at, of): (usize, &Candidate)| {
            let each = || shards.iter().filter_map(|shard| shard.candidates.get(at));
            let [references, hits] = [each().map(|of| of.references).sum(), each().map(|of| of.hits).sum::<u64>()];
            CandidateStatistics {
                policy: of.policy.to_string(),
                shards: each().filter(|of| of.in_charge).count() as u32,
                hit_ratio: (references > 0_u64).then(|| hits as f64 / references as f64),
            }
        };
        let candidates = first.candidates.iter().enumerate().map(candidate).collect();
        Some(ChoiceStatistics { changes: shards.iter().map(|shard| shard.changes).sum(), candidates })
    }

    /// The policies in charge, such as `lirs`, or `lirs (3 shards), mq (1 shard)`.
    pub fn in_charge(&self) -> String {
        let mut chosen: Vec<&CandidateStatistics> = self.candidates.iter().filter(|of| of.shards > 0).collect();
        chosen.sort_by_key(|of| std::cmp::Reverse(of.shards));
        if let [one] = chosen[..] {
            return one.policy.clone();
        }
        let shards = |of: &CandidateStatistics| if of.shards == 1 { "shard" } else { "shards" };
        chosen.iter().map(|of| format!("{} ({} {})", of.policy, of.shards, shards(of))).collect::<Vec<_>>().join(", ")
    }
}

/// The state of a disk at one moment. A block is counted once for each request that references it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct DiskStatistics {
    /// Its name.
    pub name: String,
    /// Its target, or the first of them.
    pub target: String,
    /// Its further targets, in order.
    #[serde(default)]
    pub next: Vec<String>,
    /// The state of each of its targets, in order.
    #[serde(default)]
    pub targets: Vec<TargetStatistics>,
    /// The state of its write log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_log: Option<WriteLogStatistics>,
    /// Its size in bytes.
    pub size: u64,
    /// Read requests, a long one counted once for each of its pieces.
    pub reads: u64,
    /// Write requests, counted in the same way.
    pub writes: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Referenced blocks that were resident.
    pub hits: u64,
    /// Referenced blocks that were not resident.
    pub misses: u64,
    /// Referenced blocks that were being loaded already.
    pub joined: u64,
    /// Blocks that were decoded instead of loaded.
    #[serde(default)]
    pub decoded: u64,
    /// Blocks loaded from levels instead of the device.
    #[serde(default)]
    pub level_hits: u64,
    /// Blocks evicted to make room.
    pub evictions: u64,
    /// Bytes that are not on the device yet.
    pub dirty_bytes: u64,
    /// Whether writes wait ([`Host::freeze`](crate::Host::freeze)).
    #[serde(default)]
    pub frozen: bool,
    /// Whether the device has failed to write blocks for [`Settings::patience`](crate::Settings::patience).
    #[serde(default)]
    pub failing: bool,
    /// If so, the bytes whose last write failed,
    #[serde(default)]
    pub failed_bytes: u64,
    /// and the first of these ranges of bytes.
    #[serde(default)]
    pub failed: Vec<Range<u64>>,
    /// Whether data is lost, because the device failed a flush or memory damaged blocks that were not written yet: since
    /// then, flushes and writes with FUA fail.
    #[serde(default)]
    pub data_lost: bool,
    /// Blocks found to be damaged in memory.
    #[serde(default)]
    pub damaged: u64,
    /// The offsets in bytes of those that were not written yet and have not been overwritten since, at most 16. Reads of
    /// them fail.
    #[serde(default)]
    pub damaged_at: Vec<u64>,
    /// Blocks prefetched.
    pub prefetch_issued: u64,
    /// Of these, blocks that were referenced later.
    pub prefetch_used: u64,
    /// Of those used, blocks that were still being loaded at the reference.
    pub prefetch_late: u64,
    /// Of those prefetched, blocks that left without a reference.
    pub prefetch_wasted: u64,
    /// Read operations of the device.
    pub device_reads: u64,
    /// The bytes of these.
    pub device_read_bytes: u64,
    /// Write operations of the device.
    pub device_writes: u64,
    /// The bytes of these.
    pub device_written_bytes: u64,
    /// Flushes of the device; those of several shards at a time are combined.
    pub device_flushes: u64,
    /// Operations that the device failed.
    pub device_faults: u64,
    /// Operations that a device failed because it has no room (ENOSPC).
    #[serde(default)]
    pub device_full: u64,
    /// How long a device has had operations and completed none, the longest of the disk's devices, in microseconds; 0 if none has any.
    #[serde(default)]
    pub device_silent_us: u64,
    /// Requests that took longer than the service's limit, while it had one.
    #[serde(default)]
    pub slow_requests: u64,
    /// Latency from request to reply of reads that did not wait.
    pub hit_latency: LatencySummary,
    /// Latency of reads that waited.
    pub miss_latency: LatencySummary,
    /// Latency of writes, zeroes and trims.
    pub write_latency: LatencySummary,
    /// Latency of flushes.
    pub flush_latency: LatencySummary,
}

/// The state of a disk's write log at one moment. Counts are since the disk was opened.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct WriteLogStatistics {
    /// The log's target.
    pub target: String,
    /// Bytes that it has room for.
    pub bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// Writes in it that the disk's target does not have.
    pub records: u64,
    /// Age of the oldest of them, in seconds.
    pub oldest_seconds: f64,
    /// Writes to the log.
    pub log_writes: u64,
    /// Bytes of these.
    pub log_written_bytes: u64,
    /// Writes from the log to the disk's target.
    pub home_writes: u64,
    /// Bytes of these.
    pub home_written_bytes: u64,
    /// Memory for its bookkeeping, in bytes.
    pub memory_bytes: u64,
    /// Whether writes wait for room.
    pub full: bool,
    /// Whether the disk's target failed the last writes.
    pub failing: bool,
    /// Why it takes no more writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// With a failure, the first ranges of the disk whose newest bytes its target does not have,
    #[serde(default)]
    pub missing: Vec<Range<u64>>,
    /// how many there are,
    #[serde(default)]
    pub missing_ranges: u64,
    /// and their bytes.
    #[serde(default)]
    pub missing_bytes: u64,
}

impl WriteLogStatistics {
    fn of(state: WriteLogState) -> WriteLogStatistics {
        WriteLogStatistics {
            target: state.target,
            bytes: state.bytes,
            used_bytes: state.used_bytes,
            records: state.records,
            oldest_seconds: state.oldest_us as f64 / 1e6,
            log_writes: state.log_writes,
            log_written_bytes: state.log_bytes,
            home_writes: state.home_writes,
            home_written_bytes: state.home_bytes,
            memory_bytes: state.memory_bytes,
            full: state.is_full,
            failing: state.is_failing,
            failure: state.failure,
            missing: state.missing,
            missing_ranges: state.missing_ranges,
            missing_bytes: state.missing_bytes,
        }
    }
}

/// The state of a target of a disk at one moment.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct TargetStatistics {
    /// As it was written.
    pub target: String,
    /// The bytes of its part of the disk.
    pub bytes: u64,
    /// Bytes that it has received and not made stable, as far as that is known: of disks in object stores and exports of NBD servers.
    pub staged_bytes: u64,
    /// Why it does not do what it is asked at present, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Common {
    /// The present state of the host.
    pub(crate) fn statistics(&self) -> HostStatistics {
        let cache = &self.cache;
        cache.report_all();
        let Gauges { resident, ghosts, frames, loading, requests, waiting, queued, dirty: _ } = cache.gauges();
        let settings = lock(&self.settings);
        HostStatistics {
            policy: settings.decides(),
            readahead: cache.readahead().spec().to_string(),
            shards: cache.shards(),
            memory_bytes: settings.memory,
            memory_max_bytes: settings.memory_max.max(settings.memory),
            resident_bytes: u64::from(resident) * BLOCK,
            frames_bytes: u64::from(frames) * BLOCK,
            metadata_bytes: cache.metadata_bytes() as u64,
            ghosts: ghosts.into(),
            loading: loading.into(),
            requests: requests.into(),
            waiting: waiting.into(),
            dirty_limit_bytes: settings.dirty_limit(),
            device_queue: queued.into(),
            chosen: cache.chosen(),
            curve: cache.curve(),
            content: cache.content_statistics(),
            levels: cache.level_statistics(),
        }
    }

    /// The present state of a disk.
    pub(crate) fn disk_statistics(&self, disk: &Disk) -> DiskStatistics {
        let (counters, dirty) = self.cache.counters(disk);
        let Counters {
            reads,
            writes,
            read_bytes,
            written_bytes,
            hits,
            misses,
            adopted: _,
            joined,
            write_references: _,
            write_hits: _,
            evictions,
            prefetch_issued,
            prefetch_used,
            prefetch_late,
            prefetch_wasted,
            prefetch_dropped: _,
            level_1_hits,
            level_2_hits,
            device_reads,
            device_read_bytes,
            device_writes,
            device_written_bytes,
            device_flushes,
            device_faults,
            damaged,
        } = counters;
        let has_contents = self.cache.contents.is_some();
        let settings = disk.settings();
        let targets = settings.targets().zip(disk.states()).map(|(target, (bytes, staged_bytes, trouble))| {
            TargetStatistics { target: target.to_string(), bytes, staged_bytes, trouble }
        });
        let targets = targets.collect();
        let DiskSettings { target, next, .. } = settings;
        let (failed_bytes, failed) = self.cache.failed(disk);
        let (target, next) = (target.to_string(), next.iter().map(ToString::to_string).collect());
        DiskStatistics {
            name: disk.name().to_owned(),
            target,
            next,
            targets,
            write_log: disk.write_log().map(WriteLogStatistics::of),
            size: disk.size(),
            reads,
            writes,
            read_bytes,
            written_bytes,
            hits,
            misses,
            joined,
            decoded: if has_contents { level_1_hits } else { 0 },
            level_hits: if has_contents { level_2_hits } else { level_1_hits + level_2_hits },
            evictions,
            dirty_bytes: dirty * BLOCK,
            frozen: self.cache.is_frozen(disk),
            failing: disk.is_failing(),
            failed_bytes,
            failed,
            data_lost: disk.lost().is_some(),
            damaged,
            damaged_at: self.cache.damaged(disk),
            prefetch_issued,
            prefetch_used,
            prefetch_late,
            prefetch_wasted,
            device_reads,
            device_read_bytes,
            device_writes,
            device_written_bytes,
            device_flushes,
            device_faults,
            device_full: disk.devices.iter().map(|device| device.full()).sum(),
            device_silent_us: disk
                .devices
                .iter()
                .map(|device| device.silent_us(self.cache.elapsed_us()))
                .max()
                .unwrap_or(0),
            slow_requests: disk.slow(),
            hit_latency: disk.hits.read().into(),
            miss_latency: disk.misses.read().into(),
            write_latency: disk.writes.read().into(),
            flush_latency: disk.flushes.read().into(),
        }
    }
}
