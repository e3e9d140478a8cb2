//! The change of a server's counters between two samples.

use std::time::Instant;

use nigh_service::{BLOCK, ChoiceStatistics, Counts, CurveStatistics, LevelStatistics, Statistics, TenantStatistics};
use serde::Serialize;

use crate::args::SortArg;

/// Statistics, and when they were sampled.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) status: Statistics,
}

/// The change of counters between two samples, and the state at the second.
#[derive(Debug, Serialize)]
pub(super) struct Interval {
    schema: u32,
    seconds: f64,
    pub(super) policy: String,
    /// The policies in charge, if `policy` chooses among others.
    pub(super) chosen: Option<String>,
    /// The hit ratio with less and with more memory, without tenants.
    pub(super) curve: Option<CurveStatistics>,
    pub(super) memory_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) connections: u64,
    pub(super) device_queue: u64,
    pub(super) total: Row,
    pub(super) exports: Vec<Row>,
    pub(super) content: Option<ContentRow>,
    pub(super) levels: Vec<LevelRow>,
    /// Of a cache that has tenants.
    pub(super) tenants: Vec<TenantRow>,
}

/// Encoded blocks.
#[derive(Debug, Serialize)]
pub(super) struct ContentRow {
    scheme: String,
    /// The memory that they may take, and that they would take as they are.
    pub(super) bytes: u64,
    pub(super) blocks_bytes: u64,
    pub(super) decoded_per_s: f64,
}

/// A level below the memory.
#[derive(Debug, Serialize)]
pub(super) struct LevelRow {
    path: String,
    /// Bytes of its blocks.
    pub(super) stored_bytes: u64,
    pub(super) bytes: u64,
    /// Blocks that were loaded from it.
    pub(super) hits_per_s: f64,
    /// Blocks that the server of a level on another host no longer had.
    pub(super) missed_per_s: f64,
    /// Connections to that server that were lost since the start.
    pub(super) lost: u64,
    /// Its device failed, or its server cannot be reached.
    pub(super) off: bool,
}

/// A tenant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TenantRow {
    pub(super) name: String,
    pub(super) resident_bytes: u64,
    /// The most bytes that it can have of the full cache at present, if the allocation gives it a share.
    pub(super) share: Option<u64>,
    /// References that its list predicted, of those made while it had one; none without any.
    pub(super) predicted: Option<f64>,
    /// Its policy, or that in charge, if its policy chooses among others.
    pub(super) policy: String,
    /// Its hit ratio with less and with more memory.
    pub(super) curve: Option<CurveStatistics>,
}

impl TenantRow {
    fn between(before: Option<&TenantStatistics>, now: &TenantStatistics) -> TenantRow {
        let since = |count: fn(&TenantStatistics) -> u64| count(now).saturating_sub(before.map_or(0, count));
        let (predicted, unpredicted) = (since(|of| of.predicted), since(|of| of.unpredicted));
        let all = predicted + unpredicted;
        TenantRow {
            name: now.name.clone(),
            resident_bytes: now.resident_bytes,
            share: now.share,
            predicted: (all > 0).then(|| predicted as f64 / all as f64),
            policy: now.chosen.as_ref().map_or_else(|| now.policy.clone(), ChoiceStatistics::in_charge),
            curve: now.curve.clone(),
        }
    }
}

/// An export, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Of the referenced blocks; none where nothing was referenced.
    pub(super) hit_ratio: Option<f64>,
    pub(super) requests_per_s: f64,
    /// Read and written.
    pub(super) bytes_per_s: f64,
    /// Of reads and writes, from request to reply; none without any.
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
    pub(super) dirty_bytes: u64,
    pub(super) connections: u64,
    /// Blocks fetched ahead.
    pub(super) prefetch_issued_per_s: f64,
    /// Blocks fetched ahead, now or before, that were referenced.
    pub(super) prefetch_used_per_s: f64,
    /// Blocks fetched ahead, now or before, that left without that.
    pub(super) prefetch_wasted_per_s: f64,
    /// Those used of those used or wasted; none without any.
    pub(super) prefetch_accuracy: Option<f64>,
    /// Of those used, those that were still on their way then; none without any.
    pub(super) prefetch_lateness: Option<f64>,
}

