//! Memory of an engine beside its blocks: the growth of the process's resident memory while an engine fills whose frames
//! nobody writes to, so that what is resident is all but the blocks.

use std::env::current_exe;
use std::process::Command;

use anyhow::Context;
use nigh_engine::Config;
use nigh_policy::registry;

use crate::engine::{BLOCK, read, with_disk};
use crate::measure;

/// With [`AIMED`].
const GOAL: f64 = 40.0;
/// LIRS with as many ghosts as blocks.
const AIMED: &str = "lirs:ghosts=1";

/// Of one policy; of all, each in a process of its own, where none is given.
pub(crate) fn run(blocks: u32, policy: Option<&str>) -> anyhow::Result<()> {
    if let Some(policy) = policy {
        return one(blocks, policy);
    }
    println!(
        "bytes a block of 4 KiB in a cache of {blocks} blocks, after references to four times as many; the goal is at"
    );
    println!("most {GOAL} with {AIMED}");
    println!("{:14} {:>10} {:>10} {:>8} {:>14}", "policy", "resident", "ghosts", "bytes", "without policy");
    let online = registry().iter().filter(|info| !info.offline).map(|info| info.name);
    for policy in online.chain([AIMED]) {
        let args = ["metadata", "--blocks", &blocks.to_string(), "--policy", policy];
        print!("{}", measure::run(Command::new(current_exe()?).args(args))?.stdout);
    }
    Ok(())
}

fn one(blocks: u32, policy: &str) -> anyhow::Result<()> {
    let before = resident_bytes()?;
    let mut engine = with_disk(Config::new(blocks, policy.parse()?), 8 * u64::from(blocks) * BLOCK)?;
    // Twice in a row, for policies that remember ghosts only of blocks that were referenced again.
    for block in 0..4 * u64::from(blocks) {
        read(&mut engine, block)?;
        read(&mut engine, block)?;
    }
    let gauges = engine.gauges();
    let bytes = (resident_bytes()? - before) as f64 / f64::from(blocks);
    let index = engine.metadata_bytes() as f64 / f64::from(blocks);
    let held = match policy {
        AIMED if gauges.ghosts < blocks => "too few ghosts",
        AIMED if bytes <= GOAL => "held",
        AIMED => "not held",
        _ => "",
    };
    println!("{policy:14} {:>10} {:>10} {bytes:>8.1} {index:>14.1} {held}", gauges.resident, gauges.ghosts);
    Ok(())
}

/// Resident memory of this process.
fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
