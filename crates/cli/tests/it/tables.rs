//! Tables of `nigh sim`: reads apart from writes, latency and idle time, and several traces side by side.

use nigh_testkit::browser::chromium;
use serde_json::Value;

use crate::command::{json, nigh, printed};

const MIXED: [&str; 7] = ["sim", "--generate", "zipf:blocks=2k", "--requests", "20k", "--writes", "40%"];

#[test]
fn reads_and_writes_are_separate() {
    let policies = ["--policy", "lru,lirs", "--size", "5%,20%"];
    let value = json(&[&MIXED[..], &policies].concat());
    for row in value["results"].as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap();
        let (writes, reads) = (number("writes"), number("references") - number("writes"));
        assert!((0.38..0.42).contains(&(writes / number("references"))), "{row}");
        let hits = number("read_hit_ratio") * reads + number("write_hit_ratio") * writes;
        assert!((hits - number("hits")).abs() < 0.01 && number("write_hits") > 0.0, "{row}");
    }
    // LRU's hits at all sizes, counted in one pass, are those of its replay.
    let sizes = "100b,101b,102b,103b,104b,105b,106b,107b";
    let pass = json(&[&MIXED[..], &["--policy", "lru", "--size", sizes]].concat());
    let alone = json(&[&MIXED[..], &["--policy", "lru", "--size", "104b"]].concat());
    assert_eq!(pass["results"][4]["write_hits"], alone["results"][0]["write_hits"]);
    assert!(pass["results"][4]["evictions"].is_null() && alone["results"][0]["evictions"].is_u64());
    let table = printed(&[&MIXED[..], &policies].concat());
    assert!(table.contains("reads alone (6") && table.contains("; * is the best at its size"), "{table}");
    let csv = printed(&[&MIXED[..], &policies, &["--csv"]].concat());
    assert!(csv.lines().next().unwrap().contains(",writes,write_hits,read_hit_ratio,write_hit_ratio,"), "{csv}");
    let reads = printed(&[&MIXED[..5], &["--policy", "lru", "--size", "5%"]].concat());
    assert!(!reads.contains("reads alone") && !reads.contains('*'), "one policy is not the best of any: {reads}");
}

