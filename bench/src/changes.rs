//! Memory halved and doubled and policies changed while fio writes and verifies: how long do a client's hits take?
//!
//! One connection hits, one read at a time, in what stays in the cache all the while; fio fills the rest on another disk.
//! Nothing that is read here waits for a device, so what a change costs a hit is its wait for a lock.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_server::ControlClient;

use crate::load::{Connection, Order, Reads};
use crate::measure::{load as machine_load, nigh};
use crate::peers::Peer;

/// Memory at the start and between changes, in MiB.
const MEMORY_MIB: u64 = 512;
/// What is hit.
const HOT: u64 = 32 << 20;
/// What fio writes, reads and verifies: more than the largest cache holds.
const WORK: &str = "1200M";
/// What no hit may wait because of a change.
const GOAL: Duration = Duration::from_millis(2);
/// Changes in turn, each followed by a pause.
const PAUSE: Duration = Duration::from_millis(300);

/// Of the hits of one phase, in ns.
struct Latencies {
    p50: u64,
    p99: u64,
    most: u64,
    /// Above the goal.
    long: usize,
    count: usize,
}

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    ensure!(rounds > 0, "at least one round");
    println!(
        "{MEMORY_MIB} MiB halved and doubled and policies changed under `fio --verify`; {} MiB of hits one at a time; load {}",
        HOT >> 20,
        machine_load()
    );
    for (name, tenants) in [("no tenants", false), ("tenants", true)] {
        let folder = tempfile::tempdir()?;
        let control = folder.path().join("control");
        let peer = serve(folder.path(), &control, tenants)?;
        let mut connection = Connection::to(&peer.socket, "hot")?;
        connection.read_all(0..HOT)?;
        let fio = fio(&peer.socket)?;
        // The cache is full before anything is measured.
        std::thread::sleep(Duration::from_secs(12));
        let mut changer = ControlClient::connect(&control)?;
        let (mut quiet, mut changing) = (Vec::new(), Vec::new());
        let mut took = Vec::new();
        for _ in 0..rounds {
            quiet.extend(while_doing(&mut connection, || pause(8))?);
            changing.extend(while_doing(&mut connection, || changed(&mut changer, tenants, &mut took))?);
        }
        finish(fio)?;
        println!();
        println!("{name:24}{:>10}{:>10}{:>10}{:>10}{:>12}", "hits", "p50, us", "p99, us", "max, us", "> 2 ms, %");
        let rows = [("  without a change", latencies(quiet)), ("  during changes", latencies(changing))];
        for (phase, of) in &rows {
            let [p50, p99, most] = [of.p50, of.p99, of.most].map(|ns| ns as f64 / 1e3);
            let long = 100.0 * of.long as f64 / of.count as f64;
            println!("{phase:24}{:>10}{p50:>10.1}{p99:>10.1}{most:>10.0}{long:>12.4}", of.count);
        }
        took.sort_unstable();
        let [least, most] = [took.first(), took.last()].map(|time| time.map_or(0.0, Duration::as_secs_f64) * 1e3);
        println!(
            "  {} changes, each done after {least:.0} to {most:.0} ms; fio verified everything that it read",
            took.len()
        );
    }
    Ok(())
}

fn serve(folder: &Path, control: &Path, tenants: bool) -> anyhow::Result<Peer> {
    let socket = folder.join("socket");
    let mut command = nigh()?;
    command.args(["serve", "--memory", &format!("{MEMORY_MIB}M"), "--memory-max", &format!("{}M", 2 * MEMORY_MIB)]);
    command.args(["--log", "warn"]).arg("--control").arg(control);
    command.args(if tenants { ["--allocate", "lru-sp"] } else { ["--policy", "lirs"] });
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    command.arg(format!("hot=memory:{}M", HOT >> 20)).arg(format!("work=memory:{WORK}"));
    Peer::unpinned(&mut command, &socket)
}

/// Writes and reads that go on until they are ended.
fn fio(socket: &Path) -> anyhow::Result<Child> {
    let mut fio = Command::new("fio");
    fio.args(["--name=work", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k", "--iodepth=8"]);
    fio.args(["--verify=crc32c", "--verify_backlog=512", "--verify_fatal=1", "--time_based", "--runtime=600"]);
    fio.arg(format!("--size={WORK}")).arg("--rate_iops=4000,4000");
    fio.arg(format!("--uri=nbd+unix:///work?socket={}", socket.display()));
    fio.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    fio.spawn().context("fio is in Debian's package fio")
}

/// Ends fio, which must not have found anything wrong.
fn finish(mut fio: Child) -> anyhow::Result<()> {
    ensure!(fio.try_wait()?.is_none(), "fio ended early: what it read was wrong");
    let id = nix::unistd::Pid::from_raw(fio.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT)?;
    let output = fio.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!said.contains("verify:"), "fio: {said}");
    Ok(())
}

/// The latencies of hits while `what` goes on.
fn while_doing(
    connection: &mut Connection,
    what: impl FnOnce() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Vec<u64>> {
    let over = AtomicBool::new(false);
    let reads = Reads { range: 0..HOT, length: 4096, order: Order::Random, depth: 1 };
    std::thread::scope(|scope| {
        let doing = scope.spawn(|| {
            let result = what();
            over.store(true, Ordering::Relaxed);
            result
        });
        let found = connection.read_until(&reads, |_, _| over.load(Ordering::Relaxed));
        doing.join().expect("a change does not panic")?;
        Ok(found?.latencies_ns)
    })
}

fn pause(times: u32) -> anyhow::Result<()> {
    std::thread::sleep(PAUSE * times);
    Ok(())
}

fn set(
    changer: &mut ControlClient,
    took: &mut Vec<Duration>,
    memory_mib: Option<u64>,
    policy: Option<&str>,
) -> anyhow::Result<()> {
    let memory = memory_mib.map(|mib| mib << 20);
    ask(changer, took, &nigh_server::Control::Set { memory, policy: policy.map(Into::into), readahead: None })
}

fn ask(changer: &mut ControlClient, took: &mut Vec<Duration>, command: &nigh_server::Control) -> anyhow::Result<()> {
    let begin = Instant::now();
    changer.ask(command)?;
    took.push(begin.elapsed());
    pause(1)
}

/// Half, as before, double, as before.
fn resized(changer: &mut ControlClient, took: &mut Vec<Duration>) -> anyhow::Result<()> {
    for memory in [MEMORY_MIB / 2, MEMORY_MIB, 2 * MEMORY_MIB, MEMORY_MIB] {
        set(changer, took, Some(memory), None)?;
    }
    Ok(())
}

/// The same, and then policies: the cache's, or with tenants those of a tenant's blocks.
fn changed(changer: &mut ControlClient, tenants: bool, took: &mut Vec<Duration>) -> anyhow::Result<()> {
    resized(changer, took)?;
    for policy in ["arc", "clock-pro", "s3-fifo", "lirs"] {
        if tenants {
            let directives = format!("[[at]]\nset_policy = [{{ priority = 0, policy = \"{policy}\" }}]\n");
            ask(changer, took, &nigh_server::Control::Hint { name: "work".to_owned(), files: Vec::new(), directives })?;
        } else {
            set(changer, took, None, Some(policy))?;
        }
    }
    Ok(())
}

fn latencies(mut all: Vec<u64>) -> Latencies {
    all.sort_unstable();
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
    let long = all.iter().filter(|ns| **ns > GOAL.as_nanos() as u64).count();
    Latencies { p50: at(0.5), p99: at(0.99), most: at(1.0), long, count: all.len() }
}
