//! The page as a browser sees it: headless Chromium opens sample reports, and a probe appended to the page counts what
//! was drawn.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

#[path = "sample/mod.rs"]
mod sample;

use std::fs;
use std::path::{Path, PathBuf};

use nigh_report::{
    Curve, Levels, LevelsFigures, LevelsIntervals, LevelsScheme, Panel, Point, Reduction, Reductions, Report, Served,
    Timed, TimedCurve, TimedLevel, TimedPoint, TimedProgram, Trace, Traces,
};
use nigh_testkit::browser::{self, chromium};
use serde_json::Value;

const PROBE: &str = include_str!("probe.js");

/// Opens what is folded, as a click would.
const UNFOLD: &str = "const folded = document.querySelector('#internals details'); folded.open = true; \
                      folded.dispatchEvent(new Event('toggle'));";

struct Browser<'a> {
    program: &'a Path,
    folder: PathBuf,
}

impl<'a> Browser<'a> {
    /// A browser that keeps its files in a folder of its own below Cargo's for tests.
    fn new(program: &'a Path, test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self { program, folder }
    }

    fn run(&self, page: &Path, args: &[String]) -> String {
        let profile = self.folder.join("profile");
        let _ = fs::remove_dir_all(&profile);
        browser::open(self.program, &profile, args, &format!("file://{}", page.display()))
    }

