//! Recordings of programs, with the real binary: what they read, by which code, and that nothing changes for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nigh_pattern::{Class, Classifier, Limits, Thresholds};
use nigh_testkit::tools::{installed, run};
use nigh_trace::{Op, Request};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::command::refusal;
use crate::recorded::{RENAMES, compiled, counted, counted_of, renames_are_followed, requests, straced};

fn record(folder: &Path, file: &str, program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder).args(["record", "--force", "-o", file, "--"]).args(program).stdin(Stdio::null());
    command
}

/// Whatever the environment and the addresses are, code has the same identity, and the class that it was written for.
#[test]
fn code_is_recognized_in_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("code_is_recognized_in_every_run", folder.path(), "patterns", &[]) else { return };
    let program = program.to_str().unwrap();
    assert!(Command::new(program).arg("make").current_dir(folder.path()).status().unwrap().success());
    let mut all = Vec::new();
    for (round, filler) in [0, 3000, 9001].into_iter().enumerate() {
        let file = format!("{round}.parquet");
        let output = record(folder.path(), &file, &[program]).env("FILLER", "x".repeat(filler)).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"32768\n"[..]), "{errors}");
        assert!(errors.contains(" of 1 program in ") && errors.contains("no calls lost"), "{errors}");
        assert!(errors.ends_with(&format!("nigh patterns {file}\n  nigh plan {file}\n")), "{errors}");
        let found: Vec<Request> = requests(&folder.path().join(&file), None);
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        let mut classifier = Classifier::new(Limits::default(), Thresholds::default());
        for request in found.iter().filter(|request| request.op == Op::Read) {
            *counts.entry(request.stream).or_default() += 1;
            if request.length > 0 {
                classifier.reference(request.stream, request.volume, request.offset / 4096);
            }
        }
        let table = classifier.table();
        let labels: BTreeMap<u64, (usize, Class)> =
            counts.into_iter().map(|(code, calls)| (code, (calls, table.get(code, u32::MAX).unwrap().class))).collect();
        all.push(labels);
    }
    assert_eq!(all[0], all[1], "with a larger environment");
    assert_eq!(all[0], all[2], "with a larger one");
    let mut labels: Vec<(usize, Class)> = all[0].values().copied().collect();
    labels.sort();
    // 8 pages by stdio and its end; 200 at random; 300 in sequence and their end; 30 times 3, four times; 100, four times.
    let expected = [(9, Class::Rand), (200, Class::Rand), (301, Class::Seq), (360, Class::Short), (400, Class::Loop)];
    assert_eq!(labels, expected);
}

#[test]
fn calls_are_counted_as_strace_counts_them() {
    let test = "calls_are_counted_as_strace_counts_them";
    if !installed(test, "strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The recorders' files are not read by the programs.
    let apart = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text"), "one\ntwo\nthree\n".repeat(20_000)).unwrap();
    std::fs::write(folder.path().join("main.c"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n")
        .unwrap();
    let script = "create table t(a, b); insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < \
                  20000) select i, hex(i) from n; select count(*), sum(length(b)) from t;";
    let python = "import json, tokenize; print(len(list(tokenize.open(json.__file__))))";
    let mut tried = 0;
    for program in [
        &["grep", "-rc", "t", "."][..],
        &["wc", "text", "main.c"],
        &["sort", "-S", "100K", "-o", "sorted", "text"],
        &["cat", "text"],
        &["tar", "-cf", "all.tar", "text", "main.c"],
        &["sed", "-n", "s/one/1/p", "text"],
        &["gzip", "-kf", "text"],
        &["cp", "text", "copy"],
        &["sqlite3", ":memory:", ".read main.sql"],
        &["sqlite3", "test.db", script],
        &["gcc", "-o", "main", "main.c"],
        &["git", "-c", "safe.directory=*", "hash-object", "text", "main.c"],
        &["/usr/bin/python3", "-c", python],
    ] {
        if !installed(test, program[0].rsplit('/').next().unwrap()) && !Path::new(program[0]).exists() {
            continue;
        }
        tried += 1;
        let reset = || {
            let _ = std::fs::remove_file(folder.path().join("test.db"));
            std::fs::write(folder.path().join("main.sql"), "select 1;\n".repeat(3000)).unwrap();
        };
        reset();
        let mut strace = Command::new("strace");
        strace.current_dir(folder.path());
        let (plain, expected) = straced(strace, &apart.path().join("strace.log"), program, Path::new("/"));
        reset();
        let path = apart.path().join("a.parquet");
        let output = record(folder.path(), path.to_str().unwrap(), program).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), plain.status.code(), "{program:?}: {errors}");
        assert_eq!(output.stdout, plain.stdout, "{program:?} prints something else");
        let found = counted(&path, Path::new("/"));
        let _ = std::fs::remove_file(&path);
        println!("{program:?}: {found:?}");
        assert_eq!(found, expected, "{program:?}");
    }
    assert!(tried >= 8, "these programs are everywhere");
}

/// A program that a test of recordings runs, in a folder with a file `data`.
struct Case {
    needs: &'static [&'static str],
    flags: &'static [&'static str],
    /// Done before each run.
    prepare: &'static str,
    script: &'static str,
}

