//! `nigh devices`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use nigh_backend::{ReadTimer, Target};
use nigh_device::{
    Batch, Fitted, Kind, Model, Profile, Purpose, Recorded, SECTOR_BYTES, SequenceCost, fit, fit_recorded, measure,
};
use nigh_output::Destination;
use nigh_trace::Op;
use serde_json::{Value, json};

use crate::args::{DevicesArgs, DevicesCommand, FitArgs, InputArgs};
use crate::size::human_bytes;
use crate::{output, progress, source};

pub(crate) fn run(args: &DevicesArgs) -> anyhow::Result<()> {
    if let Some(DevicesCommand::Fit(args)) = &args.command {
        return fit_device(args);
    }
    let text = match (&args.name, args.json) {
        (None, false) => list(args.all)?,
        (Some(name), false) => format!("{}# {}\n", Profile::text(name)?, sequences(&Profile::named(name)?)),
        (name, true) => {
            let names: Vec<&str> = name.as_deref().map_or_else(|| Profile::names().collect(), |name| vec![name]);
            let devices = names.into_iter().map(as_json).collect::<anyhow::Result<Vec<_>>>()?;
            format!("{:#}\n", json!({ "schema": 1, "devices": devices }))
        }
    };
    output::print(text.as_bytes())
}

fn list(all: bool) -> anyhow::Result<String> {
    let names: Vec<&str> = if all { Profile::names().collect() } else { Profile::names_of_today().collect() };
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for name in names {
        let profile = Profile::named(name)?;
        let (kind, figures) = figures(&profile);
        let size = human_bytes(profile.bytes());
        let _ = writeln!(text, "{name:width$}  {kind:<6}  {size:>9}  {figures:<58}  {}", profile.title());
    }
    text += "\nraid0-4x-NAME, raid1-2x-NAME and raid5-4x-NAME are arrays of 4, 2 and 4 of such devices.\n";
    if !all {
        text += "--all lists the disks of the papers, too.\n";
    }
    Ok(text)
}

/// A device's kind, and its most important figures.
fn figures(profile: &Profile) -> (&'static str, String) {
    match profile.model() {
        Model::Disk(disk) => {
            let cylinders: u64 = disk.zones.iter().map(|zone| zone.0).sum();
            let seek = disk.seek.average_ms(cylinders as u32);
            let (latency, outer) = (30_000.0 / disk.rpm, disk.zones.first().map_or(0, |zone| zone.1));
            let rate = (outer * SECTOR_BYTES) as f64 * disk.rpm / 60e6;
            ("disk", format!("seek {seek:.1} ms, half a turn {latency:.2} ms, {rate:.1} MB/s at the rim"))
        }
        Model::Flash(flash) => {
            let read = flash.overhead_us + flash.read_us;
            let rates = format!("{} and {} MB/s", flash.read_mb_per_s, flash.write_mb_per_s);
            ("flash", format!("read {read:.0} us, {} channels, {rates}", flash.channels))
        }
        Model::Volume(volume) => {
            let read = volume.read_us + volume.jitter_us;
            ("volume", format!("read {read:.0} us, {} a second, {} MB/s", volume.iops, volume.mb_per_s))
        }
        Model::Store(store) => {
            let rates = format!("{} MB/s each, {} together", store.connection_mb_per_s, store.total_mb_per_s);
            let first = store.read_first_byte_ms;
            ("store", format!("first byte {first} ms, {} connections, {rates}", store.connections))
        }
        Model::Array(array) => {
            let (number, members) = (array.raid.number(), array.members);
            ("array", format!("RAID {number}, {members} members, chunks of {} KiB", array.chunk_kib))
        }
    }
}

/// Parameters of a device for DULO.
fn sequences(profile: &Profile) -> String {
    let SequenceCost { position_ms, block_ms } = SequenceCost::of(profile, 4096);
    format!("blocks of 4 KiB that lie together: dulo:base=lirs:position={position_ms:.3}ms:transfer={block_ms:.4}ms")
}

fn as_json(name: &str) -> anyhow::Result<Value> {
    let mut device: serde_json::Map<String, Value> = toml::from_str(&Profile::text(name)?)?;
    device.insert("name".to_owned(), name.into());
    Ok(device.into())
}

