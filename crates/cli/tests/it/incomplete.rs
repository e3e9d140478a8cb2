//! Recordings that are complete, or report what they lack; and programs that run as without nigh.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nigh_testkit::tools::{installed, run};
use nigh_trace::format::parquet::{Call, Context, Did, Gaps, Recorder};
use nigh_trace::write::Destination;
use nigh_trace::{Op, Request, Taken};

use crate::recorded::{compiled, requests};

fn nigh(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn record(folder: &Path, flags: &[&str], program: &[&str]) -> Output {
    nigh(folder, &[&["record", "--force", "-o", "a.parquet"], flags, &["--"], program].concat())
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder with a file of 1 MiB, and a program that reads it.
fn folder_with(test: &str, program: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).unwrap();
    let program = compiled(test, folder.path(), program, &[])?;
    Some((folder, program))
}

fn reads(folder: &Path, length: u32) -> Vec<Request> {
    let found = requests(&folder.join("a.parquet"), None);
    found.into_iter().filter(|request| request.op == Op::Read && request.length == length).collect()
}

#[test]
fn incomplete_3_programs_at_full_speed_lose_nothing() {
    let test = "incomplete_3_programs_at_full_speed_lose_nothing";
    let Some((folder, program)) = folder_with(test, "fast") else { return };
    let program = program.to_str().unwrap();
    for (threads, calls) in [("1", "400000"), ("4", "150000"), ("100", "2000")] {
        let output = record(folder.path(), &[], &[program, "data", threads, calls]);
        let said = errors(&output);
        assert!(output.status.success() && said.contains("no calls lost"), "{threads} threads: {said}");
        let all: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        assert_eq!(reads(folder.path(), 1).len(), all, "{threads} threads: {said}");
    }
}

/// The count is in the file, and what later commands derive from it is less certain.
#[test]
fn incomplete_3_lost_calls_are_noted_by_every_command() {
    let test = "incomplete_3_lost_calls_are_noted_by_every_command";
    let Some((folder, program)) = folder_with(test, "fast") else { return };
    let output = record(folder.path(), &["--lossy"], &[program.to_str().unwrap(), "data", "4", "300000"]);
    let said = errors(&output);
    assert!(output.status.success() && said.contains(" lost") && !said.contains("no calls lost"), "{said}");
    let lost: u64 = {
        let (before, _) = said.split_once(" calls lost").unwrap();
        before.rsplit([' ', ';']).next().unwrap().replace(',', "").parse().unwrap()
    };
    let note = format!("the recorder lost {lost} events");
    let converted = ["trace", "convert", "a.parquet", "b.parquet", "--force"];
    let commands: [&[&str]; 6] = [
        &["trace", "info", "a.parquet"],
        &["sim", "a.parquet", "--policy", "lru", "--size", "2b"],
        &["patterns", "a.parquet"],
        &["plan", "a.parquet"],
        &converted,
        &["plan", "b.parquet"],
    ];
    for command in commands {
        let output = nigh(folder.path(), command);
        assert!(errors(&output).contains(&note), "{command:?}: {}", errors(&output));
    }
}

/// A recording of loops over many blocks, with these gaps.
fn made(path: &Path, gaps: Gaps) {
    let mut recorder = Recorder::create(&Destination::new(path, true, &[]).unwrap(), Taken::Above, 4096).unwrap();
    let (program, volume) = (recorder.program("made"), recorder.file("/made"));
    let context = recorder.context(Context::default());
    for at in 0..40_000_u64 {
        let (offset, length) = (at % 100 * 4096, 4096);
        let request = Request { time_ns: at * 1000, offset, length, volume, stream: 1, ..Request::default() };
        let did = Did::Request(Op::Read);
        let (asked, result) = (length, length.into());
        recorder.push(Call { request, did, program, context, tid: 1, asked, result, device_bytes: 0 }).unwrap();
    }
    recorder.set_gaps(gaps);
    recorder.finish().unwrap();
}

#[test]
fn incomplete_3_certainty_falls_with_lost_calls() {
    let folder = tempfile::tempdir().unwrap();
    let certainty = |gaps: Gaps| {
        made(&folder.path().join("made.parquet"), gaps);
        let output = nigh(
            folder.path(),
            &["plan", "made.parquet", "--policy", "lru,lirs", "--have", "80b", "--add", "10b", "--json"],
        );
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, rest) = said.split_once("\"certainty\":").unwrap_or_else(|| panic!("{said}{}", errors(&output)));
        rest.trim_start().split('"').nth(1).unwrap().to_owned()
    };
    assert_eq!(certainty(Gaps::default()), "high");
    assert_eq!(certainty(Gaps { lost: Some(100), ..Gaps::default() }), "medium");
    assert_eq!(certainty(Gaps { lost: Some(20_000), ..Gaps::default() }), "low");
    assert_eq!(certainty(Gaps { lost: None, ..Gaps::default() }), "low", "an unknown number");
    let unseen = vec!["/bin/other (statically linked)".to_owned()];
    assert_eq!(certainty(Gaps { unseen, ..Gaps::default() }), "medium");
}

