//! Statistics: a picture of the server at one moment, and its forms.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use nigh_host::{
    CandidateStatistics, ChoiceStatistics, ContentStatistics, CurvePoint, CurveStatistics, DiskStatistics,
    HostStatistics, Latencies, LevelServerStatistics, LevelStatistics, TenantStatistics, WriteLogStatistics,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};

use crate::clients::{Common, Counts};
use crate::export::Export;
use crate::options::ExportOptions;
use crate::pending::{PendingExport, PendingState};
use crate::rates::Rates;
use crate::recording::RecordingStatus;

/// A server at one moment. Counts are since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// Version of this form.
    pub schema: u32,
    /// Version of the server.
    #[serde(default)]
    pub version: String,
    /// Since the start, in seconds.
    #[serde(default)]
    pub uptime_seconds: u64,
    /// The cache.
    #[serde(flatten)]
    pub host: HostStatistics,
    /// Clients at the moment.
    pub connections: u64,
    /// The most clients at a time.
    #[serde(default)]
    pub connections_max: u64,
    /// Clients so far.
    pub accepted: u64,
    /// Connections that were closed at once, since there were as many as allowed.
    pub refused: u64,
    /// Requests that take longer are slow, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_limit_us: Option<u64>,
    /// The recording there is, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingStatus>,
    /// Each export.
    pub exports: Vec<ExportStatistics>,
    /// Exports that are being opened or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingExport>,
    /// Each tenant of a cache that has tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantStatistics>,
}

/// An export at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportStatistics {
    /// The disk.
    #[serde(flatten)]
    pub disk: DiskStatistics,
    /// How it is served; all are there.
    pub options: ExportOptions,
    /// How clients connect to it.
    #[serde(default)]
    pub uris: Vec<String>,
    /// Clients that have it at the moment.
    pub connections: u64,
    /// Clients that could not have it, since there were as many as allowed.
    pub refused: u64,
    /// The memory of its encoded blocks; a block that several share counts in equal parts.
    #[serde(default)]
    pub encoded_bytes: u64,
    /// Requests of the last minute.
    #[serde(default)]
    pub rates: Rates,
}