fn row(of: &Counts, name: &str, seconds: f64, dirty_bytes: u64, connections: u64) -> Row {
    let rate = |count| count as f64 / seconds;
    let share = |part, all| (all > 0).then(|| part as f64 / all as f64);
    Row {
        name: name.to_owned(),
        hit_ratio: of.hit_ratio(),
        requests_per_s: rate(of.requests),
        bytes_per_s: rate(of.read_bytes + of.written_bytes),
        p50_us: of.quantile_us(0.5),
        p99_us: of.quantile_us(0.99),
        dirty_bytes,
        connections,
        prefetch_issued_per_s: rate(of.prefetch_issued),
        prefetch_used_per_s: rate(of.prefetch_used),
        prefetch_wasted_per_s: rate(of.prefetch_wasted),
        prefetch_accuracy: share(of.prefetch_used, of.prefetch_used + of.prefetch_wasted),
        prefetch_lateness: share(of.prefetch_late, of.prefetch_used),
    }
}

impl Interval {
    pub(super) fn between(first: &Look, second: &Look) -> Interval {
        let seconds = second.at.duration_since(first.at).as_secs_f64().max(1e-3);
        let now = &second.status;
        let mut sum = Counts::default();
        let exports = now.exports.iter().map(|export| {
            let before = first.status.exports.iter().find(|before| before.disk.name == export.disk.name);
            let counts = Counts::of(&export.disk).since(before.map(|before| Counts::of(&before.disk)).as_ref());
            sum.add(&counts);
            row(&counts, &export.disk.name, seconds, export.disk.dirty_bytes, export.connections)
        });
        let exports: Vec<Row> = exports.collect();
        let content = now.host.content.as_ref().map(|content| {
            let before = first.status.host.content.as_ref().map_or(0, |before| before.decoded);
            ContentRow {
                scheme: content.scheme.clone(),
                bytes: content.bytes,
                blocks_bytes: content.blocks * BLOCK,
                decoded_per_s: content.decoded.saturating_sub(before) as f64 / seconds,
            }
        });
        let levels = now.host.levels.iter().map(|level| {
            let before = first.status.host.levels.iter().find(|before| before.path == level.path);
            let since = |count: fn(&LevelStatistics) -> u64| count(level).saturating_sub(before.map_or(0, count));
            let (hits, missed) = (since(|level| level.hits), since(|level| level.missed));
            LevelRow {
                path: level.path.clone(),
                stored_bytes: level.stored * BLOCK,
                bytes: level.bytes,
                hits_per_s: hits as f64 / seconds,
                missed_per_s: missed as f64 / seconds,
                lost: level.lost,
                off: level.off,
            }
        });
        let tenants = now.tenants.iter().map(|tenant| {
            let before = first.status.tenants.iter().find(|before| before.name == tenant.name);
            TenantRow::between(before, tenant)
        });
        let tenants = tenants.collect();
        let dirty = exports.iter().map(|row| row.dirty_bytes).sum();
        Interval {
            schema: 1,
            seconds,
            policy: now.host.policy.clone(),
            chosen: now.host.chosen.as_ref().map(ChoiceStatistics::in_charge),
            curve: now.host.curve.clone(),
            memory_bytes: now.host.memory_bytes,
            resident_bytes: now.host.resident_bytes,
            connections: now.connections,
            device_queue: now.host.device_queue,
            total: row(&sum, "total", seconds, dirty, now.connections),
            exports,
            content,
            levels: levels.collect(),
            tenants,
        }
    }

