//! `nigh serve` on a disk that a model slows down, against the simulation of the same requests.
//!
//! Each program multiplies a sparse matrix by a vector (DULO, 4.2.4): the matrix is read from first to last, with accesses
//! to the vector's blocks between, again and again. It asks when it has been answered.

mod fio;

use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_trace::write::{Destination, WriteOptions, Writer};
use nigh_trace::{Op, Request};
use serde_json::Value;

use crate::measure::{self, load, nigh};
use crate::peers::Peer;

/// The first is what the others are compared with.
const POLICIES: [&str; 4] = ["clock", "dulo", "lirs", "lru"];
const DEVICE: &str = "hdd-10k";
/// As large as the device.
const MEDIUM: &str = "memory:8891620K";
/// How much faster than the disk the live one is.
const SPEED: u64 = 5;
/// When the deadline scheduler thinks that a read or write is late: Linux's times.
const LATE_MS: [u64; 2] = [500, 5000];
const MIB: u64 = 1 << 20;
const MATRIX_READ: u64 = 64 << 10;
const BLOCK: u64 = 4096;
/// Accesses to the vector behind each read of the matrix.
const VECTOR_ACCESSES: usize = 4;
/// How far the ratios may lie apart.
const WITHIN: f64 = 0.1;

/// The source of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A program that only reads, by our own client
    Client,
    /// Three programs at once that also write, each a job of fio with a connection of its own
    Fio,
}

/// A program.
struct Multiplication {
    matrix: Range<u64>,
    /// Its blocks lie anywhere here.
    vector: Range<u64>,
    vector_blocks: usize,
    /// One access to the vector in this many is a write; 0 for none.
    write_every: usize,
    rounds: usize,
    seed: u64,
}

impl Multiplication {
    fn requests(&self) -> Vec<Request> {
        let mut random = Rng::with_seed(self.seed);
        let mut places: Vec<u64> = self.vector.clone().step_by(BLOCK as usize).collect();
        random.shuffle(&mut places);
        places.truncate(self.vector_blocks);
        let mut requests = Vec::new();
        for _ in 0..self.rounds {
            for offset in self.matrix.clone().step_by(MATRIX_READ as usize) {
                requests.push(Request { offset, length: MATRIX_READ as u32, ..Request::default() });
                for _ in 0..VECTOR_ACCESSES {
                    let offset = places[random.usize(..places.len())];
                    let writes = self.write_every > 0 && random.usize(..self.write_every) == 0;
                    let op = if writes { Op::Write } else { Op::Read };
                    requests.push(Request { op, offset, length: BLOCK as u32, ..Request::default() });
                }
            }
        }
        requests
    }
}

impl Part {
    fn programs(self) -> Vec<Vec<Request>> {
        let programs = match self {
            Part::Client => vec![Multiplication {
                matrix: 2048 * MIB..2096 * MIB,
                vector: 6000 * MIB..6048 * MIB,
                vector_blocks: 6144,
                write_every: 0,
                rounds: 5,
                seed: 1,
            }],
            Part::Fio => (0..3)
                .map(|number| Multiplication {
                    matrix: (2048 + 512 * number) * MIB..(2080 + 512 * number) * MIB,
                    vector: (6000 + 512 * number) * MIB..(6024 + 512 * number) * MIB,
                    vector_blocks: 3072,
                    write_every: 4,
                    rounds: 4,
                    seed: 1 + number,
                })
                .collect(),
        };
        programs.iter().map(Multiplication::requests).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Part::Client => "our own client",
            Part::Fio => "fio",
        }
    }

    fn memory(self) -> &'static str {
        match self {
            Part::Client => "40M",
            Part::Fio => "80M",
        }
    }
}

struct Times {
    live_s: f64,
    simulated_s: f64,
}

pub(crate) fn run(parts: &[Part], rules: &[String]) -> anyhow::Result<()> {
    println!("{DEVICE} ({SPEED} times as fast live), deadline; load {}", load());
    for &part in parts {
        if part == Part::Fio && !fio::speaks_nbd() {
            println!("skipped: bench live, part fio: no fio with an nbd engine is installed");
            continue;
        }
        rules.iter().try_for_each(|rule| compare(part, rule))?;
    }
    Ok(())
}

fn compare(part: Part, rule: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let programs = part.programs();
    let traces: Vec<PathBuf> = (0..programs.len()).map(|number| folder.path().join(format!("{number}.csv"))).collect();
    for (trace, requests) in traces.iter().zip(&programs) {
        let mut writer = Writer::create(
            &Destination::new(trace, true, &[])?,
            &WriteOptions { format: None, block_bytes: BLOCK as u32, taken: None },
        )?;
        writer.push(requests)?;
        writer.finish()?;
    }
    let writes = programs.iter().flatten().filter(|request| request.op == Op::Write).count();
    println!(
        "\n{}: {} requests of {} connections, {writes} of them writes, with {} of memory and --readahead {rule}",
        part.name(),
        programs.iter().map(Vec::len).sum::<usize>(),
        programs.len(),
        part.memory(),
    );
    println!("{:8}{:>12}{:>14}{:>10}{:>16}", "policy", "live, s", "simulated, s", "by clock", "simulated so");
    let mut all: Vec<Times> = Vec::new();
    for policy in POLICIES {
        let live_s = live(part, policy, rule, folder.path(), &programs)?;
        all.push(Times { live_s, simulated_s: simulated(part, policy, rule, &traces)? });
        let (now, clock) = (&all[all.len() - 1], &all[0]);
        let ratios = (now.live_s / clock.live_s, now.simulated_s / clock.simulated_s);
        let agree = (ratios.0 / ratios.1 - 1.0).abs() <= WITHIN;
        println!(
            "{policy:8}{:>12.1}{:>14.1}{:>10.3}{:>16.3}  {}",
            now.live_s,
            now.simulated_s,
            ratios.0,
            ratios.1,
            if agree { "within a tenth" } else { "apart" }
        );
    }
    Ok(())
}

