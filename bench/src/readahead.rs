//! Policies under read-ahead: how much longer each takes than the best one, and than under the first rule.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use crate::measure::{folder, nigh, recorded, run};

const TRACES: [&str; 9] = [
    "lirs/multi1.trace.gz",
    "lirs/gli.trace.gz",
    "lirs/cs.trace.gz",
    "lirs/cpp.trace.gz",
    "lirs/2_pools.trace.gz",
    "block/OLTP.lis.zst",
    "block/P3.lis.zst",
    "block/cloudPhysicsIO.vscsi.zst",
    "block/DTRS100M.trace.gz",
];

/// Recorded programs; with those above, all traces.
const PROGRAMS: [&str; 4] =
    ["pc/cscope_build.csv.gz", "pc/gcc_build.csv.gz", "pc/grep_loop.csv.gz", "pc/sqlite.csv.gz"];

/// A policy is near the best one up to this ratio of times.
const NEAR: f64 = 1.05;

/// Policies under rules of read-ahead
#[derive(Debug, Args)]
pub(crate) struct ReadAheadArgs {
    /// Rules of `nigh sim --readahead`; the first one is that before, to which the others are compared
    #[arg(long, value_delimiter = ',', default_value = "linux:into=policy,linux")]
    rules: Vec<String>,
    /// Policies
    #[arg(long, value_delimiter = ',', default_value = "lru,clock,lirs,clock-pro,arc,2q,w-tinylfu,s3-fifo,dulo")]
    policy: Vec<String>,
    /// Devices
    #[arg(long, value_delimiter = ',', default_value = "ssd-sata,net-volume,object-store,hdd-7200")]
    device: Vec<String>,
    /// Sizes of the cache
    #[arg(long, default_value = "5%,20%")]
    size: String,
    /// Recorded programs as well
    #[arg(long)]
    programs: bool,
    /// Only traces whose path contains this
    #[arg(long)]
    only: Option<String>,
    /// Also compare this policy under the last rule with every policy under every rule, and with lru under the first rule
    #[arg(long)]
    served: Option<String>,
    /// Also print the seconds and the bytes read of each cell, by rule
    #[arg(long)]
    cells: bool,
}