/// A program that cannot be recorded is named in the file.
#[test]
fn incomplete_4_programs_that_are_not_recorded_are_named_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), &[], &["sh", "-c", "cat /etc/passwd; env -i /bin/cat /etc/passwd; true"]);
    assert!(errors(&output).contains("not recorded: "), "{}", errors(&output));
    let info = nigh(folder.path(), &["trace", "info", "a.parquet"]);
    assert!(errors(&info).contains("/cat (started with another environment)"), "{}", errors(&info));
}

/// A program that could not be recorded may have read files.
#[test]
fn incomplete_4_nothing_recorded_is_not_nothing_read() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("true", "read and wrote no files"),
        ("ulimit -f 1; exec cat /etc/passwd", "no call of the programs that could be recorded"),
    ];
    for (script, why) in cases {
        let output = record(folder.path(), &[], &["sh", "-c", script]);
        let said = errors(&output);
        assert!(output.status.success() && said.contains(why), "{script}: {said}");
        assert!(said.contains("no recording was written") && !folder.path().join("a.parquet").exists(), "{said}");
    }
}

#[test]
fn incomplete_4_submitted_requests_are_recorded() {
    let test = "incomplete_4_submitted_requests_are_recorded";
    let Some((folder, program)) = folder_with(test, "submits") else { return };
    let program = program.to_str().unwrap();
    for flags in [&[][..], &["--ptrace"]] {
        let output = record(folder.path(), flags, &[program, "data", "aio"]);
        let said = errors(&output);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"40 40\n"[..]), "{flags:?}: {said}");
        assert!(said.contains("no calls lost"), "{flags:?}: {said}");
        let found: Vec<u64> = reads(folder.path(), 2048).iter().map(|read| read.offset).collect();
        assert_eq!(found, (0..40).map(|at| at * 2048).collect::<Vec<_>>(), "{flags:?}: {said}");
    }
}

