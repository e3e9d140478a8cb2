//! The same neighbours on nigh, nbdkit's cache filter and qemu-nbd. The last two have one disk for each process, so here the
//! victim and its neighbour are clients of the same export.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::victim::Victim;
use super::{GOALS, MEMORY, compare};
use crate::measure::{load, median, nigh};
use crate::neighbours::hostile::{CLIENTS, DISK, Hostile};
use crate::neighbours::{Place, free_address};
use crate::peers::Peer;
use crate::times::{KINDS, Times};

/// The victim's part of the disk, behind that of its neighbour.
const OWN: u64 = 1 << 30;

/// A server of one image on a socket.
struct Rival {
    name: &'static str,
    command: fn(image: &Path, socket: &Path) -> anyhow::Result<Command>,
}

const RIVALS: [Rival; 3] = [
    Rival {
        name: "nigh",
        command: |image, socket| {
            let mut command = nigh()?;
            command.args(["serve", "--memory", MEMORY, "--log", "error", "--listen"]);
            command.arg(format!("unix:{}", socket.display())).arg(format!("disk={}", image.display()));
            Ok(command)
        },
    },
    Rival {
        name: "nbdkit, cache filter",
        command: |image, socket| {
            let mut command = Command::new("nbdkit");
            command.args(["--foreground", "--filter=cache", "--unix"]).arg(socket).arg("file").arg(image);
            command.arg("cache-on-read=true");
            Ok(command)
        },
    },
    Rival {
        name: "qemu-nbd",
        command: |image, socket| {
            let mut command = Command::new("qemu-nbd");
            command.args(["--format=raw", "--persistent", "--shared=0", "--aio=io_uring", "--cache=writeback"]);
            command.arg("--socket").arg(socket).arg(image);
            Ok(command)
        },
    },
];

pub(crate) fn run(rounds: usize, how_long: Duration, only: Option<&str>) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!(
        "p99 of a client with one request at a time beside another client of its disk, as a multiple of p99 alone; medians of"
    );
    println!("{rounds} rounds, {} s each; load {}", how_long.as_secs_f64(), load());
    println!("{:34}{}", "", RIVALS.map(|rival| format!("{:^36}", rival.name)).concat());
    let kinds = KINDS.map(|kind| format!("{kind:>9}")).concat();
    println!("{:34}{}", "neighbour", kinds.repeat(RIVALS.len()));
    let mut held = [0; RIVALS.len()];
    let mut rows = 0;
    let is_wanted =
        |client: &&Hostile| client.suits_every_server() && only.is_none_or(|only| client.name.contains(only));
    for client in CLIENTS.iter().filter(is_wanted) {
        rows += 1;
        let mut text = format!("{:34}", client.name);
        for (rival, held) in RIVALS.iter().zip(&mut held) {
            match ratios(rival, client, rounds, how_long) {
                Ok(ratios) => {
                    text += &ratios.map(|ratio| format!("{ratio:>9.2}")).concat();
                    *held += ratios.iter().zip(GOALS).filter(|(ratio, goal)| **ratio <= *goal).count();
                }
                Err(error) => {
                    eprintln!("{} beside {}: {error:#}", rival.name, client.name);
                    text += &format!("{:>36}", "failed");
                }
            }
        }
        println!("{text}");
    }
    let figures = rows * GOALS.len();
    println!(
        "{:34}{}",
        "within the goals",
        held.map(|held| format!("{:>36}", format!("{held} of {figures}"))).concat()
    );
    Ok(())
}

/// Of each of `KINDS`, beside the neighbour to alone.
fn ratios(rival: &Rival, client: &Hostile, rounds: usize, how_long: Duration) -> anyhow::Result<[f64; 4]> {
    let rounds = (0..rounds).map(|_| round(rival, client, how_long)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|kind| {
        let ratio = |[alone, beside]: &[Times; 2]| beside.p99_us(kind) / alone.p99_us(kind);
        median(&mut rounds.iter().map(ratio).collect::<Vec<_>>())
    }))
}

fn round(rival: &Rival, client: &Hostile, how_long: Duration) -> anyhow::Result<[Times; 2]> {
    let folder = tempfile::tempdir()?;
    let (image, socket) = (folder.path().join("image"), folder.path().join("socket"));
    std::fs::File::create(&image)?.set_len(DISK + OWN)?;
    let mut command = (rival.command)(&image, &socket)?;
    // nbdkit keeps its cache there, and the others report each hostile client.
    let command = command.env("TMPDIR", folder.path()).stderr(Stdio::null());
    let server = Peer::unpinned(command, &socket);
    let server = server.context("nbdkit and qemu-nbd are in Debian's packages nbdkit and qemu-utils")?;
    // Only nigh's export has a name, and it is the default one, too.
    let victim = Victim::new(&socket, "", DISK)?;
    let place = Place { socket: &socket, metrics: free_address()?, export: "", over: &AtomicBool::new(false) };
    compare(server, victim, &place, client, None, how_long)
}
