//! Cost of recording for a hit: the same server, recording or not, in turns.

use std::time::Duration;

use anyhow::ensure;
use nigh_service::{Command, ControlClient, Recording};

use crate::load::{Connection, Order, Reads, all_cached, stamp};
use crate::measure::{load, median, nigh};
use crate::peers::Peer;

const HOT: u64 = 64 << 20;
/// Goal of the processor time of a hit, recorded by unrecorded.
const GOAL: f64 = 1.03;

pub(crate) fn run(rounds: usize, how_long: Duration) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    let folder = tempfile::tempdir()?;
    let [image, socket, control] = ["image", "socket", "control"].map(|name| folder.path().join(name));
    let file = std::fs::File::create(&image)?;
    stamp(&file, 0..HOT)?;
    let mut command = nigh()?;
    command.args(["serve", "--memory", "256M", "--read-only", "--log", "warn", "--control"]).arg(&control);
    command.arg("--listen").arg(format!("unix:{}", socket.display())).arg(format!("disk={}", image.display()));
    let peer = Peer::start(&mut command, &socket)?;
    let mut connection = Connection::open(&peer.socket)?;
    connection.read_all(0..HOT)?;
    ensure!(all_cached(&peer.socket, 0..HOT)?, "nigh has not all in its cache");
    let mut client = ControlClient::connect(&control)?;
    println!(
        "hits of 4 KiB, processor time of the server, {rounds} rounds of {} s; load {}",
        how_long.as_secs_f64(),
        load()
    );
    println!("{:34}{:>9}{:>11}{:>8}{:>9}  held", "us a hit", "without", "recording", "ratio", "goal");
    for (name, depth, sample) in
        [("one at a time", 1, None), ("16 at a time", 16, None), ("16 at a time, --sample 1%", 16, Some(0.01))]
    {
        let reads = Reads { range: 0..HOT, length: 4096, order: Order::Random, depth };
        let mut us_a_hit = || {
            let before = peer.cpu()?;
            let hits = connection.read_for(&reads, how_long)?.latencies_ns.len();
            anyhow::Ok((peer.cpu()? - before).as_secs_f64() * 1e6 / hits as f64)
        };
        let (mut without, mut recording, mut ratios, mut lost) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            let alone = us_a_hit()?;
            let trace = Recording {
                file: folder.path().join("trace.parquet"),
                force: true,
                exports: Vec::new(),
                sample,
                seconds: None,
                limit: None,
            };
            client.ask(&Command::Record { recording: trace })?;
            let recorded = us_a_hit()?;
            // The end of the file is written after the last hit, and is not theirs.
            let status = client.ask(&Command::StopRecording {})?.recording;
            lost += status.map_or(0, |status| status.lost);
            without.push(alone);
            recording.push(recorded);
            ratios.push(recorded / alone);
        }
        let ratio = median(&mut ratios);
        let held = if ratio <= GOAL { "yes" } else { "no" };
        println!(
            "{name:34}{:>9.3}{:>11.3}{ratio:>8.3}{:>9}  {held}; {lost} lost",
            median(&mut without),
            median(&mut recording),
            format!("<= {GOAL}")
        );
    }
    peer.end()
}
