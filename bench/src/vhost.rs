//! A machine's disk by shared memory against the same disk over NBD, and against qemu-storage-daemon's: hits, all on one processor.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_testkit::virtio::{Machine, READ, Setup};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::load::{Connection, Found, Order, Reads, stamp};
use crate::measure::{load as machine_load, median, nigh};

/// Bytes that are read again and again; every server has all of them in memory.
const HOT: u64 = 128 << 20;
const BLOCK: u64 = 4096;
/// The processor of all.
const PROCESSOR: usize = 0;
/// Requests at a time.
const DEPTHS: [usize; 3] = [1, 16, 64];
const NAMES: [&str; 4] = ["nigh NBD", "nigh vhost", "nigh poll=20us", "qemu-storage-d."];

/// A comparison: two of `NAMES`, at one of `DEPTHS`, and the goal of the ratio.
struct Row {
    name: &'static str,
    depth: usize,
    of: [usize; 2],
    goal: Goal,
}

enum Goal {
    /// Of the latency of requests one at a time: the median.
    P50(f64),
    /// Of requests a second.
    Rate(f64),
}

const ROWS: [Row; 7] = [
    Row { name: "1 at a time, p50, vhost to NBD", depth: 1, of: [1, 0], goal: Goal::P50(0.85) },
    Row { name: "1 at a time, p50, vhost to qemu", depth: 1, of: [1, 3], goal: Goal::P50(0.5) },
    Row { name: "1 at a time, p50, polled to not", depth: 1, of: [2, 1], goal: Goal::P50(1.0) },
    Row { name: "16 at a time, reads/s, vhost to qemu", depth: 16, of: [1, 3], goal: Goal::Rate(1.5) },
    Row { name: "16 at a time, reads/s, vhost to NBD", depth: 16, of: [1, 0], goal: Goal::Rate(1.3) },
    Row { name: "64 at a time, reads/s, vhost to qemu", depth: 64, of: [1, 3], goal: Goal::Rate(1.0) },
    Row { name: "64 at a time, reads/s, vhost to NBD", depth: 64, of: [1, 0], goal: Goal::Rate(1.4) },
];

/// A server, killed when dropped.
struct Server(Child);

