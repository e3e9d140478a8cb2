//! Advised runs, with the real binary: what devices read with advice and without, and that nothing else changes.
//!
//! Tests with a memory cgroup need root and cgroup v1, and are skipped elsewhere; `cargo xtask advise-guest` has two of them on v2.

use crate::command;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nigh_advise::profile::Profile;
use nigh_testkit::tools::{installed, run};

use crate::command::refusal;
use crate::recorded::compiled;

const MIB: u64 = 1 << 20;

/// A folder on a disk: in memory, nothing is read from devices.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Writes a file that is not cached afterwards.
fn file(path: &Path, bytes: u64) {
    let piece: Vec<u8> = (0..bytes.min(MIB)).map(|at| b'a' + (at * 7 % 23) as u8 - (at % 80 / 79) as u8 * 87).collect();
    let mut file = fs::File::create(path).unwrap();
    let mut left = bytes;
    while left > 0 {
        let length = left.min(MIB);
        std::io::Write::write_all(&mut file, &piece[..length as usize]).unwrap();
        left -= length;
    }
    uncached(&file);
}

fn uncached(file: &fs::File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// The program that reads a file again and again; `None` without a compiler.
fn looper(test: &str, folder: &Path) -> Option<PathBuf> {
    compiled(test, folder, "loop", &[])
}

fn advise(folder: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder).args(["advise", "--profile", "program.aoio"]).args(options).arg("--").args(program);
    command.stdin(Stdio::null());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One test at a time has a cgroup: readers that wait for the same disk are given other read-ahead.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A memory cgroup, in which programs run and nigh does not.
struct Group(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

impl Group {
    fn new(test: &str, limit: u64) -> Option<Group> {
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory/nigh-{test}-{}", std::process::id()));
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = fs::create_dir(&path) {
            println!("skipped: {test}: no memory cgroup (v1): {error}");
            return None;
        }
        let group = Group(path, alone);
        fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()).unwrap();
        Some(group)
    }

    /// The arguments of a shell that enters the cgroup, runs `script` there, and writes what devices read for it into the
    /// file `reads`.
    fn script(&self, script: &str) -> [String; 3] {
        let enter = format!("echo $$ > {}/cgroup.procs", self.0.display());
        let text = format!("{enter}; {script}; code=$?; grep ^read_bytes /proc/$$/io > reads; exit $code");
        ["/bin/sh".into(), "-c".into(), text]
    }

    /// Runs `script` with advice. Returns what devices read, and nigh's output.
    fn advised(&self, folder: &Path, script: &str) -> (u64, String) {
        let script = self.script(script);
        let output = advise(folder, &["--report"], &script.each_ref().map(String::as_str)).output().unwrap();
        (reads(folder), errors(&output))
    }

    /// As `advised`, without nigh.
    fn plain(&self, folder: &Path, script: &str) -> u64 {
        let [shell, option, text] = self.script(script);
        let output = Command::new(shell).args([option, text]).current_dir(folder).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", errors(&output));
        reads(folder)
    }
}

fn reads(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("reads")).unwrap();
    text.trim().strip_prefix("read_bytes: ").unwrap().parse().unwrap()
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("memory.force_empty"), "1");
        let _ = fs::remove_dir(&self.0);
    }
}

/// A loop over 84 MiB in 64 MiB: the kernel evicts each page before it is read again, in most runs on a busy machine.
#[test]
fn a_loop_that_does_not_fit_reads_less() {
    let test = "a_loop_that_does_not_fit_reads_less";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    let Some(group) = Group::new("loop", 64 * MIB) else { return };
    let data = folder.path().join("data");
    file(&data, 84 * MIB);
    let script = format!("{} data 4", program.display());
    let plain: Vec<u64> = (0..5)
        .map(|_| {
            uncached(&fs::File::open(&data).unwrap());
            group.plain(folder.path(), &script)
        })
        .collect();
    assert!(plain.iter().any(|&read| read >= 330 * MIB), "{plain:?}");
    let (first, said) = group.advised(folder.path(), &script);
    assert!(first > 216 * MIB && said.contains("is new: this run is recorded") && said.contains("1 loop"), "{said}");
    for round in 0..5 {
        uncached(&fs::File::open(&data).unwrap());
        let (advised, said) = group.advised(folder.path(), &script);
        println!("round {round}: {plain:?} bytes without advice, {advised} with");
        assert!(advised <= 216 * MIB, "{advised}: {said}");
        assert!(said.contains("MiB without advice") && said.contains("loop+0x"), "{said}");
    }
}

