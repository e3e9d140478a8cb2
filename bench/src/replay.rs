//! `nigh sim` against libCacheSim: processor time of the whole process, trace reading included on both sides.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::measure::{self, generated, load, median, nigh};
use crate::rival::cachesim;

/// A comparison: its name, the policy as each calls it, and the sizes in permille of the distinct blocks.
struct Case {
    name: &'static str,
    nigh: &'static str,
    rival: &'static str,
    permille: &'static [u64],
    /// Goal of the ratio.
    goal: f64,
}

const SWEEP: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 150, 200, 300, 400, 500];

const CASES: &[Case] = &[
    Case { name: "LRU at 1 % and 10 %", nigh: "lru", rival: "lru", permille: &[10, 100], goal: 10.0 },
    Case { name: "LIRS at 1 % and 10 %", nigh: "lirs", rival: "lirs", permille: &[10, 100], goal: 15.0 },
    Case { name: "CLOCK at 1 % and 10 %", nigh: "clock", rival: "clock", permille: &[10, 100], goal: 1.0 },
    Case { name: "ARC at 1 % and 10 %", nigh: "arc", rival: "arc", permille: &[10, 100], goal: 1.0 },
    Case { name: "sweep of 12 sizes, LRU (1)", nigh: "lru", rival: "lru", permille: SWEEP, goal: 20.0 },
    Case { name: "sweep of 12 sizes, LIRS", nigh: "lirs", rival: "lirs", permille: SWEEP, goal: 20.0 },
];

pub(crate) fn run(rounds: usize, references: u64) -> anyhow::Result<()> {
    let cachesim = cachesim()?;
    let name = format!("zipf-{references}.oracleGeneral");
    let trace = generated(&name, "zipf:blocks=1M:alpha=1.0", references)?;
    let distinct = distinct(&trace)?;
    println!("{references} references by Zipf(1.0) to 1 M blocks, {distinct} of them referenced; load {}", load());
    println!(
        "processor seconds of whole processes, each reading the same oracleGeneral file; median of {rounds} pairs"
    );
    println!("{:26} {:>8} {:>10} {:>7} {:>6}  misses agree", "", "nigh", "cachesim", "ratio", "goal");
    for case in CASES {
        let sizes: Vec<u64> = case.permille.iter().map(|permille| distinct * permille / 1000).collect();
        let (mut own, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut agree = String::new();
        for _ in 0..rounds {
            let (own_s, own_misses) = run_nigh(&trace, case.nigh, &sizes)?;
            let (other_s, other_misses) = run_rival(&cachesim, &trace, case.rival, &sizes)?;
            let off = own_misses.iter().zip(&other_misses).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
            agree = format!("within {:.2} points", 100.0 * off);
            own.push(own_s);
            other.push(other_s);
            ratios.push(other_s / own_s);
        }
        println!(
            "{:26} {:>8.2} {:>10.2} {:>6.1}x {:>5.0}x  {agree}",
            case.name,
            median(&mut own),
            median(&mut other),
            median(&mut ratios),
            case.goal
        );
    }
    println!("(1) nigh counts LRU's hits at all sizes in one pass");
    Ok(())
}

fn distinct(trace: &Path) -> anyhow::Result<u64> {
    let output = measure::run(nigh()?.args(["trace", "info", "--json"]).arg(trace))?;
    let info: serde_json::Value = serde_json::from_str(&output.stdout)?;
    info["distinct_blocks"].as_u64().context("nigh trace info tells the distinct blocks")
}

fn run_nigh(trace: &Path, policy: &str, sizes: &[u64]) -> anyhow::Result<(f64, Vec<f64>)> {
    let sizes: Vec<String> = sizes.iter().map(|size| format!("{size}b")).collect();
    let mut command = nigh()?;
    command.arg("sim").arg(trace).args(["--policy", policy, "--size", &sizes.join(","), "--json"]);
    let finished = measure::run(&mut command)?;
    let found: serde_json::Value = serde_json::from_str(&finished.stdout)?;
    let rows = found["results"].as_array().context("nigh sim gives results")?;
    Ok((finished.cpu_s, rows.iter().filter_map(|row| row["miss_ratio"].as_f64()).collect()))
}

/// Prints a line a size, in any order, with `cache size N, ... miss ratio 0.1234`.
fn run_rival(cachesim: &Path, trace: &Path, policy: &str, sizes: &[u64]) -> anyhow::Result<(f64, Vec<f64>)> {
    let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let mut command = Command::new(cachesim);
    command.arg(trace).args(["oracleGeneral", policy, &list.join(","), "--ignore-obj-size", "1"]);
    // It leaves a file of results in its working folder.
    let finished = measure::run(command.current_dir(measure::folder()?))?;
    let misses = list.iter().map(|size| {
        let line = finished.stdout.lines().find(|line| words(line).any(|pair| pair == ("size", size.as_str())));
        let line = line.with_context(|| format!("cachesim says nothing of size {size}"))?;
        let ratio = words(line).find(|(name, _)| *name == "ratio").context("cachesim gives a miss ratio")?.1;
        Ok(ratio.parse::<f64>()?)
    });
    Ok((finished.cpu_s, misses.collect::<anyhow::Result<_>>()?))
}

/// The words of `line` without commas, each with the one behind it.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let each = || line.split([' ', ',']).filter(|word| !word.is_empty());
    each().zip(each().skip(1))
}
