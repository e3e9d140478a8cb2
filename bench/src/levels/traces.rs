//! Schemes of several levels on recorded traces: hits, demotions and the mean time of an access. They do not depend on the machine.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::measure::{self, nigh, recorded};

/// Below the folder of traces.
const TRACES: [(&str, &str); 6] = [
    ("multi1", "lirs/multi1.trace.gz"),
    ("cs", "lirs/cs.trace.gz"),
    ("gli", "lirs/gli.trace.gz"),
    ("OLTP", "block/OLTP.lis.zst"),
    ("P3", "block/P3.lis.zst"),
    ("cloudPhysics", "block/cloudPhysicsIO.vscsi.zst"),
];

/// A hierarchy: sizes of its levels as shares of the distinct blocks, the times of a hit at each and of a miss, and schemes.
struct Hierarchy {
    title: &'static str,
    levels: &'static str,
    costs: &'static str,
    schemes: &'static [&'static str],
}

/// As in figure 5.9.
const THREE: Hierarchy = Hierarchy {
    title: "three levels of a tenth of the blocks each; 0, 1, 1.2 and 11.2 ms",
    levels: "10%,10%,10%",
    costs: "0,1ms,1.2ms,11.2ms",
    schemes: &["ulc", "unilru", "ind:lru/mq/mq", "indlru", "ind:lirs/lirs/lirs"],
};

/// Memory and a disk on flash. Blocks that are read go into both, each with its own policy, as in bcache, OpenCAS and JuiceFS: `indlru`.
const TWO: [Hierarchy; 3] = [
    Hierarchy { title: "memory of 2 %, flash of 10 % of the blocks", levels: "2%,10%", ..FLASH },
    Hierarchy { title: "memory of 5 %, flash of 20 %", levels: "5%,20%", ..FLASH },
    Hierarchy { title: "memory of 10 %, flash of 40 %", levels: "10%,40%", ..FLASH },
];
const FLASH: Hierarchy = Hierarchy {
    title: "",
    levels: "",
    costs: "0,0.2ms,10.2ms",
    schemes: &["ulc", "unilru", "ind:lru/mq", "indlru", "ind:lirs/lru", "ind:lirs"],
};

/// Results of a scheme, in % of the references.
struct Row {
    misses: f64,
    demotions: f64,
    mean_ms: f64,
}

fn rows(trace: &Path, hierarchy: &Hierarchy) -> anyhow::Result<Vec<Row>> {
    let mut command = nigh()?;
    command.arg("sim").arg(trace).args(["--levels", hierarchy.levels, "--costs", hierarchy.costs]);
    command.args(["--warmup", "10%", "--json", "--policy", &hierarchy.schemes.join(",")]);
    let printed: Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
    let results = printed["results"].as_array().context("nigh sim gives results")?;
    let row = |result: &Value| {
        let number = |name: &str| result[name].as_f64().with_context(|| format!("no {name} in {result}"));
        let demotions = result["demotions"].as_array().with_context(|| format!("no demotions in {result}"))?;
        let demotions: f64 = demotions.iter().filter_map(Value::as_f64).sum();
        let references = number("references")?;
        Ok(Row {
            misses: number("misses")? * 100.0 / references,
            demotions: demotions * 100.0 / references,
            mean_ms: number("mean_ms")?,
        })
    };
    results.iter().map(row).collect()
}

/// Policies of a cache with a level in a timed simulation.
const POLICIES: [&str; 3] = ["lru", "lirs", "ulc"];

/// Its results.
struct Timed {
    reads: f64,
    stores: f64,
    seconds: f64,
}

/// A cache of 5 % of the blocks on a disk, with a level of 20 % on flash, with each of `POLICIES`.
fn timed(trace: &Path) -> anyhow::Result<Vec<Timed>> {
    let printed = |more: &[&str]| -> anyhow::Result<Value> {
        let mut command = nigh()?;
        command.arg("sim").arg(trace).args(["--json", "--size", "5%"]).args(more);
        Ok(serde_json::from_str(&measure::run(&mut command)?.stdout)?)
    };
    let trace = &printed(&["--policy", "lru"])?["trace"];
    let bytes = trace["distinct_blocks"].as_u64().zip(trace["block_bytes"].as_u64());
    let (blocks, block) = bytes.context("nigh sim describes the trace")?;
    let level = format!("ssd-nvme:{}", blocks / 5 * block);
    let printed = printed(&[
        "--device",
        "hdd-7200",
        "--pace",
        "closed",
        "--readahead",
        "none",
        "--level",
        &level,
        "--policy",
        &POLICIES.join(","),
    ])?;
    let row = |result: &Value| {
        let number = |of: &Value| of.as_f64().with_context(|| format!("no number in {result}"));
        let (reads, stores) = (number(&result["device_read_bytes"])?, number(&result["levels"][0]["stores"])?);
        Ok(Timed { reads, stores, seconds: number(&result["execution_s"])? })
    };
    printed["results"].as_array().context("nigh sim gives results")?.iter().map(row).collect()
}

pub(super) fn run() -> anyhow::Result<()> {
    let traces: Vec<_> = TRACES.iter().filter_map(|(name, path)| Some((name, recorded(path)?))).collect();
    println!("{}: mean ms (misses and demotions in % of the references)", THREE.title);
    println!("{:14}{}", "", THREE.schemes.iter().map(|scheme| format!("{scheme:>24}")).collect::<String>());
    for (name, trace) in &traces {
        let cell = |row: &Row| format!("{:>8.3} ({:5.2}, {:6.2})", row.mean_ms, row.misses, row.demotions);
        let cells: String = rows(trace, &THREE)?.iter().map(|row| format!("{:>24}", cell(row))).collect();
        println!("{name:14}{cells}");
    }
    println!(
        "\nreads of the disk with ulc, for each that another scheme makes: at most 0.9 beside indlru on four traces, never above 1.02?"
    );
    for hierarchy in &TWO {
        println!("{}", hierarchy.title);
        println!(
            "{:14}{}",
            "",
            hierarchy.schemes[1..].iter().map(|scheme| format!("{scheme:>14}")).collect::<String>()
        );
        for (name, trace) in &traces {
            let rows = rows(trace, hierarchy)?;
            let (ulc, others) = rows.split_first().context("ulc is the first")?;
            let cells: String = others.iter().map(|row| format!("{:>14.3}", ulc.misses / row.misses)).collect();
            println!("{name:14}{cells}");
        }
    }
    println!(
        "\nthe engine, timed: memory of 5 % above flash of 20 % above a disk; with ulc, for each with another policy: bytes read from the \
         disk, blocks stored on the flash, time"
    );
    println!("{:14}{:>24}{:>24}", "", POLICIES[0], POLICIES[1]);
    for (name, trace) in &traces {
        let rows = timed(trace)?;
        let (ulc, others) = rows.split_last().context("ulc is the last")?;
        let cell = |of: &Timed| {
            format!("{:.2}, {:.2}, {:.2}", ulc.reads / of.reads, ulc.stores / of.stores, ulc.seconds / of.seconds)
        };
        let cells: String = others.iter().map(|of| format!("{:>24}", cell(of))).collect();
        println!("{name:14}{cells}");
    }
    Ok(())
}
