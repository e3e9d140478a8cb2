//! Cost of an addition for each request, checksums in memory or encoded blocks: two servers, with and without it, in
//! turns.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nigh_nbd::client::Client;
use nigh_service::{ContentSettings, DiskSettings, ExportSettings, Scheme, Service, Settings};
use rustix::time::{ClockId, clock_gettime};

use crate::load::{Connection, Order, Reads};
use crate::measure::{load, median, nigh};
use crate::peers::Peer;

/// Bytes that fit the servers' caches, and the size of their disks.
const HOT: u64 = 32 << 20;
const DISK: u64 = 256 << 20;
/// Writes on their way.
const DEPTH: usize = 16;

/// The addition that is compared with its absence.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Addition {
    /// `--verify`
    Checksums,
    /// `--content`
    Content,
}

impl Addition {
    /// How much it may add to the processor time of a hit.
    fn goal(self) -> f64 {
        match self {
            Addition::Checksums => 1.02,
            Addition::Content => 1.03,
        }
    }

    fn flag(self, with: bool) -> String {
        match self {
            Addition::Checksums => format!("--verify={with}"),
            Addition::Content => format!("--content={}", if with { "sketch" } else { "none" }),
        }
    }
}

/// A server, and a connection for each kind of request.
struct Side {
    peer: Peer,
    reads: Connection,
    writes: Client<UnixStream>,
    seed: fastrand::Rng,
}

#[derive(Clone, Copy)]
enum Kind {
    Hit,
    Miss,
    Write,
}

impl Side {
    fn start(folder: &Path, addition: Addition, with: bool) -> anyhow::Result<Side> {
        let socket = folder.join(if with { "with" } else { "without" });
        let mut command = nigh()?;
        command.args(["serve", "--memory", "64M", "--policy", "lru", "--log", "warn"]);
        command.arg(addition.flag(with)).arg(format!("--listen=unix:{}", socket.display()));
        command.arg("disk=memory:256M");
        let peer = Peer::start(&mut command, &socket)?;
        let reads = Connection::to(&socket, "disk")?;
        let writes = Client::connect(UnixStream::connect(&socket)?, "disk", &[])?;
        Ok(Side { peer, reads, writes, seed: fastrand::Rng::with_seed(1) })
    }

    fn write_for(&mut self, how_long: Duration) -> anyhow::Result<usize> {
        let (begin, mut count, data) = (Instant::now(), 0, [7; 4096]);
        while begin.elapsed() < how_long || self.writes.in_flight() > 0 {
            while begin.elapsed() < how_long && self.writes.in_flight() < DEPTH {
                self.writes.submit_write(self.seed.u64(..DISK / 4096) * 4096, &data, false)?;
                count += 1;
            }
            self.writes.receive()?;
        }
        self.writes.flush()?;
        Ok(count)
    }

    /// Processor time of the server for each request, in µs.
    fn us_each(&mut self, kind: Kind, how_long: Duration) -> anyhow::Result<f64> {
        let range = if let Kind::Hit = kind { 0..HOT } else { 0..DISK };
        if let Kind::Hit = kind {
            self.reads.read_all(range.clone())?;
        }
        let before = self.peer.cpu()?;
        let count = match kind {
            Kind::Hit | Kind::Miss => {
                let reads = Reads { range, length: 4096, order: Order::Random, depth: DEPTH };
                self.reads.read_for(&reads, how_long)?.latencies_ns.len()
            }
            Kind::Write => self.write_for(how_long)?,
        };
        Ok((self.peer.cpu()? - before).as_secs_f64() * 1e6 / count as f64)
    }
}

/// A cache in this process, all of whose disk is in memory.
fn library(addition: Addition, with: bool) -> anyhow::Result<Service> {
    let disk = ExportSettings::from(DiskSettings::new("disk", "memory:32M".parse()?));
    let mut settings = Settings::new(2 * HOT, "lru".parse()?, vec![disk]);
    match addition {
        Addition::Checksums => settings.host.verify = with,
        Addition::Content => {
            let content = ContentSettings { scheme: Scheme::Sketch, cpu: ContentSettings::CPU };
            settings.host.content = with.then_some(content);
        }
    }
    Ok(Service::start(settings)?)
}

/// Time of a hit in this process, in µs, without that of other threads.
fn us_a_hit(server: &Service, how_long: Duration) -> anyhow::Result<f64> {
    let session = server.host().open("disk")?;
    let mut bytes = vec![0; 4096];
    (0..HOT / 4096).try_for_each(|block| session.read(block * 4096, &mut bytes))?;
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let (mut random, mut count) = (fastrand::Rng::with_seed(1), 0);
    let (begin, before) = (Instant::now(), cpu());
    while begin.elapsed() < how_long {
        for _ in 0..1000 {
            session.read(random.u64(..HOT / 4096) * 4096, &mut bytes)?;
        }
        count += 1000;
    }
    Ok((cpu() - before) / f64::from(count))
}

pub(crate) fn run(addition: Addition, rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir()?;
    let mut sides = [Side::start(folder.path(), addition, false)?, Side::start(folder.path(), addition, true)?];
    let libraries = [library(addition, false)?, library(addition, true)?];
    println!("requests of 4 KiB, processor time, {rounds} rounds of {} s; load {}", how_long.as_secs_f64(), load());
    println!("{:24}{:>9}{:>9}{:>8}{:>9}  held", "us a request", "without", "with", "ratio", "goal");
    let most = addition.goal();
    let row = |name: &str, goal: bool, measure: &mut dyn FnMut(usize) -> anyhow::Result<f64>| {
        let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // Each begins as often as the other.
            let order = [round % 2, (round + 1) % 2];
            let mut took = [0.0; 2];
            for side in order {
                took[side] = measure(side)?;
            }
            without.push(took[0]);
            with.push(took[1]);
            ratios.push(took[1] / took[0]);
        }
        let ratio = median(&mut ratios);
        let (limit, held) =
            if goal { (format!("<= {most}"), if ratio <= most { "yes" } else { "no" }) } else { ("-".into(), "-") };
        println!("{name:24}{:>9.3}{:>9.3}{ratio:>8.3}{limit:>9}  {held}", median(&mut without), median(&mut with));
        anyhow::Ok(())
    };
    row("hit, in the process", true, &mut |side| us_a_hit(&libraries[side], how_long))?;
    row("hit, over NBD", true, &mut |side| sides[side].us_each(Kind::Hit, how_long))?;
    row("miss, over NBD", false, &mut |side| sides[side].us_each(Kind::Miss, how_long))?;
    row("write, over NBD", false, &mut |side| sides[side].us_each(Kind::Write, how_long))?;
    sides.into_iter().try_for_each(|side| side.peer.end())
}
