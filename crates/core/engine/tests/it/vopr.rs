//! The simulation, for a few hundred seeds, and each possible failure of a few. More of it:
//! `cargo run --release -p nigh-engine --example vopr -- --seed N --seeds COUNT`.

use crate::simulation::{Done, Plan, run};

#[test]
fn seeds() {
    for seed in 0..300 {
        let plan = Plan { seed, steps: 600, ..Plan::default() };
        let done = std::panic::catch_unwind(|| run(plan));
        assert!(done.is_ok(), "seed {seed} fails: cargo run -p nigh-engine --example vopr -- --seed {seed}");
    }
}

#[test]
fn a_disk_that_hangs_stops_no_other_volume() {
    let hung = |seed| run(Plan { seed, steps: 600, hangs: true, ..Plan::default() }).hung > 0;
    assert!((4000..4200).filter(|&seed| hung(seed)).count() > 150);
}

#[test]
fn blocks_that_memory_damages_are_read_again() {
    let damaged = |seed| run(Plan { seed, steps: 600, damages: true, ..Plan::default() }).damaged;
    assert!((7000..7200).map(damaged).sum::<u64>() > 200);
}

/// The simulation gets to what tenants can do.
#[test]
fn tenants_have_a_say() {
    let done: Vec<_> = (3000..3030).map(|seed| run(Plan { seed, steps: 600, ..Plan::default() })).collect();
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    let ahead = [sum(|done| done.said), sum(|done| done.prefetched), sum(|done| done.prefetch_used)];
    let replaced = [sum(|done| done.overruled), sum(|done| done.mistakes), sum(|done| done.lists_dropped)];
    assert!(ahead.iter().chain(&replaced).all(|&count| count > 0), "{ahead:?}, {replaced:?}");
}

/// The simulation gets to hits without the engine.
#[test]
fn published_blocks_are_read() {
    let done = (0..300).map(|seed| run(Plan { seed, steps: 600, ..Plan::default() }));
    let found: u64 = done.map(|done| done.found).sum();
    assert!(found > 100, "{found}");
}

/// The simulation gets to reads whose first blocks are complete while others are not.
#[test]
fn first_blocks_are_completed() {
    let done = (0..60).map(|seed| run(Plan { seed, steps: 600, ..Plan::default() }));
    let firsts: u64 = done.map(|done| done.first_blocks).sum();
    assert!(firsts > 100, "{firsts}");
}

/// The simulation gets to what levels can do.
#[test]
fn levels_are_used() {
    let done: Vec<_> = (5000..5200).map(|seed| run(Plan { seed, steps: 600, ..Plan::default() })).collect();
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    let used = [sum(|done| done.stores), sum(|done| done.level_hits), sum(|done| done.invalidations)];
    let encoded = [sum(|done| done.decoded), sum(|done| done.flipped)];
    assert!(encoded.iter().all(|&count| count > 0), "{encoded:?}");
    let rare = [sum(|done| done.mismatches), sum(|done| done.restored), sum(|done| done.switched_off)];
    assert!(sum(|done| done.late) > 0);
    assert!(used.iter().chain(&rare).all(|&count| count > 0), "{used:?}, {rare:?}");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 0..20 {
        let plan = Plan { seed, steps: 600, ..Plan::default() };
        assert_eq!(run(plan), run(plan), "seed {seed}");
    }
}

#[test]
fn every_operation_fails_once() {
    for seed in 1000..1004 {
        let plan = Plan { seed, steps: 300, calm: true, ..Plan::default() };
        let operations = run(plan).operations;
        assert!(operations > 20);
        for k in 0..operations {
            run(Plan { fail_at: Some(k), ..plan });
        }
    }
}

#[test]
fn power_fails_after_every_write() {
    for seed in 2000..2004 {
        let plan = Plan { seed, steps: 300, calm: true, ..Plan::default() };
        let writes = run(plan).device_writes;
        assert!(writes > 5);
        for k in 1..=writes {
            assert_eq!(run(Plan { crash_at: Some(k), ..plan }).crashes, 1, "seed {seed}, write {k}");
        }
    }
}

#[test]
fn exports_of_dead_devices_can_be_closed_whenever_they_die() {
    for seed in 3000..3004 {
        let plan = Plan { seed, steps: 300, calm: true, ..Plan::default() };
        let operations = run(plan).operations;
        for k in 0..operations {
            run(Plan { dead_from: Some(k), ..plan });
        }
    }
}
