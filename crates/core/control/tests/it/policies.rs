//! The policies that tenants have without a hint: that of the cache, or their own.

use crate::host;
use crate::host::{Host, OWN, block, file_of};
use nigh_control::{Allocation, Config, Directive, Limits, Order, Refusal};
use nigh_policy::{Tenant, registry};

fn policy(text: &str) -> Order {
    Order::from(text.parse::<nigh_policy::Spec>().expect("a policy of the registry"))
}

fn of(host: &Host, tenant: u32) -> String {
    host.control.policy(Tenant(tenant), 0).to_string()
}

/// References of `tenant` to its blocks `numbers`; how many missed.
fn read(host: &mut Host, tenant: u32, numbers: impl IntoIterator<Item = u64>) -> usize {
    let own = u64::from(tenant) * OWN;
    numbers.into_iter().filter(|number| !host.access(tenant, block(own + number)).hit).count()
}

#[test]
fn a_tenant_has_the_policy_of_the_cache_or_its_own() {
    let mut host = Host::new(12, 24, Config::default());
    host.set_policy(policy("lirs")).unwrap();
    host.set_policy_of(1, Some(policy("clock-pro"))).unwrap();
    (0..3).for_each(|tenant| _ = read(&mut host, tenant, 0..3));
    assert_eq!([0, 1, 2].map(|tenant| of(&host, tenant)), ["lirs", "clock-pro", "lirs"]);
    // A loop longer than the cache: LRU would miss all of it.
    let mut host = Host::new(12, 24, Config::default());
    host.set_policy(policy("lirs")).unwrap();
    let missed: usize = (0..20).map(|_| read(&mut host, 0, 0..16)).sum();
    assert!(missed < 20 * 16 / 2, "{missed} of 320");

    host.set_policy(policy("arc")).unwrap();
    assert_eq!(of(&host, 0), "arc");
    host.set_policy_of(0, Some(policy("lru"))).unwrap();
    assert_eq!(of(&host, 0), "lru");
    host.set_policy_of(0, None).unwrap();
    assert_eq!(of(&host, 0), "arc");
    // A tenant that has left takes its own policy along.
    host.set_policy_of(0, Some(policy("mq"))).unwrap();
    host.close(0);
    assert_eq!(of(&host, 0), "arc");
}

#[test]
fn hints_choose_beside_it_and_only_they_are_limited() {
    let limits = Limits { policies: 1, ..Limits::default() };
    let mut host = Host::new(12, 24, Config { limits, ..Config::default() });
    host.set_policy(policy("lirs")).unwrap();
    (0..4).for_each(|tenant| _ = read(&mut host, tenant, 0..3));
    let hint = |priority, text| Directive::SetPolicy { priority, policy: policy(text) };
    host.apply(0, hint(0, "lfu")).unwrap();
    let refused = host.apply(1, hint(0, "lfu"));
    assert!(matches!(refused, Err(Refusal::TooManyPolicies { most: 1 })), "{refused:?}");
    assert_eq!(host.control.said(Tenant(0)), [hint(0, "lfu")]);
    assert_eq!(host.control.said(Tenant(1)), []);
    // Of its own level, a hint decides.
    host.set_policy(policy("arc")).unwrap();
    assert_eq!([0, 1].map(|tenant| of(&host, tenant)), ["lfu", "arc"]);
    host.apply(0, hint(0, "lru")).unwrap();
    assert_eq!(host.control.said(Tenant(0)), [hint(0, "lru")]);
    // LRU is no policy that costs memory.
    host.apply(1, hint(0, "lfu")).unwrap();
    // Files with another priority are under LRU, as in the paper.
    host.apply(2, Directive::SetPriority { file: file_of(2 * OWN), priority: 1 }).unwrap();
    assert_eq!(host.control.policy(Tenant(2), 1), Order::Lru);
}

#[test]
fn a_policy_that_tenants_cannot_have_is_rejected() {
    let mut host = Host::new(12, 24, Config::default());
    assert!(matches!(host.set_policy(policy("opt")), Err(Refusal::Policy(_))));
    assert!(matches!(host.set_policy_of(0, Some(policy("opt"))), Err(Refusal::Policy(_))));
    assert!(matches!(host.set_policy_of(Limits::default().tenants, None), Err(Refusal::NoTenant)));
    assert_eq!(of(&host, 0), "lru");
    let mut host = Host::new(12, 24, Config { allocation: Allocation::Global, ..Config::default() });
    assert!(matches!(host.set_policy(policy("lirs")), Err(Refusal::OneList)));
    host.set_policy(policy("lru")).unwrap();
}