/// The picture.
pub(crate) fn statistics(common: &Common) -> Statistics {
    let exports = common.exports();
    let (Counts { connections, accepted, refused }, of_each) = common.connections(&exports);
    let encoded = common.host.encoded_bytes();
    let statistics = |(export, connections): (&Arc<Export>, u64)| {
        let (now, disk) = (Instant::now(), common.host.disk_statistics(&export.disk));
        ExportStatistics {
            rates: common.meter.rates(now, &disk),
            disk,
            options: ExportOptions::of(&export.settings()),
            uris: common.uris(export),
            connections,
            refused: export.refusals.count(),
            encoded_bytes: encoded.get(export.name()).copied().unwrap_or(0),
        }
    };
    let exports = exports.iter().zip(of_each).map(statistics).collect();
    let (host, tenants) = (common.host.host_statistics(), common.host.tenant_statistics());
    let recording = common.recorder.status();
    let mut pending = common.opening.list();
    pending.extend(common.leaving().into_iter().map(|(export, time)| PendingExport {
        name: export.name().to_owned(),
        state: PendingState::Removing,
        seconds: time.as_secs(),
    }));
    Statistics {
        schema: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: common.started.elapsed().as_secs(),
        host,
        connections,
        connections_max: common.connections_max as u64,
        accepted,
        refused,
        slow_limit_us: common.recorder.slow.limit().map(|limit| limit.as_micros() as u64),
        recording,
        exports,
        pending,
        tenants,
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfBuild {
    version: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfExport {
    export: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfPolicy {
    tenant: String,
    policy: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfLevel {
    level: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfLevelServer {
    server: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfSize {
    /// Empty for the whole cache.
    tenant: String,
    /// By the present size.
    times: String,
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
        encoder.encode_histogram::<NoLabelSet>(sum, latencies.count(), &latencies.eighths(), None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Collector for Statistics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Value = fn(&ExportStatistics) -> u64;
        let gauges = [
            ("memory_bytes", "Memory for blocks", self.host.memory_bytes),
            ("resident_bytes", "Memory of blocks that the policy keeps", self.host.resident_bytes),
            ("frames_bytes", "Memory of blocks in use in any way", self.host.frames_bytes),
            ("metadata_bytes", "Memory of indexes and bookkeeping", self.host.metadata_bytes),
            ("ghost_blocks", "Blocks remembered without their contents", self.host.ghosts),
            ("loading_blocks", "Blocks being loaded", self.host.loading),
            ("requests_in_progress", "Requests in progress", self.host.requests),
            ("requests_waiting", "Requests that wait for memory or for the dirty limit", self.host.waiting),
            (
                "dirty_limit_bytes",
                "The most bytes that devices do not have yet; writes wait beyond",
                self.host.dirty_limit_bytes,
            ),
            ("device_queue", "Operations waiting for a device", self.host.device_queue),
            ("connections", "Clients", self.connections),
            ("connections_max", "The most clients at a time", self.connections_max),
            ("uptime_seconds", "Time since the start", self.uptime_seconds),
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
        let mut family = encoder.encode_descriptor("build_info", "1, for this version", None, MetricType::Gauge)?;
        let of = OfBuild { version: self.version.clone() };
        ConstGauge::new(1i64).encode(family.encode_family(&of)?)?;
        self.encode_choices(&mut encoder)?;
        self.encode_curves(&mut encoder)?;
        let mut gauge = |name, help, value: Value| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for export in &self.exports {
                let of = OfExport { export: export.disk.name.clone() };
                ConstGauge::new(value(export) as i64).encode(family.encode_family(&of)?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        gauge("dirty_bytes", "Bytes that the device does not have yet", |export| export.disk.dirty_bytes)?;
        gauge("data_lost", "Whether data is lost, so that flushes fail", |export| export.disk.data_lost.into())?;
        gauge("failing", "Whether the device has failed to write blocks for long", |export| {
            export.disk.failing.into()
        })?;
        gauge("failed_bytes", "If so, the bytes whose last write failed", |export| export.disk.failed_bytes)?;
        gauge("size_bytes", "Size of the disk", |export| export.disk.size)?;
        gauge("troubled_targets", "Targets that do not do what they are asked", |export| {
            export.disk.targets.iter().filter(|target| target.trouble.is_some()).count() as u64
        })?;
        gauge("staged_bytes", "Bytes that targets have received and not made stable, as far as they tell", |export| {
            export.disk.targets.iter().map(|target| target.staged_bytes).sum()
        })?;
        if self.host.content.is_some() {
            let help = "Memory of the disk's encoded blocks; a block that several share counts in equal parts";
            gauge("encoded_bytes", help, |export| export.encoded_bytes)?;
        }
        self.encode_write_logs(&mut encoder)?;
        let help = "How long the device has had operations and completed none";
        let silent = self
            .exports
            .iter()
            .map(|of| (OfExport { export: of.disk.name.clone() }, of.disk.device_silent_us as f64 / 1e6));
        encode_gauge(&mut encoder, "device_silent_seconds", help, silent)?;
        let counters: [(&str, &str, Value); 24] = [
            ("clients_refused", "Clients beyond the limit of the export", |export| export.refused),
            ("reads", "Read requests", |export| export.disk.reads),
            ("writes", "Write requests", |export| export.disk.writes),
            ("read_bytes", "Bytes asked for by reads", |export| export.disk.read_bytes),
            ("written_bytes", "Bytes of writes", |export| export.disk.written_bytes),
            ("hits", "Referenced blocks that were there", |export| export.disk.hits),
            ("misses", "Referenced blocks that were not", |export| export.disk.misses),
            ("joined", "Referenced blocks that were being loaded", |export| export.disk.joined),
            ("decoded", "Blocks that were decoded instead of loaded", |export| export.disk.decoded),
            ("level_hits", "Blocks loaded from levels", |export| export.disk.level_hits),
            ("evictions", "Blocks that left to make room", |export| export.disk.evictions),
            ("prefetch_issued", "Blocks prefetched", |export| export.disk.prefetch_issued),
            ("prefetch_used", "Prefetched blocks referenced later", |export| export.disk.prefetch_used),
            ("prefetch_late", "Of these, still being loaded then", |export| export.disk.prefetch_late),
            ("prefetch_wasted", "Prefetched blocks gone without a reference", |export| export.disk.prefetch_wasted),
            ("device_reads", "Reads of the device", |export| export.disk.device_reads),
            ("device_read_bytes", "Bytes read from the device", |export| export.disk.device_read_bytes),
            ("device_writes", "Writes of the device", |export| export.disk.device_writes),
            ("device_written_bytes", "Bytes written to the device", |export| export.disk.device_written_bytes),
            ("device_flushes", "Flushes asked of the device", |export| export.disk.device_flushes),
            ("device_faults", "Operations that the device failed", |export| export.disk.device_faults),
            ("device_full", "Operations that the device failed because it has no room", |export| {
                export.disk.device_full
            }),
            ("slow_requests", "Requests that took longer than the limit (--slow)", |export| export.disk.slow_requests),
            ("damaged_blocks", "Blocks found to be damaged in memory", |export| export.disk.damaged),
        ];
        for (name, help, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for export in &self.exports {
                let of = OfExport { export: export.disk.name.clone() };
                ConstCounter::new(value(export)).encode(family.encode_family(&of)?)?;
            }
        }
        let mut tenant = |name, help, kind, value: fn(&TenantStatistics) -> Option<u64>| {
            let values: Vec<_> = self.tenants.iter().filter_map(|of| Some((&of.name, value(of)?))).collect();
            if values.is_empty() {
                return Ok(());
            }
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (name, value) in values {
                let of = OfTenant { tenant: name.clone() };
                let encoder = family.encode_family(&of)?;
                encode(kind, value, encoder)?;
            }
            Ok::<_, fmt::Error>(())
        };
        let counter = MetricType::Counter;
        tenant("owned_bytes", "Memory of a tenant's own blocks", MetricType::Gauge, |of| Some(of.resident_bytes))?;
        let help = "The most memory that a tenant can have of the full cache at present, where the allocation gives it a share";
        tenant("share_bytes", help, MetricType::Gauge, |of| of.share)?;
        tenant("predicted", "References that a tenant's list predicted", counter, |of| Some(of.predicted))?;
        tenant("unpredicted", "References that a tenant's list did not predict", counter, |of| Some(of.unpredicted))?;
        tenant("skipped", "Accesses of a tenant's list that did not come", counter, |of| Some(of.skipped))?;
        tenant("lists_dropped", "Lists that were too often wrong", counter, |of| Some(of.lists_dropped))?;
        tenant("overruled", "Blocks given up instead of LRU's", counter, |of| Some(of.overruled))?;
        tenant("mistakes", "Of these, referenced before LRU's", counter, |of| Some(of.mistakes))?;
        self.encode_content(&mut encoder)?;
        self.encode_levels(&mut encoder)?;
        let help = "From request to reply";
        let mut family = encoder.encode_descriptor("latency_seconds", help, None, MetricType::Histogram)?;
        for export in &self.exports {
            let kinds = [
                ("hit", &export.disk.hit_latency),
                ("miss", &export.disk.miss_latency),
                ("write", &export.disk.write_latency),
                ("flush", &export.disk.flush_latency),
            ];
            for (kind, summary) in kinds {
                let of = OfKind { export: export.disk.name.clone(), kind };
                Buckets(summary.latencies()).encode(family.encode_family(&of)?)?;
            }
        }
        Ok(())
    }
}

impl Statistics {
    /// The choice of the policy of the whole cache, or those of tenants by their names, where a policy chooses among others.
    pub fn choices(&self) -> impl Iterator<Item = (Option<&str>, &ChoiceStatistics)> {
        let tenants = self.tenants.iter().filter_map(|of| Some((Some(of.name.as_str()), of.chosen.as_ref()?)));
        self.host.chosen.iter().map(|chosen| (None, chosen)).chain(tenants)
    }

    fn encode_write_logs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Value = fn(&WriteLogStatistics) -> u64;
        let logs = || self.exports.iter().filter_map(|of| Some((&of.disk.name, of.disk.write_log.as_ref()?)));
        if logs().next().is_none() {
            return Ok(());
        }
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        let all: [(&str, &str, MetricType, Value); 11] = [
            ("write_log_bytes", "Room of the write log", gauge, |log| log.bytes),
            ("write_log_used_bytes", "Of these, in use", gauge, |log| log.used_bytes),
            ("write_log_records", "Writes in the log that the target does not have", gauge, |log| log.records),
            ("write_log_oldest_seconds", "Age of the oldest of them", gauge, |log| log.oldest_seconds as u64),
            ("write_log_full", "Whether writes wait for room in the log", gauge, |log| log.full.into()),
            ("write_log_failed", "Whether the log takes no more writes", gauge, |log| log.failure.is_some().into()),
            ("write_log_missing_bytes", "If so, bytes that the target does not have", gauge, |log| log.missing_bytes),
            ("write_log_writes", "Writes to the log", counter, |log| log.log_writes),
            ("write_log_written_bytes", "Bytes written to the log", counter, |log| log.log_written_bytes),
            ("write_log_home_writes", "Writes from the log to the target", counter, |log| log.home_writes),
            ("write_log_home_written_bytes", "Bytes of these", counter, |log| log.home_written_bytes),
        ];
        for (name, help, kind, value) in all {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (export, log) in logs() {
                encode(kind, value(log), family.encode_family(&OfExport { export: export.clone() })?)?;
            }
        }
        Ok(())
    }

    fn encode_choices(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.choices().next().is_none() {
            return Ok(());
        }
        let name = |tenant: Option<&str>| tenant.unwrap_or_default().to_owned();
        let help = "Times that another policy took charge";
        let mut family = encoder.encode_descriptor("policy_changes", help, None, MetricType::Counter)?;
        for (tenant, chosen) in self.choices() {
            ConstCounter::new(chosen.changes).encode(family.encode_family(&OfTenant { tenant: name(tenant) })?)?;
        }
        let mut gauge = |of_name, help, value: fn(&CandidateStatistics) -> Option<f64>| {
            let candidates = self.choices().flat_map(|(tenant, of)| of.candidates.iter().map(move |of| (tenant, of)));
            let labelled = |(tenant, of): (Option<&str>, &CandidateStatistics)| {
                Some((OfPolicy { tenant: name(tenant), policy: of.policy.clone() }, value(of)?))
            };
            encode_gauge(encoder, of_name, help, candidates.filter_map(labelled))
        };
        gauge("policy_shards", "Shards in which the policy decides", |of| Some(of.shards.into()))?;
        gauge("policy_hit_ratio", "Share of recent references that it would have hit", |of| of.hit_ratio)
    }

    /// The curve of the whole cache, or those of tenants by their names.
    pub fn curves(&self) -> impl Iterator<Item = (Option<&str>, &CurveStatistics)> {
        let tenants = self.tenants.iter().filter_map(|of| Some((Some(of.name.as_str()), of.curve.as_ref()?)));
        self.host.curve.iter().map(|curve| (None, curve)).chain(tenants)
    }

    /// Hit ratios with less and with more memory, as far as they are known.
    fn encode_curves(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.curves().next().is_none() {
            return Ok(());
        }
        let mut gauge = |name, help, value: fn(&CurvePoint) -> Option<f64>| {
            let points = self.curves().flat_map(|(tenant, of)| of.points.iter().map(move |point| (tenant, point)));
            let labelled = |(tenant, point): (Option<&str>, &CurvePoint)| {
                let of = OfSize { tenant: tenant.unwrap_or_default().to_owned(), times: point.times.to_string() };
                Some((of, value(point)?))
            };
            encode_gauge(encoder, name, help, points.filter_map(labelled))
        };
        gauge("curve_hit_ratio", "Hit ratio with so many times the memory", |point| point.hit_ratio)?;
        let help = "Half the width of the 95 % confidence interval of the hit ratio with so many times the memory";
        gauge("curve_hit_ratio_error", help, |point| point.error)?;
        gauge("curve_memory_bytes", "So many times the memory", |point| Some(point.bytes as f64))
    }
}

/// A gauge with these values by labels.
fn encode_gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    mut values: impl Iterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    values.try_for_each(|(labels, value)| ConstGauge::new(value).encode(family.encode_family(&labels)?))
}

/// A gauge or a counter.
fn encode(kind: MetricType, value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Gauge => ConstGauge::new(value as i64).encode(encoder),
        _ => ConstCounter::new(value).encode(encoder),
    }
}

/// Statistics in Prometheus' text format, with this in front of the names.
pub(crate) fn prometheus(prefix: &str, statistics: impl Collector) -> String {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(statistics));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes any text");
    text
}

/// Statistics as a JSON object.
pub(crate) fn json(statistics: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(statistics).expect("statistics are plain data");
    text.push('\n');
    text
}

impl Statistics {
    fn encode_content(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Value = fn(&ContentStatistics) -> u64;
        let Some(content) = &self.host.content else { return Ok(()) };
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        let metrics: [(&str, &str, MetricType, Value); 16] = [
            ("content_bytes", "Memory that encoded blocks may take", gauge, |of| of.bytes),
            ("content_used_bytes", "Of it, in use", gauge, |of| of.used_bytes),
            ("content_saved_bytes", "What the encoded blocks would take in addition as they are", gauge, |of| {
                of.saved_bytes
            }),
            ("content_blocks", "Encoded blocks", gauge, |of| of.blocks),
            ("content_contents", "Different contents of encoded blocks", gauge, |of| of.contents),
            ("content_differences", "Of these, stored as differences", gauge, |of| of.differences),
            ("content_orphans", "Contents that only differences need", gauge, |of| of.orphans),
            ("content_orphan_bytes", "Memory of these", gauge, |of| of.orphan_bytes),
            ("content_one_of", "One of so many blocks that leave memory is encoded", gauge, |of| of.one_of),
            ("content_encoded", "Blocks that were encoded", counter, |of| of.encoded),
            ("content_rejected", "Blocks that found no room", counter, |of| of.rejected),
            ("content_dropped", "Blocks not encoded, because too many were on their way", counter, |of| of.dropped),
            ("content_replaced", "Encoded blocks that made room for others", counter, |of| of.evictions),
            ("content_decoded", "Blocks that were decoded", counter, |of| of.decoded),
            ("content_missing", "Blocks whose content had left when it was asked for", counter, |of| of.missing),
            ("content_damaged", "Blocks whose content was damaged in memory", counter, |of| of.damaged),
        ];
        for (name, help, kind, value) in metrics {
            let encoder = encoder.encode_descriptor(name, help, None, kind)?;
            encode(kind, value(content), encoder)?;
        }
        let help = "Processor time for encoding";
        let encoder = encoder.encode_descriptor("content_encode_seconds", help, None, counter)?;
        ConstCounter::new(content.encode_us as f64 / 1e6).encode(encoder)
    }

    fn encode_levels(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Value = fn(&LevelStatistics) -> u64;
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        let metrics: [(&str, &str, MetricType, Value); 20] = [
            ("level_places", "Blocks that a level has places for", gauge, |level| level.blocks),
            ("level_stored_blocks", "Blocks that a level holds", gauge, |level| level.stored),
            (
                "level_duplicates",
                "Of these, blocks that memory or a level above holds, too (estimated)",
                gauge,
                |level| level.duplicates,
            ),
            ("level_warm_blocks", "Blocks that a level held at the start", gauge, |level| level.warm_blocks),
            (
                "level_off",
                "Whether a level is off: its device failed, or its server cannot be reached",
                gauge,
                |level| level.off.into(),
            ),
            ("level_loads", "Blocks loaded from a level", counter, |level| level.hits),
            ("level_stores", "Blocks stored in a level", counter, |level| level.stores),
            ("level_carried", "Of these, blocks that came from the level above", counter, |level| level.carried),
            ("level_drops", "Blocks not stored, because too many were on their way", counter, |level| level.drops),
            ("level_replaced", "Blocks of a level that made room for others", counter, |level| level.evictions),
            ("level_invalidations", "Blocks of a level whose contents changed", counter, |level| level.invalidations),
            ("level_mismatches", "Blocks not read as they were stored", counter, |level| level.mismatches),
            ("level_missed", "Of these, those that a level on another host no longer had", counter, |level| {
                level.missed
            }),
            ("level_lost", "Connections to a level on another host that were lost", counter, |level| level.lost),
            ("level_reads", "Reads of a level's device", counter, |level| level.reads),
            ("level_read_bytes", "Bytes read from a level's device", counter, |level| level.read_bytes),
            ("level_writes", "Writes of a level's device", counter, |level| level.writes),
            ("level_written_bytes", "Bytes written to a level's device", counter, |level| level.written_bytes),
            ("level_faults", "Operations that a level's device failed", counter, |level| level.faults),
            ("level_late", "Times that a level's device took too long for an operation", counter, |level| level.late),
        ];
        if self.host.levels.is_empty() {
            return Ok(());
        }
        for (name, help, kind, value) in metrics {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for level in &self.host.levels {
                let of = OfLevel { level: level.path.clone() };
                let encoder = family.encode_family(&of)?;
                encode(kind, value(level), encoder)?;
            }
        }
        type OfServer = fn(&LevelServerStatistics) -> u64;
        let metrics: [(&str, &str, MetricType, OfServer); 4] = [
            ("level_part_bytes", "Bytes of a level on a server", gauge, |server| server.bytes),
            ("level_part_off", "Whether a server of a level cannot be reached", gauge, |server| server.off.into()),
            ("level_part_missed", "Blocks that a server of a level no longer had", counter, |server| server.missed),
            ("level_part_lost", "Connections to a server of a level that were lost", counter, |server| server.lost),
        ];
        let servers = || self.host.levels.iter().flat_map(|level| &level.servers);
        if servers().next().is_none() {
            return Ok(());
        }
        for (name, help, kind, value) in metrics {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for server in servers() {
                let of = OfLevelServer { server: server.address.clone() };
                let encoder = family.encode_family(&of)?;
                encode(kind, value(server), encoder)?;
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
        prometheus("nigh", self.clone())
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        json(self)
    }
}
