//! Tenants one by one: limits, bounds, sharing, leaving, lists that are wrong, batches.

use crate::host;
use crate::host::{FILE, Host, OWN, block, file_of, number};
use nigh_control::{Allocation, Chunk, Config, Directive, Limits, Order, Refusal, Statistics};
use nigh_policy::{Block, Kind, Tenant};
use rand::RngExt;

fn whole(numbers: &[u64]) -> Directive {
    let chunk = |&number: &u64| Chunk { file: file_of(number), bytes: Some((number % FILE, 1)) };
    Directive::Predict { accesses: numbers.iter().map(chunk).collect() }
}

fn host(capacity: u32) -> Host {
    Host::new(capacity, capacity, Config::default())
}

/// Tenant `tenant` references its blocks `numbers`; how many missed.
fn read(host: &mut Host, tenant: u32, numbers: impl IntoIterator<Item = u64>) -> usize {
    let own = u64::from(tenant) * OWN;
    numbers.into_iter().filter(|number| !host.access(tenant, block(own + number)).hit).count()
}

fn size(host: &Host, tenant: u32) -> u32 {
    host.control.size(Tenant(tenant))
}

/// Blocks that `tenant` prefetches from `device` now, as far as its rules allow.
fn prefetches(host: &mut Host, tenant: u32, device: u32) -> Vec<u64> {
    let mut fetched = Vec::new();
    while let Some(ahead) = host.control.next_prefetch(Tenant(tenant), device, &host.blocks, 0) {
        host.reference(tenant, ahead, Kind::Prefetch);
        fetched.push(number(ahead));
    }
    fetched
}

#[test]
fn beyond_a_limit_a_call_fails_and_changes_nothing() {
    let limits = Limits { tenants: 3, files: 2, levels: 3, policies: 1, entries: 4, ..Limits::default() };
    let mut host = Host::new(8, 8, Config { limits, ..Config::default() });
    let priority = |file, priority| Directive::SetPriority { file, priority };
    let policy = |priority, policy: &str| Directive::SetPolicy {
        priority,
        policy: Order::Policy(policy.parse().expect("a policy")),
    };
    assert!(matches!(host.apply(3, priority(0, 1)), Err(Refusal::NoTenant)));
    host.apply(0, priority(0, 1)).unwrap();
    host.apply(0, priority(1, 2)).unwrap();
    assert!(matches!(host.apply(0, priority(2, 1)), Err(Refusal::TooManyFiles { most: 2 })));
    assert!(matches!(host.apply(0, priority(1, 3)), Err(Refusal::TooManyLevels { most: 3 })));
    assert_eq!([0, 1, 2].map(|file| host.control.priority(Tenant(0), file)), [1, 2, 0]);
    host.apply(0, priority(1, 1)).unwrap();
    host.apply(0, priority(1, 3)).unwrap();

    host.apply(0, policy(1, "lfu")).unwrap();
    assert!(matches!(host.apply(1, policy(0, "lfu")), Err(Refusal::TooManyPolicies { most: 1 })));
    assert!(matches!(host.apply(0, policy(1, "opt")), Err(Refusal::Policy(_))));
    assert_eq!(host.control.policy(Tenant(0), 1).to_string(), "lfu");
    assert_eq!(host.control.policy(Tenant(1), 0), Order::Lru);
    host.apply(0, Directive::SetPolicy { priority: 1, policy: Order::Mru }).unwrap();
    host.apply(1, policy(0, "lfu")).unwrap();

    assert!(matches!(host.apply(0, whole(&[0; 5])), Err(Refusal::TooManyAccesses { given: 5, most: 4 })));
    let chunk = |bytes| Directive::Predict { accesses: vec![Chunk { file: 0, bytes: Some(bytes) }] };
    assert!(matches!(host.apply(0, chunk((u64::MAX, 2))), Err(Refusal::BadRange)));
    assert!(matches!(host.apply(0, chunk((1, 0))), Err(Refusal::BadRange)));
    assert!(matches!(host.apply(0, chunk((0, 1 << 40))), Err(Refusal::TooManyBlocks)));
    let range = Directive::SetTemporaryPriority { file: 0, first: 2, last: 1, priority: 0 };
    assert!(matches!(host.apply(0, range), Err(Refusal::BadRange)));
    for (floor, ceiling) in [(3, 2), (8, 0)] {
        assert!(matches!(host.set_bounds(0, floor, ceiling), Err(Refusal::BadBounds)));
    }
}

