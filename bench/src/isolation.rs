//! Waits of a client of one export because of another export: beside hostile and clumsy clients, and beside a sick device.
//! The clients' own work is not measured, as if each had a machine of its own: the one that is measured has a processor
//! whenever it wants one, and its neighbours have what nobody else wants.

mod peers;
mod victim;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::measure::{load, median, nigh};
use crate::neighbours::hostile::{self, CLIENTS, COMPUTE, Hostile, WORKING};
use crate::neighbours::sick::{self, DEVICES, Sick, Symptom};
use crate::neighbours::{Place, free_address, priority};
use crate::peers::Peer;
use crate::times::{KINDS, Times};
use victim::Victim;

pub(crate) use peers::run as run_with_peers;

/// Memory of the server.
const MEMORY: &str = "64M";
/// The victim's device: every miss and flush takes as long.
const OWN: &str = "victim=delay:500us:memory:1G";
/// Time of the neighbour before the victim is measured beside it.
const SETTLE: Duration = Duration::from_millis(300);
/// How many times as long as alone p99 may be, of each of `KINDS`.
const GOALS: [f64; 4] = [1.5, 3.0, 3.0, 3.0];

pub(crate) fn run(rounds: usize, how_long: Duration, only: Option<&str>) -> anyhow::Result<()> {
    ensure!(rounds > 0, "a median needs a round");
    println!(
        "p99 of a client with one request at a time, us: alone, beside its neighbour, the ratio, and (the ratio if its \
         neighbour has a server of its own); medians of {rounds} rounds, {} s each",
        how_long.as_secs_f64()
    );
    println!(
        "goals: {}; load {}",
        KINDS.iter().zip(GOALS).map(|(kind, goal)| format!("{kind} <= {goal}")).collect::<Vec<_>>().join(", "),
        load()
    );
    println!("{:34}{}  held", "neighbour", KINDS.map(|kind| format!("{kind:^34}")).concat());
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let mut tally = Tally::default();
    // Not counted: it shows the effect of busy processors on a client without any neighbour. With real-time priorities, the server would
    // get none, or would not notice.
    if is_wanted(COMPUTE.name) && priority()? == 0 {
        Tally::default().print(COMPUTE.name, &rounds_of(rounds, || beside_client(&COMPUTE, how_long))?);
    }
    for client in CLIENTS.iter().filter(|client| is_wanted(client.name)) {
        tally.print(client.name, &rounds_of(rounds, || beside_client(client, how_long)).context(client.name)?);
    }
    for device in DEVICES.iter().filter(|device| is_wanted(device.name())) {
        let times = rounds_of(rounds, || beside_device(*device, how_long)).with_context(|| device.name())?;
        match times.into_iter().collect::<Option<Vec<_>>>() {
            Some(times) => tally.print(device.name(), &times),
            None => println!("{:34}skipped: this system mounts no FUSE file system", device.name()),
        }
    }
    println!(
        "{} of {} figures within their goals; {} of the others are beyond them with a server for each, too",
        tally.held, tally.figures, tally.beyond_both
    );
    Ok(())
}

fn rounds_of<T>(rounds: usize, mut round: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    (0..rounds).map(|_| round()).collect()
}

/// Waits of the victim, alone and beside its neighbour.
struct Round {
    /// Both in one server.
    together: [Times; 2],
    /// In two.
    apart: [Times; 2],
}

#[derive(Default)]
struct Tally {
    figures: usize,
    held: usize,
    /// Beyond their goals, as they are if the neighbour has a server of its own.
    beyond_both: usize,
}

