//! Writes to a slow disk with and without a write log: latency, and what both devices write.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nigh_nbd::Command;
use nigh_nbd::client::Client;
use nigh_service::ControlClient;

use crate::measure::{load, nigh};
use crate::peers::Peer;

/// Of the disk.
const BYTES: u64 = 256 << 20;
const BLOCK: u64 = 4096;
/// The part that clients write to again and again: an eighth of the disk.
const HOT: u64 = BYTES / 8 / BLOCK;

/// Name, options of the disk, and whether a flush follows each write.
const SERVERS: [(&str, &str); 3] =
    [("through", ",write-mode=through"), ("write log", ",write-log=LOG"), ("write-back", "")];

/// The load of a client: requests at a time, and writes between two flushes; 0 for no flush.
const WORK: [(&str, usize, u64); 4] =
    [("write", 1, 0), ("write, flush", 1, 1), ("16 at a time", 16, 0), ("16 at a time, flush after 64", 16, 64)];

pub(crate) fn run(how_long: Duration, delay: &str) -> anyhow::Result<()> {
    println!(
        "random writes of 4 KiB to {} MiB of a disk delayed by {delay}, {} s each; load {}",
        (HOT * BLOCK) >> 20,
        how_long.as_secs_f64(),
        load()
    );
    println!(
        "{:30}{:12}{:>10}{:>10}{:>10}{:>14}{:>14}{:>12}",
        "", "", "writes/s", "p50 us", "p99 us", "disk writes", "log writes", "left in log"
    );
    for (work, depth, until_flush) in WORK {
        for (server, options) in SERVERS {
            let folder = tempfile::tempdir()?;
            let [image, log, socket, control] =
                ["image", "log", "socket", "control"].map(|name| folder.path().join(name));
            std::fs::File::create(&image)?.set_len(BYTES)?;
            let options = options.replace("LOG", &format!("{}:1G", log.display()));
            let mut command = nigh()?;
            command.args(["serve", "--memory", "64M", "--log", "warn", "--control"]).arg(&control);
            command.arg("--listen").arg(format!("unix:{}", socket.display()));
            command.arg(format!("disk=delay:{delay}:{}{options}", image.display()));
            let _peer = Peer::unpinned(&mut command, &socket)?;
            let mut latencies = write(&socket, depth, until_flush, how_long)?;
            latencies.sort_unstable();
            let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_micros();
            let status = ControlClient::connect(&control)?.status()?;
            let disk = &status.exports.first().context("there is an export")?.disk;
            let (home, logged, left) = match &disk.write_log {
                Some(log) => (log.home_writes, log.log_writes, log.records),
                None => (disk.device_writes, 0, 0),
            };
            println!(
                "{work:30}{server:12}{:>10.0}{:>10}{:>10}{home:>14}{logged:>14}{left:>12}",
                latencies.len() as f64 / how_long.as_secs_f64(),
                at(0.5),
                at(0.99)
            );
        }
    }
    Ok(())
}

/// The latencies of the writes of one connection; a flush after `until_flush` of them counts as part of the last one.
fn write(
    socket: &std::path::Path,
    depth: usize,
    until_flush: u64,
    how_long: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let failed = |error: nigh_nbd::client::Error| anyhow!("{error}");
    let mut link = Client::connect(UnixStream::connect(socket)?, "disk", &[]).map_err(failed)?;
    let mut random = fastrand::Rng::with_seed(1);
    let (mut latencies, mut begun) = (Vec::new(), HashMap::new());
    let (begin, mut written) = (Instant::now(), 0);
    let data = vec![7; BLOCK as usize];
    while begin.elapsed() < how_long || !begun.is_empty() {
        if begin.elapsed() < how_long && begun.len() < depth {
            let now = Instant::now();
            let cookie = link.submit_write(random.u64(..HOT) * BLOCK, &data, false).map_err(failed)?;
            begun.insert(cookie, now);
            continue;
        }
        let done = link.receive().map_err(failed)?;
        done.result.map_err(|error| anyhow!("{error:?}"))?;
        let began = begun.remove(&done.cookie);
        written += 1;
        if until_flush > 0 && written % until_flush == 0 && depth == 1 {
            link.flush().map_err(failed)?;
        } else if until_flush > 0 && written % until_flush == 0 {
            begun.insert(link.submit(Command::Flush, 0, 0).map_err(failed)?, Instant::now());
        }
        latencies.extend(began.map(|began| began.elapsed()));
    }
    Ok(latencies)
}
