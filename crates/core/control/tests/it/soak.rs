//! Everything that tenants and hosts can do, at random, with every invariant recounted after each step.
//!
//! A failure prints the seed.

use crate::host;
use crate::host::{FILE, Host, OWN, block, file_of};
use nigh_control::{Allocation, Chunk, Config, Directive, Foresight, Index, Limits, Order, Refusal};
use nigh_policy::{Kind, Tenant, registry};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const TENANTS: u32 = 4;
const BLOCKS: u64 = 40;
const ALLOCATIONS: [Allocation; 5] =
    [Allocation::LruSp, Allocation::LruSp, Allocation::Global, Allocation::Static, Allocation::Utility];

fn order(random: &mut Random) -> Order {
    let online: Vec<_> = registry().iter().filter(|info| !info.offline).collect();
    match random.random_range(0..4) {
        0 => Order::Lru,
        1 => Order::Mru,
        _ => Order::Policy(online[random.random_range(0..online.len())].name.parse().expect("a name of the registry")),
    }
}

fn directive(random: &mut Random, tenant: u32, upcoming: &[u64]) -> Directive {
    let first = u64::from(tenant) * OWN;
    let file = file_of(first + random.random_range(0..BLOCKS));
    let priority = random.random_range(-2..3);
    match random.random_range(0..7) {
        0 => Directive::SetPriority { file, priority },
        1 | 2 => Directive::SetPolicy { priority, policy: order(random) },
        3 => {
            let from = random.random_range(0..FILE);
            let last = from + random.random_range(0..70);
            Directive::SetTemporaryPriority { file, first: from, last, priority: random.random_range(-40..40) }
        }
        4 => {
            let length = random.random_range(0..40);
            let numbers = (0..length).map(|_| first + random.random_range(0..BLOCKS));
            let accesses = numbers.map(|number| Chunk { file: file_of(number), bytes: None }).collect();
            Directive::Predict { accesses }
        }
        _ => {
            // True, but for some accesses that are missing and some that are made up.
            let mut accesses = Vec::new();
            for &number in upcoming {
                if random.random_range(0..8) > 0 {
                    accesses.push(Chunk { file: file_of(number), bytes: Some((number % FILE, 1)) });
                }
                if random.random_range(0..16) == 0 {
                    let file = file_of(first + random.random_range(0..BLOCKS));
                    accesses.push(Chunk { file, bytes: Some((random.random_range(0..FILE), 1)) });
                }
            }
            Directive::Predict { accesses }
        }
    }
}

