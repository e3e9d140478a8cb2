//! The plan of a measurement: the reads that show the properties of a device. No I/O.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::statistics::{Move, median, seek_of};

/// Bytes of the small reads.
pub(crate) const SMALL: u64 = 4096;
/// Bytes of the sequential reads that measure a rate.
const CHUNK: u64 = 256 << 10;
/// Positions where the sequential rate is measured, from the first byte to the last.
const PLACES: u64 = 9;
/// The number of distances measured: the whole device, then halved each time.
const DISTANCES: u32 = 12;
/// The shortest distance, beyond what a drive reads ahead.
const NEAREST: u64 = 256 << 10;
/// Numbers of outstanding reads at which the gain of parallel reads is measured.
const OUTSTANDING: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The most reads for one purpose; more add no information.
const MOST: usize = 50_000;
/// The fewest reads from which a profile is fitted.
const FEWEST: usize = 32;
/// The smallest device that is measured.
const SMALLEST: u64 = 16 << 20;

/// The purpose of a batch of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The rate at one position.
    Rate,
    /// Times of small reads one after the other.
    InSequence,
    /// Times of small reads by their distance.
    Distance,
    /// Times of reads of the preceding block: nearly a rotation of a disk.
    Before,
    /// The gain of several small reads at a time.
    Parallel,
    /// Times of large reads, one or many at a time.
    Large,
}

/// A batch of reads to run.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Purpose of the reads.
    pub purpose: Purpose,
    /// Offset and bytes of each, in the order in which they start. Multiples of 4096.
    pub reads: Vec<(u64, u64)>,
    /// The number of outstanding reads.
    pub outstanding: usize,
}

/// The times of a batch.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Each read, in the order of the batch, in nanoseconds.
    pub each_ns: Vec<u64>,
    /// From the start of the first to the end of the last.
    pub total_ns: u64,
}

/// Small reads with this many of them outstanding.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) outstanding: usize,
    pub(crate) per_second: f64,
    pub(crate) each_ns: Vec<u64>,
}

/// The measurements of a device.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub(crate) bytes: u64,
    /// Bytes of a large read.
    pub(crate) large_bytes: u64,
    /// Offset, and the rate from there in 10^6 bytes a second.
    pub(crate) rates: Vec<(u64, f64)>,
    pub(crate) in_sequence_ns: Vec<u64>,
    pub(crate) moves: Vec<Move>,
    pub(crate) before_ns: Vec<u64>,
    pub(crate) parallel: Vec<Level>,
    pub(crate) large_ns: Vec<u64>,
    /// Rate of many large reads at a time, in 10^6 bytes a second.
    pub(crate) large_mb_per_s: f64,
}

/// Why a device cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<E> {
    /// It is too small.
    #[error("a target of {bytes} bytes is too small to measure: expected at least {SMALLEST} bytes")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// The device is so slow, or the time so short, that there were too few reads.
    #[error("only {reads} reads completed in the time, too few to fit a profile: allow more time")]
    TooFew {
        /// The number of reads.
        reads: usize,
    },
    /// A read failed.
    #[error(transparent)]
    Read(#[from] E),
}

struct Plan<R> {
    run: R,
    bytes: u64,
    random: Xoshiro256PlusPlus,
}