/// `grep -r` over 49 MB in 44 MB.
#[test]
fn a_tree_that_does_not_fit_is_read_in_part() {
    let test = "a_tree_that_does_not_fit_is_read_in_part";
    if !installed(test, "grep") {
        return;
    }
    let folder = folder();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut total = 0;
    for number in 0_u64.. {
        let bytes = 2_000 + number * 7919 % 78_000;
        file(&tree.join(number.to_string()), bytes);
        total += bytes;
        if total > 49_000_000 {
            break;
        }
    }
    let Some(group) = Group::new("tree", 44_000_000) else { return };
    let script = "grep -rc zyx tree > found";
    let plain: Vec<u64> = (0..3).map(|_| group.plain(folder.path(), script)).collect();
    let found = fs::read_to_string(folder.path().join("found")).unwrap();
    let advised: Vec<u64> = (0..5).map(|_| group.advised(folder.path(), script).0).collect();
    println!("{plain:?} bytes without advice, {advised:?} with, the first of which is recorded");
    assert!(plain[1..].iter().any(|&read| read >= 45_000_000), "{plain:?}");
    assert!(advised[2..].iter().all(|&bytes| bytes <= 20_000_000), "{advised:?}");
    assert_eq!(fs::read_to_string(folder.path().join("found")).unwrap(), found, "the output of grep");
}

/// Scans of a database that fits: the kernel does as well as can be, so the program is left alone after some runs.
#[test]
fn a_program_that_gains_nothing_is_left_alone() {
    let test = "a_program_that_gains_nothing_is_left_alone";
    if !installed(test, "sqlite3") {
        return;
    }
    let folder = folder();
    let database = folder.path().join("s.db");
    let make = "create table t(a integer primary key, b text, c int); with recursive n(i) as (select 1 union all select i + 1 from n \
                where i < 400000) insert into t select i, hex(i * 7919 % 1000003) || hex(zeroblob(32)), i * 31 % 10007 from n;";
    run("sqlite3", &[database.to_str().unwrap(), make]);
    let bytes = fs::metadata(&database).unwrap().len();
    let Some(group) = Group::new("sqlite", bytes + 12 * MIB) else { return };
    let query = "pragma cache_size = 100; select count(*) from t where b like '%31%'; select sum(c) from t where b > '3'; select \
                 count(*) from t where b like '%99%';";
    let script = format!("sqlite3 s.db \"{query}\" > found");
    let cold = || uncached(&fs::File::open(&database).unwrap());
    cold();
    let plain = group.plain(folder.path(), &script);
    assert!(plain >= bytes && plain < bytes + bytes / 10, "{plain} bytes for {bytes}");
    let found = fs::read_to_string(folder.path().join("found")).unwrap();
    let mut said = Vec::new();
    for _ in 0..6 {
        cold();
        let (read, text) = group.advised(folder.path(), &script);
        println!("{read} bytes, {plain} without nigh: {text}");
        said.push((read, text));
    }
    let (last, text) = &said[5];
    assert!(text.contains("runs without advice: "), "{text}");
    assert!(last.abs_diff(plain) <= plain / 100 * 3, "{last} bytes, {plain} without nigh");
    assert_eq!(fs::read_to_string(folder.path().join("found")).unwrap(), found, "the output of sqlite3");
}

/// A budget that is given, instead of one that a cgroup leaves.
#[test]
fn nothing_changes_for_the_program() {
    let test = "nothing_changes_for_the_program";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    file(&folder.path().join("data"), 9 * MIB);
    let program = program.to_str().unwrap();
    let plain = Command::new(program).args(["data", "5"]).current_dir(folder.path()).output().unwrap();
    for options in [&[][..], &["--report"], &["--learn"], &["--keep", "1M"], &["--keep", "1M", "--learn", "--report"]] {
        uncached(&fs::File::open(folder.path().join("data")).unwrap());
        let output = advise(folder.path(), options, &[program, "data", "5"]).output().unwrap();
        let said = errors(&output);
        assert_eq!((output.status.code(), &output.stdout), (Some(7), &plain.stdout), "{options:?}: {said}");
    }
    let known = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["advise", "--profile", "program.aoio", "--report"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let known = command::stdout(&known);
    assert!(known.contains("loop  ") && known.contains("runs in a row that gained nothing: "), "{known}");
    let entries: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries.len(), 3, "no recording is left: {entries:?}");
}

