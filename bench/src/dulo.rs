//! DULO's figures 3 and 4 and tables 3 and 4 (FAST 2005, 4.1), on the workloads of `workloads.rs`.

use anyhow::Context;
use clap::ValueEnum;
use nigh_device::{Profile, SequenceCost};
use serde_json::Value;

use crate::measure::{self, nigh};
use crate::workloads::{BLOCK_BYTES, Workload, make};

/// What is varied.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Study {
    /// Execution times, hit ratios and sequences at several sizes of memory: figures 3 and 4
    Figures,
    /// Execution times by the size of the sequencing bank, with an evicting section of 64 MB: table 3
    Banks,
    /// Execution times by the size of the evicting section, with a bank of 8 MB: table 4
    Sections,
}

/// Sizes of memory of the figures.
const SIZES: [(&str, &str); 8] = [
    ("viewperf", "64M,128M,256M"),
    ("tpc-h", "64M,128M,192M"),
    ("cscope", "64M,128M,192M,256M"),
    ("glimpse", "128M,320M,480M,640M"),
    ("lxr", "128M,320M,480M,640M"),
    ("sqlite", "64M,96M,128M"),
    ("multi1", "80M,160M,240M,320M"),
    ("multi2", "160M,320M,480M,640M"),
];
const DEVICE: &str = "hdd-10k";
/// The workloads of tables 3 and 4 and their memory.
const MEMORY: [(&str, &str); 5] =
    [("tpc-h", "128M"), ("glimpse", "640M"), ("lxr", "320M"), ("multi1", "160M"), ("multi2", "320M")];
const BANKS_MIB: [u32; 6] = [1, 2, 4, 8, 16, 32];
const SECTIONS_MIB: [u32; 6] = [16, 32, 48, 64, 96, 112];
/// The paper speaks of the blocks in sequences longer than this.
const LONG_BLOCKS: u64 = 40;

pub(crate) fn run(study: Study, only: &[String]) -> anyhow::Result<()> {
    let workloads = make(only)?;
    println!("{DEVICE}, Linux read-ahead by file, deadline, 0.1 ms of computing before each request");
    match study {
        Study::Figures => workloads.iter().try_for_each(figures),
        Study::Banks => {
            let banks = BANKS_MIB.map(|bank| (bank, format!("dulo:evicting=64M:bank={bank}M")));
            table(&workloads, "bank, MB", &banks)
        }
        Study::Sections => {
            let sections = SECTIONS_MIB.map(|section| (section, format!("dulo:bank=8M:evicting={section}M")));
            table(&workloads, "section, MB", &sections)
        }
    }
}

/// The first is what the others are compared with.
fn policies() -> anyhow::Result<[String; 8]> {
    let SequenceCost { position_ms, block_ms } = SequenceCost::of(&Profile::named(DEVICE)?, BLOCK_BYTES);
    let on = |base: &str| format!("dulo:base={base}:position={position_ms:.1}ms:transfer={block_ms:.2}ms");
    let names = ["clock", "dulo", "clock:first=1", "dulo:first=1", "lirs", &on("lirs"), "clock-pro", &on("clock-pro")];
    Ok(names.map(str::to_owned))
}

fn figures(workload: &Workload) -> anyhow::Result<()> {
    let Some((_, sizes)) = SIZES.iter().find(|(name, _)| *name == workload.name) else { return Ok(()) };
    let policies = policies()?;
    let outcomes = simulate(workload, &policies, sizes)?;
    let sizes: Vec<&str> = sizes.split(',').collect();
    println!("\n{}: seconds (by clock's); hits, %; blocks in sequences longer than {LONG_BLOCKS}, %", workload.name);
    print!("{:52}", "");
    sizes.iter().for_each(|size| print!("{size:>26}"));
    println!();
    let mut clock: Vec<f64> = Vec::new();
    for (policy, outcomes) in policies.iter().zip(outcomes.chunks(sizes.len())) {
        if clock.is_empty() {
            clock = outcomes.iter().map(|outcome| outcome.seconds).collect();
        }
        print!("{policy:52}");
        for (outcome, clock) in outcomes.iter().zip(&clock) {
            let by_clock = 100.0 * (outcome.seconds / clock - 1.0);
            print!("{:>8.1}{by_clock:>+6.1} %{:>5.1}{:>5.1}", outcome.seconds, outcome.hits, outcome.long);
        }
        println!();
    }
    Ok(())
}

