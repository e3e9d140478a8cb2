//! `cargo run --release -p nigh-engine --example vopr -- --seed N [--seeds COUNT] [--steps STEPS]`: simulates the
//! engine for each seed from N on; a failure names its seed.

#[path = "../tests/simulation/mod.rs"]
mod simulation;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use simulation::{Plan, run};

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
        eprintln!("seed {seed} fails; --seed {seed} --steps {steps} does exactly the same");
        std::process::exit(1);
    }));
    let began = Instant::now();
    let (mut requests, mut operations, mut crashes, mut failed) = (0, 0, 0, 0);
    let (mut refused, mut adopted, mut joined) = (0, 0, 0);
    let (mut said, mut prefetched, mut prefetch_used, mut overruled, mut mistakes, mut lists_dropped) =
        (0, 0, 0, 0, 0, 0);
    for seed in first..first + count {
        SEED.store(seed, Ordering::Relaxed);
        let done = run(Plan { seed, steps, ..Plan::default() });
        requests += done.requests;
        operations += done.operations;
        crashes += done.crashes;
        failed += done.failed;
        refused += done.refused;
        adopted += done.adopted;
        joined += done.joined;
        said += done.said;
        prefetched += done.prefetched;
        prefetch_used += done.prefetch_used;
        overruled += done.overruled;
        mistakes += done.mistakes;
        lists_dropped += done.lists_dropped;
    }
    println!(
        "{count} seeds in {:.1?}: {requests} requests ({failed} failed, {refused} refused, {joined} blocks joined a load, \
         {adopted} were adopted), {operations} device operations, {crashes} crashes; tenants said {said} things, \
         {prefetched} blocks were prefetched ({prefetch_used} used), {lists_dropped} lists dropped, {overruled} decisions \
         overruled, {mistakes} of them wrongly",
        began.elapsed()
    );
}
