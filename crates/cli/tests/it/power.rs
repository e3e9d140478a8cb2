//! Nothing that a server promised is lost when the power fails, it is killed or asked to end, on a real file.
//!
//! Clients work on `nigh serve`, whose disk is a file of this process: volatile until it is synced, torn and reordered when
//! the power fails, and forgetful when a sync fails. After each end, every sector is held against the history. With a write log, the log is on a
//! second such disk, the power of either or both fails, and everything that was acknowledged has to be there.
//! `cargo xtask power` does it 10,000 times, or to a peer; without it, a few are enough to see that it works.

pub(crate) mod clients;
pub(crate) mod disk;
pub(crate) mod history;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nigh_testkit::tools::installed;
use rustix::process::{Pid, Signal, kill_process};

use crate::loops::Loop;
use crate::serving::{Folder, nigh};
use clients::Shared;
use disk::{Disk, NAME, SECTOR};
use history::{History, Op, Promise, Start};

/// Of the disk: more than memory holds.
const SIZE: usize = 8 << 20;
const MEMORY: &str = "2M";
/// Of a write log: often full.
const LOG: usize = 3 << 19;
const CLIENTS: usize = 3;
/// How often a server ends, by default.
const CUTS: u64 = 30;
/// A flush may fail for this many of a hundred syncs in every fourth round.
const FAILING: u64 = 25;
/// How long a server may take to start, and to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long clients work at most, in milliseconds; now and then long enough that the server writes back by itself.
const ROUND_MS: u64 = 40;
const LONG_ROUND_MS: u64 = 1500;

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With its machine.
    Power,
    /// Killed; what it gave to the system stays.
    Kill,
    /// Told to end, and then the power fails.
    Term,
}

const ENDS: [End; 3] = [End::Power, End::Kill, End::Term];

/// The server of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    WriteBack,
    WriteThrough,
    /// With a level on another file, which survives.
    Level,
    /// On a block device, by io_uring; a file on FUSE gets threads.
    Ring,
    /// On a block device, with a write log on another file.
    WriteLog,
    QemuNbd,
    /// Its cache filter, which acknowledges in its own file.
    NbdkitCache,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::WriteBack => "nigh",
            Kind::WriteThrough => "nigh --write-mode through",
            Kind::Level => "nigh --level",
            Kind::Ring => "nigh on a block device",
            Kind::WriteLog => "nigh with a write log",
            Kind::QemuNbd => "qemu-nbd --cache=writeback",
            Kind::NbdkitCache => "nbdkit --filter=cache",
        }
    }

    /// The kinds that this name has in the environment.
    fn named(name: &str) -> Vec<Kind> {
        match name {
            "nigh" => vec![Kind::WriteBack, Kind::WriteThrough, Kind::Level, Kind::Ring, Kind::WriteLog],
            "write-log" => vec![Kind::WriteLog],
            "qemu-nbd" => vec![Kind::QemuNbd],
            "nbdkit" => vec![Kind::NbdkitCache],
            _ => panic!("'{name}': expected nigh, write-log, qemu-nbd or nbdkit"),
        }
    }

    fn is_peer(self) -> bool {
        matches!(self, Kind::QemuNbd | Kind::NbdkitCache)
    }

    fn export(self) -> &'static str {
        if self.is_peer() { "" } else { "disk" }
    }

    fn command(self, folder: &Folder, image: &Path) -> Command {
        let (socket, image) = (folder.text("socket"), image.display());
        let peer = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        match self {
            Kind::QemuNbd => {
                let file = image.to_string();
                let shared = CLIENTS.to_string();
                peer("qemu-nbd", &["-t", "-e", &shared, "-f", "raw", "--cache=writeback", "--socket", &socket, &file])
            }
            Kind::NbdkitCache => {
                let file = format!("file={image}");
                peer("nbdkit", &["-f", "-U", &socket, "--filter=cache", "file", &file, "cache=writeback"])
            }
            _ => {
                let (mut disk, listen) = (format!("disk={image}"), format!("unix:{socket}"));
                if self == Kind::WriteLog {
                    disk += &format!(",write-log={}:{LOG}B", folder.path("fast").join(NAME).display());
                }
                let level = format!("file:{}:4M", folder.text("level"));
                let mode = if matches!(self, Kind::WriteThrough | Kind::WriteLog) { "through" } else { "back" };
                let mut more = vec!["--memory", MEMORY, "--write-mode", mode, &disk];
                if self == Kind::Level {
                    more.extend(["--level", &level]);
                }
                nigh(&["--listen", &listen], &more)
            }
        }
    }
}

