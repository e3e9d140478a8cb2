//! The kernel's page cache beside `linux` in simulation: what real programs read from a device in a cgroup with little
//! memory, and what the timed simulation reads for the same system calls.
//!
//! The programs read files on a loop device of their own, so the device's counter has their reads and no others. Each
//! runs twice: under strace for the trace, and in the cgroup for the count.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::measure;

const GROUP: &str = "/sys/fs/cgroup/memory/nigh-bench-page-cache";
const DISK_MIB: u64 = 700;
const MIB: f64 = 1024.0 * 1024.0;
const SECTOR: u64 = 512;
/// Goal: the simulation differs by at most this much.
const GOAL: f64 = 0.1;

/// A program with files that do not fit its memory.
struct Program {
    name: &'static str,
    memory_mib: u64,
    /// For `sh`, in the folder of the files.
    script: &'static str,
    needs: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "grep -r, 3 times",
        memory_mib: 44,
        script: "for i in 1 2 3; do grep -rc zzz tree > /dev/null; done",
        needs: "grep",
    },
    Program {
        name: "cat of 100 files, between others",
        memory_mib: 20,
        script: "for j in 1 2; do for i in 01 02 03 04 05 06 07 08 09 10 11; do cat tree/00* tree/$i* > /dev/null; done; done",
        needs: "cat",
    },
    Program {
        name: "cksum of 84 MB, 4 times",
        memory_mib: 64,
        script: "for i in 1 2 3 4; do cksum loop > /dev/null; done",
        needs: "cksum",
    },
    Program {
        name: "sqlite, scans",
        memory_mib: 24,
        script: "for i in 1 2 3 4; do sqlite3 db \"select count(*) from t where b like '%ABCDE%'\"; done > /dev/null",
        needs: "sqlite3",
    },
    Program {
        name: "sqlite, look-ups",
        memory_mib: 16,
        script: "sqlite3 db \"with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000) \
                 select sum(length(b)) from n join t on t.a = i * 7919 * (i % 13 + 1) % 250000\" > /dev/null",
        needs: "sqlite3",
    },
    Program {
        name: "sqlite, a join by index",
        memory_mib: 16,
        script: "sqlite3 db \"select count(*), sum(length(b)) from t indexed by tc where c between 1000 and 9000\" > /dev/null; \
                 sqlite3 db \"select sum(length(b)) from t\" > /dev/null; \
                 sqlite3 db \"select count(*), sum(length(b)) from t indexed by tc where c between 1000 and 9000\" > /dev/null",
        needs: "sqlite3",
    },
    Program {
        name: "cscope, 6 queries",
        memory_mib: 16,
        script: "for i in 0 1 2 3 4 5; do cscope -d -f cscope.out -L -$((i % 2 * 4))word$i > /dev/null; done",
        needs: "cscope",
    },
    Program {
        name: "diff of two copies, twice",
        memory_mib: 64,
        script: "for i in 1 2; do cmp loop loop2; done",
        needs: "cmp",
    },
];

/// Settings of the bench.
#[derive(Debug, clap::Args)]
pub(crate) struct PageCacheArgs {
    /// Only programs with this in their name
    #[arg(long)]
    only: Option<String>,
    /// The device's read-ahead, in KiB
    #[arg(long, default_value_t = 128)]
    read_ahead: u32,
    /// Collect the cgroup's statistics all the time, so that the kernel decides by fresh ones
    #[arg(long)]
    fresh: bool,
}

/// The loop device with its file system; gone when dropped.
struct Disk {
    device: String,
    files: PathBuf,
    image: PathBuf,
}

