//! Which reads tell what a device is like: the plan of a measurement, without I/O.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::statistics::{Move, median, seek_of};

/// Bytes of the small reads.
pub(crate) const SMALL: u64 = 4096;
/// Bytes of the reads that find out a rate, one after the other.
const CHUNK: u64 = 256 << 10;
/// Places where the sequential rate is measured, from the first byte to the last.
const PLACES: u64 = 9;
/// Distances that are measured: the whole device, and so many times half of the one before.
const DISTANCES: u32 = 12;
/// The shortest distance, beyond what a drive reads ahead.
const NEAREST: u64 = 256 << 10;
/// How many reads are outstanding at a time where it is measured what that gains.
const OUTSTANDING: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// More reads for one purpose tell no more.
const MOST: usize = 50_000;
/// With fewer reads nothing is told.
const FEWEST: usize = 32;
/// Devices that are smaller are not worth it.
const SMALLEST: u64 = 16 << 20;

/// What a batch of reads is to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The rate at one place.
    Rate,
    /// Times of small reads one after the other.
    InSequence,
    /// Times of small reads by their distance.
    Distance,
    /// Times of reads of what lies just before: nearly a rotation of a disk.
    Before,
    /// What several small reads at a time gain.
    Parallel,
    /// Times of large reads, one or many at a time.
    Large,
}

/// Reads to be done.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What they are for.
    pub purpose: Purpose,
    /// Offset and bytes of each, in the order in which they start. Multiples of 4096.
    pub reads: Vec<(u64, u64)>,
    /// How many of them are outstanding at a time.
    pub outstanding: usize,
}

/// How long a batch took.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Each read, in the order of the batch, in nanoseconds.
    pub each_ns: Vec<u64>,
    /// From the start of the first to the end of the last.
    pub total_ns: u64,
}

/// Small reads, so many of them outstanding.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) outstanding: usize,
    pub(crate) per_second: f64,
    pub(crate) each_ns: Vec<u64>,
}

/// What was measured of a device.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub(crate) bytes: u64,
    /// Bytes of a large read.
    pub(crate) large_bytes: u64,
    /// Offset, and 10^6 bytes a second from there.
    pub(crate) rates: Vec<(u64, f64)>,
    pub(crate) in_sequence_ns: Vec<u64>,
    pub(crate) moves: Vec<Move>,
    pub(crate) before_ns: Vec<u64>,
    pub(crate) parallel: Vec<Level>,
    pub(crate) large_ns: Vec<u64>,
    /// Many large reads at a time, in 10^6 bytes a second.
    pub(crate) large_mb_per_s: f64,
}

/// Why a device cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<E> {
    /// It is too small.
    #[error("{bytes} bytes are too few to measure: expected {SMALLEST} or more")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// It is so slow, or the time so short, that too little was read.
    #[error("only {reads} reads in the time: too few to tell anything from")]
    TooFew {
        /// How many there were.
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

/// Measures a device of so many bytes in about `budget_ns`, by what `run` says of each batch of reads. The reads are the
/// same each time, as far as the device is as fast.
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
        // What several requests at a time gain is no figure of a disk: its model takes one after the other.
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
    /// Runs batches until they took `budget_ns`: at first of `least` reads, then of as many as fit into what is left.
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
            // No batch takes more than a quarter of the budget, so that a slow moment spoils a part only.
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

    /// Reads in pairs: at a random place, and at a distance from it, to either side.
    fn distances(&mut self, budget_ns: u64, moves: &mut Vec<Move>) -> Result<(), E> {
        let last = self.bytes - SMALL;
        let mut next = None;
        let batches = self.repeat(budget_ns, Purpose::Distance, 16, 1, |plan| {
            if let Some(to) = next.take() {
                return (to, SMALL);
            }
            let octave = plan.random.random_range(0..=DISTANCES);
            // Within the octave's lower half, so that the longest is possible from either edge.
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

    /// As much as makes the transfer count beside the latency.
    fn large_bytes(&self, moves: &[Move]) -> u64 {
        let latency_ns = median(moves.iter().map(|moved| moved.ns as f64).collect());
        let large = match latency_ns {
            20e6.. => 32 << 20,
            1e6.. => 4 << 20,
            _ => 1 << 20,
        };
        large.min(self.bytes / 8 / SMALL * SMALL)
    }

    /// Consecutive chunks from `offset` on, beginning again where `room` ends.
    fn rate(&mut self, budget_ns: u64, offset: u64, room: u64) -> Result<f64, E> {
        let chunks = (room / CHUNK).max(1);
        let mut at = 0;
        let batches = self.repeat(budget_ns, Purpose::Rate, 4, 1, |_| {
            at += 1;
            (offset + (at - 1) % chunks * CHUNK, CHUNK)
        })?;
        // The first read of each batch came from elsewhere, or after a pause; what takes more than twice the median was
        // held up by something else.
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
        // The first of a batch meet an idle device.
        let times = batches.iter().flat_map(|(_, timed)| timed.each_ns.iter().skip(outstanding));
        let each_ns: Vec<u64> = times.copied().collect();
        // Little's law: what is outstanding is the rate times how long each stays.
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
