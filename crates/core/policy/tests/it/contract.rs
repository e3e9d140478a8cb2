//! Obligations of every policy of the registry to its host, on random reference strings.
//!
//! A failure prints the seed, the policy and the sizes that replay it.

use nigh_policy::{Info, registry};
use nigh_testkit::contract::{self, BLOCKS, CAPACITIES};
use nigh_testkit::host::{Host, Slots, future};
use nigh_testkit::workload;

const SEEDS: u64 = 40;
const LENGTH: usize = 1_500;

/// Runs `test` for each policy, seed and capacity; the messages of its assertions are preceded by which one it was.
fn for_each(test: impl Fn(&Info, &[u64], u32)) {
    for info in registry() {
        for seed in 0..SEEDS {
            let references = workload::mixed(seed, BLOCKS, LENGTH);
            let capacity = CAPACITIES[seed as usize % CAPACITIES.len()];
            let run = std::panic::AssertUnwindSafe(|| test(info, &references, capacity));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("policy {}, seed {seed}, capacity {capacity}", info.name);
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn host(info: &Info, references: &[u64], capacity: u32, slots: Slots) -> Host {
    Host::new(info.name, capacity, BLOCKS as u32, slots, info.offline.then(|| future(references)))
}

#[test]
fn invariants_hold() {
    for_each(|info, references, capacity| {
        let mut host = host(info, references, capacity, Slots::Forever);
        contract::invariants_hold(&mut host, references, capacity, false);
    });
}

/// A host that uses slots again sees the same hits and victims as one that gives every block a slot for ever.
#[test]
fn slots_can_be_used_again() {
    for_each(|info, references, capacity| {
        let mut forever = host(info, references, capacity, Slots::Forever);
        let mut reused = host(info, references, capacity, Slots::Reused { ghosts: BLOCKS as u32 });
        for &block in references {
            assert_eq!(forever.access(block), reused.access(block));
            assert_eq!(forever.ghosts(), reused.ghosts());
        }
    });
}

/// A host with room for few ghosts, or none, never gets more of them.
#[test]
fn ghosts_have_a_limit() {
    for ghosts in [0, 1, 7] {
        for_each(|info, references, capacity| {
            let mut host = host(info, references, capacity, Slots::Reused { ghosts });
            for &block in references {
                host.access(block);
            }
        });
    }
}

#[test]
fn blocks_can_be_removed() {
    for_each(|info, references, capacity| {
        for slots in [Slots::Forever, Slots::Reused { ghosts: 2 * capacity }] {
            contract::blocks_can_be_removed(&mut host(info, references, capacity, slots), references);
        }
    });
}

/// A host that uses slots again, and numbers more of them when it needs them, sees the same as one that gives every block a
/// slot for ever.
#[test]
fn sizes_can_change() {
    for_each(|info, references, capacity| {
        let seed = references.iter().take(9).sum();
        let steps = workload::resized(seed, BLOCKS, LENGTH, capacity);
        let blocks = workload::blocks(&steps);
        let mut hosts = [Slots::Forever, Slots::Reused { ghosts: 1 }].map(|slots| host(info, &blocks, capacity, slots));
        contract::sizes_can_change(&mut hosts, &steps, capacity, true);
    });
}

#[test]
fn a_cache_can_be_as_large_as_what_it_holds() {
    for ghosts in [0, 5, BLOCKS as u32] {
        for_each(|info, references, most| {
            let mut host = host(info, references, 1, Slots::Reused { ghosts });
            contract::a_cache_can_be_as_large_as_what_it_holds(&mut host, references, most, ghosts, false);
        });
    }
}

/// Nothing that loads every block it misses has more hits than OPT.
#[test]
fn opt_is_never_beaten() {
    let opt = registry().iter().find(|info| info.name == "opt").expect("OPT is registered");
    let hits = |info: &Info, references: &[u64], capacity: u32| {
        let mut host = host(info, references, capacity, Slots::Forever);
        references.iter().filter(|&&block| host.access(block).hit).count()
    };
    for_each(|info, references, capacity| {
        let (most, own) = (hits(opt, references, capacity), hits(info, references, capacity));
        assert!(own <= most, "{own} hits, and OPT has {most}");
    });
}

/// Twice the capacity, the most that the directories of ARC and CAR hold, need not fit in 32 bits.
#[test]
fn capacities_go_up_to_32_bits() {
    for name in ["arc", "car"] {
        let mut host = Host::new(name, u32::MAX, 4, Slots::Forever, None);
        for block in [0, 1, 2, 0, 3] {
            host.access(block);
        }
        assert_eq!(host.resident().len(), 4);
    }
}
