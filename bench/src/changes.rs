//! Memory halved and doubled and policies changed while fio writes and verifies: how long do a client's hits take?
//!
//! One connection hits, one read at a time, in what stays in the cache all the while; fio fills the rest on another disk.
//! Nothing that is read here waits for a device, so what a change costs a hit is its wait for a lock: the longest that an
//! engine holds it is printed first. With fewer processors than there are threads, hits wait for a processor, too, with a
//! change and without.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nigh_control::Directive;
use nigh_engine::{Config, Engine, Successor, Tenants};
use nigh_policy::{Spec, Tenant};
use nigh_service::ControlClient;
use nix::time::{ClockId, clock_gettime};

use crate::engine::{BLOCK, read, with_disk};
use crate::load::{Connection, Order, Reads};
use crate::measure::{load as machine_load, nigh};
use crate::peers::Peer;

/// Memory at the start and between changes, in MiB.
const MEMORY_MIB: u64 = 512;
/// Bytes that are hit.
const HOT: u64 = 32 << 20;
/// Bytes that fio writes, reads and verifies: more than the largest cache holds.
const WORK: &str = "1200M";
/// Longest wait of a hit because of a change.
const GOAL: Duration = Duration::from_millis(2);
/// Changes in turn, each followed by a pause.
const PAUSE: Duration = Duration::from_millis(300);
const POLICIES: [&str; 4] = ["arc", "clock-pro", "s3-fifo", "lirs"];
/// Limit of repeating a command while the server is busy with an earlier one.
const PATIENCE: Duration = Duration::from_secs(10);

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
    steps()?;
    println!();
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
        let fio = fio(folder.path(), &peer.socket)?;
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

/// Prints how long a shard's lock is held for the steps of the same changes, in processor time of this thread: what a hit
/// waits for at most, wherever there are processors enough.
fn steps() -> anyhow::Result<()> {
    // As `nigh serve` does.
    nigh_backend::map_large_allocations();
    println!("processor time of the engine's steps, {MEMORY_MIB} MiB, lirs at first; load {}", machine_load());
    // If blocks come in the order in which they came before, LIRS keeps the most ghosts between two of its hot blocks, and
    // one step, as one hit at another time, may have to pass them all.
    steps_after("random reads", mixed, None)?;
    steps_after("a scan", |at| at, None)?;
    steps_after("random reads, tenants", mixed, Some(Tenants::default()))
}

fn steps_after(what: &str, block: fn(u64) -> u64, tenants: Option<Tenants>) -> anyhow::Result<()> {
    let blocks = |mib: u64| (mib << 20) / BLOCK;
    let mut config = Config { tenants, ..Config::new(blocks(MEMORY_MIB) as u32, "lirs".parse()?) };
    config.capacity_max = blocks(2 * MEMORY_MIB) as u32;
    let disk = blocks(3 * MEMORY_MIB);
    let mut engine = with_disk(config, disk * BLOCK)?;
    let read_some = |engine: &mut Engine| (0..2 * disk).try_for_each(|at| read(engine, block(at) % disk));
    read_some(&mut engine)?;
    println!("{what:24}{:>10}{:>10}{:>10}{:>10}", "steps", "p50, us", "p99, us", "max, us");
    for mib in [MEMORY_MIB / 2, MEMORY_MIB, 2 * MEMORY_MIB, MEMORY_MIB] {
        let took = stepped(&mut engine, |engine| Ok(engine.resize(blocks(mib) as u32)?))?;
        print_steps(&format!("to {mib} MiB"), took);
        read_some(&mut engine)?;
    }
    for policy in POLICIES {
        let spec: Spec = policy.parse()?;
        let took = if engine.hears_tenants() {
            let directive = Directive::SetPolicy { priority: 0, policy: nigh_control::Order::Policy(spec) };
            stepped(&mut engine, |engine| Ok(engine.direct(Tenant(0), &directive)?))?
        } else {
            let next = Successor::new(&spec, &engine.setup(&spec)?)?;
            stepped(&mut engine, |engine| Ok(engine.set_policy(next).map(drop)?))?
        };
        print_steps(&format!("to {policy}"), took);
        drop(engine.take_retired());
        read_some(&mut engine)?;
    }
    Ok(())
}

/// A number that looks random (the last steps of SplitMix64).
fn mixed(at: u64) -> u64 {
    let at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let at = (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (at ^ at >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

/// The processor time of what begins a change and of each of its steps, in ns.
fn stepped(engine: &mut Engine, change: impl FnOnce(&mut Engine) -> anyhow::Result<()>) -> anyhow::Result<Vec<u64>> {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let begin = now()?;
    change(engine)?;
    let mut took = vec![(now()? - begin).as_nanos() as u64];
    while engine.is_changing() {
        let begin = now()?;
        engine.step(0);
        took.push((now()? - begin).as_nanos() as u64);
    }
    Ok(took)
}

fn print_steps(name: &str, took: Vec<u64>) {
    let of = latencies(took);
    let [p50, p99, most] = [of.p50, of.p99, of.most].map(|ns| ns as f64 / 1e3);
    println!("  {name:22}{:>10}{p50:>10.1}{p99:>10.1}{most:>10.1}", of.count);
}

fn serve(folder: &Path, control: &Path, tenants: bool) -> anyhow::Result<Peer> {
    let socket = folder.join("socket");
    let mut command = nigh()?;
    command.args([
        "serve",
        "--readahead",
        "none",
        "--memory",
        &format!("{MEMORY_MIB}M"),
        "--memory-max",
        &format!("{}M", 2 * MEMORY_MIB),
    ]);
    command.args(["--log", "warn"]).arg("--control").arg(control);
    command.args(if tenants { ["--allocate", "lru-sp"] } else { ["--policy", "lirs"] });
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    command.arg(format!("hot=memory:{}M", HOT >> 20)).arg(format!("work=memory:{WORK}"));
    Peer::unpinned(&mut command, &socket)
}

/// Writes and reads that go on until they are ended.
fn fio(folder: &Path, socket: &Path) -> anyhow::Result<Child> {
    let mut fio = Command::new("fio");
    fio.args(["--name=work", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k", "--iodepth=8"]);
    fio.args(["--verify=crc32c", "--verify_backlog=512", "--verify_fatal=1", "--time_based", "--runtime=600"]);
    fio.arg(format!("--size={WORK}")).arg("--rate_iops=4000,4000");
    fio.arg(format!("--uri=nbd+unix:///work?socket={}", socket.display()));
    // It leaves a file with its state where it runs.
    fio.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
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
    ask(
        changer,
        took,
        &nigh_service::Command::Set { memory, policy: policy.map(Into::into), readahead: None, slow: None },
    )
}

fn ask(changer: &mut ControlClient, took: &mut Vec<Duration>, command: &nigh_service::Command) -> anyhow::Result<()> {
    let begin = Instant::now();
    // An earlier change may still be under way.
    while let Err(error) = changer.ask(command) {
        ensure!(error.to_string().contains("later") && begin.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
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
    for policy in POLICIES {
        if tenants {
            let directives = format!("[[at]]\nset_policy = [{{ priority = 0, policy = \"{policy}\" }}]\n");
            ask(
                changer,
                took,
                &nigh_service::Command::Hint { name: "work".to_owned(), files: Vec::new(), directives },
            )?;
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
