//! `nigh ctl`: a running server, asked and changed by its control socket.

use std::ffi::OsString;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::process;

use anyhow::{Context, bail, ensure};
use nigh_control::sidecar;
use nigh_service::{
    BLOCK, CandidateStatistics, Command, DiskStatistics, ExportOptions, ExportStatistics, FileExtent, HostStatistics,
    LatencySummary, LenderClient, LenderCounts, LenderFile, LenderStatistics, LevelServerStatistics, PendingExport,
    PendingState, RecordingStatus, Statistics, TargetStatistics, WriteLogStatistics, slow_limit,
};
use nigh_trace::layout::{self, Extent};

use crate::args::{ControlArgs, CtlArgs, CtlCommand, ExportCommand, SetCommand, Size};
use crate::controlled::connect;
use crate::results::{counted, grouped};
use crate::serve::export;
use crate::size::{curve_cell, human_bytes, human_span, human_time, percent};
use crate::table::Table;
use crate::{output, record};

pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let command = command(&args.command)?;
    let (mut client, path) = connect(&args.server)?;
    match &args.command {
        CtlCommand::Status { json } => {
            let answer = client.ask(&command).context(path)?;
            let shown = match (&answer.status, &answer.level) {
                (Some(status), _) => {
                    if *json {
                        status.json()
                    } else {
                        text(status)
                    }
                }
                (None, Some(level)) => {
                    if *json {
                        level.json()
                    } else {
                        lender(level)
                    }
                }
                (None, None) => bail!("the answer has no status"),
            };
            output::print(shown.as_bytes())
        }
        CtlCommand::Export { what: ExportCommand::List { json } } => {
            let status = client.status().context(path)?;
            output::print(if *json { exports_json(&status)? } else { exports(&status) }.as_bytes())
        }
        CtlCommand::Export { what: ExportCommand::Drain { name } } => {
            client.ask(&command).context(path)?;
            let of = client.status()?.exports.into_iter().find(|export| export.disk.name == *name);
            let left = of.and_then(|export| export.disk.write_log).map_or(0, |log| log.records);
            let text = match left {
                0 => format!("the write log of {name} is empty: its target has every write\n"),
                left => format!(
                    "the target of {name} has every write of before; {} came meanwhile\n",
                    counted(left, "write")
                ),
            };
            output::print(text.as_bytes())
        }
        CtlCommand::Export { what: ExportCommand::Freeze { name, program, .. } } if !program.is_empty() => {
            client.ask(&command).context(path)?;
            drop(client);
            run_frozen(&args.server, name, program)
        }
        CtlCommand::Hint { directives: None, extents: None, .. } => {
            let answer = client.ask(&command).context(path)?;
            output::print(answer.hints.context("the answer has no hints")?.as_bytes())
        }
        CtlCommand::Record { stop: true, .. } => {
            let answer = client.ask(&command).context(path)?;
            let status = answer.recording.context("the answer has no recording")?;
            output::print(record::summary(&status)?.as_bytes())
        }
        _ => client.ask(&command).map(|_| ()).context(path),
    }
}

/// Runs `program` while the export `name` is frozen, and thaws it.
fn run_frozen(server: &ControlArgs, name: &str, program: &[OsString]) -> anyhow::Result<()> {
    let status = process::Command::new(&program[0]).args(&program[1..]).status();
    let (mut client, path) = connect(server)?;
    let thawed = client.ask(&Command::Thaw { name: name.to_owned() }).context(path);
    let status = status.with_context(|| program[0].display().to_string())?;
    ensure!(status.success(), "{}: {status}", program[0].display());
    thawed.map(|_| ())
}

