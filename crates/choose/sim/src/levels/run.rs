//! The run of a scheme over all references: what it did as a whole, and in each of equal intervals.

use std::ops::Range;

use nigh_tier::Counts;

use crate::replay::{STRETCH, Watch, cpu_s};

/// Blocks that are in several caches at once: at several levels, or at a level of several clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// The blocks.
    pub blocks: u64,
    /// Their copies beyond the first one of each block.
    pub copies: u64,
}

/// Counts of a scheme in one of equal intervals of the references after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// References of the trace up to its end, those of the warm-up included.
    pub end: u64,
    /// Hits and demotions in the interval, of all clients.
    pub counts: Counts,
    /// Duplicates at its end. Unknown with several clients: they would have to be counted slot by slot and client by client.
    pub duplicates: Option<Duplicates>,
}

/// Counts of a scheme, without the warm-up.
#[derive(Clone, Debug)]
pub struct Run {
    /// Hits and demotions of all clients.
    pub counts: Counts,
    /// Those of each client.
    pub clients: Vec<Counts>,
    /// Those of each of `Watch::gauges` intervals, or of fewer if there are fewer references.
    pub intervals: Vec<Interval>,
    /// Duplicates at the end.
    pub duplicates: Duplicates,
    /// Processor time of the replay alone, in seconds.
    pub cpu_s: f64,
}

/// Caches that references are replayed through.
pub(super) trait Caches {
    /// Replays the references with these numbers.
    fn replay(&mut self, range: Range<usize>);

    /// Counts anew, as after a warm-up.
    fn restart(&mut self);

    /// Counts of each client.
    fn counts(&self) -> Vec<Counts>;

    /// Blocks that several caches hold now.
    fn duplicates(&self) -> Duplicates;
}

fn sum(clients: &[Counts]) -> Counts {
    let mut all = Counts::default();
    clients.iter().for_each(|counts| all += counts);
    all
}

/// Replays `length` references through `caches`, which were made at the processor time `start_s`.
pub(super) fn run(length: usize, mut caches: impl Caches, watch: Watch, start_s: f64) -> Run {
    let counted = length - watch.warmup;
    let wanted = watch.gauges.min(counted);
    let mut intervals: Vec<Interval> = Vec::with_capacity(wanted);
    let mut before = Counts::default();
    let mut at = 0;
    while at < length {
        let pause = match wanted {
            _ if at < watch.warmup => watch.warmup,
            0 => length,
            _ => watch.warmup + counted * (intervals.len() + 1) / wanted,
        };
        let end = pause.min(at + STRETCH);
        caches.replay(at..end);
        if !watch.did(end - at) {
            break;
        }
        at = end;
        if at == watch.warmup {
            caches.restart();
        } else if at == pause && wanted > 0 {
            let clients = caches.counts();
            let now = sum(&clients);
            let duplicates = (clients.len() == 1).then(|| caches.duplicates());
            intervals.push(Interval { end: at as u64, counts: now.since(&before), duplicates });
            before = now;
        }
    }
    let clients = caches.counts();
    let duplicates = caches.duplicates();
    Run { counts: sum(&clients), clients, intervals, duplicates, cpu_s: cpu_s() - start_s }
}
