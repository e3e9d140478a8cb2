//! One server for hours. A client checks all that it reads, while neighbours of every kind come and go, devices fall ill and
//! an administrator changes everything. Between the episodes it rests; what it has then, and how long requests take, must
//! be in the end what it was in the beginning.

mod admin;
mod meter;
mod owner;
mod plot;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use nigh_service::{Command, ControlClient, ExportOptions};
use nigh_testkit::fuse::Mounted;

use crate::measure::{folder, load, nigh};
use crate::neighbours::hostile::{CLIENTS, DISK, Hostile, SLOW, WORKING};
use crate::neighbours::sick::{DEVICES, Sick, Symptom};
use crate::neighbours::{Place, free_address};
use crate::peers::Peer;
use crate::times::{KINDS, Times};
use meter::{FIGURES, Figures, figures};
use owner::Owner;

/// How long an episode is, in seconds.
const EPISODE: std::ops::Range<f64> = 2.0..12.0;
/// After an episode: until everything is as before, and then this time is measured.
const SETTLE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(2);
/// How long neighbours may need to end when they are asked to.
const PATIENCE: Duration = Duration::from_secs(60);
const SAMPLE: Duration = Duration::from_secs(1);
/// How much more than in the first third of the moments of rest there may be in the last third: of each of `FIGURES`, whose
/// medians are compared, and then of each of `KINDS`, whose lowest tenths are, because other programs use the machine, too.
/// Each as a factor, and an addition.
const GOALS: [(f64, f64); 7] = [(1.05, 2.0), (1.0, 1.0), (1.0, 1.0), (1.5, 50.0), (1.5, 0.0), (1.5, 50.0), (1.5, 0.0)];

/// At a moment of rest, or a second, since the start in seconds.
struct Sample {
    at_s: f64,
    figures: Figures,
}

/// The end of an episode with its rest.
struct Rest {
    sample: Sample,
    /// p99 of each of `KINDS`, in microseconds.
    p99_us: [f64; 4],
}

/// Folder and files.
struct Rig {
    folder: tempfile::TempDir,
    socket: PathBuf,
    control: PathBuf,
    metrics: std::net::SocketAddr,
    sick: Arc<Sick>,
    /// `None` where no FUSE file system can be mounted.
    mounted: Option<Mounted>,
}

impl Rig {
    fn new() -> anyhow::Result<Rig> {
        let folder = tempfile::tempdir()?;
        owner::prepare(&folder.path().join("own"))?;
        for name in ["fast", "slow"] {
            std::fs::File::create(folder.path().join(name))?.set_len(DISK)?;
        }
        let sick = Arc::new(Sick::default());
        let mount = folder.path().join("sick");
        std::fs::create_dir(&mount)?;
        let mounted = sick.mount(&mount);
        if let Err(error) = &mounted {
            println!("skipped: sick devices: no FUSE file system can be mounted: {error}");
        }
        let (socket, control) = (folder.path().join("socket"), folder.path().join("control"));
        Ok(Rig { socket, control, metrics: free_address()?, sick, mounted: mounted.ok(), folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn serve(&self, log: &Path) -> anyhow::Result<Peer> {
        let target = |name: &str, slow: &str| format!("{name}={slow}{}", self.path(name).display());
        let mut command = nigh()?;
        command.args(["serve", "--memory", &admin::MEMORY.to_string(), "--policy", admin::POLICY, "--log", "error"]);
        command.args(["--metrics", &self.metrics.to_string()]);
        command
            .arg("--control")
            .arg(&self.control)
            .arg("--level")
            .arg(format!("file:{}:128M", self.path("level").display()));
        command.arg("--listen").arg(format!("unix:{}", self.socket.display()));
        command.args([target("own", "delay:500us:"), target("fast", ""), target("slow", SLOW)]);
        command.stderr(std::fs::File::create(log).with_context(|| log.display().to_string())?);
        Peer::unpinned(&mut command, &self.socket)
    }

    fn place<'a>(&'a self, export: &'a str, over: &'a AtomicBool) -> Place<'a> {
        Place { socket: &self.socket, metrics: self.metrics, export, over }
    }

    /// A device that falls ill while clients work with it, and gets well again.
    fn sickness(&self, file: &Path, symptom: Symptom, over: &AtomicBool) -> anyhow::Result<()> {
        let mut control = ControlClient::connect(&self.control)?;
        let (name, target) = ("sick".to_owned(), file.display().to_string());
        control.ask(&Command::AddExport { name, target, options: ExportOptions::default(), take_over: false })?;
        let place = self.place("sick", over);
        std::thread::scope(|scope| {
            scope.spawn(|| WORKING.attack(&place));
            std::thread::sleep(Duration::from_millis(300));
            self.sick.fall_ill(symptom);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
            self.sick.heal();
        });
        control.ask(&Command::RemoveExport { name: "sick".into(), discard: true })?;
        Ok(())
    }
}

/// Events beside the client at a time.
struct Episode {
    neighbours: Vec<&'static Hostile>,
    sickness: Option<(&'static str, Symptom)>,
    is_changed: bool,
    lasts: Duration,
}

impl Episode {
    fn draw(random: &mut Rng) -> Episode {
        let neighbours = (0..random.usize(..3)).map(|_| &CLIENTS[random.usize(..CLIENTS.len())]).collect();
        let device = DEVICES[random.usize(..DEVICES.len())];
        let sickness = device.symptom().map(|symptom| (device.name(), symptom)).filter(|_| random.bool());
        let lasts = EPISODE.start + random.f64() * (EPISODE.end - EPISODE.start);
        Episode { neighbours, sickness, is_changed: random.bool(), lasts: Duration::from_secs_f64(lasts) }
    }

