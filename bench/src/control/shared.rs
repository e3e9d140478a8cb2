//! The liar and its neighbour on one device, in simulated time: each export of a server has a device of its own, but programs of the
//! timed simulation share one, and its queue, in which reads that somebody waits for go before prefetches.

use anyhow::ensure;
use fastrand::Rng;
use nigh_control::{Config, Directive, Saying};
use nigh_device::Profile;
use nigh_engine::Scheduler;
use nigh_sim::timed::{Disk, Outcome, Processors, Program, Said, Setup, Step, What, run as simulate};

use super::{BLOCK, CACHE, COLD, HOT, LIES_EVERY, NEIGHBOUR_HOT, NEIGHBOUR_READS, THINK, chunk, lies_of};

/// From one arm to many requests at once.
const DEVICES: [&str; 4] = ["hdd-7200", "ssd-sata", "ssd-nvme", "net-volume"];
/// The first program is never done before the neighbour.
const FIRST_READS: usize = 100_000;
/// How long the neighbour computes between two reads.
const NEIGHBOUR_THINK_NS: u64 = 50_000;
/// Reads after which the liar replaces its list: the list was dropped as wrong by then, or not yet.
const REPLACED_EVERY: [usize; 2] = [LIES_EVERY, 40];
/// Blocks in a list of a program that reads in bursts, and bursts.
const BURST: u64 = 1000;
const BURSTS: u64 = 2;
/// How long it computes before each: enough for any of the devices.
const PAUSE_NS: u64 = 20_000_000_000;
/// Beginning of the neighbour's blocks.
const NEIGHBOUR_AT: u64 = 1 << 16;

pub(super) fn run() -> anyhow::Result<()> {
    println!(
        "lies against silence: reads of {HOT} hot blocks beside {NEIGHBOUR_READS} reads of {NEIGHBOUR_HOT} hot blocks and every {COLD}th of \
         another; cache of {CACHE} blocks, lru-sp, both on one device, in simulated time"
    );
    let mut random = Rng::with_seed(1);
    let hot: Vec<u64> = (0..FIRST_READS).map(|_| random.u64(..HOT)).collect();
    for every in REPLACED_EVERY {
        println!("\na list every {every} reads");
        against_silence(&hot, every, &mut random)?;
    }
    bursts(&mut random)
}

/// Cost of the allowance for an honest program: it sends a list, pauses, and reads all of that at once. Its first list has
/// only the two batches with which a tenant starts.
fn bursts(random: &mut Rng) -> anyhow::Result<()> {
    println!(
        "\na program alone that sends a list of {BURST} blocks, pauses for {} s, and then reads them: what it waited in each burst, s",
        PAUSE_NS / 1_000_000_000
    );
    println!("{:12}{:>10}{:>20}{:>20}", "", "no list", "lists", "no allowance");
    for device in DEVICES {
        let blocks: Vec<u64> = (0..BURSTS * BURST).map(|at| random.u64(..1 << 13) * BURSTS * BURST + at).collect();
        print!("{device:12}");
        for (lists, window) in [(false, 0), (true, Config::WINDOW), (true, 0)] {
            let ends = (1..=BURSTS).map(|bursts| burst(device, &blocks[..(bursts * BURST) as usize], lists, window));
            let ends = ends.collect::<anyhow::Result<Vec<u64>>>()?;
            let waited = |burst: usize| {
                let began = if burst == 0 { 0 } else { ends[burst - 1] };
                (ends[burst] - began - PAUSE_NS) as f64 / 1e9
            };
            let bursts = if lists { 0..BURSTS as usize } else { 0..1 };
            bursts.for_each(|at| print!("{:>10.3}", waited(at)));
        }
        println!();
    }
    Ok(())
}

fn read(block: u64, think_ns: u64) -> Step {
    Step { offset: block * BLOCK, think_ns, length: BLOCK as u32, what: What::Read, disk: 0, stream: 0, content: 0 }
}