/// A running server, killed when dropped.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn start(kind: Kind, folder: &Folder, image: &Path) -> Server {
        let socket = folder.path("socket");
        let _ = std::fs::remove_file(&socket);
        let log = std::fs::File::create(folder.path("log")).unwrap();
        let process =
            kind.command(folder, image).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { process, socket };
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            let ended = server.process.try_wait().unwrap();
            let log = || std::fs::read_to_string(folder.path("log")).unwrap();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "{}: it does not start: {}", kind.name(), log());
            std::thread::sleep(Duration::from_millis(1));
        }
        server
    }

    /// Whether it has an io_uring.
    fn has_ring(&self) -> bool {
        let of = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        let mut files = of.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        files.any(|file| file.to_string_lossy().contains("[io_uring]"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Counts of all rounds of a kind.
#[derive(Default)]
struct Row {
    ends: [u64; 3],
    ops: u64,
    flushes: u64,
    failed_syncs: u64,
    volatile: u64,
    lost: u64,
    /// How often a server did not end when it was asked to.
    stuck: u64,
    /// Rounds in which a promise was broken.
    losses: u64,
}

/// The columns of the table: what each counts is a field of `Row`.
const COLUMNS: [&str; 10] =
    ["power", "kill", "TERM", "requests", "flushes", "failed syncs", "volatile", "lost by disk", "stuck", "losses"];

impl Row {
    fn title() -> String {
        format!("{:27}{}", "server", COLUMNS.map(|column| format!("  {column:>7}")).concat())
    }

    fn count(&mut self, end: End, histories: &[History]) {
        self.ends[ENDS.iter().position(|other| *other == end).expect("one of them")] += 1;
        let all = || histories.iter().flat_map(|history| &history.ops);
        self.ops += all().filter(|op: &&Op| op.ended.is_some()).count() as u64;
        self.flushes += histories.iter().map(|history| history.flushes.len() as u64).sum::<u64>();
    }

    fn text(&self, name: &str) -> String {
        let [power, kill, term] = self.ends;
        let Row { ops, flushes, failed_syncs, volatile, lost, stuck, losses, .. } = *self;
        let values = [power, kill, term, ops, flushes, failed_syncs, volatile, lost, stuck, losses];
        let cell = |(column, value): (&str, u64)| format!("  {value:>width$}", width = column.len().max(7));
        format!("{name:27}{}", COLUMNS.into_iter().zip(values).map(cell).collect::<String>())
    }
}

/// A disk, and what it must have.
struct Bench {
    /// Unmounted before its folder is removed.
    disk: Disk,
    /// With a write log, the disk that has it.
    fast: Option<Disk>,
    folder: Folder,
    shared: Shared,
    sectors: Vec<Start>,
}

impl Bench {
    /// `None` if this system mounts no such disk.
    fn new(test: &str, seed: u64, has_log: bool) -> Option<Bench> {
        let folder = Folder::new();
        let mount = |name: &str, bytes, seed| {
            std::fs::create_dir(folder.path(name)).unwrap();
            let disk = Disk::new(&folder.path(name), bytes, seed);
            disk.inspect_err(|error| println!("skipped: {test}: no FUSE file system can be mounted: {error}")).ok()
        };
        let disk = mount("disk", SIZE, seed)?;
        let fast = if has_log { Some(mount("fast", LOG, seed + 1)?) } else { None };
        let shared = Shared {
            sectors: SIZE / SECTOR,
            now: AtomicU64::new(0),
            values: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        Some(Bench { disk, fast, folder, shared, sectors: vec![Start::default(); SIZE / SECTOR] })
    }

    fn round(&mut self, kind: Kind, end: End, random: &mut Rng, row: &mut Row) -> Result<(), String> {
        let failing = if random.u8(..4) == 0 { FAILING } else { 0 };
        let longest = if random.u8(..50) == 0 { LONG_ROUND_MS } else { ROUND_MS };
        let time = Duration::from_micros(random.u64(..longest * 1000));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.u64(..)).collect();
        self.disk.start(failing);
        // A server does not start if the first sync of its log fails.
        self.fast.iter().for_each(|fast| fast.start(0));
        let is_device = matches!(kind, Kind::Ring | Kind::WriteLog);
        // With two disks, the power of either may fail alone.
        let off = if self.fast.is_some() { random.u8(1..4) } else { 1 };
        let device = is_device.then(|| Loop::attach(self.disk.file()).expect("a block device"));
        let image = device.as_ref().map_or(self.disk.file(), Loop::path);
        let mut server = Server::start(kind, &self.folder, image);
        // Syncs of a log fail seldom enough that it goes on.
        self.fast.iter().for_each(|fast| fast.start(failing / 5));
        assert!(kind != Kind::Ring || server.has_ring(), "it has no io_uring");
        self.shared.is_over.store(false, Ordering::Relaxed);
        let (shared, disk, fast) = (&self.shared, &self.disk, &self.fast);
        let socket = server.socket.clone();
        let (clean, found) = std::thread::scope(|scope| {
            let socket = &socket;
            let work = |(client, seed)| scope.spawn(move || clients::work(shared, socket, kind.export(), client, seed));
            let workers: Vec<_> = seeds.into_iter().enumerate().map(work).collect();
            std::thread::sleep(time);
            if end == End::Power {
                if off & 1 > 0 {
                    disk.cut();
                }
                fast.iter().filter(|_| off & 2 > 0).for_each(|fast| fast.cut());
            }
            server.signal(if end == End::Term { Signal::TERM } else { Signal::KILL });
            let begin = Instant::now();
            let status = loop {
                match server.process.try_wait().unwrap() {
                    Some(status) => break Ok(status.success()),
                    None if begin.elapsed() > PATIENCE => break Err("it does not end when it is told to".to_owned()),
                    None => std::thread::sleep(Duration::from_micros(200)),
                }
            };
            drop(server);
            shared.is_over.store(true, Ordering::Relaxed);
            let found: Result<Vec<_>, String> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            (status, found)
        });
        // The system's cached data goes to the disk, unless that is off.
        drop(device);
        row.stuck += u64::from(clean.is_err());
        let clean = clean?;
        let (histories, multi): (Vec<History>, Vec<bool>) = found?.into_iter().unzip();
        row.count(end, &histories);
        if self.fast.is_some() {
            return self.check_logged(kind, end, &histories, multi.iter().all(|multi| *multi), row);
        }
        let kept = match (kind, end) {
            // A peer promises nothing but what was flushed.
            _ if kind.is_peer() => false,
            (_, End::Term) => clean,
            (Kind::WriteThrough, End::Kill) => !self.disk.has_forgotten(),
            _ => false,
        };
        let counts = self.disk.counts();
        if counts.failed_syncs > 0 {
            // Data that an earlier server wrote, this one cannot write again.
            self.sectors.iter_mut().for_each(|sector| sector.is_doubtful = !sector.older.is_empty());
        }
        // Data that a failed sync has forgotten, the next server cannot know.
        let power = end == End::Term || end == End::Kill && self.disk.has_forgotten();
        if power {
            self.disk.cut();
        }
        let left =
            history::decode(0, &if end == End::Kill && !power { self.disk.current() } else { self.disk.stable() })?;
        let promise = if kept { Promise::Acknowledged } else { Promise::Flushed };
        let is_shared = multi.iter().all(|multi| *multi);
        let verdict = history::check(&self.sectors, &histories, &left, promise, is_shared);
        row.losses += u64::from(verdict.is_err());
        self.sectors = left.into_iter().map(|value| Start { value, ..Start::default() }).collect();
        for (sector, versions) in self.disk.older() {
            let values = versions.iter().map(|bytes| Ok(history::decode(sector, bytes)?[0]));
            self.sectors[sector].older = values.collect::<Result<_, String>>()?;
        }
        row.failed_syncs += counts.failed_syncs;
        row.volatile += counts.volatile;
        row.lost += counts.lost;
        verdict
    }
}

impl Bench {
    /// With a write log, a new server has to return all that was acknowledged, whichever power failed.
    fn check_logged(
        &mut self,
        kind: Kind,
        end: End,
        histories: &[History],
        is_shared: bool,
        row: &mut Row,
    ) -> Result<(), String> {
        let disks = || std::iter::once(&self.disk).chain(&self.fast);
        if end == End::Term {
            disks().for_each(Disk::cut);
        }
        for counts in disks().map(Disk::counts) {
            row.failed_syncs += counts.failed_syncs;
            row.volatile += counts.volatile;
            row.lost += counts.lost;
        }
        disks().for_each(|disk| disk.start(0));
        let device = Loop::attach(self.disk.file()).expect("a block device");
        let server = Server::start(kind, &self.folder, device.path());
        let left = clients::read_all(&server.socket, kind.export(), SIZE)?;
        // It is killed: what goes home at the moment is repeated in the next round.
        drop(server);
        drop(device);
        let left = history::decode(0, &left)?;
        let verdict = history::check(&self.sectors, histories, &left, Promise::Acknowledged, is_shared);
        row.losses += u64::from(verdict.is_err());
        self.sectors = left.into_iter().map(|value| Start { value, ..Start::default() }).collect();
        verdict
    }
}

/// Ends servers of these kinds this often in all, and prints the counts.
fn end_often(test: &str, kinds: &[Kind], cuts: u64, seed: u64) {
    println!("seed {seed}\n{}", Row::title());
    for (at, kind) in kinds.iter().enumerate() {
        let mut random = Rng::with_seed(seed + at as u64);
        let Some(mut bench) = Bench::new(test, random.u64(..), *kind == Kind::WriteLog) else { return };
        if matches!(kind, Kind::Ring | Kind::WriteLog) && Loop::attach(bench.disk.file()).is_none() {
            println!("skipped: {test}, {}: losetup attaches no device here", kind.name());
            continue;
        }
        let mut row = Row::default();
        for cut in 0..cuts / kinds.len() as u64 {
            let end = [End::Power, End::Power, End::Power, End::Kill, End::Term][random.usize(..5)];
            if let Err(error) = bench.round(*kind, end, &mut random, &mut row) {
                if kind.is_peer() {
                    if row.losses + row.stuck == 1 {
                        println!("{}, end {cut} ({end:?}): {error}", kind.name());
                    }
                    continue;
                }
                let log = std::fs::read_to_string(bench.folder.path("log")).unwrap_or_default();
                panic!("{}, seed {seed}, end {cut} ({end:?}): {error}\nIts log:\n{log}", kind.name());
            }
        }
        println!("{}", row.text(kind.name()));
    }
}

#[test]
fn no_promise_is_broken_by_a_power_cut() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let kinds = Kind::named(&std::env::var("NIGH_SERVER").unwrap_or("nigh".into()));
    let test = "no_promise_is_broken_by_a_power_cut";
    if kinds[0].is_peer() && !installed(test, kinds[0].name().split(' ').next().unwrap()) {
        return;
    }
    end_often(test, &kinds, number("NIGH_CUTS").unwrap_or(CUTS), number("NIGH_SEED").unwrap_or(1));
}