    /// Findings of the probe on the page of `report` at this width after `script` ran, with a screenshot beside the
    /// page.
    fn look(&self, name: &str, report: &Report, width: u32, args: &[&str], script: &str) -> Value {
        let mut page = Vec::new();
        report.write_html(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let (before, after) = page.rsplit_once("</body>").unwrap();
        let path = self.folder.join(format!("{name}.html"));
        fs::write(&path, format!("{before}<script>{script}</script><script>{PROBE}</script></body>{after}")).unwrap();

        let image = self.folder.join(format!("{name}.png"));
        let shot =
            [format!("--window-size={width},3300"), format!("--screenshot={}", image.display()), "--dump-dom".into()];
        let dom = self.run(&path, &args.iter().map(|arg| arg.to_string()).chain(shot).collect::<Vec<_>>());
        let found = serde_json::from_str(&browser::probed(&dom)).unwrap();
        assert!(fs::metadata(&image).unwrap().len() > 10_000, "{name}: the screenshot shows something");
        found
    }
}

#[test]
fn sample_is_drawn_in_light_and_dark_at_every_width() {
    let Some(program) = chromium("sample_is_drawn_in_light_and_dark_at_every_width") else { return };
    let browser = Browser::new(&program, "sample");
    let report = sample::report();
    let lru_points = sample::SIZES.len() * 11 + sample::LRU_POINTS;
    let light = ["--blink-settings=preferredColorScheme=1"];
    let dark = ["--blink-settings=preferredColorScheme=0"];
    let views = [
        ("light-500", 500, light),
        ("light-700", 700, light),
        ("light-800", 800, light),
        ("light-1400", 1400, light),
        ("dark-800", 800, dark),
        ("dark-1400", 1400, dark),
        ("dark-1920", 1920, dark),
    ];
    for (name, width, args) in views {
        let found = browser.look(name, &report, width, &args, UNFOLD);
        println!("{name}: {found}");
        assert_eq!(found["problems"], serde_json::json!([]), "{name}");
        assert_eq!(
            found["sections"],
            serde_json::json!(["verdict", "notes", "curves", "results", "map", "internals"]),
            "{name}"
        );
        assert_eq!(found["overflow"], 0, "{name}");
        assert_eq!(found["foreign"], 0, "{name}");
        assert!(found["download"].as_str().unwrap().starts_with("blob:"), "{name}");
        assert_eq!(
            found["paper"],
            if name.starts_with("dark") { "rgb(22, 24, 28)" } else { "rgb(255, 255, 255)" },
            "{name}"
        );
        assert_eq!([&found["legend"], &found["matrix"]], [12, 12], "{name}");
        assert_eq!(found["figures"], 12 * sample::SIZES.len(), "{name}");
        assert!(found["marked"].as_u64().unwrap() > sample::SIZES.len() as u64, "{name}: best per size and on average");

        let plots = found["plots"].as_array().unwrap();
        assert_eq!(plots.len(), 4, "{name}");
        for plot in plots {
            let area = plot["width"].as_u64().unwrap() * plot["height"].as_u64().unwrap();
            assert!(plot["width"].as_u64().unwrap() > 400 && plot["height"].as_u64().unwrap() > 200, "{name}: {plot}");
            assert!(
                plot["painted"].as_u64().unwrap() > area / 100 && plot["colours"].as_u64().unwrap() > 20,
                "{name}: {plot}"
            );
            assert!(!plot["label"].as_str().unwrap().is_empty(), "{name}");
        }
        assert_eq!([&plots[0]["series"], &plots[0]["points"]], ["12", &lru_points.to_string()], "{name}");
        assert!(plots[1]["cells"].as_str().unwrap().parse::<u32>().unwrap() > 10_000, "{name}");
        assert_eq!([&plots[2]["series"], &plots[2]["points"]], ["1", "500"], "{name}");
        assert_eq!([&plots[3]["series"], &plots[3]["points"]], ["2", "1000"], "{name}");
    }
}

#[test]
fn controls_change_what_is_drawn() {
    let Some(program) = chromium("controls_change_what_is_drawn") else { return };
    let browser = Browser::new(&program, "controls");
    let report = sample::report();
    let found = browser.look("controls", &report, 1200, &[], include_str!("drive.js"));
    println!("{found}");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(found["plots"][0]["series"], "11", "one policy is hidden");
    let drive = &found["drive"];
    assert_eq!(drive["axes"], serde_json::json!(["linear", "bytes"]));
    let [least, most] = [sample::SIZES[0], sample::SIZES[14]].map(|size| size * 4096);
    assert_eq!(drive["clipped"], serde_json::json!([least, most]), "only what was replayed");
    // LRU is known between the sizes that were replayed, others are estimated.
    let between = drive["between"].as_array().unwrap();
    assert_eq!(between[0], "At 2,441 blocks (9.54 MiB)");
    let shown = |policy: &str| {
        let mut texts = between.iter().map(|text| text.as_str().unwrap());
        texts.find(|text| text.strip_prefix(policy).is_some_and(|rest| !rest.starts_with('-'))).unwrap()
    };
    assert!(!shown("lru").contains('≈') && shown("arc").contains('≈'), "{between:?}");
    // In colour are LRU, the bound and the two best policies.
    let colours = drive["colours"].as_object().unwrap();
    assert_eq!([&colours["lru"], &colours["opt"], &colours["lirs:hir=1%"]], ["--c0", "--ink", "--c1"]);
    assert_eq!(colours.values().filter(|colour| **colour == "--grey").count(), 8, "{colours:?}");
    assert_eq!(drive["pointed"], serde_json::json!(["arc", "arc"]));
    assert_eq!(drive["unpointed"], Value::Null);
    assert_eq!(drive["pressed"], "false");
    assert_eq!(drive["ratios"], serde_json::json!(["Hit ratio curves", "Miss ratio curves"]));
    assert_eq!(drive["caption"], "At 6,000 blocks (23.4 MiB)", "one size right of where the policies differ most");
    assert_eq!(drive["sorted"], serde_json::json!(["ascending", "opt", "descending", "fifo"]));
    assert_eq!(drive["cell"], "References 333 to 666, blocks 40 to 79 (160 KiB to 640 KiB): 0 in the cell");
    assert_eq!(drive["stack"], format!("{:.2} ×", report.internals[0].series[0].samples[1].1 / 1000.0));
    assert_eq!(drive["zoomed"], serde_json::json!([0.25, 0.5]));
    assert_eq!(drive["unzoomed"], true);
}

#[test]
fn foreign_text_stays_text() {
    let Some(program) = chromium("foreign_text_stays_text") else { return };
    let browser = Browser::new(&program, "foreign");
    let plain = browser.look("plain", &sample::report(), 1000, &[], "");
    let hostile = r#"</script><script>throw 1</script><!-- <script> <img src="x" onerror="throw 2"> &lt;"#.to_string();
    let mut report = sample::report();
    report.title = hostile.clone();
    report.command = hostile.clone();
    report.generator = hostile.clone();
    report.trace.name = hostile.clone();
    report.trace.format = hostile.clone();
    report.notes.push(hostile.clone());
    report.curves[3].policy = hostile.clone();
    report.internals[0].policy = hostile.clone();
    report.internals[0].series[0].name = hostile.clone();
    let found = browser.look("hostile", &report, 1000, &[], "");
    assert_eq!(found["title"], hostile);
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!([&found["foreign"], &found["overflow"]], [0, 0]);
    assert_eq!([&found["scripts"], &found["figures"]], [&plain["scripts"], &plain["figures"]]);
}

#[test]
fn sections_without_data_disappear() {
    let Some(program) = chromium("sections_without_data_disappear") else { return };
    let browser = Browser::new(&program, "empty");
    let found = browser.look("empty", &Report::default(), 1000, &[], "");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(found["sections"], serde_json::json!([]));

    let mut one = sample::report();
    one.curves.retain(|curve| curve.policy == "lru");
    one.map = None;
    one.internals.clear();
    one.verdict = None;
    one.notes.clear();
    let found = browser.look("one", &one, 1000, &[], "");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(found["sections"], serde_json::json!(["curves", "results"]));
    let listed = found["figures"].as_u64().unwrap();
    assert!(found["matrix"] == 1 && (16..=24).contains(&listed), "{listed} of the curve's 2,000 sizes in the tables");
}

#[test]
fn execution_times_are_drawn() {
    let Some(program) = chromium("execution_times_are_drawn") else { return };
    let browser = Browser::new(&program, "timed");
    let program = |name: &str, prefetch_issued, prefetch_accuracy| TimedProgram {
        name: name.into(),
        prefetch_issued,
        prefetch_accuracy,
        ..TimedProgram::default()
    };
    let point = |size_blocks: u64, execution_s: f64| TimedPoint {
        size_blocks,
        size_bytes: size_blocks * 4096,
        execution_s,
        device_busy_s: execution_s * 0.9,
        device_requests: 1000,
        device_reads: 900,
        levels: vec![TimedLevel { hits: 4321, stores: 765 }],
        mean_request_bytes: 20_000.0,
        mean_sequence_blocks: Some(12.5),
        hit_ratio: 0.7,
        latency_mean_us: Some(execution_s * 10.0),
        latency_p50_us: Some(120.0),
        latency_p99_us: Some(8_400.0),
        prefetch_accuracy: Some(0.8),
        sequences: vec![(1, 0.2), (8, 0.5), (128, 1.0)],
        programs: vec![program("scan", Some(1000), Some(0.75)), program("other", Some(0), None)],
    };
    let curve = |policy: &str, factor: f64| TimedCurve {
        policy: policy.into(),
        points: [(4096, 90.0), (1024, 120.0), (16384, 40.0)].map(|(size, time)| point(size, time * factor)).into(),
    };
    let mut report = sample::report();
    let timed = Timed {
        is_open: false,
        device: "a disk".into(),
        levels: vec!["64 MiB on flash".into()],
        readahead: "linux:max=128K".into(),
        scheduler: "deadline".into(),
        curves: vec![curve("clock", 1.0), curve("dulo", 0.8)],
    };
    report.timed = Some(timed.clone());
    let script = "const chosen = document.querySelector('#sequence-size'); chosen.selectedIndex = 0; \
                  chosen.dispatchEvent(new Event('change'));";
    let found = browser.look("timed", &report, 1200, &[], script);
    println!("{found}");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(
        found["sections"],
        serde_json::json!(["verdict", "notes", "timed", "curves", "results", "map", "internals"])
    );
    assert_eq!([&found["foreign"], &found["overflow"]], [0, 0]);
    let plots = found["plots"].as_array().unwrap();
    assert_eq!(plots.len(), 5, "those inside the policies are folded");
    assert_eq!([&plots[0]["series"], &plots[0]["points"]], ["2", "6"], "two policies at three sizes: time leads");
    assert_eq!([&plots[1]["series"], &plots[1]["points"]], ["2", "6"], "p99");
    assert_eq!([&plots[2]["series"], &plots[2]["points"]], ["2", "6"], "two policies, three lengths each");
    let cells: Vec<&str> = found["timed_cells"].as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
    assert_eq!(
        cells[cells.len() - 3..],
        ["4,321", "765", "900"],
        "the level's hits and stores, and what the device read"
    );
    let programs = found["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 2 * 3 * 2, "two policies at three sizes with two programs");
    let cells = ["clock", "4 MiB", "other", "0.000", "0.000", "0", "–", "–", "–"];
    assert!(programs.contains(&serde_json::json!(cells)), "{programs:?}");
    assert!(programs.iter().any(|cells| [&cells[5], &cells[6]] == ["1,000", "75.0"]), "{programs:?}");

    // Mean latencies lead in an open loop.
    report.timed = Some(Timed { is_open: true, ..timed });
    let found = browser.look("open", &report, 1200, &[], script);
    let narrow = browser.look("open-500", &report, 500, &[], "");
    assert_eq!(narrow["overflow"], 0, "{narrow}");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!([&found["foreign"], &found["overflow"]], [0, 0]);
    let cells: Vec<&str> = found["timed_cells"].as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
    assert!(cells.contains(&"1.2 ms") && !cells.contains(&"120.000"), "{cells:?}");
}

/// Two levels over two intervals of 1,000 references each, and as many before them; `clients` share the second level.
fn scheme(name: &str, demotions: u64, duplicated_bytes: u64, clients: &[&str]) -> LevelsScheme {
    let figures = LevelsFigures {
        references: 2000,
        hits: vec![800, 500],
        misses: 700,
        demotions: vec![2 * demotions],
        demoted_bytes: 2 * demotions * 4096,
        fetched_bytes: 500 * 4096,
        mean_ms: Some(demotions as f64 / 100.0),
    };
    LevelsScheme {
        scheme: name.into(),
        clients: clients.iter().map(|&client| (client.to_owned(), figures.clone())).collect(),
        figures,
        duplicated_bytes,
        intervals: LevelsIntervals {
            start: 1000,
            end: vec![2000, 3000],
            hits: vec![vec![300, 500], vec![250, 250]],
            misses: vec![450, 250],
            demotions: vec![vec![demotions; 2]],
            duplicated_bytes: if clients.is_empty() { vec![duplicated_bytes / 2, duplicated_bytes] } else { vec![] },
        },
        cpu_s: 0.25,
    }
}

#[test]
fn levels_are_drawn_over_time() {
    let Some(program) = chromium("levels_are_drawn_over_time") else { return };
    let browser = Browser::new(&program, "levels");
    let page = |clients: &[&str]| {
        let schemes = vec![scheme("ind:lru", 0, 3 << 20, clients), scheme("ulc", 100, 0, clients)];
        let levels = Some(Levels { size_bytes: vec![4 << 20, 16 << 20], schemes });
        Report { levels, curves: Vec::new(), internals: Vec::new(), ..sample::report() }
    };
    let texts = |found: &Value| -> Vec<Vec<String>> { serde_json::from_value(found.clone()).unwrap() };
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, width, args) in [("light-400", 400, &[][..]), ("light-1400", 1400, &[]), ("dark-800", 800, &[dark])] {
        let found = browser.look(name, &page(&[]), width, args, "");
        println!("{name}: {found}");
        assert_eq!(found["problems"], serde_json::json!([]), "{name}");
        assert_eq!(found["sections"], serde_json::json!(["verdict", "notes", "levels", "map"]), "{name}");
        assert_eq!([&found["foreign"], &found["overflow"]], [0, 0], "{name}");
        let row = ["ulc", "40.00", "25.00", "35.00", "10.00", "800 KiB", "1.95 MiB", "0 B", "1.000", "0.250"];
        assert_eq!(texts(&found["levels"])[1], row, "{name}: sorted by time");
        let legends = texts(&found["level_legends"]);
        let of = |kind: usize| legends[kind].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(of(0), ["ind:lru", "level 1 40.0 %", "level 2 25.0 %", "misses 35.0 %"], "{name}");
        assert_eq!(of(2), ["ulc", "from level 1 to 2 10.0 %"], "{name}: independent levels demote nothing");
        assert_eq!(of(4), ["ulc", "demoted 800 KiB", "fetched 1.95 MiB"], "{name}");
        assert_eq!(of(5), ["ind:lru", "duplicated 3 MiB"], "{name}: what is managed as one has no duplicates");
        let plots = found["plots"].as_array().unwrap();
        assert_eq!((legends.len(), plots.len()), (6, 7), "{name}: and the map");
        assert_eq!([&plots[0]["series"], &plots[0]["points"]], ["3", "9"], "{name}: two intervals and their end");
        assert_eq!(plots[0]["width"], plots[1]["width"], "{name}: schemes side by side");
        for plot in plots {
            assert!(plot["painted"].as_u64() > Some(500) && plot["colours"].as_u64() > Some(3), "{name}: {plot}");
        }
    }

    let script = "const host = document.querySelectorAll('#levels-time .plot')[3]; \
                  host.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft' }));";
    let found = browser.look("pointed", &page(&[]), 1400, &[], script);
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(found["level_readout"], "References 1,000 to 1,999");
    let legends = texts(&found["level_legends"]);
    assert_eq!(legends[0][1..], ["level 1 30.0 %", "level 2 25.0 %", "misses 45.0 %"], "in all plots");
    assert_eq!(legends[5][1], "duplicated 1.5 MiB");

    let found = browser.look("clients", &page(&["web", "mail"]), 1400, &[], "");
    assert_eq!(found["problems"], serde_json::json!([]));
    let clients = texts(&found["level_clients"]);
    let row = ["web", "ulc", "2,000", "40.00", "25.00", "35.00", "10.00", "1.000"];
    assert!(clients.len() == 4 && clients.iter().any(|cells| cells == &row), "{clients:?}");
    assert_eq!(texts(&found["level_legends"]).len(), 5, "duplicates are known at the end only");
}

#[test]
fn the_verdict_and_what_was_served_come_first() {
    let Some(program) = chromium("the_verdict_and_what_was_served_come_first") else { return };
    let browser = Browser::new(&program, "served");
    let served = |policy: &str, elapsed_s| Served {
        policy: policy.into(),
        hit_ratio: 0.6283,
        p50_us: 77.0,
        p99_us: 7_420.0,
        device_reads: 11_159,
        elapsed_s,
    };
    let report = Report { served: vec![served("lru", 9.2), served("lirs", 4.8)], ..sample::report() };
    let found = browser.look("served", &report, 800, &[], UNFOLD);
    assert_eq!(found["problems"], serde_json::json!([]));
    let verdict = found["verdict"].as_str().unwrap();
    let expected = report.verdict.as_ref().unwrap();
    assert!(verdict.starts_with(&expected.headline), "{verdict}");
    assert!(verdict.contains(&expected.facts[1].1) && verdict.ends_with(&expected.next), "{verdict}");
    assert_eq!(found["sections"].as_array().unwrap()[..4], ["verdict", "notes", "served", "curves"]);
    let row = ["lirs", "62.83", "77 µs", "7.42 ms", "11,159", "4.80", ""];
    assert_eq!(found["served"][0], serde_json::json!(row), "the fastest is first");
    assert_eq!(found["overflow"], 0);
    assert!(found["abouts"].as_array().unwrap().iter().all(|about| about == "what it is, in a phrase"));
    assert_eq!(found["abouts"].as_array().unwrap().len(), 3);
}

#[test]
fn errors_are_shown() {
    let Some(program) = chromium("errors_are_shown") else { return };
    let browser = Browser::new(&program, "errors");
    let found = browser.look("errors", &sample::report(), 1000, &[], "nothing.here");
    let shown = "The page could not be drawn completely: Uncaught ReferenceError: nothing is not defined";
    assert_eq!(found["problems"], serde_json::json!([shown]));
}

#[test]
fn many_odd_curves_are_drawn() {
    let Some(program) = chromium("many_odd_curves_are_drawn") else { return };
    let browser = Browser::new(&program, "odd");
    let mut report = sample::report();
    let template = report.curves[4].clone();
    report.curves.extend((0..12).map(|i| {
        let mut curve = template.clone();
        curve.policy = format!("2q:in={i}%");
        curve.points.truncate(if i == 0 { 1 } else { 15 - i });
        curve.points[0].hit_ratio = f64::NAN;
        curve.points[0].miss_ratio = f64::NAN;
        for point in &mut curve.points {
            point.error = Some(0.01);
            point.miss_ratio += 0.01 * i as f64;
        }
        curve
    }));
    let mut exact = report.curves[1].clone();
    exact.policy = "another exact curve".into();
    report.curves.push(exact);
    let mut empty = template;
    empty.points.clear();
    report.curves.push(empty);
    let found = browser.look("odd", &report, 1400, &[], "");
    println!("{found}");
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!([&found["legend"], &found["matrix"]], [25, 25]);
    assert_eq!(found["columns"], 3 + 15, "name, mean, distance to OPT, and the sizes that not only exact curves have");
    assert_eq!(found["overflow"], 0);
}

#[test]
fn page_names_nothing_outside_itself() {
    let mut page = Vec::new();
    sample::report().write_html(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let tight: String = page.chars().filter(|c| !c.is_whitespace() && !"\"'".contains(*c)).collect();
    for reference in
        ["src=http", "src=//", "href=http", "href=//", "url(http", "url(//", "@import", "fetch(", "XMLHttpRequest"]
    {
        assert!(!tight.contains(reference), "{reference}");
    }
}

/// Two traces, in which policies have curves through three sizes.
fn several_traces() -> Report {
    let point = |blocks: u64, hit_ratio: f64| Point {
        size_blocks: blocks,
        size_bytes: blocks * 4096,
        hit_ratio,
        miss_ratio: 1.0 - hit_ratio,
        ..Point::default()
    };
    let curve = |policy: &str, ratios: [f64; 3]| Curve {
        policy: policy.to_owned(),
        clairvoyant: policy == "opt",
        points: [100, 200, 400].into_iter().zip(ratios).map(|(blocks, ratio)| point(blocks, ratio)).collect(),
    };
    let panel = |name: &str, by: f64| Panel {
        trace: Trace {
            name: name.to_owned(),
            references: 9000,
            distinct_blocks: 800,
            block_bytes: 4096,
            ..Trace::default()
        },
        curves: vec![
            curve("lru", [0.1, 0.2, 0.3]),
            curve("lirs:hir=1%", [0.1 + by, 0.2 + by, 0.3 + by]),
            curve("opt", [0.5, 0.6, 0.7]),
        ],
    };
    let reduction = |policy: &str, mean: f64| Reduction {
        policy: policy.to_owned(),
        clairvoyant: policy == "opt",
        mean,
        worst: mean - 0.3,
        p10: mean - 0.2,
        p25: mean - 0.1,
        median: mean,
        p75: mean + 0.1,
        p90: mean + 0.2,
    };
    let reductions = Reductions {
        against: "lru".to_owned(),
        cells: 6,
        policies: vec![reduction("lirs:hir=1%", 0.1), reduction("opt", 0.5)],
    };
    let panels = vec![panel("web.csv", 0.05), panel("a <b> & c.csv", 0.2)];
    Report {
        title: "2 traces".to_owned(),
        traces: Some(Traces { panels, reductions: Some(reductions) }),
        ..Report::default()
    }
}

#[test]
fn several_traces_have_a_chart_each_and_charts_are_svg() {
    let Some(program) = chromium("several_traces_have_a_chart_each_and_charts_are_svg") else { return };
    let browser = Browser::new(&program, "traces");
    let report = several_traces();
    let (light, dark) = ("--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0");
    for (name, width, colours) in [("light-500", 500, light), ("dark-500", 500, dark), ("dark-1400", 1400, dark)] {
        let found = browser.look(name, &report, width, &[colours], "");
        assert_eq!(found["problems"], serde_json::json!([]), "{name}");
        assert_eq!((&found["sections"], &found["overflow"]), (&serde_json::json!(["traces"]), &0.into()), "{name}");
        let plots = found["plots"].as_array().unwrap();
        assert_eq!(plots.len(), 3, "{name}");
        assert_eq!(plots[0]["boxes"], "2", "{name}");
        for plot in &plots[1..] {
            assert_eq!([&plot["series"], &plot["points"]], ["3", "9"], "{name}");
        }
        for plot in plots {
            assert!(plot["painted"].as_u64() > Some(1000), "{name}: {plot}");
        }
    }
    let dom = browser.run(&browser.folder.join("dark-1400.html#svg"), &["--dump-dom".to_owned(), dark.to_owned()]);
    let charts = dom.split_once(r#"id="charts">"#).unwrap().1.split_once("</script>").unwrap().0;
    let charts: Vec<Value> = serde_json::from_str(charts).unwrap();
    let names: Vec<&str> = charts.iter().map(|chart| chart["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["reductions", "trace-1-web.csv", "trace-2-a-b-c.csv"]);
    let svg = |at: usize| charts[at]["svg"].as_str().unwrap();
    // Names are escaped; colours are those of a light page, whatever the reader prefers: LRU's blue, and black ink.
    assert!(svg(2).contains("<title>Hit ratio against cache size in a &lt;b&gt; &amp; c.csv</title>"), "{}", svg(2));
    for part in
        ["stroke=\"#3c3ce0\"", ">lirs:hir=1%</text>", ">opt</text>", ">Hit ratio (%)</text>", "fill=\"#1a1a1a\""]
    {
        assert!(svg(1).contains(part), "{part}: {}", svg(1));
    }
    const GRID: &str = "#d9d9d9";
    // Each curve is one path through its three points, from the smallest size to the largest.
    let curves =
        svg(1).split("<path ").filter(|path| path.contains("stroke-linejoin=\"round\"") && !path.contains(GRID));
    let points: Vec<usize> = curves.map(|path| path.matches('L').count() + path.matches('M').count()).collect();
    assert_eq!(points, [3, 3, 3], "{}", svg(1));
    assert!(svg(0).contains(">Fewer misses than lru (%)</text>") && svg(0).matches("stroke-width=\"3\"").count() == 2);
}