/// A new policy gets a tenant's blocks in steps, and a further one waits until the first has them.
#[test]
fn blocks_move_to_a_new_policy_in_steps() {
    let mut host = Host::new(1000, 3000, Config::default());
    host.checked = false;
    read(&mut host, 0, 0..900);
    host.prompt = false;
    host.set_policy(policy("lirs")).unwrap();
    let steps = |host: &mut Host| {
        let mut steps = 0;
        while host.step(10) {
            steps += 1;
        }
        steps
    };
    assert!(steps(&mut host) >= 80, "900 blocks, 10 at a time");
    assert_eq!(of(&host, 0), "lirs");
    host.set_policy(policy("arc")).unwrap();
    assert!(host.step(10));
    host.set_policy(policy("2q")).unwrap();
    assert_eq!(of(&host, 0), "arc");
    assert!(steps(&mut host) >= 160, "to arc, and to 2q");
    assert_eq!(of(&host, 0), "2q");
    assert_eq!(read(&mut host, 0, 0..900), 0);
}

/// The second criterion of 3.2, with policies in place of hints: whatever policy a tenant has, the others miss no more than under global LRU.
#[test]
fn no_policy_of_a_tenant_makes_others_miss_more() {
    for info in registry().iter().filter(|info| !info.offline) {
        for seed in 0..8 {
            let capacity = [5, 12, 30, 60][seed as usize % 4];
            let misses = |allocation, policies: bool| {
                let mut host = Host::new(capacity, 3 * capacity, Config { allocation, ..Config::default() });
                host.checked = false;
                if policies {
                    host.set_policy_of(0, Some(policy(info.name))).unwrap();
                }
                let mut missed = [0; 2];
                for (tenant, number) in host::references(seed, 2, 40, 3000) {
                    missed[tenant as usize] += u32::from(!host.access(tenant, block(number)).hit);
                }
                missed
            };
            let (own, global) = (misses(Allocation::LruSp, true), misses(Allocation::Global, false));
            assert!(own[1] <= global[1], "policy {}, seed {seed}: {own:?}, global LRU {global:?}", info.name);
        }
    }
}

/// Three tenants in step: at each miss one takes a block from another, so that each tenant's part becomes smaller and larger in turn.
#[test]
fn a_policy_whose_part_changes_by_a_block_keeps_what_it_has() {
    for name in ["lirs", "clock-pro"] {
        let mut host = Host::new(100, 300, Config::default());
        host.checked = false;
        host.set_policy(policy(name)).unwrap();
        let mut round = || {
            let numbers = (0..100).flat_map(|number| (0..3).map(move |tenant| (tenant, number)));
            let hit = |&(tenant, number): &(u32, u64)| host.access(tenant, block(u64::from(tenant) * OWN + number)).hit;
            numbers.filter(hit).count()
        };
        (0..5).for_each(|_| _ = round());
        let hits = round();
        assert!(hits >= 95, "{name} hits {hits} of 300, a third of which fits");
    }
}

/// Parameters can be numbers of blocks, of the cache when the policy was set; it may become smaller.
#[test]
fn numbers_of_blocks_are_possible_parameters() {
    for spec in ["2q:in=30", "w-tinylfu:window=30", "s3-fifo:small=30", "lirs:hir=30", "fbr:old=30"] {
        let mut host = Host::new(100, 300, Config::default());
        host.set_policy(policy(spec)).unwrap();
        read(&mut host, 0, 0..150);
        host.resize(10, 30);
        read(&mut host, 1, 0..20);
        host.close(0);
        read(&mut host, 0, 0..20);
        assert_eq!([0, 1].map(|tenant| of(&host, tenant)), [spec, spec]);
    }
    let mut host = Host::new(10, 30, Config::default());
    assert!(matches!(host.set_policy(policy("2q:in=30")), Err(Refusal::Policy(_))));
    assert!(matches!(host.set_policy(policy("lirs:ghosts=unlimited")), Err(Refusal::Unlimited { .. })));
}
