//! `nigh sim --levels` with the real binary.

use crate::command::{json, printed, refused};
use serde_json::Value;

const RANDOM: [&str; 9] =
    ["sim", "--generate", "uniform:blocks=65536", "--requests", "1M", "--block-size", "8K", "--warmup", "10%"];

/// Figure 5.9 of the dissertation, *random*: three levels of 12,800 blocks of 8 KB.
#[test]
fn schemes_have_the_published_shares_and_times() {
    let levels = ["--levels", "100M,12800b,100M", "--costs", "0,1ms,1.2ms,11.2ms"];
    let found = json(&[&RANDOM[..], &levels].concat());
    assert_eq!(found["levels"][0]["size_blocks"], 12_800);
    let row = |scheme: &str| {
        let row = found["results"].as_array().unwrap().iter().find(|row| row["scheme"] == scheme).unwrap();
        let references = row["references"].as_f64().unwrap();
        let share = |list: &str, at: usize| 100.0 * row[list][at].as_f64().unwrap() / references;
        let hits = [0, 1, 2].map(|at| share("hits", at));
        (hits, [0, 1].map(|at| share("demotions", at)), row["mean_ms"].as_f64().unwrap())
    };
    let near = |found: &[f64], published: &[f64]| {
        assert!(found.iter().zip(published).all(|(found, published)| (found - published).abs() < 0.25), "{found:?}");
    };
    let (hits, _, _) = row("ind:lru");
    near(&hits, &[19.5, 1.7, 0.3]);
    let (hits, demotions, unified_ms) = row("unilru");
    near(&hits, &[19.5, 19.6, 19.5]);
    near(&demotions, &[80.5, 60.9]);
    let (hits, demotions, ms) = row("ulc");
    near(&hits, &[19.53, 19.54, 19.54]);
    assert!(demotions.iter().all(|&share| share <= 25.0) && ms <= 5.4 && ms < unified_ms, "{demotions:?} {ms}");
}

#[test]
fn the_table_marks_the_shortest_time() {
    let levels = ["--levels", "500b,500b", "--costs", "0,1ms,10ms"];
    let text = printed(&[&["sim", "--generate", "loop:blocks=900", "--requests", "20k"][..], &levels].concat());
    let row = |scheme: &str| text.lines().find(|line| line.starts_with(scheme)).unwrap_or_else(|| panic!("{text}"));
    assert!(text.contains("levels of 2.0 MiB, 2.0 MiB") && row("ulc ").contains('*'), "{text}");
    assert!(
        !row("unilru").contains('*') && row("scheme").contains("demoted 1-2") && text.contains("ind:lru/mq"),
        "{text}"
    );
}

/// Each tenant of a workload, or each of several traces, has its own first level.
#[test]
fn clients_share_the_last_level() {
    let levels = ["--levels", "300b,1500b", "--costs", "0,1ms,11ms", "--clients"];
    let loops = ["sim", "--generate", "loop:blocks=900+loop:blocks=700", "--requests", "40k"];
    let found = json(&[&loops[..], &levels].concat());
    let row = |scheme: &str| found["results"].as_array().unwrap().iter().find(|row| row["scheme"] == scheme).unwrap();
    let ulc = row("ulc");
    let clients = ulc["clients"].as_array().unwrap();
    assert_eq!(clients.iter().map(|client| &client["name"]).collect::<Vec<_>>(), ["0", "1"]);
    for list in ["references", "misses", "demoted_bytes"] {
        let sum: u64 = clients.iter().map(|client| client[list].as_u64().unwrap()).sum();
        assert_eq!(sum, ulc[list].as_u64().unwrap(), "{list}");
    }
    // Both loops fit into the levels together: each block misses once.
    assert_eq!((ulc["misses"].as_u64(), ulc["stale"].as_u64()), (Some(1600), Some(0)));
    assert!(row("ind:lru")["stale"].is_null() && row("ind:lru")["misses"].as_u64() > Some(1600));

    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, spec: &str| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        printed(&["trace", "generate", spec, &path, "--requests", "20k"]);
        path
    };
    let traces = [trace("a.csv", "loop:blocks=900"), trace("b.csv", "loop:blocks=700")];
    let text = printed(&[&["sim", &traces[0], &traces[1]][..], &levels].concat());
    let table = text.split("mean ms of each client").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(["a.csv", "b.csv"].iter().all(|name| table.contains(name)), "{text}");
    let ulc = text.lines().find(|line| line.starts_with("ulc ")).unwrap();
    assert!(ulc.contains(" 4.00 "), "1,600 misses of 40,000: {ulc}");
}

