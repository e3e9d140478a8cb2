//! `nigh sweep`: many traces, whose results are kept.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{nigh, printed, refused, stdout};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A folder with `traces` traces and a list of them.
    fn new(traces: u32, requests: &str) -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        for at in 0..traces {
            let (path, seed) = (place.path(&format!("t{at}.csv")), at.to_string());
            let generate = ["trace", "generate", "zipf:blocks=2k", path.to_str().unwrap(), "--requests", requests];
            stdout(&nigh(&[&generate[..], &["--writes", "0.2", "--seed", &seed]].concat()));
        }
        place.list("");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn list(&self, more: &str) {
        let list =
            format!("traces = ['t*.csv']\npolicies = ['lru', 'lirs', 'opt']\nsizes = ['1%..20%', '64K']\n{more}");
        std::fs::write(self.path("SWEEP.toml"), list).unwrap();
    }

    fn sweep(&self, more: &[&str]) -> Output {
        nigh(&[&["sweep", self.path("SWEEP.toml").to_str().unwrap()], more].concat())
    }

    /// The files of a folder of results by name.
    fn results(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        files(&self.path(name))
    }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn rows_are_those_of_nigh_sim() {
    let place = Place::new(2, "5k");
    let swept: Value = serde_json::from_str(&stdout(&place.sweep(&["--json"]))).unwrap();
    assert_eq!((&swept["schema"], swept["errors"].as_array().unwrap().len()), (&Value::from(1), 0));
    let rows = swept["results"].as_array().unwrap();
    for name in ["t0.csv", "t1.csv"] {
        let path = place.path(name);
        let sim = ["sim", path.to_str().unwrap(), "-p", "lru,lirs,opt", "-s", "1%..20%,64K", "--json"];
        let sim: Value = serde_json::from_str(&printed(&sim)).unwrap();
        let of_trace: Vec<&Value> = rows.iter().filter(|row| row["trace"] == name).collect();
        let expected = sim["results"].as_array().unwrap();
        assert_eq!(of_trace.len(), expected.len());
        for (row, expected) in of_trace.into_iter().zip(expected) {
            for (key, value) in expected.as_object().unwrap() {
                let is_time = ["cpu_s", "references_per_s"].contains(&key.as_str());
                assert!(is_time || row[key] == *value, "{name}: {key}: {row} instead of {expected}");
            }
            assert!(place.path("results").join(format!("{}.parquet", row["key"].as_str().unwrap())).exists());
        }
    }
    let csv = stdout(&place.sweep(&["--csv"]));
    assert!(csv.starts_with("trace,policy,size_blocks,") && csv.lines().count() == rows.len() + 1, "{csv}");
    let table = stdout(&place.sweep(&[]));
    assert!(table.contains("0 replayed, 2 already there, 0 failed"), "{table}");
    assert!(table.contains("wins") && table.contains("t1.csv"), "{table}");
}

#[test]
fn results_are_the_same_bytes_wherever_they_are_computed() {
    let place = Place::new(3, "5k");
    stdout(&place.sweep(&["--threads", "1"]));
    let first = place.results("results");
    assert_eq!(first.len(), 3);
    let elsewhere = place.path("elsewhere");
    stdout(&place.sweep(&["--threads", "5", "--results", elsewhere.to_str().unwrap()]));
    assert_eq!(files(&elsewhere), first);
    // Several threads for each job.
    let wide = place.path("wide");
    stdout(&place.sweep(&["--threads", "8", "--results", wide.to_str().unwrap()]));
    assert_eq!(files(&wide), first);
    // The traces on another machine, copied later.
    let other = Place { folder: tempfile::tempdir().unwrap() };
    for name in ["t0.csv", "t1.csv", "t2.csv"] {
        std::fs::copy(place.path(name), other.path(name)).unwrap();
    }
    other.list("");
    stdout(&other.sweep(&[]));
    assert_eq!(other.results("results"), first);
    // Other settings, other results.
    other.list("warmup = '10%'\n");
    stdout(&other.sweep(&[]));
    assert_eq!(other.results("results").len(), 6);
}

#[test]
fn a_rerun_does_nothing_and_damage_is_repaired() {
    let place = Place::new(2, "5k");
    stdout(&place.sweep(&[]));
    let times = || -> Vec<_> {
        let mut paths: Vec<_> =
            place.results("results").into_keys().map(|name| place.path("results").join(name)).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::metadata(path).unwrap().modified().unwrap()).collect()
    };
    let (whole, before) = (place.results("results"), times());
    assert!(stdout(&place.sweep(&[])).contains("0 replayed, 2 already there"));
    assert_eq!(times(), before);
    for damage in [|bytes: &mut Vec<u8>| bytes.truncate(1_000), |bytes: &mut Vec<u8>| bytes[50] ^= 4, Vec::clear] {
        let (name, mut bytes) = whole.iter().next().map(|(name, bytes)| (name, bytes.clone())).unwrap();
        damage(&mut bytes);
        std::fs::write(place.path("results").join(name), bytes).unwrap();
        let dry = stdout(&place.sweep(&["--dry-run"]));
        assert!(dry.lines().any(|line| line.contains("  damaged  ")), "{dry}");
        let output = place.sweep(&[]);
        assert!(stdout(&output).contains("1 replayed, 1 already there"), "{}", stdout(&output));
        assert!(stderr(&output).contains(&format!("{name}: the result is damaged")), "{}", stderr(&output));
        assert_eq!(place.results("results"), whole);
    }
}