fn command(command: &CtlCommand) -> anyhow::Result<Command> {
    let add = |options: &mut ExportOptions, lists: &[String]| lists.iter().try_for_each(|list| options.add_all(list));
    Ok(match command {
        CtlCommand::Status { .. } => Command::Status {},
        CtlCommand::Set { what: SetCommand::Memory { size } } => {
            Command::Set { memory: Some(size.parse::<Size>()?.0), policy: None, readahead: None, slow: None }
        }
        CtlCommand::Set { what: SetCommand::Policy { policy } } => {
            Command::Set { memory: None, policy: Some(policy.clone()), readahead: None, slow: None }
        }
        CtlCommand::Set { what: SetCommand::Readahead { readahead } } => {
            Command::Set { memory: None, policy: None, readahead: Some(readahead.clone()), slow: None }
        }
        CtlCommand::Set { what: SetCommand::Slow { time } } => {
            slow_limit(time)?;
            Command::Set { memory: None, policy: None, readahead: None, slow: Some(time.clone()) }
        }
        CtlCommand::Set { what: SetCommand::Export { name, options } } => {
            let mut changes = ExportOptions::default();
            add(&mut changes, options)?;
            Command::SetExport { name: name.clone(), options: changes }
        }
        CtlCommand::Export { what: ExportCommand::Add { export: text, options, take_over } } => {
            // A slip is reported before anybody is asked.
            let (export, mut all) = export(text)?;
            add(&mut all, options)?;
            let target = export.disk.target.to_string();
            Command::AddExport { name: export.disk.name, target, options: all, take_over: *take_over }
        }
        CtlCommand::Export { what: ExportCommand::List { .. } } => Command::Status {},
        CtlCommand::Export { what: ExportCommand::Drain { name } } => Command::Drain { name: name.clone() },
        CtlCommand::Export { what: ExportCommand::Freeze { name, time, .. } } => {
            let seconds =
                nigh_text::seconds(time).with_context(|| format!("--for {time}: expected a time such as 10s"))?;
            Command::Freeze { name: name.clone(), seconds }
        }
        CtlCommand::Export { what: ExportCommand::Thaw { name } } => Command::Thaw { name: name.clone() },
        CtlCommand::Export { what: ExportCommand::Remove { name, discard } } => {
            Command::RemoveExport { name: name.clone(), discard: *discard }
        }
        CtlCommand::Hint { export, directives: None, extents: None } => Command::Hints { name: export.clone() },
        CtlCommand::Hint { export, directives, extents } => {
            let layout = extents.as_deref().map(layout::read_extents).transpose()?.unwrap_or_default();
            let file = |&Extent { file, offset, disk, length }: &Extent| FileExtent { file, offset, disk, length };
            Command::Hint {
                name: export.clone(),
                files: layout.extents().iter().map(file).collect(),
                directives: directives.as_deref().map(said).transpose()?.unwrap_or_default(),
            }
        }
        CtlCommand::Flush { name } => Command::Flush { name: name.clone() },
        CtlCommand::Record { file: Some(file), recording, .. } => {
            Command::Record { recording: record::recording(file, recording, "--sample")? }
        }
        CtlCommand::Record { file: None, .. } => Command::StopRecording {},
        CtlCommand::Reload => Command::Reload {},
        CtlCommand::AcceptLoss => Command::AcceptLoss {},
    })
}

/// A sidecar of directives. A slip is reported before anybody is asked.
fn said(path: &Path) -> anyhow::Result<String> {
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.with_context(|| path.display().to_string())?;
    sidecar::parse(&text).with_context(|| path.display().to_string())?;
    Ok(text)
}

/// For people: what a level server does, with counts since its start, or since a client connected.
fn lender(status: &LenderStatistics) -> String {
    let LenderStatistics {
        memory_bytes,
        used_bytes,
        file,
        connections,
        accepted,
        refused,
        received_bytes,
        sent_bytes,
        ..
    } = status;
    let mut text = String::new();
    let (memory, used) = (human_bytes(*memory_bytes), human_bytes(*used_bytes));
    match file {
        None => _ = writeln!(text, "memory   {memory}, {used} of it in use"),
        Some(LenderFile { path, bytes, reads, damaged, writes, faults, stuck, off, .. }) => {
            let _ = writeln!(text, "memory   {memory}");
            let bytes = human_bytes(*bytes);
            let off = match (off, stuck) {
                (true, _) => ", not used any more",
                (false, true) => ", does not respond",
                (false, false) => "",
            };
            let _ = writeln!(text, "level    {bytes} in {path}, {used} of it in use{off}");
            let (reads, writes) = (blocks(*reads), blocks(*writes));
            let _ = writeln!(
                text,
                "file     {reads} blocks read, {damaged} of them damaged; {writes} written; {faults} operations failed"
            );
        }
    }
    let _ = writeln!(text, "clients  {connections} connections, {accepted} since the start, {refused} refused");
    let _ = writeln!(text, "traffic  {} received, {} sent\n", human_bytes(*received_bytes), human_bytes(*sent_bytes));
    let mut table = Table::new(&["CLIENT", "SIZE", "RETRIEVED", "FOUND", "HIT %", "STORED", "REPLACED", "REFUSED"]);
    let mut row = |name: &str, bytes: u64, counts: &LenderCounts| {
        let LenderCounts { retrieves, hits, stores, evictions, refused_requests, .. } = *counts;
        let ratio = if retrieves == 0 { "-".into() } else { format!("{:.1}", 100.0 * hits as f64 / retrieves as f64) };
        table.row([
            name.to_owned(),
            human_bytes(bytes),
            blocks(retrieves),
            blocks(hits),
            ratio,
            blocks(stores),
            blocks(evictions),
            refused_requests.to_string(),
        ]);
    };
    for LenderClient { name, used_bytes, counts, .. } in &status.clients {
        row(name, *used_bytes, counts);
    }
    row("all, since the start", *used_bytes, &status.counts);
    text + &table.to_string()
}