#[test]
fn incomplete_4_requests_of_fio_are_counted_as_fio_counts_them() {
    let test = "incomplete_4_requests_of_fio_are_counted_as_fio_counts_them";
    if !installed(test, "fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).unwrap();
    let with_library: &[&str] = &[];
    let engines = [
        (with_library, "sync", ""),
        (with_library, "psync", ""),
        (with_library, "pvsync", ""),
        (with_library, "pvsync2", ""),
        (with_library, "libaio", ""),
        (&["--ptrace"], "io_uring", ""),
        (&["--ptrace"], "io_uring", "--nonvectored=0"),
        (&["--ptrace"], "io_uring", "--registerfiles --fixedbufs"),
    ];
    for (flags, engine, options) in engines {
        let engine_flag = format!("--ioengine={engine}");
        let mut job = vec!["fio", "--name=job", "--filename=data", "--rw=randread", "--bs=4k", "--size=1M", "--thread"];
        job.extend([&*engine_flag, "--iodepth=8", "--minimal", "--invalidate=0"]);
        job.extend(options.split_whitespace());
        let output = record(folder.path(), flags, &job);
        let said = errors(&output);
        if engine == "io_uring" && !output.status.success() {
            println!("skipped: {test} of {engine} {options}: fio cannot use it here: {said}");
            continue;
        }
        assert!(output.status.success() && said.contains("no calls lost"), "{engine} {options}: {said}");
        assert_eq!(reads(folder.path(), 4096).len(), 256, "{engine} {options}: {said}");
    }
}

#[test]
fn incomplete_4_requests_by_io_uring_are_recorded() {
    let test = "incomplete_4_requests_by_io_uring_are_recorded";
    let Some((folder, program)) = folder_with(test, "submits") else { return };
    let output = record(folder.path(), &["--ptrace"], &[program.to_str().unwrap(), "data", "ring"]);
    let said = errors(&output);
    if output.stdout == b"no io_uring\n" {
        println!("skipped: {test}: this machine has no io_uring");
        return;
    }
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"6 8192\n"[..]), "{said}");
    let found: Vec<u64> = reads(folder.path(), 2048).iter().map(|read| read.offset / 2048).collect();
    assert_eq!(found, [7, 2, 1, 0, 9], "in the order of the ring: {said}");
    assert!(said.contains("no calls lost"), "{said}");
}

#[test]
fn incomplete_4_users_of_io_uring_are_named() {
    let test = "incomplete_4_users_of_io_uring_are_named";
    let Some((folder, program)) = folder_with(test, "submits") else { return };
    let cases = [
        (&[][..], "ring", "submits (in part: its requests by io_uring are not seen; with --ptrace they are)"),
        (&["--ptrace"], "thread", "submits (in part: the kernel takes its requests by io_uring"),
    ];
    for (flags, mode, named) in cases {
        // The shell is another program, which becomes this one.
        let shell = format!("head -c 1 data >/dev/null; exec {} data {mode}", program.display());
        let output = record(folder.path(), flags, &["sh", "-c", &shell]);
        let said = errors(&output);
        if output.stdout == b"no io_uring\n" {
            println!("skipped: {test}: this machine has no io_uring");
            return;
        }
        assert!(output.status.success() && said.contains(named), "{flags:?}: {said}");
        assert_eq!(said.matches("not recorded: ").count(), 1, "{flags:?}: {said}");
        assert!(!said.contains("no calls lost"), "{flags:?}: {said}");
        let info = errors(&nigh(folder.path(), &["trace", "info", "a.parquet"]));
        assert!(info.contains(&format!("not recorded: {named}")), "{flags:?}: {info}");
    }
}

