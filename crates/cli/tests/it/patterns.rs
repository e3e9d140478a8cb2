//! Which code reads how, and the patterns of one run in the replay of another, with the real binary.

use crate::command;
use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_trace::format::parquet::{Call, Context, Did, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Op, Request, Taken};

use crate::command::{json, printed, refused};
use crate::recorded::compiled;

/// Adds reads of one page each.
struct Recording {
    recorder: Recorder,
    program: u32,
}

impl Recording {
    fn create(path: &Path) -> Recording {
        let mut recorder = Recorder::create(&Destination::new(path, true, &[]).unwrap(), Taken::Above, 4096).unwrap();
        let program = recorder.program("worker");
        Recording { recorder, program }
    }

    fn code(&mut self, number: u64) -> u32 {
        let stack = format!("libc.so.6+0x10;worker+{number:#x};worker+0x9999");
        self.recorder.context(Context { pcs: [number; 4], depth: 100, stack })
    }

    fn reads(&mut self, context: u32, stream: u64, volume: u32, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            let offset = page * 4096;
            let request =
                Request { op: Op::Read, volume, offset, length: 4096, tenant: 9, stream, ..Request::default() };
            let did = Did::Request(Op::Read);
            let call = Call {
                request,
                did,
                program: self.program,
                context,
                tid: 9,
                asked: 4096,
                result: 4096,
                device_bytes: 0,
            };
            self.recorder.push(call).unwrap();
        }
    }
}

/// Three rounds of a scan by code 0x111, of a loop by 0x222, and of 60 small files by 0x333. Code 0x111 reads one file in
/// loops, too. The files have other numbers where `first` is another one.
fn recording(path: &Path, first: u32) {
    let mut recording = Recording::create(path);
    for number in 0..first {
        recording.recorder.file(&format!("/unread/{number}"));
    }
    let [scanned, looped, header] =
        ["/data/scan", "/data/loop", "/data/header"].map(|path| recording.recorder.file(path));
    let small: Vec<u32> = (0..60).map(|number| recording.recorder.file(&format!("/small/{number}"))).collect();
    let [scan, loops, short] = [0x111, 0x222, 0x333].map(|number| recording.code(number));
    for round in 0..3 {
        recording.reads(scan, 0x111, scanned, round * 2000..(round + 1) * 2000);
        recording.reads(scan, 0x111, header, 0..50);
        recording.reads(loops, 0x222, looped, 0..900);
        small.iter().for_each(|&file| recording.reads(short, 0x333, file, 0..4));
    }
    recording.recorder.finish().unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn each_piece_of_code_has_its_class_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.parquet");
    recording(&path, 0);
    let found = json(&["patterns", text(&path)]);
    let rows = found["codes"].as_array().unwrap();
    let row = |at: usize| {
        let row = &rows[at];
        let [code, class, program] = ["code", "class", "program"].map(|key| row[key].as_str().unwrap());
        let [references, pages, files] = ["references", "pages", "files"].map(|key| row[key].as_u64().unwrap());
        (code.to_owned(), class.to_owned(), program.to_owned(), references, pages, files)
    };
    let expected = |code: &str, class: &str, references, pages, files| {
        (code.to_owned(), class.to_owned(), "worker".to_owned(), references, pages, files)
    };
    assert_eq!(rows.len(), 3);
    assert_eq!(row(0), expected("0000000000000111", "seq", 6150, 6050, 2));
    assert_eq!(row(1), expected("0000000000000222", "loop", 2700, 900, 1));
    assert_eq!(row(2), expected("0000000000000333", "short", 720, 240, 60));
    assert_eq!(rows[0]["exceptions"], serde_json::json!([{ "file": "/data/header", "class": "loop" }]));
    assert_eq!(rows[1]["exceptions"], serde_json::json!([]));
    // A round has 2,000 + 50 + 900 + 240 references.
    assert_eq!((rows[1]["period"].as_f64(), rows[1]["run"].as_f64()), (Some(3190.0), Some(900.0)));
    assert_eq!(found["tried"].as_array().unwrap().len(), 4, "each identity of a recording is tried");

    let table = printed(&["patterns", text(&path), "--top", "2"]);
    assert!(table.contains("  worker+0x111 < +0x9999\n"), "frames of libc are left out: {table}");
    assert!(
        table.contains("and 1 more (--top)") && table.contains(" 28.2 % by code that reads long parts again"),
        "{table}"
    );
    assert_eq!(json(&["patterns", text(&path), "--stream", "pc8"])["tried"], serde_json::json!([]));
}

/// The hits of `aoio` in 1,200 blocks.
fn hits(arguments: &[&str]) -> u64 {
    let cache = ["--policy", "aoio", "--size", "1200b"];
    json(&[&["sim"], arguments, &cache].concat())["results"][0]["hits"].as_u64().unwrap()
}

