//! Seven caches above one level server: what each has of its memory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_service::{ControlClient, LenderStatistics};

use super::BLOCK;
use super::remote::LevelProcess;
use crate::measure::{self, load, nigh};
use crate::peers::Peer;

/// Data that each reads, in MiB.
const SETS: [u64; 7] = [2, 3, 4, 5, 6, 7, 8];
const MEMORY: &str = "1M";
/// Of all of them.
const LEVEL: &str = "16M";
/// Of each: as much as it could ever have.
const LEVEL_EACH: &str = "16M";
const HOME: &str = "2ms";
/// How long they read in each of two rounds.
const ROUND: Duration = Duration::from_secs(20);

/// A cache with its client.
struct Cache {
    name: String,
    peer: Peer,
    control: PathBuf,
    blocks: u64,
}

impl Cache {
    fn start(folder: &Path, policy: &str, level: &str, mib: u64, number: usize) -> anyhow::Result<Cache> {
        let name = format!("client{number}");
        let (socket, control) = (folder.join(format!("{name}.socket")), folder.join(format!("{name}.control")));
        let mut serve = nigh()?;
        serve.args([
            "serve",
            "--readahead",
            "none",
            "--memory",
            MEMORY,
            "--policy",
            policy,
            "--shards",
            "1",
            "--log",
            "error",
        ]);
        serve.args(["--level", &format!("{level}:{LEVEL_EACH},name={name},required")]);
        serve.arg(format!("=delay:{HOME}:memory:{mib}M")).arg("--control").arg(&control);
        serve.arg("--listen").arg(format!("unix:{}", socket.display()));
        let peer = Peer::unpinned(&mut serve, &socket)?;
        Ok(Cache { name, peer, control, blocks: (mib << 20) / BLOCK })
    }

    /// Reads blocks of its set at random for a while, one at a time.
    fn read_for(&self, how_long: Duration) -> anyhow::Result<()> {
        let mut client = Client::connect(UnixStream::connect(&self.peer.socket)?, "", &[])?;
        let (begun, mut random) = (Instant::now(), Rng::with_seed(self.blocks));
        while begun.elapsed() < how_long {
            client.read(random.u64(..self.blocks) * BLOCK, BLOCK as usize)?;
        }
        client.disconnect()?;
        Ok(())
    }

    /// Reads so far, and of these, those from memory and from the level.
    fn counts(&self) -> anyhow::Result<[u64; 3]> {
        let status = ControlClient::connect(&self.control)?.status()?;
        let disk = &status.exports[0].disk;
        let (reads, homes) = (disk.hits + disk.joined + disk.misses, disk.device_read_bytes / BLOCK);
        Ok([reads, reads - disk.level_hits - homes, disk.level_hits])
    }
}

fn lender(control: &Path) -> anyhow::Result<LenderStatistics> {
    let mut ctl = nigh()?;
    ctl.args(["ctl", "status", "--json", "--control"]).arg(control);
    Ok(serde_json::from_str(&measure::run(&mut ctl)?.stdout)?)
}

pub(super) fn run() -> anyhow::Result<()> {
    ["lru", "ulc"].into_iter().try_for_each(share)
}

/// As `run`, for caches with one policy.
fn share(policy: &str) -> anyhow::Result<()> {
    println!(
        "\n{} caches of {MEMORY} with {policy} above {LEVEL} of one `nigh level`; each reads blocks at random, of sets of {SETS:?} MiB; homes of {HOME}; load {}",
        SETS.len(),
        load()
    );
    let folder = tempfile::tempdir()?;
    let control = folder.path().join("level.control");
    let level = LevelProcess::start_with(LEVEL, |command| _ = command.arg("--control").arg(&control))?;
    let address = format!("tcp:127.0.0.1:{}", level.port);
    let caches: Vec<Cache> = SETS
        .iter()
        .enumerate()
        .map(|(number, &mib)| Cache::start(folder.path(), policy, &address, mib, number))
        .collect::<anyhow::Result<_>>()?;
    for (title, active) in [("all read", SETS.len()), ("the last two are idle", SETS.len() - 2)] {
        let before: Vec<[u64; 3]> = caches.iter().map(Cache::counts).collect::<anyhow::Result<_>>()?;
        std::thread::scope(|scope| {
            let work = |cache| scope.spawn(move || Cache::read_for(cache, ROUND));
            let working: Vec<_> = caches[..active].iter().map(work).collect();
            working.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
        })?;
        let lender = lender(&control)?;
        println!("{title}, {} s", ROUND.as_secs());
        println!(
            "{:12}{:>10}{:>12}{:>14}{:>14}{:>12}",
            "", "set, MiB", "level, MiB", "of the set, %", "in memory, %", "level, %"
        );
        for ((cache, &mib), before) in caches.iter().zip(&SETS).zip(before) {
            let used =
                lender.clients.iter().find(|client| client.name == cache.name).map_or(0, |client| client.used_bytes);
            let now = cache.counts()?;
            let reads = (now[0] - before[0]).max(1) as f64 / 100.0;
            println!(
                "{:12}{mib:>10}{:>12.2}{:>14.1}{:>14.1}{:>12.1}",
                cache.name,
                used as f64 / f64::from(1 << 20),
                used as f64 * 100.0 / (mib << 20) as f64,
                (now[1] - before[1]) as f64 / reads,
                (now[2] - before[2]) as f64 / reads
            );
        }
    }
    let after: Vec<[u64; 3]> = caches.iter().map(Cache::counts).collect::<anyhow::Result<_>>()?;
    let [reads, memory, level] = after.iter().fold([0; 3], |sum, of| [0, 1, 2].map(|at| sum[at] + of[at]));
    println!(
        "of {reads} reads of all: {memory} from memory, {level} from the level, {} from homes",
        reads - memory - level
    );
    caches.into_iter().try_for_each(|cache| cache.peer.end())
}
