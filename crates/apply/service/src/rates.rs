//! Requests of the last minute: what exports counted is noted now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nigh_host::DiskStatistics;
use nigh_host::front::lock;
use serde::{Deserialize, Serialize};

/// How often it is noted.
const TICK: Duration = Duration::from_secs(5);
/// The most notes: those of a minute.
const NOTES: usize = 12;

/// An export's requests in the last minute, or since its start if that is later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The time that the rates are about, in seconds.
    pub seconds: f64,
    /// Read requests.
    pub reads_per_s: f64,
    /// Write requests.
    pub writes_per_s: f64,
    /// Bytes of reads.
    pub read_bytes_per_s: f64,
    /// Bytes of writes.
    pub written_bytes_per_s: f64,
    /// The share of referenced blocks that were in memory; none if nothing was referenced.
    pub hit_ratio: Option<f64>,
}

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    hits: u64,
    references: u64,
}

impl Counts {
    fn of(disk: &DiskStatistics) -> Counts {
        let hits = disk.hits + disk.joined;
        Counts {
            reads: disk.reads,
            writes: disk.writes,
            read_bytes: disk.read_bytes,
            written_bytes: disk.written_bytes,
            hits,
            references: hits + disk.misses,
        }
    }
}

/// Counters by the names of exports.
type Note = (Instant, BTreeMap<String, Counts>);

/// The notes, the oldest first.
#[derive(Default)]
pub(crate) struct Meter {
    notes: Mutex<VecDeque<Note>>,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Meter {
    /// Has `look` called every [`TICK`], until [`Meter::end`].
    pub(crate) fn run(&self, mut look: impl FnMut() -> Vec<DiskStatistics>) {
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            drop(is_over);
            self.note(Instant::now(), &look());
            let waited = self.over.wait_timeout_while(lock(&self.is_over), TICK, |is_over| !*is_over);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn end(&self) {
        *lock(&self.is_over) = true;
        self.over.notify_all();
    }

    fn note(&self, now: Instant, disks: &[DiskStatistics]) {
        let counts = disks.iter().map(|disk| (disk.name.clone(), Counts::of(disk))).collect();
        let mut notes = lock(&self.notes);
        notes.push_back((now, counts));
        if notes.len() > NOTES {
            notes.pop_front();
        }
    }

    /// The rates of a disk that counted this much until `now`. One that was opened later counts from the first note that has it, and
    /// one that counted more before, since it was removed and added again, from that.
    pub(crate) fn rates(&self, now: Instant, disk: &DiskStatistics) -> Rates {
        let counts = Counts::of(disk);
        let notes = lock(&self.notes);
        let known = notes.iter().filter_map(|(at, of)| Some((*at, of.get(&disk.name)?)));
        let mut fitting = known.filter(|(_, before)| before.reads <= counts.reads && before.writes <= counts.writes);
        let Some((since, before)) = fitting.next() else { return Rates::default() };
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let rate = |count: fn(&Counts) -> u64| {
            let more = count(&counts).saturating_sub(count(before));
            if seconds > 0.0 { more as f64 / seconds } else { 0.0 }
        };
        let references = counts.references.saturating_sub(before.references);
        let hits = counts.hits.saturating_sub(before.hits);
        Rates {
            seconds,
            reads_per_s: rate(|of| of.reads),
            writes_per_s: rate(|of| of.writes),
            read_bytes_per_s: rate(|of| of.read_bytes),
            written_bytes_per_s: rate(|of| of.written_bytes),
            hit_ratio: (references > 0).then(|| hits as f64 / references as f64),
        }
    }
}
