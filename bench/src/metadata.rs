//! What an engine keeps beside its blocks: the growth of the process's resident memory while an engine fills whose frames
//! nobody writes to, so that what is resident is all but the blocks.

use anyhow::{Context, ensure};
use nigh_engine::{Config, Engine, Export, Op, Request, WriteMode};
use nigh_policy::{Stream, Tenant, registry};

const BLOCK: u64 = 4096;
/// What the issue of resident memory is about: metadata of a cached block, with LIRS and as many ghosts.
const GOAL: f64 = 40.0;

pub(crate) fn run(blocks: u32) -> anyhow::Result<()> {
    println!(
        "bytes a block of 4 KiB in a cache of {blocks} blocks, after references to four times as many; the goal is at"
    );
    println!("most {GOAL} with lirs and as many ghosts as blocks");
    println!("{:12} {:>10} {:>10} {:>8} {:>10}", "policy", "resident", "ghosts", "bytes", "of which index");
    for info in registry().iter().filter(|info| !info.offline) {
        let before = resident_bytes()?;
        let mut engine = Engine::new(Config::new(blocks, info.name.parse()?))?;
        engine.open(Export(0), 8 * u64::from(blocks) * BLOCK, WriteMode::Back)?;
        // Twice in a row, for policies that remember ghosts only of blocks that were referenced again.
        for block in 0..4 * u64::from(blocks) {
            read(&mut engine, block)?;
            read(&mut engine, block)?;
        }
        let gauges = engine.gauges();
        let bytes = (resident_bytes()? - before) as f64 / f64::from(blocks);
        let index = engine.metadata_bytes() as f64 / f64::from(blocks);
        let goal = match info.name {
            "lirs" => {
                ensure!(gauges.ghosts == blocks, "{} ghosts", gauges.ghosts);
                if bytes <= GOAL { "held" } else { "not held" }
            }
            _ => "",
        };
        println!("{:12} {:>10} {:>10} {bytes:>8.1} {index:>10.1} {goal}", info.name, gauges.resident, gauges.ghosts);
    }
    Ok(())
}

fn read(engine: &mut Engine, block: u64) -> anyhow::Result<()> {
    let (export, tenant, stream) = (Export(0), Tenant(0), Stream(0));
    let request =
        Request { export, tenant, op: Op::Read, offset: block * BLOCK, length: BLOCK, fua: false, stream, token: 0 };
    if engine.submit(0, request).ok().context("no request is refused")?.is_none() {
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
