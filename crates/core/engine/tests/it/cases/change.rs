//! Another size and another policy while the cache is in use.

use std::collections::VecDeque;

use nigh_control::{Allocation, Directive, Refusal};
use nigh_engine::{
    BlockState, Config, ConfigError, Engine, Op, Outcome, Port, Region, Reply, Successor, Tenants, Volume, WriteMode,
};
use nigh_policy::{Spec, Tenant};

use crate::cases::host::{BLOCK, Host, config, fill_of};

const DISK: usize = 64 * BLOCK;

fn one_disk(capacity: u32) -> Host {
    Host::new(config(capacity, "lru"), &[(DISK, WriteMode::Back)])
}

fn large(capacity: u32, policy: &str) -> Host {
    let mut config = config(capacity, policy);
    config.capacity_max = 4 * capacity;
    Host::new(config, &[(8 * capacity as usize * BLOCK, WriteMode::Back)])
}

/// Blocks of the first disk that are there.
fn present(host: &Host, blocks: usize) -> Vec<usize> {
    (0..blocks).filter(|&block| host.engine.state(Volume(0), block as u64) != BlockState::Absent).collect()
}

fn policies() -> impl Iterator<Item = &'static str> {
    nigh_policy::registry().iter().filter(|info| !info.offline).map(|info| info.name)
}

#[test]
fn the_dirty_limit_follows_the_capacity() {
    let mut config = config(16, "lru");
    config.capacity_max = 32;
    config.limits.request_bytes = BLOCK as u32;
    (config.write_back.start, config.write_back.stop) = (8, 4);
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    // How many blocks can be dirty while nothing is written back.
    let fill = |host: &mut Host, blocks: usize| {
        let mut writes = (0..blocks).map(|block| host.submit(host.request(0, Op::Write, block * BLOCK, BLOCK), 0xaa));
        writes.position(|outcome| outcome.is_none()).unwrap_or(blocks)
    };
    assert_eq!(fill(&mut host, 12), 12);
    host.resize(4);
    host.engine.check();
    // A quarter of 16: what is dirty beyond is written before more is let in.
    assert!(host.submit(host.request(0, Op::Write, 60 * BLOCK, BLOCK), 0xbb).is_none());
    while host.engine.gauges().dirty >= 4 {
        assert!(host.reply().is_none());
        let operation = host.engine.next_operation(0).expect("write-back goes on");
        host.perform(operation);
        host.engine.check();
    }
    let fill_of_it = fill_of(host.engine.next_reply());
    host.engine.commit(0, fill_of_it);
    host.run();
    // The marks of write-back are 2 and 1.
    for block in 0..3 {
        host.write(0, block * BLOCK, BLOCK, 0xcc);
    }
    host.run();
    assert!(host.engine.gauges().dirty <= 1);
    for (capacity, most) in [(4, 4), (1, 2), (16, 16), (32, 32)] {
        host.engine.close(0, Volume(0), true, 99).expect("open");
        host.run();
        host.steps();
        while host.engine.next_reply().is_some() {}
        host.engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), DISK as u64)]).expect("closed");
        host.resize(capacity);
        assert_eq!(fill(&mut host, 40), most, "blocks are dirty at a capacity of {capacity}");
        host.engine.check();
    }
}

/// A parameter that is a number of blocks means something else in a simulation of other sizes.
#[test]
fn a_policy_without_a_curve_gives_way_to_one_that_has_it() {
    let mut config = config(16, "lirs:hir=4");
    config.curves = 16;
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    let mut curve_of = |policy: Option<&str>| {
        policy.into_iter().for_each(|policy| host.set_policy(policy).expect("possible"));
        (0..200).for_each(|at| drop(host.read(0, at * 7 % 48 * BLOCK, BLOCK)));
        host.engine.check();
        host.engine.curve(Tenant(0)).expect("there were references").map(|measured| measured.references > 0)
    };
    assert!(curve_of(None).is_err_and(|reason| reason.contains("hir")));
    assert_eq!(curve_of(Some("lru")), Ok(true));
    assert!(curve_of(Some("lirs:hir=4")).is_err());
    assert_eq!(curve_of(Some("clock")), Ok(true));
}

