//! Recordings by ptrace, with the real binary: of static programs, and of processes that already run.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nigh_testkit::tools::installed;
use nigh_trace::Op;

use crate::command::refusal;
use crate::recorded::{RENAMES, compiled, renames_are_followed, requests};

fn record(folder: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder).args(["record", "--force", "-o", "a.parquet"]).args(options);
    if !program.is_empty() {
        command.arg("--").args(program);
    }
    command.stdin(Stdio::null());
    command
}

/// A folder with the static program and its data; `None` without a compiler.
fn folder(test: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    compiled(test, folder.path(), "static", &["-static"])?;
    std::fs::write(folder.path().join("data"), vec![7; 10 * 4096]).unwrap();
    Some(folder)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn static_programs_are_recorded() {
    let Some(folder) = folder("static_programs_are_recorded") else { return };
    let output = record(folder.path(), &["--ptrace"], &["./static", "data"]).output().unwrap();
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"done\n"[..]), "{said}");
    assert!(
        said.contains("of 2 programs") && said.contains("no calls lost") && said.contains("nigh patterns"),
        "{said}"
    );
    let found = requests(&folder.path().join("a.parquet"), None);
    assert!(found.iter().all(|request| request.op == Op::Read));
    // By pread; by read, and its end; by stdio, in pages, and its end.
    assert_eq!(found.len(), 100 + 11 + 11);
    let offsets = |from: usize, count: usize| -> Vec<u64> {
        found[from..from + count].iter().map(|request| request.offset / 4096).collect()
    };
    assert_eq!(offsets(0, 100), (0..100).map(|at| at % 10).collect::<Vec<_>>());
    assert_eq!(offsets(100, 11), (0..11).collect::<Vec<_>>());
    assert_eq!(offsets(111, 11), (0..11).collect::<Vec<_>>());
    let processes: BTreeSet<u32> = found.iter().map(|request| request.tenant).collect();
    let volumes: BTreeSet<u32> = found.iter().map(|request| request.volume).collect();
    assert_eq!((processes.len(), volumes.len()), (2, 1));
    assert_ne!(found[0].stream, found[100].stream, "different code");
    // As many as another tracer sees.
    if installed("static_programs_are_recorded", "strace") {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-e", "trace=read,pread64", "./static", "data"]).current_dir(folder.path());
        let seen = errors(&strace.output().unwrap());
        assert_eq!(seen.lines().filter(|line| line.contains("/data>")).count(), found.len(), "{seen}");
    }
    let unprivate = record(folder.path(), &["--ptrace", "--private"], &["./static", "data"]).output().unwrap();
    let bytes = std::fs::read(folder.path().join("a.parquet")).unwrap();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert!(!bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{}", errors(&unprivate));
}

#[test]
fn running_processes_are_recorded_and_go_on() {
    let Some(folder) = folder("running_processes_are_recorded_and_go_on") else { return };
    let mut running = Command::new("./static");
    let mut running = running.args(["data", "on"]).current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let process = running.id().to_string();
    for _ in 0..3 {
        let begin = Instant::now();
        let output = record(folder.path(), &["--pid", &process, "--for", "1s"], &[]).output().unwrap();
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{said}");
        let found = requests(&folder.path().join("a.parquet"), None);
        assert!(found.len() > 100, "{said}");
        assert!(found.iter().any(|request| request.tenant.to_string() == process), "{said}");
        assert!(running.try_wait().unwrap().is_none(), "it goes on");
    }
    // Ctrl-C ends a recording without limit.
    let mut endless = record(folder.path(), &["--pid", &process], &[]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(rustix::process::Pid::from_child(&endless), rustix::process::Signal::INT).unwrap();
    assert!(endless.wait().unwrap().success());
    std::fs::write(folder.path().join("OVER"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(5));
}

#[test]
fn files_are_followed_through_renames() {
    let folder = tempfile::tempdir().unwrap();
    renames_are_followed(folder.path(), record(folder.path(), &["--ptrace"], &RENAMES));
}

#[test]
fn signals_and_exit_codes_are_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "x").unwrap();
    let code = |script: &str| record(folder.path(), &["--ptrace"], &["sh", "-c", script]).status().unwrap().code();
    assert_eq!(code("cat data >/dev/null; exit 42"), Some(42));
    assert_eq!(code("cat data >/dev/null; kill -TERM $$"), Some(128 + 15));
    assert_eq!(code("trap 'exit 9' USR1; cat data >/dev/null; kill -USR1 $$; exit 1"), Some(9));
}

/// Threads, forks, a timer's signals, and a thread that is cancelled, by a real-time signal.
#[test]
fn threads_forks_signals_and_cancellation_work_as_before() {
    let test = "threads_forks_signals_and_cancellation_work_as_before";
    let folder = tempfile::tempdir().unwrap();
    if compiled(test, folder.path(), "threads", &[]).is_none() {
        return;
    }
    std::fs::write(folder.path().join("data"), [7; 4096]).unwrap();
    let output = record(folder.path(), &["--ptrace"], &["./threads", "data"]).output().unwrap();
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"1 1\n"[..]), "{said}");
    let reads = requests(&folder.path().join("a.parquet"), None).iter().filter(|request| request.length == 512).count();
    assert_eq!(reads, (8 + 4) * 2000, "{said}");
}

/// A program that is stopped stays so, with the recorder and without.
#[test]
fn stopped_programs_stay_stopped() {
    let Some(folder) = folder("stopped_programs_stay_stopped") else { return };
    let mut running = Command::new("./static");
    let mut running = running.args(["data", "on"]).current_dir(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let process = running.id().to_string();
    let signal = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&running), signal).unwrap();
    let state = || {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        text.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    let mut recording = record(folder.path(), &["--pid", &process], &[]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(['t', 'T'].contains(&state()), "{}", state());
    rustix::process::kill_process(rustix::process::Pid::from_child(&recording), rustix::process::Signal::INT).unwrap();
    assert!(recording.wait().unwrap().success());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(state(), 'T', "without the recorder");
    signal(rustix::process::Signal::CONT);
    std::fs::write(folder.path().join("OVER"), "").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(5));
}

#[test]
fn what_cannot_be_traced_gets_one_line() {
    let folder = tempfile::tempdir().unwrap();
    // No process has this number.
    let none = refusal(&record(folder.path(), &["--pid", "1073741824"], &[]).output().unwrap());
    assert!(none.contains("process 1073741824") && none.contains("No such process"), "{none}");
    let own = std::process::id().to_string();
    let debugged = Command::new("strace").args(["-o", "/dev/null", "sleep", "5"]).spawn();
    if let Ok(mut tracer) = debugged {
        let children = format!("/proc/{0}/task/{0}/children", tracer.id());
        let traced = loop {
            let found = std::fs::read_to_string(&children).unwrap_or_default();
            let is_ready = |process: &&str| {
                std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name == "sleep\n")
            };
            if let Some(process) = found.split_whitespace().find(is_ready) {
                break process.to_owned();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let refused = refusal(&record(folder.path(), &["--pid", &traced], &[]).output().unwrap());
        assert!(refused.contains("without a debugger"), "{refused}");
        tracer.kill().unwrap();
        tracer.wait().unwrap();
    }
    let both = record(folder.path(), &["--pid", &own], &["true"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "no recording");
}
