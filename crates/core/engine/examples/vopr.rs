//! `cargo run --release -p nigh-engine --example vopr -- --seed N [--seeds COUNT] [--steps STEPS]`: simulates the
//! engine for each seed from N on; a failure names its seed.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "not shipped: who starts it reads what it prints")]

#[path = "../tests/it/simulation/mod.rs"]
mod simulation;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use simulation::{Done, Plan, run};

/// The seed that is being simulated.
static SEED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut first, mut count, mut steps) = (0, 1, 600);
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if name == "--seed" => first = value.parse().expect("a number"),
            [name, value] if name == "--seeds" => count = value.parse().expect("a number"),
            [name, value] if name == "--steps" => steps = value.parse().expect("a number"),
            _ => panic!("expected --seed N, --seeds COUNT or --steps STEPS, not {pair:?}"),
        }
    }
    // A hook, since a release build does not unwind.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        let seed = SEED.load(Ordering::Relaxed);
        eprintln!("seed {seed} fails; --seed {seed} --steps {steps} replays it");
        std::process::exit(1);
    }));
    let began = Instant::now();
    let simulate = |seed| {
        SEED.store(seed, Ordering::Relaxed);
        // In some of them, a disk hangs, or memory damages blocks.
        run(Plan { seed, steps, hangs: seed % 8 == 7, damages: seed % 8 == 3, ..Plan::default() })
    };
    let done: Vec<Done> = (first..first + count).map(simulate).collect();
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    println!(
        "{count} seeds in {:.1?}: {} requests ({} failed, {} refused, {} blocks joined a load, {} were adopted), {} device \
         operations, {} crashes; tenants said {} things, {} blocks were prefetched ({} used), {} lists dropped, {} decisions \
         overruled, {} of them wrongly; levels stored {} blocks, returned {} ({} of them decoded, while {} bits flipped in encoded ones), {} were damaged, {} became invalid, {} survived a \
         restart; {} levels were switched off; levels were too slow {} times; {} flushes failed for other engines, after {} failed ones data was lost",
        began.elapsed(),
        sum(|done| done.requests),
        sum(|done| done.failed),
        sum(|done| done.refused),
        sum(|done| done.joined),
        sum(|done| done.adopted),
        sum(|done| done.operations),
        sum(|done| done.crashes),
        sum(|done| done.said),
        sum(|done| done.prefetched),
        sum(|done| done.prefetch_used),
        sum(|done| done.lists_dropped),
        sum(|done| done.overruled),
        sum(|done| done.mistakes),
        sum(|done| done.stores),
        sum(|done| done.level_hits),
        sum(|done| done.decoded),
        sum(|done| done.flipped),
        sum(|done| done.mismatches),
        sum(|done| done.invalidations),
        sum(|done| done.restored),
        sum(|done| done.switched_off),
        sum(|done| done.late),
        sum(|done| done.distrusted),
        sum(|done| done.lost),
    );
}
