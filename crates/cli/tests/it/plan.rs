//! `nigh plan`: what it answers is what `nigh sim` prints.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{json, printed, refused};

/// A loop of 6 MiB on which LRU does badly, and a skewed table: 10,000 blocks at most.
fn workload(folder: &Path) -> PathBuf {
    let trace = folder.join("loop.csv");
    let spec = "loop:blocks=1500:weight=1+zipf:blocks=8k:alpha=0.9:weight=2:region=10k";
    printed(&["trace", "generate", spec, trace.to_str().unwrap(), "--requests", "60k"]);
    trace
}

/// The row of `policy` at `blocks` of a document's `results`.
fn row<'a>(document: &'a Value, policy: &str, blocks: u64) -> &'a Value {
    let rows = document["results"].as_array().unwrap();
    rows.iter().find(|row| row["policy"] == policy && row["size_blocks"] == blocks).unwrap_or_else(|| {
        panic!("{policy} at {blocks} blocks is not in {rows:?}");
    })
}

#[test]
fn every_figure_of_a_plan_is_that_of_nigh_sim() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let trace = trace.to_str().unwrap();
    let question = ["plan", trace, "--have", "8M", "--add", "2M", "--target", "60%", "--policy", "lru,lirs,arc,opt"];
    let plan = json(&[&question[..], &["--cost", "4/M"]].concat());
    assert_eq!(
        (&plan["schema"], &plan["have"]["bytes"], &plan["add"]["blocks"]),
        (&1.into(), &(8 << 20).into(), &512.into())
    );
    let (present, best) = (plan["present"].as_str().unwrap(), plan["best"].as_str().unwrap());
    assert_eq!((present, best), ("lru", "lirs"));

    let mut sizes: Vec<u64> =
        plan["results"].as_array().unwrap().iter().map(|row| row["size_blocks"].as_u64().unwrap()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let list = sizes.iter().map(|size| format!("{size}b")).collect::<Vec<_>>().join(",");
    let sim = json(&["sim", trace, "--policy", "lru,lirs,opt", "--size", &list]);
    for policy in ["lru", "lirs", "opt"] {
        for &size in &sizes {
            for field in ["references", "hits", "misses", "hit_ratio", "size_bytes", "error"] {
                assert_eq!(row(&plan, policy, size)[field], row(&sim, policy, size)[field], "{policy} {size} {field}");
            }
        }
    }

    let ratio = |policy: &str, size: u64| row(&sim, policy, size)["hit_ratio"].as_f64().unwrap();
    let near =
        |found: &Value, expected: f64| assert!((found.as_f64().unwrap() - expected).abs() < 1e-9, "{found} {expected}");
    near(&plan["addition"]["gain"], ratio("lru", 2560) - ratio("lru", 2048));
    near(&plan["change"]["gain"], ratio("lirs", 2048) - ratio("lru", 2048));
    near(&plan["addition_cost"], 8.0);
    for reached in plan["target"]["reached"].as_array().unwrap() {
        let (policy, size) = (reached["policy"].as_str().unwrap(), reached["size"]["blocks"].as_u64().unwrap());
        assert!(ratio(policy, size) >= 0.6, "{reached}");
        near(&reached["hit_ratio"], ratio(policy, size));
        near(&reached["cost"], size as f64 * 4096.0 / 1048576.0 * 4.0);
        // Two hundredths less do not reach it.
        let less = format!("{}b", size * 98 / 100 - 1);
        let below = json(&["sim", trace, "--policy", policy, "--size", &less]);
        assert!(below["results"][0]["hit_ratio"].as_f64().unwrap() < 0.6, "{reached}");
    }
    let equal = plan["equal"]["size"]["blocks"].as_u64().unwrap();
    assert!(equal < 2048 && ratio("lirs", equal) >= ratio("lru", 2048), "{equal}");

    // In words, the verdict comes first and has the same figures.
    let text = printed(&question);
    assert!(text.starts_with(plan["verdict"]["headline"].as_str().unwrap().split('\u{a0}').next().unwrap()), "{text}");
    let spoken = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (policy, size) in [("lru", 2048), ("lru", 2560), ("lirs", 2048)] {
        assert!(spoken.contains(&format!("{:.2} %", 100.0 * ratio(policy, size))), "{policy} {size}: {text}");
    }
    assert!(spoken.contains("next: nigh serve --memory 8M --policy lirs disk=PATH"), "{text}");
    assert!(text.contains("hit ratio in %") && !text.contains('\u{a0}'), "{text}");
}

