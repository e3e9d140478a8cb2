//! [`LruSp`] against a naive transcription of sections 3.2 and 4.1.1: the same hits and victims, whatever directives tenants send and
//! however large the cache is.
//!
//! A failure prints the seed.

use crate::host;
use crate::host::{FILE, Host, OWN, block, file_of, references};
use nigh_control::{Config, Directive, Order};
use nigh_testkit::naive::lru_sp::{Levels, LruSp};
use rand::RngExt;

const TENANTS: u32 = 3;
const BLOCKS: u64 = 30;
const CAPACITIES: [u32; 7] = [1, 2, 3, 7, 12, 25, 40];

/// Tells the seed of a failure.
fn seeds(count: u64, test: impl Fn(u64)) {
    for seed in 0..count {
        let run = std::panic::AssertUnwindSafe(|| test(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Tenant 0 is oblivious, 1 and 2 change priorities and policies at random all the time.
#[test]
fn victims_are_those_of_the_paper() {
    seeds(120, |seed| {
        let capacity = CAPACITIES[seed as usize % CAPACITIES.len()];
        let ghosts = [capacity, 2 * capacity, capacity / 2][seed as usize % 3];
        let mut random = host::random(seed);
        let mut host = Host::new(capacity, ghosts, Config::default());
        let mut model = LruSp::new(capacity as usize);
        model.placeholders_most = ghosts.min(capacity) as usize;
        for tenant in 1..TENANTS {
            model.manage(tenant, Levels::new(file_of));
        }
        for (at, (tenant, reference)) in references(seed, TENANTS, BLOCKS, 1200).into_iter().enumerate() {
            if random.random_range(0..12) == 0 {
                let tenant = random.random_range(1..TENANTS);
                let first = u64::from(tenant) * OWN;
                let file = file_of(first + random.random_range(0..BLOCKS));
                let priority = random.random_range(-1..3);
                let list = model.list().to_vec();
                let manager = model.manager(tenant).expect("it manages itself");
                let directive = match random.random_range(0..3) {
                    0 => {
                        manager.set_priority(file, priority, &list);
                        Directive::SetPriority { file, priority }
                    }
                    1 => {
                        let mru = random.random();
                        manager.set_policy(priority, mru);
                        Directive::SetPolicy { priority, policy: if mru { Order::Mru } else { Order::Lru } }
                    }
                    _ => {
                        let from = random.random_range(0..FILE);
                        let last = random.random_range(from..FILE + 60);
                        let first = u64::from(file) * FILE;
                        for at in (first + from..=first + last.min(FILE - 1)).filter(|at| list.contains(at)) {
                            manager.set_temporary(at, priority);
                        }
                        Directive::SetTemporaryPriority { file, first: from, last, priority }
                    }
                };
                host.apply(tenant, directive).expect("within all limits");
            }
            match random.random_range(0..40) {
                0 => {
                    let capacity = random.random_range(1..=capacity + 10);
                    let ghosts = random.random_range(0..=2 * capacity);
                    let expected = model.resize(capacity as usize, ghosts.min(capacity) as usize);
                    assert_eq!(host.resize(capacity, ghosts), expected, "reference {at}");
                }
                1 if !model.list().is_empty() => assert_eq!(host.shed(), model.shed(), "reference {at}"),
                _ => {}
            }
            let expected = model.access(tenant, reference);
            assert_eq!(host.access(tenant, block(reference)), expected, "reference {at}");
            assert_eq!(host.known(), model.list().len() + model.placeholders().len(), "reference {at}");
        }
    });
}
