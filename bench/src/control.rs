//! Tenants' hints, live: a program that loops over more than fits and sends correct hints, and one that sends wrong ones, each beside a
//! neighbour without hints. By `nigh serve` and its control socket, as `nigh ctl hint` does, and by the library in this process.
//!
//! Each disk is a device of its own, as slow as [`DELAY`]. Both programs of a pair go on until both are done with what is
//! measured of them, so that neither has the cache for itself.

mod shared;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use fastrand::Rng;
use nigh_control::{Chunk, Directive, Event, Order, Saying, When, sidecar};
use nigh_nbd::client::Client;
use nigh_policy::Tenant;
use nigh_server::NBD;
use nigh_service::{
    Allocation, Command, ControlClient, ExportSettings, ExportStatistics, Service, Settings, Statistics,
};

use crate::measure::{load, median, nigh};

const BLOCK: u64 = 4096;
/// A read of the device.
const DELAY: &str = "1ms";
const DISK: &str = "256M";
/// Blocks of the cache.
const CACHE: u64 = 1280;
/// The tenant that is measured against itself, and the neighbour.
const EXPORTS: [&str; 2] = ["first", "neighbour"];
/// How long the first program computes between two reads.
const THINK: Duration = Duration::from_micros(200);

/// More than the cache has beside the neighbour's.
const LOOP: u64 = 1200;
const ROUNDS: usize = 4;
/// More than are read in any run.
const ROUNDS_MOST: usize = 2000;

/// Blocks that the liar really needs.
const HOT: u64 = 300;
const LIAR_READS: usize = 8000;
/// It lies again after this many reads.
const LIES_EVERY: usize = 400;

/// Blocks that the neighbour reads again and again; every `COLD`th read is of another block.
const NEIGHBOUR_HOT: u64 = 300;
const COLD: usize = 20;
const NEIGHBOUR_READS: usize = 30_000;

/// Behaviour of the first program, and its hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Loop { says: bool },
    Work { lies: bool },
}

/// A server with both disks.
enum Host {
    Process { process: Child, folder: PathBuf },
    Library(Box<Service>),
}

/// Seconds, and what the neighbour missed of a thousand blocks.
struct Times {
    first_s: f64,
    neighbour_s: f64,
    neighbour_misses: f64,
    of_first: ExportStatistics,
    lists_dropped: u64,
}

pub(crate) fn run(rounds: usize, shared_device: bool) -> anyhow::Result<()> {
    ensure!(rounds > 0, "at least one round");
    if shared_device {
        return shared::run();
    }
    println!(
        "{LOOP} blocks read {ROUNDS} times, or {LIAR_READS} reads of {HOT} hot blocks, beside {NEIGHBOUR_READS} reads of {NEIGHBOUR_HOT} \
         hot blocks and every {COLD}th of another; cache of {CACHE} blocks, lru-sp, a device of {DELAY} for each; load {}",
        load()
    );
    println!("medians of {rounds} runs, and of the ratios run by run");
    for library in [false, true] {
        let said = [
            (Program::Loop { says: false }, Program::Loop { says: true }, "loop: MRU and a list, against LRU"),
            (Program::Work { lies: false }, Program::Work { lies: true }, "lies, against silence"),
        ];
        for (silent, speaks, title) in said {
            let mut pairs = Vec::new();
            for round in 0..rounds {
                pairs.push((one(silent, library, round)?, one(speaks, library, round)?));
            }
            print(if library { "library" } else { "NBD" }, title, &pairs);
        }
    }
    Ok(())
}

fn print(route: &str, title: &str, pairs: &[(Times, Times)]) {
    let middle = |of: &dyn Fn(&(Times, Times)) -> f64| median(&mut pairs.iter().map(of).collect::<Vec<_>>());
    println!("\n{route}, {title}");
    println!("{:12}{:>10}{:>10}{:>8}", "", "before, s", "after, s", "ratio");
    println!(
        "{:12}{:>10.2}{:>10.2}{:>8.3}",
        EXPORTS[0],
        middle(&|(before, _)| before.first_s),
        middle(&|(_, after)| after.first_s),
        middle(&|(before, after)| after.first_s / before.first_s)
    );
    println!(
        "{:12}{:>10.2}{:>10.2}{:>8.3}   misses of 1000 {:.1} and {:.1}",
        EXPORTS[1],
        middle(&|(before, _)| before.neighbour_s),
        middle(&|(_, after)| after.neighbour_s),
        middle(&|(before, after)| after.neighbour_s / before.neighbour_s),
        middle(&|(before, _)| before.neighbour_misses),
        middle(&|(_, after)| after.neighbour_misses)
    );
    let prefetched = |of: &dyn Fn(&ExportStatistics) -> u64| middle(&|(_, after)| of(&after.of_first) as f64);
    let dropped = middle(&|(_, after)| after.lists_dropped as f64);
    println!(
        "{:12}prefetched {:.0}, used {:.0}, of these late {:.0}, wasted {:.0}; lists dropped {dropped:.0}",
        "",
        prefetched(&|of| of.disk.prefetch_issued),
        prefetched(&|of| of.disk.prefetch_used),
        prefetched(&|of| of.disk.prefetch_late),
        prefetched(&|of| of.disk.prefetch_wasted)
    );
}