/// Measures a device of this many bytes in about `budget_ns`; `run` runs a batch of reads and returns its times.
/// Devices of equal speed get the same reads.
pub fn measure<E>(
    bytes: u64,
    budget_ns: u64,
    run: impl FnMut(&Batch) -> Result<Timed, E>,
) -> Result<Measurements, MeasureError<E>> {
    if bytes < SMALLEST {
        return Err(MeasureError::TooSmall { bytes });
    }
    let bytes = bytes / SMALL * SMALL;
    let mut plan = Plan { run, bytes, random: Xoshiro256PlusPlus::seed_from_u64(1) };
    let share = |percent: u64| budget_ns / 100 * percent;
    let mut measured = Measurements { bytes, ..Measurements::default() };
    plan.distances(share(25), &mut measured.moves)?;
    if measured.moves.len() < FEWEST {
        return Err(MeasureError::TooFew { reads: measured.moves.len() });
    }
    measured.in_sequence_ns = plan.in_sequence(share(3))?;
    if seek_of(&measured.moves).matters() {
        // The gain of parallel reads is no figure of a disk: its model serves one after the other.
        plan.distances(share(45), &mut measured.moves)?;
        measured.before_ns = plan.before(share(7))?;
        for place in 0..PLACES {
            let offset = place * (bytes / PLACES) / SMALL * SMALL;
            let rate = plan.rate(share(20) / PLACES, offset, bytes / PLACES)?;
            measured.rates.push((offset, rate));
        }
        return Ok(measured);
    }
    measured.rates.push((0, plan.rate(share(5), 0, bytes)?));
    for outstanding in OUTSTANDING {
        let level = plan.parallel(share(40) / OUTSTANDING.len() as u64, outstanding)?;
        let before = measured.parallel.iter().rev().nth(1);
        let gains = before.is_none_or(|before| level.per_second > 1.1 * before.per_second);
        measured.parallel.push(level);
        if !gains {
            break;
        }
    }
    let size = plan.large_bytes(&measured.moves);
    measured.large_bytes = size;
    measured.large_ns = plan.large(share(13), size, 1)?.iter().flat_map(|timed| timed.each_ns.clone()).collect();
    let together = plan.large(share(13), size, 16)?;
    let read: u64 = together.iter().map(|timed| timed.each_ns.len() as u64 * size).sum();
    measured.large_mb_per_s =
        read as f64 / together.iter().map(|timed| timed.total_ns).sum::<u64>().max(1) as f64 * 1e3;
    Ok(measured)
}

impl<E, R: FnMut(&Batch) -> Result<Timed, E>> Plan<R> {
    /// Runs batches for about `budget_ns`: first of `least` reads, then of as many as fit in the remaining time.
    fn repeat(
        &mut self,
        budget_ns: u64,
        purpose: Purpose,
        least: usize,
        outstanding: usize,
        mut read: impl FnMut(&mut Self) -> (u64, u64),
    ) -> Result<Vec<(Batch, Timed)>, E> {
        let (mut done, mut spent, mut count, mut left) = (Vec::new(), 0, least, MOST);
        while spent < budget_ns && count > 0 {
            let reads = (0..count).map(|_| read(self)).collect();
            let batch = Batch { purpose, reads, outstanding };
            let timed = (self.run)(&batch)?;
            spent += timed.total_ns.max(1);
            // No batch takes more than a quarter of the budget, so that a slow moment affects only a part.
            let per_read = timed.total_ns.max(1) as f64 / count as f64;
            let room = budget_ns.saturating_sub(spent).min(budget_ns / 4) as f64 / per_read;
            left = left.saturating_sub(count);
            count = (room as usize).min(count * 4).min(left);
            done.push((batch, timed));
        }
        Ok(done)
    }

    fn aligned(&mut self, end: u64) -> u64 {
        self.random.random_range(0..=end / SMALL) * SMALL
    }

    /// Reads in pairs: at a random position, and at a given distance on either side.
    fn distances(&mut self, budget_ns: u64, moves: &mut Vec<Move>) -> Result<(), E> {
        let last = self.bytes - SMALL;
        let mut next = None;
        let batches = self.repeat(budget_ns, Purpose::Distance, 16, 1, |plan| {
            if let Some(to) = next.take() {
                return (to, SMALL);
            }
            let octave = plan.random.random_range(0..=DISTANCES);
            // In the lower half of the octave, so that the longest distance is possible from either edge.
            let distance = last as f64 / f64::from(1 << octave) * plan.random.random_range(0.9..1.0);
            let distance = (distance as u64).max(NEAREST) / SMALL * SMALL;
            let from = plan.aligned(last - distance);
            let (from, to) = if plan.random.random() { (from, from + distance) } else { (from + distance, from) };
            next = Some(to);
            (from, SMALL)
        })?;
        for (batch, timed) in batches {
            let pairs = batch.reads.windows(2).zip(&timed.each_ns[1..]);
            moves.extend(pairs.map(|(pair, &ns)| Move { from: pair[0].0, to: pair[1].0, ns }));
        }
        Ok(())
    }

