//! Open loops: latencies as queueing theory has them, and requests that do not wait for each other.

use nigh_device::Profile;
use nigh_sim::timed::{Disk, IN_FLIGHT, Outcome, Pace, Program, Setup, Step, What, run};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::simulated::{BLOCK, device, setup};

const MS: u64 = 1_000_000;

fn step(block: u64, think_ns: u64, what: What) -> Step {
    Step { offset: block * BLOCK, think_ns, length: BLOCK as u32, what, disk: 0, stream: 0, content: 0 }
}

fn open(steps: impl IntoIterator<Item = Step>) -> Program {
    Program { name: "p".to_owned(), steps: steps.into_iter().collect(), pace: Pace::Open, ..Program::default() }
}

fn simulate(programs: &[Program], profile: &Profile, capacity: u32) -> Outcome {
    let disks = [Disk { profile, layouts: &[] }];
    let none = nigh_prefetch::Spec::None;
    run(&setup(programs, &disks, &none), &"lru".parse().unwrap(), capacity).unwrap()
}

/// A device that serves one request at a time, in `fixed_us` and a random time of this mean, distributed exponentially.
fn server(fixed_us: u32, random_us: u32) -> Profile {
    let text = format!(
        "kind = 'volume'\ntitle = 'a server'\nbytes = 1_099_511_627_776\ndepth = 1\nread_us = {fixed_us}\nwrite_us = \
         {fixed_us}\njitter_us = {random_us}\niops = 1e9\nio_kib = 1024\nmb_per_s = 1e6\nburst_ms = 1000\n"
    );
    Profile::parse(&text).unwrap()
}

/// Reads of blocks that are never read again, `load` of what a server with 1 ms for each can do, at random times.
fn poisson(requests: u64, load: f64) -> Program {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut gap_ns = || -(1.0 - random.random::<f64>()).ln() * MS as f64 / load;
    open((0..requests).map(|at| step(2 * at, gap_ns() as u64, What::Read)))
}

#[test]
fn latencies_are_those_of_queueing_theory() {
    for (load, requests) in [(0.3, 50_000), (0.6, 100_000), (0.9, 400_000)] {
        let program = [poisson(requests, load)];
        let close = |found: f64, right: f64, what: &str| {
            assert!((found / right - 1.0).abs() < 0.05, "{what} at a load of {load}: {found} ns, in theory {right}");
        };
        // M/D/1, by Pollaczek and Khinchine.
        let fixed = simulate(&program, &server(1000, 0), 1000);
        let right = MS as f64 * (1.0 + load / (2.0 * (1.0 - load)));
        close(fixed.reads.mean().unwrap(), right, "fixed times");
        assert!(!fixed.is_overloaded());
        // M/M/1: latencies are distributed exponentially.
        let random = simulate(&program, &server(0, 1000), 1000);
        let right = MS as f64 / (1.0 - load);
        close(random.reads.mean().unwrap(), right, "random times");
        for share in [0.5, 0.9, 0.99] {
            let quantile = random.reads.quantile(share).unwrap() as f64;
            close(quantile, -(1.0 - share).ln() * right, "a quantile of random times");
        }
        // The device is as busy as the load.
        close(random.device.busy_ns as f64, load * random.execution_ns() as f64, "busy");
    }
}

#[test]
fn a_device_that_cannot_keep_up_is_noticed() {
    let outcome = simulate(&[poisson(20_000, 1.1)], &server(1000, 0), 1000);
    assert!(outcome.is_overloaded() && outcome.was_held);
    // It works all the time, and a tenth of the work is left at the end.
    assert_eq!(outcome.reads.count(), 20_000);
    assert!((19_990 * MS..20_010 * MS).contains(&outcome.execution_ns()), "{}", outcome.execution_ns());
    let behind = outcome.behind_ns as f64 / (20_000.0 * MS as f64 * 0.1 / 1.1);
    assert!((0.8..1.2).contains(&behind), "{behind}");
    // The last requests wait for all that.
    let last = outcome.reads.quantile(1.0).unwrap();
    assert!(last as f64 > 0.8 * outcome.behind_ns as f64 && last < 2 * outcome.behind_ns, "{last}");
}