impl Server {
    fn start(mut command: Command, socket: &Path) -> anyhow::Result<Server> {
        let shown = format!("{command:?}").replace('"', "");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut server = Server(process.with_context(|| format!("starting {shown}"))?);
        let begin = Instant::now();
        while !socket.exists() {
            let ended = server.0.try_wait()?;
            ensure!(ended.is_none() && begin.elapsed() < Duration::from_secs(10), "{shown} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to lose, and may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client that reads.
enum Client {
    Nbd(Connection),
    Machine { machine: Box<Machine>, seed: u64 },
}

impl Client {
    fn machine(socket: &Path) -> anyhow::Result<Client> {
        let mut client = Client::Machine { machine: Box::new(Machine::connect(socket, Setup::default())), seed: 1 };
        let Client::Machine { machine, .. } = &mut client else { unreachable!() };
        for at in (0..HOT).step_by(256 << 10) {
            let data = machine.read(at / 512, 256 << 10);
            for (block, bytes) in data.chunks(BLOCK as usize).enumerate() {
                let stamped = u64::from_be_bytes(bytes[..8].try_into()?);
                ensure!(stamped == at + block as u64 * BLOCK, "block {stamped} at {at}");
            }
        }
        Ok(client)
    }

    fn read_for(&mut self, depth: usize, how_long: Duration) -> anyhow::Result<Found> {
        match self {
            Client::Nbd(connection) => {
                let reads = Reads { range: 0..HOT, length: BLOCK, order: Order::Random, depth };
                connection.read_for(&reads, how_long)
            }
            Client::Machine { machine, seed } => read_by_machine(machine, seed, depth, how_long),
        }
    }
}

/// Random reads: as soon as some are over, as many are made available, with one kick.
fn read_by_machine(machine: &mut Machine, seed: &mut u64, depth: usize, most: Duration) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let begin = Instant::now();
    let mut since = vec![begin; depth];
    let mut free: Vec<u16> = (0..depth as u16).collect();
    let mut in_progress = 0;
    loop {
        let now = Instant::now();
        let goes_on = now.duration_since(begin) < most;
        if goes_on {
            for number in free.drain(..) {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                since[usize::from(number)] = now;
                machine.submit(0, number, READ, (*seed >> 33) % (HOT / BLOCK) * (BLOCK / 512), BLOCK as u32);
                in_progress += 1;
            }
            machine.kick(0);
        }
        if in_progress == 0 {
            found.elapsed = begin.elapsed();
            return Ok(found);
        }
        let over = machine.wait(0);
        let now = Instant::now();
        for done in over {
            ensure!(done.status == 0, "a read failed");
            found.latencies_ns.push(now.duration_since(since[usize::from(done.number)]).as_nanos() as u64);
            free.push(done.number);
            in_progress -= 1;
        }
    }
}

pub(crate) fn run(rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let mut set = CpuSet::new();
    set.set(PROCESSOR)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let image = at("image");
    let file = std::fs::File::create(&image)?;
    stamp(&file, 0..HOT)?;
    file.sync_all()?;
    println!("all on processor {PROCESSOR}, load {}; 4 KiB reads of {} MiB in memory", machine_load(), HOT >> 20);
    let [nbd, vhost, polled, qemu] = ["nbd", "vhost", "polled", "qemu"].map(at);
    let mut command = nigh()?;
    command.args(["serve", "--memory", "512M", "--policy", "lirs", "--read-only", "--log", "warn"]);
    command.arg(format!("disk={}", image.display())).arg("--listen").arg(format!("unix:{}", nbd.display()));
    for (socket, more) in [(&vhost, ""), (&polled, ",poll=20us")] {
        command.arg("--vhost-user").arg(format!("disk={}{more}", socket.display()));
    }
    let _nigh = Server::start(command, &polled)?;
    let _qemu =
        Server::start(storage_daemon(&image, &qemu), &qemu).context("it is in Debian's package qemu-system-common")?;
    let mut over_nbd = Connection::to(&nbd, "disk")?;
    over_nbd.read_all(0..HOT)?;
    let mut clients = vec![Client::Nbd(over_nbd)];
    for socket in [&vhost, &polled, &qemu] {
        clients.push(Client::machine(socket)?);
    }
    // By depth, server and round: the median latency, and reads a second.
    let mut figures = vec![vec![Vec::new(); NAMES.len()]; DEPTHS.len()];
    let (mut reads, mut interrupts) = (0, 0);
    for round in 0..rounds {
        for (depth, figures) in DEPTHS.iter().zip(&mut figures) {
            let mut turns: Vec<usize> = (0..NAMES.len()).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for at in turns {
                let before = signals(&clients[at]);
                let mut found = clients[at].read_for(*depth, how_long)?;
                if at == 1 && *depth == 64 {
                    reads += found.latencies_ns.len();
                    interrupts += signals(&clients[at]) - before;
                }
                figures[at].push((found.p50_us(), found.per_second()));
            }
        }
    }
    println!("medians of {rounds} rounds in which the servers take turns of {} s", how_long.as_secs_f64());
    println!("{:24}{:>16}{:>16}{:>16}{:>16}", "", NAMES[0], NAMES[1], NAMES[2], NAMES[3]);
    for (depth, figures) in DEPTHS.iter().zip(&figures) {
        let p50: Vec<f64> =
            figures.iter().map(|all| median(&mut all.iter().map(|one| one.0).collect::<Vec<_>>())).collect();
        let rate: Vec<f64> =
            figures.iter().map(|all| median(&mut all.iter().map(|one| one.1).collect::<Vec<_>>())).collect();
        println!("{depth:>3} at a time: p50, us  {:>16.2}{:>16.2}{:>16.2}{:>16.2}", p50[0], p50[1], p50[2], p50[3]);
        println!("{:>3}             reads/s {:>16.0}{:>16.0}{:>16.0}{:>16.0}", "", rate[0], rate[1], rate[2], rate[3]);
    }
    println!("\n{:40}{:>8}{:>9}  held", "ratio, round by round", "median", "goal");
    for Row { name, depth, of: [own, other], goal } in &ROWS {
        let at = DEPTHS.iter().position(|one| one == depth).context("a depth that is measured")?;
        let pairs = figures[at][*own].iter().zip(&figures[at][*other]);
        let (mut ratios, bound, is_lower): (Vec<f64>, f64, bool) = match goal {
            Goal::P50(bound) => (pairs.map(|(own, other)| own.0 / other.0).collect(), *bound, true),
            Goal::Rate(bound) => (pairs.map(|(own, other)| own.1 / other.1).collect(), *bound, false),
        };
        let ratio = median(&mut ratios);
        let holds = if is_lower { ratio <= bound } else { ratio >= bound };
        let sign = if is_lower { "<=" } else { ">=" };
        println!("{name:40}{ratio:>8.2}{:>9}  {}", format!("{sign} {bound}"), if holds { "yes" } else { "no" });
    }
    let each = reads as f64 / interrupts.max(1) as f64;
    println!("\n64 at a time, vhost: an interrupt for {each:.1} reads (goal: 16 at least)");
    Ok(())
}

/// Interrupts of a machine's driver.
fn signals(client: &Client) -> u64 {
    match client {
        Client::Machine { machine, .. } => machine.signals(0).1,
        Client::Nbd(_) => 0,
    }
}

fn storage_daemon(image: &Path, socket: &Path) -> Command {
    let mut command = Command::new("qemu-storage-daemon");
    command.arg("--blockdev").arg(format!("driver=file,node-name=disk,read-only=on,filename={}", image.display()));
    command.arg("--export");
    command.arg(format!("type=vhost-user-blk,id=disk,node-name=disk,addr.type=unix,addr.path={}", socket.display()));
    command
}
