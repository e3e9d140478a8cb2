//! The binary as people and scripts use it: its output, its streams, and its errors about bad input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::command::{nigh, refusal, stdout};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Its files, but for those named.
    fn others(&self, known: &[&str]) -> Vec<String> {
        let names = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| !known.contains(&name.as_str())).collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The blocks 1 2 3 4 1 2 5 1 2 3 4 5, on which LRU with 3 and 4 frames faults 9 and 8 times (and FIFO 9 and 10: Belady's
/// anomaly, Belady, Nelson, Shedler, CACM 1969).
const BELADY: &[u8] = b"1\n2\n3\n4\n1\n2\n5\n1\n2\n3\n4\n5\n";

#[test]
fn json_is_one_object() {
    let folder = Folder::new();
    let trace = folder.file("belady.trace", BELADY);
    let output =
        nigh(&["sim", text(&trace), "--format", "lirs", "--policy", "fifo,lru,opt", "--size", "3b,4b", "--json"]);
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(found["schema"], 1);
    assert_eq!(found["trace"]["references"], 12);
    assert_eq!(found["trace"]["distinct_blocks"], 5);
    let rows = found["results"].as_array().unwrap();
    let told: Vec<(&str, u64, u64)> = rows
        .iter()
        .map(|row| {
            (row["policy"].as_str().unwrap(), row["size_blocks"].as_u64().unwrap(), row["misses"].as_u64().unwrap())
        })
        .collect();
    // OPT's 7 and 6 are from the same note.
    assert_eq!(told, [("fifo", 3, 9), ("fifo", 4, 10), ("lru", 3, 10), ("lru", 4, 8), ("opt", 3, 7), ("opt", 4, 6)]);
    for row in rows {
        let (references, hits) = (row["references"].as_u64().unwrap(), row["hits"].as_u64().unwrap());
        assert_eq!(hits + row["misses"].as_u64().unwrap(), references);
        assert!((row["hit_ratio"].as_f64().unwrap() - hits as f64 / references as f64).abs() < 1e-8);
        assert_eq!(row["size_bytes"].as_u64().unwrap(), 4096 * row["size_blocks"].as_u64().unwrap());
    }
}

#[test]
fn lru_without_sizes_is_exact_at_every_size() {
    let folder = Folder::new();
    let trace = folder.file("belady.trace", BELADY);
    let found: Value =
        serde_json::from_str(&stdout(&nigh(&["sim", text(&trace), "--format", "lirs", "--policy", "lru", "--json"])))
            .unwrap();
    let curve = &found["curves"][0];
    assert_eq!(curve["size_blocks"], serde_json::json!([3, 4, 5]));
    assert_eq!(curve["hits"], serde_json::json!([2, 4, 7]));
}

#[test]
fn standard_input_csv_and_table() {
    let folder = Folder::new();
    let trace = folder.file("belady.trace", BELADY);
    let piped = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["sim", "-", "--format", "lirs", "--policy", "lru,fifo", "--size", "3b", "--csv"])
        .stdin(std::fs::File::open(&trace).unwrap())
        .output()
        .unwrap();
    let csv = stdout(&piped);
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.starts_with("policy,size_blocks,size_bytes,references,hits,misses,hit_ratio,"), "{csv}");
    assert!(csv.contains("\nlru,3,12288,12,2,10,"), "{csv}");
    let table = stdout(&nigh(&["sim", text(&trace), "--format", "lirs", "--policy", "lru,fifo", "--size", "3b"]));
    assert!(table.contains("12 references to 5 distinct blocks"), "{table}");
    // 3 of 12 hit under FIFO, 2 under LRU.
    assert!(table.contains("*25.00") && table.contains("16.67"), "{table}");
}

