//! AOIO beside the policies of its section 5 on recorded programs: hit ratios, device reads and time, and the means that
//! the paper gives. The policies that distinguish code, with each process as one piece of code; AOIO with a table of patterns.
//! UBM beside LIRS on the traces of the dissertation.
//!
//! The results depend on the traces only, not on the machine. Traces that are missing are skipped by name.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::measure::{self, recorded};

/// The recorded programs, and which identity of the code `nigh patterns` chooses for each.
const PROGRAMS: [(&str, &str); 3] = [("sqlite", "pc8"), ("gcc_build", "pc5"), ("grep_loop", "pc5")];
const BLOCK_BYTES: f64 = 4096.0;
const SIZES: &str = "12.5%,25%,50%,75%";

/// In the order of the columns. The paper's ORIG is `linux`; `lirs` and `opt` are not among its policies.
const POLICIES: [&str; 8] = ["lru", "linux", "ubm", "pcc", "amp", "lirs", "aoio", "opt"];
/// Places in `POLICIES`: those that the paper compares with AOIO, AMP and AOIO.
const OTHERS: [usize; 5] = [0, 1, 2, 3, 4];
const AMP: usize = 4;
const AOIO: usize = 6;

/// Those that distinguish code.
const OF_CODE: [&str; 3] = ["pcc", "amp", "aoio"];

/// The columns of nigh's own CSV, without that of the code.
const WITHOUT_CODE: &str = "time=time_ns,tenant=tenant,op=op,volume=volume,offset=offset,length=length,time-unit=ns,\
                            offset-unit=bytes,length-unit=bytes";

/// There is no read-ahead, so that only replacement differs, and programs do not compute between requests: as in the paper, the
/// time is that of requests.
const DEVICES: [&str; 2] = ["hdd-7200", "ssd-sata"];

/// The dissertation's traces of which we have the authors' own, and sizes in blocks.
const DISSERTATION: [(&str, &str); 4] = [
    ("multi1", "600b..2000b/200b"),
    ("cs", "200b..1400b/200b"),
    ("cpp", "100b..900b/200b"),
    ("gli", "500b..2000b/500b"),
];

/// The results of one program at one size, by policy.
struct Row {
    program: &'static str,
    size: String,
    values: Vec<f64>,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let placed = folder.path().join("placed.csv");
    let (mut ratios, mut reads, mut seconds) = (Vec::new(), Vec::new(), DEVICES.map(|_| Vec::new()));
    let (mut codes, mut tables) = (Vec::new(), Vec::new());
    // OPT does not run on a modelled device, where the order of requests is not known in advance.
    let timed = &POLICIES[..=AOIO];
    for (program, stream) in PROGRAMS {
        let Some(trace) = recorded(&format!("pc/{program}.csv.gz")) else { continue };
        let replayed = simulated(&trace, SIZES, &POLICIES, &["--stream", stream, "--ops", "reads", "--collapse"])?;
        ratios.extend(rows(program, &replayed, percent)?);
        codes.extend(of_code(program, stream, &trace, &folder.path().join("converted.csv"))?);
        tables.extend(of_tables(program, stream, &trace)?);
        let mut layout = measure::nigh()?;
        layout.args(["trace", "layout", "--force", "--stream", stream]).arg(&trace).arg(&placed);
        measure::run(&mut layout)?;
        for (device, seconds) in DEVICES.into_iter().zip(&mut seconds) {
            let options = ["--ops", "reads", "--device", device, "--readahead", "none", "--think", "0ms"];
            let results = simulated(&placed, SIZES, timed, &options)?;
            seconds.extend(rows(program, &results, |result| result["execution_s"].as_f64())?);
            if device == DEVICES[0] {
                let read_blocks = |result: &Value| Some(result["device_read_bytes"].as_f64()? / BLOCK_BYTES);
                reads.extend(rows(program, &results, read_blocks)?);
            }
        }
    }
    table("Hit ratio in %", &ratios, &POLICIES, 2);
    let columns = OF_CODE.map(|policy| [policy.to_owned(), format!("{policy}, a process is one code")]).concat();
    table("Hit ratio in %, with and without program counters", &codes, &columns, 2);
    let columns = ["aoio", "with its table", "second half", "with the table of the first"];
    table("Hit ratio in %, with a table of patterns", &tables, &columns, 2);
    table("Blocks read from the device", &reads, timed, 0);
    for (device, seconds) in DEVICES.into_iter().zip(&seconds) {
        table(&format!("Seconds on {device}"), seconds, timed, 3);
    }
    means(&ratios, &reads, &seconds);
    let mut dissertation = Vec::new();
    let policies = ["lru", "ubm", "lirs:ghosts=unlimited", "opt"];
    for (name, sizes) in DISSERTATION {
        let Some(trace) = recorded(&format!("lirs/{name}.trace.gz")) else { continue };
        let replayed = simulated(&trace, sizes, &policies, &[])?;
        dissertation.extend(rows(name, &replayed, percent)?);
    }
    table("Hit ratio in %, traces of the dissertation", &dissertation, &policies, 2);
    Ok(())
}

fn percent(result: &Value) -> Option<f64> {
    Some(100.0 * result["hit_ratio"].as_f64()?)
}