/// A trace at a size.
type Cell = (&'static str, u64);

#[derive(Clone, Copy)]
struct Took {
    seconds: f64,
    read_bytes: f64,
}

/// Time and bytes of each policy in each cell.
type Taken = BTreeMap<(String, Cell), Took>;

pub(crate) fn run_all(args: &ReadAheadArgs) -> anyhow::Result<()> {
    println!(
        "simulated time without thinking; in columns: policies, devices, rules, and over {} cells of a trace and a size:",
        args.size
    );
    println!(
        "the mean of the time by that of the best policy under the rule, in how many cells it is within 5 %, and the worst cell;"
    );
    println!(
        "the mean of the time by that under {}, and the worst cell; the mean of the bytes read likewise",
        args.rules[0]
    );
    for device in &args.device {
        let mut all = Vec::new();
        for rule in &args.rules {
            all.push(taken(args, device, rule)?);
        }
        for policy in &args.policy {
            for (rule, taken) in args.rules.iter().zip(&all) {
                report(device, policy, rule, taken, &all[0]);
            }
        }
        if args.cells {
            cells(device, &args.rules, &all);
        }
        if let Some(served) = &args.served {
            beside_all(device, served, &args.rules, &all)?;
        }
    }
    Ok(())
}

fn taken(args: &ReadAheadArgs, device: &str, rule: &str) -> anyhow::Result<Taken> {
    let mut taken = Taken::new();
    let programs = PROGRAMS.into_iter().filter(|_| args.programs);
    let is_wanted = |trace: &&str| args.only.as_ref().is_none_or(|only| trace.contains(only));
    for trace in TRACES.into_iter().chain(programs).filter(is_wanted) {
        let Some(mut path) = recorded(trace) else { continue };
        if PROGRAMS.contains(&trace) {
            let placed = folder()?.join(trace.replace('/', "_"));
            run(nigh()?.args(["trace", "layout", "--force"]).args([&path, &placed]))?;
            path = placed;
        }
        let mut command = nigh()?;
        command.arg("sim").arg(path).args(["--policy", &args.policy.join(","), "--size", &args.size]);
        command.args(["--device", device, "--readahead", rule, "--think", "0ms", "--json"]);
        let results: Value = serde_json::from_str(&run(&mut command)?.stdout)?;
        let results = results["results"].as_array().context("nigh sim has results")?;
        ensure!(!results.is_empty(), "{trace} has no results");
        for result in results {
            let number = |key: &str| result[key].as_f64().with_context(|| format!("results have {key}"));
            let policy = result["policy"].as_str().context("results have policies")?;
            let cell = (trace, number("size_blocks")? as u64);
            let took = Took { seconds: number("execution_s")?, read_bytes: number("device_read_bytes")? };
            taken.insert((policy.to_owned(), cell), took);
        }
    }
    Ok(taken)
}

fn report(device: &str, policy: &str, rule: &str, taken: &Taken, first: &Taken) {
    let best = |cell: Cell| {
        let of = taken.iter().filter(|((_, other), _)| *other == cell).map(|(_, took)| took.seconds);
        of.fold(f64::INFINITY, f64::min)
    };
    let (mut over, mut changed, mut bytes) = (Ratios::default(), Ratios::default(), Ratios::default());
    for (key, took) in taken.iter().filter(|((of, _), _)| of == policy) {
        over.add(key.1, took.seconds / best(key.1));
        changed.add(key.1, took.seconds / first[key].seconds);
        bytes.add(key.1, took.read_bytes.max(1.0) / first[key].read_bytes.max(1.0));
    }
    println!(
        "{device:13}{policy:10} {rule:20} {:5.2} {:2}/{:2} {:24} {:5.2} {:24} {:5.2}",
        over.mean(),
        over.count(NEAR),
        over.all.len(),
        over.worst(),
        changed.mean(),
        changed.worst(),
        bytes.mean()
    );
}

/// A policy is near the best combination of a policy and a rule up to this ratio of times; on disks, whose times depend on where blocks are, up to the second one.
const NEAR_ALL: [f64; 2] = [NEAR, 1.2];

/// Slower than LRU under the first rule by more than this is a loss.
const LOSS: f64 = 1.02;

/// The policy `served` under the last rule beside every policy under every rule.
fn beside_all(device: &str, served: &str, rules: &[String], all: &[Taken]) -> anyhow::Result<()> {
    let near = NEAR_ALL[usize::from(device.starts_with("hdd"))];
    let last = all.last().context("there are rules")?;
    let (mut ratios, mut lost) = (Ratios::default(), Ratios::default());
    for ((_, cell), took) in last.iter().filter(|((policy, _), _)| policy == served) {
        let times = all.iter().flatten().filter(|((_, other), _)| other == cell).map(|(_, took)| took.seconds);
        ratios.add(*cell, took.seconds / times.fold(f64::INFINITY, f64::min));
        let plain = all[0].get(&("lru".to_owned(), *cell)).context("lru is among the policies")?;
        lost.add(*cell, took.seconds / plain.seconds);
    }
    ensure!(!ratios.all.is_empty(), "{served} is not among the policies");
    println!(
        "{device:13}{served} with {} within {:.0} % of the best combination in {} of {} cells, mean {:.2}, worst {}; by lru with {}: worst {}, above {LOSS} in {}",
        rules[rules.len() - 1],
        100.0 * (near - 1.0),
        ratios.count(near),
        ratios.all.len(),
        ratios.mean(),
        ratios.worst(),
        rules[0],
        lost.worst(),
        lost.all.len() - lost.count(LOSS)
    );
    Ok(())
}

/// Seconds and bytes read of each cell, by rule.
fn cells(device: &str, rules: &[String], all: &[Taken]) {
    for key in all.iter().take(1).flat_map(Taken::keys) {
        let (policy, (trace, blocks)) = key;
        print!("{device:13}{policy:15} {:20} {blocks:8}", name(trace));
        for (rule, taken) in rules.iter().zip(all) {
            print!("  {rule} {:.3} s {:.0} MB", taken[key].seconds, taken[key].read_bytes / 1e6);
        }
        println!();
    }
}

#[derive(Default)]
struct Ratios {
    all: Vec<(f64, Cell)>,
}

impl Ratios {
    fn add(&mut self, cell: Cell, ratio: f64) {
        self.all.push((ratio, cell));
    }

    /// The geometric mean.
    fn mean(&self) -> f64 {
        (self.all.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / self.all.len() as f64).exp()
    }

    fn count(&self, most: f64) -> usize {
        self.all.iter().filter(|(ratio, _)| *ratio <= most).count()
    }

    fn worst(&self) -> String {
        let worst = self.all.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        worst.map_or_else(String::new, |(ratio, (trace, blocks))| format!("{ratio:.2} {} {blocks}", name(trace)))
    }
}

/// A trace without folder and suffixes.
fn name(trace: &str) -> &str {
    trace.split(['/', '.']).nth(1).unwrap_or(trace)
}