/// The hit ratio with less and with more memory, of the whole cache or of each tenant.
fn curves(status: &Statistics) -> String {
    let mut text = String::new();
    let with_points = || status.curves().filter(|(_, curve)| curve.none.is_none());
    if with_points().next().is_some() {
        let mut table = Table::new(&[
            "HIT % WITH",
            "MEMORY",
            "x0.5",
            "x0.75",
            "x1",
            "x1.5",
            "x2",
            "x4",
            "REFERENCES",
            "SAMPLED",
            "POLICY",
        ]);
        for (tenant, curve) in with_points() {
            let memory = curve.present().map_or_else(|| "-".to_owned(), |present| human_bytes(present.bytes));
            let cell = |at: usize| curve.points.get(at).map_or_else(String::new, curve_cell);
            let [half, most, same, more, twice, four] = std::array::from_fn(cell);
            let (references, sampled) = (grouped(curve.references), grouped(curve.sampled));
            let policy = curve.policy.clone();
            let name = tenant.unwrap_or("all").to_owned();
            table.row([name, memory, half, most, same, more, twice, four, references, sampled, policy]);
        }
        let _ = writeln!(text, "\n{table}-: not yet known");
    }
    for tenant in &status.tenants {
        if let Some(reason) = tenant.curve.as_ref().and_then(|curve| curve.none.as_ref()) {
            let _ = writeln!(text, "\n{}: the hit ratio with other memory is not known: {reason}.", tenant.name);
        }
    }
    text
}

