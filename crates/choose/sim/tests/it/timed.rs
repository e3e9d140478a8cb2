//! The timed simulation: what it counts, how long things take, and that it does the same twice.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::simulated::{BLOCK, device, setup};
use nigh_device::Profile;
use nigh_policy::Spec;
use nigh_sim::replay::Watch;
use nigh_sim::timed::{Disk, Level, Outcome, Processors, Program, Setup, Step, TimedError, What, run};
use nigh_sim::{Loader, Ops, Options, replay};
use nigh_testkit::workload::mixed;
use nigh_trace::layout::{Extent, Layout};
use nigh_trace::{Op, Request};

const MS: u64 = 1_000_000;

/// A device on which each request takes 1 ms, and `depth` at a time.
fn latency(depth: u32) -> Profile {
    device(depth, 1000)
}

fn program(blocks: impl IntoIterator<Item = u64>, what: What, think_ns: u64) -> Program {
    let step =
        |block| Step { offset: block * BLOCK, think_ns, length: BLOCK as u32, what, disk: 0, stream: 0, content: 0 };
    Program { name: "p".to_owned(), steps: blocks.into_iter().map(step).collect(), ..Program::default() }
}

fn disk(profile: &Profile) -> [Disk<'_>; 1] {
    [Disk { profile, layouts: &[] }]
}

fn policy(name: &str) -> Spec {
    name.parse().unwrap()
}

fn simulate(programs: &[Program], profile: &Profile, readahead: &str, capacity: u32) -> Outcome {
    run(&setup(programs, &disk(profile), &readahead.parse().unwrap()), &policy("lru"), capacity).unwrap()
}

#[test]
fn runs_can_be_stopped() {
    let (programs, profile) = ([program((0..1 << 18).map(|block| block % 100), What::Read, 0)], latency(1));
    let (readahead, stop) = ("none".parse().unwrap(), AtomicBool::new(true));
    let disks = disk(&profile);
    let stopped = Setup { stop: Some(&stop), ..setup(&programs, &disks, &readahead) };
    assert!(matches!(run(&stopped, &policy("lru"), 200), Err(TimedError::Stopped)));
    stop.store(false, Relaxed);
    assert_eq!(run(&stopped, &policy("lru"), 200).unwrap().cache.misses, 100);
}

#[test]
fn a_program_thinks_and_waits() {
    // Five misses and five hits, 2 ms of thought before each.
    let blocks = (0..5).chain(0..5).map(|block| block * 10);
    let outcome = simulate(&[program(blocks, What::Read, 2 * MS)], &latency(1), "none", 100);
    assert_eq!(outcome.ends_ns, [25 * MS]);
    assert_eq!(outcome.waited_ns, [5 * MS]);
    assert_eq!((outcome.cache.hits, outcome.cache.misses), (5, 5));
    assert_eq!((outcome.device.requests, outcome.device.busy_ns), (5, 5 * MS));
    assert_eq!(outcome.sequences.cumulative().collect::<Vec<_>>(), [(1, 1.0)]);
    // Hits take no time, misses 1 ms, whatever the program thinks.
    let [median, slow] = [0.5, 0.99].map(|share| outcome.latencies().quantile(share).unwrap());
    assert_eq!(median, 0);
    assert!((MS..MS + MS / 50).contains(&slow), "{slow}");
}

#[test]
fn a_long_request_has_one_latency() {
    // 3 MiB are three parts of 1 ms each, one after the other.
    let step = Step { offset: 0, think_ns: 0, length: 3 << 20, what: What::Read, disk: 0, stream: 0, content: 0 };
    let long = Program { name: "p".to_owned(), steps: vec![step], ..Program::default() };
    let outcome = simulate(&[long], &latency(1), "none", 1_000);
    let found = outcome.latencies().quantile(1.0).unwrap();
    assert!((found as f64 / outcome.waited_ns[0] as f64 - 1.0).abs() < 0.02, "{found} of {:?}", outcome.waited_ns);
    assert!(found >= 3 * MS);
}

