//! `nigh sim` against published figures, which `golden/published.csv` lists with their sources.
//!
//! `cargo xtask golden` prints them side by side.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// LIRS with the history of the dissertation's figures.
const LIRS: &str = "lirs:ghosts=unlimited";

const PUBLISHED: &str = include_str!("golden/published.csv");

fn traces(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !folder.is_dir() {
        println!("skipped: {test}: there is no folder of traces beside the repository");
        return None;
    }
    Some(folder)
}

fn simulate(trace: &Path, policy: &str, sizes: &str, more: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.arg("sim").arg(trace).args(["--policy", policy, "--size", sizes, "--json"]).args(more);
    let output = command.output().expect("nigh starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A copy in `folder` of a trace of programs without the files in /etc, which the counted figures leave out.
fn without_etc(trace: &Path, folder: &Path) -> PathBuf {
    let files = trace.to_str().unwrap().replace(".csv.gz", ".files.csv.gz");
    let files = text(Path::new(&files));
    let in_etc: Vec<&str> = files
        .lines()
        .filter_map(|line| line.split_once(','))
        .filter(|(_, rest)| rest.split_once(',').is_some_and(|(_, path)| path.starts_with("/etc/")))
        .map(|(file, _)| file)
        .collect();
    let kept: String = text(trace)
        .split_inclusive('\n')
        .filter(|line| line.split(',').nth(4).is_none_or(|file| !in_etc.contains(&file)))
        .collect();
    let copy = folder.join("programs.pc.csv");
    std::fs::write(&copy, kept).unwrap();
    copy
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn published_figures() {
    let Some(folder) = traces("published_figures") else { return };
    let mut wrong = Vec::new();
    for line in PUBLISHED.lines().filter(|line| !line.starts_with('#')) {
        let [source, trace, policy, tolerance, figures] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("a row has five fields: {line}")
        };
        let tolerance: f64 = tolerance.parse().unwrap();
        let figures: Vec<(u64, f64)> = figures
            .split(' ')
            .map(|figure| figure.split_once('=').unwrap())
            .map(|(size, value)| (size.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let sizes: Vec<String> = figures.iter().map(|(size, _)| format!("{size}b")).collect();
        let exact = source == "exact";
        let found = match exact {
            true => {
                let scratch = tempfile::tempdir().unwrap();
                let programs = without_etc(&folder.join(trace), scratch.path());
                simulate(&programs, policy, &sizes.join(","), &["--ops", "reads", "--collapse"])
            }
            false => simulate(&folder.join(trace), policy, &sizes.join(","), &[]),
        };
        let rows = found["results"].as_array().unwrap();
        assert_eq!(rows.len(), figures.len());
        print!("{trace:22} {policy:10}");
        let mut sum_off = 0.0;
        for ((size, expected), row) in figures.iter().zip(rows) {
            assert_eq!(row["size_blocks"], *size);
            let value = match exact {
                true => row["hits"].as_u64().unwrap() as f64,
                false => 100.0 * row["hit_ratio"].as_f64().unwrap(),
            };
            print!("  {size}: {value:.1} ({expected})");
            sum_off += value - expected;
            // Figures are printed to a tenth.
            if (value - expected).abs() > tolerance + if exact { 0.0 } else { 0.005 } {
                wrong.push(format!("{trace}, {policy} at {size}: {value:.2}, published {expected} ± {tolerance}"));
            }
        }
        println!();
        if policy.starts_with("clock-pro") && sum_off / (figures.len() as f64) < -0.5 {
            wrong.push(format!("{trace}, {policy}: {:.2} below on average", sum_off / figures.len() as f64));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Section 2.4.2.1: LRU's hit ratio on the loop of cs is almost 0 until 1,400 blocks hold it; LIRS follows OPT.
#[test]
fn shapes_of_the_loops() {
    let Some(folder) = traces("shapes_of_the_loops") else { return };
    let cs = simulate(&folder.join("lirs/cs.trace.gz"), "lru,lirs:ghosts=unlimited,opt", "200b..1400b/200b", &[]);
    for policy in ["lru", LIRS] {
        for row in rows(&cs, policy) {
            let size = row["size_blocks"].as_u64().unwrap();
            let (ratio, best) = (ratio(&row), ratio(&rows(&cs, "opt")[(size / 200 - 1) as usize]));
            match policy {
                "lru" if size < 1_400 => assert!(ratio < 2.0, "LRU at {size}: {ratio}"),
                LIRS => assert!(best - ratio < 10.0, "LIRS at {size}: {ratio}, OPT {best}"),
                _ => {}
            }
        }
    }
    let gli = simulate(&folder.join("lirs/gli.trace.gz"), "lirs:ghosts=unlimited,lru,opt", "500b..2500b/500b", &[]);
    for ((lirs, lru), opt) in rows(&gli, LIRS).iter().zip(rows(&gli, "lru")).zip(rows(&gli, "opt")) {
        assert!(ratio(&opt) - ratio(lirs) < 12.0, "LIRS {lirs}, OPT {opt}");
        assert!(ratio(lirs) >= ratio(&lru), "LIRS {lirs}, LRU {lru}");
    }
}

/// Section 2.4.4.2: thresholds of 50 % and 75 % of R_max lose little, a large one turns LIRS into LRU, and none is LRU.
///
/// The dissertation's result for 125 % and 150 % on postgres and sprite, which are not here, does not hold for loops: a
/// loop's blocks return at a distance just above R_max, and become LIR in turn.
#[test]
fn a_large_threshold_makes_lirs_lru() {
    let Some(folder) = traces("a_large_threshold_makes_lirs_lru") else { return };
    let thresholds = ["50%", "75%", "100%", "550%", "none"];
    let policies = thresholds.map(|threshold| format!("{LIRS}:threshold={threshold}")).join(",") + ",lru";
    let found = simulate(&folder.join("lirs/multi1.trace.gz"), &policies, "600b..2000b/200b", &[]);
    let mean = |policy: &str| {
        let rows = rows(&found, policy);
        rows.iter().map(ratio).sum::<f64>() / rows.len() as f64
    };
    let with = |threshold: &str| mean(&format!("{LIRS}:threshold={threshold}"));
    let means = policies.split(',').map(|policy| format!("{policy} {:.2}", mean(policy)));
    println!("mean hit ratios on multi1: {}", means.collect::<Vec<_>>().join(", "));
    let hits = |policy: &str| rows(&found, policy).iter().map(|row| row["hits"].clone()).collect::<Vec<_>>();
    assert_eq!(hits(&format!("{LIRS}:threshold=none")), hits("lru"));
    let (lru, lirs) = (mean("lru"), with("100%"));
    assert!(lru < with("550%") && with("550%") < lirs - 10.0);
    for small in ["50%", "75%"] {
        assert!((with(small) - lirs).abs() < 1.0, "{small}: {}", with(small));
    }
}

/// Figure 2.16: HIR shares from 2 blocks to 30 % change little, and 30 % is nearer to LRU. Figure 2.17: a stack of 1.5 to 3
/// times the cache keeps most of the gain over LRU.
#[test]
fn lirs_is_not_sensitive_to_its_sizes() {
    let Some(folder) = traces("lirs_is_not_sensitive_to_its_sizes") else { return };
    let sizes = ["hir=2", "hir=10%", "hir=30%", "stack=1.5", "stack=2", "stack=3"].map(|size| format!("{LIRS}:{size}"));
    let policies = format!("lru,{LIRS},{}", sizes.join(","));
    let found = simulate(&folder.join("lirs/cpp.trace.gz"), &policies, "100b..900b/100b", &[]);
    let mean = |policy: &str| {
        let rows = rows(&found, policy);
        rows.iter().map(ratio).sum::<f64>() / rows.len() as f64
    };
    let means = policies.split(',').map(|policy| format!("{policy} {:.2}", mean(policy)));
    println!("mean hit ratios on cpp: {}", means.collect::<Vec<_>>().join(", "));
    for policy in policies.split(',').skip(2) {
        assert!((mean(policy) - mean(LIRS)).abs() < 1.5, "{policy}");
        assert!(mean(policy) > mean("lru"), "{policy}");
    }
}

fn rows(found: &Value, policy: &str) -> Vec<Value> {
    found["results"].as_array().unwrap().iter().filter(|row| row["policy"] == policy).cloned().collect()
}

fn ratio(row: &Value) -> f64 {
    100.0 * row["hit_ratio"].as_f64().unwrap()
}

/// The figures of LIRS's worst case, and of its history, in docs/sim.md.
#[test]
fn the_worst_cases_of_lirs_are_stated() {
    let test = "the_worst_cases_of_lirs_are_stated";
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim.md")).unwrap();
    // A sentence may go on in the next line.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let hits = |found: &Value, policy: &str| format!("{:.1}", ratio(&rows(found, policy)[0]));
    let folder = tempfile::tempdir().unwrap();
    let zigzag = folder.path().join("zigzag.lirs");
    let (to, fro) = (0..10_000, (0..10_000).rev());
    let blocks = (0..10).flat_map(|_| to.clone().chain(fro.clone()));
    std::fs::write(&zigzag, blocks.map(|block| format!("{block}\n")).collect::<String>()).unwrap();
    let found = simulate(&zigzag, "lirs,lru", "40%", &[]);
    let stated = format!("LIRS hits {} % and LRU {} %", hits(&found, "lirs"), hits(&found, "lru"));
    assert!(page.contains(&stated), "{stated}");
    let Some(folder) = traces(test) else { return };
    let found = simulate(&folder.join("lirs/cpp.trace.gz"), &format!("lirs,{LIRS}"), "20b", &[]);
    let stated = format!("hits {} % of *cpp* at 20 blocks instead of {}", hits(&found, "lirs"), hits(&found, LIRS));
    assert!(page.contains(&stated), "{stated}");
}