const JAVA: &str = "import java.io.*;import java.nio.*;import java.nio.channels.*;
public class Reads { public static void main(String[] arguments) throws Exception {
  RandomAccessFile file = new RandomAccessFile(\"data\", \"r\");
  byte[] page = new byte[4096];
  for (int at = 0; at < 256; at++) { file.seek(at * 37 % 256 * 4096L); file.readFully(page); }
  ByteBuffer direct = ByteBuffer.allocateDirect(8192);
  for (int at = 0; at < 100; at++) { direct.clear(); file.getChannel().read(direct, at * 8192L); }
  Thread[] threads = new Thread[4];
  for (int at = 0; at < 4; at++) {
    threads[at] = new Thread(() -> {
      try (InputStream in = new FileInputStream(\"data\")) { byte[] part = new byte[1000]; while (in.read(part) > 0); }
      catch (IOException error) { }
    });
    threads[at].start();
  }
  for (Thread thread : threads) thread.join();
} }";

const GO: &str = "package main
import (\"os\"; \"sync\")
func main() {
  file, _ := os.Open(\"data\"); page := make([]byte, 4096)
  for at := 0; at < 256; at++ { file.ReadAt(page, int64(at*37%256)*4096) }
  var all sync.WaitGroup
  for at := 0; at < 8; at++ { all.Add(1); go func() {
    defer all.Done()
    own, _ := os.Open(\"data\"); part := make([]byte, 1000)
    for { if count, _ := own.Read(part); count == 0 { break } }
  }() }
  all.Wait()
}";

/// Runtimes that read from threads of their own, from processes that they fork, and without libc. Only what they read and write in
/// their folder is counted: caches of a runtime differ from run to run.
#[test]
fn calls_of_runtimes_are_counted_as_strace_counts_them() {
    let test = "calls_of_runtimes_are_counted_as_strace_counts_them";
    if !installed(test, "strace") {
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    std::fs::write(kept.path().join("Reads.java"), JAVA).unwrap();
    std::fs::write(kept.path().join("reads.go"), GO).unwrap();
    let cases = [
        Case {
            needs: &["python3"],
            flags: &[],
            prepare: "",
            script: "python3 -c \"
import multiprocessing
def part(at):
    with open('data', 'rb', buffering=0) as data:
        data.seek(at * 1000)
        while data.read(5000): pass
with multiprocessing.get_context('fork').Pool(4) as pool: pool.map(part, range(8))\"",
        },
        Case {
            needs: &["perl"],
            flags: &[],
            prepare: "",
            script: "perl -e 'for (1..4) { next if fork; open(my $data, \"<\", \"data\"); sysread($data, my $part, 3000) for (1..100); \
                     exit } wait for (1..4)'",
        },
        Case {
            needs: &["javac", "java"],
            flags: &[],
            prepare: "test -f $KEPT/Reads.class || javac -d $KEPT $KEPT/Reads.java",
            script: "java -Xshare:auto -cp $KEPT Reads",
        },
        Case {
            needs: &["go"],
            flags: &["--ptrace"],
            prepare: "test -f $KEPT/reads || GOCACHE=$KEPT/cache go build -o $KEPT/reads $KEPT/reads.go",
            script: "$KEPT/reads",
        },
        Case {
            needs: &["node"],
            flags: &[],
            prepare: "",
            script: "node -e \"const fs = require('fs'); fs.createReadStream('data').on('data', part => {}); const file = \
                     fs.openSync('data'); for (let at = 0; at < 50; at++) fs.readSync(file, Buffer.alloc(4096), 0, 4096, at * 8192)\"",
        },
        Case {
            needs: &["db_bench"],
            flags: &[],
            prepare: "db_bench --db=db --benchmarks=fillseq --num=20000 --compression_type=none",
            script: "db_bench --db=db --benchmarks=readrandom --use_existing_db=1 --num=20000 --reads=3000 --cache_size=65536 --seed=7 \
                     --compression_type=none",
        },
    ];
    let mut tried = 0;
    for Case { needs, flags, prepare, script } in cases {
        // Compilers take long.
        let is_due = nigh_testkit::runs(0, 1) > 0 || !["javac", "go"].contains(&needs[0]);
        if !is_due || !needs.iter().all(|tool| installed(test, tool)) {
            continue;
        }
        tried += 1;
        let fresh = || {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("data"), vec![7; 1 << 20]).unwrap();
            let mut prepared = Command::new("sh");
            prepared.args(["-ec", prepare]).env("KEPT", kept.path()).current_dir(folder.path());
            let output = prepared.output().unwrap();
            assert!(output.status.success(), "{prepare}: {}", String::from_utf8_lossy(&output.stderr));
            folder
        };
        let program = ["sh", "-c", script];
        let folder = fresh();
        let mut strace = Command::new("strace");
        strace.current_dir(folder.path()).env("KEPT", kept.path());
        let (plain, expected) = straced(strace, &kept.path().join("strace.log"), &program, folder.path());
        let folder = fresh();
        let path = kept.path().join("a.parquet");
        let mut nigh = Command::new(env!("CARGO_BIN_EXE_nigh"));
        nigh.current_dir(folder.path()).env("KEPT", kept.path()).args(["record", "--force", "-o"]).arg(&path);
        let output = nigh.args(flags).arg("--").args(program).stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), plain.status.code(), "{script}: {errors}");
        assert!(errors.contains("no calls lost"), "{script}: {errors}");
        assert!(expected["read"] > 50, "{script}: {expected:?}");
        assert_eq!(counted(&path, folder.path()), expected, "{script}");
    }
    assert!(tried > 0, "Python and Perl are everywhere");
}

/// A database that creates a table and an index, and reads them, in one process; it does not run as root.
#[test]
fn calls_of_postgresql_are_counted_as_strace_counts_them() {
    const NOBODY: u32 = 65534;
    let test = "calls_of_postgresql_are_counted_as_strace_counts_them";
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).find(|programs| programs.join("postgres").is_file());
    let Some(programs) = found.filter(|_| rustix::process::geteuid().is_root()) else {
        println!("skipped: {test}: it needs Debian's PostgreSQL, and root to become another user");
        return;
    };
    if !installed(test, "strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // This user may have no access to the folder of builds.
    std::fs::copy(env!("CARGO_BIN_EXE_nigh"), folder.path().join("nigh")).unwrap();
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |program: &str| {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY).current_dir(folder.path());
        command
    };
    let sh = |script: &str| {
        let output = as_nobody("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let programs = programs.display();
    let query = "create table t as select i, md5(i::text) as hash from generate_series(1, 20000) i; create index on t(hash); select \
                 count(*) from t where hash < '8';";
    sh(&format!("{programs}/initdb -D fresh -A trust --no-sync; echo \"{query}\" >query.sql"));
    let run = format!("{programs}/postgres --single -D data postgres <query.sql");
    let program = ["sh", "-c", &run];
    let renew = || sh("rm -rf data; cp -a fresh data");
    renew();
    let (plain, expected) = straced(as_nobody("strace"), &folder.path().join("strace.log"), &program, Path::new("/"));
    renew();
    let mut nigh = as_nobody(folder.path().join("nigh").to_str().unwrap());
    let output = nigh.args(["record", "-o", "a.parquet", "--"]).args(program).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("no calls lost"), "{errors}");
    assert_eq!(output.stdout, plain.stdout);
    assert!(expected["read"] > 100 && expected["write"] > 100, "{expected:?}");
    assert_eq!(counted(&folder.path().join("a.parquet"), Path::new("/")), expected);
}

/// A database that reads and writes by io_uring, and counts that: its pages, as many as do not fit in its cache. When its threads have
/// nothing left to do, it ends without writing pages.
#[test]
fn calls_of_mariadb_are_counted_as_it_counts_them() {
    let test = "calls_of_mariadb_are_counted_as_it_counts_them";
    if !["mariadbd", "mariadb", "mariadb-install-db"].iter().all(|tool| installed(test, tool)) {
        return;
    }
    const SCRIPT: &str = "
        test $(id -u) != 0 || as=--user=root
        mariadb-install-db --no-defaults --datadir=$PWD/data --auth-root-authentication-method=normal --skip-test-db $as >made.log 2>&1
        $NIGH record --ptrace -o a.parquet -- mariadbd --no-defaults --datadir=$PWD/data --socket=$PWD/socket --skip-networking \
            --pid-file=$PWD/pid --innodb-buffer-pool-size=6M --innodb-log-file-size=8M $as >server.log 2>&1 &
        client='mariadb --no-defaults --socket=socket --user=root'
        for at in $(seq 600); do $client -e 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
        $client -N -e \"create database t; use t; create table a(i int primary key, b varchar(500)) engine=innodb; insert into a select seq, \
            repeat(md5(seq), 10) from seq_1_to_20000; select sum(length(b)) from a where i % 3 = 0\"
        reads=\"show global status like 'Innodb_data_reads'\"
        for at in $(seq 30); do
            before=$now; now=$($client -N -e \"$reads\")
            test \"$now\" != \"$before\" || break; sleep 1
        done
        $client -N -e \"$reads; show global status like 'Innodb_data_writes'; set global innodb_fast_shutdown = 2; shutdown\"
        wait $!";
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(folder.path()).args(["-ec", SCRIPT]).env("NIGH", env!("CARGO_BIN_EXE_nigh"));
    let output = shell.stdin(Stdio::null()).output().unwrap();
    let log = std::fs::read_to_string(folder.path().join("server.log")).unwrap_or_default();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.starts_with("2133120\n"), "{printed}{log}");
    assert!(log.contains("no calls lost") && log.contains("Shutdown complete"), "{log}");
    let status = |name: &str| {
        let (_, value) = printed.split_once(name).unwrap_or_else(|| panic!("{printed}"));
        value.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let is_page_file = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.starts_with(folder.path()) && (name.ends_with(".ibd") || ["ibdata1", "ibtmp1"].contains(&&*name))
    };
    let counts = counted_of(&folder.path().join("a.parquet"), is_page_file);
    let expected = BTreeMap::from([("read", status("Innodb_data_reads")), ("write", status("Innodb_data_writes"))]);
    assert!(expected["read"] > 500 && expected["write"] > 500, "{expected:?}");
    assert_eq!(counts, expected, "{log}");
}

#[test]
fn threads_forks_signals_and_cancellation_work_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let test = "threads_forks_signals_and_cancellation_work_as_before";
    let Some(program) = compiled(test, folder.path(), "threads", &[]) else { return };
    std::fs::write(folder.path().join("data"), [7; 4096]).unwrap();
    for _ in 0..5 {
        let output = record(folder.path(), "a.parquet", &[program.to_str().unwrap(), "data"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1 1\n", "{errors}");
        assert!(output.status.success(), "{errors}");
        let found = requests(&folder.path().join("a.parquet"), None);
        let reads = found.iter().filter(|request| request.length == 512).count();
        // A signal handler that interrupts a hook is not recorded, and what it interrupted is.
        assert_eq!(reads, (8 + 4) * 2000, "{errors}");
        let processes: BTreeSet<u32> = found.iter().map(|request| request.tenant).collect();
        assert_eq!(processes.len(), 5);
        assert!(found.is_sorted_by_key(|request| request.time_ns) || processes.len() > 1);
    }
}

#[test]
fn what_cannot_be_recorded_gets_one_line() {
    let test = "what_cannot_be_recorded_gets_one_line";
    let folder = tempfile::tempdir().unwrap();
    let line = |program: &[&str]| refusal(&record(folder.path(), "a.parquet", program).output().unwrap());
    assert!(line(&["no-such-program"]).contains("no-such-program: no such program on the PATH"));
    std::fs::write(folder.path().join("empty"), "").unwrap();
    assert!(line(&["./empty"]).contains("./empty: Permission denied"));
    let other = folder.path().join("other");
    std::fs::copy("/bin/true", &other).unwrap();
    if std::os::unix::fs::chown(&other, Some(12345), None).is_ok() {
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(line(&["./other"]).contains("setuid"));
    }
    if installed(test, "gcc") {
        std::fs::write(folder.path().join("main.c"), "int main(void) { return 0; }\n").unwrap();
        let [source, program] = ["main.c", "static"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
        run("gcc", &["-static", "-o", &program, &source]);
        assert!(line(&["./static"]).contains("statically linked"));
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("parquet")), "{left:?}");
}

/// The program's own end is the command's end.
#[test]
fn the_exit_code_and_signals_are_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let code = |script: &str| {
        let script = format!("cat {} >/dev/null; {script}", folder.path().join("data").display());
        std::fs::write(folder.path().join("data"), "x").unwrap();
        record(folder.path(), "a.parquet", &["sh", "-c", &script]).status().unwrap().code()
    };
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 42"), Some(42));
    assert_eq!(code("kill -TERM $$"), Some(128 + 15));
    let nothing = record(folder.path(), "b.parquet", &["true"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("there is nothing to record"));
    assert!(!folder.path().join("b.parquet").exists());
}

/// Programs that a recorded one starts, and that cannot be recorded, are named.
#[test]
fn children_that_are_not_recorded_are_reported() {
    let test = "children_that_are_not_recorded_are_reported";
    if !installed(test, "gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.c"), "int main(void) { return 0; }\n").unwrap();
    let [source, program] = ["main.c", "static"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    run("gcc", &["-static", "-o", &program, &source]);
    let script = "cat main.c && ./static && env -i /bin/true && env true";
    let output = record(folder.path(), "a.parquet", &["sh", "-c", script]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let missed: Vec<&str> = errors.lines().filter(|line| line.contains("not recorded: ")).collect();
    assert_eq!(missed.len(), 2, "{errors}");
    assert!(missed[0].ends_with("true (started with another environment)"), "{errors}");
    assert!(missed[1].ends_with("/static (statically linked)"), "{errors}");
}

#[test]
fn files_are_followed_through_renames() {
    let folder = tempfile::tempdir().unwrap();
    renames_are_followed(folder.path(), record(folder.path(), "a.parquet", &RENAMES));
}

/// The memory that a shell shares with the recorder is full before it starts a program, which goes on and is named.
#[test]
fn full_memory_does_not_stop_the_program() {
    let test = "full_memory_does_not_stop_the_program";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(test, folder.path(), "threads", &[]) else { return };
    std::fs::write(folder.path().join("data"), [7; 4096]).unwrap();
    // Each process that ends gives memory back, until this one has it, too. The memory is full when the shell could write nothing for
    // some time.
    let fills = "env -u LD_PRELOAD timeout 9 sh -c \"while :; do cat /dev/zero; sleep 0.01; done\" 2>/dev/null >/dev/shm/filler & \
        full=0; while [ $full -lt 20000 ]; do if echo x 2>/dev/null >/dev/shm/probe; then full=0; else full=$((full + 1)); fi; done";
    let script = format!(
        "mount -t tmpfs -o size=520M none /dev/shm || exit 99; exec {} record -o a.parquet -- sh -c '{fills}; exec {} data'",
        env!("CARGO_BIN_EXE_nigh"),
        program.display()
    );
    let mut unshare = Command::new("unshare");
    let output = unshare.current_dir(folder.path()).args(["-m", "sh", "-c", &script]).output();
    let Some(output) = output.ok().filter(|output| output.status.code().is_some_and(|code| code != 99 && code != 1))
    else {
        println!("skipped: {test}: it needs the right to mount");
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"1 1\n"[..]), "{errors}");
    // On a busy machine, the memory may be full after the program has begun, and before its threads do.
    let is_named = ["/threads", "threads or children of it"]
        .iter()
        .any(|name| errors.contains(&format!("{name} (it could not use nigh's folder")));
    assert!(errors.contains("recorded ") && is_named, "{errors}");
    assert!(!errors.contains("no calls lost"), "{errors}");
}

/// A recording that has hardly any of the accesses is not planned with.
#[test]
fn files_11_after_mappings_the_next_step_records_faults() {
    let test = "files_11_after_mappings_the_next_step_records_faults";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(test, folder.path(), "mapped", &[]) else { return };
    std::fs::write(folder.path().join("data"), vec![7; 256 * 4096]).unwrap();
    let output = record(folder.path(), "a.parquet", &[program.to_str().unwrap(), "data"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("next:\n  nigh record --faults -o a.faults.parquet") && !said.contains("nigh plan"),
        "{said}"
    );
}

/// Pages of a mapping that a program touches are reads of their file, which has the same number when it is read.
#[test]
fn faults_in_mappings_are_recorded() {
    let test = "faults_in_mappings_are_recorded";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(test, folder.path(), "mapped", &[]) else { return };
    // The kernel may map all of what one call wrote at a single fault.
    let mut data = std::fs::File::create(folder.path().join("data")).unwrap();
    (0..256).for_each(|_| data.write_all(&[7; 4096]).unwrap());
    let program = program.to_str().unwrap();
    let output = record(folder.path(), "a.parquet", &[program, "data"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 MiB of files were mapped: --faults"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.current_dir(folder.path()).args(["record", "--faults", "-o", "b.parquet", "--", program, "data"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if ["perf_event_paranoid", "performance events"].iter().any(|why| said.contains(why)) {
        println!("skipped: {test}: {said}");
        return;
    }
    assert!(
        output.status.success() && said.contains("page faults of 1 program") && said.contains("no calls lost"),
        "{said}"
    );
    let found = requests(&folder.path().join("b.parquet"), None);
    // It reads the last page, and then touches the first byte of every page from the end to the beginning.
    let read = found.iter().position(|request| request.offset == 255 << 12 && request.length == 100).unwrap();
    let volume = found[read].volume;
    let touched: Vec<&Request> = found[read + 1..].iter().filter(|request| request.volume == volume).collect();
    assert!((256 / 16..=256).contains(&touched.len()), "{touched:?}");
    assert!(touched.iter().all(|fault| fault.length == 4096 && fault.offset % 4096 == 0 && fault.op == Op::Read));
    assert!(touched.is_sorted_by(|first, second| first.offset > second.offset), "{touched:?}");
    assert_eq!((touched[0].offset, touched[0].tenant), (255 << 12, found[read].tenant));
    let streams: BTreeSet<u64> = touched.iter().map(|fault| fault.stream).collect();
    assert!(streams.len() == 1 && !streams.contains(&0) && !streams.contains(&found[read].stream), "{streams:?}");
}

/// Paths are in the recording, or hashes of them.
#[test]
fn private_recordings_have_no_paths() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "x").unwrap();
    for (flag, is_there) in [(None, true), (Some("--private"), false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        command.current_dir(folder.path()).args(["record", "--force", "-o", "a.parquet"]).args(flag);
        assert!(command.env("LC_ALL", "C").args(["--", "cat", "secret"]).output().unwrap().status.success());
        let rows = SerializedFileReader::new(std::fs::File::open(folder.path().join("a.parquet")).unwrap()).unwrap();
        let found = rows.get_row_iter(None).unwrap().any(|row| row.unwrap().to_string().contains("secret"));
        assert_eq!(found, is_there);
        assert_eq!(requests(&folder.path().join("a.parquet"), None).len(), 2, "a read, and the end of the file");
    }
}

/// A program that goes on in the background is not disturbed by the end of the recording.
#[test]
fn programs_in_the_background_go_on() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "x").unwrap();
    let script =
        "cat data >/dev/null; (sleep 1; cat data >copy 2>errors; sh -c 'cat data' >>copy 2>>errors; touch done) &";
    let mut command = record(folder.path(), "a.parquet", &["sh", "-c", script]);
    let output = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(output.success());
    let begin = std::time::Instant::now();
    while !folder.path().join("done").exists() {
        assert!(begin.elapsed().as_secs() < 60, "the program in the background did not end");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("copy")).unwrap(), "xx");
    assert_eq!(std::fs::read_to_string(folder.path().join("errors")).unwrap(), "", "the library is still there");
}

/// A disk that is full ends the recording, and not the program.
#[test]
fn a_full_disk_does_not_stop_the_program() {
    let test = "a_full_disk_does_not_stop_the_program";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(test, folder.path(), "threads", &[]) else { return };
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    if !mount.args(["-t", "tmpfs", "-o", "size=16k", "none"]).arg(&small).status().is_ok_and(|status| status.success())
    {
        println!("skipped: {test}: it needs the right to mount");
        return;
    }
    std::fs::write(folder.path().join("data"), [7; 4096]).unwrap();
    let output = record(folder.path(), "small/a.parquet", &[program.to_str().unwrap(), "data"]).output().unwrap();
    run("umount", &[small.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b"1 1\n"[..]), "{errors}");
    assert!(errors.contains("the recording ended early") && errors.contains("No space left"), "{errors}");
}
