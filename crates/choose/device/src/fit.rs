//! Fits a profile to the measurements of a device.

use std::fmt::Write;

use crate::layout::Layout;
use crate::measure::{Batch, Level, Measurements, Purpose, SMALL, Timed};
use crate::profile::{CYLINDERS_LEAST, CYLINDERS_READ, Profile, cylinders_of};
use crate::seek::SeekCurve;
use crate::statistics::{exponential, median, quantile, seek_of};
use crate::{Device, Kind, ProfileError, Request, SECTOR_BYTES};

/// The number of heads of a fitted disk: the real number cannot be measured from outside.
const HEADS: u64 = 8;
/// Speeds that disks are built with, in rotations a minute.
const SPEEDS: [f64; 7] = [3600.0, 4200.0, 5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0];
/// A device with 4 KiB reads of at least this median is treated as an object store.
const STORE_NS: f64 = 20e6;
/// A device with at least this median, but less than the above, is treated as a network volume.
const VOLUME_NS: f64 = 250e3;
/// The longest page of flash that is tried.
const PAGE_MAX: u64 = 1 << 18;

/// A fitted profile.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The profile, as a TOML file.
    pub text: String,
    /// The parsed profile.
    pub profile: Profile,
    /// The findings, one sentence each.
    pub findings: Vec<String>,
    /// Whether a distant read costs more than a nearby one.
    pub distance_matters: bool,
}

/// Runs a batch of reads on a modelled device from `now` on, and advances `now` to its end.
///
/// # Panics
/// If a read is beyond the device.
pub fn run_on(device: &mut Device, now: &mut u64, batch: &Batch) -> Timed {
    let begin = *now;
    let most = batch.outstanding.min(device.parallel());
    // The ends of outstanding reads: each read starts when there is room; its time counts from when the host issued it.
    let mut ends: Vec<u64> = Vec::with_capacity(batch.outstanding);
    let mut wanted: Vec<u64> = Vec::with_capacity(batch.outstanding);
    let mut each_ns = Vec::with_capacity(batch.reads.len());
    let pop = |ends: &mut Vec<u64>| {
        let first = (0..ends.len()).min_by_key(|&at| ends[at])?;
        Some(ends.swap_remove(first))
    };
    let mut at = begin;
    for &(offset_bytes, bytes) in &batch.reads {
        let since = if wanted.len() == batch.outstanding { pop(&mut wanted) } else { None }.unwrap_or(begin);
        let free = if ends.len() == most { pop(&mut ends) } else { None }.unwrap_or(begin);
        at = at.max(since).max(free);
        let request = Request { kind: Kind::Read, offset_bytes, bytes };
        let end = device.start(at, request).expect("a batch stays on its device");
        each_ns.push(end - since);
        ends.push(end);
        wanted.push(end);
    }
    *now = ends.into_iter().chain(wanted).max().unwrap_or(begin);
    Timed { each_ns, total_ns: *now - begin }
}

/// A title without characters that TOML would need escapes for.
pub(crate) fn printable(title: &str) -> String {
    title.replace(|c: char| c.is_control() || c == '"' || c == '\\', "?")
}

/// The profile of a device with these measurements, under a title.
pub fn fit(measured: &Measurements, title: &str) -> Result<Fitted, ProfileError> {
    let seek = seek_of(&measured.moves);
    let distance_matters = seek.matters();
    let alone_ns = median(measured.moves.iter().map(|moved| moved.ns as f64).collect());
    let mut findings = vec![format!(
        "a 4 KiB read takes {} after a nearby read, {} after a distant one: {}",
        shown(seek.near_ns),
        shown(seek.far_ns),
        if distance_matters { "distance matters" } else { "distance does not matter" },
    )];
    let figures = match alone_ns {
        _ if distance_matters => disk(measured, &mut findings),
        STORE_NS.. => store(measured, &mut findings),
        VOLUME_NS.. => volume(measured, &mut findings),
        _ => flash(measured, &mut findings)?,
    };
    let title = printable(title);
    let text = format!(
        "# Measured by `nigh devices fit` with reads only; figures that reads cannot show are estimates.\n{}",
        figures.replacen("TITLE", &format!("title = \"{title}\"\nbytes = {}", measured.bytes), 1)
    );
    let profile = Profile::parse(&text)?;
    Ok(Fitted { text, profile, findings, distance_matters })
}

