//! The liar and its neighbour on one device, in simulated time: each export of a server has a device of its own, but programs of the
//! timed simulation share one, and its queue, in which reads that somebody waits for go before prefetches.

use anyhow::ensure;
use fastrand::Rng;
use nigh_control::{Config, Directive, Saying};
use nigh_device::Profile;
use nigh_engine::Scheduler;
use nigh_sim::timed::{Disk, Outcome, Processors, Program, Said, Setup, Step, What, run as simulate};

use super::{BLOCK, CACHE, COLD, HOT, LIES_EVERY, NEIGHBOUR_HOT, NEIGHBOUR_READS, THINK, lies_of};

/// From one arm to many requests at once.
const DEVICES: [&str; 4] = ["hdd-7200", "ssd-sata", "ssd-nvme", "net-volume"];
/// The first program is never done before the neighbour.
const FIRST_READS: usize = 100_000;
/// How long the neighbour computes between two reads.
const NEIGHBOUR_THINK_NS: u64 = 50_000;
/// Reads after which the liar replaces its list: the list was dropped as wrong by then, or not yet.
const REPLACED_EVERY: [usize; 2] = [LIES_EVERY, 40];
/// Where the neighbour's blocks begin.
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
    Ok(())
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
    println!("{:12}{:>10}{:>20}{:>20}   of the liar", "neighbour", "silence, s", "without lists", "with lists");
    for device in DEVICES {
        let outcome = |says: &[Said]| pair(device, hot, says.to_vec());
        let [silent, unlisted, listed] = [outcome(&[])?, outcome(&unlisted)?, outcome(&lies)?];
        let [silent_s, unlisted_s, listed_s] = [&silent, &unlisted, &listed].map(|of| of.ends_ns[1] as f64 / 1e9);
        let liar = &listed.tenants[0];
        println!(
            "{device:12}{silent_s:>10.3}{unlisted_s:>10.3}{:>10.3}{listed_s:>10.3}{:>10.3}   lists dropped {}, prefetched {}, used {}",
            unlisted_s / silent_s,
            listed_s / silent_s,
            liar.lists_dropped,
            liar.prefetched,
            liar.used
        );
    }
    Ok(())
}

/// A program that reads `blocks` and says `says`, beside the neighbour.
fn pair(device: &str, blocks: &[u64], says: Vec<Said>) -> anyhow::Result<Outcome> {
    let read = |block: u64, think_ns| Step {
        offset: block * BLOCK,
        think_ns,
        length: BLOCK as u32,
        what: What::Read,
        disk: 0,
        stream: 0,
    };
    let steps = blocks.iter().map(|&block| read(block, THINK.as_nanos() as u64)).collect();
    let first = Program { name: "first".into(), steps, says };
    let mut random = Rng::with_seed(2);
    let steps = (0..NEIGHBOUR_READS).map(|at| {
        let block = super::neighbour(at, &mut random);
        read(NEIGHBOUR_AT + block, NEIGHBOUR_THINK_NS)
    });
    let neighbour = Program { name: "neighbour".into(), steps: steps.collect(), ..Program::default() };
    let profile = Profile::named(device)?;
    let setup = Setup {
        programs: &[first, neighbour],
        block_bytes: BLOCK as u32,
        disks: &[Disk { profile: &profile, layouts: &[] }],
        levels: &[],
        seed: 1,
        readahead: &"none".parse()?,
        scheduler: Scheduler::default(),
        tenants: Some(&Config::default()),
        processors: Processors::Each,
        processor_ns_a_block: 0,
        progress: None,
        stop: None,
    };
    let outcome = simulate(&setup, &"lru".parse()?, CACHE as u32)?;
    ensure!(outcome.ends_ns[0] > outcome.ends_ns[1], "{device}: the first program was done before the neighbour");
    Ok(outcome)
}