#[test]
fn a_processor_has_work_with_every_block_of_the_device() {
    // Two misses and three hits. The time owed for a load is spent before the next request.
    let programs = [program([0, 10, 0, 10, 0], What::Read, 2 * MS)];
    let (profile, none) = (latency(1), nigh_prefetch::Spec::None);
    let disks = disk(&profile);
    let setup = Setup { processor_ns_a_block: 3 * MS, ..setup(&programs, &disks, &none) };
    let outcome = run(&setup, &policy("lru"), 100).unwrap();
    assert_eq!((outcome.ends_ns, outcome.waited_ns), (vec![(5 * 2 + 2 + 2 * 3) * MS], vec![2 * MS]));
}

#[test]
fn nothing_before_the_end_of_the_warm_up_is_counted() {
    let (profile, none) = (latency(1), nigh_prefetch::Spec::None);
    let disks = disk(&profile);
    // Two misses; two hits and a miss are counted, each after 2 ms, of which the first are before.
    let programs = [program([0, 10, 0, 10, 20], What::Read, 2 * MS)];
    let warm = |warmup| run(&Setup { warmup, ..setup(&programs, &disks, &none) }, &policy("lru"), 100);
    let outcome = warm(2).unwrap();
    assert_eq!((outcome.cache.hits, outcome.cache.misses, outcome.cache.reads), (2, 1, 3));
    assert_eq!((outcome.device.requests, outcome.device.busy_ns, outcome.disks[0].requests), (1, MS, 1));
    assert_eq!((&outcome.ends_ns[..], &outcome.waited_ns[..]), (&[5 * MS][..], &[MS][..]));
    assert_eq!((outcome.latencies().quantile(0.6), outcome.sequences.mean()), (Some(0), Some(1.0)));
    assert!(outcome.latencies().quantile(1.0).unwrap() >= MS);
    assert!(matches!(warm(5), Err(TimedError::Warmup(_))), "nothing is left");

    // A program that waits then goes on to, and is counted from then on.
    let step = |block: u64, think_ns| Step { think_ns, ..program([block], What::Read, 0).steps[0] };
    let slow = Program { steps: vec![step(0, 0), step(5, 0)], ..Program::default() };
    let other = Program { steps: vec![step(0, MS / 2), step(0, 3 * MS)], ..Program::default() };
    let programs = [slow, other];
    let setup = Setup { warmup: 1, ..setup(&programs, &disks, &none) };
    let outcome = run(&setup, &policy("lru"), 100).unwrap();
    assert_eq!(outcome.waited_ns, [MS / 2 + MS, MS / 2]);
    assert_eq!(outcome.ends_ns, [MS / 2 + MS, 3 * MS + MS / 2]);
    assert_eq!((outcome.cache.hits, outcome.cache.joined, outcome.cache.misses), (1, 1, 1));
}

#[test]
fn after_a_warm_up_hits_are_those_of_the_replay() {
    let blocks = mixed(3, 4000, 20_000);
    let (profile, none) = (latency(1), nigh_prefetch::Spec::None);
    let disks = disk(&profile);
    let programs = [program(blocks.iter().copied(), What::Read, 0)];
    let of = |warmup| run(&Setup { warmup, ..setup(&programs, &disks, &none) }, &policy("lirs"), 500).unwrap().cache;
    let first = [program(blocks[..12_000].iter().copied(), What::Read, 0)];
    let before = run(&setup(&first, &disks, &none), &policy("lirs"), 500).unwrap().cache;
    assert_eq!(of(12_000), of(0) - before);
}

#[test]
fn programs_share_the_device_as_far_as_it_goes() {
    let programs: Vec<Program> = (0..4).map(|at| program((0..50).map(|i| at * 1000 + i * 10), What::Read, 0)).collect();
    assert_eq!(simulate(&programs, &latency(1), "none", 1000).execution_ns(), 200 * MS);
    assert_eq!(simulate(&programs, &latency(2), "none", 1000).execution_ns(), 100 * MS);
    let four = simulate(&programs, &latency(4), "none", 1000);
    assert_eq!((four.execution_ns(), four.device.busy_ns, four.device.requests), (50 * MS, 50 * MS, 200));
}

