//! Statistics of the server of a level, and their forms: it answers them on its control socket.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};

use crate::metrics;

/// The server of a level at one moment. Counts are since its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LenderStatistics {
    /// Version of this form.
    pub schema: u32,
    /// Memory for blocks.
    pub memory_bytes: u64,
    /// Bytes of all clients' blocks, in memory and in the file.
    pub used_bytes: u64,
    /// The file for what memory has no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<LenderFile>,
    /// Connections at the moment.
    pub connections: u64,
    /// Connections so far.
    pub accepted: u64,
    /// Connections that were rejected: too many, without an acceptable certificate, of another program, or with a name that another
    /// connection has.
    pub refused: u64,
    /// Bytes of clients' messages, without what TLS adds.
    pub received_bytes: u64,
    /// Bytes of the server's messages, without what TLS adds.
    pub sent_bytes: u64,
    /// All clients, also those that are gone.
    #[serde(flatten)]
    pub counts: LenderCounts,
    /// Each client that is connected, or was and has blocks, with the counts since it connected first.
    pub clients: Vec<LenderClient>,
}

/// The file of a level server at one moment. Counts are since its start, in blocks unless their names contain another unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LenderFile {
    /// The file.
    pub path: String,
    /// The bytes of blocks that it has places for, those in memory included.
    pub bytes: u64,
    /// Blocks that were to be read.
    pub reads: u64,
    /// Of these, those that were not as they were written, or could not be read.
    pub damaged: u64,
    /// Blocks that were written.
    pub writes: u64,
    /// Operations that failed.
    pub faults: u64,
    /// How long the oldest read under way takes so far, in microseconds.
    pub oldest_read_us: u64,
    /// Whether that is too long for another read to begin.
    pub stuck: bool,
    /// Whether it is not used any more, because too many operations failed.
    pub off: bool,
}

/// Counters of clients' requests, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LenderCounts {
    /// Blocks that were asked for.
    pub retrieves: u64,
    /// Of these, those that were here.
    pub hits: u64,
    /// Of these, those that were not.
    pub misses: u64,
    /// Blocks that were stored.
    pub stores: u64,
    /// Blocks that made room for others.
    pub evictions: u64,
    /// Blocks that were invalidated.
    pub invalidations: u64,
    /// Requests that were refused, such as stores beyond the limit of a client.
    pub refused_requests: u64,
}

/// A client of a level at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LenderClient {
    /// Its name.
    pub name: String,
    /// Its connections.
    pub connections: u64,
    /// Bytes of its blocks.
    pub used_bytes: u64,
    /// Counts since it connected.
    #[serde(flatten)]
    pub counts: LenderCounts,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfClient {
    client: String,
}

type Count = fn(&LenderCounts) -> u64;

/// Counts of all clients, and of each.
const COUNTS: [(&str, &str, Count); 7] = [
    ("retrieves", "Blocks that were asked for", |counts| counts.retrieves),
    ("hits", "Of these, those that were here", |counts| counts.hits),
    ("misses", "Of these, those that were not", |counts| counts.misses),
    ("stores", "Blocks that were stored", |counts| counts.stores),
    ("evictions", "Blocks that made room for others", |counts| counts.evictions),
    ("invalidations", "Blocks that were invalidated", |counts| counts.invalidations),
    ("refused_requests", "Requests that were refused", |counts| counts.refused_requests),
];

impl Collector for LenderStatistics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in [
            ("memory_bytes", "Memory for blocks", self.memory_bytes),
            ("used_bytes", "What blocks take, in memory and in the file", self.used_bytes),
            ("connections", "Connections", self.connections),
            ("clients", "Clients, by name", self.clients.len() as u64),
        ] {
            let metric = ConstGauge::new(value as i64);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let own = [
            ("connections_accepted", "Connections so far", self.accepted),
            ("connections_refused", "Connections that were rejected", self.refused),
            ("received_bytes", "Bytes of clients' messages", self.received_bytes),
            ("sent_bytes", "Bytes of the server's messages", self.sent_bytes),
        ];
        for (name, help, value) in own.into_iter().chain(COUNTS.map(|(name, help, of)| (name, help, of(&self.counts))))
        {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        if let Some(LenderFile { bytes, reads, damaged, writes, faults, oldest_read_us, off, .. }) = self.file {
            for (name, help, value) in [
                ("file_bytes", "Bytes of blocks that the file has places for", bytes),
                ("file_off", "Whether the file is not used any more, because it failed", off.into()),
            ] {
                let metric = ConstGauge::new(value as i64);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
            }
            let help = "How long the oldest read of the file takes so far";
            let metric = ConstGauge::new(oldest_read_us as f64 / 1e6);
            metric.encode(encoder.encode_descriptor(
                "file_oldest_read_seconds",
                help,
                None,
                metric.metric_type(),
            )?)?;
            for (name, help, value) in [
                ("file_reads", "Blocks that were to be read from the file", reads),
                ("file_damaged", "Of these, those that were not as they were written", damaged),
                ("file_writes", "Blocks that were written to the file", writes),
                ("file_faults", "Operations that the file failed", faults),
            ] {
                let metric = ConstCounter::new(value);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
            }
        }
        if self.clients.is_empty() {
            return Ok(());
        }
        let of = |client: &LenderClient| OfClient { client: client.name.clone() };
        let help = "Memory of a client's blocks";
        let mut family = encoder.encode_descriptor("client_used_bytes", help, None, MetricType::Gauge)?;
        for client in &self.clients {
            ConstGauge::new(client.used_bytes as i64).encode(family.encode_family(&of(client))?)?;
        }
        for (name, help, value) in COUNTS {
            let (name, help) = (format!("client_{name}"), format!("{help}, for each client"));
            let mut family = encoder.encode_descriptor(&name, &help, None, MetricType::Counter)?;
            for client in &self.clients {
                ConstCounter::new(value(&client.counts)).encode(family.encode_family(&of(client))?)?;
            }
        }
        Ok(())
    }
}

impl LenderStatistics {
    /// In Prometheus' text format.
    pub fn prometheus(&self) -> String {
        metrics::prometheus("nigh_level_server", self.clone())
    }

    /// As a JSON object.
    pub fn json(&self) -> String {
        metrics::json(self)
    }
}