    /// Large enough that the transfer matters beside the latency.
    fn large_bytes(&self, moves: &[Move]) -> u64 {
        let latency_ns = median(moves.iter().map(|moved| moved.ns as f64).collect());
        let large = match latency_ns {
            20e6.. => 32 << 20,
            1e6.. => 4 << 20,
            _ => 1 << 20,
        };
        large.min(self.bytes / 8 / SMALL * SMALL)
    }

    /// Consecutive chunks from `offset` on, starting again when `room` ends.
    fn rate(&mut self, budget_ns: u64, offset: u64, room: u64) -> Result<f64, E> {
        let chunks = (room / CHUNK).max(1);
        let mut at = 0;
        let batches = self.repeat(budget_ns, Purpose::Rate, 4, 1, |_| {
            at += 1;
            (offset + (at - 1) % chunks * CHUNK, CHUNK)
        })?;
        // The first read of each batch follows a jump or a pause. A read that takes more than twice the median was
        // delayed by something else.
        let times: Vec<f64> = batches.iter().flat_map(|(_, timed)| &timed.each_ns[1..]).map(|&ns| ns as f64).collect();
        let most = 2.0 * median(times.clone());
        let (count, sum) =
            times.iter().filter(|ns| **ns <= most).fold((0.0, 0.0), |(count, sum), ns| (count + 1.0, sum + ns));
        Ok((count * CHUNK as f64 / f64::max(sum, 1.0) * 1e3).clamp(0.01, 1e5))
    }

    fn in_sequence(&mut self, budget_ns: u64) -> Result<Vec<u64>, E> {
        let mut at = self.aligned(self.bytes / 2);
        let batches = self.repeat(budget_ns, Purpose::InSequence, 16, 1, |plan| {
            at = (at + SMALL) % plan.bytes;
            (at, SMALL)
        })?;
        Ok(batches.iter().flat_map(|(_, timed)| timed.each_ns[1..].to_vec()).collect())
    }

    fn before(&mut self, budget_ns: u64) -> Result<Vec<u64>, E> {
        let mut previous = None;
        let batches = self.repeat(budget_ns, Purpose::Before, 8, 1, |plan| {
            let at = previous.take().unwrap_or_else(|| {
                let at = plan.aligned(plan.bytes - 2 * SMALL) + SMALL;
                previous = Some(at - SMALL);
                at
            });
            (at, SMALL)
        })?;
        let times = batches.iter().flat_map(|(batch, timed)| {
            let pairs = batch.reads.windows(2).zip(&timed.each_ns[1..]);
            pairs.filter(|(pair, _)| pair[1].0 + SMALL == pair[0].0).map(|(_, &ns)| ns).collect::<Vec<_>>()
        });
        Ok(times.collect())
    }

    fn parallel(&mut self, budget_ns: u64, outstanding: usize) -> Result<Level, E> {
        let last = self.bytes - SMALL;
        let batches = self
            .repeat(budget_ns, Purpose::Parallel, 2 * outstanding, outstanding, |plan| (plan.aligned(last), SMALL))?;
        // The first reads of a batch find an idle device.
        let times = batches.iter().flat_map(|(_, timed)| timed.each_ns.iter().skip(outstanding));
        let each_ns: Vec<u64> = times.copied().collect();
        // Little's law: the number of outstanding requests is the rate times the time of each.
        let mean_ns = each_ns.iter().sum::<u64>() as f64 / each_ns.len().max(1) as f64;
        Ok(Level { outstanding, per_second: outstanding as f64 / mean_ns.max(1.0) * 1e9, each_ns })
    }

    fn large(&mut self, budget_ns: u64, size: u64, outstanding: usize) -> Result<Vec<Timed>, E> {
        let last = self.bytes - size;
        let batches =
            self.repeat(budget_ns, Purpose::Large, 2 * outstanding, outstanding, |plan| (plan.aligned(last), size))?;
        Ok(batches.into_iter().map(|(_, timed)| timed).collect())
    }
}