#[test]
fn capacity_and_policy_change_without_losing_anything() {
    let mut host = one_disk(16);
    for block in 0..16 {
        host.write(0, block * BLOCK, BLOCK, 0xa0 + block as u8);
    }
    host.resize(4);
    assert_eq!(host.engine.gauges().resident, 4);
    host.engine.check();
    host.run();
    // The last inserted stayed.
    let resident: Vec<u64> = (0..16).filter(|&b| host.engine.state(Volume(0), b) != BlockState::Absent).collect();
    assert_eq!(resident, [12, 13, 14, 15]);
    let mut returned = 0;
    while let Some(surplus) = host.engine.surplus_memory(5) {
        returned += surplus.len() / BLOCK;
        host.engine.return_memory(0, surplus);
    }
    assert_eq!(returned, 0, "16 of 16 frames are still allowed");
    host.resize(12);
    host.set_policy("fifo").expect("possible");
    for block in 0..16 {
        assert_eq!(host.read(0, block * BLOCK, 1), [0xa0 + block as u8]);
    }
    host.engine.check();
}

#[test]
fn what_is_not_possible_changes_nothing() {
    let mut host = one_disk(16);
    for block in 0..16 {
        host.read(0, block * BLOCK, 1);
    }
    let [lru, fifo]: [Spec; 2] = ["lru", "fifo"].map(|name| name.parse().expect("registered"));
    assert!(matches!(host.set_policy("opt"), Err(ConfigError::Policy(_))), "it needs the future");
    assert!(matches!(host.engine.resize(17), Err(ConfigError::Impossible { .. })));
    assert!(matches!(host.engine.resize(0), Err(ConfigError::Impossible { .. })));
    assert!(!host.engine.is_changing());
    assert_eq!((host.engine.gauges().resident, &host.engine.config().policy), (16, &lru));
    // Still LRU: the first block stays because it is used.
    host.read(0, 0, 1);
    host.read(0, 20 * BLOCK, 1);
    assert_eq!([0, 1].map(|block| host.engine.state(Volume(0), block)), [BlockState::Clean, BlockState::Absent]);
    host.set_policy("fifo").expect("possible");
    host.resize(4);
    assert_eq!((host.engine.gauges().resident, &host.engine.config().policy), (4, &fifo));
}

#[test]
fn a_smaller_cache_gives_memory_back() {
    let mut config = config(200, "lru");
    config.limits.requests = 1;
    let mut host = Host::new(config, &[(400 * BLOCK, WriteMode::Back)]);
    for block in 0..200 {
        host.read(0, block * BLOCK, 1);
    }
    host.resize(10);
    let mut returned = 0;
    while let Some(surplus) = host.engine.surplus_memory(7) {
        returned += surplus.len() / BLOCK;
        host.engine.return_memory(0, surplus);
    }
    assert_eq!(returned, 200 - 10 - 12);
    host.resize(200);
    for block in 0..400 {
        assert_eq!(host.read(0, block * BLOCK, 1), [block as u8 % 64]);
    }
    host.engine.check();
}