#[test]
fn the_patterns_of_one_run_are_used_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one.parquet", "other.parquet"].map(|name| folder.path().join(name));
    recording(&one, 0);
    recording(&other, 7);
    let (one, other) = (text(&one), text(&other));
    let looped = 2 * 900;
    assert!(hits(&[one]) < looped, "the first round shows no loop");
    let trained = hits(&[one, "--patterns", one]);
    assert!(trained >= looped, "{trained} of {looped}");
    assert!(hits(&[other, "--patterns", one]) >= looped, "code is the same, files have other numbers");
    assert_eq!(hits(&[one, "--patterns", one, "--patterns-part", "0%"]), hits(&[one]), "nothing was seen");
}

/// Code that reads a file, and later the first half of it again, is sequential on the whole. As that, it keeps other code's
/// pages out of the cache.
#[test]
fn patterns_are_not_used_where_they_lose_hits_in_their_own_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loses.parquet");
    let mut recording = Recording::create(&path);
    let [one, other] = ["/data/one", "/data/other"].map(|path| recording.recorder.file(path));
    let [reads, jumps] = [0x111, 0x222].map(|number| recording.code(number));
    let mut state = 1_u64;
    let at_random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 80
    });
    recording.reads(reads, 0x111, one, 0..140);
    recording.reads(jumps, 0x222, other, at_random.take(240));
    recording.reads(reads, 0x111, one, 0..70);
    recording.recorder.finish().unwrap();
    let path = text(&path);

    let sim = ["sim", path, "--policy", "aoio", "--size", "108b,220b", "--patterns", path];
    let hits = |arguments: &[&str]| -> Vec<u64> {
        let rows = json(arguments)["results"].as_array().unwrap().clone();
        rows.iter().map(|row| row["hits"].as_u64().unwrap()).collect()
    };
    assert_eq!(hits(&sim), hits(&sim[..6]));
    let table = printed(&sim);
    let note = "aoio in 108 blocks does without --patterns: the run that they are from has ";
    assert!(table.contains(note) && !table.contains("aoio in 220 blocks"), "{table}");
    let shards = [&sim[..], &["--shards", "2"]].concat();
    assert!(hits(&shards) >= hits(&[&sim[..6], &["--shards", "2"]].concat()));
}

/// The recorded programs in half of their pages: what LRU hits, what AOIO must hit as it goes, and what OPT hits, in %. On
/// `grep_loop`, AOIO knows the loop too late for the 28 % that it hits with the patterns of the whole trace.
#[test]
fn aoio_on_recorded_programs() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/pc");
    for (program, stream, lru, aoio, trained, opt) in [
        ("gcc_build", "pc5", 30.54, 91.0, 91.0, 92.68),
        ("grep_loop", "pc5", 0.0, 27.8, 28.0, 28.91),
        ("sqlite", "pc5", 0.01, 34.0, 34.0, 50.52),
        ("sqlite", "pc8", 0.01, 46.0, 46.0, 50.52),
    ] {
        let trace = shared.join(format!("{program}.csv.gz"));
        if !trace.exists() {
            println!("skipped: aoio_on_recorded_programs: there is no folder of traces beside the repository");
            return;
        }
        let trace = text(&trace);
        let ratios = |more: &[&str]| -> Vec<f64> {
            let cache =
                ["--stream", stream, "--policy", "lru,aoio,opt", "--size", "50%", "--ops", "reads", "--collapse"];
            let rows = json(&[&["sim", trace], &cache[..], more].concat());
            let rows = rows["results"].as_array().unwrap();
            rows.iter().map(|row| 100.0 * row["hit_ratio"].as_f64().unwrap()).collect()
        };
        let (goes, known) = (ratios(&[]), ratios(&["--patterns", trace]));
        println!("{program} by {stream}: lru, aoio, opt {goes:.2?}, aoio with patterns {:.2}", known[1]);
        // Three files of the system are not in the published counts.
        assert!((goes[0] - lru).abs() < 0.2 && (goes[2] - opt).abs() < 0.05, "{program}: {goes:?}");
        assert!(goes[1] >= aoio && known[1] >= trained, "{program} by {stream}: {goes:?}, {known:?}");
    }
}