#[test]
fn nothing_breaks() {
    for seed in 0..160 {
        let run = std::panic::AssertUnwindSafe(|| soak(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn soak(seed: u64) {
    let mut random = host::random(seed);
    let capacity = [1, 2, 4, 9, 20, 50, 120][seed as usize % 7];
    let ghosts = [0, capacity, 3 * capacity][seed as usize % 3];
    let allocation = ALLOCATIONS[seed as usize / 7 % ALLOCATIONS.len()];
    let config = Config {
        allocation,
        foresight: match seed % 5 {
            0 => Foresight::Fetch,
            1 | 2 => Foresight::Prototype,
            _ => Foresight::Full,
        },
        batch: random.random_range(1..6),
        adapt_batch: seed % 7 < 3,
        free_least: random.random_range(1..5),
        window: [Config::WINDOW, 0, 5, 1][seed as usize / 3 % 4],
        limits: Limits { tenants: TENANTS, files: 3, levels: 6, policies: 2, ghosts: 1.0, entries: 60 },
    };
    let mut host = Host::new(capacity, ghosts, config);
    host.prompt = seed.is_multiple_of(3);
    host.blocks.two_devices = seed.is_multiple_of(2);
    let references = host::references(seed, TENANTS, BLOCKS, 1000);
    let mut underway: Vec<(u32, u32)> = Vec::new();
    for (at, &(tenant, mut number)) in references.iter().enumerate() {
        if random.random_range(0..30) == 0 {
            // Somebody else's.
            number = u64::from(random.random_range(0..TENANTS)) * OWN + number % OWN;
        }
        if random.random_range(0..8) == 0 {
            let upcoming: Vec<u64> = references[at..]
                .iter()
                .filter(|&&(other, _)| other == tenant)
                .map(|&(_, number)| number)
                .take(50)
                .collect();
            match host.apply(tenant, directive(&mut random, tenant, &upcoming)) {
                Ok(()) | Err(Refusal::TooManyFiles { .. } | Refusal::TooManyLevels { .. }) => {}
                Err(Refusal::TooManyPolicies { .. } | Refusal::Busy) => {}
                Err(refusal) => panic!("{refusal}"),
            }
        }
        match random.random_range(0..200) {
            0 => host.close(random.random_range(0..TENANTS)),
            1..4 => {
                let (floor, ceiling) = (random.random_range(0..capacity), random.random_range(0..2 * capacity));
                let _ = host.set_bounds(random.random_range(0..TENANTS), floor, ceiling);
            }
            4..12 => host.remove(block(u64::from(tenant) * OWN + random.random_range(0..BLOCKS))),
            12 => {
                let (tenant, remainder) = (random.random_range(0..TENANTS), random.random_range(0..3));
                host.forget_files(tenant, &|file| file % 3 == remainder);
            }
            13..40 => {
                let mut upcoming = references[at..].iter().filter(|&&(other, _)| other == tenant);
                let number = upcoming.nth(random.random_range(0..3)).map_or(number, |&(_, number)| number);
                let bytes = Some((number % FILE, random.random_range(1..4)));
                match host.extend(tenant, Chunk { file: file_of(number), bytes }) {
                    Ok(()) | Err(Refusal::TooManyAccesses { .. }) => {}
                    Err(refusal) => panic!("{refusal}"),
                }
            }
            40 => {
                let said = host.control.said(Tenant(tenant));
                let again = said.iter().map(|directive| host.apply(tenant, directive.clone())).collect::<Vec<_>>();
                match again.into_iter().find(Result::is_err) {
                    Some(Err(Refusal::Busy)) => {}
                    Some(Err(refusal)) => panic!("it was said before: {refusal}"),
                    _ => assert_eq!(host.control.said(Tenant(tenant)), said),
                }
            }
            41..47 => {
                let capacity =
                    (capacity + random.random_range(0..capacity)).saturating_sub(random.random_range(0..capacity));
                host.resize(capacity, [0, capacity, 3 * capacity][random.random_range(0..3)]);
            }
            47..51 => _ = host.shed_some(random.random_range(0..4)),
            51..130 => _ = host.step(random.random_range(1..20)),
            130..133 => {
                let own = order(&mut random);
                let own = [None, Some(own)][random.random_range(0..2)].clone();
                let is_one_list =
                    allocation == Allocation::Global && own.as_ref().is_some_and(|own| *own != Order::Lru);
                let done = host.set_policy_of(tenant, own);
                assert_eq!(matches!(done, Err(Refusal::OneList)), is_one_list, "{done:?}");
            }
            133 => {
                let policy = order(&mut random);
                let is_one_list = allocation == Allocation::Global && policy != Order::Lru;
                assert_eq!(matches!(host.set_policy(policy), Err(Refusal::OneList)), is_one_list);
            }
            _ => {}
        }
        host.check();
        host.access(tenant, block(number));
        assert!(host.is_resident(block(number)), "a block just referenced is resident");
        for device in 0..2 {
            while let Some(ahead) = host.control.next_prefetch(Tenant(tenant), device, &host.blocks, at as u64) {
                assert_eq!(host.blocks.device(ahead.volume), device);
                assert!(!host.is_resident(ahead), "what is resident is not fetched");
                host.reference(tenant, ahead, Kind::Prefetch);
                underway.push((tenant, device));
            }
        }
        while !underway.is_empty() && random.random_range(0..3) == 0 {
            let (tenant, device) = underway.swap_remove(random.random_range(0..underway.len()));
            host.control.prefetched(Tenant(tenant), device, (at % 7 > 0).then_some(at as u64));
        }
    }
}
