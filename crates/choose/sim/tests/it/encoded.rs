//! Encoded blocks in the timed simulation.

use std::io::Write;

use crate::simulated::{BLOCK, device, setup};
use nigh_content::Scheme;
use nigh_content::generated::Machines;
use nigh_control::{Allocation, Config, Saying};
use nigh_sim::contents::{Image, Source};
use nigh_sim::timed::{
    Disk, Encoded, EncodedOutcome, Level, Outcome, Program, Said, Setup, Step, TimedError, What, run,
};
use nigh_testkit::workload::mixed;

const BLOCKS: u64 = 4000;

/// Reads and writes of one disk: one of eight is a write; there are trims, and parts of blocks, too.
fn program(disk: u16) -> Program {
    let blocks = mixed(u64::from(disk) + 3, BLOCKS, 30_000);
    let steps = blocks.into_iter().enumerate().map(|(at, block)| {
        let what = match at % 8 {
            0 if at % 128 == 0 => What::Trim,
            0 => What::Write,
            _ => What::Read,
        };
        let (offset, length) = if at % 64 == 8 { (block * BLOCK + 512, 1024) } else { (block * BLOCK, BLOCK as u32) };
        Step { offset, think_ns: 50_000, length, what, disk, stream: 0, content: 0 }
    });
    Program { name: disk.to_string(), steps: steps.collect(), ..Program::default() }
}

fn simulate(encoded: Option<Encoded>, levels: &[Level], block_bytes: u32) -> Result<Outcome, TimedError> {
    simulate_programs(&[program(0), program(1)], None, encoded, levels, block_bytes)
}

fn simulate_programs(
    programs: &[Program],
    tenants: Option<&Config>,
    encoded: Option<Encoded>,
    levels: &[Level],
    block_bytes: u32,
) -> Result<Outcome, TimedError> {
    let profile = device(32, 1000);
    let disks = [Disk { profile: &profile, layouts: &[] }; 2];
    let readahead = "none".parse().unwrap();
    let setup = Setup { block_bytes, levels, tenants, encoded, ..setup(programs, &disks, &readahead) };
    run(&setup, &"lru".parse().unwrap(), 2000)
}

fn with(source: &Source, scheme: Scheme, levels: &[Level]) -> Outcome {
    let encoded = Encoded { source, volumes: &[0, 1], seed: 1, scheme, cpu: 0.25 };
    simulate(Some(encoded), levels, BLOCK as u32).unwrap()
}

fn machines() -> Source {
    Source::Generated(Machines::new(1, 2, BLOCKS as usize))
}

/// Two images of bytes that nothing makes shorter.
fn noise() -> Source {
    let image = |volume: u32| {
        let mut file = tempfile::tempfile().unwrap();
        let mut state = 1 + u64::from(volume);
        let mut bytes = vec![0; (BLOCKS * BLOCK) as usize];
        bytes.chunks_exact_mut(8).for_each(|word| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(state ^ state >> 29).to_be_bytes());
        });
        file.write_all(&bytes).unwrap();
        Image { volume, first: 0, blocks: BLOCKS, file }
    };
    Source::Images(vec![image(0), image(1)])
}

fn of(outcome: &Outcome) -> &EncodedOutcome {
    outcome.encoded.as_ref().unwrap()
}

#[test]
fn blocks_in_fewer_bytes_save_reads_and_time() {
    let (alone, source) = (simulate(None, &[], BLOCK as u32).unwrap(), machines());
    assert_eq!(alone.encoded, None);
    for scheme in [Scheme::Lz4, Scheme::Zstd, Scheme::Sketch, Scheme::SketchZstd] {
        let outcome = with(&source, scheme, &[]);
        let encoded = of(&outcome);
        let reads = outcome.cache.device_read_bytes as f64 / alone.cache.device_read_bytes as f64;
        assert!(reads < 0.9, "{scheme}: {reads} of the reads");
        assert!(outcome.execution_ns() < alone.execution_ns(), "{scheme}");
        assert!(encoded.decoded > 1000 && encoded.cache.hits == encoded.decoded, "{scheme}: {encoded:?}");
        // A content that found no room when its base left is missed by its block.
        assert!(encoded.missing < 10 && encoded.cache.mismatches == encoded.missing, "{scheme}: {encoded:?}");
        assert!(encoded.lent_pages > 500 && encoded.blocks as f64 > 1.2 * encoded.lent_pages as f64, "{encoded:?}");
        // A processor has all of its time, an encoder a quarter.
        assert!(encoded.encode_ns as f64 <= 0.27 * outcome.execution_ns() as f64 + 200e6, "{scheme}: {encoded:?}");
    }
    let outcome = with(&source, Scheme::Sketch, &[]);
    assert_eq!(outcome, with(&source, Scheme::Sketch, &[]), "the same arguments give the same outcome");
}

#[test]
fn contents_that_cannot_be_made_shorter_cost_little() {
    let (alone, outcome) = (simulate(None, &[], BLOCK as u32).unwrap(), with(&noise(), Scheme::Sketch, &[]));
    let share = |of: fn(&Outcome) -> u64| of(&outcome) as f64 / of(&alone) as f64;
    let (reads, time) = (share(|outcome| outcome.cache.device_reads), share(Outcome::execution_ns));
    assert!((0.97..1.03).contains(&reads) && (0.97..1.03).contains(&time), "reads {reads}, time {time}");
    let encoded = of(&outcome);
    // Edits of written blocks are found to be similar.
    assert!(encoded.one_of > 1 && encoded.lent_pages <= 100, "{encoded:?}");
}

