//! Whether a level on flash is worth it: the simulation of a plan, with levels of several sizes below the memory.

use std::fmt::Write;

use anyhow::{Context, ensure};
use nigh_sim::sizes::in_blocks;
use nigh_sim::{Sizes, TraceSummary};
use serde::Serialize;

use super::Question;
use super::price::{Price, amount};
use super::timed::{self, Settings};
use super::told::{NO_BREAK, unbroken};
use crate::size::{human_bytes, human_time, percent};
use crate::table::Table;
use crate::timed::{Timing, wait};

/// Most sizes of a level in one plan: each is a simulation for each size of memory.
const SIZES_MOST: usize = 12;
/// A size whose time is within this share of the shortest one is as good.
const AS_GOOD: f64 = 0.05;
const SECONDS_A_DAY: f64 = 86_400.0;

/// The levels that are asked about.
pub(super) struct Asked {
    profile: String,
    sizes: Vec<Sizes>,
    price: Option<Price>,
}

impl Asked {
    /// `PROFILE:SIZES`, such as `ssd-sata:64G..1T`, and the price of the level.
    pub(super) fn parse(text: &str, price: Option<&str>) -> anyhow::Result<Asked> {
        let form = || format!("--level {text}: expected a device profile and sizes, such as ssd-sata:64G..1T");
        let (profile, sizes) = text.rsplit_once(':').filter(|(profile, _)| !profile.is_empty()).with_context(form)?;
        let sizes =
            sizes.split(',').map(str::parse).collect::<Result<_, _>>().with_context(|| format!("--level {text}"))?;
        // An unknown profile is found before the trace is read.
        nigh_sim::timed::profile(profile).with_context(|| format!("--level {text}"))?;
        let price = price.map(|price| Price::parse("--level-cost", price)).transpose()?;
        Ok(Asked { profile: profile.to_owned(), sizes, price })
    }
}

/// The cells of memory and level.
#[derive(Serialize)]
pub(super) struct Levels {
    /// The profile of the level's device.
    profile: String,
    policy: String,
    cells: Vec<Cell>,
    /// Whether requests wait for replies; otherwise they come at their times, and their mean latency is shown instead of the wait.
    #[serde(skip)]
    is_closed: bool,
}

/// One size of memory with one size of the level.
#[derive(Serialize)]
struct Cell {
    memory_bytes: u64,
    /// 0 without a level.
    level_bytes: u64,
    waited_s: f64,
    latency_mean_us: Option<f64>,
    latency_p99_us: Option<f64>,
    /// Whether requests come faster than they can be replied to.
    overloaded: bool,
    /// Share of the loads that came from the level.
    level_hit_ratio: Option<f64>,
    written_bytes_a_day: Option<f64>,
    /// The same in sizes of the level: drive writes a day.
    drive_writes_a_day: Option<f64>,
    cost: Option<f64>,
}

/// Simulates `policy` with and without levels, with the present memory and with the addition.
pub(super) fn simulate(
    settings: &Settings,
    asked: &Asked,
    question: Question,
    trace: &TraceSummary,
    price: Option<&Price>,
    policy: &str,
) -> anyhow::Result<Levels> {
    let block_bytes = trace.block_bytes;
    let sizes = in_blocks(&asked.sizes, trace.distinct_blocks, block_bytes).context("--level")?;
    let in_bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_bytes));
    ensure!(sizes.len() <= SIZES_MOST, "--level: {} sizes, at most {SIZES_MOST} are compared", sizes.len());
    let mut is_closed = true;
    let mut cells = Vec::new();
    for memory in [question.have, question.grown()] {
        for level in std::iter::once(0).chain(sizes.iter().copied()) {
            let bytes = in_bytes(level);
            let of_level = (level > 0).then(|| format!("{}:{bytes}B", asked.profile));
            let timing = timed::one(settings, policy, memory, of_level)?;
            is_closed = timing.is_closed;
            let seconds = trace.duration_s.unwrap_or(timing.execution_s);
            cells.push(cell(&timing, in_bytes(memory), bytes, seconds, price, asked.price.as_ref()));
        }
    }
    Ok(Levels { profile: asked.profile.clone(), policy: policy.to_owned(), cells, is_closed })
}