fn disk(measured: &Measurements, findings: &mut Vec<String>) -> String {
    let best_rate = measured.rates.iter().map(|rate| rate.1).fold(0.1, f64::max);
    let rotation_ms = rotation_ms(measured, best_rate);
    let rpm = 60_000.0 / rotation_ms;
    let overhead_ms = {
        let in_sequence = median(measured.in_sequence_ns.iter().map(|&ns| ns as f64 / 1e6).collect());
        (in_sequence - SMALL as f64 / (4.0 * best_rate * 1e3)).clamp(0.0, 1000.0)
    };
    // The sectors of a track follow from the rate, including the switch to the next cylinder every few tracks. That is
    // unknown before the seek curve is fitted: two rounds are enough.
    let mut curve = SeekCurve::fitted(&[(1.0, 0.5), (10.0, 0.5)], 3);
    let (mut zones, mut cylinders) = (Vec::new(), CYLINDERS_LEAST);
    for _ in 0..2 {
        zones = zones_of(measured, rotation_ms, curve.ms(1).max(0.05));
        // Those that hold its bytes: of each zone's last cylinder only a part was counted.
        cylinders = cylinders_of(measured.bytes, HEADS, &zones).unwrap_or(CYLINDERS_LEAST);
        curve = curve_of(measured, &zones, cylinders, rotation_ms, overhead_ms);
    }
    let next_ms = curve.ms(1).max(0.05);
    // Noise must not yield figures that no curve has: the full seek is at least 0.01 ms longer, and the average well
    // between.
    let full_ms = curve.ms(cylinders as u32 - 1).max(next_ms + 0.01);
    let (least, most) = SeekCurve::averages_ms(next_ms, full_ms, cylinders as u32);
    let margin = (most - least) / 20.0;
    let average_ms = curve.average_ms(cylinders as u32).clamp(least + margin, most - margin);
    findings.push(format!("rotating disk: {rpm:.0} rotations a minute"));
    findings.push(format!("seeks take {next_ms:.2} ms to {full_ms:.2} ms, {average_ms:.2} ms on average"));
    let least_rate = measured.rates.iter().map(|rate| rate.1).fold(f64::INFINITY, f64::min);
    findings
        .push(format!("sequential reads reach {least_rate:.1} to {best_rate:.1} MB/s, depending on their position"));
    let mut text = String::new();
    let _ = writeln!(text, "kind = \"disk\"\nTITLE\n# Measured.\nrpm = {rpm:.1}");
    let _ = writeln!(
        text,
        "# Estimate: heads. Measured: the transfer rates that heads and zones yield together.\nheads = {HEADS}"
    );
    let rows: Vec<String> = zones.iter().map(|(cylinders, sectors)| format!("[{cylinders}, {sectors}]")).collect();
    let _ = writeln!(text, "zones = [{}]", rows.join(", "));
    let _ = writeln!(text, "# Measured.\nseek_next_ms = {next_ms:.6}\nseek_average_ms = {average_ms:.6}");
    let _ =
        writeln!(text, "seek_full_ms = {full_ms:.6}\n# Measured: reads in sequence.\noverhead_ms = {overhead_ms:.4}");
    let _ = writeln!(text, "hit_overhead_ms = {overhead_ms:.4}\n# Estimates.\nseek_write_extra_ms = 0.5");
    let _ = writeln!(text, "head_switch_ms = 0\ninterface_mb_per_s = {:.1}", 4.0 * best_rate);
    text.push_str("buffer_kib = 8192\nbuffer_segments = 8\nwrite_cache = false\n");
    text
}

/// Time of a rotation: reads at one distance vary evenly by it, and a read of the preceding block waits for it.
fn rotation_ms(measured: &Measurements, rate: f64) -> f64 {
    let mut octaves: Vec<Vec<f64>> = Vec::new();
    for moved in &measured.moves {
        let octave = moved.from.abs_diff(moved.to).max(1).ilog2() as usize;
        octaves.resize_with(octaves.len().max(octave + 1), Vec::new);
        octaves[octave].push(moved.ns as f64 / 1e6);
    }
    let mut spread = Vec::new();
    for times in octaves.into_iter().filter(|times| times.len() >= 8) {
        let middle = median(times.clone());
        spread.extend(times.into_iter().map(|time| time - middle));
    }
    // The middle half of values spread evenly over a rotation covers half of it.
    let evenly = (2.0 * (quantile(spread.clone(), 0.75) - quantile(spread, 0.25))).clamp(0.6, 1000.0);
    // From the end of a block to the end of the previous one takes a rotation less one block.
    let before = median(measured.before_ns.iter().map(|&ns| ns as f64 / 1e6).collect()) + SMALL as f64 / (rate * 1e3);
    let rotation = if (0.75..1.25).contains(&(before / evenly)) { before } else { evenly };
    let built = SPEEDS.iter().map(|rpm| 60_000.0 / rpm);
    built.into_iter().find(|built| (rotation / built - 1.0).abs() < 0.025).unwrap_or(rotation)
}