#[test]
fn programs_can_share_a_processor() {
    // A miss and 99 hits each, 2 ms of thought before each.
    let programs: Vec<Program> = (0..2).map(|at| program([at * 10; 100], What::Read, 2 * MS)).collect();
    let (profile, none) = (latency(1), nigh_prefetch::Spec::None);
    let disks = disk(&profile);
    let setup = setup(&programs, &disks, &none);
    let ends = |processors| run(&Setup { processors, ..setup.clone() }, &policy("lru"), 100).unwrap().ends_ns;
    assert_eq!(ends(Processors::Each), [201 * MS, 202 * MS], "one waits for the other's load");
    // Each computes while the other loads, then they take turns of 100 ms.
    assert_eq!(ends(Processors::Turns), [302 * MS, 400 * MS]);
}

#[test]
fn programs_wait_for_the_same_load_once() {
    let programs = vec![program([5, 6], What::Read, 0); 3];
    let outcome = simulate(&programs, &latency(1), "none", 100);
    assert_eq!((outcome.cache.misses, outcome.cache.joined, outcome.device.requests), (2, 4, 2));
    assert_eq!(outcome.ends_ns, [2 * MS; 3]);
}

#[test]
fn long_requests_are_made_in_parts() {
    let step =
        Step { offset: BLOCK / 2, think_ns: MS, length: 3 << 20, what: What::Read, disk: 0, stream: 0, content: 0 };
    let program = Program { name: "p".to_owned(), steps: vec![step], ..Program::default() };
    let outcome = simulate(&[program], &latency(1), "none", 10_000);
    assert_eq!(outcome.cache.misses, 769);
    assert_eq!(outcome.ends_ns, [MS + 4 * MS]);
    assert_eq!(outcome.sequences.cumulative().last(), Some((1024, 1.0)));
}

#[test]
fn writes_are_acknowledged_and_written_later() {
    let outcome = simulate(&[program(0..100, What::Write, 0)], &latency(1), "none", 1000);
    assert_eq!((outcome.execution_ns(), outcome.device.requests), (0, 0));
    // Those that are five seconds old are written: ten operations of 100 or fewer.
    let slow = simulate(&[program(0..100, What::Write, 100 * MS)], &latency(1), "none", 1000);
    assert_eq!(slow.execution_ns(), 10_000 * MS);
    assert!(slow.cache.device_written_bytes >= 40 * BLOCK, "{:?}", slow.cache);
    let mut steps = program(0..10, What::Write, 0).steps;
    steps.push(Step { offset: 0, think_ns: 0, length: 0, what: What::Flush, disk: 0, stream: 0, content: 0 });
    let flushed = simulate(&[Program { name: "p".to_owned(), steps, ..Program::default() }], &latency(1), "none", 1000);
    assert_eq!((flushed.execution_ns(), flushed.cache.device_written_bytes), (2 * MS, 10 * BLOCK));
}

#[test]
fn read_ahead_hides_the_device_from_who_reads_in_order() {
    let programs = [program(0..1000, What::Read, MS)];
    let none = simulate(&programs, &latency(1), "none", 5000);
    assert_eq!(none.execution_ns(), 2000 * MS);
    let linux = simulate(&programs, &latency(1), "linux", 5000);
    // The first read waits for its device; what follows is there in time.
    assert_eq!(linux.execution_ns(), 1001 * MS);
    assert!(linux.device.requests < 40, "{:?}", linux.device);
    let counters = linux.cache;
    assert_eq!(counters.prefetch_used, 999);
    assert!(counters.prefetch_issued - counters.prefetch_used <= 64);
    assert!(linux.hit_ratio() > 0.998);
    // Random reads fetch nothing ahead.
    let random = [program((1..500).map(|i| i * 7919 % 100_003), What::Read, MS)];
    assert_eq!(simulate(&random, &latency(1), "linux", 5000).cache.prefetch_issued, 0);
}

#[test]
fn files_are_read_ahead_across_their_pieces_and_not_beyond_their_ends() {
    let piece = |file, offset: u64, disk: u64, blocks: u64| Extent {
        file,
        offset: offset * BLOCK,
        disk: disk * BLOCK,
        length: blocks * BLOCK,
    };
    let extents = vec![piece(1, 0, 100, 40), piece(1, 40, 5000, 40), piece(2, 0, 140, 100)];
    let layouts = [Layout::new(extents).unwrap()];
    let programs = [program((100..140).chain(5000..5040), What::Read, MS)];
    let (profile, linux) = (latency(1), "linux".parse().unwrap());
    let disks = [Disk { profile: &profile, layouts: &layouts }];
    let setup = setup(&programs, &disks, &linux);
    let outcome = run(&setup, &policy("lru"), 1000).unwrap();
    assert_eq!((outcome.cache.prefetch_issued, outcome.cache.prefetch_wasted), (79, 0));
    assert_eq!(outcome.execution_ns(), 81 * MS);
}

