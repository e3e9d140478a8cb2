//! DULO's figures 3 and 4 and tables 3 and 4 (FAST 2005, 4.1), on the workloads of `workloads.rs`.

use anyhow::Context;
use clap::ValueEnum;
use nigh_device::{Profile, SequenceCost};
use serde_json::Value;

use crate::measure::{self, nigh};
use crate::workloads::{BLOCK_BYTES, Workload, make};

/// The parameter that is varied.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Study {
    /// Execution times, hit ratios and sequences at several sizes of memory: figures 3 and 4
    Figures,
    /// Execution times by the size of the sequencing bank, with an evicting section of 64 MB: table 3
    Banks,
    /// Execution times by the size of the evicting section, with a bank of 8 MB: table 4
    Sections,
    /// Execution times of the paper's DULO and of adapt=1, beyond the paper, on all workloads
    Adapt,
}

/// Sizes of memory of the figures.
const SIZES: [(&str, &str); 14] = [
    ("viewperf", "64M,128M,256M"),
    ("tpc-h", "64M,128M,192M"),
    ("tpc-h-whole", "128M"),
    ("tpc-h-zipf", "128M"),
    ("smm", "70M,80M,90M,100M,110M"),
    ("cscope", "64M,128M,192M,256M"),
    ("glimpse", "128M,320M,480M,640M"),
    ("lxr", "128M,320M,480M,640M"),
    ("sqlite", "64M,96M,128M"),
    ("multi1", "80M,160M,240M,320M"),
    ("multi1-short", "80M,160M,240M,320M"),
    ("multi2", "160M,320M,480M,640M"),
    ("multi2-whole", "320M,640M"),
    ("multi2-zipf", "160M,320M,480M,640M"),
];
const DEVICE: &str = "hdd-10k";
const THINK: &str = "0.1ms";
/// The disk of 4.2.3 and 4.2.4 has 7,200 turns a minute. A multiplication of the matrix has 2^24 floating-point
/// operations, of which a processor of 1.7 GHz does some hundred million a second; that is 0.1 s for 35,000 references.
const SMM: (&str, &str) = ("hdd-7200", "0.003ms");
/// The workloads of tables 3 and 4 and their memory.
const MEMORY: [(&str, u32); 6] =
    [("tpc-h", 128), ("tpc-h-whole", 128), ("glimpse", 640), ("multi1", 160), ("multi2", 640), ("multi2-whole", 640)];
const BANKS_MIB: [u32; 6] = [1, 2, 4, 8, 16, 32];
const SECTIONS_MIB: [u32; 8] = [16, 32, 64, 96, 128, 192, 256, 320];
/// The paper speaks of the blocks in sequences longer than this.
const LONG_BLOCKS: u64 = 40;

pub(crate) fn run(study: Study, only: &[String], seed: u64) -> anyhow::Result<()> {
    let workloads = make(only, seed)?;
    println!(
        "{DEVICE}, Linux read-ahead by file, deadline, {THINK} of computing before each request; smm: {}, {}",
        SMM.0, SMM.1
    );
    match study {
        Study::Figures => {
            let policies = policies()?;
            workloads.iter().try_for_each(|workload| figures(workload, &policies))
        }
        Study::Banks => table(&workloads, "bank, MB", &BANKS_MIB.map(|bank| [bank, 64])),
        Study::Sections => table(&workloads, "section, MB", &SECTIONS_MIB.map(|section| [8, section])),
        Study::Adapt => {
            let policies = ["clock", "dulo", "dulo:adapt=1"].map(str::to_owned);
            workloads.iter().try_for_each(|workload| figures(workload, &policies))
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

fn figures(workload: &Workload, policies: &[String]) -> anyhow::Result<()> {
    let Some((_, sizes)) = SIZES.iter().find(|(name, _)| *name == workload.name) else { return Ok(()) };
    let outcomes = simulate(workload, policies, sizes)?;
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

/// Rows by sizes of bank and evicting section, in MiB; those that do not fit in a workload's memory are left out.
fn table(workloads: &[Workload], what: &str, rows: &[[u32; 2]]) -> anyhow::Result<()> {
    let fits = |[bank, section]: [u32; 2], memory| bank + section <= memory;
    let mut columns = Vec::new();
    print!("{what:14}");
    for workload in workloads {
        let Some(&(name, memory)) = MEMORY.iter().find(|(name, _)| *name == workload.name) else { continue };
        let dulo = rows.iter().filter(|&&row| fits(row, memory));
        let dulo = dulo.map(|[bank, section]| format!("dulo:bank={bank}M:evicting={section}M"));
        let policies: Vec<String> = std::iter::once("clock".to_owned()).chain(dulo).collect();
        let mut outcomes = simulate(workload, &policies, &format!("{memory}M"))?.into_iter();
        let mut seconds = vec![outcomes.next().map(|clock| clock.seconds)];
        seconds.extend(
            rows.iter().map(|&row| if fits(row, memory) { outcomes.next() } else { None }.map(|one| one.seconds)),
        );
        columns.push(seconds);
        print!("{:>20}", format!("{name} ({memory}M)"));
    }
    println!();
    let varied = rows.iter().map(|row| if what.starts_with("bank") { row[0] } else { row[1] }.to_string());
    for (row, name) in std::iter::once("clock".to_owned()).chain(varied).enumerate() {
        print!("{name:14}");
        for column in &columns {
            print!("{:>20}", column[row].map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")));
        }
        println!();
    }
    Ok(())
}

/// Results of a policy at a size.
struct Outcome {
    seconds: f64,
    /// In percent, as the others.
    hits: f64,
    long: f64,
}

/// For each policy, at each size.
fn simulate(workload: &Workload, policies: &[String], sizes: &str) -> anyhow::Result<Vec<Outcome>> {
    let mut command = nigh()?;
    // The programs of a workload use one disk.
    command.arg("sim").args(&workload.programs).arg("--shared").arg("--extents").arg(&workload.extents);
    command.args(["--size", sizes]);
    let (device, think) = if workload.name == "smm" { SMM } else { (DEVICE, THINK) };
    command.args(["--device", device, "--readahead", "linux:into=policy", "--scheduler", "deadline", "--think", think]);
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
