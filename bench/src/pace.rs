//! Requests at their times: waits of clients of `nigh serve`, and those of the simulation of the same requests.
//!
//! A disk that a model slows down is given a share of the requests that it can serve one after the other. Live, a client sends each
//! request when it is due, whatever has its reply; `nigh sim --pace recorded` replays the same file.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use nigh_nbd::client::Client;
use nigh_trace::write::{Destination, WriteOptions, Writer};
use nigh_trace::{Op, Request};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::measure::{self, load, nigh};
use crate::peers::Peer;

const DEVICE: &str = "hdd-10k";
/// As large as the device.
const MEDIUM: &str = "memory:8891620K";
const MEMORY: &str = "16M";
const REQUESTS: usize = 3_000;
/// Distinct blocks of the workload.
const BLOCKS: u64 = 20_000;
const BLOCK: u64 = 4096;
/// One request in this many is a write.
const WRITE_EVERY: usize = 5;
/// Both parts read and write, and the disk serves one request after the other, in the order in which they came.
const RULES: [&str; 6] = ["--readahead", "none", "--scheduler", "first-come", "--policy", "lirs"];
/// Below saturation, times may lie so far apart.
const WITHIN: f64 = 0.1;

/// Latencies in ms.
#[derive(Clone, Copy)]
struct Found {
    mean: f64,
    p50: f64,
    p99: f64,
}

pub(crate) fn run(loads: &[f64]) -> anyhow::Result<()> {
    println!("{DEVICE}, first-come, lirs with {MEMORY}, {REQUESTS} requests of {BLOCKS} blocks; load {}", load());
    let folder = tempfile::tempdir()?;
    let closed = folder.path().join("closed.csv");
    write(&closed, &requests(0.0))?;
    let mut at_full = simulation(&closed)?;
    at_full.args(["--pace", "closed", "--think", "0ms"]);
    let closed = results(&mut at_full)?;
    let most_a_second = REQUESTS as f64 / number(&closed, "execution_s")?;
    println!("one after the other, it takes {most_a_second:.0} requests a second\n");
    println!("{:>6}{:>22}{:>22}{:>22}", "load", "mean, ms", "p50, ms", "p99, ms");
    for &share in loads {
        let trace = folder.path().join(format!("{share}.csv"));
        let requests = requests(1.0 / (most_a_second * share));
        write(&trace, &requests)?;
        let simulated = simulated(&trace)?;
        let live = live(folder.path(), &requests)?;
        let pair = |live: f64, simulated: f64| {
            format!("{live:9.1} {simulated:9.1}  {}", if agree(live, simulated) { " " } else { "≠" })
        };
        println!(
            "{:>5.0}%{:>22}{:>22}{:>22}",
            100.0 * share,
            pair(live.mean, simulated.mean),
            pair(live.p50, simulated.p50),
            pair(live.p99, simulated.p99)
        );
    }
    println!("\neach pair: live, simulated; ≠: further apart than a tenth, or 0.5 ms");
    Ok(())
}

/// Whether two latencies in ms are as near as the simulation promises.
fn agree(live: f64, simulated: f64) -> bool {
    (live - simulated).abs() <= (WITHIN * simulated).max(0.5)
}

/// Reads and writes at random times, this many seconds apart on average.
fn requests(gap_s: f64) -> Vec<Request> {
    let mut random = Rng::with_seed(5);
    let mut now_ns = 0.0;
    let mut one = |_| {
        now_ns += -(1.0 - random.f64()).ln() * gap_s * 1e9;
        // Few blocks have most of the requests; neighbours in popularity lie far apart.
        let popularity = (random.f64().powi(3) * BLOCKS as f64) as u64;
        let block = popularity * 7_919 % BLOCKS * 100;
        let op = if random.usize(..WRITE_EVERY) == 0 { Op::Write } else { Op::Read };
        Request { time_ns: now_ns as u64, op, offset: block * BLOCK, length: BLOCK as u32, ..Request::default() }
    };
    (0..REQUESTS).map(&mut one).collect()
}

