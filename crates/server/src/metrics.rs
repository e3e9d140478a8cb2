//! Statistics: a picture of the server at one moment, and its forms.

use std::fmt;
use std::sync::atomic::Ordering;

use nigh_engine::{Counters, Gauges};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};

use crate::latency::Latencies;
use crate::options::ExportOptions;
use crate::server::Common;
use crate::settings::BLOCK;
use crate::sync::lock;

/// A server at one moment. Counts are since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// Version of this form.
    pub schema: u32,
    /// Which block leaves.
    pub policy: String,
    /// What is fetched ahead of reads.
    pub readahead: String,
    /// Parts of the cache.
    pub shards: u32,
    /// Memory for blocks, in bytes.
    pub memory_bytes: u64,
    /// Of these, in use by blocks that the policy keeps.
    pub resident_bytes: u64,
    /// Memory of blocks in use in any way, in bytes.
    pub frames_bytes: u64,
    /// Memory of indexes and bookkeeping, in bytes; without the policies'.
    pub metadata_bytes: u64,
    /// Blocks that the policy remembers without their contents.
    pub ghosts: u64,
    /// Blocks being loaded.
    pub loading: u64,
    /// Requests in progress, hits not counted.
    pub requests: u64,
    /// Of these, those that wait for memory or for the dirty limit.
    pub waiting: u64,
    /// Operations waiting for a device.
    pub device_queue: u64,
    /// Clients at the moment.
    pub connections: u64,
    /// Clients so far.
    pub accepted: u64,
    /// Connections that were closed at once, since there were as many as allowed.
    pub refused: u64,
    /// Each export.
    pub exports: Vec<ExportStatistics>,
}

/// What became of what was said on behalf of an export's clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TenantStatistics {
    /// Memory of blocks that they own: nobody else uses these.
    pub resident_bytes: u64,
    /// References that their list predicted.
    pub predicted: u64,
    /// References that it did not predict.
    pub unpredicted: u64,
    /// Accesses of a list that did not come.
    pub skipped: u64,
    /// Lists that were dropped because they were too often wrong.
    pub lists_dropped: u64,
    /// Blocks that they gave up instead of the one that LRU would have taken.
    pub overruled: u64,
    /// Of these, blocks that they referenced before that one.
    pub mistakes: u64,
}

/// An export at one moment. Blocks are counted once for each request that references them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportStatistics {
    /// Its name.
    pub name: String,
    /// What it is served from.
    pub target: String,
    /// Its size in bytes.
    pub size: u64,
    /// How it is served; all are there.
    pub options: ExportOptions,
    /// Clients that have it at the moment.
    pub connections: u64,
    /// Clients that could not have it, since there were as many as allowed.
    pub refused: u64,
    /// Read requests, a long one counted once for each of its pieces.
    pub reads: u64,
    /// Write requests, in the same way.
    pub writes: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Referenced blocks that were there.
    pub hits: u64,
    /// Referenced blocks that were not.
    pub misses: u64,
    /// Referenced blocks that were being loaded already.
    pub joined: u64,
    /// Blocks that left to make room.
    pub evictions: u64,
    /// Bytes that the device does not have yet.
    pub dirty_bytes: u64,
    /// Blocks prefetched.
    pub prefetch_issued: u64,
    /// Of these, referenced later.
    pub prefetch_used: u64,
    /// Of those used, still being loaded then.
    pub prefetch_late: u64,
    /// Of those prefetched, gone without a reference.
    pub prefetch_wasted: u64,
    /// Operations of the device.
    pub device_reads: u64,
    /// Their bytes.
    pub device_read_bytes: u64,
    /// Operations of the device.
    pub device_writes: u64,
    /// Their bytes.
    pub device_written_bytes: u64,
    /// Flushes asked of the device; those of several shards at a time become one.
    pub device_flushes: u64,
    /// Operations that the device failed.
    pub device_faults: u64,
    /// Where exports are tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantStatistics>,
    /// From request to reply, of reads that waited for nothing.
    pub hit_latency: LatencySummary,
    /// Of reads that waited.
    pub miss_latency: LatencySummary,
    /// Of writes, zeroes and trims.
    pub write_latency: LatencySummary,
    /// Of flushes.
    pub flush_latency: LatencySummary,
}