#[test]
fn timed_tables_have_latency_and_idle_time() {
    let timed = ["--device", "ssd-sata", "--policy", "lru,lirs", "--size", "5%", "--threads", "1"];
    let run = |think: &str| json(&[&MIXED[..], &timed, &["--think", think]].concat());
    let (busy, idle) = (run("0ms"), run("10ms"));
    assert_eq!((&busy["loop"], &busy["results"][0]["idle_share"]), (&"closed".into(), &0.0.into()));
    let row = &idle["results"][0];
    let number = |name: &str| row[name].as_f64().unwrap();
    assert!(number("idle_share") > 0.9, "{row}");
    assert!(number("latency_p50_us") <= number("latency_p99_us") && number("latency_p99_us") > 50.0, "{row}");
    assert!(number("read_hit_ratio") > 0.0 && number("writes") > 0.0, "{row}");
    let table = printed(&[&MIXED[..], &timed].concat());
    for part in ["closed loop: each program", "after a think time of 100% of that in the trace", "p50", "p99", "idle %"]
    {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    assert!(table.contains("* is the shortest"), "{table}");
}

#[test]
fn several_traces_are_compared_or_joined() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, blocks: &mut dyn Iterator<Item = u64>| {
        let path = folder.path().join(name);
        std::fs::write(&path, blocks.map(|block| format!("{block}\n")).collect::<String>()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A loop a little larger than the cache, on which LRU never hits; and blocks that are read again at once.
    let looped = write("loop.lirs", &mut (0..4000).map(|at| at % 100));
    let twice = write("twice.lirs", &mut (0..4000).map(|at| at / 2 % 400));
    let flags = ["--format", "lirs", "--policy", "lru,lirs,opt", "--size", "50b,90b"];
    let compare = |more: &[&str]| printed(&[&["sim", &looped, &twice], &flags[..], more].concat());
    let value: Value = serde_json::from_str(&compare(&["--json"])).unwrap();
    let alone = json(&[&["sim", &looped], &flags[..]].concat());
    assert_eq!(value["traces"][0]["results"][2]["hits"], alone["results"][2]["hits"]);
    let standing = |at: usize, name: &str| value["standings"][at][name].clone();
    assert_eq!((standing(0, "policy"), standing(0, "wins"), standing(0, "losses")), ("lru".into(), 0.into(), 0.into()));
    assert_eq!(
        (standing(1, "policy"), standing(1, "cells"), standing(1, "losses")),
        ("lirs".into(), 4.into(), 0.into())
    );
    assert!(standing(1, "wins").as_u64() >= Some(2) && standing(2, "wins") == 0, "{value}");
    let table = compare(&[]);
    for part in ["loop.lirs", "twice.lirs", "wins", "losses to lru", "lirs is the best, alone or with others, in"] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    // LRU misses all of the loop; LIRS misses all but what it keeps of it, in each round but the first.
    assert_eq!((&value["against"], &standing(0, "reduction")), (&"lru".into(), &Value::Null));
    let misses = |policy: usize, trace: usize, size: usize| {
        let row = &value["traces"][trace]["results"][policy * 2 + size];
        1.0 - row["hit_ratio"].as_f64().unwrap()
    };
    let cells = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let mut expected = cells.map(|(trace, size)| 1.0 - misses(1, trace, size) / misses(0, trace, size));
    let figure = |name: &str| standing(1, "reduction")[name].as_f64().unwrap();
    assert!((figure("mean") - expected.iter().sum::<f64>() / 4.0).abs() < 1e-12, "{value}");
    let expected_first = expected[0];
    expected.sort_unstable_by(f64::total_cmp);
    assert_eq!((figure("worst"), figure("p90")), (expected[0], expected[3]));
    assert!(table.contains("fewer misses than lru, in % of these") && table.contains("median"), "{table}");
    assert!(table.contains("defaults that differ from the published values: lirs ghosts=1.5 (unlimited)"), "{table}");
    assert!(compare(&["--against", "lirs"]).contains("fewer misses than lirs"));
    let refused = |more: &[&str]| {
        let output = nigh(&[&["sim", &looped, &twice], &flags[..], more].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--against", "arc"]).contains("--against arc: expected one of the policies lru, lirs, opt"));
    let csv = compare(&["--csv"]);
    assert_eq!(csv.lines().count(), 1 + 2 * 2 * 3);
    assert!(csv.starts_with("trace,policy,") && csv.contains("\ntwice.lirs,opt,"), "{csv}");
    let joined: Value = serde_json::from_str(&compare(&["--join", "--json"])).unwrap();
    assert_eq!((&joined["trace"]["references"], &joined["trace"]["distinct_blocks"]), (&8000.into(), &400.into()));
    assert_eq!(joined["trace"]["name"], "loop.lirs + twice.lirs");
    let lirs = csv.lines().find(|line| line.starts_with("loop.lirs,lirs,")).unwrap();
    let saved: f64 = lirs.rsplit(',').next().unwrap().parse().unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",reduction") && (saved - expected_first).abs() < 1e-12, "{csv}");
    // The page has a chart for each trace, and one of all reductions; the charts are files, too.
    let (page, charts) = (folder.path().join("page.html"), folder.path().join("charts"));
    let [page, charts] = [&page, &charts].map(|path| path.to_str().unwrap());
    let told = compare(&["--html", page]);
    assert!(told.contains(&format!("wrote {page}")), "{told}");
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains(r#""name":"twice.lirs""#) && text.contains(r#""against":"lru","cells":4"#), "{told}");
    let Some(_) = chromium("several_traces_are_compared_or_joined") else { return };
    let told = compare(&["--svg", charts]);
    assert!(told.contains(&format!("wrote 3 charts to {charts}")), "{told}");
    let mut names: Vec<String> =
        std::fs::read_dir(charts).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["reductions.svg", "trace-1-loop.lirs.svg", "trace-2-twice.lirs.svg"]);
    let chart = std::fs::read_to_string(format!("{charts}/trace-1-loop.lirs.svg")).unwrap();
    assert!(chart.starts_with("<svg xmlns=") && chart.trim_end().ends_with("</svg>"), "{chart}");
    // A curve of LIRS through its two sizes, and its name in the legend.
    assert!(chart.contains(">lirs</text>") && chart.contains("Hit ratio (%)</text>"), "{chart}");
    assert!(chart.matches("stroke-linejoin=\"round\"").count() >= 3, "{chart}");
    assert!(refused(&["--svg", charts]).contains("the folder is not empty; --force replaces"));
}

#[test]
fn the_size_at_which_another_policy_is_the_best_is_named() {
    // A loop, on which LIRS keeps a part, and then all of it fits; beside it, a sweep to and fro, on which LRU is the best.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both.lirs");
    let looped = (0..60_000).map(|at: u64| at % 100);
    let to_and_fro = (0..60_000).map(|at: u64| if at % 2000 < 1000 { 1000 + at % 1000 } else { 1999 - at % 1000 });
    std::fs::write(&path, looped.chain(to_and_fro).map(|block| format!("{block}\n")).collect::<String>()).unwrap();
    let path = path.to_str().unwrap();
    let flags = ["sim", path, "--format", "lirs", "--policy", "lru,lirs", "--size", "50b,90b,200b,400b"];
    let value = json(&flags);
    let ranges = value["best_by_size"].as_array().unwrap();
    let named: Vec<_> =
        ranges.iter().map(|range| (&range["policy"], &range["from_blocks"], &range["to_blocks"])).collect();
    assert_eq!(named, [(&"lirs".into(), &50.into(), &90.into()), (&"lru".into(), &200.into(), &400.into())], "{value}");
    let table = printed(&flags);
    assert!(table.contains("lirs up to 360 KiB, lru from 800 KiB on"), "{table}");
    let page = folder.path().join("page.html");
    printed(&[&flags[..], &["--html", page.to_str().unwrap()]].concat());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("lirs up to 360 KiB, lru from 800 KiB on."), "the verdict of the page");
}