/// A loop over twice the cache: LRU misses always, MRU keeps half of it.
#[test]
fn mru_keeps_a_part_of_a_loop() {
    let rounds = |policy| {
        let mut host = host(20);
        host.apply(0, Directive::SetPolicy { priority: 0, policy }).unwrap();
        read(&mut host, 0, (0..40).cycle().take(400))
    };
    assert_eq!(rounds(Order::Lru), 400);
    assert!(rounds(Order::Mru) < 40 + 9 * 22);
}

/// Index before data, as glimpse has it.
#[test]
fn what_has_priority_stays() {
    let mut host = host(16);
    host.apply(0, Directive::SetPriority { file: 0, priority: 1 }).unwrap();
    read(&mut host, 0, 0..FILE);
    read(&mut host, 0, 8..40);
    assert_eq!(read(&mut host, 0, 0..FILE), 0);
    // "Lasts until the next time the block is referenced": the first goes, the second was referenced again.
    host.apply(0, Directive::SetTemporaryPriority { file: 0, first: 0, last: 1, priority: -1 }).unwrap();
    read(&mut host, 0, [1]);
    read(&mut host, 0, 100..104);
    assert_eq!([0, 1, 2].map(|at| host.is_resident(block(at))), [false, true, true]);
}

/// The level of a temporary priority is gone with its last block: any number of them can be used one after the other.
#[test]
fn temporary_levels_do_not_pile_up() {
    let limits = Limits { levels: 4, ..Limits::default() };
    let mut host = Host::new(8, 8, Config { limits, ..Config::default() });
    for round in 1..100 {
        read(&mut host, 0, 0..4);
        let priority = -round;
        host.apply(0, Directive::SetTemporaryPriority { file: 0, first: 0, last: 3, priority }).unwrap();
    }
}

#[test]
fn floors_and_ceilings_hold_and_change_live() {
    let mut host = host(20);
    read(&mut host, 0, 0..10);
    host.set_bounds(0, 6, 0).unwrap();
    read(&mut host, 1, 0..100);
    assert_eq!((size(&host, 0), size(&host, 1)), (6, 14));
    // The six that were used last are there, and what comes in replaces the oldest of them.
    assert_eq!(read(&mut host, 0, 4..10), 0);
    host.set_bounds(0, 2, 0).unwrap();
    read(&mut host, 1, 100..200);
    assert_eq!(size(&host, 0), 2);
    // A tenant above its ceiling gives up a block whenever another one needs one.
    host.set_bounds(1, 0, 5).unwrap();
    read(&mut host, 0, 20..30);
    assert_eq!((size(&host, 0), size(&host, 1)), (12, 8));
    read(&mut host, 1, 200..300);
    assert_eq!(size(&host, 1), 8);
    read(&mut host, 0, 30..40);
    read(&mut host, 1, 300..400);
    assert_eq!((size(&host, 0), size(&host, 1)), (15, 5));
}

/// A ceiling is for a cache that is full.
#[test]
fn free_frames_are_anybodys() {
    let mut host = host(20);
    host.set_bounds(0, 0, 5).unwrap();
    read(&mut host, 0, 0..15);
    assert_eq!(size(&host, 0), 15);
    read(&mut host, 1, 0..15);
    assert_eq!((size(&host, 0), size(&host, 1)), (5, 15));
}

