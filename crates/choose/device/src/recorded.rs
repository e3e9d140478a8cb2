//! Fits a profile to a recording of requests with their latencies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;

use crate::fit::{Fitted, printable};
use crate::profile::Profile;
use crate::statistics::{Move, exponential, median, seek_of};
use crate::{Kind, ProfileError};

/// The fewest small reads that tell a latency.
const READS_LEAST: usize = 100;
/// The longest read that counts as small.
const SMALL_BYTES: u64 = 16 << 10;
/// A device is at its limit if reads that meet others take this many times as long as those that meet none.
const QUEUED: f64 = 1.25;
/// The limit of a device that was not seen at it, by the highest rate seen: far enough for no queues to form there either.
const BEYOND: f64 = 4.0;
/// The time over which the highest rates are looked for.
const WINDOW_NS: u64 = 100_000_000;

/// A request of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The request.
    pub request: crate::Request,
    /// When it was issued, in nanoseconds.
    pub start_ns: u64,
    /// From then to its completion, in nanoseconds.
    pub latency_ns: u64,
}

/// Why a recording gives no profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordedError {
    /// There are too few small reads with a latency.
    #[error(
        "{0} reads of at most 16 KiB have a latency: expected {READS_LEAST} at least, from a recording of a block device \
         (nigh record --disk, biosnoop, blkparse) or a table with a column of latencies"
    )]
    FewReads(usize),
    /// The figures suit no device.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// A profile of the device on which these requests were recorded: its latency, and the highest rates that they show. It is
/// that of a volume, whatever the device is: a recording does not tell why a request took long.
pub fn fit_recorded(mut requests: Vec<Recorded>, title: &str) -> Result<Fitted, RecordedError> {
    requests.sort_unstable_by_key(|recorded| recorded.start_ns);
    let (alone, depth) = concurrency(&requests);
    let small = |kind: Kind| {
        let of_kind = move |recorded: &&(Recorded, bool)| recorded.0.request.kind == kind;
        alone.iter().filter(of_kind).filter(|(recorded, _)| recorded.request.bytes <= SMALL_BYTES)
    };
    let reads = small(Kind::Read).count();
    if reads < READS_LEAST {
        return Err(RecordedError::FewReads(reads));
    }
    let unhindered = small(Kind::Read).filter(|(_, alone)| *alone).count();
    let only_alone = unhindered >= READS_LEAST;
    let times = |kind: Kind| -> Vec<f64> {
        small(kind).filter(|(_, alone)| *alone || !only_alone).map(|(one, _)| one.latency_ns as f64 / 1e3).collect()
    };
    let (read_us, jitter_us) = exponential(times(Kind::Read));
    let writes = times(Kind::Write);
    let (write_us, write_source) = match writes.len() {
        READS_LEAST.. => ((median(writes) - std::f64::consts::LN_2 * jitter_us).max(0.0), "Recorded"),
        _ => (read_us, "Estimate: too few writes were recorded"),
    };
    let highest = highest_rates(&requests);
    // If requests that met others took no longer, the device was not at its limit.
    let median_of = |alone: bool| {
        median(small(Kind::Read).filter(|one| one.1 == alone).map(|(one, _)| one.latency_ns as f64).collect())
    };
    let is_limit = !only_alone || median_of(false) > QUEUED * median_of(true);
    let more = if is_limit { 1.0 } else { BEYOND };
    let (iops, bytes_per_s) = ((highest.0 * more).min(1e9), (highest.1 * more / 1e6).clamp(0.01, 1e6));
    let rates_source = match is_limit {
        true => "Recorded: the most in a tenth of a second".to_owned(),
        false => format!("Estimate: {BEYOND} times the most in a tenth of a second, at which no queues formed"),
    };
    let end = requests.iter().map(|recorded| recorded.request.offset_bytes + recorded.request.bytes).max();
    let bytes = end.unwrap_or(0).next_multiple_of(1 << 20).max(1 << 20);

    let moves: Vec<Move> = requests
        .windows(2)
        .filter(|pair| pair[1].request.kind == Kind::Read && pair[1].request.bytes <= SMALL_BYTES)
        .filter(|pair| pair[0].start_ns + pair[0].latency_ns <= pair[1].start_ns)
        .map(|pair| Move {
            from: pair[0].request.offset_bytes,
            to: pair[1].request.offset_bytes,
            ns: pair[1].latency_ns,
        })
        .collect();
    let distance_matters = seek_of(&moves).matters();

    let mut findings = vec![match only_alone {
        true => format!("{unhindered} small reads met no other request, and give the latency"),
        false => format!(
            "only {unhindered} small reads met no other request: the latency is that of all {reads}, with the time in queues"
        ),
    }];
    findings.push(format!(
        "at most {:.0} requests and {:.0} MB a second, and {depth} at a time; {}",
        highest.0,
        highest.1 / 1e6,
        match is_limit {
            true => "requests that met others took longer, so this is taken for the limit",
            false => "requests that met others took no longer, so the limit is higher",
        }
    ));
    if distance_matters {
        findings.push(
            "distant reads took longer than near ones, which this profile does not have: 'nigh devices fit DEVICE' measures \
             that"
                .to_owned(),
        );
    }
    let mut text = String::new();
    let _ = write!(
        text,
        "kind = \"volume\"\ntitle = \"{}\"\n# The end of the last request.\nbytes = {bytes}\n\
         # Recorded: the least time of a read, and the mean of the time beyond it.\nread_us = {read_us:.3}\n\
         jitter_us = {jitter_us:.3}\n# {write_source}.\nwrite_us = {write_us:.3}\n\
         # {rates_source}.\niops = {iops:.1}\nmb_per_s = {bytes_per_s:.3}\n# The most at a time.\ndepth = {depth}\n# Estimates.\nio_kib = 256\nburst_ms = 0\n",
        printable(title),
    );
    let profile = Profile::parse(&text)?;
    Ok(Fitted { text, profile, findings, distance_matters })
}

/// Each request, and whether it had the device for itself when it was issued; and the most that were in progress at a time.
fn concurrency(requests: &[Recorded]) -> (Vec<(Recorded, bool)>, usize) {
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut most = 1;
    let alone = requests.iter().map(|&recorded| {
        while ends.peek().is_some_and(|Reverse(end)| *end <= recorded.start_ns) {
            ends.pop();
        }
        let alone = ends.is_empty();
        ends.push(Reverse(recorded.start_ns + recorded.latency_ns));
        most = most.max(ends.len());
        (recorded, alone)
    });
    let alone = alone.collect();
    (alone, most.min(65536))
}

/// The most requests and bytes a second that are complete within a window, or within the whole of a shorter recording.
fn highest_rates(requests: &[Recorded]) -> (f64, f64) {
    let mut ends: Vec<(u64, u64)> =
        requests.iter().map(|one| (one.start_ns + one.latency_ns, one.request.bytes)).collect();
    ends.sort_unstable();
    let begin = requests.first().map_or(0, |one| one.start_ns);
    let whole_ns = ends.last().map_or(0, |(end, _)| end - begin).max(1);
    let window_ns = WINDOW_NS.min(whole_ns);
    let (mut first, mut bytes, mut most, mut most_bytes) = (0, 0, 0, 0);
    for (at, &(end, length)) in ends.iter().enumerate() {
        bytes += length;
        while ends[first].0 + window_ns < end {
            bytes -= ends[first].1;
            first += 1;
        }
        most = most.max(at + 1 - first);
        most_bytes = most_bytes.max(bytes);
    }
    let per_second = 1e9 / window_ns as f64;
    ((most as f64 * per_second).max(1.0), most_bytes as f64 * per_second)
}