impl Tally {
    /// Prints the row of a neighbour, by what was measured alone and beside it in each round.
    fn print(&mut self, name: &str, rounds: &[Round]) {
        let middle = |figure: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(figure).collect::<Vec<_>>());
        let mut text = format!("{name:34}");
        let before = self.figures - self.held;
        for (kind, goal) in GOALS.iter().enumerate() {
            let ratio_of = |[alone, beside]: &[Times; 2]| beside.p99_us(kind) / alone.p99_us(kind);
            let [alone, beside] = [0, 1].map(|at| middle(&|round| round.together[at].p99_us(kind)));
            let ratio = middle(&|round| ratio_of(&round.together));
            let apart = middle(&|round| ratio_of(&round.apart));
            text += &format!("{alone:>7.0}{beside:>10.0}{ratio:>8.2}{:>9}", format!("({apart:.2})"));
            self.figures += 1;
            self.held += usize::from(ratio <= *goal);
            self.beyond_both += usize::from(ratio.min(apart) > *goal);
        }
        println!("{text}  {}", if self.figures - self.held == before { "yes" } else { "no" });
    }
}

fn beside_client(client: &Hostile, how_long: Duration) -> anyhow::Result<Round> {
    let file = sparse_file()?;
    beside(&format!("{}{}", client.device, text(file.path())?), client, None, how_long)
}

fn sparse_file() -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(hostile::DISK)?;
    Ok(file)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a temporary folder's name is UTF-8")
}

/// `None` if there cannot be such a device here.
fn beside_device(device: sick::Device, how_long: Duration) -> anyhow::Result<Option<Round>> {
    let Some(symptom) = device.symptom() else {
        let file = sparse_file()?;
        return beside(&format!("delay:50ms:{}", text(file.path())?), &WORKING, None, how_long).map(Some);
    };
    let folder = tempfile::tempdir()?;
    let sick = Arc::new(Sick::default());
    let Ok(mounted) = sick.mount(folder.path()) else { return Ok(None) };
    beside(text(mounted.file())?, &WORKING, Some((&sick, symptom)), how_long).map(Some)
}

/// Waits of the victim alone and beside a neighbour on this target, in one server with it and in two.
fn beside(
    target: &str,
    neighbour: &Hostile,
    sick: Option<(&Sick, Symptom)>,
    how_long: Duration,
) -> anyhow::Result<Round> {
    let other = format!("other={target}");
    let round = |served: &[&[&str]]| {
        let folder = tempfile::tempdir()?;
        let metrics = free_address()?;
        let start = |(at, exports): (usize, &&[&str])| {
            let socket = folder.path().join(at.to_string());
            let mut command = nigh()?;
            command.args(["serve", "--memory", MEMORY, "--log", "error"]).args(*exports);
            command.arg("--listen").arg(format!("unix:{}", socket.display()));
            // The last one has the neighbour.
            if at + 1 == served.len() {
                command.args(["--metrics", &metrics.to_string()]);
            }
            Peer::unpinned(&mut command, &socket)
        };
        let servers = served.iter().enumerate().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        let [first, last] =
            [servers.first(), servers.last()].map(|server| server.expect("one at least").socket.clone());
        let victim = Victim::new(&first, "victim", 0)?;
        let place = Place { socket: &last, metrics, export: "other", over: &AtomicBool::new(false) };
        compare(servers, victim, &place, neighbour, sick, how_long)
    };
    Ok(Round { together: round(&[&[OWN, &other]])?, apart: round(&[&[OWN], &[&other]])? })
}

/// Waits of the victim alone, and then beside its neighbour; it ends with the servers.
fn compare(
    servers: Vec<Peer>,
    mut victim: Victim,
    place: &Place,
    neighbour: &Hostile,
    sick: Option<(&Sick, Symptom)>,
    how_long: Duration,
) -> anyhow::Result<[Times; 2]> {
    let alone = victim.measure(how_long)?;
    let beside = std::thread::scope(|scope| {
        if let Some((sick, symptom)) = sick {
            sick.fall_ill(symptom);
        }
        scope.spawn(|| neighbour.attack(place));
        std::thread::sleep(SETTLE);
        let beside = victim.measure(how_long);
        place.over.store(true, Ordering::Relaxed);
        // The kernel ends no process that waits for its device.
        if let Some((sick, _)) = sick {
            sick.heal();
        }
        // A neighbour that waits for its server finds that it is gone.
        drop(servers);
        beside
    });
    Ok([alone, beside?])
}