#[test]
fn static_shares_are_kept() {
    let mut host = Host::new(20, 20, Config { allocation: Allocation::Static, ..Config::default() });
    read(&mut host, 0, 0..100);
    assert_eq!(size(&host, 0), 20);
    read(&mut host, 1, 0..100);
    assert_eq!((size(&host, 0), size(&host, 1)), (10, 10));
    host.set_bounds(0, 0, 4).unwrap();
    read(&mut host, 0, 0..100);
    read(&mut host, 1, 0..100);
    host.close(1);
    assert_eq!(size(&host, 1), 0);
    read(&mut host, 2, 0..100);
    assert_eq!(size(&host, 2), 10);
}

/// "Blocks belonging to dead processes, or to more than one running process, are considered to have no owner; they are kept
/// around until they reach the end of the systemwide LRU list."
#[test]
fn blocks_without_an_owner_leave_at_the_end_of_the_list() {
    let mut host = host(8);
    host.apply(0, Directive::SetPolicy { priority: 0, policy: Order::Mru }).unwrap();
    read(&mut host, 0, 0..4);
    host.access(1, block(0));
    assert_eq!((size(&host, 0), size(&host, 1)), (3, 0));
    host.close(0);
    assert_eq!(host.control.policy(Tenant(0), 0), Order::Lru, "what it said is forgotten");
    // Without MRU and its owner, 1 leaves first; 2 belongs to who references it.
    host.access(1, block(2));
    assert_eq!(size(&host, 1), 1);
    let evicted: Vec<_> = (0..5).map(|at| host.access(1, block(OWN + at)).evicted).collect();
    assert_eq!(evicted, [None, None, None, None, Some(1)]);
}

/// 4.3: a batch begins when freeBlocks is at least 4 and none is underway, and has at most B prefetches.
#[test]
fn batches_have_their_rules() {
    let mut host = Host::new(12, 12, Config { batch: 3, window: 0, ..Config::default() });
    host.blocks.two_devices = true;
    // Files 0, 2 and 4 lie on the first device, 1 and 3 on the second.
    let list: Vec<u64> = (0..40).collect();
    host.apply(0, whole(&list)).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0), [0, 1, 2]);
    assert_eq!(prefetches(&mut host, 0, 0), [0u64; 0], "the batch is underway");
    assert_eq!(prefetches(&mut host, 0, 1), [8, 9, 10], "the other device has one of its own");
    for device in [0, 0, 0, 1, 1, 1] {
        host.control.prefetched(Tenant(0), device, Some(0));
    }
    assert_eq!(prefetches(&mut host, 0, 0), [3, 4, 5]);
    host.control.prefetched(Tenant(0), 0, Some(0));
    assert_eq!(prefetches(&mut host, 0, 0), [0u64; 0], "two of three are underway");
    assert_eq!(
        prefetches(&mut host, 0, 1),
        [0u64; 0],
        "three frames are free, and all that is cached comes before the hole"
    );
    assert_eq!(host.control.outstanding(Tenant(0)), 2);
    host.control.prefetched(Tenant(0), 0, Some(0));
    host.control.prefetched(Tenant(0), 0, Some(0));
    assert_eq!(read(&mut host, 0, 0..1), 0);
    // Three frames and the block that was read; 8, 9 and 10 come after 6 and 7, but not after 16.
    assert_eq!(prefetches(&mut host, 0, 0), [6, 7]);
    let statistics = host.control.statistics(Tenant(0));
    assert_eq!((statistics.prefetched, statistics.used, statistics.wasted), (11, 1, 0));
}