/// Seconds of the disk as fast as it is.
fn live(part: Part, policy: &str, rule: &str, folder: &Path, programs: &[Vec<Request>]) -> anyhow::Result<f64> {
    let socket = folder.join(format!("{policy}.socket"));
    let [read_ms, write_ms] = LATE_MS.map(|late| late / SPEED);
    let mut serve = nigh()?;
    serve.arg("serve").arg(format!("=delay:disk={DEVICE},speed={SPEED}:{MEDIUM}"));
    serve.arg("--listen").arg(format!("unix:{}", socket.display())).args(["--policy", policy]);
    serve.args(["--memory", part.memory(), "--readahead", rule, "--shards", "1", "--depth", "1", "--log", "error"]);
    serve.arg("--scheduler").arg(format!("deadline:read={read_ms}ms:write={write_ms}ms"));
    let server = Peer::start(&mut serve, &socket)?;
    let took = match part {
        Part::Client => programs.iter().try_fold(Duration::ZERO, |sum, one| anyhow::Ok(sum + client(&server, one)?)),
        Part::Fio => fio::run(&server, folder, programs),
    };
    Ok(took?.as_secs_f64() * SPEED as f64)
}

/// Has our own client read, one request at a time.
fn client(server: &Peer, requests: &[Request]) -> anyhow::Result<Duration> {
    let mut client = Client::connect(UnixStream::connect(&server.socket)?, "", &[])?;
    let begun = Instant::now();
    for request in requests {
        let bytes = client.read(request.offset, request.length as usize)?;
        ensure!(bytes.len() == request.length as usize, "a short reply");
    }
    let took = begun.elapsed();
    client.disconnect()?;
    Ok(took)
}

fn simulated(part: Part, policy: &str, rule: &str, traces: &[PathBuf]) -> anyhow::Result<f64> {
    let mut command = nigh()?;
    command.arg("sim").args(traces).args(["--device", DEVICE, "--readahead", rule, "--scheduler", "deadline"]);
    // All are programs at one disk.
    command.args((traces.len() > 1).then_some("--shared"));
    command.args(["--think", "0ms", "--policy", policy, "--size", part.memory(), "--json"]);
    let printed: Value = serde_json::from_str(&measure::run(&mut command)?.stdout)?;
    printed["results"][0]["execution_s"].as_f64().context("nigh sim gives no times")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::digest;

    /// The tables in docs/papers/simulation.md are of these requests.
    #[test]
    fn programs_are_the_same_on_every_run() {
        let [client, fio] = [Part::Client, Part::Fio].map(Part::programs);
        let counts = |programs: &[Vec<Request>]| -> Vec<(usize, usize)> {
            let writes = |requests: &Vec<Request>| requests.iter().filter(|request| request.op == Op::Write).count();
            programs.iter().map(|requests| (requests.len(), writes(requests))).collect()
        };
        assert_eq!(counts(&client), [(19_200, 0)]);
        assert_eq!(counts(&fio), [(10_240, 2045), (10_240, 2043), (10_240, 2062)]);
        let digests: Vec<u64> = client.iter().chain(&fio).map(|requests| digest(requests)).collect();
        assert_eq!(digests, [0xd947b2ba4bc1a335, 0x822d9d14003ba04e, 0x7511d99fb9e9e008, 0x1e39f3a91c1c9a2f]);
    }

    #[test]
    fn a_round_reads_the_matrix_once_and_the_vector_at_random() {
        let program = Multiplication {
            matrix: 10 * MIB..11 * MIB,
            vector: 20 * MIB..21 * MIB,
            vector_blocks: 16,
            write_every: 4,
            rounds: 2,
            seed: 7,
        };
        let requests = program.requests();
        let (matrix, vector): (Vec<&Request>, Vec<&Request>) =
            requests.iter().partition(|request| program.matrix.contains(&request.offset));
        let offsets: Vec<u64> = matrix.iter().map(|request| request.offset).collect();
        let round: Vec<u64> = program.matrix.clone().step_by(MATRIX_READ as usize).collect();
        assert_eq!(offsets, round.repeat(2));
        assert!(matrix.iter().all(|request| request.op == Op::Read && u64::from(request.length) == MATRIX_READ));
        assert_eq!(vector.len(), matrix.len() * VECTOR_ACCESSES);
        assert!(vector.iter().all(|request| program.vector.contains(&request.offset) && request.offset % BLOCK == 0));
        let mut places: Vec<u64> = vector.iter().map(|request| request.offset).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 16);
        let writes = vector.iter().filter(|request| request.op == Op::Write).count();
        assert!((16..=48).contains(&writes), "{writes} of 128 accesses write");
    }
}