/// Code that the profile does not have yet, because an earlier run did not come there.
#[test]
fn runs_with_learn_find_code_that_is_new() {
    let test = "runs_with_learn_find_code_that_is_new";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    file(&folder.path().join("data"), 9 * MIB);
    let program = [program.to_str().unwrap(), "data", "5"];
    let profile = folder.path().join("program.aoio");
    let first = advise(folder.path(), &[], &program).output().unwrap();
    let whole = fs::read_to_string(&profile).unwrap();
    assert!(whole.contains("class = \"loop\""), "{whole}: {}", errors(&first));
    fs::write(&profile, whole.split("[[code]]").next().unwrap()).unwrap();
    let output = advise(folder.path(), &[], &program).output().unwrap();
    assert!(errors(&output).contains("runs without advice: the profile has no code that reads"), "{}", errors(&output));
    let output = advise(folder.path(), &["--learn"], &program).output().unwrap();
    let learned = fs::read_to_string(&profile).unwrap();
    let code = |text: &str| text.lines().find(|line| line.starts_with("code = ")).map(str::to_owned);
    assert_eq!(code(&learned), code(&whole), "{}", errors(&output));
}

/// Only advice that was tried can gain nothing.
#[test]
fn advise_13_why_a_program_gets_no_advice() {
    let folder = folder();
    let why = |more: &str| {
        let head = "program = '/bin/cat'\nframes = 5\nread_bytes = 0\n".to_owned();
        fs::write(folder.path().join("program.aoio"), head + more).unwrap();
        let output = advise(folder.path(), &[], &["/bin/cat", "/dev/null"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        errors(&output)
    };
    let code = |number: u32, more: &str| format!("[[code]]\ncode = '{number:016x}'\nclass = 'seq'\n{more}\n");
    let cached = "asked_bytes = 5000\nread_bytes = 0";
    assert!(why("").contains("the profile has no code that reads enough"), "{}", why(""));
    let said = why(&code(1, cached));
    assert!(said.contains("all that its code read was cached") && !said.contains("gains by it"), "{said}");
    assert!(why(&code(1, "")).contains("it is not known what devices read"));
    let tried = format!("{}{}", code(1, cached), code(2, "asked_bytes = 5000\nread_bytes = 50\nadvised = false"));
    assert!(why(&tried).contains("none of its code gains by it"), "{}", why(&tried));
    assert!(why("runs_without_gain = 3\n").contains("three runs gained nothing"));
}

/// A recording of cached files announces no advice that will not come, also if devices read something else for the program.
#[test]
fn advise_13_nothing_is_announced_that_does_not_come() {
    let test = "advise_13_nothing_is_announced_that_does_not_come";
    let folder = folder();
    file(&folder.path().join("data"), MIB);
    file(&folder.path().join("other"), MIB);
    let profile = || Profile::parse(&fs::read_to_string(folder.path().join("program.aoio")).unwrap()).unwrap();
    // One block is too little for a class.
    let direct = "dd if=other of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null; cat data";
    for script in ["cat data", direct] {
        fs::read(folder.path().join("data")).unwrap();
        let run = || errors(&advise(folder.path(), &[], &["/bin/sh", "-c", script]).output().unwrap());
        let first = run();
        let known = profile();
        if known.codes.iter().any(|code| code.read_bytes != Some(0)) {
            println!("skipped: {test}: {script}: devices read something of the file for the first run: {first}");
        } else {
            assert!(script != direct || known.read_bytes > Some(0), "{known:?}");
            let second = run();
            assert!(
                first.contains("the next runs get no advice") && !first.contains("next run gets advice"),
                "{first}"
            );
            assert!(second.contains("runs without advice"), "{second}");
        }
        fs::remove_file(folder.path().join("program.aoio")).unwrap();
    }
}

/// A warm page cache is none of the doing of advice: neither a gain nor a loss.
#[test]
fn advise_13_a_warm_cache_is_no_gain() {
    let test = "advise_13_a_warm_cache_is_no_gain";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    file(&folder.path().join("data"), 9 * MIB);
    let program = [program.to_str().unwrap(), "data", "5"];
    let first = errors(&advise(folder.path(), &[], &program).output().unwrap());
    let profile = || fs::read_to_string(folder.path().join("program.aoio")).unwrap();
    let before = profile();
    if before.contains("\nread_bytes = 0\n") {
        println!("skipped: {test}: devices read nothing for the first run: {first}");
        return;
    }
    // No memory is short: nothing is dropped, and the file is cached since the first run.
    let second = errors(&advise(folder.path(), &["--keep", "1G"], &program).output().unwrap());
    assert!(second.contains("advice dropped and fetched nothing") && !second.contains("without advice"), "{second}");
    assert_eq!(profile(), before, "nothing was learned");
}

/// Leftovers of a killed run beside the profile are removed by the next one that records.
#[test]
fn recordings_of_killed_runs_are_removed() {
    let folder = folder();
    // No process has this number.
    let [left, own] =
        [1 << 30, std::process::id()].map(|process| folder.path().join(format!(".nigh-advise-{process}-a")));
    [&left, &own].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    fs::write(left.join("run.parquet.part"), "x").unwrap();
    fs::write(folder.path().join("data"), "x").unwrap();
    assert!(advise(folder.path(), &[], &["cat", "data"]).output().unwrap().status.success());
    assert!(!left.exists() && own.exists());
}

/// The profile that `nigh patterns` writes is that of a first run.
#[test]
fn a_recording_becomes_a_profile() {
    let test = "a_recording_becomes_a_profile";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    file(&folder.path().join("data"), 9 * MIB);
    let program = program.to_str().unwrap();
    advise(folder.path(), &[], &[program, "data", "5"]).output().unwrap();
    let nigh = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_nigh")).args(arguments).current_dir(folder.path()).output().unwrap()
    };
    for option in [&[][..], &["--private"]] {
        let record = [&["record", "--force", "-o", "a.parquet"], option, &["--", program, "data", "5"]].concat();
        assert_eq!(nigh(&record).status.code(), Some(7));
        let made = nigh(&["patterns", "a.parquet", "--profile", "other.aoio", "--force"]);
        if option.is_empty() {
            assert!(command::stdout(&made).contains("nigh advise --profile other.aoio -- "), "{made:?}");
        } else {
            assert!(errors(&made).contains("record it without --private"), "{made:?}");
        }
    }
    let own = fs::read_to_string(folder.path().join("program.aoio")).unwrap();
    let other = fs::read_to_string(folder.path().join("other.aoio")).unwrap();
    let stable = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("read_bytes")).map(str::to_owned).collect()
    };
    assert_eq!(stable(&own), stable(&other));
    assert!(errors(&nigh(&["patterns", "a.parquet", "--profile", "other.aoio"])).contains("--force"));
}

