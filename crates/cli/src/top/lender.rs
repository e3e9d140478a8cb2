//! A level server (`nigh level`), from one look to the next.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Instant;

use nigh_service::{Command, ControlClient, ControlError, LenderClient, LenderCounts, LenderFile, LenderStatistics};
use serde::Serialize;

use crate::args::SortArg;
use crate::size::{human_bytes, percent};
use crate::table::Table;

/// A sample of a level server's status.
pub(super) struct LenderLook {
    at: Instant,
    status: LenderStatistics,
}

/// The change of a level server's counters between two samples.
#[derive(Serialize)]
pub(super) struct LenderInterval {
    schema: u32,
    seconds: f64,
    memory_bytes: u64,
    used_bytes: u64,
    connections: u64,
    received_bytes_per_s: f64,
    sent_bytes_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FileRow>,
    total: ClientRow,
    clients: Vec<ClientRow>,
}

/// Its file.
#[derive(Serialize)]
struct FileRow {
    bytes: u64,
    reads_per_s: f64,
    writes_per_s: f64,
    damaged: u64,
    faults: u64,
    off: bool,
    /// Whether it does not respond.
    stuck: bool,
}

/// Rates of one client, or of all together.
#[derive(Serialize)]
struct ClientRow {
    name: String,
    used_bytes: u64,
    retrieves_per_s: f64,
    /// Of the blocks that were asked for.
    hit_ratio: Option<f64>,
    stores_per_s: f64,
    evictions_per_s: f64,
    refused_requests_per_s: f64,
}

impl LenderLook {
    pub(super) fn new(status: LenderStatistics) -> LenderLook {
        LenderLook { at: Instant::now(), status }
    }

    pub(super) fn take(client: &mut ControlClient) -> Result<LenderLook, ControlError> {
        let answer = client.ask(&Command::Status {})?;
        let status = answer.level.ok_or_else(|| ControlError::Refused("this is no level server any more".into()))?;
        Ok(LenderLook::new(status))
    }
}

impl ClientRow {
    fn between(
        name: &str,
        used_bytes: u64,
        before: Option<&LenderCounts>,
        now: &LenderCounts,
        seconds: f64,
    ) -> ClientRow {
        // Without the same start, the counts are those since its own.
        let before = before.filter(|before| before.retrieves <= now.retrieves && before.stores <= now.stores);
        let since = |count: fn(&LenderCounts) -> u64| count(now).saturating_sub(before.map_or(0, count)) as f64;
        let retrieves = since(|counts| counts.retrieves);
        ClientRow {
            name: name.to_owned(),
            used_bytes,
            retrieves_per_s: retrieves / seconds,
            hit_ratio: (retrieves > 0.0).then(|| since(|counts| counts.hits) / retrieves),
            stores_per_s: since(|counts| counts.stores) / seconds,
            evictions_per_s: since(|counts| counts.evictions) / seconds,
            refused_requests_per_s: since(|counts| counts.refused_requests) / seconds,
        }
    }

    fn cells(&self) -> [String; 7] {
        [
            self.name.clone(),
            human_bytes(self.used_bytes),
            format!("{:.0}", self.retrieves_per_s),
            percent(self.hit_ratio),
            format!("{:.0}", self.stores_per_s),
            format!("{:.0}", self.evictions_per_s),
            format!("{:.0}", self.refused_requests_per_s),
        ]
    }
}

impl LenderInterval {
    pub(super) fn between(first: &LenderLook, second: &LenderLook) -> LenderInterval {
        let seconds = second.at.duration_since(first.at).as_secs_f64().max(1e-3);
        let (before, now) = (&first.status, &second.status);
        let client = |LenderClient { name, used_bytes, counts, .. }: &LenderClient| {
            let before = before.clients.iter().find(|before| before.name == *name);
            ClientRow::between(name, *used_bytes, before.map(|before| &before.counts), counts, seconds)
        };
        let since = |count: fn(&LenderStatistics) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
        let file = now.file.as_ref().map(|file| {
            let before = before.file.as_ref();
            let since =
                |count: fn(&LenderFile) -> u64| count(file).saturating_sub(before.map_or(0, count)) as f64 / seconds;
            FileRow {
                bytes: file.bytes,
                reads_per_s: since(|file| file.reads),
                writes_per_s: since(|file| file.writes),
                damaged: file.damaged,
                faults: file.faults,
                off: file.off,
                stuck: file.stuck,
            }
        });
        LenderInterval {
            schema: 1,
            seconds,
            memory_bytes: now.memory_bytes,
            used_bytes: now.used_bytes,
            connections: now.connections,
            received_bytes_per_s: since(|status| status.received_bytes),
            sent_bytes_per_s: since(|status| status.sent_bytes),
            file,
            total: ClientRow::between("total", now.used_bytes, Some(&before.counts), &now.counts, seconds),
            clients: now.clients.iter().map(client).collect(),
        }
    }