#[test]
fn who_waits_for_frames_that_are_being_given_back_goes_on() {
    let mut config = config(200, "lru");
    config.limits.dirty = 64;
    let spare = config.spare as usize;
    let mut host = Host::new(config, &[(400 * BLOCK, WriteMode::Back)]);
    for block in 0..200 {
        host.read(0, block * BLOCK, 1);
    }
    host.resize(1);
    let surplus = host.engine.surplus_memory(1000).expect("almost all of them");
    // Writes whose frames nobody fills yet take what is left, until one has to wait.
    let mut fills = Vec::new();
    for block in 0..=spare {
        match host.engine.submit(0, host.request(0, Op::Write, block * BLOCK, BLOCK)).expect("room for requests").reply
        {
            Some(Reply { outcome: Outcome::Fill(fill), .. }) => fills.push(fill),
            None => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(host.engine.gauges().waiting == 1 && fills.len() <= spare, "{} writes wait for nothing", fills.len());
    host.engine.return_memory(0, surplus);
    assert!(matches!(host.reply(), Some(Outcome::Fill(_))), "it waits for frames that are there");
}

/// The blocks stay in the order of LRU, whatever the size, as in a cache that is emptied and filled by hand.
#[test]
fn order_is_kept_when_the_size_changes() {
    let mut host = large(200, "lru");
    let mut order = VecDeque::new();
    let mut capacity = 200;
    let mut random = 1u64;
    for at in 0..6000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (random >> 33) as usize % 700;
        let hits = host.counters(0).hits;
        host.read(0, block * BLOCK, 1);
        let hit = order.contains(&block);
        assert_eq!(host.counters(0).hits > hits, hit, "reference {at}");
        order.retain(|&other| other != block);
        order.push_back(block);
        order.drain(..order.len().saturating_sub(capacity as usize));
        if at % 500 == 499 {
            capacity = [37, 100, 800, 400, 401, 200][at / 500 % 6];
            host.resize(capacity);
            host.engine.check();
            order.drain(..order.len().saturating_sub(capacity as usize));
        }
    }
}

#[test]
fn a_step_moves_few_blocks() {
    const MOST: u32 = 128;
    let mut host = large(1000, "lru");
    for block in 0..1000 {
        host.read(0, block * BLOCK, 1);
    }
    let mut steps = 0;
    host.engine.resize(100).expect("possible");
    assert_eq!((host.engine.gauges().resident, host.engine.next_wakeup()), (1000, Some(0)));
    loop {
        let before = host.engine.gauges().resident;
        let more = host.engine.step(0);
        assert!(before - host.engine.gauges().resident <= MOST);
        host.engine.check();
        steps += 1;
        if !more {
            break;
        }
    }
    assert_eq!((host.engine.gauges().resident, host.engine.capacity(), steps), (100, 100, 900u32.div_ceil(MOST)));
    assert!(!host.engine.is_changing() && host.engine.next_wakeup().is_none());
    assert_eq!(present(&host, 1000), Vec::from_iter(900..1000));
    host.engine.resize(4000).expect("possible");
    let mut before = host.engine.capacity();
    while host.engine.step(0) {
        assert!(host.engine.capacity() - before <= MOST);
        before = host.engine.capacity();
        host.engine.check();
    }
    assert_eq!(host.engine.capacity(), 4000);
}

/// A change can reverse the one before it.
#[test]
fn a_change_of_mind_half_way() {
    let mut host = large(1000, "lirs");
    for block in (0..1000).chain(300..800) {
        host.read(0, block * BLOCK, 1);
    }
    for (goal, steps) in [(100, 3), (3000, 2), (1000, 9), (3000, 1), (4000, 3), (200, 1000)] {
        host.engine.resize(goal).expect("possible");
        for _ in 0..steps {
            host.engine.step(0);
            host.engine.check();
        }
    }
    assert_eq!((host.engine.gauges().resident, host.engine.capacity()), (200, 200));
}

#[test]
fn a_smaller_cache_waits_for_what_is_dirty() {
    let mut config = config(400, "lru");
    config.limits.dirty = 400;
    (config.write_back.start, config.write_back.stop) = (400, 200);
    let mut host = Host::new(config, &[(400 * BLOCK, WriteMode::Back)]);
    for block in 0..400 {
        host.write(0, block * BLOCK, BLOCK, block as u8);
    }
    host.engine.resize(4).expect("possible");
    // A step more than there are spare frames.
    while host.engine.step(0) {}
    assert!(host.engine.is_changing(), "it cannot go on before anything is written");
    assert_eq!(host.engine.next_wakeup(), Some(0), "what left is to be written at once");
    assert!(host.engine.gauges().resident >= 400 - 2 * 128);
    // Hits go on, and see what was written.
    assert_eq!(host.read(0, 399 * BLOCK, 1), [143]);
    while host.engine.is_changing() {
        let operation = host.engine.next_operation(0).expect("write-back goes on");
        host.perform(operation);
        while host.engine.step(0) {}
        host.engine.check();
    }
    assert_eq!(host.engine.gauges().resident, 4);
    host.run();
    assert_eq!(host.engine.gauges().frames, 4);
    for block in 0..400 {
        assert_eq!(host.read(0, block * BLOCK, 1), [block as u8]);
    }
}

#[test]
fn what_was_evicted_is_remembered_in_a_cache_of_another_size() {
    for policy in policies() {
        let mut host = large(64, policy);
        for at in 0..4000usize {
            let block = at * at % 251 % 160;
            host.read(0, block * BLOCK, 1);
        }
        let (before, blocks) = (host.engine.gauges(), present(&host, 512));
        host.resize(128);
        host.engine.check();
        let after = host.engine.gauges();
        assert_eq!(after.resident, before.resident, "{policy}");
        // A ghost that the policy forgets with a block comes back at its next call.
        assert!((before.ghosts.saturating_sub(1)..=before.ghosts).contains(&after.ghosts), "{policy}: {after:?}");
        assert_eq!(present(&host, 512), blocks, "{policy}");
    }
}

/// Every policy after every other, with references and writes between the steps: nothing is lost, and what was there stays
/// there unless it is evicted.
#[test]
fn policies_take_over_from_each_other() {
    let mut host = large(300, "lru");
    let mut bytes = vec![None; 600];
    let mut random = 1u64;
    let mut reference = |host: &mut Host| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (random >> 33) as usize % 600;
        let block = if random >> 40 & 3 == 0 { block } else { block / 4 };
        if random >> 50 & 7 == 0 {
            bytes[block] = Some((random >> 20) as u8);
            host.write(0, block * BLOCK, BLOCK, (random >> 20) as u8);
        } else {
            let expected = bytes[block].unwrap_or(block as u8 % 64);
            assert_eq!(host.read(0, block * BLOCK, 1), [expected], "block {block}");
        }
    };
    let all: Vec<&str> = policies().collect();
    for (at, _) in all.iter().enumerate() {
        for step in 1..all.len() {
            for _ in 0..20 {
                reference(&mut host);
            }
            let policy: Spec = all[(at * 7 + at + step * 5) % all.len()].parse().expect("registered");
            let next = Successor::new(&policy, &host.engine.setup(&policy).expect("possible")).expect("possible");
            let resident = host.engine.gauges().resident;
            host.engine.set_policy(next).expect("a cache without tenants");
            if step % 3 == 0 {
                host.engine.resize([150, 300, 299][at % 3]).expect("possible");
            } else {
                assert_eq!(host.engine.gauges().resident, resident);
            }
            while host.engine.step(0) {
                reference(&mut host);
                host.engine.check();
            }
            assert_eq!(host.engine.config().policy, policy);
            assert!(host.engine.take_retired().is_some());
        }
        host.run();
    }
    assert!(host.counters(0).hits > 2000);
}