/// When a program ends that reads `blocks` in bursts.
fn burst(device: &str, blocks: &[u64], lists: bool, window: u32) -> anyhow::Result<u64> {
    // Each burst begins with the last block of the previous one, at which the next list is sent.
    let (mut steps, mut says) = (Vec::new(), Vec::new());
    for burst in blocks.chunks(BURST as usize) {
        if lists {
            let accesses = burst.iter().map(|&block| chunk(block, 1)).collect();
            says.push(Said { step: steps.len(), saying: Saying::Directive(Directive::Predict { accesses }) });
        }
        steps.push(read(steps.last().map_or(0, |step: &Step| step.offset / BLOCK), 0));
        steps.extend(burst.iter().enumerate().map(|(at, &block)| read(block, if at == 0 { PAUSE_NS } else { 0 })));
    }
    let program = Program { name: "bursts".into(), steps, says, ..Program::default() };
    Ok(run_programs(device, &[program], window)?.ends_ns[0])
}

/// A liar that replaces its list after each `every` reads, on each device.
fn against_silence(hot: &[u64], every: usize, random: &mut Rng) -> anyhow::Result<()> {
    let lies = (0..FIRST_READS).step_by(every).flat_map(|step| {
        let lies = lies_of(random).into_iter();
        lies.map(move |directive| Said { step, saying: Saying::Directive(directive) })
    });
    let lies: Vec<Said> = lies.collect();
    let is_list = |said: &Said| matches!(said.saying, Saying::Directive(Directive::Predict { .. }));
    let unlisted: Vec<Said> = lies.iter().filter(|said| !is_list(said)).cloned().collect();
    println!("{:12}{:>10}{:>20}{:>20}{:>20}", "neighbour", "silence, s", "without lists", "with lists", "no allowance");
    for device in DEVICES {
        let outcome = |says: &[Said], window| pair(device, hot, says.to_vec(), window);
        let silent_s = neighbour_s(&outcome(&[], Config::WINDOW)?);
        let unlisted_s = neighbour_s(&outcome(&unlisted, Config::WINDOW)?);
        let [listed, unlimited] = [Config::WINDOW, 0].map(|window| outcome(&lies, window));
        let [listed, unlimited] = [listed?, unlimited?];
        print!("{device:12}{silent_s:>10.3}{unlisted_s:>10.3}{:>10.3}", unlisted_s / silent_s);
        let runs = [listed, unlimited];
        for run in &runs {
            print!("{:>10.3}{:>10.3}", neighbour_s(run), neighbour_s(run) / silent_s);
        }
        let [listed, unlimited] = runs.map(|run| run.tenants[0]);
        println!(
            "   of the liar: lists dropped {}, prefetched {}, used {}; without allowance {}, {}, {}",
            listed.lists_dropped,
            listed.prefetched,
            listed.used,
            unlimited.lists_dropped,
            unlimited.prefetched,
            unlimited.used
        );
    }
    Ok(())
}

fn neighbour_s(outcome: &Outcome) -> f64 {
    outcome.ends_ns[1] as f64 / 1e9
}

/// A program that reads `blocks` and sends the hints `says`, beside the neighbour. `window` is that of the prefetch allowance.
fn pair(device: &str, blocks: &[u64], says: Vec<Said>, window: u32) -> anyhow::Result<Outcome> {
    let steps = blocks.iter().map(|&block| read(block, THINK.as_nanos() as u64)).collect();
    let first = Program { name: "first".into(), steps, says, ..Program::default() };
    let mut random = Rng::with_seed(2);
    let steps = (0..NEIGHBOUR_READS).map(|at| {
        let block = super::neighbour(at, &mut random);
        read(NEIGHBOUR_AT + block, NEIGHBOUR_THINK_NS)
    });
    let neighbour = Program { name: "neighbour".into(), steps: steps.collect(), ..Program::default() };
    let outcome = run_programs(device, &[first, neighbour], window)?;
    ensure!(outcome.ends_ns[0] > outcome.ends_ns[1], "{device}: the first program was done before the neighbour");
    Ok(outcome)
}

fn run_programs(device: &str, programs: &[Program], window: u32) -> anyhow::Result<Outcome> {
    let profile = Profile::named(device)?;
    let setup = Setup {
        programs,
        block_bytes: BLOCK as u32,
        disks: &[Disk { profile: &profile, layouts: &[] }],
        levels: &[],
        encoded: None,
        seed: 1,
        readahead: &"none".parse()?,
        scheduler: Scheduler::default(),
        tenants: Some(&Config { window, ..Config::default() }),
        processors: Processors::Each,
        processor_ns_a_block: 0,
        warmup: 0,
        progress: None,
        stop: None,
    };
    Ok(simulate(&setup, &"lru".parse()?, CACHE as u32)?)
}