    /// Sorts the clients: by name, by hit ratio, by size, or by what they ask for.
    pub(super) fn sort(&mut self, by: SortArg) {
        self.clients.sort_by(|one, other| one.name.cmp(&other.name));
        let descending = |key: fn(&ClientRow) -> f64, clients: &mut [ClientRow]| {
            clients.sort_by(|one, other| {
                Reverse(key(one)).partial_cmp(&Reverse(key(other))).unwrap_or(std::cmp::Ordering::Equal)
            });
        };
        match by {
            SortArg::Name => {}
            SortArg::Hits => descending(|row| row.hit_ratio.unwrap_or(-1.0), &mut self.clients),
            SortArg::Bytes | SortArg::Dirty => descending(|row| row.used_bytes as f64, &mut self.clients),
            SortArg::Requests | SortArg::Latency => descending(|row| row.retrieves_per_s, &mut self.clients),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let (memory, used) = (human_bytes(self.memory_bytes), human_bytes(self.used_bytes));
        let connections = if self.connections == 1 { "connection" } else { "connections" };
        let mut text = match &self.file {
            None => format!("{used} of {memory}"),
            Some(FileRow { bytes, .. }) => format!("{used} of {}, {memory} of it in memory", human_bytes(*bytes)),
        };
        let traffic = [self.received_bytes_per_s, self.sent_bytes_per_s].map(|bytes| bytes / 1e6);
        let _ = write!(
            text,
            "  {} {connections}  {:.1} MB/s received, {:.1} sent",
            self.connections, traffic[0], traffic[1]
        );
        if let Some(FileRow { reads_per_s, writes_per_s, damaged, faults, off, stuck, .. }) = &self.file {
            let _ = match (off, stuck) {
                (true, _) => write!(text, "  file off"),
                (false, true) => write!(text, "  the file does not respond"),
                (false, false) => write!(text, "  file: {reads_per_s:.0} blocks/s read, {writes_per_s:.0} written"),
            };
            if damaged + faults > 0 {
                let _ = write!(text, ", {damaged} damaged, {faults} operations failed");
            }
        }
        let mut table = Table::new(&["CLIENT", "SIZE", "RETRIEVED/S", "HIT %", "STORED/S", "REPLACED/S", "REFUSED/S"]);
        std::iter::once(&self.total).chain(&self.clients).for_each(|row| table.row(row.cells()));
        format!("{text}\n\n{table}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn status(retrieves: u64, hits: u64, clients: &[(&str, u64)]) -> LenderStatistics {
        let counts = |retrieves: u64, hits: u64| {
            serde_json::json!({ "retrieves": retrieves, "hits": hits, "misses": retrieves - hits, "stores": 0,
                "evictions": 0, "invalidations": 0, "refused_requests": 0 })
        };
        let client = |&(name, retrieves): &(&str, u64)| {
            let mut client = counts(retrieves, 0);
            client["name"] = name.into();
            client["connections"] = 1.into();
            client["used_bytes"] = 4096.into();
            client
        };
        let mut status = counts(retrieves, hits);
        for (name, value) in [
            ("schema", 1),
            ("memory_bytes", 1 << 20),
            ("used_bytes", 8192),
            ("connections", 2),
            ("accepted", 2),
            ("refused", 0),
            ("received_bytes", 0),
            ("sent_bytes", 0),
        ] {
            status[name] = value.into();
        }
        status["clients"] = clients.iter().map(client).collect();
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn rates_are_those_of_the_interval_and_clients_are_sorted() {
        let first = LenderLook::new(status(1000, 500, &[("a", 900), ("b", 100)]));
        let at = first.at + Duration::from_secs(2);
        let second = LenderLook { at, status: status(1300, 725, &[("a", 1000), ("b", 300), ("c", 10)]) };
        let mut interval = LenderInterval::between(&first, &second);
        assert_eq!((interval.total.retrieves_per_s, interval.total.hit_ratio), (150.0, Some(0.75)));
        let names = |interval: &LenderInterval| interval.clients.iter().map(|row| row.name.clone()).collect::<String>();
        interval.sort(SortArg::Requests);
        assert_eq!((names(&interval), interval.clients[0].retrieves_per_s), ("bac".to_owned(), 100.0));
        interval.sort(SortArg::Name);
        assert_eq!(names(&interval), "abc");
        let text = interval.text();
        assert!(text.contains("8 KiB of 1 MiB") && text.contains("2 connections") && text.contains("total"), "{text}");
    }
}
