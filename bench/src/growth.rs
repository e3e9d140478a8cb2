//! Processor time a reference, as the number of blocks grows a thousandfold.

use anyhow::Context;

use crate::measure::{self, generated, load, median, nigh};

const BLOCKS: [(u64, &str); 4] = [(10_000, "10k"), (100_000, "100k"), (1_000_000, "1M"), (10_000_000, "10M")];
/// Enough references that every block count is past its warm-up.
const REFERENCES: u64 = 20_000_000;
const ROUNDS: usize = 3;

pub(crate) fn run(policies: &[String]) -> anyhow::Result<()> {
    println!("processor nanoseconds a reference, Zipf(1.0), {REFERENCES} references, cache of 10 %; load {}", load());
    print!("{:12}", "blocks");
    BLOCKS.iter().for_each(|(_, name)| print!("{name:>9}"));
    println!("   growth");
    for policy in policies {
        print!("{policy:12}");
        let mut costs = Vec::new();
        for (_, name) in BLOCKS {
            let spec = format!("zipf:blocks={name}:alpha=1.0");
            let trace = generated(&format!("zipf-{name}-blocks.oracleGeneral"), &spec, REFERENCES)?;
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let mut command = nigh()?;
                command.arg("sim").arg(&trace).args(["--policy", policy, "--size", "10%", "--json"]);
                let found: serde_json::Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
                let row = &found["results"][0];
                let rate = row["references_per_s"].as_f64().context("nigh sim gives a rate")?;
                rounds.push(1e9 / rate);
            }
            costs.push(median(&mut rounds));
            print!("{:>9.1}", costs[costs.len() - 1]);
        }
        println!("{:>8.1}x", costs[costs.len() - 1] / costs[0]);
    }
    Ok(())
}