    pub(super) fn sort(&mut self, by: SortArg) {
        // Largest first, and as they were where they are equal.
        let largest = |rows: &mut [Row], key: fn(&Row) -> f64| rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
        let rows = &mut self.exports;
        match by {
            SortArg::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            SortArg::Requests => largest(rows, |row| row.requests_per_s),
            SortArg::Bytes => largest(rows, |row| row.bytes_per_s),
            SortArg::Hits => largest(rows, |row| -row.hit_ratio.unwrap_or(2.0)),
            SortArg::Latency => largest(rows, |row| row.p99_us.unwrap_or(0) as f64),
            SortArg::Dirty => largest(rows, |row| row.dirty_bytes as f64),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    fn export(name: &str, hits: u64, misses: u64) -> serde_json::Value {
        let latency = |count: u64, end: u64| serde_json::json!({ "count": count, "p50_us": end, "p99_us": end, "p999_us": end, "buckets": [[end, count]] });
        let zero = ["joined", "writes", "written_bytes", "evictions"];
        let prefetch = ["issued", "used", "late", "wasted"];
        let device = ["reads", "read_bytes", "writes", "written_bytes", "flushes", "faults"];
        let mut of = serde_json::json!({
            "name": name, "target": "memory:1M", "size": 1 << 20, "options": {}, "connections": 1, "refused": 0, "dirty_bytes": 8192,
            "reads": hits + misses, "read_bytes": 4096 * (hits + misses), "hits": hits, "misses": misses,
            "hit_latency": latency(hits, 10), "miss_latency": latency(misses, 5000),
            "write_latency": latency(0, 1), "flush_latency": latency(0, 1),
        });
        zero.iter().for_each(|name| of[*name] = 0.into());
        // Of three fetched ahead for each hit, one is used, a tenth of the time too late, and half of one wasted.
        let ahead = [3 * hits, hits, hits / 10, hits / 2];
        prefetch.iter().zip(ahead).for_each(|(name, count)| of[format!("prefetch_{name}")] = count.into());
        device.iter().for_each(|name| of[format!("device_{name}")] = 0.into());
        of
    }

    pub(in crate::top) fn look(at: Instant, exports: &[(&str, u64, u64)]) -> Look {
        // Half of the first one's misses are found in the level.
        let loaded = exports.first().map_or(0, |(_, _, misses)| misses / 2);
        let mut level =
            serde_json::json!({ "path": "/fast", "bytes": 4 << 20, "stored": 256, "hits": loaded, "off": false });
        let zero = ["blocks", "warm_blocks", "stores", "drops", "evictions", "invalidations", "mismatches", "reads"];
        let device = ["read_bytes", "writes", "written_bytes", "faults"];
        zero.iter().chain(&device).for_each(|name| level[*name] = 0.into());
        let exports: Vec<_> = exports.iter().map(|(name, hits, misses)| export(name, *hits, *misses)).collect();
        let status = serde_json::json!({
            "schema": 1, "policy": "lirs", "readahead": "none", "shards": 1, "memory_bytes": 1 << 20, "resident_bytes": 1 << 19,
            "frames_bytes": 0, "metadata_bytes": 0, "ghosts": 0, "loading": 0, "requests": 0, "waiting": 0,
            "device_queue": 3, "connections": 2, "accepted": 2, "refused": 0, "exports": exports,
            "levels": [level],
        });
        Look { at, status: serde_json::from_value(status).unwrap() }
    }

    #[test]
    fn rates_are_of_the_interval() {
        let begin = Instant::now();
        let first = look(begin, &[("a", 1000, 1000), ("b", 5, 5), ("back", 50, 50)]);
        let second =
            look(begin + Duration::from_secs(2), &[("a", 1090, 1010), ("b", 5, 5), ("back", 4, 0), ("new", 0, 2)]);
        let mut interval = Interval::between(&first, &second);
        let row = |name: &str| interval.exports.iter().find(|row| row.name == name).unwrap().clone();
        let a = row("a");
        assert_eq!((a.hit_ratio, a.requests_per_s, a.bytes_per_s), (Some(0.9), 50.0, 204_800.0));
        assert_eq!((a.p50_us, a.p99_us), (Some(10), Some(5000)));
        assert_eq!((a.prefetch_issued_per_s, a.prefetch_used_per_s, a.prefetch_wasted_per_s), (135.0, 45.0, 22.5));
        assert_eq!((a.prefetch_accuracy, row("b").prefetch_accuracy), (Some(2.0 / 3.0), None));
        assert_eq!((a.prefetch_lateness, row("b").prefetch_lateness), (Some(0.1), None));
        let b = row("b");
        assert_eq!((b.hit_ratio, b.requests_per_s, b.p50_us), (None, 0.0, None));
        assert_eq!(row("back").requests_per_s, 2.0, "it was removed and added again");
        assert_eq!(row("new").hit_ratio, Some(0.0));
        assert_eq!((interval.total.requests_per_s, interval.total.dirty_bytes), (53.0, 32768));
        let level = &interval.levels[0];
        assert_eq!((level.stored_bytes, level.hits_per_s), (1 << 20, 2.5));
        for (by, order) in [
            (SortArg::Name, ["a", "b", "back", "new"]),
            (SortArg::Requests, ["a", "back", "new", "b"]),
            (SortArg::Hits, ["new", "a", "back", "b"]),
            (SortArg::Latency, ["new", "a", "back", "b"]),
        ] {
            interval.sort(by);
            let names: Vec<&str> = interval.exports.iter().map(|row| row.name.as_str()).collect();
            // Equal ones stay as they were.
            if by == SortArg::Latency {
                assert_eq!((names[2], names[3]), ("back", "b"));
            } else {
                assert_eq!(names, order);
            }
        }
    }
}