#[test]
fn what_leaves_encoded_blocks_can_go_to_a_level_below() {
    let (source, faster) = (machines(), device(32, 1000));
    let levels = [Level { profile: &faster, bytes: 3000 * BLOCK }];
    let (without, outcome) = (with(&source, Scheme::Lz4, &[]), with(&source, Scheme::Lz4, &levels));
    assert!(of(&outcome).decoded > 1000 && outcome.levels[0].cache.hits > 100, "{:?}", outcome.levels);
    assert_eq!((of(&outcome).cache.mismatches, outcome.levels[0].cache.mismatches), (0, 0));
    assert!(outcome.cache.device_reads < without.cache.device_reads);
}

#[test]
fn a_warm_up_is_left_out_of_what_blocks_and_levels_did() {
    let (source, faster, profile) = (machines(), device(32, 1000), device(32, 1000));
    let (levels, none) = ([Level { profile: &faster, bytes: 3000 * BLOCK }], "none".parse().unwrap());
    let (programs, disks) = ([program(0), program(1)], [Disk { profile: &profile, layouts: &[] }; 2]);
    let encoded = Encoded { source: &source, volumes: &[0, 1], seed: 1, scheme: Scheme::Lz4, cpu: 0.25 };
    let setup = Setup { levels: &levels, encoded: Some(encoded), ..setup(&programs, &disks, &none) };
    let references = setup.references();
    let warm = |warmup| run(&Setup { warmup, ..setup.clone() }, &"lru".parse().unwrap(), 2000).unwrap();
    let counts = |outcome: &Outcome| {
        let (encoded, level) = (of(outcome), &outcome.levels[0]);
        let of_encoded = [encoded.encoded, encoded.encode_ns, encoded.decoded, encoded.decode_ns, encoded.cache.hits];
        let of_level = [level.cache.hits, level.cache.stores, level.device.requests, level.device.busy_ns];
        [of_encoded.as_slice(), of_level.as_slice(), &[outcome.cache.misses, outcome.device.requests]].concat()
    };
    // A third is left: blocks that were written before reach their disk in it, too.
    let (all, third, end) = (counts(&warm(0)), counts(&warm(references / 3 * 2)), counts(&warm(references - 1)));
    for ((all, third), end) in all.iter().zip(&third).zip(&end) {
        assert!(*third < all * 9 / 10 && *third > all / 8 && *end < all / 100, "{all}, then {third}, then {end}");
    }
}

#[test]
fn tenants_share_the_frames_and_what_leaves_them_is_encoded() {
    let source = machines();
    let with = |programs: &[Program], tenants: Option<&Config>| {
        let encoded = Encoded { source: &source, volumes: &[0, 1], seed: 1, scheme: Scheme::Sketch, cpu: 0.25 };
        simulate_programs(programs, tenants, Some(encoded), &[], BLOCK as u32).unwrap()
    };
    let mut programs = [program(0), program(1)];
    let lru = with(&programs, None);
    for allocation in [Allocation::Global, Allocation::LruSp] {
        let mut shared = with(&programs, Some(&Config { allocation, ..Config::default() }));
        assert_eq!(shared.tenants.len(), 2);
        shared.tenants.clear();
        assert_eq!(shared, lru, "{allocation:?}: tenants that say nothing share a cache as under LRU");
    }
    // A ceiling takes frames from a tenant, and its blocks are encoded.
    programs[1].says = vec![Said { step: 0, saying: Saying::Bounds { floor: 0, ceiling: 50 } }];
    let bounded = with(&programs, Some(&Config::default()));
    assert!(of(&bounded).decoded > 1000 && of(&bounded).missing < 10, "{:?}", of(&bounded));
    assert!(of(&bounded).decoded > of(&lru).decoded, "{:?}, not {:?}", of(&bounded), of(&lru));
    assert!(bounded.waited_ns[0] < lru.waited_ns[0], "{:?}, not {:?}", bounded.waited_ns, lru.waited_ns);
}

#[test]
fn what_cannot_be_simulated_is_an_error() {
    let (source, faster) = (machines(), device(32, 1000));
    let encoded = || Encoded { source: &source, volumes: &[0, 1], seed: 1, scheme: Scheme::Lz4, cpu: 0.25 };
    let level = Level { profile: &faster, bytes: 100 * BLOCK };
    assert!(matches!(simulate(Some(encoded()), &[level; 2], 4096), Err(TimedError::Config(_))));
    assert!(matches!(simulate(Some(encoded()), &[], 8192), Err(TimedError::ContentBlocks { block_bytes: 8192 })));
    let short = Image { volume: 1, first: 0, blocks: BLOCKS, file: tempfile::tempfile().unwrap() };
    let images = Source::Images(vec![short]);
    let encoded = Encoded { source: &images, volumes: &[0, 1], seed: 1, scheme: Scheme::Lz4, cpu: 0.25 };
    assert!(matches!(simulate(Some(encoded), &[], 4096), Err(TimedError::Image(_))));
}
