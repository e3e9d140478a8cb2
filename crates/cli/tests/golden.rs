//! `nigh sim` against published figures, which `golden/published.csv` lists with their sources.
//!
//! `cargo xtask golden` prints them side by side.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
        let more: &[&str] = if exact { &["--ops", "reads", "--collapse"] } else { &[] };
        let found = simulate(&folder.join(trace), policy, &sizes.join(","), more);
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
        if policy == "clock-pro" && sum_off / (figures.len() as f64) < -0.5 {
            wrong.push(format!("{trace}, {policy}: {:.2} below on average", sum_off / figures.len() as f64));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Section 2.4.2.1: LRU's hit ratio on the loop of cs is almost 0 until 1,400 blocks hold it; LIRS follows OPT.
#[test]
fn shapes_of_the_loops() {
    let Some(folder) = traces("shapes_of_the_loops") else { return };
    let cs = simulate(&folder.join("lirs/cs.trace.gz"), "lru,lirs,opt", "200b..1400b/200b", &[]);
    for policy in ["lru", "lirs"] {
        for row in rows(&cs, policy) {
            let size = row["size_blocks"].as_u64().unwrap();
            let (ratio, best) = (ratio(row), ratio(&rows(&cs, "opt")[(size / 200 - 1) as usize]));
            match policy {
                "lru" if size < 1_400 => assert!(ratio < 2.0, "LRU at {size}: {ratio}"),
                "lirs" => assert!(best - ratio < 10.0, "LIRS at {size}: {ratio}, OPT {best}"),
                _ => {}
            }
        }
    }
    let gli = simulate(&folder.join("lirs/gli.trace.gz"), "lirs,lru,opt", "500b..2500b/500b", &[]);
    for ((lirs, lru), opt) in rows(&gli, "lirs").iter().zip(rows(&gli, "lru")).zip(rows(&gli, "opt")) {
        assert!(ratio(opt) - ratio(lirs) < 12.0, "LIRS {lirs}, OPT {opt}");
        assert!(ratio(lirs) >= ratio(lru), "LIRS {lirs}, LRU {lru}");
    }
}

/// Section 2.4.4.2: with a threshold far beyond R_max, LIRS is LRU.
#[test]
fn a_large_threshold_makes_lirs_lru() {
    let Some(folder) = traces("a_large_threshold_makes_lirs_lru") else { return };
    let policies = "lru,lirs:threshold=50%,lirs,lirs:threshold=150%,lirs:threshold=550%,lirs:threshold=100000%";
    let found = simulate(&folder.join("lirs/multi1.trace.gz"), policies, "600b..1400b/200b", &[]);
    let mean = |policy: &str| {
        let rows = rows(&found, policy);
        rows.iter().map(ratio).sum::<f64>() / rows.len() as f64
    };
    let (lru, lirs) = (mean("lru"), mean("lirs"));
    let (large, limitless) = (mean("lirs:threshold=550%"), mean("lirs:threshold=100000%"));
    println!("mean hit ratios: LRU {lru:.2}, LIRS {lirs:.2}, at 550 % {large:.2}, at 100000 % {limitless:.2}");
    assert!((limitless - lru).abs() < 1.0, "without a threshold {limitless}, LRU {lru}");
    assert!(large < lirs && lirs - lru > 10.0);
    // Small changes change little.
    assert!((mean("lirs:threshold=50%") - lirs).abs() < 5.0 && (mean("lirs:threshold=150%") - lirs).abs() < 5.0);
}

fn rows(found: &Value, policy: &str) -> Vec<Value> {
    found["results"].as_array().unwrap().iter().filter(|row| row["policy"] == policy).cloned().collect()
}

fn ratio(row: &Value) -> f64 {
    100.0 * row["hit_ratio"].as_f64().unwrap()
}
