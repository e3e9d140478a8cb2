//! What an engine keeps beside its blocks: the growth of the process's resident memory while an engine fills whose frames
//! nobody writes to, so that what is resident is all but the blocks.

use std::env::current_exe;
use std::process::Command;

use anyhow::Context;
use nigh_engine::{Config, Engine, Op, Port, PortConfig, Region, Request, Volume, WriteMode};
use nigh_policy::{Stream, Tenant, registry};

use crate::measure;

const BLOCK: u64 = 4096;
/// With LIRS and as many ghosts as blocks.
const GOAL: f64 = 40.0;

/// Of one policy; of all, each in a process of its own, where none is given.
pub(crate) fn run(blocks: u32, policy: Option<&str>) -> anyhow::Result<()> {
    if let Some(policy) = policy {
        return one(blocks, policy);
    }
    println!(
        "bytes a block of 4 KiB in a cache of {blocks} blocks, after references to four times as many; the goal is at"
    );
    println!("most {GOAL} with lirs and as many ghosts as blocks");
    println!("{:12} {:>10} {:>10} {:>8} {:>14}", "policy", "resident", "ghosts", "bytes", "without policy");
    for info in registry().iter().filter(|info| !info.offline) {
        let args = ["metadata", "--blocks", &blocks.to_string(), "--policy", info.name];
        print!("{}", measure::run(Command::new(current_exe()?).args(args))?.stdout);
    }
    Ok(())
}

fn one(blocks: u32, policy: &str) -> anyhow::Result<()> {
    let before = resident_bytes()?;
    let mut engine = Engine::new(Config::new(blocks, policy.parse()?))?;
    engine.attach(Port(0), PortConfig::default())?;
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), 8 * u64::from(blocks) * BLOCK)])?;
    // Twice in a row, for policies that remember ghosts only of blocks that were referenced again.
    for block in 0..4 * u64::from(blocks) {
        read(&mut engine, block)?;
        read(&mut engine, block)?;
    }
    let gauges = engine.gauges();
    let bytes = (resident_bytes()? - before) as f64 / f64::from(blocks);
    let index = engine.metadata_bytes() as f64 / f64::from(blocks);
    let held = match policy {
        "lirs" if gauges.ghosts < blocks => "too few ghosts",
        "lirs" if bytes <= GOAL => "held",
        "lirs" => "not held",
        _ => "",
    };
    println!("{policy:12} {:>10} {:>10} {bytes:>8.1} {index:>14.1} {held}", gauges.resident, gauges.ghosts);
    Ok(())
}

fn read(engine: &mut Engine, block: u64) -> anyhow::Result<()> {
    let (volume, tenant, stream) = (Volume(0), Tenant(0), Stream(0));
    let request =
        Request { volume, tenant, op: Op::Read, offset: block * BLOCK, length: BLOCK, fua: false, stream, token: 0 };
    if engine.submit(0, request).ok().context("no request is refused")?.reply.is_none() {
        let operation = engine.next_operation(0).context("a miss is read")?;
        engine.complete(0, operation, Ok(()));
        engine.next_reply().context("the read is over")?;
    }
    Ok(())
}

/// Resident memory of this process.
fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
