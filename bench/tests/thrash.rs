//! The guard against real thrashing, on this machine: only where NIGH_THRASH=1 asks for it, because it sets up swap.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

use std::path::Path;
use std::process::Command;

/// The goals: three times the work in the 15 seconds after thrashing sets in, and half the time.
#[test]
fn a_pair_that_thrashes_gets_more_done_and_is_done_sooner() {
    let test = "a_pair_that_thrashes_gets_more_done_and_is_done_sooner";
    if std::env::var_os("NIGH_THRASH").is_none() {
        println!("skipped: {test}: NIGH_THRASH=1 is not set");
        return;
    }
    let bench = Path::new(env!("CARGO_BIN_EXE_nigh-bench"));
    if !bench.with_file_name("nigh").exists() {
        println!("skipped: {test}: nigh is not built beside {}", bench.display());
        return;
    }
    let output = Command::new(bench).args(["guard", "--part", "gz-vx", "--rounds", "1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    if text.contains("skipped: ") {
        println!("skipped: {test}: {text}");
        return;
    }
    let line = text.lines().find(|line| line.starts_with("guard  ")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.trim_end_matches('x').parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
    let [.., ratio, change, "%"] = words[..] else { panic!("{line}") };
    assert!(number(ratio) >= 3.0 && number(change) <= -50.0, "{text}");
    assert!(!Path::new("/sys/fs/cgroup/memory/nigh-bench").exists());
    assert!(std::fs::read_to_string("/proc/swaps").unwrap().lines().count() <= 1);
}
