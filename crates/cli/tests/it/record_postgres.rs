//! References to a database's own cache: `docs/postgres.bt` beside PostgreSQL, whose own counts are the measure.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_testkit::tools::{installed, run};

use crate::command::{json, printed};

/// Buffers of 8 KiB, as many as PostgreSQL's least shared_buffers have, and more.
const SMALL: &str = "4MB";
const LARGE: &str = "12MB";

/// A server of its own, as the user postgres.
struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
}

impl Server {
    fn new() -> Option<Server> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let programs = versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists())?;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        run("chown", &["postgres", folder.path().to_str().unwrap()]);
        Some(Server { programs, folder })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--", "env"]);
        command.arg(format!("PGDATA={}", self.folder.path().join("data").display()));
        command.arg(format!("PGHOST={}", self.folder.path().display())).arg("PGDATABASE=postgres");
        command.arg(self.programs.join(program)).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        // A server that goes on would keep a pipe open.
        let log = self.folder.path().join("output");
        let file = File::create(&log).unwrap();
        let status = self.command(program).args(args).stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert!(status.success(), "{program}: {text}");
        text
    }

    fn start(&self, buffers: &str) {
        let options = format!(
            "-c shared_buffers={buffers} -c listen_addresses= -c unix_socket_directories={} -c autovacuum=off -c fsync=off",
            self.folder.path().display()
        );
        self.run("pg_ctl", &["start", "-w", "-o", &options]);
    }

    /// Its hits and misses until now.
    fn counts(&self) -> [f64; 2] {
        let query = "select blks_hit, blks_read from pg_stat_database where datname = 'postgres'";
        let text = self.run("psql", &["-X", "-At", "-F", " ", "-c", query]);
        let mut words = text.split_whitespace().map(|word| word.parse().unwrap());
        std::array::from_fn(|_| words.next().unwrap())
    }
}

/// Waits until `is_done`, or `child` ends; whether it was done.
fn wait(child: &mut Child, is_done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        if child.try_wait().unwrap().is_some() || Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

#[test]
fn a_replay_has_the_hits_of_shared_buffers() {
    let test = "a_replay_has_the_hits_of_shared_buffers";
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: {test}: it needs root");
    }
    if !["bpftrace", "pgbench", "runuser"].iter().all(|tool| installed(test, tool)) {
        return;
    }
    let Some(server) = Server::new() else { return println!("skipped: {test}: PostgreSQL is not installed") };
    server.run("initdb", &[]);
    server.start(SMALL);
    server.run("pgbench", &["--initialize", "--quiet", "--scale=2"]);
    server.run("pg_ctl", &["stop"]);
    let script = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/postgres.bt")).unwrap();
    let script =
        script.replace("/usr/lib/postgresql/15/bin/postgres", server.programs.join("postgres").to_str().unwrap());
    let work = server.folder.path().join("work.sql");
    fs::write(
        &work,
        "\\set aid random_zipfian(1, 200000, 1.05)\nselect abalance from pgbench_accounts where aid = :aid;\n",
    )
    .unwrap();

    let mut measured = Vec::new();
    for buffers in [SMALL, LARGE] {
        server.start(buffers);
        let path = |ending: &str| server.folder.path().join(format!("{buffers}.{ending}"));
        let file = |ending: &str| Stdio::from(File::create(path(ending)).unwrap());
        let mut bpftrace = Command::new("bpftrace");
        bpftrace.args(["-B", "line", "-e", &script]).stdin(Stdio::null()).stdout(file("txt")).stderr(file("errors"));
        let mut bpftrace = bpftrace.spawn().unwrap();
        let seen = || {
            server.counts();
            fs::read_to_string(path("txt")).unwrap().contains(" read ")
        };
        if !wait(&mut bpftrace, seen) {
            let _ = bpftrace.kill();
            bpftrace.wait().unwrap();
            server.run("pg_ctl", &["stop"]);
            return println!(
                "skipped: {test}: bpftrace cannot do this here: {}",
                fs::read_to_string(path("errors")).unwrap()
            );
        }
        let before = server.counts();
        server.run("pgbench", &["-n", "--scale=2", "-f", work.to_str().unwrap(), "--client=2", "--transactions=20000"]);
        // A session reports its counts when it ends.
        std::thread::sleep(Duration::from_secs(1));
        let after = server.counts();
        let [hits, misses] = [after[0] - before[0], after[1] - before[1]];
        measured.push(hits / (hits + misses));
        run("kill", &["-INT", &bpftrace.id().to_string()]);
        bpftrace.wait().unwrap();
        server.run("pg_ctl", &["stop"]);
    }
    let trace = server.folder.path().join(format!("{SMALL}.txt"));
    let trace = trace.to_str().unwrap();
    let sizes = [SMALL, LARGE].map(|size| size.trim_end_matches('B')).join(",");
    let value = json(&["sim", trace, "--policy", "gclock", "--size", &sizes]);
    assert_eq!(value["trace"]["block_bytes"], 8192);
    let replayed: Vec<f64> =
        value["results"].as_array().unwrap().iter().map(|row| row["hit_ratio"].as_f64().unwrap()).collect();
    println!("measured {measured:?}, replayed from {SMALL} {replayed:?}");
    // Buffers are less than memory, and two clients interleave in another way each time.
    for (measured, replayed) in measured.iter().zip(&replayed) {
        assert!((measured - replayed).abs() < 0.015, "{measured} {replayed}");
    }
    assert!(measured[1] - measured[0] > 0.03, "{measured:?}");
    let plan = printed(&["plan", trace, "--have", "4M", "--add", "8M"]);
    assert!(
        plan.contains("ALTER SYSTEM SET shared_buffers = '12MB'") && plan.contains("with 12 MiB gclock hits"),
        "{plan}"
    );
}
