//! How long a history pays: every policy with the parameter `ghosts`, from as many ghosts as blocks to unlimited ones, over
//! all traces there are and generated ones.

use std::env::current_exe;
use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_policy::{Spec, registry};
use nigh_sim::replay::Watch;
use nigh_sim::{Job, Loader, Ops, Options, References, Sample, sweep};
use nigh_trace::generate::{Common, Generator};
use nigh_trace::{ReadOptions, Requests};

use crate::measure;

/// Histories, the extremes first and last.
const HISTORIES: [&str; 6] = ["1", "1.5", "2", "3", "4", "unlimited"];
const LAST: usize = HISTORIES.len() - 1;
/// Sizes of the cache as shares of the distinct blocks.
const SHARES: [f64; 9] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8];
/// Smaller caches are left out.
const BLOCKS_LEAST: u32 = 20;
/// Longer traces are sampled by block.
const REFERENCES_MOST: usize = 1_000_000;
/// Hit ratios that differ by less are as good, in points.
const NEAR: f64 = 1.0;
const GENERATED: [(&str, u64); 6] = [
    ("zipf:blocks=100k:alpha=0.8", 500_000),
    ("loop:blocks=10k", 100_000),
    ("clustered:blocks=50k:mean=3000", 500_000),
    ("two-pools", 100_000),
    ("zipf:blocks=50k:alpha=0.9:weight=2+loop:blocks=20k", 500_000),
    ("zipf:blocks=50k@200k,scan:blocks=50k@50k,zipf:blocks=50k:region=25k@200k", 450_000),
];

/// The hit ratios of one policy on one trace at one size, in percent, by history.
struct Cell {
    trace: String,
    blocks: u32,
    ratios: [f64; HISTORIES.len()],
}

/// Prints the tables; with `cells`, each cell. Metadata is measured in caches of `blocks` blocks.
pub(crate) fn run(cells: bool, blocks: u32) -> anyhow::Result<()> {
    let policies: Vec<&str> = registry()
        .iter()
        .filter(|info| info.params.iter().any(|param| param.key == "ghosts"))
        .map(|info| info.name)
        .collect();
    let threads = std::thread::available_parallelism()?.get();
    let mut of_policy: Vec<Vec<Cell>> = policies.iter().map(|_| Vec::new()).collect();
    for (name, references) in traces()? {
        let sizes = sizes(&references);
        let mut jobs = Vec::new();
        for policy in &policies {
            for &capacity in &sizes {
                for history in HISTORIES {
                    let spec: Spec = format!("{policy}:ghosts={history}").parse()?;
                    jobs.push(Job { spec, capacity, gauges: 0 });
                }
            }
        }
        let runs = sweep(&references, &jobs, threads, Watch::default())?;
        let mut ratios = runs.iter().map(|run| 100.0 * run.counts.hits as f64 / run.counts.references.max(1) as f64);
        for cells in &mut of_policy {
            for &blocks in &sizes {
                let ratios = std::array::from_fn(|_| ratios.next().expect("a run for each job"));
                cells.push(Cell { trace: name.clone(), blocks, ratios });
            }
        }
    }
    for (policy, found) in policies.iter().zip(&of_policy) {
        summary(policy, found, blocks)?;
        if cells {
            print_cells(found);
        }
    }
    Ok(())
}

fn sizes(references: &References) -> Vec<u32> {
    let of = |share: &f64| (f64::from(references.distinct()) * share).round() as u32;
    let mut sizes: Vec<u32> = SHARES.iter().map(of).filter(|&size| size >= BLOCKS_LEAST).collect();
    sizes.dedup();
    sizes
}

/// The traces beside the repository.
pub(crate) fn recorded_traces() -> anyhow::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let mut paths = Vec::new();
    for part in ["lirs", "block", "pc"] {
        let Ok(files) = std::fs::read_dir(folder.join(part)) else {
            println!("skipped: there is no ../shared/traces/{part}");
            continue;
        };
        for file in files {
            paths.push(file?.path());
        }
    }
    paths.retain(|path| !path.to_string_lossy().contains(".files."));
    paths.sort();
    Ok(paths)
}