/// The last one that was asked for decides in the end.
#[test]
fn a_policy_that_waits_is_given_back_for_another() {
    let mut host = large(300, "lru");
    for block in 0..300 {
        host.read(0, block * BLOCK, 1);
    }
    let successor = |host: &Host, policy: &str| {
        let policy = policy.parse().expect("registered");
        Successor::new(&policy, &host.engine.setup(&policy).expect("possible")).expect("possible")
    };
    for policy in ["lirs", "arc", "sieve"] {
        let next = successor(&host, policy);
        let waited = host.engine.set_policy(next).expect("a cache without tenants");
        assert_eq!(waited.map(|waited| waited.spec().to_string()), (policy == "sieve").then(|| "arc".to_owned()));
        if policy == "lirs" {
            while host.engine.config().policy.name() != "lirs" {
                host.engine.step(0);
            }
        }
    }
    host.steps();
    host.engine.check();
    assert_eq!((host.engine.config().policy.name(), host.engine.gauges().resident), ("sieve", 300));
}

/// A policy is made without the engine's lock, and the engine may have become smaller by the time it gets it.
#[test]
fn a_policy_made_for_a_larger_cache_takes_over() {
    for policy in policies() {
        let mut host = large(300, "lru");
        let spec: Spec = policy.parse().expect("registered");
        let setup = host.engine.setup(&spec).expect("possible");
        let next = Successor::new(&spec, &setup).expect("possible");
        host.resize(20);
        host.engine.set_policy(next).expect("a cache without tenants");
        host.steps();
        for capacity in [20, 10, 300, 1200] {
            host.resize(capacity);
            (0..400).for_each(|block| drop(host.read(0, block * BLOCK, 1)));
            host.engine.check();
        }
    }
}

#[test]
fn in_a_cache_without_tenants_nobody_is_heard() {
    let mut host = one_disk(16);
    let one = Tenant(0);
    let said = host.engine.direct(one, &Directive::SetPriority { file: 0, priority: 1 });
    assert!(matches!(said, Err(Refusal::NotHeard)));
    assert!(matches!(host.engine.extend(one, Volume(0), 0..9), Err(Refusal::NotHeard)));
    assert!(matches!(host.engine.set_bounds(one, 1, 2), Err(Refusal::NotHeard)));
    assert!(host.engine.name_files(one, Volume(0), Vec::new()).is_err());
    host.engine.close_tenant(one);
    assert_eq!((host.engine.said(one), host.engine.owned(one), host.engine.statistics(one)), (Vec::new(), None, None));
    assert!(!host.engine.has_file(0) && !host.engine.is_predicted(one) && !host.engine.hears_tenants());
}