/// pCount is the tenant's: what lists before asked for is at the device, too, and a batch of the next list waits for it.
#[test]
fn a_new_list_waits_for_prefetches_of_the_one_before() {
    let mut host = Host::new(20, 20, Config { batch: 3, ..Config::default() });
    host.apply(0, whole(&[0, 1, 2, 3])).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0), [0, 1, 2]);
    host.apply(0, whole(&[4, 5, 6, 7])).unwrap();
    assert_eq!(host.control.outstanding(Tenant(0)), 3);
    host.control.prefetched(Tenant(0), 0, Some(0));
    host.control.prefetched(Tenant(0), 0, Some(0));
    assert_eq!(prefetches(&mut host, 0, 0), [0u64; 0]);
    host.close(0);
    assert_eq!(host.control.outstanding(Tenant(0)), 1);
    host.control.prefetched(Tenant(0), 0, Some(0));
    host.apply(0, whole(&[4, 5, 6, 7])).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0), [4, 5, 6]);
}

/// 2.1.3: no prefetch while an unpredicted reference is fetched.
#[test]
fn unpredicted_misses_come_first() {
    let mut host = host(12);
    host.apply(0, whole(&(0..8).collect::<Vec<u64>>())).unwrap();
    read(&mut host, 0, [100]);
    assert_eq!(prefetches(&mut host, 0, 0), [0u64; 0]);
    host.control.loaded(Tenant(0));
    assert_eq!(prefetches(&mut host, 0, 0).len(), 8);
    assert_eq!(host.control.statistics(Tenant(0)).unpredicted, 1);
}

/// 3.2: "a false prefetch occupies a cache block until the predicted access to it passes".
#[test]
fn false_prefetches_leave_when_their_access_has_passed() {
    let mut host = host(12);
    host.apply(0, whole(&[0, 1, 2, 3, 4])).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0), [0, 1, 2, 3, 4]);
    // 1 is skipped: the cursor examines the two accesses that are next.
    read(&mut host, 0, [0, 2, 3, 4]);
    assert_eq!(size(&host, 0), 4);
    let statistics = host.control.statistics(Tenant(0));
    assert_eq!((statistics.predicted, statistics.skipped, statistics.wasted, statistics.used), (4, 1, 1, 4));
    let evicted: Vec<_> = (100..108).filter_map(|at| host.access(1, block(OWN + at)).evicted).collect();
    assert_eq!(evicted, [1], "and it is the first to go");
}

/// Blocks that were skipped and not prefetched in vain are replaced before the tenant's other blocks.
#[test]
fn a_skipped_block_goes_first() {
    let mut host = host(4);
    read(&mut host, 0, [0, 1, 2, 3]);
    host.apply(0, whole(&[0, 3, 1])).unwrap();
    read(&mut host, 0, [3]);
    assert_eq!(host.access(0, block(50)).evicted, Some(0));
}

/// "If an application's list of predicted accesses is too often wrong, the list is discarded."
#[test]
fn a_bogus_list_is_dropped() {
    let mut host = host(20);
    host.apply(0, whole(&(0..100).collect::<Vec<u64>>())).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0).len(), 16);
    read(&mut host, 0, 200..260);
    let statistics = host.control.statistics(Tenant(0));
    assert_eq!((statistics.lists_dropped, statistics.wasted), (1, 16));
    assert_eq!(prefetches(&mut host, 0, 0), [0u64; 0]);
}

/// After a list that was wrong, others are fetched as far as they prove correct.
#[test]
fn who_was_wrong_is_believed_as_far_as_it_comes_true() {
    let mut host = Host::new(200, 200, Config { window: 0, ..Config::default() });
    let list = |first: u64| whole(&(first..first + 100).collect::<Vec<u64>>());
    // Batch after batch, without a reference.
    let fetched = |host: &mut Host| {
        let mut all = 0;
        loop {
            let batch = prefetches(host, 0, 0).len();
            (0..batch).for_each(|_| host.control.prefetched(Tenant(0), 0, Some(0)));
            all += batch;
            if batch == 0 {
                return all;
            }
        }
    };
    host.apply(0, list(0)).unwrap();
    assert_eq!(fetched(&mut host), 100, "who was never wrong has all of it fetched");
    read(&mut host, 0, 500..549);
    host.apply(0, list(100)).unwrap();
    assert_eq!(fetched(&mut host), 0);
    // One of its blocks again, and others, do not help.
    read(&mut host, 0, [105, 105, 600, 105]);
    assert_eq!(fetched(&mut host), 0);
    read(&mut host, 0, [100, 100, 101]);
    assert_eq!(fetched(&mut host), 4);
    assert_eq!(read(&mut host, 0, 102..107), 0, "105 was there before");
    assert_eq!(fetched(&mut host), 10);
    // A list in place of another one has the credit that is left.
    read(&mut host, 0, 107..110);
    host.apply(0, list(700)).unwrap();
    assert_eq!(fetched(&mut host), 6);
    read(&mut host, 0, 800..849);
    assert_eq!(host.control.statistics(Tenant(0)).lists_dropped, 2);
    host.apply(0, list(900)).unwrap();
    assert_eq!(fetched(&mut host), 0);
}