/// Latencies in µs, to a quarter of their size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Half are below.
    pub p50_us: u64,
    /// All but one in a hundred are below.
    pub p99_us: u64,
    /// All but one in a thousand are below.
    pub p999_us: u64,
    /// Below how many µs, and how many of them; without empty ones, ascending.
    pub buckets: Vec<(u64, u64)>,
    #[serde(skip)]
    all: Latencies,
}

impl From<Latencies> for LatencySummary {
    fn from(all: Latencies) -> LatencySummary {
        let [p50_us, p99_us, p999_us] = [0.5, 0.99, 0.999].map(|share| all.quantile_us(share));
        LatencySummary { count: all.count(), p50_us, p99_us, p999_us, buckets: all.buckets(), all }
    }
}

/// The picture.
pub(crate) fn statistics(common: &Common) -> Statistics {
    let cache = &common.cache;
    let Gauges { resident, ghosts, frames, loading, requests, waiting, queued, .. } = cache.gauges();
    let disks: Vec<_> = cache.disks.all().into_iter().filter(|disk| !disk.is_leaving()).collect();
    let (connections, of_each) = common.connections(&disks);
    let exports = disks.iter().zip(of_each).map(|(disk, connections)| {
        let settings = disk.settings();
        let (counters, dirty) = cache.counters(disk.volume);
        let Counters { reads, writes, read_bytes, written_bytes, hits, misses, joined, evictions, .. } = counters;
        ExportStatistics {
            name: disk.name.clone(),
            target: settings.target.to_string(),
            size: disk.size(),
            options: ExportOptions::of(&settings),
            connections,
            refused: disk.refusals.count(),
            reads,
            writes,
            read_bytes,
            written_bytes,
            hits,
            misses,
            joined,
            evictions,
            dirty_bytes: dirty * BLOCK,
            prefetch_issued: counters.prefetch_issued,
            prefetch_used: counters.prefetch_used,
            prefetch_late: counters.prefetch_late,
            prefetch_wasted: counters.prefetch_wasted,
            device_reads: counters.device_reads,
            device_read_bytes: counters.device_read_bytes,
            device_writes: counters.device_writes,
            device_written_bytes: counters.device_written_bytes,
            device_flushes: counters.device_flushes,
            device_faults: counters.device_faults,
            tenant: cache.tenant(disk.volume),
            hit_latency: disk.hits.read().into(),
            miss_latency: disk.misses.read().into(),
            write_latency: disk.writes.read().into(),
            flush_latency: disk.flushes.read().into(),
        }
    });
    let exports = exports.collect();
    let settings = lock(&common.settings);
    Statistics {
        schema: 1,
        policy: settings.decides(),
        readahead: cache.readahead.spec().to_string(),
        shards: cache.shards(),
        memory_bytes: settings.memory,
        resident_bytes: u64::from(resident) * BLOCK,
        frames_bytes: u64::from(frames) * BLOCK,
        metadata_bytes: cache.metadata_bytes() as u64,
        ghosts: ghosts.into(),
        loading: loading.into(),
        requests: requests.into(),
        waiting: waiting.into(),
        device_queue: queued.into(),
        connections,
        accepted: common.accepted.load(Ordering::Relaxed),
        refused: common.refusals.count(),
        exports,
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfExport {
    export: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfKind {
    export: String,
    kind: &'static str,
}

/// Latencies as Prometheus' histogram.
struct Buckets<'a>(&'a Latencies);

impl EncodeMetric for Buckets<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Buckets(latencies) = self;
        let sum = latencies.sum_us as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, latencies.count(), &latencies.doublings(), None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Collector for Statistics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Value = fn(&ExportStatistics) -> u64;
        let gauges = [
            ("memory_bytes", "Memory for blocks", self.memory_bytes),
            ("resident_bytes", "Memory of blocks that the policy keeps", self.resident_bytes),
            ("frames_bytes", "Memory of blocks in use in any way", self.frames_bytes),
            ("metadata_bytes", "Memory of indexes and bookkeeping", self.metadata_bytes),
            ("ghost_blocks", "Blocks remembered without their contents", self.ghosts),
            ("loading_blocks", "Blocks being loaded", self.loading),
            ("requests_in_progress", "Requests in progress", self.requests),
            ("requests_waiting", "Requests that wait for memory or for the dirty limit", self.waiting),
            ("device_queue", "Operations waiting for a device", self.device_queue),
            ("connections", "Clients", self.connections),
        ];
        for (name, help, value) in gauges {
            let metric = ConstGauge::new(value as i64);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        for (name, help, value) in [
            ("connections_accepted", "Clients so far", self.accepted),
            ("connections_refused", "Connections beyond the limit, closed at once", self.refused),
        ] {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let mut gauge = |name, help, value: Value| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for export in &self.exports {
                let of = OfExport { export: export.name.clone() };
                ConstGauge::new(value(export) as i64).encode(family.encode_family(&of)?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        gauge("dirty_bytes", "Bytes that the device does not have yet", |export| export.dirty_bytes)?;
        gauge("size_bytes", "Size of the disk", |export| export.size)?;
        let counters: [(&str, &str, Value); 19] = [
            ("clients_refused", "Clients beyond the limit of the export", |export| export.refused),
            ("reads", "Read requests", |export| export.reads),
            ("writes", "Write requests", |export| export.writes),
            ("read_bytes", "Bytes asked for by reads", |export| export.read_bytes),
            ("written_bytes", "Bytes of writes", |export| export.written_bytes),
            ("hits", "Referenced blocks that were there", |export| export.hits),
            ("misses", "Referenced blocks that were not", |export| export.misses),
            ("joined", "Referenced blocks that were being loaded", |export| export.joined),
            ("evictions", "Blocks that left to make room", |export| export.evictions),
            ("prefetch_issued", "Blocks prefetched", |export| export.prefetch_issued),
            ("prefetch_used", "Prefetched blocks referenced later", |export| export.prefetch_used),
            ("prefetch_late", "Of these, still being loaded then", |export| export.prefetch_late),
            ("prefetch_wasted", "Prefetched blocks gone without a reference", |export| export.prefetch_wasted),
            ("device_reads", "Reads of the device", |export| export.device_reads),
            ("device_read_bytes", "Bytes read from the device", |export| export.device_read_bytes),
            ("device_writes", "Writes of the device", |export| export.device_writes),
            ("device_written_bytes", "Bytes written to the device", |export| export.device_written_bytes),
            ("device_flushes", "Flushes asked of the device", |export| export.device_flushes),
            ("device_faults", "Operations that the device failed", |export| export.device_faults),
        ];
        for (name, help, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for export in &self.exports {
                let of = OfExport { export: export.name.clone() };
                ConstCounter::new(value(export)).encode(family.encode_family(&of)?)?;
            }
        }
        type OfTenant = fn(&TenantStatistics) -> u64;
        let tenants: Vec<_> =
            self.exports.iter().filter_map(|export| Some((&export.name, export.tenant.as_ref()?))).collect();
        let mut tenant = |name, help, kind, value: OfTenant| {
            if tenants.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (name, tenant) in &tenants {
                let of = OfExport { export: (*name).clone() };
                let encoder = family.encode_family(&of)?;
                match kind {
                    MetricType::Gauge => ConstGauge::new(value(tenant) as i64).encode(encoder)?,
                    _ => ConstCounter::new(value(tenant)).encode(encoder)?,
                }
            }
            Ok::<_, fmt::Error>(())
        };
        let counter = MetricType::Counter;
        tenant("owned_bytes", "Memory of a tenant's own blocks", MetricType::Gauge, |of| of.resident_bytes)?;
        tenant("predicted", "References that a tenant's list predicted", counter, |of| of.predicted)?;
        tenant("unpredicted", "References that a tenant's list did not predict", counter, |of| of.unpredicted)?;
        tenant("skipped", "Accesses of a tenant's list that did not come", counter, |of| of.skipped)?;
        tenant("lists_dropped", "Lists that were too often wrong", counter, |of| of.lists_dropped)?;
        tenant("overruled", "Blocks given up instead of LRU's", counter, |of| of.overruled)?;
        tenant("mistakes", "Of these, referenced before LRU's", counter, |of| of.mistakes)?;
        let help = "From request to reply";
        let mut family = encoder.encode_descriptor("latency_seconds", help, None, MetricType::Histogram)?;
        for export in &self.exports {
            let kinds = [
                ("hit", &export.hit_latency),
                ("miss", &export.miss_latency),
                ("write", &export.write_latency),
                ("flush", &export.flush_latency),
            ];
            for (kind, summary) in kinds {
                let of = OfKind { export: export.name.clone(), kind };
                Buckets(&summary.all).encode(family.encode_family(&of)?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Buckets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Statistics {
    /// In Prometheus' text format.
    pub fn prometheus(&self) -> String {
        let mut registry = Registry::with_prefix("nigh");
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes any text");
        text
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("statistics are plain data");
        text.push('\n');
        text
    }
}