#[test]
fn bad_input_gets_one_line() {
    let folder = Folder::new();
    let trace = folder.file("t.lirs", BELADY);
    let trace = text(&trace);
    let cases: &[(&[&str], &[&str])] = &[
        (&["sim", "nowhere.trace"], &["nowhere.trace", "No such file"]),
        (&["sim", trace, "--policy", "lirz"], &["unknown policy 'lirz'", "Did you mean 'lirs'?"]),
        (&["sim", trace, "--policy", "lirs:hri=1%"], &["no parameter 'hri'", "Did you mean 'hir'?", "hir=1%"]),
        (&["sim", trace, "--policy", "lirs:hir=many"], &["hir=many", "expected"]),
        (&["sim", trace, "--policy", "lru:"], &["expected name:key=value"]),
        (&["sim", trace, "--policy", "lru:x=1"], &["no parameter 'x'", "it has none"]),
        (&["sim", trace, "--size", "0b"], &["'0b' is 0"]),
        (&["sim", trace, "--size", "100"], &["no unit", "100b"]),
        (&["sim", trace, "--size", "1K"], &["1024 bytes does not hold a block of 4096"]),
        (&["sim", trace, "--sample", "2"], &["--sample 2", "0.1"]),
        (
            &["sim", trace, "--sample", "0.5", "--policy", "lru,dulo:first=1"],
            &["--sample", "'dulo:first=1'", "neighbours"],
        ),
        (&["sim", trace, "--policy", "dulo:bank=2:evicting=1", "--size", "4b"], &["bank=2", "at most the 1 blocks"]),
        (&["sim", trace, "--warmup", "12"], &["--warmup 12", "only 12 references"]),
        (&["sim", trace, "--ops", "writes"], &["nothing to replay"]),
        (&["sim", trace, "--block-size", "1000"], &["--block-size 1000", "power of two"]),
        (&["sim", trace, "--format", "vscssi"], &["vscssi", "Did you mean 'vscsi'?"]),
        (&["sim", trace, "--html", "/nowhere/report.html"], &["/nowhere/report.html"]),
        (&["sim", trace, "--seed", "3"], &["--seed", "add --generate"]),
        (&["sim", trace, "--stream", "pc8"], &["--stream is for the formats pc and parquet", "lirs"]),
        (&["sim", trace, "--threads", "0"], &["--threads", "0"]),
        (&["sim", trace, "--limit", "0"], &["--limit 0", "above 0"]),
        (&["sim", trace, "--ops", "foo"], &["--ops", "reads"]),
        (&["sim", trace, "--polisy", "lru"], &["--polisy", "--policy"]),
        (&["sim", trace, "--json", "--csv"], &["--json", "--csv"]),
        (&["trace", "generate", "zipf", "-", "--arrivals", "nan"], &["--arrivals", "such as 500us"]),
        (&["trace", "generate", "zip:blocks=3", "-"], &["zip", "zipf"]),
        (&["trace", "generate", "zipf", "out.unknown"], &["out.unknown"]),
        (&["trace", "convert", trace, "out.msr"], &["msr cannot be written", "parquet"]),
    ];
    for (args, parts) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(*args).stdin(Stdio::null()).output().unwrap();
        let said = refusal(&output);
        for part in *parts {
            assert!(said.contains(part), "{args:?} said {said}");
        }
    }
}

#[test]
fn bad_traces_get_one_line_with_the_place() {
    let folder = Folder::new();
    let cases: &[(&str, &[u8], &[&str])] = &[
        ("row.lirs", b"1\n2\nthree\n", &["row.lirs: line 3", "`three`"]),
        ("empty.lirs", b"", &["empty.lirs"]),
        ("markers.lirs", b"*\n*\n", &["markers.lirs", "no requests"]),
        ("cut.oracleGeneral", &[1; 40], &["cut.oracleGeneral", "byte"]),
        ("noise.bin", &[0xff; 5000], &["noise.bin"]),
        ("damaged.zst", b"\x28\xb5\x2f\xfd garbage", &["damaged.zst", "zstd"]),
    ];
    for (name, content, parts) in cases {
        let path = folder.file(name, content);
        let format = if name.ends_with("lirs") { "lirs" } else { "oracle-general" };
        let args: &[&str] = match *name {
            "noise.bin" => &["sim", text(&path)],
            _ => &["sim", text(&path), "--format", format],
        };
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(args).output().unwrap();
        let said = refusal(&output);
        for part in *parts {
            assert!(said.contains(part), "{name} said {said}");
        }
    }
}

