//! Counts of a disk: since its start, or in an interval.

use std::collections::BTreeMap;

use nigh_host::{DiskStatistics, LatencySummary};

/// Counts of a disk, since its start or in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Requests with a latency, flushes included.
    pub requests: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes of writes.
    pub written_bytes: u64,
    /// Referenced blocks that were in memory or on their way.
    pub hits: u64,
    /// Referenced blocks.
    pub references: u64,
    /// Blocks loaded from levels.
    pub level_hits: u64,
    /// Bytes read from devices.
    pub device_read_bytes: u64,
    /// Bytes written to devices.
    pub device_written_bytes: u64,
    /// Blocks prefetched.
    pub prefetch_issued: u64,
    /// Prefetched blocks that were referenced.
    pub prefetch_used: u64,
    /// Of these, blocks that were still being loaded.
    pub prefetch_late: u64,
    /// Prefetched blocks that left without a reference.
    pub prefetch_wasted: u64,
    /// Reads and writes by the end of their latency's bucket, in microseconds.
    pub latencies: BTreeMap<u64, u64>,
}

impl Counts {
    /// Since the start of the disk.
    pub fn of(disk: &DiskStatistics) -> Counts {
        let kinds: [&LatencySummary; 3] = [&disk.hit_latency, &disk.miss_latency, &disk.write_latency];
        let mut latencies = BTreeMap::new();
        for &(end, count) in kinds.iter().flat_map(|kind| &kind.buckets) {
            *latencies.entry(end).or_default() += count;
        }
        let hits = disk.hits + disk.joined;
        Counts {
            reads: disk.reads,
            writes: disk.writes,
            requests: kinds.iter().map(|kind| kind.count).sum::<u64>() + disk.flush_latency.count,
            read_bytes: disk.read_bytes,
            written_bytes: disk.written_bytes,
            hits,
            references: hits + disk.misses,
            level_hits: disk.level_hits,
            device_read_bytes: disk.device_read_bytes,
            device_written_bytes: disk.device_written_bytes,
            prefetch_issued: disk.prefetch_issued,
            prefetch_used: disk.prefetch_used,
            prefetch_late: disk.prefetch_late,
            prefetch_wasted: disk.prefetch_wasted,
            latencies,
        }
    }

    /// Each count with the same one of `other`.
    fn pairs<'a>(&'a mut self, other: &'a Counts) -> [(&'a mut u64, u64); 14] {
        [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.requests, other.requests),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.hits, other.hits),
            (&mut self.references, other.references),
            (&mut self.level_hits, other.level_hits),
            (&mut self.device_read_bytes, other.device_read_bytes),
            (&mut self.device_written_bytes, other.device_written_bytes),
            (&mut self.prefetch_issued, other.prefetch_issued),
            (&mut self.prefetch_used, other.prefetch_used),
            (&mut self.prefetch_late, other.prefetch_late),
            (&mut self.prefetch_wasted, other.prefetch_wasted),
        ]
    }

    /// Whether these can be later counts of the same disk: one that was removed and added again begins anew.
    pub fn follow(&self, before: &Counts) -> bool {
        before.requests <= self.requests && before.reads <= self.reads && before.writes <= self.writes
    }

    /// The counts since `before`; since the start without it, or if the disk was removed and added again meanwhile.
    pub fn since(mut self, before: Option<&Counts>) -> Counts {
        let Some(before) = before.filter(|before| self.follow(before)) else { return self };
        for (count, before) in self.pairs(before) {
            *count = count.saturating_sub(before);
        }
        for (end, count) in &mut self.latencies {
            *count = count.saturating_sub(before.latencies.get(end).copied().unwrap_or(0));
        }
        self.latencies.retain(|_, count| *count > 0);
        self
    }

    /// Adds what another disk counted.
    pub fn add(&mut self, other: &Counts) {
        self.pairs(other).into_iter().for_each(|(count, more)| *count += more);
        for (end, count) in &other.latencies {
            *self.latencies.entry(*end).or_default() += count;
        }
    }

    /// The share of referenced blocks that were in memory or on their way; `None` without references.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.references > 0).then(|| self.hits as f64 / self.references as f64)
    }

    /// The latency in microseconds that a share of reads and writes are below; `None` without any.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = (self.latencies.values().sum::<u64>() as f64 * share).ceil() as u64;
        let mut below = 0;
        let mut reached = self.latencies.iter().filter(|(_, count)| {
            below += **count;
            below > 0 && below >= rank
        });
        reached.next().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reads: u64, latencies: &[(u64, u64)]) -> Counts {
        Counts { reads, requests: reads, latencies: latencies.iter().copied().collect(), ..Counts::default() }
    }

    #[test]
    fn an_interval_is_the_difference_and_sums_add_up() {
        let (first, second) = (counts(10, &[(1, 4), (8, 6)]), counts(25, &[(1, 4), (8, 16), (99, 5)]));
        let between = second.clone().since(Some(&first));
        assert_eq!(between, counts(15, &[(8, 10), (99, 5)]));
        assert_eq!(between.quantile_us(0.5), Some(8));
        assert_eq!(between.quantile_us(0.99), Some(99));
        let mut sum = first.clone();
        sum.add(&between);
        assert_eq!(sum, second);
        assert_eq!(Counts::default().quantile_us(0.5), None);
        assert_eq!(Counts::default().hit_ratio(), None);
    }

    #[test]
    fn a_disk_that_was_added_again_counts_from_its_start() {
        let (first, second) = (counts(10, &[(1, 10)]), counts(3, &[(1, 3)]));
        assert_eq!(second.clone().since(Some(&first)), second);
        assert_eq!(second.clone().since(None), second);
    }

    /// A new count does not stay out of sums and differences.
    #[test]
    fn every_count_has_its_pair() {
        let mut one = Counts::default();
        let pairs = one.pairs(&Counts::default()).len();
        let fields = format!("{:?}", Counts::default()).matches(": ").count();
        assert_eq!(pairs, fields - 1, "all but latencies");
    }
}