fn one(program: Program, library: bool, round: usize) -> anyhow::Result<Times> {
    let folder = tempfile::tempdir()?;
    let host = if library { Host::library()? } else { Host::process(folder.path())? };
    let times = pair(&host, program, round as u64);
    host.end()?;
    times
}

fn pair(host: &Host, program: Program, seed: u64) -> anyhow::Result<Times> {
    let done = AtomicUsize::new(0);
    let (mut first, mut neighbour) = (host.connect(EXPORTS[0])?, host.connect(EXPORTS[1])?);
    if program == (Program::Loop { says: true }) {
        host.hint(&[mru(), Directive::Predict { accesses: vec![chunk(0, LOOP); ROUNDS_MOST] }])?;
    }
    // The blocks that it needs anyway are there when time begins.
    for block in 0..NEIGHBOUR_HOT {
        neighbour.read(block * BLOCK, BLOCK as usize)?;
    }
    let [_, before] = host.exports()?;
    let (first_s, neighbour_s) = std::thread::scope(|scope| -> anyhow::Result<_> {
        // A thread that fails has the other end, too.
        let first = scope.spawn(|| {
            let result = first_program(host, program, seed, &mut first, &done);
            result.inspect_err(|_| done.store(2, Ordering::Relaxed))
        });
        let neighbour = scope.spawn(|| {
            let mut random = Rng::with_seed(seed);
            let read = |at| Ok(self::neighbour(at, &mut random));
            let result = drive(&mut neighbour, NEIGHBOUR_READS, Duration::ZERO, &done, read);
            result.inspect_err(|_| done.store(2, Ordering::Relaxed))
        });
        let (first, neighbour) = (first.join(), neighbour.join());
        let broken = |_| anyhow!("a program panicked");
        Ok((first.map_err(broken)??, neighbour.map_err(broken)??))
    })?;
    let lists_dropped = host.status()?.tenants.first().map_or(0, |tenant| tenant.lists_dropped);
    let [of_first, of_neighbour] = host.exports()?;
    let references = |of: &ExportStatistics| of.disk.hits + of.disk.joined + of.disk.misses;
    let misses = (of_neighbour.disk.misses - before.disk.misses) as f64;
    let neighbour_misses = 1000.0 * misses / (references(&of_neighbour) - references(&before)) as f64;
    first.disconnect()?;
    neighbour.disconnect()?;
    Ok(Times { first_s, neighbour_s, neighbour_misses, of_first, lists_dropped })
}

fn first_program(
    host: &Host,
    program: Program,
    seed: u64,
    client: &mut Client<UnixStream>,
    done: &AtomicUsize,
) -> anyhow::Result<f64> {
    match program {
        Program::Loop { .. } => drive(client, ROUNDS * LOOP as usize, THINK, done, |at| Ok(at as u64 % LOOP)),
        Program::Work { lies } => {
            let mut random = Rng::with_seed(seed + 1000);
            drive(client, LIAR_READS, THINK, done, |at| {
                if lies && at % LIES_EVERY == 0 {
                    host.hint(&lies_of(&mut random))?;
                }
                Ok(random.u64(..HOT))
            })
        }
    }
}

/// Which block the neighbour reads.
fn neighbour(at: usize, random: &mut Rng) -> u64 {
    match at % COLD {
        0 => NEIGHBOUR_HOT + random.u64(..50_000),
        _ => random.u64(..NEIGHBOUR_HOT),
    }
}

/// Hints that are as wrong as possible: hot blocks leave first, MRU suits no program less, and blocks that are never read are predicted.
fn lies_of(random: &mut Rng) -> Vec<Directive> {
    let accesses = (0..2000).map(|_| chunk(HOT + random.u64(..50_000), 1)).collect();
    let hot = Directive::SetTemporaryPriority { file: 0, first: 0, last: HOT - 1, priority: -1 };
    vec![mru(), Directive::SetPolicy { priority: -1, policy: Order::Mru }, hot, Directive::Predict { accesses }]
}