    fn name(&self) -> String {
        let mut names: Vec<&str> = self.neighbours.iter().map(|neighbour| neighbour.name).collect();
        names.extend(self.sickness.map(|(name, _)| name));
        names.extend(self.is_changed.then_some("changes"));
        if names.is_empty() { "none".into() } else { names.join("; ") }
    }

    /// Plays it, and waits until all of it has ended.
    fn play(&self, rig: &Rig, random: &mut Rng, server: &mut Option<Peer>) -> anyhow::Result<()> {
        let over = AtomicBool::new(false);
        let mut random = random.fork();
        std::thread::scope(|scope| {
            let over = &over;
            let mut running: Vec<(&str, ScopedJoinHandle<anyhow::Result<()>>)> = Vec::new();
            for neighbour in &self.neighbours {
                let place = rig.place(if neighbour.device == SLOW { "slow" } else { "fast" }, over);
                let attack = move || {
                    neighbour.attack(&place);
                    Ok(())
                };
                running.push((neighbour.name, scope.spawn(attack)));
            }
            if let (Some((name, symptom)), Some(mounted)) = (self.sickness, &rig.mounted) {
                running.push((name, scope.spawn(move || rig.sickness(mounted.file(), symptom, over))));
            }
            if self.is_changed {
                let administer = move || admin::administer(&rig.control, rig.folder.path(), &mut random, over);
                running.push(("changes", scope.spawn(administer)));
            }
            std::thread::sleep(self.lasts);
            over.store(true, Ordering::Relaxed);
            let told = Instant::now();
            let mut stuck = None;
            for (name, running) in running {
                while !running.is_finished() && told.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(10));
                }
                if !running.is_finished() {
                    stuck = Some(name);
                    // Nobody waits for a server that is gone.
                    drop(server.take());
                }
                let ended = running.join().expect("no thread panics");
                if stuck.is_none() {
                    ended.context(name)?;
                }
            }
            match stuck {
                Some(name) => bail!("{name}: still waits for the server after {} s", PATIENCE.as_secs()),
                None => Ok(()),
            }
        })
    }
}