fn fit_device(args: &FitArgs) -> anyhow::Result<()> {
    let to = args.output.as_deref().map(|to| Destination::new(to, args.force, &[&args.path])).transpose()?;
    let fitted = if args.recording { fit_recording(args)? } else { fit_measured(args)? };
    let Fitted { text, profile, findings, distance_matters } = fitted;
    let sequences = sequences(&profile);
    let verdict = match distance_matters {
        true => "seek distance matters: policies that know what is sequential can gain (dulo)",
        false => "seek distance does not matter: what counts is the number of misses",
    };
    let said: String =
        findings.iter().map(String::as_str).chain([&sequences, verdict]).map(|line| format!("{line}\n")).collect();
    match &to {
        Some(to) => {
            let printed = output::print(said.as_bytes());
            // The measurements are not lost with the file.
            output::write(to, |out| out.write_all(text.as_bytes())).inspect_err(|_| {
                let _ = output::print(text.as_bytes());
            })?;
            printed
        }
        None => {
            output::tell_part(said);
            output::print(text.as_bytes())
        }
    }
}

/// The most requests of a recording that are read.
const REQUESTS_MOST: usize = 8 << 20;

fn fit_recording(args: &FitArgs) -> anyhow::Result<Fitted> {
    let (source, mut requests) = source::open(&args.path, &InputArgs::default())?;
    let (mut batch, mut by_volume, mut read) = (Vec::new(), BTreeMap::<u32, Vec<Recorded>>::new(), 0);
    let bar = progress::share("reading");
    while read < REQUESTS_MOST {
        progress::at(&bar, requests.progress());
        requests.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        read += batch.len();
        for request in batch.iter().filter(|request| request.latency_ns > 0) {
            let kind = match request.op {
                Op::Read => Kind::Read,
                Op::Write => Kind::Write,
                _ => continue,
            };
            by_volume.entry(request.volume).or_default().push(Recorded {
                request: nigh_device::Request { kind, offset_bytes: request.offset, bytes: request.length.into() },
                start_ns: request.time_ns,
                latency_ns: request.latency_ns,
            });
        }
    }
    bar.finish_and_clear();
    if read >= REQUESTS_MOST {
        output::tell(format_args!("nigh: note: only the first {read} requests of {} were read", source.name));
    }
    let name = source.name;
    anyhow::ensure!(
        !by_volume.is_empty(),
        "{name}: no request has a latency: record a block device ('nigh record --disk'), or name the column of latencies"
    );
    let most = by_volume.iter().max_by_key(|(_, requests)| requests.len()).map(|(&volume, _)| volume);
    let volume = args.volume.or(most).unwrap_or(0);
    if by_volume.len() > 1 && args.volume.is_none() {
        output::tell(format_args!(
            "nigh: note: of {} disks, disk {volume} has the most requests and is fitted: --volume NUMBER for another",
            by_volume.len()
        ));
    }
    let requests = by_volume.remove(&volume);
    let requests = requests.with_context(|| format!("{name}: no request of disk {volume} has a latency"))?;
    fit_recorded(requests, &name).context(name)
}

fn fit_measured(args: &FitArgs) -> anyhow::Result<Fitted> {
    if let Ok(Target::Nbd(export)) = args.path.to_string_lossy().parse() {
        anyhow::bail!("{export}: only files and block devices are measured, not NBD servers");
    }
    // The error has the system's message, which as its source would be printed twice.
    let timer = ReadTimer::open(&args.path).map_err(|error| anyhow::anyhow!("{error}"))?;
    let path = args.path.display().to_string();
    let bytes = timer.size().with_context(|| path.clone())?;
    let metadata = std::fs::metadata(&args.path).with_context(|| path.clone())?;
    if metadata.is_file() && metadata.blocks() * 512 < bytes / 10 * 9 {
        output::tell(format_args!("nigh: {path}: there are holes in it, and reading them tells nothing of the device"));
    }
    let budget_ns = args.seconds * 1_000_000_000;
    let bar = progress::time(budget_ns);
    let measured = measure(bytes, budget_ns, |batch: &Batch| {
        bar.set_prefix(match batch.purpose {
            Purpose::Rate | Purpose::InSequence => "reading in sequence  ",
            Purpose::Distance | Purpose::Before => "reading near and far ",
            Purpose::Parallel | Purpose::Large => "reading side by side ",
        });
        let timed = timer.run(batch)?;
        bar.inc(timed.total_ns);
        Ok::<_, std::io::Error>(timed)
    });
    bar.finish_and_clear();
    measured
        .map_err(anyhow::Error::from)
        .and_then(|measured| fit(&measured, &path).context("the times suit no device of its size"))
        .context(path)
}