fn mru() -> Directive {
    Directive::SetPolicy { priority: 0, policy: Order::Mru }
}

fn chunk(first: u64, blocks: u64) -> Chunk {
    Chunk { file: 0, bytes: Some((first * BLOCK, blocks * BLOCK)) }
}

/// Reads block after block, and returns in how many seconds the first `measured` were read. Goes on until both programs are
/// done with theirs.
fn drive(
    client: &mut Client<UnixStream>,
    measured: usize,
    think: Duration,
    done: &AtomicUsize,
    mut next: impl FnMut(usize) -> anyhow::Result<u64>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut seconds = 0.0;
    for at in 0.. {
        if at == measured {
            seconds = begun.elapsed().as_secs_f64();
            done.fetch_add(1, Ordering::Relaxed);
        }
        if at >= measured && done.load(Ordering::Relaxed) >= 2 {
            break;
        }
        client.read(next(at)? * BLOCK, BLOCK as usize)?;
        if think > Duration::ZERO {
            std::thread::sleep(think);
        }
    }
    Ok(seconds)
}

impl Host {
    fn process(folder: &Path) -> anyhow::Result<Host> {
        let mut serve = nigh()?;
        serve
            .args(["serve", "--readahead", "none"])
            .args(EXPORTS.map(|name| format!("{name}=delay:{DELAY}:memory:{DISK}")));
        serve.args(["--allocate", "lru-sp", "--log", "error", "--memory", &format!("{}K", CACHE * BLOCK / 1024)]);
        serve.arg("--listen").arg(format!("unix:{}", folder.join("nbd").display()));
        serve.arg("--control").arg(folder.join("control"));
        let process = serve.stdin(Stdio::null()).spawn().context("starting nigh serve")?;
        let mut host = Host::Process { process, folder: folder.to_owned() };
        let begun = Instant::now();
        while host.connect(EXPORTS[0]).and_then(|client| Ok(client.disconnect()?)).is_err() {
            let Host::Process { process, .. } = &mut host else { unreachable!("it was just made") };
            ensure!(process.try_wait()?.is_none() && begun.elapsed() < Duration::from_secs(10), "it does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(host)
    }

    fn library() -> anyhow::Result<Host> {
        let export = |name| -> anyhow::Result<_> {
            Ok(ExportSettings::new(name, format!("delay:{DELAY}:memory:{DISK}").parse()?))
        };
        let exports = EXPORTS.into_iter().map(export).collect::<Result<_, _>>()?;
        let mut settings = Settings::new(CACHE * BLOCK, "lru".parse()?, exports);
        settings.host.allocate = Some(Allocation::LruSp);
        Ok(Host::Library(Box::new(Service::start(settings)?)))
    }

    fn connect(&self, export: &str) -> anyhow::Result<Client<UnixStream>> {
        let stream = match self {
            Host::Process { folder, .. } => UnixStream::connect(folder.join("nbd"))?,
            Host::Library(server) => {
                let (ours, theirs) = UnixStream::pair()?;
                server.attach(NBD, theirs.try_clone()?.into(), theirs.into(), || ());
                ours
            }
        };
        Ok(Client::connect(stream, export, &[])?)
    }

    /// Says something for the first disk's client.
    fn hint(&self, said: &[Directive]) -> anyhow::Result<()> {
        match self {
            Host::Process { folder, .. } => {
                let event = |directive: &Directive| Event {
                    when: When::Request(0),
                    tenant: Tenant(0),
                    saying: Saying::Directive(directive.clone()),
                };
                let directives = sidecar::write(&said.iter().map(event).collect::<Vec<_>>());
                let hint = Command::Hint { name: EXPORTS[0].to_owned(), files: Vec::new(), directives };
                ControlClient::connect(&folder.join("control"))?.ask(&hint)?;
                Ok(())
            }
            Host::Library(server) => Ok(said.iter().try_for_each(|directive| server.hint(EXPORTS[0], directive))?),
        }
    }

    /// In the order of `EXPORTS`.
    fn status(&self) -> anyhow::Result<Statistics> {
        Ok(match self {
            Host::Process { folder, .. } => ControlClient::connect(&folder.join("control"))?.status()?,
            Host::Library(server) => server.statistics(),
        })
    }

    fn exports(&self) -> anyhow::Result<[ExportStatistics; 2]> {
        self.status()?.exports.try_into().ok().context("two exports")
    }

    fn end(self) -> anyhow::Result<()> {
        match self {
            Host::Process { mut process, .. } => {
                process.kill()?;
                process.wait()?;
                Ok(())
            }
            Host::Library(server) => server.shut_down().map_err(|unwritten| anyhow!("{}", unwritten[0])),
        }
    }
}