impl Disk {
    fn new(read_ahead_kib: u32) -> anyhow::Result<Disk> {
        let folder = measure::folder()?;
        let image = folder.join("page-cache.img");
        let files = folder.join("page-cache");
        fs::create_dir_all(&files)?;
        fs::File::create(&image)?.set_len(DISK_MIB << 20)?;
        measure::run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let made = measure::run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let disk = Disk { device: made.stdout.trim().to_owned(), files, image };
        fs::write(disk.attribute("queue/read_ahead_kb"), read_ahead_kib.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn attribute(&self, name: &str) -> PathBuf {
        let device = self.device.trim_start_matches("/dev/");
        Path::new("/sys/block").join(device).join(name)
    }

    fn mount(&self) -> anyhow::Result<()> {
        measure::run(Command::new("mount").arg(&self.device).arg(&self.files))?;
        Ok(())
    }

    /// Empties the cache of files, and loads that of directories and inodes, which are not part of the simulation.
    fn cool(&self) -> anyhow::Result<()> {
        measure::run(Command::new("umount").arg(&self.files))?;
        self.mount()?;
        measure::run(Command::new("find").arg(&self.files).args(["-printf", "%s"]))?;
        Ok(())
    }

    /// Bytes read so far.
    fn read_bytes(&self) -> anyhow::Result<u64> {
        let stat = fs::read_to_string(self.attribute("stat"))?;
        let sectors = stat.split_whitespace().nth(2).context("no count of sectors in the device's statistics")?;
        Ok(sectors.parse::<u64>()? * SECTOR)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.files).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        let _ = fs::remove_file(&self.image);
    }
}

/// The cgroup; gone when dropped.
struct Group;

impl Group {
    fn new(memory_mib: u64) -> anyhow::Result<Group> {
        fs::create_dir_all(GROUP)?;
        fs::write(format!("{GROUP}/memory.limit_in_bytes"), (memory_mib << 20).to_string())?;
        Ok(Group)
    }

    /// The bytes of file pages.
    fn cached(&self) -> anyhow::Result<u64> {
        let stat = fs::read_to_string(format!("{GROUP}/memory.stat"))?;
        let cached = stat.lines().find_map(|line| line.strip_prefix("cache "));
        Ok(cached.context("no line 'cache' in memory.stat")?.parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(format!("{GROUP}/memory.force_empty"), "1");
        let _ = fs::remove_dir(GROUP);
    }
}

/// Results of a program in the cgroup.
struct Ran {
    read_bytes: u64,
    /// Its most file pages, in bytes: the cache that the limit left beside its own memory.
    cached_bytes: u64,
}

fn installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).exists())
}

fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("only root can make a cgroup and a loop device".into());
    }
    if !Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
        return Some("there is no memory controller of cgroup v1".into());
    }
    let tools = ["losetup", "mkfs.ext4", "mount", "strace", "find"];
    tools.into_iter().find(|tool| !installed(tool)).map(|tool| format!("{tool} is not installed"))
}

/// The files of all programs: the same on every machine.
fn make_files(files: &Path) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let tree = files.join("tree");
    fs::create_dir(&tree)?;
    for number in 0..1200 {
        let mut text = String::new();
        let length = 2_000 + random.usize(..80_000);
        while text.len() < length {
            let (word, argument) = (random.u32(..60), random.u32(..1000));
            writeln!(text, "int word{word}(int a{argument}) {{ return other{argument}(a{argument}, {number}); }}")?;
        }
        fs::write(tree.join(format!("{number:04}.c")), text)?;
    }
    let mut bytes = vec![0; 84 << 20];
    random.fill(&mut bytes);
    for name in ["loop", "loop2"] {
        fs::write(files.join(name), &bytes)?;
    }
    if installed("sqlite3") {
        let rows = "create table t(a integer primary key, b text, c int); insert into t with recursive \
                    n(i) as (select 1 union all select i + 1 from n where i < 250000) \
                    select i, printf('%.50d%.50d', i * 7919, i), i * 48271 % 100003 from n; create index tc on t(c);";
        measure::run(Command::new("sqlite3").current_dir(files).args(["db", rows]))?;
    }
    if installed("cscope") {
        measure::run(Command::new("cscope").current_dir(files).args(["-bcR", "-s", "tree"]))?;
    }
    measure::run(&mut Command::new("sync"))?;
    Ok(())
}

fn record(program: &Program, files: &Path, trace: &Path) -> anyhow::Result<()> {
    let mut strace = Command::new("strace");
    strace
        .current_dir(files)
        .env("TMPDIR", files)
        .args(["-f", "-y", "-ttt", "-e", "trace=desc,process", "-o"])
        .arg(trace);
    // The exit code of grep shows whether something was found.
    measure::run(strace.args(["sh", "-c", &format!("{}; true", program.script)]))?;
    Ok(())
}