#[test]
fn a_program_beyond_the_device_is_named() {
    let programs = [program([1 << 18], What::Read, 0)];
    let (profile, none) = (latency(1), nigh_prefetch::Spec::None);
    let error = run(&setup(&programs, &disk(&profile), &none), &policy("lru"), 10).unwrap_err().to_string();
    assert!(error.contains("1073741824") && !error.contains('\n'), "{error}");
}

#[test]
fn without_read_ahead_hits_are_those_of_the_replay() {
    let references = mixed(3, 400, 20_000);
    let requests: Vec<Request> = references
        .iter()
        .map(|block| Request { offset: block * BLOCK, length: BLOCK as u32, op: Op::Read, ..Request::default() })
        .collect();
    let options = Options { block_bytes: 4096, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
    let mut loader = Loader::new(options);
    loader.push(&requests).unwrap();
    let numbered = loader.finish();
    let programs = [program(references, What::Read, 0)];
    let profile = Profile::named("hdd-10k").unwrap();
    for info in nigh_policy::registry().iter().filter(|info| !info.offline) {
        let (spec, none) = (policy(info.name), nigh_prefetch::Spec::None);
        let timed = run(&setup(&programs, &disk(&profile), &none), &spec, 64).unwrap();
        // The engine remembers as many ghosts as blocks, the replay all; policies that would remember more differ.
        let counts = replay(&numbered, &spec, 64, None, Watch::default()).unwrap().counts;
        let difference = timed.cache.hits.abs_diff(counts.hits);
        assert!(difference <= counts.references / 50, "{}: {} and {}", info.name, timed.cache.hits, counts.hits);
        if ["lru", "clock", "fifo", "sieve"].contains(&info.name) {
            assert_eq!(timed.cache.hits, counts.hits, "{}", info.name);
        }
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let sequential = program((0..3000).chain(0..3000), What::Read, MS / 20);
    let random = program(mixed(7, 2000, 6000).into_iter().map(|block| 100_000 + block), What::Read, MS / 10);
    let writes = program(mixed(9, 500, 2000).into_iter().map(|block| 200_000 + block), What::Write, MS / 3);
    let programs = [sequential, random, writes];
    let (profile, linux) = (Profile::named("hdd-10k").unwrap(), "linux".parse().unwrap());
    let disks = disk(&profile);
    let mut setup = setup(&programs, &disks, &linux);
    setup.scheduler = "deadline".parse().unwrap();
    let first = run(&setup, &policy("lirs"), 1000).unwrap();
    assert_eq!(first, run(&setup, &policy("lirs"), 1000).unwrap());
    setup.seed = 2;
    assert_ne!(first.ends_ns, run(&setup, &policy("lirs"), 1000).unwrap().ends_ns);
}

#[test]
fn what_left_memory_is_read_from_its_level() {
    // Two blocks of memory, LRU. The first round reads the disk; when block 20 comes, 0 leaves, and so on, so that the second
    // finds each in the level, where 0 is still when it leaves again.
    let programs = [program([0, 10, 20, 0, 10, 20], What::Read, 2 * MS)];
    let (home, faster, none) = (latency(1), device(4, 100), nigh_prefetch::Spec::None);
    let (disks, levels) = (disk(&home), [Level { profile: &faster, bytes: 8 * BLOCK }]);
    let setup = Setup { levels: &levels, ..setup(&programs, &disks, &none) };
    let outcome = run(&setup, &policy("lru"), 2).unwrap();
    assert_eq!((outcome.cache.misses, outcome.cache.device_reads, outcome.cache.level_1_hits), (6, 3, 3));
    assert_eq!((outcome.device.requests, outcome.device.bytes), (3, 3 * BLOCK));
    let [level] = &outcome.levels[..] else { panic!("one level") };
    assert_eq!((level.cache.hits, level.cache.stores, level.cache.evictions, level.cache.mismatches), (3, 3, 0, 0));
    assert_eq!((level.cache.reads, level.cache.writes, level.device.requests), (3, 3, 6));
    // Nobody waits for a store.
    assert_eq!(outcome.ends_ns, [6 * 2 * MS + 3 * MS + 3 * MS / 10]);
    assert_eq!(outcome.waited_ns, [3 * MS + 3 * MS / 10]);
    assert_eq!(outcome.sequences.cumulative().last(), Some((1, 1.0)), "sequences are those of disks");
}

#[test]
fn a_loop_that_a_level_holds_reads_its_disk_once() {
    let programs = [program((0..4).flat_map(|_| 0..1000), What::Read, MS / 10)];
    let (home, faster, none) = (latency(1), device(8, 50), nigh_prefetch::Spec::None);
    let disks = disk(&home);
    let with = |levels: &[Level], policy: &str| {
        run(&Setup { levels, ..setup(&programs, &disks, &none) }, &policy.parse().unwrap(), 200).unwrap()
    };
    for name in ["lru", "lirs", "arc", "s3-fifo", "2q"] {
        let alone = with(&[], name);
        let levels = [Level { profile: &faster, bytes: 1000 * BLOCK }];
        let outcome = with(&levels, name);
        assert_eq!(outcome.cache.device_read_bytes, 1000 * BLOCK, "{name}");
        assert_eq!(outcome.cache.misses, alone.cache.misses, "{name}: what the level has is a miss to the policy");
        assert_eq!(outcome.levels[0].cache.hits, outcome.cache.misses - 1000, "{name}");
        assert!(outcome.execution_ns() < alone.execution_ns(), "{name}");
        assert_eq!(outcome, with(&levels, name), "{name}: another run");
    }
    // Blocks that leave the first of two levels are in the second.
    let two = [300, 1000].map(|blocks| Level { profile: &faster, bytes: blocks * BLOCK });
    let outcome = with(&two, "lru");
    assert_eq!(outcome.cache.device_read_bytes, 1000 * BLOCK);
    assert_eq!(outcome.levels[0].cache.hits + outcome.levels[1].cache.hits, 3000);
    assert!(outcome.levels[1].cache.hits > 0);
}

#[test]
fn what_is_written_is_not_read_from_a_level() {
    // Both blocks are stored; then 0 is overwritten, flushed and leaves memory again.
    let mut programs = [program([0, 10, 20, 30, 0, 10, 20, 0], What::Read, 2 * MS)];
    programs[0].steps[4].what = What::Write;
    programs[0]
        .steps
        .insert(5, Step { offset: 0, think_ns: MS, length: 0, what: What::Flush, disk: 0, stream: 0, content: 0 });
    let (home, faster, none) = (latency(1), device(4, 100), nigh_prefetch::Spec::None);
    let (disks, levels) = (disk(&home), [Level { profile: &faster, bytes: 8 * BLOCK }]);
    let outcome = run(&Setup { levels: &levels, ..setup(&programs, &disks, &none) }, &policy("lru"), 2).unwrap();
    let level = outcome.levels[0].cache;
    assert_eq!((level.invalidations, level.mismatches), (1, 0), "{level:?}");
    assert_eq!((outcome.cache.device_reads, outcome.cache.device_writes), (4, 1));
}

#[test]
fn a_level_is_no_larger_than_its_device() {
    let programs = [program([0], What::Read, 0)];
    let (home, none) = (latency(1), nigh_prefetch::Spec::None);
    let disks = disk(&home);
    for bytes in [0, BLOCK - 1, home.bytes() + 1] {
        let levels = [Level { profile: &home, bytes }];
        let outcome = run(&Setup { levels: &levels, ..setup(&programs, &disks, &none) }, &policy("lru"), 2);
        assert!(matches!(outcome, Err(TimedError::Level { .. })), "{bytes}");
    }
    let levels = [Level { profile: &home, bytes: BLOCK }; 3];
    let three = run(&Setup { levels: &levels, ..setup(&programs, &disks, &none) }, &policy("lru"), 2);
    assert!(three.unwrap_err().to_string().contains("at most two levels"));
}