#[test]
fn profiles_that_do_not_fit_are_refused() {
    let folder = folder();
    let profile = folder.path().join("program.aoio");
    let cat = |folder: &Path| advise(folder, &[], &["cat", "/dev/null"]).output().unwrap();
    fs::write(&profile, "program = 1\n").unwrap();
    let said = refusal(&cat(folder.path()));
    assert!(said.contains("program.aoio: not a profile") && said.contains("line 1"), "{said}");
    fs::write(&profile, "program = '/usr/bin/other'\nframes = 5\n").unwrap();
    let said = refusal(&cat(folder.path()));
    assert!(said.contains("is the profile of /usr/bin/other, not of ") && said.contains("--profile"), "{said}");
    let said = refusal(&advise(folder.path(), &["--keep", "much"], &["cat"]).output().unwrap());
    assert!(said.contains("--keep much: expected bytes"), "{said}");
    let said = refusal(&advise(folder.path(), &[], &["no-such-program"]).output().unwrap());
    assert!(said.contains("no-such-program"), "{said}");
    fs::remove_file(&profile).unwrap();
    let nigh = Command::new(env!("CARGO_BIN_EXE_nigh"))
        .args(["advise", "--profile", "program.aoio", "--report"])
        .current_dir(folder.path())
        .output();
    assert!(refusal(&nigh.unwrap()).contains("no such profile"));
}

/// Other builds of a program have other code at the same addresses.
#[test]
fn code_of_another_build_is_dropped() {
    let test = "code_of_another_build_is_dropped";
    let folder = folder();
    let Some(program) = looper(test, folder.path()) else { return };
    file(&folder.path().join("data"), 9 * MIB);
    let program = [program.to_str().unwrap(), "data", "5"];
    advise(folder.path(), &[], &program).output().unwrap();
    let profile = folder.path().join("program.aoio");
    let known = fs::read_to_string(&profile).unwrap();
    let own = known.lines().find(|line| line.starts_with("build_id")).unwrap();
    fs::write(&profile, known.replace(own, "build_id = \"00\"")).unwrap();
    let said = errors(&advise(folder.path(), &[], &program).output().unwrap());
    assert!(said.contains("in programs or libraries that were built anew"), "{said}");
    assert!(said.contains("has no code of today's builds: this run is recorded"), "{said}");
    let code = |text: &str| text.lines().find(|line| line.starts_with("code = ")).map(str::to_owned);
    assert_eq!(code(&fs::read_to_string(&profile).unwrap()), code(&known), "it is known again");
}

/// Signals reach the program, as a terminal's and a supervisor's do.
#[test]
fn a_signal_ends_the_program() {
    let folder = folder();
    let mut child =
        advise(folder.path(), &[], &["sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done"])
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