fn cell(
    timing: &Timing,
    memory_bytes: u64,
    level_bytes: u64,
    seconds: f64,
    memory: Option<&Price>,
    level: Option<&Price>,
) -> Cell {
    let of_level = timing.level.filter(|_| level_bytes > 0);
    let a_day = of_level.filter(|_| seconds > 0.0).map(|of| of.written_bytes as f64 * SECONDS_A_DAY / seconds);
    // Without the price of one of them, a sum would be too low.
    let cost = match (memory, level) {
        (Some(memory), Some(level)) => Some(memory.of(memory_bytes) + level.of(level_bytes)),
        (Some(memory), None) if level_bytes == 0 => Some(memory.of(memory_bytes)),
        _ => None,
    };
    Cell {
        memory_bytes,
        level_bytes,
        waited_s: timing.waited_s,
        latency_mean_us: timing.latency_mean_us,
        latency_p99_us: timing.latency_p99_us,
        overloaded: timing.overloaded,
        level_hit_ratio: of_level.map(|of| of.hits as f64 / of.loads.max(1) as f64),
        written_bytes_a_day: a_day,
        drive_writes_a_day: a_day.map(|bytes| bytes / level_bytes as f64),
        cost,
    }
}

impl Levels {
    /// The cell with the present memory and no level.
    fn now(&self) -> &Cell {
        &self.cells[0]
    }

    /// How long requests take in a cell.
    fn wait(&self, cell: &Cell) -> String {
        let mark = if cell.overloaded { "!" } else { "" };
        format!("{mark}{}", wait(self.is_closed, cell.waited_s, cell.latency_mean_us))
    }

    /// The smallest level that is as good as the best, or none, with the present memory.
    fn advised(&self) -> &Cell {
        let now = self.now();
        let with_have = || self.cells.iter().filter(|cell| cell.memory_bytes == now.memory_bytes);
        let best = with_have().map(|cell| cell.waited_s).fold(f64::INFINITY, f64::min);
        with_have().find(|cell| cell.waited_s <= best * (1.0 + AS_GOOD)).unwrap_or(now)
    }

    /// The bytes of that level, if one is worth it.
    pub(super) fn to_serve(&self) -> Option<u64> {
        Some(self.advised().level_bytes).filter(|bytes| *bytes > 0)
    }

    /// The answer in a sentence.
    pub(super) fn sentence(&self) -> String {
        let (now, as_good) = (self.now(), self.advised());
        let profile = &self.profile;
        if as_good.level_bytes == 0 {
            let waits = if self.is_closed { "that the program waits" } else { "that a request takes" };
            return format!(
                "No size of a level on {profile} shortens the {} {waits} by 5{NO_BREAK}%.",
                unbroken(&self.wait(now))
            );
        }
        let mut sentence = format!(
            "{} on {profile} below {} of memory brings the {} to {} from {} ({:+.1}{NO_BREAK}%)",
            human_bytes(as_good.level_bytes),
            human_bytes(as_good.memory_bytes),
            if self.is_closed { "wait" } else { "mean latency" },
            unbroken(&self.wait(as_good)),
            unbroken(&self.wait(now)),
            change(as_good, now)
        );
        let more = self.cells.iter().find(|cell| cell.level_bytes == 0 && cell.memory_bytes != now.memory_bytes);
        if let Some(more) = more {
            let _ = write!(
                sentence,
                "; {} of memory without a level {}",
                human_bytes(more.memory_bytes),
                unbroken(&self.wait(more))
            );
        }
        if let Some((bytes, writes)) = as_good.written_bytes_a_day.zip(as_good.drive_writes_a_day) {
            let _ = write!(
                sentence,
                ". The level is written with {} a day, {writes:.2} of its size",
                human_bytes(bytes as u64)
            );
        }
        sentence + "."
    }

    /// All cells.
    pub(super) fn table(&self) -> String {
        let waits = if self.is_closed { "WAITS" } else { "MEAN" };
        let mut table =
            Table::new(&["MEMORY", "LEVEL", waits, "CHANGE", "P99", "LEVEL HITS %", "WRITTEN/DAY", "DWPD", "COST"]);
        let dash = || "-".to_owned();
        for cell in &self.cells {
            table.row([
                human_bytes(cell.memory_bytes),
                if cell.level_bytes == 0 { dash() } else { human_bytes(cell.level_bytes) },
                self.wait(cell),
                format!("{:+.1} %", change(cell, self.now())),
                human_time(cell.latency_p99_us),
                percent(cell.level_hit_ratio),
                cell.written_bytes_a_day.map_or_else(dash, |bytes| human_bytes(bytes as u64)),
                cell.drive_writes_a_day.map_or_else(dash, |writes| format!("{writes:.2}")),
                cell.cost.map_or_else(dash, amount),
            ]);
        }
        let overload = if self.cells.iter().any(|cell| cell.overloaded) {
            "; !: requests come faster than they can be replied to"
        } else {
            ""
        };
        format!(
            "{} with a level on {}; DWPD: writes of the whole level a day{overload}\n{table}",
            self.policy, self.profile
        )
    }
}

/// How much longer the program waits than `now`, in percent.
fn change(cell: &Cell, now: &Cell) -> f64 {
    100.0 * (cell.waited_s / now.waited_s.max(f64::MIN_POSITIVE) - 1.0)
}