/// Cylinders and sectors of a track between the places where the rate was measured.
fn zones_of(measured: &Measurements, rotation_ms: f64, next_ms: f64) -> Vec<(u64, u64)> {
    let mut zones = Vec::new();
    // Rates that no disk of its size has, from a cache on the way for instance, still give cylinders as profiles have.
    let of_cylinders = |cylinders: u64| measured.bytes as f64 / (cylinders * HEADS * SECTOR_BYTES) as f64;
    let most = of_cylinders(CYLINDERS_LEAST).clamp(1.0, 1e6).floor();
    let least = of_cylinders(CYLINDERS_READ / 2).clamp(1.0, most).ceil();
    for (at, &(offset, rate)) in measured.rates.iter().enumerate() {
        let (end, next_rate) = measured.rates.get(at + 1).copied().unwrap_or((measured.bytes, rate));
        let rate = (rate + next_rate) / 2.0;
        let tracks_ms = HEADS as f64 * rotation_ms + next_ms;
        let sectors = (rate * 1e3 * tracks_ms / HEADS as f64 / SECTOR_BYTES as f64).round().clamp(least, most) as u64;
        zones.push(((end - offset).div_ceil(HEADS * sectors * SECTOR_BYTES), sectors));
    }
    zones
}

fn curve_of(
    measured: &Measurements,
    zones: &[(u64, u64)],
    cylinders: u64,
    rotation_ms: f64,
    overhead_ms: f64,
) -> SeekCurve {
    let still = SeekCurve::fitted(&[(1.0, 0.1), (10.0, 0.1)], 3);
    let layout = Layout::new(60_000.0 / rotation_ms, HEADS, zones, &still, 0);
    let cylinder = |byte: u64| layout.place(byte / SECTOR_BYTES).cylinder;
    // By distance, in quarters of an octave: the median time less the mean wait and the transfer.
    let mut classes: Vec<Vec<(f64, f64)>> = Vec::new();
    for moved in &measured.moves {
        let distance = cylinder(moved.from).abs_diff(cylinder(moved.to));
        if distance == 0 {
            continue;
        }
        let class = (4.0 * (distance as f64).log2()) as usize;
        classes.resize_with(classes.len().max(class + 1), Vec::new);
        classes[class].push((distance as f64, moved.ns as f64 / 1e6));
    }
    let sectors = zones.iter().map(|zone| zone.1).sum::<u64>() as f64 / zones.len() as f64;
    let other_ms = overhead_ms + rotation_ms * (0.5 + (SMALL / SECTOR_BYTES) as f64 / sectors);
    let seeks: Vec<(f64, f64)> = classes
        .into_iter()
        .filter(|class| class.len() >= 8)
        .map(|class| {
            let (distances, times): (Vec<f64>, Vec<f64>) = class.into_iter().unzip();
            (median(distances), (median(times) - other_ms).max(0.0))
        })
        .collect();
    SeekCurve::fitted(&seeks, cylinders as u32)
}

/// The highest rate of small reads, and the number of outstanding reads that nearly reaches it.
fn plateau(measured: &Measurements) -> (usize, f64) {
    let most = measured.parallel.iter().map(|level| level.per_second).fold(0.0, f64::max);
    let enough = measured.parallel.iter().find(|level| level.per_second >= 0.95 * most);
    (enough.map_or(1, |level| level.outstanding), most)
}

/// Times in ns of small reads that did not wait for others: single ones, and parallel ones as long as more of them
/// raise the rate in proportion.
fn unhindered(measured: &Measurements) -> Vec<f64> {
    let single = measured.parallel.first().map_or(0.0, |level| level.per_second);
    let gains = |level: &&Level| level.per_second >= 0.9 * single * level.outstanding as f64;
    let beside = measured.parallel.iter().take_while(gains).flat_map(|level| level.each_ns.iter().copied());
    measured.moves.iter().map(|moved| moved.ns).chain(beside).map(|ns| ns as f64).collect()
}

