//! Every policy of the registry that sees no future manages priority levels, whatever happens to them, and so does a change
//! from any of them to any other, step by step.
//!
//! A failure prints the policy and the seed.

use crate::host;
use crate::host::{FILE, Host, OWN, block, file_of};
use nigh_control::{Allocation, Config, Directive, Limits, Order, Refusal};
use nigh_policy::{Tenant, registry};
use nigh_testkit::host::{Host as Bare, Slots};
use rand::RngExt;

const TENANTS: u32 = 3;
const BLOCKS: u64 = 40;

/// Beside every policy as it is.
const VARIANTS: &[&str] = &[
    "clock:first=1",
    "gclock:first=0:max=1",
    "lru-2:correlated=3",
    "lru-2:correlated=5000",
    "lru-2:ghosts=0",
    "lru-2:ghosts=3",
    "lrfu:lambda=0",
    "lrfu:lambda=1",
    "lrfu:lambda=0.05:correlated=4",
    "mq:queues=3:life=5:out=50%",
    "dulo:base=lru",
    "lirs:hir=1",
];

#[test]
fn every_policy_manages_levels() {
    for spec in registry().iter().map(|info| info.name).chain(VARIANTS.iter().copied()) {
        for seed in 0..36 {
            let run = std::panic::AssertUnwindSafe(|| levels(spec, seed));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("policy {spec}, seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Two levels of one tenant and one of another are managed by `spec`, the third tenant is oblivious.
fn levels(spec: &str, seed: u64) {
    let mut random = host::random(seed);
    let capacity = [1, 2, 5, 12, 40, 100][seed as usize % 6];
    let ghosts = [0, capacity, 4 * capacity][seed as usize % 3];
    let mut host = Host::new(capacity, ghosts, Config::default());
    host.prompt = !seed.is_multiple_of(4);
    let order = Order::Policy(spec.parse().expect("a policy of the registry"));
    let manage = |host: &mut Host, tenant, priority| {
        let before = host.control.policy(Tenant(tenant), priority);
        let done = host.apply(tenant, Directive::SetPolicy { priority, policy: order.clone() });
        let Order::Policy(spec) = &order else { unreachable!("it is a policy") };
        let info = registry().iter().find(|info| info.name == spec.name()).expect("it is registered");
        match done {
            Ok(()) => assert!(!info.offline),
            Err(Refusal::Busy) => assert_ne!(before, order),
            Err(refusal) => {
                assert!(matches!(refusal, Refusal::Policy(_)) && info.offline, "{refusal:?}");
                assert!(refusal.to_string().contains(info.name), "{refusal}");
                assert_eq!(host.control.policy(Tenant(tenant), priority), before);
            }
        }
    };
    manage(&mut host, 0, 0);
    if host.control.policy(Tenant(0), 0) != order {
        return;
    }
    manage(&mut host, 1, 0);
    for (tenant, number) in host::references(seed, TENANTS, BLOCKS, 600) {
        let file = file_of(u64::from(tenant) * OWN + random.random_range(0..BLOCKS));
        match random.random_range(0..60) {
            0 => manage(&mut host, 0, 1),
            1 => match host.apply(0, Directive::SetPolicy { priority: 1, policy: Order::Mru }) {
                Ok(()) | Err(Refusal::Busy) => {}
                Err(refusal) => panic!("{refusal}"),
            },
            2 | 3 => {
                let priority = random.random_range(0..2);
                host.apply(tenant, Directive::SetPriority { file, priority }).expect("within the limits");
            }
            4 => {
                let (first, last) = (random.random_range(0..FILE), FILE);
                let priority = random.random_range(-3..3);
                let temporary = Directive::SetTemporaryPriority { file, first, last, priority };
                host.apply(tenant, temporary).expect("within the limits");
            }
            5 => host.remove(block(number)),
            6 if random.random_bool(0.1) => {
                host.close(1);
                manage(&mut host, 1, 0);
            }
            7..14 => _ = host.step(random.random_range(1..9)),
            14 => _ = host.shed_some(random.random_range(0..4)),
            _ => {}
        }
        host.access(tenant, block(number));
        assert!(host.is_resident(block(number)), "a block just referenced is resident");
    }
}

/// The pool of a level is a cache of its own: alone, and without placeholders, it is the policy that has the whole cache.
#[test]
fn a_level_that_has_the_cache_is_the_policy() {
    for info in registry().iter().filter(|info| !info.offline) {
        for seed in 0..12 {
            let capacity = [1, 2, 5, 12, 20, 33][seed as usize % 6];
            let limits = Limits { ghosts: 1.0, ..Limits::default() };
            let mut host = Host::new(
                capacity,
                2 * capacity,
                Config { allocation: Allocation::Static, limits, ..Config::default() },
            );
            let policy = Order::Policy(info.name.parse().expect("a policy of the registry"));
            host.apply(0, Directive::SetPolicy { priority: 0, policy }).expect("within the limits");
            let slots = Slots::Reused { ghosts: 0 };
            let mut bare = Bare::with_block_bytes(1, info.name, 1, BLOCKS as u32, slots, None);
            for number in nigh_testkit::workload::mixed(seed, BLOCKS, 600) {
                let spread = (u64::from(file_of(number)) << 32) + number % FILE;
                // A level grows with its blocks.
                let blocks = bare.resident().len() as u32;
                if blocks < capacity && !bare.resident().contains(&spread) {
                    bare.resize(blocks + 1, blocks + 1);
                }
                let (own, bare) = (host.access(0, block(number)), bare.access(spread));
                assert_eq!(own.hit, bare.hit, "policy {}, seed {seed}", info.name);
            }
        }
    }
}