/// The traces beside the repository, and the generated ones.
fn traces() -> anyhow::Result<Vec<(String, References)>> {
    let mut all = Vec::new();
    for path in recorded_traces()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((name, recorded(&path)?));
    }
    for (spec, requests) in GENERATED {
        let common = Common { requests, ..Common::default() };
        all.push((spec.to_owned(), load(&mut *Generator::parse(spec, &common)?, 4096, None)?));
    }
    for (name, references) in &all {
        let rate = references.sample.map_or(String::new(), |sample| format!(", {:.3} of its blocks", sample.rate()));
        println!("{name}: {} references to {} blocks{rate}", references.ids.len(), references.distinct());
    }
    Ok(all)
}

/// A recorded trace, or a sample of it if it is long.
fn recorded(path: &Path) -> anyhow::Result<References> {
    let open = || nigh_trace::open(path, &ReadOptions::default());
    let opened = open()?;
    let block_bytes = opened.block_bytes.next_power_of_two().max(4096);
    let whole = load(&mut *{ opened.requests }, block_bytes, None)?;
    if whole.ids.len() <= REFERENCES_MOST {
        return Ok(whole);
    }
    let sample = Sample::new(REFERENCES_MOST as f64 / whole.ids.len() as f64);
    load(&mut *open()?.requests, block_bytes, sample)
}

/// The references of a trace, or of a sample of its blocks.
pub(crate) fn load(
    requests: &mut dyn Requests,
    block_bytes: u32,
    sample: Option<Sample>,
) -> anyhow::Result<References> {
    let mut loader =
        Loader::new(Options { block_bytes, ops: Ops::All, collapse: false, sample, requests_most: u64::MAX });
    loader.read(requests, |_, _| true)?;
    Ok(loader.finish())
}

fn summary(policy: &str, cells: &[Cell], blocks: u32) -> anyhow::Result<()> {
    let share = |holds: &dyn Fn(&Cell) -> bool| {
        100.0 * cells.iter().filter(|cell| holds(cell)).count() as f64 / cells.len() as f64
    };
    let better = |cell: &Cell| cell.ratios[0].max(cell.ratios[LAST]);
    let (short, long) = (
        share(&|cell| cell.ratios[0] > cell.ratios[LAST] + NEAR),
        share(&|cell| cell.ratios[LAST] > cell.ratios[0] + NEAR),
    );
    println!(
        "\n{policy}: {} cells; by more than {NEAR} point, 1x is better in {short:.0} % of them and unlimited in {long:.0} %",
        cells.len()
    );
    println!(
        "{:>10} {:>8} {:>12} {:>10} {:>10} {:>16}",
        "ghosts", "hits, %", "within 1, %", "worst", "best", "bytes a block"
    );
    for (at, history) in HISTORIES.iter().enumerate() {
        let mean = cells.iter().map(|cell| cell.ratios[at]).sum::<f64>() / cells.len() as f64;
        let near = share(&|cell| cell.ratios[at] >= better(cell) - NEAR);
        let off = cells.iter().map(|cell| cell.ratios[at] - better(cell));
        let (worst, best) = off.fold((0.0_f64, 0.0_f64), |(worst, best), off| (worst.min(off), best.max(off)));
        let bytes = if at == LAST { "-".to_owned() } else { bytes(policy, history, blocks)? };
        println!("{history:>10} {mean:>8.2} {near:>12.1} {worst:>+10.1} {best:>+10.1} {bytes:>16}");
    }
    Ok(())
}

/// Memory of an engine beside a block with this history, measured in a process of its own.
fn bytes(policy: &str, history: &str, blocks: u32) -> anyhow::Result<String> {
    let spec = format!("{policy}:ghosts={history}");
    let args = ["metadata", "--blocks", &blocks.to_string(), "--policy", &spec];
    let line = measure::run(Command::new(current_exe()?).args(args))?.stdout;
    Ok(line.split_whitespace().nth(3).unwrap_or("-").to_owned())
}

fn print_cells(cells: &[Cell]) {
    println!("{:60} {:>8}  hit ratio in %, ghosts={}", "trace", "blocks", HISTORIES.join(", "));
    for cell in cells {
        let ratios = cell.ratios.map(|ratio| format!("{ratio:6.2}")).join(" ");
        let better = match cell.ratios[0] - cell.ratios[LAST] {
            ahead if ahead > NEAR => "1",
            ahead if ahead < -NEAR => "unlimited",
            _ => "",
        };
        println!("{:60} {:>8}  {ratios} {better}", cell.trace, cell.blocks);
    }
}
