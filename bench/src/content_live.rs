//! Virtual disks of machines that are alike, served with and without encoded blocks: reads of the devices, time, and the
//! processor time of the server.
//!
//! Each machine has a client, which reads and writes one block at a time; some blocks much more often than others. Devices
//! answer a request after a millisecond.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use nigh_content::generated::{Machines, written};
use nigh_content::{BLOCK_BYTES, Block};
use nigh_nbd::client::Client;
use nigh_service::{ControlClient, Statistics};

use crate::measure::{load, nigh};
use crate::peers::Peer;

const MACHINES: usize = 5;
/// Blocks of each machine: all disks are three times as large as the memory.
const BLOCKS: usize = 40_000;
const MEMORY: &str = "256M";
/// Requests of each client.
const REQUESTS: usize = 100_000;
/// One request of this many is a write.
const WRITES: usize = 10;

/// Contents of disks.
#[derive(Clone, Copy, PartialEq)]
enum Filling {
    Machines,
    Noise,
}

/// Measurements of a run.
struct Run {
    seconds: f64,
    reads: u64,
    cpu: Duration,
    status: Statistics,
}

fn block(machines: &Machines, filling: Filling, machine: usize, at: usize) -> Block {
    match filling {
        Filling::Machines => machines.bytes(machines.content(machine, at)),
        Filling::Noise => {
            let mut block = [0; BLOCK_BYTES];
            Rng::with_seed((machine * BLOCKS + at) as u64).fill(&mut block);
            block
        }
    }
}

/// Writes the disks of all machines.
fn fill(folder: &Path, machines: &Machines, filling: Filling) -> anyhow::Result<()> {
    for machine in 0..MACHINES {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(folder.join(format!("{machine}.img")))?);
        (0..BLOCKS).try_for_each(|at| file.write_all(&block(machines, filling, machine, at)))?;
        file.flush()?;
    }
    Ok(())
}

/// The client of a machine: reads and writes, and compares what it reads.
fn client(socket: &Path, machines: &Machines, filling: Filling, machine: usize) -> anyhow::Result<()> {
    let mut client = Client::connect(UnixStream::connect(socket)?, &format!("vm{machine}"), &[])?;
    let mut random = Rng::with_seed(machine as u64);
    let mut places: Vec<usize> = (0..BLOCKS).collect();
    random.shuffle(&mut places);
    let mut changed: Vec<Option<u64>> = vec![None; BLOCKS];
    for request in 0..REQUESTS {
        let at = places[(BLOCKS as f64 * random.f64().powi(3)) as usize];
        let offset = (at * BLOCK_BYTES) as u64;
        let now = |version: Option<u64>| {
            let first = block(machines, filling, machine, at);
            version.map_or(first, |seed| match filling {
                Filling::Machines => written(&first, seed),
                Filling::Noise => block(machines, filling, machine, at + BLOCKS * (1 + seed as usize)),
            })
        };
        if random.usize(..WRITES) == 0 {
            let version = Some((request * MACHINES + machine) as u64);
            client.write(offset, &now(version))?;
            changed[at] = version;
            continue;
        }
        let bytes = client.read(offset, BLOCK_BYTES)?;
        // To make the block again takes longer than to read it.
        if request % 50 == 0 {
            ensure!(bytes[..] == now(changed[at])[..], "machine {machine} read a wrong block {at}");
        }
    }
    client.disconnect()?;
    Ok(())
}

fn run_with(folder: &Path, machines: &Machines, filling: Filling, content: &str) -> anyhow::Result<Run> {
    fill(folder, machines, filling)?;
    let (socket, control) = (folder.join("socket"), folder.join("control"));
    let mut serve = nigh()?;
    serve.args([
        "serve",
        "--readahead",
        "none",
        "--memory",
        MEMORY,
        "--memory-max",
        MEMORY,
        "--content",
        content,
        "--log",
        "error",
    ]);
    serve.arg("--listen").arg(format!("unix:{}", socket.display())).arg("--control").arg(&control);
    for machine in 0..MACHINES {
        let path = folder.join(format!("{machine}.img"));
        serve.arg(format!("vm{machine}=delay:1ms:{},share=vms", path.display()));
    }
    let server = Peer::unpinned(&mut serve, &socket)?;
    let (begin, before) = (Instant::now(), server.cpu()?);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..MACHINES)
            .map(|machine| {
                let socket = &socket;
                scope.spawn(move || client(socket, machines, filling, machine))
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), server.cpu()? - before);
    let status = ControlClient::connect(&control)?.status()?;
    let reads = status.exports.iter().map(|export| export.disk.device_reads).sum();
    server.end()?;
    Ok(Run { seconds, reads, cpu, status })
}

pub(crate) fn run(schemes: &[String]) -> anyhow::Result<()> {
    let machines = Machines::new(1, MACHINES, BLOCKS);
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    println!(
        "{MACHINES} machines of {} MiB, {MEMORY} of memory, devices of 1 ms, {REQUESTS} requests each, 1 write of {WRITES}; load {}",
        (BLOCKS * BLOCK_BYTES) >> 20,
        load()
    );
    for (filling, name) in [(Filling::Machines, "contents of machines"), (Filling::Noise, "random bytes")] {
        println!("\n{name}");
        println!(
            "{:12}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>10}{:>10}{:>9}",
            "content", "s", "ratio", "reads", "ratio", "cpu s", "encode s", "encoded", "decoded", "p50 us"
        );
        let mut none: Option<Run> = None;
        for content in schemes {
            let run = run_with(folder.path(), &machines, filling, content).with_context(|| content.clone())?;
            let base = none.as_ref().unwrap_or(&run);
            let of = run.status.host.content.as_ref();
            println!(
                "{content:12}{:>9.1}{:>9.3}{:>10}{:>9.3}{:>9.1}{:>9.1}{:>10}{:>10}{:>9}",
                run.seconds,
                run.seconds / base.seconds,
                run.reads,
                run.reads as f64 / base.reads as f64,
                run.cpu.as_secs_f64(),
                of.map_or(0.0, |of| of.encode_us as f64 / 1e6),
                of.map_or(0, |of| of.encoded),
                of.map_or(0, |of| of.decoded),
                of.map_or(0, |of| of.decode_latency.p50_us),
            );
            if let Some(of) = of {
                println!(
                    "            {} MiB of {} MiB hold {} blocks ({:.2} a page) in {} contents, {} as differences, {} orphans; {} dropped, \
                     {} replaced, {} rejected, {} missing",
                    of.used_bytes >> 20,
                    of.bytes >> 20,
                    of.blocks,
                    of.blocks as f64 * BLOCK_BYTES as f64 / of.used_bytes.max(1) as f64,
                    of.contents,
                    of.differences,
                    of.orphans,
                    of.dropped,
                    of.evictions,
                    of.rejected,
                    of.missing
                );
            }
            none.get_or_insert(run);
        }
    }
    Ok(())
}
