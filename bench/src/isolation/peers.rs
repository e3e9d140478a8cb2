//! The same neighbours on nigh, nbdkit's cache filter and qemu-nbd. The last two serve one disk in each process. If the victim
//! and its neighbour have a disk each, nigh serves both in one process, and the others in two.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::victim::Victim;
use super::{GOALS, MEMORY, compare, text};
use crate::measure::{load, median, nigh};
use crate::neighbours::hostile::{CLIENTS, DISK, Hostile, WORKING};
use crate::neighbours::sick::{DEVICES, Sick, Symptom};
use crate::neighbours::{Place, free_address};
use crate::peers::Peer;
use crate::times::{KINDS, Times};

/// The victim's part of a disk that it shares, behind that of its neighbour, and the length of its own disk.
const OWN: u64 = 1 << 30;
/// Time of a slow disk of a hostile client for each request, and of a sick one.
const SLOW: Duration = Duration::from_millis(20);
const SLOWER: Duration = Duration::from_millis(50);
/// Of disks, in this order; the others find a disk by its socket.
const NAMES: [&str; 2] = ["victim", "other"];

/// A server.
struct Rival {
    name: &'static str,
    /// Serves images on a socket: one, or as many as there are.
    command: fn(images: &[&Path], socket: &Path) -> anyhow::Result<Command>,
    serves_all: bool,
}

const RIVALS: [Rival; 3] = [
    Rival {
        name: "nigh",
        command: |images, socket| {
            let mut command = nigh()?;
            command.args(["serve", "--memory", MEMORY, "--log", "error", "--listen"]);
            command.arg(format!("unix:{}", socket.display()));
            for (name, image) in NAMES.iter().zip(images) {
                command.arg(format!("{name}={}", text(image)?));
            }
            Ok(command)
        },
        serves_all: true,
    },
    Rival {
        name: "nbdkit, cache filter",
        command: |images, socket| {
            let mut command = Command::new("nbdkit");
            command.args(["--foreground", "--filter=cache", "--unix"]).arg(socket).arg("file").args(images);
            command.arg("cache-on-read=true");
            Ok(command)
        },
        serves_all: false,
    },
    Rival {
        name: "qemu-nbd",
        command: |images, socket| {
            let mut command = Command::new("qemu-nbd");
            command.args(["--format=raw", "--persistent", "--shared=0", "--aio=io_uring", "--cache=writeback"]);
            command.arg("--socket").arg(socket).args(images);
            Ok(command)
        },
        serves_all: false,
    },
];

/// Whose disk the neighbour uses.
#[derive(Clone, Copy)]
enum Disk {
    Victims,
    Own,
    /// Its own, which falls ill.
    Sick(Symptom),
}

/// A row of the table.
struct Case {
    name: &'static str,
    neighbour: &'static Hostile,
    disk: Disk,
}