/// Of a tenant that sends wrong and correct lists at random, after its first list that was dropped.
#[test]
fn what_a_liar_has_fetched_is_bounded_by_what_came_true() {
    let mut dropped = 0;
    for seed in 0..40 {
        let mut random = host::random(seed);
        let mut host = Host::new(400, 400, Config { batch: 8, ..Config::default() });
        host.checked = false;
        let mut first: Option<Statistics> = None;
        let mut next = 0;
        for _ in 0..60 {
            let reads: Vec<u64> = (next..next + random.random_range(1..120)).collect();
            next += reads.len() as u64;
            let truth = random.random_range(0..=reads.len());
            let lies = (0..random.random_range(0..100)).map(|at| 100_000 + next + at);
            let said: Vec<u64> = reads[..truth].iter().copied().chain(lies).collect();
            host.apply(0, whole(&said)).unwrap();
            for at in reads {
                (0..prefetches(&mut host, 0, 0).len()).for_each(|_| host.control.prefetched(Tenant(0), 0, Some(0)));
                read(&mut host, 0, [at]);
                let now = host.control.statistics(Tenant(0));
                if now.lists_dropped > 0 {
                    let before = *first.get_or_insert(now);
                    let most = 2 * (now.predicted - before.predicted);
                    assert!(now.prefetched - before.prefetched <= most, "seed {seed}: {now:?} since {before:?}");
                }
            }
        }
        dropped += host.control.statistics(Tenant(0)).lists_dropped;
    }
    assert!(dropped > 200, "{dropped} lists were dropped");
}

/// A list takes the place of the one before, and the whole of a file is a chunk.
#[test]
fn a_list_of_files_is_read_from_beginning_to_end() {
    let mut host = host(20);
    host.apply(0, whole(&[50, 51])).unwrap();
    let accesses = vec![Chunk { file: 2, bytes: None }, Chunk { file: 1, bytes: Some((3, 2)) }];
    host.apply(0, Directive::Predict { accesses }).unwrap();
    assert_eq!(prefetches(&mut host, 0, 0), [16, 17, 18, 19, 20, 21, 22, 23, 11, 12]);
    host.apply(0, Directive::Predict { accesses: Vec::new() }).unwrap();
    assert_eq!(host.control.statistics(Tenant(0)).wasted, 10);
}

/// A list is 5,000 entries at most, and they may be long: nothing takes time or memory by the block.
#[test]
fn a_list_may_name_many_blocks() {
    let mut host = host(8);
    let all = Chunk { file: 9, bytes: Some((0, 800_000)) };
    host.apply(0, Directive::Predict { accesses: vec![all; 5000] }).unwrap();
    assert_eq!(host.control.next_prefetch(Tenant(0), 0, &host.blocks, 0), Some(Block { volume: 9, index: 0 }));
    let refused =
        host.apply(0, Directive::Predict { accesses: vec![Chunk { file: 9, bytes: Some((0, 900_000)) }; 5000] });
    assert!(matches!(refused, Err(Refusal::TooManyBlocks)));
}