#[test]
fn a_size_beyond_all_blocks_is_a_note() {
    let folder = Folder::new();
    let trace = folder.file("t.lirs", BELADY);
    let output = nigh(&["sim", text(&trace), "--policy", "lru,lirs", "--size", "100b,1T", "--json"]);
    let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(found["notes"][0].as_str().unwrap().contains("beyond the trace's 5 distinct blocks"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nigh: note: "));
    assert!(found["results"].as_array().unwrap().iter().all(|row| row["misses"] == 5));
}

#[test]
fn outputs_are_whole_or_not_there() {
    let folder = Folder::new();
    let trace = folder.file("t.lirs", BELADY);
    let page = folder.path("page.html");
    stdout(&nigh(&["sim", text(&trace), "--html", text(&page), "--policy", "lru,lirs", "--size", "2b"]));
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.trim_end().ends_with("</html>"));
    // A link is followed, a device is written to.
    let link = folder.path("link.html");
    std::os::unix::fs::symlink(&page, &link).unwrap();
    let before = std::fs::read(&page).unwrap();
    stdout(&nigh(&["sim", text(&trace), "--html", text(&link), "--force", "--policy", "fifo", "--size", "2b"]));
    assert!(link.is_symlink() && std::fs::read(&page).unwrap() != before);
    stdout(&nigh(&["sim", text(&trace), "--html", "/dev/null", "--policy", "fifo", "--size", "2b"]));
    assert!(!Path::new("/dev/null").is_file());
    let bad = folder.file("bad.lirs", b"1\nx\n");
    let output = folder.path("out.parquet");
    refusal(&nigh(&["trace", "convert", text(&bad), text(&output), "--format", "lirs"]));
    assert_eq!(folder.others(&["t.lirs", "page.html", "link.html", "bad.lirs"]), Vec::<String>::new());
}

/// Time, tenant, stream and address survive a conversion there and back.
#[test]
fn conversions_keep_what_a_request_is() {
    let folder = Folder::new();
    let original = folder.path("a.csv");
    let spec = "zipf:blocks=1k:tenant=7:writes=0.3+loop:blocks=100:tenant=4000000000";
    stdout(&nigh(&[
        "trace",
        "generate",
        spec,
        text(&original),
        "--requests",
        "20k",
        "--seed",
        "3",
        "--arrivals",
        "poisson:100us",
    ]));
    let parquet = folder.path("b.parquet");
    stdout(&nigh(&["trace", "convert", text(&original), text(&parquet)]));
    let back = folder.path("c.csv");
    stdout(&nigh(&["trace", "convert", text(&parquet), text(&back)]));
    assert_eq!(std::fs::read(&original).unwrap(), std::fs::read(&back).unwrap());

    let info: Value = serde_json::from_str(&stdout(&nigh(&["trace", "info", "--json", text(&parquet)]))).unwrap();
    assert_eq!(info["requests"], 20_000);
    assert_eq!(info["tenants"], 2);
    let head = stdout(&nigh(&["trace", "head", "-n", "3", text(&parquet)]));
    assert_eq!(
        head,
        std::fs::read_to_string(&original).unwrap().lines().take(4).fold(String::new(), |a, l| a + l + "\n")
    );
    let convert = nigh(&["trace", "convert", text(&parquet), text(&folder.path("d.lirs"))]);
    let said = String::from_utf8(convert.stderr).unwrap();
    assert!(said.contains("does not hold every time_ns, op, tenant, stream"), "{said}");
}

#[test]
fn files_8_are_replaced_by_force_only() {
    let folder = Folder::new();
    let trace = folder.file("t.lirs", BELADY);
    let (out, link) = (folder.file("out.csv", b"precious"), folder.path("link.lirs"));
    std::os::unix::fs::symlink(&trace, &link).unwrap();
    let generate = ["trace", "generate", "zipf:blocks=1k", text(&out), "--requests", "10"];
    for args in
        [&["trace", "convert", text(&trace), text(&out)][..], &generate, &["trace", "layout", text(&trace), text(&out)]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(args).output().unwrap();
        let said = refusal(&output);
        assert!(said.contains("out.csv: the file exists; add --force to replace it"), "{said}");
        assert_eq!(std::fs::read(&out).unwrap(), b"precious");
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(args).arg("--force").output().unwrap();
        assert!(stdout(&output).is_empty());
        assert!(std::fs::read(&out).unwrap().starts_with(b"time_ns,"), "{args:?}");
        std::fs::write(&out, b"precious").unwrap();
    }
    // Its own source is spared in any case, by whichever name.
    for own in [&trace, &link] {
        let said = refusal(&nigh(&["trace", "convert", text(&trace), text(own), "--force", "--to-format", "lirs"]));
        assert!(said.contains("this file is read; write to another one"), "{said}");
        let input = std::fs::File::open(&trace).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_nigh"))
            .args(["trace", "convert", "-", text(own), "--force"])
            .stdin(input)
            .output()
            .unwrap();
        assert!(refusal(&output).contains("this file is read; write to another one"));
        assert_eq!(std::fs::read(&trace).unwrap(), BELADY);
    }
    stdout(&nigh(&["trace", "convert", text(&trace), "/dev/null", "--to-format", "csv"]));
}

#[test]
fn units_6_are_reported_or_asked_for() {
    let folder = Folder::new();
    let dates = folder.file("dates.csv", b"1577808144360767,4096\n1577808144360768,8192\n");
    let output = nigh(&["trace", "head", text(&dates), "--columns", "time=0,offset=1"]);
    assert!(stdout(&output).contains("1577808144360767000,read"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("note: dates.csv: times are interpreted as microseconds, because in this unit they are dates"),
        "{said}"
    );
    let open = folder.file("open.csv", b"100,4096\n200,8192\n");
    let said = refusal(&nigh(&["sim", text(&open), "--columns", "time=0,offset=1", "--size", "1b"]));
    assert!(
        said.contains("the unit of the times, such as 100, cannot be detected: add time-unit=s, ms, us or ns"),
        "{said}"
    );
    // A cut last line is reported, and --limit does not reach a bad one.
    let cut = folder.file("cut.spc", b"0,8,512,R,0.5\n0,16,512,R,0.6\n0,24,51");
    let output = nigh(&["trace", "info", text(&cut)]);
    stdout(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("note: cut.spc: line 3, the last one, is incomplete and was left out"), "{said}");
    let bad = folder.file("bad.lirs", b"1\n2\nx\n3\n");
    assert!(
        stdout(&nigh(&["trace", "info", text(&bad), "--limit", "2", "--format", "lirs", "--json"]))
            .contains("\"requests\":2")
    );
    refusal(&nigh(&["trace", "info", text(&bad), "--limit", "3", "--format", "lirs"]));
}

#[test]
fn a_generated_workload_is_the_same_again() {
    let args = [
        "sim",
        "--generate",
        "zipf:blocks=5k",
        "--requests",
        "50k",
        "--policy",
        "lru,arc",
        "--size",
        "5%,10%",
        "--json",
    ];
    let hits = |output: Output| -> Vec<u64> {
        let found: Value = serde_json::from_str(&stdout(&output)).unwrap();
        found["results"].as_array().unwrap().iter().map(|row| row["hits"].as_u64().unwrap()).collect()
    };
    assert_eq!(hits(nigh(&args)), hits(nigh(&args)));
}

#[test]
fn samples_warn_when_they_are_small() {
    let args =
        ["sim", "--generate", "zipf:blocks=50k", "--requests", "200k", "--policy", "lru,lirs", "--sample", "10%"];
    let output = nigh(&args);
    let said = stdout(&output);
    assert!(said.contains("sampled at 0.1") && said.contains("note: the sample has only"), "{said}");
}

/// 'all' with a sample is all policies that a sample can be asked about.
#[test]
fn samples_leave_out_policies_that_look_at_neighbours() {
    let args = ["sim", "--generate", "zipf:blocks=5k", "--requests", "10k", "--policy", "all", "--size", "10%"];
    let said = stdout(&nigh(&args));
    assert!(said.contains(" dulo ") && !said.contains("left out"), "{said}");
    let sampled = Command::new(env!("CARGO_BIN_EXE_nigh")).args(args).args(["--sample", "50%"]).output().unwrap();
    let said = stdout(&sampled);
    assert!(
        !said.contains(" dulo ") && said.contains("left out") && said.contains(": dulo, aoio, ubm, pcc\n"),
        "{said}"
    );
}

#[test]
fn help_comes_at_once() {
    let start = std::time::Instant::now();
    for args in [vec!["--help"], vec!["sim", "--help"], vec!["trace", "generate", "--help"], vec!["policies"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(&args).output().unwrap();
        assert!(!stdout(&output).is_empty());
    }
    assert!(start.elapsed().as_secs_f64() < 4.0);
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&nigh(&["completions", shell])).contains("NIGH_COMPLETE"), "{shell}");
    }
    assert!(stdout(&nigh(&["man", "sim"])).starts_with(".ie"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["trace", "generate", "zipf:blocks=1k", "-", "--to-format", "csv", "--requests", "1M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let folder = Folder::new();
    let trace = folder.path("long.csv");
    stdout(&nigh(&["trace", "generate", "zipf:blocks=1k", text(&trace), "--requests", "100k"]));
    let mut head = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["trace", "head", "-n", "100000", text(&trace)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(head.stdout.take());
    let output = head.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