#[test]
fn nobody_waits_for_others() {
    // Five misses of 10 ms at a time, a hit among them, and then one that finds what was loaded.
    let at_once = (0..5).map(|block| step(10 * block, 0, What::Read));
    let steps = [step(100, 0, What::Read), step(100, 20 * MS, What::Read)];
    let program =
        open(steps.into_iter().chain(at_once).chain([step(100, MS, What::Read), step(40, 10 * MS, What::Read)]));
    let outcome = simulate(&[program], &device(8, 10_000), 100);
    assert_eq!((outcome.cache.misses, outcome.cache.hits), (6, 3));
    assert_eq!((outcome.ends_ns, outcome.waited_ns), (vec![31 * MS], vec![60 * MS]));
    assert_eq!((outcome.reads.quantile(0.33), outcome.reads.count(), outcome.behind_ns), (Some(0), 9, 0));
}

#[test]
fn a_request_that_joins_another_waits_for_the_rest_of_it() {
    let program = open([step(0, 0, What::Read), step(0, 4 * MS, What::Read)]);
    let outcome = simulate(&[program], &device(8, 10_000), 100);
    assert_eq!((outcome.cache.misses, outcome.cache.joined), (1, 1));
    assert_eq!((outcome.ends_ns, outcome.waited_ns, outcome.behind_ns), (vec![10 * MS], vec![16 * MS], 6 * MS));
}

#[test]
fn long_requests_writes_and_trims_come_to_an_end() {
    // Parts of 1 MiB take 1 ms each, one after the other; two long requests at a time do not wait for each other.
    let long = |offset| Step { length: 3 << 20, ..step(offset, 0, What::Read) };
    let outcome = simulate(&[open([long(0), long(10_240)])], &device(8, 1000), 10_000);
    assert_eq!((outcome.ends_ns, outcome.waited_ns), (vec![3 * MS], vec![6 * MS]));
    assert_eq!(outcome.reads.count(), 2);
    // More trims at a time than the engine takes, and more writes than there may be dirty blocks.
    let writes = (0..5000).map(|block| step(2 * block, 1000, What::Write));
    let trims = (0..200).map(|block| Step { length: 1 << 20, ..step(256 * block, 0, What::Trim) });
    let flush = Step { length: 0, ..step(0, 0, What::Flush) };
    let outcome = simulate(&[open(writes.chain(trims).chain([flush]))], &device(8, 1000), 100);
    assert_eq!((outcome.writes.count(), outcome.reads.count()), (5000, 0));
    assert!(outcome.was_held, "5,000 writes in 5 ms");
}

#[test]
fn a_program_in_a_closed_loop_goes_on_beside_one_that_floods() {
    let flood = open((0..10 * IN_FLIGHT as u64).map(|at| step(1000 + 2 * at, 0, What::Read)));
    let closed = Program {
        steps: (0..5).map(|block| step(2 * block, MS, What::Read)).collect(),
        pace: Pace::Closed,
        ..Program::default()
    };
    let outcome = simulate(&[flood, closed], &server(1000, 0), 1000);
    assert_eq!(outcome.reads.count(), 10 * IN_FLIGHT as u64 + 5);
    assert!(!outcome.is_closed && outcome.ends_ns[1] < outcome.ends_ns[0]);
}

#[test]
fn nothing_of_the_warm_up_is_counted_and_runs_repeat() {
    let program = [poisson(20_000, 0.5)];
    let (profile, none) = (server(0, 1000), nigh_prefetch::Spec::None);
    let disks = [Disk { profile: &profile, layouts: &[] }];
    let warm = Setup { warmup: 10_000, ..setup(&program, &disks, &none) };
    let once = run(&warm, &"lru".parse().unwrap(), 100).unwrap();
    assert_eq!(once, run(&warm, &"lru".parse().unwrap(), 100).unwrap());
    // Those in progress at its end are counted, if at all.
    assert!((10_000..10_100).contains(&once.reads.count()), "{}", once.reads.count());
    assert!((once.reads.mean().unwrap() / (2.0 * MS as f64) - 1.0).abs() < 0.1);
    assert!((9_000 * 2 * MS..11_000 * 2 * MS).contains(&once.execution_ns()));
}