fn flash(measured: &Measurements, findings: &mut Vec<String>) -> Result<String, ProfileError> {
    let alone_us = median(measured.moves.iter().map(|moved| moved.ns as f64 / 1e3).collect());
    let (depth, most) = plateau(measured);
    let rate = measured.large_mb_per_s.clamp(1.0, 1e6);
    let read_us = (alone_us - SMALL as f64 / rate).clamp(0.1, 1e6);
    findings.push(format!("{most:.0} reads of 4 KiB a second, with {depth} outstanding; {rate:.0} MB/s"));
    let figures = |channels: u64, page_bytes: u64| {
        format!(
            "kind = \"flash\"\nTITLE\n# Measured: the time of a read, all of it counted as read_us.\n\
             overhead_us = 0\nread_us = {read_us:.3}\n# Measured: reads a second, from which channels is derived.\n\
             channels = {channels}\ndepth = {depth}\n# Measured: the rate; the page size is chosen to allow it.\n\
             read_mb_per_s = {rate:.1}\npage_bytes = {page_bytes}\n\
             # Estimates: writes are not measured.\nprogram_us = {:.3}\nwrite_mb_per_s = {:.1}\nwrite_buffer_kib = 4096\n",
            (10.0 * read_us).min(1e6),
            rate / 2.0,
        )
    };
    // The fewest channels that reach the measured rate: the model includes conflicts on channels.
    let per_second = |channels: u64| -> Result<f64, ProfileError> {
        let text = figures(channels, SMALL).replacen("TITLE", &format!("title = \"\"\nbytes = {}", measured.bytes), 1);
        let mut device = Device::new(&Profile::parse(&text)?, 1);
        let mut place = 0u64;
        let reads = (0..4096).map(|_| {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((place >> 16) % (measured.bytes / SMALL) * SMALL, SMALL)
        });
        let batch = Batch { purpose: Purpose::Parallel, reads: reads.collect(), outstanding: depth };
        let timed = run_on(&mut device, &mut 0, &batch);
        Ok(4096e9 / timed.total_ns.max(1) as f64)
    };
    let (mut low, mut high) = (1, 4096);
    while low < high {
        let middle = (low + high) / 2;
        match per_second(middle)? >= most {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    let mut page_bytes = SMALL;
    while page_bytes < PAGE_MAX && (low * page_bytes) as f64 / read_us < rate {
        page_bytes *= 2;
    }
    Ok(figures(low, page_bytes))
}

fn volume(measured: &Measurements, findings: &mut Vec<String>) -> String {
    let times: Vec<f64> = unhindered(measured).into_iter().map(|ns| ns / 1e3).collect();
    let (least_us, jitter_us) = exponential(times);
    let (depth, most) = plateau(measured);
    let rate = measured.large_mb_per_s.clamp(0.1, 1e6);
    findings.push(format!("{most:.0} reads of 4 KiB a second, with {depth} outstanding; {rate:.0} MB/s"));
    format!(
        "kind = \"volume\"\nTITLE\n# Measured: the least time of a read, and the mean of the time beyond it.\n\
         read_us = {least_us:.3}\njitter_us = {jitter_us:.3}\n# Measured with many reads at a time.\n\
         iops = {:.1}\nmb_per_s = {rate:.1}\n\
         # Estimates.\ndepth = 64\nwrite_us = {least_us:.3}\nio_kib = 256\nburst_ms = 0\n",
        most.clamp(1.0, 1e9),
    )
}

fn store(measured: &Measurements, findings: &mut Vec<String>) -> String {
    let times: Vec<f64> = unhindered(measured).into_iter().map(|ns| ns / 1e6).collect();
    let (middle, late) = (median(times.clone()), quantile(times, 0.9));
    // In a normal distribution the 90th percentile is 1.282 standard deviations above the mean and the 99th 2.326.
    let p99_ratio = (late / middle).powf(2.326 / 1.282).clamp(1.0, 1000.0);
    let large_ms = median(measured.large_ns.iter().map(|&ns| ns as f64 / 1e6).collect());
    let connection = (measured.large_bytes as f64 / 1e3 / (large_ms - middle).max(0.001)).clamp(0.01, 1e6);
    let total = measured.large_mb_per_s.clamp(connection, 1e6);
    let (connections, most) = plateau(measured);
    findings.push(format!(
        "one request reaches {connection:.0} MB/s, sixteen reach {total:.0} MB/s; {most:.0} small reads a second with {connections} outstanding"
    ));
    format!(
        "kind = \"store\"\nTITLE\n# Measured.\nread_first_byte_ms = {middle:.3}\nfirst_byte_p99_ratio = {p99_ratio:.3}\n\
         connection_mb_per_s = {connection:.1}\n# Measured, with sixteen requests; there may be more.\n\
         total_mb_per_s = {total:.1}\nconnections = {connections}\n# Estimate.\nwrite_first_byte_ms = {middle:.3}\n"
    )
}

fn shown(ns: f64) -> String {
    match ns {
        1e6.. => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.0} us", ns / 1e3),
    }
}
