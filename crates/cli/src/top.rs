//! `nigh top`: what a running server does, from one look to the next.

mod interval;
mod lender;
mod screen;

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nigh_service::{Command, ControlClient, ControlError, CurveStatistics};
use serde::Serialize;

use crate::args::SortArg;
use crate::args::TopArgs;
use crate::controlled::connect;
use crate::output;
use crate::size::{curve_cell, human_bytes, human_time, percent};
use crate::table::Table;
use interval::{ContentRow, Interval, LevelRow, Look, Row, TenantRow};
use lender::{LenderInterval, LenderLook};

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    ensure!((0.05..=3600.0).contains(&args.interval), "--interval is from 0.05 to 3600 seconds");
    let every = Duration::from_secs_f64(args.interval);
    let (mut client, path) = connect(&args.server)?;
    let named = |error: ControlError| anyhow::Error::from(error).context(path.clone());
    let answer = client.ask(&Command::Status {}).map_err(named)?;
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let is_live =
        !(args.once || args.json || dumb) && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if let Some(level) = answer.level {
        let first = LenderLook::new(level);
        if is_live {
            return watch_level(&mut client, first, every, args.sort).map_err(|error| error.context(path));
        }
        return print_level(&mut client, &first, every, args).map_err(|error| error.context(path));
    }
    let status = answer.status.ok_or_else(|| named(ControlError::Refused("the answer has no status".into())))?;
    let first = Look { at: Instant::now(), status };
    if is_live {
        return screen::watch(&mut client, first, every, args.sort).map_err(|error| error.context(path));
    }
    std::thread::sleep(every);
    let mut interval = Interval::between(&first, &look(&mut client).map_err(named)?);
    interval.sort(args.sort);
    if args.json {
        return print_json(&interval);
    }
    let mut table = Table::new(&HEAD);
    interval.exports.iter().chain([&interval.total]).for_each(|row| table.row(cells(row)));
    let mut text = format!("{}\n\n{table}", summary(&interval));
    if !interval.tenants.is_empty() {
        let mut table = Table::new(&TENANT_HEAD);
        interval.tenants.iter().for_each(|tenant| table.row(tenant_cells(tenant)));
        text += &format!("\n{table}");
    }
    output::print(text.as_bytes())
}

fn print_json(interval: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(interval)?;
    text.push('\n');
    output::print(text.as_bytes())
}

/// The live screen of a level server.
fn watch_level(client: &mut ControlClient, first: LenderLook, every: Duration, sort: SortArg) -> anyhow::Result<()> {
    let mut last = first;
    screen::watch_text(every, sort, |sort| {
        let now = LenderLook::take(client)?;
        let mut interval = LenderInterval::between(&last, &now);
        interval.sort(sort);
        last = now;
        Ok(interval.text())
    })
}

/// One interval of a level server.
fn print_level(client: &mut ControlClient, first: &LenderLook, every: Duration, args: &TopArgs) -> anyhow::Result<()> {
    std::thread::sleep(every);
    let mut interval = LenderInterval::between(first, &LenderLook::take(client)?);
    interval.sort(args.sort);
    if args.json {
        return print_json(&interval);
    }
    output::print(interval.text().as_bytes())
}

fn look(client: &mut ControlClient) -> Result<Look, ControlError> {
    let status = client.status()?;
    Ok(Look { at: Instant::now(), status })
}

/// The server as a whole, in a line.
fn summary(interval: &Interval) -> String {
    let Interval { policy, chosen, memory_bytes, resident_bytes, connections, device_queue, .. } = interval;
    let share = 100.0 * *resident_bytes as f64 / (*memory_bytes).max(1) as f64;
    let (resident, memory) = (human_bytes(*resident_bytes), human_bytes(*memory_bytes));
    let clients = if *connections == 1 { "client" } else { "clients" };
    let chosen = chosen.as_ref().map(|chosen| format!(": {chosen}")).unwrap_or_default();
    let mut text = format!(
        "{policy}{chosen}  {resident} of {memory} ({share:.0} %)  {connections} {clients}  device queue {device_queue}"
    );
    if let Some(curve) = interval.curve.as_ref().filter(|curve| curve.none.is_none()) {
        let [half, twice, four] = curve_cells(Some(curve));
        let _ = write!(text, "  hit % x0.5 {half}, x2 {twice}, x4 {four}");
    }
    if let Some(ContentRow { bytes, blocks_bytes, decoded_per_s, .. }) = &interval.content {
        let (blocks, bytes) = (human_bytes(*blocks_bytes), human_bytes(*bytes));
        let _ = write!(text, "  {blocks} encoded in {bytes}, {decoded_per_s:.0} blocks/s");
    }
    for level in &interval.levels {
        let _ = match level {
            LevelRow { off: true, .. } => write!(text, "  level off"),
            LevelRow { stored_bytes, bytes, hits_per_s, .. } => {
                let (stored, bytes) = (human_bytes(*stored_bytes), human_bytes(*bytes));
                write!(text, "  level {stored} of {bytes}, {hits_per_s:.0} blocks/s")
            }
        };
        // Only a level on another host has these.
        if level.missed_per_s > 0.0 {
            let _ = write!(text, ", {:.0} missed/s", level.missed_per_s);
        }
        if level.lost > 0 {
            let _ = write!(text, ", lost {} times", level.lost);
        }
    }
    text
}

const HEAD: [&str; 12] =
    ["EXPORT", "HIT %", "REQ/S", "MB/S", "P50", "P99", "DIRTY", "CLIENTS", "AHEAD/S", "WASTED/S", "USED %", "LATE %"];

const TENANT_HEAD: [&str; 8] = ["TENANT", "OWNS", "SHARE", "PREDICTED %", "HIT % x0.5", "x2", "x4", "POLICY"];

fn tenant_cells(tenant: &TenantRow) -> [String; TENANT_HEAD.len()] {
    let [half, twice, four] = curve_cells(tenant.curve.as_ref());
    let share = tenant.share.map_or_else(|| "-".to_owned(), human_bytes);
    let (owns, policy) = (human_bytes(tenant.resident_bytes), tenant.policy.clone());
    [tenant.name.clone(), owns, share, percent(tenant.predicted), half, twice, four, policy]
}

/// Hit ratios with half, twice and four times the memory.
fn curve_cells(curve: Option<&CurveStatistics>) -> [String; 3] {
    [0.5, 2.0, 4.0].map(|times| {
        let point = curve.and_then(|curve| curve.points.iter().find(|point| point.times == times));
        point.map_or_else(|| "-".to_owned(), curve_cell)
    })
}

fn cells(row: &Row) -> [String; HEAD.len()] {
    [
        row.name.clone(),
        percent(row.hit_ratio),
        format!("{:.0}", row.requests_per_s),
        format!("{:.1}", row.bytes_per_s / 1e6),
        latency(row.p50_us),
        latency(row.p99_us),
        human_bytes(row.dirty_bytes),
        row.connections.to_string(),
        format!("{:.0}", row.prefetch_issued_per_s),
        format!("{:.0}", row.prefetch_wasted_per_s),
        percent(row.prefetch_accuracy),
        percent(row.prefetch_lateness),
    ]
}

fn latency(us: Option<u64>) -> String {
    human_time(us.map(|us| us as f64))
}