/// The page that `arguments` write, as the report that it contains.
fn page(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let text = printed(&[arguments, &["--html", path.to_str().unwrap()]].concat());
    assert!(text.trim_end().ends_with(&format!("wrote {}", path.display())), "{text}");
    let page = std::fs::read_to_string(path).unwrap();
    let report = page.split_once(r#"id="report">"#).unwrap().1;
    serde_json::from_str(report.split_once("</script>").unwrap().0).unwrap()
}

fn sum(column: &Value) -> u64 {
    column.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn intervals_are_in_the_page_and_the_json() {
    let trace = ["sim", "--generate", "loop:blocks=900+zipf:blocks=2k", "--requests", "40k", "--warmup", "1k"];
    for (clients, has_clients) in [(&[][..], false), (&["--clients"], true)] {
        let levels = ["--levels", "300b,1500b", "--costs", "0,1ms,11ms", "--policy", "ulc,indlru"];
        let arguments = [&trace[..], &levels, clients].concat();
        let found = json(&arguments);
        for row in found["results"].as_array().unwrap() {
            let intervals = &row["intervals"];
            let ends = intervals["end"].as_array().unwrap();
            assert_eq!((ends.len(), ends[149].as_u64()), (150, Some(40_000)));
            for level in [0, 1] {
                assert_eq!(Some(sum(&intervals["hits"][level])), row["hits"][level].as_u64());
            }
            assert_eq!(Some(sum(&intervals["misses"])), row["misses"].as_u64());
            assert_eq!(Some(sum(&intervals["demotions"][0])), row["demotions"][0].as_u64());
            assert_eq!(row["fetched_bytes"].as_u64(), row["hits"][1].as_u64().map(|hits| hits * 4096));
            assert_eq!(intervals["duplicated_bytes"].is_null(), has_clients);
            let duplicated = row["duplicated_blocks"].as_u64().unwrap();
            assert_eq!(duplicated > 0, row["scheme"] == "ind:lru", "clients have different blocks");
            assert_eq!(row["duplicated_bytes"].as_u64(), Some(duplicated * 4096), "with two levels, one copy each");
        }
        let report = page(&arguments);
        assert!(report["verdict"]["headline"].as_str().unwrap().starts_with("The mean access time is "), "{report}");
        let schemes = report["levels"]["schemes"].as_array().unwrap();
        for (scheme, row) in schemes.iter().zip(found["results"].as_array().unwrap()) {
            assert_eq!([&scheme["scheme"], &scheme["figures"]["hits"]], [&row["scheme"], &row["hits"]]);
            for column in ["end", "hits", "misses", "demotions"] {
                assert_eq!(scheme["intervals"][column], row["intervals"][column], "{column}");
            }
            assert_eq!(scheme["intervals"]["start"], 1000);
            assert_eq!(scheme["clients"].as_array().unwrap().len(), if has_clients { 2 } else { 0 });
        }
    }
}

#[test]
fn without_times_misses_are_compared() {
    let one =
        ["sim", "--generate", "loop:blocks=900", "--requests", "9k", "--levels", "450b", "--policy", "indlru,ulc"];
    let headline = page(&one)["verdict"]["headline"].clone();
    // All 900 blocks in the first loop, and half of them in each of the nine others.
    let misses = "55.00 % of the references with ulc, and 100.00 % of the references with ind:lru";
    assert_eq!(headline, format!("The levels miss {misses}: 45.0 % less."));
}

#[test]
fn slips_are_one_line() {
    for (arguments, says) in [
        (&["--levels", "1M,2M", "--costs", "0,1ms"][..], "expected 3 times"),
        (&["--levels", "1M,2M", "--costs", "0,2ms,1ms"], "ascending"),
        (&["--levels", "1M,2M", "--costs", "0,1,2"], "--costs 1: expected a time with its unit"),
        (&["--levels", "1M..4M"], "not a range"),
        (&["--levels", "1M", "--clients"], "at least two levels"),
        (&["--levels", "1M,2M", "--clients", "--policy", "ulc:ghosts=2"], "give ulc without parameters"),
        (&["--levels", "1M,2M", "--clients", "--policy", "lru,ulc:first=out"], "give ulc without parameters"),
        (&["--levels", "1M,2M", "--html", "/nowhere/page.html"], "there is no folder"),
        (&["--levels", "1M,x"], "x"),
        (&["--levels", "1M,2M", "--policy", "ind:lru/mqq"], "mqq"),
        (&["--levels", "1M,2M", "--policy", "ind:lru/opt"], "future"),
        (&["--levels", "1M,1M,1M,1M,1M,1M,1M,1M,1M"], "at most 8"),
    ] {
        let text = refused(&[&RANDOM[..5], arguments].concat());
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}
