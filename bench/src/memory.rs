//! Resident memory of a replay, a distinct block and instance: the difference between one instance and several.

use anyhow::Context;

use crate::measure::{self, generated, nigh};

/// References to as many distinct blocks, so that every instance knows all of them.
const SPEC: &str = "scan:blocks=4M,uniform:blocks=4M:region=0";
const BLOCKS: u64 = 4_000_000;

pub(crate) fn run() -> anyhow::Result<()> {
    let trace = generated("memory.oracleGeneral", SPEC, 2 * BLOCKS)?;
    let listed = measure::run(nigh()?.args(["policies", "--json"]))?;
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout)?;
    let policies = listed["policies"].as_array().context("nigh policies lists them")?;
    println!("bytes a distinct block and instance, {BLOCKS} blocks, cache of 10 %; the goal is at most 40");
    for policy in policies {
        let name = policy["name"].as_str().context("a policy has a name")?;
        let peak = |instances: &str, threads: &str| -> anyhow::Result<u64> {
            let mut command = nigh()?;
            let settings = ["--policy", name, "--size", instances, "--threads", threads, "--json"];
            command.arg("sim").arg(&trace).args(settings);
            let found: serde_json::Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
            found["peak_memory_bytes"].as_u64().context("nigh sim gives its peak")
        };
        let (one, two) = (peak("10%", "1")?, peak("10%,11%", "2")?);
        println!("{name:12} {:>6.1}", (two.saturating_sub(one)) as f64 / BLOCKS as f64);
    }
    Ok(())
}