fn run_limited(program: &Program, disk: &Disk, fresh: bool) -> anyhow::Result<Ran> {
    disk.cool()?;
    let group = Group::new(program.memory_mib)?;
    let before = disk.read_bytes()?;
    let mut cached_bytes = 0;
    let script = format!("echo $$ > {GROUP}/cgroup.procs; exec sh -c \"$0\"");
    let mut shell = Command::new("sh");
    // Temporary files are on the device, too.
    shell.current_dir(&disk.files).env("TMPDIR", &disk.files);
    let mut child = shell.args(["-c", &script, program.script]).spawn()?;
    let pause = std::time::Duration::from_millis(if fresh { 1 } else { 1000 });
    let mut polled = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if polled.elapsed() >= pause {
            cached_bytes = cached_bytes.max(group.cached()?);
            polled = std::time::Instant::now();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    ensure!(status.code().is_some_and(|code| code <= 1), "{}: {status}", program.name);
    Ok(Ran { read_bytes: disk.read_bytes()? - before, cached_bytes: cached_bytes.max(group.cached()?) })
}

/// Bytes read in simulation, under each of `policies`.
fn simulate(trace: &Path, cached_bytes: u64, read_ahead_kib: u32, policies: &str) -> anyhow::Result<Vec<u64>> {
    let [placed, extents] = ["placed.csv", "extents.csv"].map(|name| trace.with_file_name(name));
    let mut layout = measure::nigh()?;
    layout.args(["trace", "layout", "--force", "--extents"]).arg(&extents).arg(trace).arg(&placed);
    measure::run(&mut layout)?;
    let mut sim = measure::nigh()?;
    sim.arg("sim").arg(&placed).arg("--extents").arg(&extents);
    sim.args(["--policy", policies, "--size", &format!("{}K", cached_bytes >> 10), "--json", "--think", "100us"]);
    sim.args(["--device", "ssd-nvme", "--readahead"]);
    match read_ahead_kib {
        0 => sim.arg("none"),
        kib => sim.arg(format!("linux:max={kib}K:into=policy")),
    };
    let json: Value = serde_json::from_str(&measure::run(&mut sim)?.stdout)?;
    let results = json["results"].as_array().context("no results")?;
    results.iter().map(|result| result["device_read_bytes"].as_u64().context("no bytes read")).collect()
}

pub(crate) fn run(args: &PageCacheArgs) -> anyhow::Result<()> {
    if let Some(missing) = missing() {
        println!("skipped: page-cache: {missing}");
        return Ok(());
    }
    println!(
        "load {}; read-ahead {} KiB; statistics {}",
        measure::load(),
        args.read_ahead,
        if args.fresh { "fresh" } else { "as collected" }
    );
    let disk = Disk::new(args.read_ahead)?;
    make_files(&disk.files)?;
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace.strace");
    println!(
        "{:32} {:>6} {:>8} {:>9} {:>9} {:>7} {:>9} {:>7}",
        "", "limit", "cache", "kernel", "linux", "ratio", "lru", "ratio"
    );
    let (mut within, mut all) = (0, 0);
    for program in PROGRAMS {
        if args.only.as_ref().is_some_and(|only| !program.name.contains(only)) {
            continue;
        }
        if !installed(program.needs) {
            println!("{:32} skipped: {} is not installed", program.name, program.needs);
            continue;
        }
        record(program, &disk.files, &trace)?;
        let ran = run_limited(program, &disk, args.fresh)?;
        let simulated = simulate(&trace, ran.cached_bytes, args.read_ahead, "linux,lru")?;
        let kernel = ran.read_bytes as f64;
        let mut line = format!(
            "{:32} {:>4} M {:>6.1} M {:>7.1} M",
            program.name,
            program.memory_mib,
            ran.cached_bytes as f64 / MIB,
            kernel / MIB
        );
        for &bytes in &simulated {
            write!(line, " {:>7.1} M {:>7.3}", bytes as f64 / MIB, bytes as f64 / kernel)?;
        }
        println!("{line}");
        all += 1;
        within += usize::from((simulated[0] as f64 / kernel - 1.0).abs() <= GOAL);
    }
    println!("within {:.0} % of the kernel: {within} of {all} programs", GOAL * 100.0);
    Ok(())
}