/// The script for bpftrace sees the requests of all programs, of other users, too, and those that a thread of the kernel takes.
#[test]
fn incomplete_4_bpftrace_records_the_whole_system() {
    let test = "incomplete_4_bpftrace_records_the_whole_system";
    if !["bpftrace", "fio"].iter().all(|tool| installed(test, tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("data"), vec![7; 1 << 20]).unwrap();
    let file = |name: &str| Stdio::from(std::fs::File::create(path(name)).unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system.bt");
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-B", "line"]).arg(script).stdin(Stdio::null()).stdout(file("system.txt")).stderr(file("errors"));
    let mut bpftrace = bpftrace.spawn().unwrap();
    let text = || std::fs::read_to_string(path("system.txt")).unwrap();
    // It is ready when it sees this program.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !text().contains(" 77 ") {
        std::fs::read(path("data")).unwrap();
        Command::new("dd").arg(format!("if={}", path("data").display())).args(["bs=77", "count=1"]).output().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let has_ended = bpftrace.try_wait().unwrap().is_some();
        if has_ended || std::time::Instant::now() > deadline {
            let _ = bpftrace.kill();
            bpftrace.wait().unwrap();
            println!(
                "skipped: {test}: bpftrace cannot do this here: {}",
                std::fs::read_to_string(path("errors")).unwrap()
            );
            return;
        }
    }
    let jobs = [
        ("psync", "", "randread", 3072),
        ("libaio", "", "randread", 5120),
        ("io_uring", "", "randread", 7168),
        ("io_uring", "--sqthread_poll --registerfiles", "randread", 9216),
        ("pvsync", "", "randwrite", 11264),
    ];
    let mut expected = Vec::new();
    for (engine, options, kind, bytes) in jobs {
        let mut fio = Command::new("fio");
        fio.current_dir(folder.path()).args(["--name=job", "--filename=data", "--size=1M", "--thread", "--iodepth=8"]);
        fio.arg(format!("--ioengine={engine}")).arg(format!("--bs={bytes}")).arg(format!("--rw={kind}"));
        let output = fio.args(options.split_whitespace()).args(["--minimal", "--invalidate=0"]).output().unwrap();
        if output.status.success() {
            expected.push((bytes, (1 << 20) / bytes, kind == "randwrite"));
        } else {
            println!("skipped: {test} of {engine} {options}: {}", errors(&output));
        }
    }
    if let Some(change) = as_nobody(test) {
        let [program, change @ ..] = change;
        let data = format!("if={}", path("data").display());
        let output = Command::new(program).args(change).args(["dd", &data, "bs=13312", "count=50"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        expected.push((13312, 50, false));
    }
    std::thread::sleep(std::time::Duration::from_secs(1));
    run("kill", &["-INT", &bpftrace.id().to_string()]);
    bpftrace.wait().unwrap();
    let mut opened = nigh_trace::open(&path("system.txt"), &Default::default()).unwrap();
    let (mut found, mut batch) = (Vec::new(), Vec::new());
    while opened.requests.next_batch(&mut batch).is_ok() && !batch.is_empty() {
        found.append(&mut batch);
    }
    let notes: String = opened.requests.notes().iter().map(ToString::to_string).collect();
    let file = found.iter().find(|one| one.length == 77).unwrap().volume;
    for (bytes, count, is_write) in expected {
        // Other programs may read such pieces of other files.
        let of_size =
            found.iter().filter(|one| (one.volume, one.length) == (file, bytes) && (one.op == Op::Write) == is_write);
        let places: std::collections::BTreeSet<u64> = of_size.map(|one| one.offset).collect();
        // Losses of bpftrace are noted.
        let is_whole = places.len() == count as usize && places.iter().all(|at| at.is_multiple_of(bytes.into()));
        assert!(is_whole || notes.contains("lost"), "{bytes}: {} of {count}; {notes}", places.len());
    }
}

/// The program that follows, as another user; `None` without the right to change the user.
fn as_nobody(test: &str) -> Option<[&'static str; 4]> {
    let change = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    if Command::new(change[0]).args(&change[1..]).arg("true").output().is_ok_and(|output| output.status.success()) {
        return Some(change);
    }
    println!("skipped: {test}: it needs setpriv and the right to change the user");
    None
}

#[test]
fn incomplete_5_programs_that_change_their_user_are_recorded() {
    let test = "incomplete_5_programs_that_change_their_user_are_recorded";
    let Some(change) = as_nobody(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let text = "for everybody\n".repeat(77);
    std::fs::write(folder.path().join("text"), &text).unwrap();
    let cat = [&change[..], &["cat", "text"]].concat();
    let output = record(folder.path(), &[], &cat);
    let said = errors(&output);
    assert!(said.contains("no calls lost") && !said.contains("not recorded"), "{said}");
    assert!(!said.contains("ld.so"), "the loader writes nothing: {said}");
    assert_eq!(output.stdout, text.as_bytes());
    assert_eq!(reads(folder.path(), text.len() as u32).len(), 1, "{said}");
    // First recorded, then advised.
    for _ in 0..2 {
        let output = nigh(folder.path(), &[&["advise", "--profile", "a.aoio", "--"], &cat[..]].concat());
        assert!(output.status.success() && !errors(&output).contains("ld.so"), "{}", errors(&output));
        assert_eq!(output.stdout, text.as_bytes());
    }
}

/// The library is for all users, and nothing else is.
#[test]
fn incomplete_5_other_users_change_and_learn_nothing() {
    let test = "incomplete_5_other_users_change_and_learn_nothing";
    let Some(change) = as_nobody(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    // A program that runs as root, and reads its recording as another user.
    let library = "library=${LD_PRELOAD##*:}; own=$(dirname $library);";
    let script = format!(
        "{library} cat data >/dev/null; ring=$(ls -d $NIGH_RECORD/$$-* $own/*/$$-* 2>/dev/null | head -n 1); \
         env -u LD_PRELOAD {} sh -c \"cat $library >/dev/null && echo loads; \
         ls $own && echo lists; ls $NIGH_RECORD && echo lists; \
         cat $ring && echo reads; rm -f $library; mv $library $library.old && echo moves; \
         : >>$library && echo writes; touch $own/new && echo creates; rm $ring && echo removes; true\" 2>/dev/null; exit 3",
        change.join(" ")
    );
    std::fs::write(folder.path().join("data"), "data").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let output = record(folder.path(), &[], &["sh", "-c", &script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "loads\n", "{}", errors(&output));
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
}

#[test]
fn incomplete_6_limits_on_system_calls_are_kept() {
    let test = "incomplete_6_limits_on_system_calls_are_kept";
    let Some((folder, program)) = folder_with(test, "limited") else { return };
    for (limit, recorded) in [("strict", None), ("few", None), ("refused", None), ("most", Some(6))] {
        let output = record(folder.path(), &[], &[program.to_str().unwrap(), "data", limit]);
        let said = errors(&output);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"done\n"[..]), "{limit}: {said}");
        let found = reads(folder.path(), 100);
        match recorded {
            Some(count) => assert_eq!(found.len(), count, "{limit}: {said}"),
            // Calls at a position that is not known are left out, and counted.
            None => assert!(said.contains("calls lost") && said.contains("seccomp"), "{limit}: {said}"),
        }
        assert_eq!(found[0].offset, 0, "{limit}");
    }
}

#[test]
fn incomplete_6_small_signal_stacks_suffice() {
    let test = "incomplete_6_small_signal_stacks_suffice";
    let Some((folder, program)) = folder_with(test, "altstack") else { return };
    let output = record(folder.path(), &[], &[program.to_str().unwrap(), "data"]);
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"384\n"[..]), "{said}");
    assert_eq!(reads(folder.path(), 64).len(), 6, "{said}");
}

/// Programs that empty the files that they find.
#[test]
fn incomplete_6_shared_files_that_are_shortened_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "data").unwrap();
    let wait = "for at in $(seq 1000); do ls $NIGH_RECORD/* >/dev/null 2>&1 || break; sleep 0.01; done";
    let own = "for file in $NIGH_RECORD/*; do test ! -f $file || truncate -s 0 $file; done";
    let all = "truncate -s 0 $(dirname $NIGH_RECORD)/*/*-*";
    // Of a process that goes on without the library.
    let script = format!("{wait}; {all}; cat data; sleep 0.1; cat data");
    let output = record(folder.path(), &[], &["env", "-u", "LD_PRELOAD", "sh", "-c", &script]);
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"datadata"[..]), "{said}");
    assert!(said.contains("env (in part: the file that it shares with the recorder was shortened)"), "{said}");
    // A recorder's files are not where programs look.
    let output = record(folder.path(), &[], &["sh", "-c", &format!("{wait}; {own}; cat data; cat data")]);
    let said = errors(&output);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"datadata"[..]), "{said}");
    assert_eq!(reads(folder.path(), 4).len(), 2, "{said}");
}