pub(crate) fn run(how_long: Duration, seed: u64) -> anyhow::Result<()> {
    let kept = folder()?;
    let [log, table, picture] = ["soak.log", "soak.csv", "soak.svg"].map(|name| kept.join(name));
    let rig = Rig::new()?;
    let mut random = Rng::with_seed(seed);
    let mut server = Some(rig.serve(&log)?);
    let process = server.as_ref().map(Peer::id).context("a server")?;
    println!(
        "seed {seed}, {:.2} hours; load {}; the server's log: {}",
        how_long.as_secs_f64() / 3600.0,
        load(),
        log.display()
    );
    println!(
        "p99 in us of {}: beside the neighbours, and at rest; then {} at rest",
        KINDS.join(", "),
        FIGURES.join(", ")
    );
    let mut owner = Owner::new(&rig.socket, random.u64(..))?;
    let (begun, over) = (Instant::now(), AtomicBool::new(false));
    let (times, samples) = (Mutex::new(Times::default()), Mutex::new(Vec::new()));
    let taken = || std::mem::take(&mut *times.lock().expect("no thread panics"));
    let sample = || anyhow::Ok(Sample { at_s: begun.elapsed().as_secs_f64(), figures: figures(process)? });
    let mut rests = Vec::new();
    let played = std::thread::scope(|scope| {
        let working = scope.spawn(|| owner.work(&times, &over));
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Ok(sample) = sample() else { break };
                samples.lock().expect("no thread panics").push(sample);
                std::thread::sleep(SAMPLE);
            }
        });
        let mut play = || -> anyhow::Result<()> {
            while begun.elapsed() < how_long {
                let episode = Episode::draw(&mut random);
                taken();
                let name = episode.name();
                episode.play(&rig, &mut random, &mut server)?;
                let beside = p99(&taken());
                std::thread::sleep(SETTLE);
                taken();
                std::thread::sleep(REST);
                let rest = Rest { sample: sample()?, p99_us: p99(&taken()) };
                ensure!(!working.is_finished(), "the client could not go on beside: {name}");
                let [memory, descriptors, threads] = rest.sample.figures;
                let texts = [beside, rest.p99_us].map(|p99| p99.map(|us| format!("{us:7.0}")).concat());
                let at = Duration::from_secs_f64(rest.sample.at_s).as_secs();
                println!(
                    "{:02}:{:02}:{:02} {} |{} | {memory:6.1} {descriptors:3} {threads:3}  {name}",
                    at / 3600,
                    at / 60 % 60,
                    at % 60,
                    texts[0],
                    texts[1]
                );
                rests.push(rest);
            }
            Ok(())
        };
        let played = play();
        over.store(true, Ordering::Relaxed);
        // Its result is the cause of everything else.
        working.join().expect("no thread panics").and(played)
    });
    let samples = samples.into_inner().expect("no thread panics");
    write(&table, &samples)?;
    plot::plot(&picture, &samples, &rests)?;
    println!("{}\n{}", table.display(), picture.display());
    played?;
    server.context("a server")?.end()?;
    let blocks = owner.check(&rig.path("own"))?;
    println!("after its end, the file has what was written last to each of {blocks} blocks");
    verdict(&rests)
}

fn p99(times: &Times) -> [f64; 4] {
    std::array::from_fn(|kind| if times.is_empty(kind) { f64::NAN } else { times.p99_us(kind) })
}

fn write(table: &Path, samples: &[Sample]) -> anyhow::Result<()> {
    let mut text = format!("seconds,{}\n", FIGURES.map(|name| name.replace(", ", " in ")).join(","));
    for Sample { at_s, figures } in samples {
        text += &format!("{at_s:.1},{}\n", figures.map(|figure| format!("{figure:.1}")).join(","));
    }
    std::fs::write(table, text).with_context(|| table.display().to_string())
}

/// Compares the moments of rest in the beginning and in the end.
fn verdict(rests: &[Rest]) -> anyhow::Result<()> {
    ensure!(rests.len() >= 3, "{} episodes are too few to compare", rests.len());
    let third = rests.len() / 3;
    let all = |rest: &Rest| -> Vec<f64> { rest.sample.figures.into_iter().chain(rest.p99_us).collect() };
    let compared = |rests: &[Rest], at: usize| {
        let mut values: Vec<f64> = rests.iter().map(|rest| all(rest)[at]).collect();
        values.sort_by(f64::total_cmp);
        values[if at < FIGURES.len() { values.len() / 2 } else { values.len() / 10 }]
    };
    let names = FIGURES.map(str::to_owned).into_iter().chain(KINDS.map(|kind| format!("p99 of {kind}, us")));
    println!("{:22}{:>12}{:>12}  flat", "at rest", "first third", "last third");
    let mut grown = Vec::new();
    for (at, (name, (times, more))) in names.zip(GOALS).enumerate() {
        let [first, last] = [&rests[..third], &rests[rests.len() - third..]].map(|rests| compared(rests, at));
        let is_flat = last <= times * first + more;
        println!("{name:22}{first:>12.1}{last:>12.1}  {}", if is_flat { "yes" } else { "no" });
        if !is_flat {
            grown.push(name);
        }
    }
    ensure!(grown.is_empty(), "grew: {}", grown.join("; "));
    Ok(())
}