/// With the patterns of the whole trace, and in the second half with those of the first, `aoio` is at most a point below
/// what it hits without any.
#[test]
fn patterns_do_not_cost_more_than_a_point_on_recorded_programs() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/pc");
    for (program, stream) in
        [("gcc_build", "pc5"), ("grep_loop", "pc5"), ("sqlite", "pc5"), ("sqlite", "pc8"), ("cscope_build", "pc5")]
    {
        let trace = shared.join(format!("{program}.csv.gz"));
        if !trace.exists() {
            println!(
                "skipped: patterns_do_not_cost_more_than_a_point_on_recorded_programs: {} is missing",
                trace.display()
            );
            continue;
        }
        let trace = text(&trace);
        let sim = ["sim", trace, "--stream", stream, "--policy", "aoio", "--size", "6.25%,12.5%,25%,50%,75%"];
        let sim = [&sim[..], &["--ops", "reads", "--collapse"]].concat();
        let ratios = |more: &[&str]| -> Vec<f64> {
            let rows = json(&[&sim[..], more].concat())["results"].as_array().unwrap().clone();
            rows.iter().map(|row| 100.0 * row["hit_ratio"].as_f64().unwrap()).collect()
        };
        let second = ["--warmup", "50%"];
        let part = ["--warmup", "50%", "--patterns", trace, "--patterns-part", "50%"];
        for (without, with) in [(ratios(&[]), ratios(&["--patterns", trace])), (ratios(&second), ratios(&part))] {
            println!("{program} by {stream}: {without:.2?}, with patterns {with:.2?}");
            assert!(without.iter().zip(&with).all(|(without, with)| *with >= without - 1.0), "{without:?}, {with:?}");
        }
    }
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let [one, foreign, cut] = ["one", "foreign", "cut"].map(|name| folder.path().join(format!("{name}.parquet")));
    recording(&one, 0);
    let mut recorded = Recording::create(&foreign);
    let (file, code) = (recorded.recorder.file("/data"), recorded.code(0x777));
    recorded.reads(code, 0x777, file, 0..100);
    recorded.recorder.finish().unwrap();
    let sim = ["sim", text(&one), "--size", "100b", "--patterns"];
    let line = refused(&[&sim[..], &[text(&foreign), "--policy", "aoio"]].concat());
    assert!(line.contains("none of its code is in the trace"), "{line}");
    let line = refused(&[&sim[..], &[text(&one), "--policy", "lru"]].concat());
    assert!(line.contains("only the policy aoio"), "{line}");
    let line = refused(&[&sim[..], &[text(&one), "--policy", "aoio", "--patterns-part", "half"]].concat());
    assert!(line.contains("--patterns-part half: expected a share"), "{line}");

    let bytes = std::fs::read(&foreign).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    assert!(!command::nigh(&["patterns", text(&cut)]).status.success(), "no part of it is whole");
    std::fs::write(&cut, [&bytes[..], &[7; 500]].concat()).unwrap();
    assert_eq!(json(&["patterns", text(&cut)])["references"], 100, "the whole part is read");
}

/// The identity of a recorded program is the shortest that predicts as well as others.
#[test]
fn recorded_programs_need_different_identities() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/pc");
    for (name, identity) in CHOSEN {
        let path = folder.join(format!("{name}.csv.gz"));
        if !path.exists() {
            println!("skipped: recorded_programs_need_different_identities: {} is missing", path.display());
            continue;
        }
        let found = json(&["patterns", text(&path)]);
        println!("{name}: {}: {}", found["identity"], found["tried"]);
        assert!(found["identity"].as_str().unwrap().contains(identity), "{name}: {}", found["identity"]);
    }
}

/// Each program with the flag of the choice.
const CHOSEN: [(&str, &str); 3] = [("sqlite", "pc8"), ("gcc_build", "pc5"), ("grep_loop", "pc5")];

/// Functions are named by the symbols of the program, if it is the recorded build.
#[test]
fn code_is_named_by_its_functions() {
    for flags in [&[][..], &["-no-pie"]] {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = compiled("code_is_named_by_its_functions", folder.path(), "patterns", flags) else {
            return;
        };
        let program = text(&program);
        let run = |command: &mut Command| command.current_dir(folder.path()).output().unwrap();
        assert!(run(Command::new(program).arg("make")).status.success());
        let nigh = || Command::new(env!("CARGO_BIN_EXE_nigh"));
        assert_eq!(run(nigh().args(["record", "-o", "a.parquet", "--", program])).status.code(), Some(7));
        let recording = folder.path().join("a.parquet");
        let table = printed(&["patterns", text(&recording)]);
        for (class, function) in [("seq", "seq"), ("loop", "loop"), ("short", "shorts"), ("rand", "random_one")] {
            let named = |line: &str| line.starts_with(class) && line.contains(&format!("patterns: {function} < "));
            assert!(table.lines().any(named), "no line of {function} in\n{table}");
        }
        let found = json(&["patterns", text(&recording)]);
        assert!(found["codes"][0]["stack"].as_str().unwrap().contains("patterns+0x"), "{found}");
        // Another build has other places.
        compiled("code_is_named_by_its_functions", folder.path(), "patterns", &[flags, &["-O0"]].concat());
        let table = printed(&["patterns", text(&recording)]);
        assert!(table.contains("patterns+0x") && !table.contains("random_one"), "{table}");
    }
}