/// By what they have in common.
fn cases() -> [(&'static str, Vec<Case>); 3] {
    let clients = || CLIENTS.iter().filter(|client| client.suits_every_server());
    let case = |neighbour: &'static Hostile, disk| Case { name: neighbour.name, neighbour, disk };
    let own = |client: &Hostile| if client.needs_slow_disk() { Disk::Sick(Symptom::Slow(SLOW)) } else { Disk::Own };
    let sick = DEVICES.iter().map(|device| {
        let symptom = device.symptom().unwrap_or(Symptom::Slow(SLOWER));
        Case { name: device.name(), neighbour: &WORKING, disk: Disk::Sick(symptom) }
    });
    [
        ("clients of another disk", clients().map(|client| case(client, own(client))).collect()),
        (
            "clients of the victim's disk",
            clients().filter(|client| !client.needs_slow_disk()).map(|client| case(client, Disk::Victims)).collect(),
        ),
        ("another disk, sick", sick.collect()),
    ]
}

pub(crate) fn run(rounds: usize, how_long: Duration, only: Option<&str>) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!(
        "p99 of a client with one request at a time beside another client, as a multiple of p99 alone; medians of"
    );
    println!("{rounds} rounds, {} s each; load {}", how_long.as_secs_f64(), load());
    let left_out = CLIENTS.iter().filter(|client| !client.suits_every_server()).map(|client| client.name);
    println!("left out, because only nigh has what it needs: {}", left_out.collect::<Vec<_>>().join(", "));
    println!("{:36}{}", "", RIVALS.map(|rival| format!("{:^36}", rival.name)).concat());
    println!("{:36}{}", "neighbour", KINDS.map(|kind| format!("{kind:>9}")).concat().repeat(RIVALS.len()));
    let (mut held, mut figures) = ([0; RIVALS.len()], 0);
    for (group, cases) in cases() {
        let is_wanted = |case: &&Case| only.is_none_or(|only| case.name.contains(only));
        if !cases.iter().any(|case| is_wanted(&case)) {
            continue;
        }
        println!("{group}:");
        for case in cases.iter().filter(is_wanted) {
            figures += GOALS.len();
            let mut text = format!("  {:34}", case.name);
            for (rival, held) in RIVALS.iter().zip(&mut held) {
                match ratios(rival, case, rounds, how_long) {
                    Ok(ratios) => {
                        text += &ratios.map(|ratio| format!("{ratio:>9.2}")).concat();
                        *held += ratios.iter().zip(GOALS).filter(|(ratio, goal)| **ratio <= *goal).count();
                    }
                    Err(error) => {
                        eprintln!("{} beside {}: {error:#}", rival.name, case.name);
                        text += &format!("{:>36}", "failed");
                    }
                }
            }
            println!("{text}");
        }
    }
    println!(
        "{:36}{}",
        "within the goals",
        held.map(|held| format!("{:>36}", format!("{held} of {figures}"))).concat()
    );
    Ok(())
}

/// Of each of `KINDS`, beside the neighbour to alone.
fn ratios(rival: &Rival, case: &Case, rounds: usize, how_long: Duration) -> anyhow::Result<[f64; 4]> {
    let rounds = (0..rounds).map(|_| round(rival, case, how_long)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|kind| {
        let ratio = |[alone, beside]: &[Times; 2]| beside.p99_us(kind) / alone.p99_us(kind);
        median(&mut rounds.iter().map(ratio).collect::<Vec<_>>())
    }))
}

fn sparse(path: PathBuf, length: u64) -> anyhow::Result<PathBuf> {
    std::fs::File::create(&path)?.set_len(length)?;
    Ok(path)
}

fn round(rival: &Rival, case: &Case, how_long: Duration) -> anyhow::Result<[Times; 2]> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let sick = Arc::new(Sick::default());
    // Unmounted after the servers have ended.
    let mut mounted = None;
    let images = match case.disk {
        Disk::Victims => vec![sparse(path("image"), DISK + OWN)?],
        Disk::Own => vec![sparse(path("image"), OWN)?, sparse(path("other"), DISK)?],
        Disk::Sick(_) => {
            std::fs::create_dir(path("sick"))?;
            let disk = sick.mount(&path("sick")).context("a FUSE file system")?;
            vec![sparse(path("image"), OWN)?, mounted.insert(disk).file().to_owned()]
        }
    };
    let images: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let served = if rival.serves_all { vec![&images[..]] } else { images.chunks(1).collect() };
    let mut servers = Vec::new();
    for (at, images) in served.into_iter().enumerate() {
        let socket = path(&format!("socket{at}"));
        let mut command = (rival.command)(images, &socket)?;
        // nbdkit keeps its cache there, and the others report each hostile client.
        let command = command.env("TMPDIR", folder.path()).stderr(Stdio::null());
        let server = Peer::unpinned(command, &socket);
        servers.push(server.context("nbdkit and qemu-nbd are in Debian's packages nbdkit and qemu-utils")?);
    }
    let [first, last] = [servers.first(), servers.last()].map(|server| server.expect("one at least").socket.clone());
    // The default export of a server of one disk; only nigh has several.
    let [own, other] = if rival.serves_all && images.len() > 1 { NAMES } else { [""; 2] };
    let victim = Victim::new(&first, own, if images.len() > 1 { 0 } else { DISK })?;
    let place = Place { socket: &last, metrics: free_address()?, export: other, over: &AtomicBool::new(false) };
    let symptom = if let Disk::Sick(symptom) = case.disk { Some((&*sick, symptom)) } else { None };
    compare(servers, victim, &place, case.neighbour, symptom, how_long)
}