#[test]
fn a_job_that_fails_costs_only_itself() {
    let place = Place::new(2, "5k");
    std::fs::write(place.path("t2.csv"), "time,op,offset,length\n0,read,4096,what\n").unwrap();
    std::fs::write(place.path("t3.csv"), "").unwrap();
    let text = std::fs::read_to_string(place.path("SWEEP.toml")).unwrap();
    std::fs::write(place.path("SWEEP.toml"), text.replace("['t*.csv']", "['t*.csv', 'none.csv']")).unwrap();
    let output = place.sweep(&[]);
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.contains("2 replayed, 0 already there, 3 failed"), "{table}");
    assert_eq!(output.status.code(), Some(1));
    let errors = stderr(&output);
    let of = |name: &str| errors.lines().find(|line| line.starts_with(&format!("nigh: {name}: "))).unwrap().to_owned();
    assert!(of("t2.csv").contains("what"), "{errors}");
    assert!(of("t3.csv").contains("no requests"), "{errors}");
    assert!(of("none.csv").contains("No such file"), "{errors}");
    let json: Value = serde_json::from_slice(&place.sweep(&["--json"]).stdout).unwrap();
    assert_eq!(json["errors"].as_array().unwrap().len(), 3);
    assert_eq!(place.results("results").len(), 2);
}

#[test]
fn a_killed_sweep_resumes() {
    let place = Place::new(12, "200k");
    let elsewhere = place.path("elsewhere");
    stdout(&place.sweep(&["--results", elsewhere.to_str().unwrap()]));
    let list = place.path("SWEEP.toml");
    let mut killed = Command::new(env!("CARGO_BIN_EXE_nigh"));
    killed.args(["sweep", list.to_str().unwrap(), "--threads", "1"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.spawn().unwrap();
    let start = Instant::now();
    let finished = || std::fs::read_dir(place.path("results")).map_or(0, |entries| entries.flatten().count());
    while finished() < 2 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let resumed = stdout(&place.sweep(&[]));
    let all_or_none = ["traces: 12 replayed", "traces: 0 replayed"].iter().any(|text| resumed.contains(text));
    assert!(!all_or_none && resumed.contains(", 0 failed"), "{resumed}");
    let mut found = place.results("results");
    found.retain(|name, _| name.ends_with(".parquet"));
    assert_eq!(found, files(&elsewhere));
}

#[test]
fn many_traces_are_summed_up() {
    let place = Place::new(25, "500");
    let table = stdout(&place.sweep(&[]));
    assert!(table.contains("25 traces: how often each policy is the best"), "{table}");
    assert!(!table.contains("t7.csv") && table.contains("wins"), "{table}");
}

#[test]
fn slips() {
    let place = Place::new(1, "500");
    let list = place.path("SWEEP.toml");
    let wrong = |text: &str, more: &[&str]| {
        std::fs::write(&list, text).unwrap();
        refused(&[&["sweep", list.to_str().unwrap()], more].concat())
    };
    let rest = "policies = ['lru']\nsizes = ['5%']\n";
    assert!(wrong("polices = ['lru']", &[]).ends_with(". Did you mean 'policies'?\n"));
    assert!(wrong("traces = ['t*.csv']\npolicies = ['lur']\nsizes = ['5%']", &[]).ends_with("Did you mean 'lru'?\n"));
    assert!(wrong(&format!("traces = ['*.zst']\n{rest}"), &[]).contains("no file matches this pattern"));
    assert!(wrong(&format!("traces = ['s3://a/b']\n{rest}"), &[]).contains("python3 -m nigh sweep"));
    let here = format!("traces = ['t*.csv']\n{rest}");
    assert!(wrong(&here, &["--dask", "tcp://a:1", "--threads", "2"]).contains("cannot be used with"));
    let none = wrong(&here, &["--dask", "tcp://a:1", "--python", "no-such-python"]);
    assert!(none.contains("NIGH_PYTHON"), "{none}");
    let lacks = place.path("lacks");
    std::fs::write(&lacks, "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'distributed'\" >&2\nexit 1\n")
        .unwrap();
    std::fs::set_permissions(&lacks, std::fs::Permissions::from_mode(0o755)).unwrap();
    let lacks = wrong(&here, &["--dask", "tcp://a:1", "--python", lacks.to_str().unwrap()]);
    assert!(lacks.contains("No module named 'distributed'") && lacks.contains("pip install"), "{lacks}");
    assert!(!place.path("results").exists());
}

#[test]
fn dask_is_for_python() {
    let place = Place::new(1, "500");
    let python = place.path("python");
    std::fs::write(&python, "#!/bin/sh\n[ \"$1\" = -c ] || echo \"$@\"\n").unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .arg("sweep")
        .arg(place.path("SWEEP.toml"))
        .args(["--dask", "tcp://head:8786", "--csv", "--results", "there"])
        .env("NIGH_PYTHON", &python)
        .output()
        .unwrap();
    let list = place.path("SWEEP.toml").to_str().unwrap().to_owned();
    assert_eq!(stdout(&output), format!("-m nigh sweep {list} --dask tcp://head:8786 --results there --csv\n"));
}