#[test]
fn incomplete_6_jumps_out_of_a_read_lose_no_later_one() {
    let test = "incomplete_6_jumps_out_of_a_read_lose_no_later_one";
    let Some((folder, program)) = folder_with(test, "jumps") else { return };
    let output = record(folder.path(), &[], &[program.to_str().unwrap(), "data", "300"]);
    let said = errors(&output);
    let returned: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let found = reads(folder.path(), 1).len();
    // One that a jump ended may have read.
    assert!((returned..=returned + 300).contains(&found), "{found} of {returned}: {said}");
    assert!(said.contains("no calls lost"), "{said}");
}

#[test]
fn incomplete_6_programs_with_sanitizers_run() {
    let test = "incomplete_6_programs_with_sanitizers_run";
    if !installed(test, "gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recorded/fast.c");
    for sanitizer in ["address", "thread"] {
        let mut gcc = Command::new("gcc");
        gcc.current_dir(folder.path()).args(["-pthread", "-o", "fast"]).arg(format!("-fsanitize={sanitizer}"));
        let mut plain = Command::new("./fast");
        plain.current_dir(folder.path()).args(["data", "2", "1000"]);
        let is_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        if !is_done(gcc.arg(&source)) || !is_done(&mut plain) {
            println!("skipped: {test}: gcc's sanitizer of this kind ({sanitizer}) does not work here");
            continue;
        }
        let output = record(folder.path(), &[], &["./fast", "data", "2", "1000"]);
        let said = errors(&output);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"2000\n"[..]), "{sanitizer}: {said}");
        assert_eq!(reads(folder.path(), 1).len(), 2000, "{sanitizer}: {said}");
    }
}

