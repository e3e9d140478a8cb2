//! Blocks that were prefetched wait beside the policy.

use nigh_policy::{Policy, registry};

use crate::succession::{BLOCKS, Host, Random};

fn gauge(host: &Host, name: &str) -> Option<u64> {
    let mut found = None;
    host.policy.gauges(&mut |gauge, value| found = found.or((gauge == name).then_some(value)));
    found
}

fn random_host(random: &mut Random, policy: &str) -> Host {
    let capacity = [1, 3, 8, 20, 45][random.below(5) as usize];
    let ghosts = [0, capacity / 2, capacity, 2 * capacity][random.below(4) as usize];
    Host::new(policy, capacity, ghosts)
}

/// The host's and the policy's checks hold, whatever happens in between.
#[test]
fn any_policy_and_its_successor() {
    let policies = registry().iter().filter(|info| !info.offline).map(|info| info.name);
    let policies: Vec<&str> = policies.collect();
    for (seed, policy) in (1..).zip(policies.iter().cycle().take(1000)) {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut random = Random(seed);
            let mut host = random_host(&mut random, policy);
            let (most, ghosts) = (u64::from(host.room.capacity), u64::from(host.room.ghosts));
            for _ in 0..600 {
                match random.below(40) {
                    0 => host.remove(random.below(BLOCKS)),
                    1 => host.resize(1 + random.below(most) as u32),
                    2 => {
                        assert!(!host.step(u32::MAX));
                        host.policy.policy_mut().take_retired();
                        host.ghosts_most = host.room.ghosts as usize;
                        let next = policies[random.below(policies.len() as u64) as usize];
                        host.succeed(next, random.below(ghosts + 1) as u32);
                    }
                    3..=14 => {
                        let first = random.below(BLOCKS);
                        (first..first + random.below(9)).for_each(|block| host.prefetch(block));
                    }
                    _ => _ = host.reference(random.below(BLOCKS).min(random.below(BLOCKS))),
                }
            }
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("{policy}, seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// The latest stay, and their first use is a reference.
#[test]
fn promises_take_at_most_a_quarter() {
    let mut host = Host::new("lru", 40, 0);
    (0..40).for_each(|block| _ = host.reference(block));
    (100..150).for_each(|block| host.prefetch(block));
    assert_eq!(gauge(&host, "promises"), Some(10));
    let mut resident = host.resident.clone();
    resident.sort_unstable();
    assert_eq!(resident, (10..40).chain(140..150).collect::<Vec<_>>());
    assert!((140..150).all(|block| host.reference(block)));
    assert_eq!(gauge(&host, "promises"), Some(0));
    (200..220).for_each(|block| _ = host.reference(block));
    assert!((140..150).all(|block| host.resident.contains(&block)));
}

/// A scan that is read ahead and used does not displace the working set of LIRS.
#[test]
fn a_scan_that_is_read_ahead_replaces_no_working_set() {
    let mut host = Host::new("lirs", 40, 60);
    (500..540).for_each(|block| _ = host.reference(block));
    (0..4).for_each(|_| (0..30).for_each(|block| _ = host.reference(block)));
    for window in (1000..2000).step_by(5) {
        (window..window + 5).for_each(|block| host.prefetch(block));
        assert!((window..window + 5).all(|block| host.reference(block)));
    }
    assert_eq!((0..30).filter(|block| host.resident.contains(block)).count(), 30);
}

/// Unused promises are evicted, and the policy gets their blocks back.
#[test]
fn unused_promises_leave() {
    let mut host = Host::new("lru", 40, 0);
    (0..40).for_each(|block| _ = host.reference(block));
    (100..110).for_each(|block| host.prefetch(block));
    (200..215).for_each(|block| _ = host.reference(block));
    assert_eq!(gauge(&host, "promises"), Some(10));
    (215..400).for_each(|block| _ = host.reference(block));
    assert_eq!((gauge(&host, "promises"), gauge(&host, "parked")), (Some(0), Some(0)));
    assert_eq!(host.resident.len(), 40);
}

/// Blocks that the policy evicted stay while the area has room for them.
#[test]
fn evicted_blocks_stay_in_room_that_promises_leave() {
    let mut host = Host::new("lirs", 40, 60);
    (0..40).for_each(|block| _ = host.reference(block));
    (100..110).for_each(|block| host.prefetch(block));
    (100..110).for_each(|block| _ = host.reference(block));
    assert_eq!((gauge(&host, "parked"), host.resident.len()), (Some(10), 40));
}