fn write(trace: &Path, requests: &[Request]) -> anyhow::Result<()> {
    let options = WriteOptions { format: None, block_bytes: BLOCK as u32, taken: None };
    let mut writer = Writer::create(&Destination::new(trace, true, &[])?, &options)?;
    writer.push(requests)?;
    writer.finish()?;
    Ok(())
}

fn simulation(trace: &Path) -> anyhow::Result<Command> {
    let mut command = nigh()?;
    command.arg("sim").arg(trace).args(["--device", DEVICE, "--size", MEMORY, "--json"]).args(RULES);
    Ok(command)
}

fn results(command: &mut Command) -> anyhow::Result<Value> {
    let printed: Value = serde_json::from_str(&measure::run(command)?.stdout)?;
    Ok(printed["results"][0].clone())
}

fn number(row: &Value, field: &str) -> anyhow::Result<f64> {
    row[field].as_f64().with_context(|| format!("nigh sim gives no {field}"))
}

fn simulated(trace: &Path) -> anyhow::Result<Found> {
    let row = results(simulation(trace)?.args(["--pace", "recorded"]))?;
    let [mean, p50, p99] = ["latency_mean_us", "latency_p50_us", "latency_p99_us"].map(|field| number(&row, field));
    Ok(Found { mean: mean? / 1e3, p50: p50? / 1e3, p99: p99? / 1e3 })
}

/// Has a server reply to the requests, each sent when it is due.
fn live(folder: &Path, requests: &[Request]) -> anyhow::Result<Found> {
    let socket = folder.join("nbd.socket");
    let mut serve = nigh()?;
    serve.arg("serve").arg(format!("=delay:disk={DEVICE}:{MEDIUM}"));
    serve.arg("--listen").arg(format!("unix:{}", socket.display()));
    serve.args(["--memory", MEMORY, "--shards", "1", "--depth", "1", "--log", "error"]).args(RULES);
    let server = Peer::start(&mut serve, &socket)?;
    let stream = UnixStream::connect(&server.socket)?;
    let readable = stream.try_clone()?;
    let mut client = Client::connect(stream, "", &[])?;
    let mut due_of: HashMap<u64, Duration> = HashMap::new();
    let mut took_ms = Vec::with_capacity(requests.len());
    let block = vec![1; BLOCK as usize];
    let begun = Instant::now();
    let mut left = requests.iter();
    let mut next = left.next();
    while next.is_some() || !due_of.is_empty() {
        let now = begun.elapsed();
        let due = next.map(|request| Duration::from_nanos(request.time_ns));
        if let (Some(request), Some(due)) = (next, due.filter(|due| *due <= now)) {
            let cookie = match request.op {
                Op::Write => client.submit_write(request.offset, &block, false)?,
                _ => client.submit_read(request.offset, vec![0; BLOCK as usize])?,
            };
            due_of.insert(cookie, due);
            next = left.next();
            continue;
        }
        if !client.has_buffered() {
            // In whole milliseconds: the last one is polled away.
            let wait = due.map_or(PollTimeout::MAX, |due| {
                PollTimeout::try_from((due - now).as_millis()).unwrap_or(PollTimeout::MAX)
            });
            if poll(&mut [PollFd::new(readable.as_fd(), PollFlags::POLLIN)], wait)? == 0 {
                continue;
            }
        }
        let done = client.receive()?;
        done.result?;
        let due = due_of.remove(&done.cookie).context("a reply to no request")?;
        took_ms.push((begun.elapsed() - due).as_secs_f64() * 1e3);
    }
    client.disconnect()?;
    server.end()?;
    ensure!(took_ms.len() == requests.len(), "a request without a reply");
    took_ms.sort_by(f64::total_cmp);
    let at = |share: f64| took_ms[((share * took_ms.len() as f64).ceil() as usize).clamp(1, took_ms.len()) - 1];
    Ok(Found { mean: took_ms.iter().sum::<f64>() / took_ms.len() as f64, p50: at(0.5), p99: at(0.99) })
}