/// The policies of `OF_CODE`, each with program counters, and with a process as one piece of code.
fn of_code(program: &'static str, stream: &str, trace: &Path, converted: &Path) -> anyhow::Result<Vec<Row>> {
    let with = simulated(trace, SIZES, &OF_CODE, &["--stream", stream, "--ops", "reads", "--collapse"])?;
    let mut convert = measure::nigh()?;
    convert.args(["trace", "convert", "--force", "--stream", stream]).arg(trace).arg(converted);
    measure::run(&mut convert)?;
    let columns = ["--format", "csv", "--columns", WITHOUT_CODE, "--ops", "reads", "--collapse"];
    let without = simulated(converted, SIZES, &OF_CODE, &columns)?;
    let in_turn = with.into_iter().zip(without).flat_map(|(with, without)| [with, without]);
    rows(program, &in_turn.collect::<Vec<_>>(), percent)
}

/// AOIO as it goes and with the table of the whole trace; and the same of the second half, with the table of the first.
fn of_tables(program: &'static str, stream: &str, trace: &Path) -> anyhow::Result<Vec<Row>> {
    let path = trace.to_str().context("the path of a trace is no text")?;
    let table = ["--patterns", path];
    let second = ["--warmup", "50%"];
    let part = ["--patterns", path, "--patterns-part", "50%", "--warmup", "50%"];
    let runs: [&[&str]; 4] = [&[], &table, &second, &part];
    let common = ["--stream", stream, "--ops", "reads", "--collapse"];
    let results = runs.map(|more| simulated(trace, SIZES, &["aoio"], &[&common[..], more].concat()));
    let results: Vec<_> = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
    rows(program, &results, percent)
}

/// The results of `nigh sim`: for each policy, one for each size.
fn simulated(trace: &Path, sizes: &str, policies: &[&str], options: &[&str]) -> anyhow::Result<Vec<Vec<Value>>> {
    let mut sim = measure::nigh()?;
    sim.arg("sim").arg(trace).args(["--json", "--size", sizes, "--policy", &policies.join(",")]).args(options);
    let mut json: Value = serde_json::from_str(&measure::run(&mut sim)?.stdout)?;
    let Value::Array(results) = json["results"].take() else { anyhow::bail!("{sim:?}: no results") };
    let of = |policy| results.iter().filter(|result| result["policy"] == policy).cloned().collect();
    Ok(policies.iter().map(|&policy| of(policy)).collect())
}

/// A row for each size, with one value of each policy.
fn rows(
    program: &'static str,
    results: &[Vec<Value>],
    value: impl Fn(&Value) -> Option<f64>,
) -> anyhow::Result<Vec<Row>> {
    let sizes = &results[0];
    (0..sizes.len())
        .map(|at| {
            let values = results.iter().map(|of_policy| value(of_policy.get(at)?));
            let values = values.collect::<Option<_>>().with_context(|| format!("{program}: a result lacks a value"))?;
            Ok(Row { program, size: sizes[at]["size_blocks"].to_string(), values })
        })
        .collect()
}

fn table<S: AsRef<str>>(title: &str, rows: &[Row], columns: &[S], decimals: usize) {
    let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).collect();
    println!("\n{title}:\n\n| trace | blocks | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len() + 1));
    for Row { program, size, values } in rows {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.decimals$}")).collect();
        println!("| {program} | {size} | {} |", values.join(" | "));
    }
}

/// The paper's means: of each program at the size at which AOIO is farthest ahead of AMP, and over its five policies.
fn means(ratios: &[Row], reads: &[Row], seconds: &[Vec<Row>; DEVICES.len()]) {
    println!("\nAOIO against the five others, at the size at which it is farthest ahead of AMP:\n");
    let [disk, flash] = DEVICES;
    println!(
        "| trace | blocks | hit ratio, points | hits, by the mean of the five | blocks read | time, {disk} | time, {flash} |\n\
         |---|---|---|---|---|---|---|"
    );
    let mut sums = [0.0; 5];
    let mut programs = 0.0;
    for (name, _) in PROGRAMS {
        let lead = |row: &Row| row.values[AOIO] - row.values[AMP];
        let of_program = (0..ratios.len()).filter(|&at| ratios[at].program == name);
        let Some(at) = of_program.max_by(|&one, &other| lead(&ratios[one]).total_cmp(&lead(&ratios[other]))) else {
            continue;
        };
        let mean = |difference: &dyn Fn(usize) -> f64| {
            OTHERS.iter().map(|&other| difference(other)).sum::<f64>() / OTHERS.len() as f64
        };
        let relative = |row: &Row, other: usize| 100.0 * (row.values[AOIO] / row.values[other] - 1.0);
        let points = mean(&|other| ratios[at].values[AOIO] - ratios[at].values[other]);
        let found = [
            points,
            // Not the mean of five quotients: LRU has no hits on two programs.
            100.0 * points / (ratios[at].values[AOIO] - points),
            mean(&|other| relative(&reads[at], other)),
            mean(&|other| relative(&seconds[0][at], other)),
            mean(&|other| relative(&seconds[1][at], other)),
        ];
        println!("| {name} | {} | {} |", ratios[at].size, shown(found));
        sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
        programs += 1.0;
    }
    println!("| mean | | {} |", shown(sums.map(|sum| sum / programs)));
    println!("| paper | | | +25.9 % | -23.2 % | -20.2 % | |");
}

fn shown([points, changes @ ..]: [f64; 5]) -> String {
    format!("{points:+.1} | {}", changes.map(|change| format!("{change:+.1} %")).join(" | "))
}
