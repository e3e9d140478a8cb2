//! DULO beyond the suites of all policies: addresses spread over volumes, CLOCK as the special case of single blocks,
//! bases and what they nominate, what a miss costs, and Table 1.

use std::collections::BTreeSet;

use nigh_policy::{Setup, Spec, build};
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::{naive, workload};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The gauge `name` of `host`.
fn gauge(host: &Host, name: &str) -> u64 {
    host.gauges().into_iter().find(|(other, _)| *other == name).expect("a gauge").1
}

/// References to blocks in runs of up to `run` neighbours, far from each other on some volumes.
fn spread(seed: u64, blocks: u64, length: usize, run: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut start = |_| {
        let bits = random.random_range(4..30);
        random.random_range(0..3u64) << 32 | random.random_range(0..1u64 << bits)
    };
    let runs: Vec<u64> = (0..blocks.div_ceil(run)).map(&mut start).collect();
    let place = |block: u64| runs[(block / run) as usize] + block % run;
    workload::mixed(seed, blocks, length).into_iter().map(place).collect()
}

/// Random settings for a cache of `capacity` blocks.
fn settings(random: &mut Xoshiro256PlusPlus, capacity: u32, bases: &[&str]) -> String {
    let bank = random.random_range(1..=capacity / 3);
    let evicting = random.random_range(bank..=capacity - bank - 1);
    let base = bases[random.random_range(0..bases.len())];
    let first = if base == "clock" { ["", ":first=0", ":first=1"][random.random_range(0..3)] } else { "" };
    let table = [0, 2, 10, 100][random.random_range(0..4)];
    let (position, transfer) = [("1ms", "0ms"), ("9.5ms", "0.05ms"), ("0.1ms", "1ms")][random.random_range(0..3)];
    format!(
        "dulo:base={base}:bank={bank}:evicting={evicting}{first}:table={table}%:position={position}:transfer={transfer}"
    )
}

/// The host and the model agree on hits, victims and ghosts, whatever the settings and wherever the blocks are.
#[test]
fn evicts_what_the_model_evicts() {
    let mut full_tables = 0;
    for seed in 0..300 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = random.random_range(20..200);
        let capacity = random.random_range(4..=blocks as u32 * 3 / 4);
        let spec = settings(&mut random, capacity, &["clock", "clock", "lru", "lirs", "clock-pro"]);
        let references = spread(seed, blocks, 2_000, random.random_range(1..40));
        let mut host = Host::new(&spec, capacity, blocks as u32, Slots::Forever, None);
        let mut model = naive::model(&spec, capacity as usize, &references).expect("a model");
        let mut nodes = 0;
        for (at, &block) in references.iter().enumerate() {
            let place = format!("{spec}, seed {seed}, capacity {capacity}, reference {at}");
            assert_eq!(host.access(block), model.access(block), "{place}");
            assert_eq!(*host.ghosts(), model.ghosts(), "ghosts: {place}");
            full_tables += u32::from(gauge(&host, "table_nodes") < nodes);
            nodes = gauge(&host, "table_nodes");
        }
    }
    assert!(full_tables > 100, "memory of the table was reclaimed only {full_tables} times");
}

/// The same with `adapt=1`, on references long enough that CLOCK decides in some of the runs, and DULO again.
#[test]
fn adapts_as_the_model_does() {
    let mut changes = [0; 2];
    for seed in 0..150 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = random.random_range(20..200);
        let capacity = random.random_range(4..=blocks as u32 * 3 / 4);
        let spec = match random.random_range(0..4) {
            0 => "dulo:adapt=1".to_owned(),
            _ => settings(&mut random, capacity, &["clock"]) + ":adapt=1",
        };
        let references = spread(seed, blocks, 4_000, random.random_range(1..40));
        let mut host = Host::new(&spec, capacity, blocks as u32, Slots::Forever, None);
        let mut model = naive::model(&spec, capacity as usize, &references).expect("a model");
        let mut decides = 0;
        for (at, &block) in references.iter().enumerate() {
            let place = format!("{spec}, seed {seed}, capacity {capacity}, reference {at}");
            assert_eq!(host.access(block), model.access(block), "{place}");
            let now = gauge(&host, "clock_decides");
            changes[now as usize] += u32::from(now != decides);
            decides = now;
        }
    }
    assert!(changes.iter().all(|&count| count > 5), "CLOCK and DULO took over {changes:?} times");
}

/// "When all sequences are random blocks (i.e., their sizes are 1), the algorithm degenerates into the LRU replacement
/// algorithm" (3.4), here CLOCK.
#[test]
fn without_neighbours_it_is_clock() {
    for seed in 0..200 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = random.random_range(20..200);
        let capacity = random.random_range(4..=blocks as u32 * 3 / 4);
        let spec = settings(&mut random, capacity, &["clock"]);
        let clock = if spec.contains("first=1") { "clock:first=1" } else { "clock" };
        let mut dulo = Host::new(&spec, capacity, blocks as u32, Slots::Forever, None);
        let mut clock = Host::new(clock, capacity, blocks as u32, Slots::Forever, None);
        for (at, block) in workload::mixed(seed, blocks, 3_000).into_iter().enumerate() {
            let (block, removed) = (2 * block, 2 * (block * 7 % blocks));
            assert_eq!(dulo.access(block), clock.access(block), "{spec}, seed {seed}, capacity {capacity}, {at}");
            if at % 23 == 0 {
                dulo.remove(removed);
                clock.remove(removed);
            }
        }
    }
}