#[test]
fn incomplete_6_advise_ends_as_its_program_does() {
    let folder = tempfile::tempdir().unwrap();
    for (script, code) in [("true", 0), ("echo text >written", 0), ("echo text >written; exit 5", 5)] {
        for _ in 0..2 {
            let output = nigh(folder.path(), &["advise", "--profile", "a.aoio", "--", "sh", "-c", script]);
            assert_eq!(output.status.code(), Some(code), "{script}: {}", errors(&output));
        }
    }
}

/// Page faults are events of programs that nigh starts: a process that runs cannot be asked for them.
#[test]
fn incomplete_6_faults_of_a_running_process_are_not_promised() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let output = nigh(folder.path(), &["record", "-o", "a.parquet", "--pid", &own, "--faults", "--for", "1s"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("--faults"), "{}", errors(&output));
}

#[test]
fn incomplete_7_hard_links_are_one_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("one"), "some text\n").unwrap();
    std::fs::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
    let script =
        ["sh", "-c", "cat one; cat two; ln one three; rm one; cat three; rm two; cat three; cp three four; cat four"];
    for flags in [&[][..], &["--ptrace"]] {
        let output = record(folder.path(), flags, &script);
        assert!(output.status.success(), "{}", errors(&output));
        let files: Vec<u32> = reads(folder.path(), 10).iter().map(|read| read.volume).collect();
        // The last two are of cp and of its copy.
        let [first, second, third, fourth, of_cp, copy] = files[..] else { panic!("{flags:?}: {files:?}") };
        assert_eq!([second, third, fourth, of_cp], [first; 4], "{flags:?}: {files:?}");
        assert_ne!(copy, first, "{flags:?}");
        std::fs::rename(folder.path().join("three"), folder.path().join("one")).unwrap();
        std::fs::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
        std::fs::remove_file(folder.path().join("four")).unwrap();
    }
}

#[test]
fn incomplete_7_a_disk_is_named_without_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let said = errors(&nigh(folder.path(), &["record", "-o", "a.parquet", "--disk", "no-such-disk", "--for", "1s"]));
    assert!(said.contains("/dev/no-such-disk"), "{said}");
}
