//! `nigh demo`, shorter than usual.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The command in a folder of its own, where temporary folders go, too.
fn demo(folder: &tempfile::TempDir, requests: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["demo", "--requests", requests]).current_dir(folder).env("TMPDIR", folder.path());
    command.stdin(Stdio::null());
    command
}

fn left_in(folder: &tempfile::TempDir) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn serves_through_each_policy_and_agrees_with_the_replay() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(&folder, "8k").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "it failed, or showed progress in a pipe");
    let text = String::from_utf8(output.stdout).unwrap();
    // Of the two tables: what was served, and that beside the replay.
    let rows = |policy: &str| -> Vec<Vec<f64>> {
        let is_row = |line: &&str| line.split_whitespace().next() == Some(policy) && line.contains(" % ");
        let of_policy = text.lines().filter(is_row);
        let words = of_policy.map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect());
        words.collect()
    };
    let mut hit_ratios = Vec::new();
    for policy in ["lru", "arc", "lirs", "clock-pro"] {
        let rows = rows(policy);
        assert_eq!(rows.len(), 2, "{policy} in\n{text}");
        let (served, replayed) = (rows[1][0], rows[1][1]);
        assert_eq!(rows[0][0], served, "{policy} in\n{text}");
        assert!((served - replayed).abs() < 2.0, "{policy} in\n{text}");
        hit_ratios.push(served);
    }
    assert!(hit_ratios[2] >= hit_ratios[0], "LIRS has fewer hits than LRU in\n{text}");
    assert!(text.contains("nigh serve --memory 512M"), "{text}");
    assert_eq!(left_in(&folder), ["nigh-demo.html"]);
    // The page has the latencies and times of what was served, beside the replays.
    let page = std::fs::read_to_string(folder.path().join("nigh-demo.html")).unwrap();
    for expected in [
        "\"served\":[{\"policy\":\"lru\",\"hit_ratio\":0.",
        "\"p99_us\":",
        "\"elapsed_s\":",
        " served the requests in ",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

#[test]
fn a_signal_ends_it_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = demo(&folder, "30k").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    // Before that, it makes a file to find out whether its page can be written.
    while !left_in(&folder).iter().any(|name| name.starts_with("nigh-demo-")) {
        assert!(start.elapsed() < Duration::from_secs(60), "there is no folder with disks");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
    let said = std::io::read_to_string(running.stderr.take().unwrap()).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(2));
    assert!(said.starts_with("nigh: ") && said.ends_with("interrupted\n"), "{said}");
    assert_eq!(left_in(&folder), [] as [String; 0]);
}