/// The policies of tenants change as that of a cache without tenants does, and all blocks stay.
#[test]
fn a_cache_with_tenants_changes_their_policies() {
    let config = Config { tenants: Some(Tenants::default()), ..config(300, "lirs") };
    let mut host = Host::new(config, &[(600 * BLOCK, WriteMode::Back)]);
    let read = |host: &mut Host| (0..300).for_each(|block| drop(host.read(0, block * BLOCK, 1)));
    read(&mut host);
    assert_eq!(host.engine.policy_of(Tenant(0)).as_deref(), Some("lirs"));
    for policy in ["arc", "lru", "w-tinylfu", "lirs:ghosts=4", "lirs"] {
        host.set_policy(policy).expect("a policy of tenants");
        host.steps();
        host.engine.check();
        assert_eq!(host.engine.policy_of(Tenant(0)).as_deref(), Some(policy));
        assert_eq!(host.engine.gauges().resident, 300);
        read(&mut host);
    }
    assert_eq!(host.counters(0).hits, 5 * 300);
    host.engine.set_policy_of(Tenant(0), Some(&"mq".parse().expect("registered"))).expect("a policy of tenants");
    host.set_policy("arc").expect("a policy of tenants");
    host.steps();
    assert_eq!(host.engine.policy_of(Tenant(0)).as_deref(), Some("mq"));
    let policy = "opt".parse().expect("registered");
    assert!(matches!(host.engine.setup(&policy), Err(ConfigError::Tenants(Refusal::Policy(_)))));
    host.set_policy("lirs:hir=100").expect("a number of blocks is a parameter");
}

#[test]
fn a_policy_that_tenants_cannot_have_is_rejected() {
    let with = |allocation, policy| {
        let control = nigh_control::Config { allocation, ..nigh_control::Config::default() };
        Engine::new(Config { tenants: Some(Tenants { control, ..Tenants::default() }), ..config(16, policy) }).map(drop)
    };
    with(Allocation::LruSp, "lirs").expect("possible");
    with(Allocation::Global, "lru").expect("possible");
    assert!(matches!(with(Allocation::Global, "lirs"), Err(ConfigError::Tenants(Refusal::OneList))));
    assert!(matches!(
        with(Allocation::LruSp, "lirs:ghosts=unlimited"),
        Err(ConfigError::Tenants(Refusal::Unlimited { .. }))
    ));
    let of_levels = with(Allocation::LruSp, "ulc").unwrap_err();
    assert!(matches!(of_levels, ConfigError::Tenants(Refusal::Unified { .. })), "{of_levels}");
}

/// A large cache's tenants have policies that can number its slots.
#[test]
fn a_policy_of_tenants_grows_as_far_as_the_cache() {
    let mut config = Config { tenants: Some(Tenants::default()), ..config(16, "lirs") };
    config.capacity_max = 6_000_000;
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    let refused = host.engine.resize(6_000_000).unwrap_err();
    assert!(matches!(refused, ConfigError::Slots { most: 8_388_606, .. }), "{refused}");
    host.engine.resize(1_000_000).expect("few enough");
}

/// LIRS is made with links of 23 bits where these suffice.
#[test]
fn a_cache_does_not_outgrow_its_policy() {
    let mut config = config(16, "lirs:ghosts=2");
    config.capacity_max = 6_000_000;
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    let successor = |host: &Host, policy: &str| {
        let policy: Spec = policy.parse().expect("a policy");
        Successor::new(&policy, &host.engine.setup(&policy).expect("possible")).expect("possible")
    };
    let refused = host.engine.resize(6_000_000).unwrap_err();
    assert!(matches!(refused, ConfigError::Slots { most: 8_388_606, .. }), "{refused}");
    assert!(refused.to_string().contains("policy 'lirs:ghosts=2' was created for at most 8388606 slots"), "{refused}");
    assert_eq!((host.engine.is_changing(), host.engine.capacity()), (false, 16));
    host.resize(4000);
    host.engine.check();
    // Another policy numbers more.
    let next = successor(&host, "lru");
    assert!(host.engine.set_policy(next).unwrap().is_none());
    host.steps();
    host.engine.resize(6_000_000).unwrap();
    // One that was made for less cannot come meanwhile.
    let next = successor(&host, "lirs:ghosts=2");
    assert!(matches!(host.engine.set_policy(next), Err(ConfigError::Slots { .. })));
}