/// For people: counts since the server's start.
fn text(status: &Statistics) -> String {
    let mut text = String::new();
    let Statistics { host, connections, connections_max, accepted, refused, version, uptime_seconds, .. } = status;
    let HostStatistics { policy, readahead, memory_bytes, memory_max_bytes, resident_bytes, .. } = host;
    let (memory, resident) = (human_bytes(*memory_bytes), human_bytes(*resident_bytes));
    let most = human_bytes(*memory_max_bytes);
    let _ = writeln!(text, "nigh     {version}, for {}", human_span(*uptime_seconds));
    let _ = writeln!(text, "policy   {policy}\nmemory   {memory} of at most {most}, {resident} of it in use");
    for (tenant, chosen) in status.choices() {
        let ratio = |of: &CandidateStatistics| Some(format!("{} {} %", of.policy, percent(Some(of.hit_ratio?))));
        let ratios: Vec<String> = chosen.candidates.iter().filter_map(ratio).collect();
        let would = if ratios.is_empty() { "not known before the cache is full".to_owned() } else { ratios.join(", ") };
        let changes = counted(chosen.changes, "change");
        let of = tenant.map(|name| format!("{name}: ")).unwrap_or_default();
        let _ = writeln!(text, "chosen   {of}{} after {changes}; would hit: {would}", chosen.in_charge());
    }
    if let Some(reason) = host.curve.as_ref().and_then(|curve| curve.none.as_ref()) {
        let _ = writeln!(text, "curve    none: {reason}");
    }
    let _ = writeln!(text, "ahead    {readahead}");
    let _ = writeln!(
        text,
        "clients  {connections} of at most {connections_max}, {accepted} since the start, {refused} refused"
    );
    let _ = writeln!(text, "queue    {} operations wait for a device", host.device_queue);
    if let Some(RecordingStatus { file, running, requests, lost, seconds, ended, error }) = &status.recording {
        let (file, requests, lost) = (file.display(), grouped(*requests), grouped(*lost));
        let state = match (running, ended, error) {
            (true, ..) => "goes on".to_owned(),
            (false, _, Some(error)) => format!("ended: {error}"),
            (false, Some(ended), None) => format!("ended {}", ended.words()),
            (false, None, None) => "ended".to_owned(),
        };
        let _ = writeln!(text, "record   {file}: {requests} requests in {seconds:.1} s, {lost} lost; it {state}");
    }
    text.push('\n');
    let mut table =
        Table::new(&["EXPORT", "SIZE", "CLIENTS", "READS", "WRITES", "HIT %", "DIRTY", "FAULTS", "STATE", "TARGET"]);
    for export in &status.exports {
        let disk = &export.disk;
        let hits = disk.hits + disk.joined;
        let references = hits + disk.misses;
        table.row([
            disk.name.clone(),
            human_bytes(disk.size),
            export.connections.to_string(),
            disk.reads.to_string(),
            disk.writes.to_string(),
            percent((references > 0).then(|| hits as f64 / references as f64)),
            human_bytes(disk.dirty_bytes),
            disk.device_faults.to_string(),
            state(disk).to_owned(),
            [std::slice::from_ref(&disk.target), &disk.next[..]].concat().join(", then "),
        ]);
    }
    text += &table.to_string();
    for disk in status.exports.iter().map(|export| &export.disk) {
        for TargetStatistics { target, staged_bytes, trouble, .. } in &disk.targets {
            let Some(trouble) = trouble else { continue };
            let staged = match staged_bytes {
                0 => String::new(),
                bytes => format!(" {} that it has received may be lost.", human_bytes(*bytes)),
            };
            let _ = writeln!(text, "\n{}: {target}: {trouble}.{staged}", disk.name);
        }
    }
    text += &write_logs(status);
    text += &rates(status);
    for PendingExport { name, state, seconds } in &status.pending {
        let what = match state {
            PendingState::Opening => "being opened for {seconds} s: its device has to respond first",
            PendingState::Removing => {
                "being removed for {seconds} s: its clients have to leave, and its device to respond"
            }
        };
        let _ = writeln!(text, "\n{name}: {}.", what.replace("{seconds}", &seconds.to_string()));
    }
    for disk in status.exports.iter().map(|export| &export.disk).filter(|disk| disk.failing) {
        let _ = writeln!(
            text,
            "\n{}: its device fails to write {} ({}). It is tried again each second; writes to these bytes fail, or all that \
             find no room if none succeeds or too many failed.",
            disk.name,
            human_bytes(disk.failed_bytes),
            ranges(&disk.failed),
        );
    }
    for disk in status.exports.iter().map(|export| &export.disk).filter(|disk| disk.data_lost) {
        let name = &disk.name;
        let _ = writeln!(
            text,
            "\n{name}: data is lost, because its device failed a flush or memory damaged blocks (the log says which). Flushes \
             fail until it is removed ('nigh ctl export remove {name} --discard') and added again."
        );
    }
    for disk in status.exports.iter().map(|export| &export.disk).filter(|disk| disk.damaged > 0) {
        let (name, damaged) = (&disk.name, disk.damaged);
        let _ = write!(text, "\n{name}: memory damaged {damaged} blocks: check this machine's memory.");
        let lost: Vec<String> = disk.damaged_at.iter().map(ToString::to_string).collect();
        if !lost.is_empty() {
            let _ = write!(text, " Reads fail at {} until they are overwritten.", lost.join(", "));
        }
        text.push('\n');
    }
    if let Some(content) = &host.content {
        let head = [
            "CONTENT", "MAY TAKE", "TAKES", "BLOCKS", "CONTENTS", "SAVES", "ENCODED", "DECODED", "P99", "REPLACED",
            "DROPPED",
        ];
        let mut table = Table::new(&head);
        table.row([
            content.scheme.clone(),
            human_bytes(content.bytes),
            human_bytes(content.used_bytes),
            blocks(content.blocks),
            content.contents.to_string(),
            human_bytes(content.saved_bytes),
            content.encoded.to_string(),
            content.decoded.to_string(),
            format!("{} us", content.decode_latency.p99_us),
            content.evictions.to_string(),
            content.dropped.to_string(),
        ]);
        let _ = write!(text, "\n{table}");
        if content.one_of > 1 {
            let _ = writeln!(
                text,
                "Encoding did not pay: one of {} blocks is encoded, to see when it does.",
                content.one_of
            );
        }
    }
    if !host.levels.is_empty() {
        let head = [
            "LEVEL", "SIZE", "STORED", "TWICE", "WARM", "LOADED", "WRITTEN", "CARRIED", "DROPPED", "REPLACED",
            "CHANGED", "MISSED", "LOST", "FAULTS", "STATE",
        ];
        let mut table = Table::new(&head);
        for level in &host.levels {
            table.row([
                level.path.clone(),
                human_bytes(level.bytes),
                blocks(level.stored),
                blocks(level.duplicates),
                blocks(level.warm_blocks),
                blocks(level.hits),
                blocks(level.stores),
                blocks(level.carried),
                blocks(level.drops),
                blocks(level.evictions),
                blocks(level.invalidations),
                blocks(level.missed),
                level.lost.to_string(),
                level.faults.to_string(),
                if level.off { "off" } else { "on" }.to_owned(),
            ]);
        }
        let _ = write!(text, "\n{table}");
        let servers: Vec<_> = host.levels.iter().flat_map(|level| &level.servers).collect();
        if servers.len() > 1 {
            let mut table = Table::new(&["SERVER", "SIZE", "MISSED", "LOST", "STATE"]);
            for LevelServerStatistics { address, bytes, missed, lost, off } in servers {
                table.row([
                    address.clone(),
                    human_bytes(*bytes),
                    blocks(*missed),
                    lost.to_string(),
                    if *off { "off" } else { "on" }.to_owned(),
                ]);
            }
            let _ = write!(text, "\n{table}");
        }
    }
    if !status.tenants.is_empty() {
        let mut table = Table::new(&[
            "TENANT",
            "OWNS",
            "FLOOR",
            "CEILING",
            "SHARE",
            "POLICY",
            "PREDICTED",
            "UNPREDICTED",
            "OVERRULED",
            "EXPORTS",
        ]);
        let bound = |bytes| if bytes == 0 { "-".into() } else { human_bytes(bytes) };
        for tenant in &status.tenants {
            table.row([
                tenant.name.clone(),
                human_bytes(tenant.resident_bytes),
                bound(tenant.floor),
                bound(tenant.ceiling),
                tenant.share.map_or_else(|| "-".to_owned(), human_bytes),
                tenant.policy.clone(),
                tenant.predicted.to_string(),
                tenant.unpredicted.to_string(),
                tenant.overruled.to_string(),
                tenant.disks.join(" "),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    text + &curves(status)
}

/// The state of an export's disk, in a word.
fn state(disk: &DiskStatistics) -> &'static str {
    match disk {
        disk if disk.data_lost => "data lost",
        disk if disk.failing => "failing",
        disk if disk.targets.iter().any(|target| target.trouble.is_some()) => "trouble",
        disk if disk.frozen => "frozen",
        _ => "ok",
    }
}

/// The write logs of exports.
fn write_logs(status: &Statistics) -> String {
    let logs = || status.exports.iter().filter_map(|of| Some((&of.disk.name, of.disk.write_log.as_ref()?)));
    if logs().next().is_none() {
        return String::new();
    }
    let mut table =
        Table::new(&["WRITE LOG", "SIZE", "IN USE", "WRITES", "OLDEST", "LOGGED", "WRITTEN HOME", "STATE", "TARGET"]);
    for (name, log) in logs() {
        let state = match log {
            WriteLogStatistics { failure: Some(_), .. } => "failed",
            WriteLogStatistics { failing: true, full: true, .. } => "full, disk fails",
            WriteLogStatistics { failing: true, .. } => "disk fails",
            WriteLogStatistics { full: true, .. } => "full",
            WriteLogStatistics { records: 0, .. } => "empty",
            _ => "ok",
        };
        table.row([
            name.clone(),
            human_bytes(log.bytes),
            human_bytes(log.used_bytes),
            grouped(log.records),
            if log.records == 0 { "-".to_owned() } else { human_span(log.oldest_seconds as u64) },
            human_bytes(log.log_written_bytes),
            human_bytes(log.home_written_bytes),
            state.to_owned(),
            log.target.clone(),
        ]);
    }
    let mut text = format!("\n{table}");
    for (name, log) in logs() {
        if let Some(failure) = &log.failure {
            let (ranges, bytes) = (counted(log.missing_ranges, "range"), human_bytes(log.missing_bytes));
            let _ = writeln!(
                text,
                "\n{name}: its write log failed ({failure}): writes and flushes fail. Its target lacks {bytes} in {ranges}, which \
                 go there as far as the log can be read: {}.",
                self::ranges(&log.missing)
            );
        }
    }
    text
}

/// The requests of the last minute, the latencies since the start, and the limits of exports.
fn rates(status: &Statistics) -> String {
    let mut rates = Table::new(&["LAST MINUTE", "READS/S", "READ/S", "WRITES/S", "WRITTEN/S", "HIT %", "LIMITS"]);
    let head = ["P50, P99", "HITS", "MISSES", "WRITES", "FLUSHES", "SLOW"];
    let mut latencies = Table::new(&head);
    for ExportStatistics { disk, options, rates: of, .. } in &status.exports {
        let ExportOptions { connections, requests, iops, bandwidth, .. } = options.unusual(&disk.name);
        let limits = ExportOptions { connections, requests, iops, bandwidth, ..ExportOptions::default() }.to_string();
        rates.row([
            disk.name.clone(),
            format!("{:.1}", of.reads_per_s),
            human_bytes(of.read_bytes_per_s as u64),
            format!("{:.1}", of.writes_per_s),
            human_bytes(of.written_bytes_per_s as u64),
            percent(of.hit_ratio),
            if limits.is_empty() { "-".to_owned() } else { limits },
        ]);
        let both = |of: &LatencySummary| match of.count {
            0 => "-".to_owned(),
            _ => format!("{}, {}", human_time(Some(of.p50_us as f64)), human_time(Some(of.p99_us as f64))),
        };
        latencies.row([
            disk.name.clone(),
            both(&disk.hit_latency),
            both(&disk.miss_latency),
            both(&disk.write_latency),
            both(&disk.flush_latency),
            match (status.slow_limit_us, disk.slow_requests) {
                (None, 0) => "-".to_owned(),
                (None, slow) => slow.to_string(),
                (Some(limit), slow) => format!("{slow} > {}", human_time(Some(limit as f64))),
            },
        ]);
    }
    format!("\n{rates}\n{latencies}")
}

/// The exports and how clients connect to them.
fn exports(status: &Statistics) -> String {
    let mut table = Table::new(&["EXPORT", "SIZE", "CLIENTS", "OPTIONS", "TARGET", "URI"]);
    for ExportStatistics { disk, options, uris, connections, .. } in &status.exports {
        // The targets have a column of their own.
        let options = ExportOptions { next: None, ..options.unusual(&disk.name) }.to_string();
        table.row([
            disk.name.clone(),
            human_bytes(disk.size),
            connections.to_string(),
            if options.is_empty() { "-".to_owned() } else { options },
            [std::slice::from_ref(&disk.target), &disk.next[..]].concat().join(", then "),
            if uris.is_empty() { "-".to_owned() } else { uris.join(" ") },
        ]);
    }
    table.to_string()
}

fn exports_json(status: &Statistics) -> anyhow::Result<String> {
    let export = |export: &ExportStatistics| {
        let ExportStatistics { disk, options, uris, connections, .. } = export;
        serde_json::json!({
            "name": disk.name, "size": disk.size, "target": disk.target, "next": disk.next, "options": options,
            "connections": connections, "uris": uris,
        })
    };
    let exports: Vec<_> = status.exports.iter().map(export).collect();
    let json = serde_json::json!({ "schema": status.schema, "exports": exports });
    Ok(serde_json::to_string_pretty(&json)? + "\n")
}

/// Some of the ranges of bytes of a disk.
fn ranges(ranges: &[Range<u64>]) -> String {
    let words: Vec<String> = ranges.iter().take(4).map(|range| format!("{} to {}", range.start, range.end)).collect();
    format!("bytes {}{}", words.join(", "), if ranges.len() > words.len() { " and others" } else { "" })
}

/// Memory of this many blocks.
fn blocks(count: u64) -> String {
    human_bytes(count * BLOCK)
}