#[test]
fn a_plan_says_what_no_size_reaches_and_how_certain_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let trace = trace.to_str().unwrap();
    let plan = json(&["plan", trace, "--target", "99%"]);
    let all = json(&["sim", trace, "--policy", "lru", "--size", "100%"]);
    let most = all["results"][0]["hit_ratio"].as_f64().unwrap();
    assert_eq!(plan["target"]["most"], most);
    assert!(plan["target"]["reached"].as_array().unwrap().iter().all(|reached| reached["size"].is_null()));
    let sentence = plan["verdict"]["facts"][0]["sentence"].as_str().unwrap().replace('\u{a0}', " ");
    assert!(sentence.starts_with(&format!("No size reaches 99.00 %: at most {:.2} % hit", 100.0 * most)), "{sentence}");
    // The defaults are named.
    let facts = plan["verdict"]["facts"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["about"] == "assumed"), "{facts:?}");

    // The gain in the halves is that of two replays: of the whole, and of the whole without the first half.
    let (have, half) = (format!("{}b", plan["have"]["blocks"]), "--warmup");
    let both = format!("lru,{}", plan["best"].as_str().unwrap());
    let warm = json(&["sim", trace, "--policy", &both, "--size", &have, half, "50%"]);
    let last = |at: usize| warm["results"][at]["hit_ratio"].as_f64().unwrap();
    let found = plan["change"]["halves"][1].as_f64().unwrap();
    assert!((found - (last(1) - last(0))).abs() < 1e-9, "{found}");
    // A cache that the whole trace fits in cannot be judged.
    let plan = json(&["plan", trace, "--have", "1G"]);
    assert_eq!((&plan["advice"], &plan["certainty"]), (&"record".into(), &"low".into()));
    assert!(printed(&["plan", trace, "--have", "1G"]).starts_with("This trace cannot judge a cache of 1 GiB"));
    // A sample names its error.
    let plan = json(&["plan", trace, "--sample", "20%"]);
    assert!(plan["addition"]["error"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_plan_with_a_device_has_the_times_of_nigh_sim() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let trace = trace.to_str().unwrap();
    let plan = json(&["plan", trace, "--have", "8M", "--add", "2M", "--policy", "lru,lirs", "--device", "ssd-sata"]);
    let sim = json(&["sim", trace, "--policy", "lru,lirs", "--size", "8M,10M", "--device", "ssd-sata"]);
    let timed = plan["timed"].as_array().unwrap();
    assert_eq!(timed.len(), 4);
    for timing in timed {
        let row = row(&sim, timing["policy"].as_str().unwrap(), timing["size_blocks"].as_u64().unwrap());
        assert_eq!(timing["execution_s"], row["execution_s"]);
        let facts = plan["verdict"]["facts"].as_array().unwrap();
        let time = facts.iter().find(|fact| fact["about"] == "time").unwrap()["sentence"].as_str().unwrap();
        assert_eq!(timing["waited_s"], row["programs"][0]["waited_s"]);
        assert_eq!(timing["latency_p99_us"], row["latency_p99_us"]);
        assert!(time.contains(&format!("{:.3}", timing["waited_s"].as_f64().unwrap())), "{time}");
    }
}

#[test]
fn a_plan_with_levels_has_the_times_of_nigh_sim() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let trace = trace.to_str().unwrap();
    let asked = ["plan", trace, "--have", "8M", "--add", "2M", "--policy", "lru,lirs", "--device", "hdd-7200"];
    let levels = ["--level", "ssd-sata:4M..16M", "--cost", "3/GiB", "--level-cost", "0.5/GiB"];
    let plan = json(&[&asked[..], &levels].concat());
    let of_levels = &plan["levels"];
    let policy = of_levels["policy"].as_str().unwrap();
    let cells = of_levels["cells"].as_array().unwrap();
    assert_eq!((of_levels["profile"].as_str(), cells.len()), (Some("ssd-sata"), 2 * 4));
    for cell in cells {
        let (memory, level) = (cell["memory_bytes"].as_u64().unwrap(), cell["level_bytes"].as_u64().unwrap());
        let (size, of_level) = (format!("{memory}B"), format!("ssd-sata:{level}B"));
        let mut sim = vec!["sim", trace, "--policy", policy, "--size", &size, "--device", "hdd-7200"];
        sim.extend((level > 0).then_some(["--level", &of_level]).into_iter().flatten());
        let sim = json(&sim);
        let row = &sim["results"][0];
        assert_eq!(cell["waited_s"], row["programs"][0]["waited_s"], "{cell}");
        assert_eq!(cell["latency_p99_us"], row["latency_p99_us"]);
        let cost = (3 * memory) as f64 / f64::from(1 << 30) + 0.5 * level as f64 / f64::from(1 << 30);
        assert!((cell["cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{cell}");
        if level == 0 {
            assert!(cell["written_bytes_a_day"].is_null());
            continue;
        }
        let seconds = plan["trace"]["duration_s"].as_f64().or(row["execution_s"].as_f64()).unwrap();
        let a_day = row["levels"][0]["device_written_bytes"].as_f64().unwrap() * 86_400.0 / seconds;
        assert!((cell["written_bytes_a_day"].as_f64().unwrap() / a_day - 1.0).abs() < 1e-6, "{cell}, {a_day}");
        assert!((cell["drive_writes_a_day"].as_f64().unwrap() / (a_day / level as f64) - 1.0).abs() < 1e-6);
    }
    // Larger levels never make it slower here, and all of the working set fits in the largest.
    let waits: Vec<f64> = cells.iter().map(|cell| cell["waited_s"].as_f64().unwrap()).collect();
    assert!(waits[3] < 0.5 * waits[0], "{waits:?}");
    let printed = printed(&[&asked[..], &levels].concat());
    assert!(printed.contains("LEVEL HITS %") && printed.contains("of memory brings the wait to"), "{printed}");
    assert!(printed.contains("  nigh serve --memory 8M --policy lirs --level file:LEVEL:16M "), "{printed}");
}

/// The report that a page carries.
fn on_page(page: &Path) -> Value {
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("id=\"report\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn pages_open_with_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let (trace, page) = (trace.to_str().unwrap(), folder.path().join("page.html"));
    let html = ["--force", "--html", page.to_str().unwrap()];
    let verdict = |arguments: &[&str]| {
        printed(&[arguments, &html].concat());
        on_page(&page)["verdict"].clone()
    };
    let question = ["plan", trace, "--have", "8M", "--add", "2M"];
    let of_plan = verdict(&question);
    assert_eq!(of_plan["headline"], json(&question)["verdict"]["headline"]);
    // The map has addresses: the loop lies in the first 6 MiB, the table from 40 MiB on.
    let map = &on_page(&page)["map"];
    let addresses = map["addresses"].as_array().unwrap();
    assert_eq!(addresses.len() as u64, map["rows"].as_u64().unwrap() + 1);
    assert_eq!(
        (&addresses[0], addresses.last().unwrap()[1].as_u64().unwrap() / 10_000_000),
        (&serde_json::json!([0, 0]), 7)
    );

    let sim = ["sim", trace, "--policy", "lru,lirs,opt", "--size", "4M,8M"];
    let rows = json(&sim);
    let ratio = |policy: &str| format!("{:.2} %", 100.0 * row(&rows, policy, 2048)["hit_ratio"].as_f64().unwrap());
    let of_sim = verdict(&sim);
    let headline = of_sim["headline"].as_str().unwrap();
    assert_eq!(
        headline,
        format!("With 8 MiB, lirs hits {} of the references and lru {}.", ratio("lirs"), ratio("lru"))
    );
    assert_eq!(of_sim["next"], "nigh plan loop.csv --have 2048b");

    let timed = verdict(&["sim", trace, "--policy", "lru,lirs", "--size", "4M,8M", "--device", "ssd-sata"]);
    assert!(timed["headline"].as_str().unwrap().contains("programs wait for "), "{timed}");
}

#[test]
fn a_plan_that_cannot_be_made_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.lirs");
    std::fs::write(&trace, "1\n2\n1\n").unwrap();
    let trace = trace.to_str().unwrap();
    for (slip, expected) in [
        (&["--have", "1M..4M"][..], "--have 1M..4M: expected one size, not a range"),
        (&["--add", "12"], "--add"),
        (&["--target", "0"], "--target 0: expected a hit ratio above 0"),
        (&["--target", "120%"], "--target 120%: expected a hit ratio"),
        (&["--cost", "3"], "--cost 3: expected an amount by a unit of memory, such as 3/GiB"),
        (&["--policy", "opt,lru"], "--policy: the first is the present policy, but opt must know the future"),
        (&["--readahead", "linux", "--sample", "10%"], "--readahead does not go with --sample"),
        (&["--readahead", "linux:into=policy"], "into=policy is for nigh sim"),
        (&["--html", "/nowhere/page.html"], "/nowhere/page.html: there is no folder /nowhere; create it first"),
    ] {
        let said = refused(&[&["plan", trace], slip].concat());
        assert!(said.contains(expected), "{slip:?}: {said}");
    }
    // Settings of the device are rejected before the trace is read.
    for (slip, expected) in [
        (&["--device", "hdd-72"][..], "--device hdd-72: "),
        (&["--device", "hdd-7200", "--readahead", "linx"], "Did you mean 'linux'?"),
        (&["--device", "hdd-7200", "--scheduler", "lok"], "Did you mean 'look'?"),
        (&["--device", "hdd-7200", "--think", "1"], "--think 1: expected a time"),
        (&["--device", "hdd-7200", "--level", "ssd-sata"], "--level ssd-sata: expected a device profile and sizes"),
        (&["--device", "hdd-7200", "--level", "ssd-stat:1G"], "--level ssd-stat:1G"),
        (
            &["--device", "hdd-7200", "--level", "ssd-sata:1G", "--cost", "1/G", "--level-cost", "x"],
            "--level-cost x: expected an amount",
        ),
    ] {
        let said = refused(&[&["plan", "/nowhere/t.csv"], slip].concat());
        assert!(said.contains(expected), "{slip:?}: {said}");
    }
    let said = refused(&["plan", "-", "--readahead", "linux"]);
    assert!(said.contains("--readahead does not go with a trace on standard input"), "{said}");
    let said = refused(&["plan", "-", "--device", "hdd-7200"]);
    assert!(said.contains("the trace is read twice, so it must be a file"), "{said}");
}

/// A program's reads, as strace prints them.
fn recording(folder: &Path, blocks: u64) -> String {
    let trace = folder.join("program.strace");
    let line = |at: u64| {
        let block = at % blocks;
        format!("9 {}.{:06} pread64(3</srv/db>, \"x\"..., 4096, {}) = 4096\n", 1 + at / 1000, at % 1000, block * 4096)
    };
    std::fs::write(&trace, (0..10 * blocks).map(line).collect::<String>()).unwrap();
    trace.to_str().unwrap().to_owned()
}

/// The cache of a program is the kernel's page cache, with the kernel's policy and the memory of the machine.
#[test]
fn plan_15_the_cache_of_a_recorded_program_is_the_page_cache() {
    let folder = tempfile::tempdir().unwrap();
    let trace = recording(folder.path(), 1000);
    let plan = json(&["plan", &trace]);
    let text = plan["verdict"].to_string();
    assert_eq!(plan["present"], "linux", "{text}");
    assert!(plan["have"]["bytes"].as_u64().unwrap() > 64 << 20, "the machine has more than a tenth of 4 MB: {text}");
    assert!(text.contains("what the page cache of this machine") && text.contains("fits in a page cache of"), "{text}");
    assert!(!text.contains("nigh serve"), "{text}");
    // A size or policies that are given take the place of these.
    let given = json(&["plan", &trace, "--have", "2M"]);
    assert_eq!((&given["present"], &given["have"]["blocks"]), (&"linux".into(), &512.into()));
    let text = given["verdict"].to_string();
    assert!(text.contains("The kernel's policy cannot be changed") && !text.contains("nigh serve"), "{text}");
    assert_eq!(json(&["plan", &trace, "--have", "2M", "--policy", "lru,lirs"])["present"], "lru");
    let said = refused(&["plan", &trace, "--readahead", "linux"]);
    assert!(said.contains("--readahead does not go with a recording of a program"), "{said}");
}

/// An addition that nobody named is not ordered.
#[test]
fn plan_15_no_assumed_addition_is_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let trace = workload(folder.path());
    let plan = |more: &[&str]| {
        let plan = json(&[&["plan", trace.to_str().unwrap(), "--policy", "lru"], more].concat());
        assert_eq!(plan["advice"], "grow");
        plan["verdict"]["headline"].as_str().unwrap().to_owned()
    };
    let assumed = plan(&[]);
    assert!(assumed.starts_with("With ") && assumed.contains("(both assumed)"), "{assumed}");
    assert!(plan(&["--have", "4M", "--add", "1M"]).starts_with("Add the 1\u{a0}MiB"));
}

/// The first time, the size of the memory is not given; and LRU hits nothing in a loop that does not fit.
#[test]
fn plan_15_commands_nothing_that_is_assumed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("loop.lirs");
    let text: String = (0..40_000).map(|at| format!("{}\n", at % 2000)).collect();
    std::fs::write(&trace, text).unwrap();
    let trace = trace.to_str().unwrap();
    let plan = |more: &[&str]| json(&[&["plan", trace, "--policy", "lru,lirs"], more].concat());
    let assumed = plan(&[]);
    let text = assumed["verdict"].to_string();
    let headline = assumed["verdict"]["headline"].as_str().unwrap();
    assert!(headline.starts_with("With ") && headline.contains("(assumed), lirs hits"), "{text}");
    assert!(assumed["verdict"]["next"].as_str().unwrap().contains("plan"), "{text}");
    for order in ["nigh serve", "Serve with", "Change the", "Keep what"] {
        assert!(!text.contains(order), "{order}: {text}");
    }
    assert!(!text.contains("is enough for"), "no memory is enough for no hits: {text}");
    let given = plan(&["--have", "800K"]);
    let next = given["verdict"]["next"].as_str().unwrap();
    assert!(next.starts_with("nigh serve --memory 800K --policy lirs"), "{next}");
    assert!(given["verdict"]["headline"].as_str().unwrap().contains("that you have it hits"));
    // A tenth of five blocks is no size that anybody has.
    let trace = folder.path().join("five.lirs");
    std::fs::write(&trace, (0..4000).map(|at| format!("{}\n", at % 5)).collect::<String>()).unwrap();
    let plan = |more: &[&str]| json(&[&["plan", trace.to_str().unwrap(), "--policy", "lru,lirs"], more].concat());
    let headline = |plan: serde_json::Value| plan["verdict"]["headline"].as_str().unwrap().to_owned();
    assert!(headline(plan(&[])).starts_with("With "), "{}", headline(plan(&[])));
    let kept = headline(plan(&["--have", "5b", "--add", "1b"]));
    assert!(kept.starts_with("Keep what you have") || kept.starts_with("This trace cannot judge"), "{kept}");
}

#[test]
fn of_a_long_trace_a_sample_is_replayed_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("long.oracleGeneral");
    let trace = trace.to_str().unwrap();
    let workload = ["trace", "generate", "zipf:blocks=100k:alpha=0.8", trace, "--requests", "4300k"];
    printed(&workload);
    let base = ["plan", trace, "--policy", "lru,clock", "--have", "5000b", "--add", "1000b"];
    let text = printed(&base);
    assert!(text.contains("sampled at 0.5") && text.contains("4,300,000 references, so a sample"), "{text}");
    assert!(!text.contains("read-ahead  "), "{text}");
    let sampled = json(&base);
    let whole = json(&[&base[..], &["--sample", "1"]].concat());
    assert_eq!(sampled["trace"]["requests"], whole["trace"]["requests"]);
    let ratio = |of: &Value| of["results"][0]["hit_ratio"].as_f64().unwrap();
    let error = sampled["results"][0]["error"].as_f64().unwrap();
    assert!(error > 0.0 && (ratio(&sampled) - ratio(&whole)).abs() < 2.0 * error, "{sampled}");
}