/// On a strict LRU stack that is LRU.
#[test]
fn without_neighbours_on_lru_it_is_lru() {
    for seed in 0..100 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = random.random_range(20..200);
        let capacity = random.random_range(4..=blocks as u32 * 3 / 4);
        let spec = settings(&mut random, capacity, &["lru"]);
        let mut dulo = Host::new(&spec, capacity, blocks as u32, Slots::Forever, None);
        let mut lru = Host::new("lru", capacity, blocks as u32, Slots::Forever, None);
        for block in workload::mixed(seed, blocks, 3_000) {
            assert_eq!(dulo.access(2 * block), lru.access(2 * block), "{spec}, seed {seed}, capacity {capacity}");
        }
    }
}

/// A victim was nominated by the base, which knows nothing of what happens to its nominations.
#[test]
fn victims_are_nominated() {
    for seed in 0..100 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = random.random_range(20..200);
        let capacity = random.random_range(8..=blocks as u32 * 3 / 4);
        let (bank, evicting) =
            (random.random_range(1..=capacity / 4), random.random_range(capacity / 4..=capacity / 2));
        let base = ["lru", "lirs", "clock-pro"][random.random_range(0..3)];
        let spec = format!("dulo:base={base}:bank={bank}:evicting={evicting}");
        let mut dulo = Host::new(&spec, capacity, blocks as u32, Slots::Forever, None);
        let mut base = Host::new(base, capacity - bank - evicting, blocks as u32, Slots::Forever, None);
        let mut nominated = BTreeSet::new();
        for block in spread(seed, blocks, 3_000, 10) {
            nominated.remove(&block);
            nominated.extend(base.access(block).evicted);
            let outcome = dulo.access(block);
            if let Some(victim) = outcome.evicted {
                assert!(nominated.remove(&victim), "{spec}, seed {seed}: {victim} was not nominated");
            }
            assert!(nominated.len() <= (bank + evicting) as usize, "{spec}, seed {seed}: too many nominations");
            assert_eq!(nominated.len() + base.resident().len(), dulo.resident().len());
        }
    }
}

/// "The current sequence size reaches 128, which is the maximal allowed sequence size": of 300 neighbours, the last 44 are
/// a sequence that is shorter than one of 45, which leaves before them.
#[test]
fn sequences_have_at_most_128_blocks() {
    let mut host = Host::new("dulo:bank=345:evicting=345", 690, 2_000, Slots::Forever, None);
    let scattered = (0..690).map(|at| 10_000 + 2 * at);
    let evicted: Vec<u64> =
        (0..300).chain(1_000..1_045).chain(scattered).filter_map(|block| host.access(block).evicted).collect();
    assert_eq!(evicted, (0..256).chain(1_000..1_045).chain(256..300).collect::<Vec<u64>>());
}

/// Of a scan and scattered blocks that are equally old, the scan leaves, and in one piece.
#[test]
fn scattered_blocks_outlive_a_scan() {
    for base in ["clock", "lru", "lirs", "clock-pro"] {
        let spec = format!("dulo:base={base}:bank=32:evicting=64");
        let mut host = Host::new(&spec, 128, 4096, Slots::Forever, None);
        for round in 0..20 {
            for at in 0..16 {
                host.access(1_000 + round * 48 + 3 * at);
            }
            for at in 0..16 {
                host.access((1 << 32) + round * 16 + at);
            }
        }
        let kept = |from: u64, to: u64| host.resident().range(from..to).count();
        let (scattered, scanned) = (kept(0, 1 << 32), kept(1 << 32, 2 << 32));
        println!("{base}: {scattered} scattered blocks and {scanned} of the scan");
        assert!(scattered > 2 * scanned, "{base}: {scattered} scattered blocks and {scanned} of the scan");
    }
}

#[test]
fn impossible_sizes() {
    let error = |spec: &str, capacity| {
        let setup = Setup { capacity, slots: 100, block_bytes: 4096, ghosts: 0, future: None, patterns: None };
        spec.parse::<Spec>()
            .and_then(|spec| build(&spec, &setup))
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let larger = error("dulo:bank=32M:evicting=16M", 1 << 20);
    assert_eq!(
        larger,
        "policy 'dulo': bank=32M is not possible: expected at most the 4096 blocks of the evicting section"
    );
    let both = error("dulo:bank=8M:evicting=64M", 10_000);
    assert_eq!(
        both,
        "policy 'dulo': evicting=64M is not possible: expected it and a bank of 2048 blocks to fit in 10000"
    );
    assert!(error("dulo:bank=60%", 1000).contains("bank=60%"));
    for wrong in ["bank=0", "bank=-1%", "bank=1K", "evicting=x", "evicting=nan%", "table=x", "table=inf%", "base=opt"] {
        let text = error(&format!("dulo:{wrong}"), 10_000);
        assert!(text.contains(wrong) && !text.contains('\n'), "{wrong}: {text}");
    }
    for wrong in
        ["position=0ms", "position=5", "position=nanms", "transfer=-1ms", "transfer=5s", "first=2", "first=1:base=lru"]
    {
        let text = error(&format!("dulo:{wrong}"), 10_000);
        assert!(text.contains(wrong.split(':').next().unwrap()) && !text.contains('\n'), "{wrong}: {text}");
    }
    for right in ["bank=8M:evicting=64M", "bank=1%:evicting=8%:table=1M", "bank=5:base=lirs", "position=100us"] {
        assert_eq!(error(&format!("dulo:{right}"), 20_000), "");
    }
}
