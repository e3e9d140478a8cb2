//! Every policy of the registry either manages priority levels, whatever happens to them, or is refused with a reason.
//!
//! A failure prints the policy and the seed.

mod host;

use host::{FILE, Host, OWN, block, file_of};
use nigh_control::{Config, Directive, Order, Refusal};
use nigh_policy::{Tenant, registry};
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
fn every_policy_manages_levels_or_is_refused() {
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
    let order = Order::Policy(spec.parse().expect("a policy of the registry"));
    let manage = |host: &mut Host, tenant, priority| {
        let before = host.control.policy(Tenant(tenant), priority);
        let done = host.apply(tenant, Directive::SetPolicy { priority, policy: order.clone() });
        let Order::Policy(spec) = &order else { unreachable!("it is a policy") };
        let info = registry().iter().find(|info| info.name == spec.name()).expect("it is registered");
        match done {
            Ok(()) => assert!(!info.offline && !info.one_size),
            Err(refusal) => {
                assert_eq!(matches!(refusal, Refusal::OneSize { .. }), info.one_size, "{refusal:?}");
                assert_eq!(matches!(refusal, Refusal::Policy(_)), info.offline, "{refusal:?}");
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
            1 => host.apply(0, Directive::SetPolicy { priority: 1, policy: Order::Mru }).expect("within the limits"),
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
                host.control.close(Tenant(1));
                manage(&mut host, 1, 0);
            }
            _ => {}
        }
        host.access(tenant, block(number));
        assert!(host.is_resident(block(number)), "a block just referenced is resident");
    }
}