fn table(workloads: &[Workload], what: &str, variants: &[(u32, String)]) -> anyhow::Result<()> {
    let policies: Vec<String> = variants.iter().map(|(_, policy)| policy.clone()).collect();
    let mut columns = Vec::new();
    print!("{what:14}");
    for workload in workloads {
        let Some((name, size)) = MEMORY.iter().find(|(name, _)| *name == workload.name) else { continue };
        columns.push(simulate(workload, &[&["clock".to_owned()], &policies[..]].concat(), size)?);
        print!("{:>16}", format!("{name} ({size})"));
    }
    println!();
    let names = variants.iter().map(|(megabytes, _)| megabytes.to_string());
    for (row, name) in std::iter::once("clock".to_owned()).chain(names).enumerate() {
        print!("{name:14}");
        columns.iter().for_each(|column| print!("{:>16.1}", column[row].seconds));
        println!();
    }
    Ok(())
}

/// What a policy did at a size.
struct Outcome {
    seconds: f64,
    /// In percent, as the others.
    hits: f64,
    long: f64,
}

/// For each policy, at each size.
fn simulate(workload: &Workload, policies: &[String], sizes: &str) -> anyhow::Result<Vec<Outcome>> {
    let mut command = nigh()?;
    command.arg("sim").args(&workload.programs).arg("--extents").arg(&workload.extents).args(["--size", sizes]);
    command.args(["--device", DEVICE, "--readahead", "linux", "--scheduler", "deadline", "--think", "0.1ms"]);
    for policy in policies {
        command.args(["--policy", policy]);
    }
    let printed: Value = serde_json::from_str(&measure::run(command.arg("--json"))?.stdout)?;
    let results = printed["results"].as_array().context("nigh sim gives no results")?;
    results.iter().map(outcome).collect()
}

fn outcome(result: &Value) -> anyhow::Result<Outcome> {
    let number = |value: &Value| value.as_f64().context("nigh sim gives no times");
    let sequences = &result["sequences"];
    let lengths = sequences["size_blocks"].as_array().context("nigh sim gives no sequences")?;
    let short = lengths.iter().rposition(|length| length.as_u64().is_some_and(|length| length <= LONG_BLOCKS));
    let short = short.map_or(Ok(0.0), |at| number(&sequences["share"][at]))?;
    Ok(Outcome {
        seconds: number(&result["execution_s"])?,
        hits: 100.0 * number(&result["hit_ratio"])?,
        long: 100.0 * (1.0 - short),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn long(size_blocks: &[u64], share: &[f64]) -> f64 {
        let sequences = json!({ "size_blocks": size_blocks, "share": share });
        outcome(&json!({ "execution_s": 2.5, "hit_ratio": 0.25, "sequences": sequences })).unwrap().long
    }

    #[test]
    fn long_sequences_are_those_beyond_the_paper_s_limit() {
        assert_eq!(long(&[1, 40, 41, 128], &[0.125, 0.25, 0.5, 1.0]), 75.0);
        assert_eq!(long(&[41, 128], &[0.5, 1.0]), 100.0);
        assert_eq!(long(&[1, 8], &[0.5, 1.0]), 0.0);
    }

    #[test]
    fn what_is_no_result_is_an_error() {
        assert!(outcome(&json!({ "execution_s": 2.5, "hit_ratio": 0.25 })).is_err());
        assert!(outcome(&json!({ "sequences": { "size_blocks": [], "share": [] } })).is_err());
    }
}
