//! `nigh serve` on a disk that a model slows down, against the simulation of the same requests.
//!
//! The requests are those of a sparse matrix multiplied by a vector (DULO, 4.2.4): the matrix is read from first to last,
//! with reads of the vector's blocks between, again and again. One client, which asks when it has been answered.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_trace::Request;
use nigh_trace::write::{WriteOptions, Writer};
use serde_json::Value;

use crate::measure::{self, load, nigh};
use crate::peers::Peer;

/// The first is what the others are compared with.
const POLICIES: [&str; 3] = ["clock", "dulo", "lirs"];
const DEVICE: &str = "hdd-10k";
const DISK_BYTES: u64 = 9_105_018_880;
/// How much faster than the disk the live one is.
const SPEED: f64 = 5.0;
const MEMORY: &str = "40M";
const MIB: u64 = 1 << 20;
const MATRIX: std::ops::Range<u64> = 2048 * MIB..2096 * MIB;
const MATRIX_READ: u64 = 64 << 10;
/// Its blocks lie anywhere in a region twice its size.
const VECTOR: std::ops::Range<u64> = 6000 * MIB..6048 * MIB;
const VECTOR_BLOCKS: usize = 6144;
const BLOCK: u64 = 4096;
/// Reads of the vector behind each of the matrix.
const VECTOR_READS: usize = 4;
const ROUNDS: usize = 5;
const SEED: u64 = 1;
/// How far the ratios may lie apart.
const WITHIN: f64 = 0.2;

struct Times {
    live_s: f64,
    simulated_s: f64,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let requests = requests();
    let disk = folder.path().join("disk");
    std::fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    let trace = folder.path().join("requests.csv");
    let mut writer = Writer::create(&trace, &WriteOptions { format: None, block_bytes: BLOCK as u32 })?;
    writer.push(&requests)?;
    writer.finish()?;

    println!(
        "{} reads, one at a time, at {DEVICE} ({SPEED} times as fast live), {MEMORY} of memory, Linux read-ahead, \
         deadline; load {}",
        requests.len(),
        load()
    );
    println!("{:8}{:>12}{:>14}{:>10}{:>16}", "policy", "live, s", "simulated, s", "by clock", "simulated so");
    let mut all: Vec<Times> = Vec::new();
    for policy in POLICIES {
        let live_s = live(policy, folder.path(), &disk, &requests)?;
        all.push(Times { live_s, simulated_s: simulated(policy, &trace)? });
        let (now, clock) = (&all[all.len() - 1], &all[0]);
        let ratios = (now.live_s / clock.live_s, now.simulated_s / clock.simulated_s);
        let agree = (ratios.0 / ratios.1 - 1.0).abs() <= WITHIN;
        println!(
            "{policy:8}{:>12.1}{:>14.1}{:>10.3}{:>16.3}  {}",
            now.live_s,
            now.simulated_s,
            ratios.0,
            ratios.1,
            if agree { "within a fifth" } else { "apart" }
        );
    }
    Ok(())
}

fn requests() -> Vec<Request> {
    let mut random = Rng::with_seed(SEED);
    let mut places: Vec<u64> = VECTOR.step_by(BLOCK as usize).collect();
    random.shuffle(&mut places);
    places.truncate(VECTOR_BLOCKS);
    let mut requests = Vec::new();
    let read = |offset, length| Request { offset, length, ..Request::default() };
    for _ in 0..ROUNDS {
        for offset in MATRIX.step_by(MATRIX_READ as usize) {
            requests.push(read(offset, MATRIX_READ as u32));
            for _ in 0..VECTOR_READS {
                requests.push(read(places[random.usize(..places.len())], BLOCK as u32));
            }
        }
    }
    requests
}

/// Seconds of the disk as fast as it is.
fn live(policy: &str, folder: &Path, disk: &Path, requests: &[Request]) -> anyhow::Result<f64> {
    let socket = folder.join(format!("{policy}.socket"));
    let mut serve = nigh()?;
    serve.arg("serve").arg(format!("=delay:disk={DEVICE},speed={SPEED}:{}", disk.display()));
    serve.arg("--listen").arg(format!("unix:{}", socket.display())).args(["--policy", policy, "--memory", MEMORY]);
    serve.args(["--readahead", "linux", "--scheduler", "deadline", "--shards", "1", "--depth", "1", "--log", "error"]);
    let server = Peer::start(&mut serve, &socket)?;
    let mut client = Client::connect(UnixStream::connect(&server.socket)?, "", &[])?;
    let begun = Instant::now();
    for request in requests {
        let bytes = client.read(request.offset, request.length as usize)?;
        ensure!(bytes.len() == request.length as usize, "a short reply");
    }
    let elapsed = begun.elapsed();
    client.disconnect()?;
    Ok(elapsed.as_secs_f64() * SPEED)
}

fn simulated(policy: &str, trace: &Path) -> anyhow::Result<f64> {
    let mut command = nigh()?;
    command.arg("sim").arg(trace).args(["--device", DEVICE, "--readahead", "linux", "--scheduler", "deadline"]);
    command.args(["--think", "0ms", "--policy", policy, "--size", MEMORY, "--json"]);
    let printed: Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
    printed["results"][0]["execution_s"].as_f64().context("nigh sim gives no times")
}
