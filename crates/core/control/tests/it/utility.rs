//! Memory by marginal gain: who gets which share.

use nigh_control::{Allocation, Config, Order};
use nigh_policy::Tenant;

use crate::host::{Host, OWN, block};

/// Blocks of the cache.
const MEMORY: u32 = 400;

fn host(allocation: Allocation) -> Host {
    let mut host = Host::new(MEMORY, 2 * MEMORY, Config { allocation, ..Config::default() });
    host.checked = false;
    host.set_policy(Order::from("lirs".parse::<nigh_policy::Spec>().unwrap())).unwrap();
    host
}

fn size(host: &Host, tenant: u32) -> u32 {
    host.control.size(Tenant(tenant))
}

/// Reads a loop over `blocks` blocks.
struct Loop {
    tenant: u32,
    blocks: u64,
    at: u64,
}

impl Loop {
    fn new(tenant: u32, blocks: u64) -> Loop {
        Loop { tenant, blocks, at: 0 }
    }

    /// One reference; whether it missed.
    fn read(&mut self, host: &mut Host) -> bool {
        self.at = (self.at + 1) % self.blocks;
        !host.access(self.tenant, block(u64::from(self.tenant) * OWN + self.at)).hit
    }
}

/// Each tenant reads in turn, this many times; the misses of each in the last half.
fn run(host: &mut Host, tenants: &mut [Loop], turns: usize) -> Vec<usize> {
    let mut misses = vec![0; tenants.len()];
    for turn in 0..turns {
        for (misses, tenant) in misses.iter_mut().zip(&mut *tenants) {
            *misses += usize::from(tenant.read(host) && turn >= turns / 2);
        }
    }
    misses
}

/// A loop that needs more than an equal part, one that fits in less, and one for which no part would help much.
fn three() -> [Loop; 3] {
    [Loop::new(0, 250), Loop::new(1, 60), Loop::new(2, 1000)]
}

#[test]
fn memory_goes_where_it_saves_most_misses() {
    let total = |allocation| {
        let mut host = host(allocation);
        let misses = run(&mut host, &mut three(), 60_000);
        (misses.iter().sum::<usize>(), [0, 1, 2].map(|tenant| size(&host, tenant)))
    };
    let (utility, sizes) = total(Allocation::Utility);
    let (equal, _) = total(Allocation::Static);
    let (by_age, _) = total(Allocation::LruSp);
    assert!(sizes[0] >= 240 && sizes[1] >= 60, "{sizes:?}");
    assert!(utility * 100 <= equal * 80, "{utility} misses, {equal} with equal parts");
    assert!(utility < by_age, "{utility} misses, {by_age} with lru-sp");
}

#[test]
fn bounds_hold_whatever_the_curves_promise() {
    let mut host = host(Allocation::Utility);
    run(&mut host, &mut three(), 20_000);
    // Half an equal part, and two, by default.
    assert_eq!(size(&host, 1), 60, "all that it has");
    for tenant in [0, 2] {
        let size = size(&host, tenant);
        assert!((66..=267).contains(&size), "tenant {tenant} has {size} blocks");
    }
    host.set_bounds(0, 0, 150).unwrap();
    host.set_bounds(2, 200, 0).unwrap();
    run(&mut host, &mut three(), 20_000);
    assert!(size(&host, 0) <= 150, "{}", size(&host, 0));
    let shares = [0, 1, 2].map(|tenant| (size(&host, tenant), host.control.share_of(Tenant(tenant))));
    assert!(size(&host, 2) >= 199, "{shares:?}");
}

/// A tenant that makes up references takes what its ceiling allows, and no more.
#[test]
fn a_faking_tenant_gets_its_ceiling() {
    let mut host = host(Allocation::Utility);
    let mut honest = [Loop::new(0, 90), Loop::new(1, 90), Loop::new(2, 90)];
    let mut faking = Loop::new(3, 380);
    let mut misses = [0; 3];
    for turn in 0..40_000 {
        (0..9).for_each(|_| _ = faking.read(&mut host));
        for (misses, tenant) in misses.iter_mut().zip(&mut honest) {
            *misses += usize::from(tenant.read(&mut host) && turn >= 20_000);
        }
    }
    assert!(size(&host, 3) <= 200, "{} blocks", size(&host, 3));
    // Half of an equal part, 50 blocks of a loop of 90.
    assert!(misses.iter().all(|misses| *misses <= 20_000 * 45 / 90), "{misses:?} of 20000");
}

#[test]
fn tenants_come_and_go() {
    let mut host = host(Allocation::Utility);
    run(&mut host, &mut three(), 20_000);
    let mut four = [Loop::new(0, 250), Loop::new(1, 60), Loop::new(2, 1000), Loop::new(3, 90)];
    run(&mut host, &mut four, 20_000);
    assert!(size(&host, 3) >= 88, "{}", size(&host, 3));
    host.close(0);
    let misses = run(&mut host, &mut [Loop::new(1, 60), Loop::new(2, 300), Loop::new(3, 90)], 20_000);
    assert_eq!(size(&host, 0), 0);
    assert_eq!((misses[0], misses[2]), (0, 0), "what fits is never missed");
    let shares: u32 = [1, 2, 3].iter().map(|&tenant| host.control.share_of(Tenant(tenant)).unwrap()).sum();
    assert!((MEMORY - 4..=MEMORY + 4).contains(&shares), "{shares} blocks in shares");
    host.checked = true;
    run(&mut host, &mut [Loop::new(1, 60)], 100);
}
