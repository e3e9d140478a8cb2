//! Requests of the last minute: what exports counted is noted now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nigh_host::DiskStatistics;
use nigh_host::front::lock;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::history::{self, History};

/// How often it is noted for the rates.
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

/// Counters by the names of exports.
type Note = (Instant, BTreeMap<String, Counts>);

/// The notes, the oldest first.
#[derive(Default)]
pub(crate) struct Meter {
    notes: Mutex<VecDeque<Note>>,
    /// The last hour, if there is a page that shows it.
    history: Option<History>,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Meter {
    /// With the last hour, if a page shows it.
    pub(crate) fn new(has_page: bool) -> Meter {
        Meter { history: has_page.then(History::default), ..Meter::default() }
    }

    /// The last hour, of an export or of all of them, as a JSON object.
    pub(crate) fn history(&self, export: Option<&str>) -> Option<String> {
        self.history.as_ref()?.json(export)
    }

    /// Has `look` called every [`TICK`], or more often for the last hour, until [`Meter::end`]. It gets whether the call is for the rates.
    pub(crate) fn run(&self, mut look: impl FnMut(bool) -> Vec<DiskStatistics>) {
        let tick = if self.history.is_some() { history::TICK } else { TICK };
        let mut noted: Option<Instant> = None;
        let mut next = Instant::now();
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            drop(is_over);
            let now = Instant::now();
            // A tick may come a little early.
            let is_note = noted.is_none_or(|noted| now.saturating_duration_since(noted) + tick / 2 >= TICK);
            let disks = look(is_note);
            if let Some(history) = &self.history {
                history.note(now, SystemTime::now(), &disks);
            }
            if is_note {
                noted = Some(now);
                self.note(now, &disks);
            }
            // Ticks that could not be in time are left out.
            next = (next + tick).max(Instant::now());
            let pause = next.saturating_duration_since(Instant::now());
            let waited = self.over.wait_timeout_while(lock(&self.is_over), pause, |is_over| !*is_over);
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
        let mut fitting = known.filter(|(_, before)| counts.follow(before));
        let Some((since, before)) = fitting.next() else { return Rates::default() };
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        let since = counts.since(Some(before));
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Rates {
            seconds,
            reads_per_s: rate(since.reads),
            writes_per_s: rate(since.writes),
            read_bytes_per_s: rate(since.read_bytes),
            written_bytes_per_s: rate(since.written_bytes),
            hit_ratio: since.hit_ratio(),
        }
    }
}
