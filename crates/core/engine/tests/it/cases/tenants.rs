//! Tenants and their directives, in the engine.

use nigh_control::{Chunk, Directive, Statistics};
use nigh_engine::{Action, Config, Op, Outcome, Piece, Tenants, Volume, WriteMode};
use nigh_policy::Tenant;

use crate::cases::host::{BLOCK, Host, config};

const ONE: Tenant = Tenant(0);

/// A cache of `capacity` blocks, and disks of 64 blocks, each with a tenant of its number.
fn host(capacity: u32, disks: usize) -> Host {
    let config = Config { tenants: Some(Tenants::default()), ..config(capacity, "lru") };
    Host::new(config, &vec![(64 * BLOCK, WriteMode::Back); disks])
}

/// A cache of one tenant, with a disk of 512 blocks.
fn host_of(control: nigh_control::Config, config: Config) -> Host {
    let tenants = Some(Tenants { control, ..Tenants::default() });
    Host::with_depth(Config { tenants, ..config }, &[(512 * BLOCK, WriteMode::Back)], 16)
}

fn chunk(file: u32, first: usize, blocks: usize) -> Chunk {
    Chunk { file, bytes: Some(((first * BLOCK) as u64, (blocks * BLOCK) as u64)) }
}

fn statistics(host: &mut Host, tenant: Tenant) -> Statistics {
    host.engine.statistics(tenant).expect("a cache with tenants")
}

#[test]
fn what_comes_too_late_for_its_tenant_is_counted() {
    let mut host = host(16, 1);
    host.engine.direct(ONE, &Directive::Predict { accesses: vec![chunk(0, 0, 3)] }).unwrap();
    let fetched = host.operations();
    assert_eq!(fetched.iter().map(|operation| operation.length).sum::<u64>(), 3 * BLOCK as u64);
    // Twice by two requests, but it is late once.
    for _ in 0..2 {
        assert!(host.submit(host.request(0, Op::Read, 0, BLOCK), 0).is_none());
    }
    fetched.into_iter().for_each(|operation| host.perform(operation));
    for _ in 0..2 {
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
    host.read(0, BLOCK, 2 * BLOCK);
    let Statistics { prefetched, used, late, wasted, .. } = statistics(&mut host, ONE);
    assert_eq!((prefetched, used, late, wasted), (3, 3, 1, 0));
    assert_eq!(host.counters(0).prefetch_late, 1);
}

/// The largest batch, after both sizes were tried, of a list of scattered blocks. `batch_us` is the time of the device for a batch of
/// this many blocks.
fn batch_of(batch_us: fn(u64) -> u64) -> usize {
    let adapting = nigh_control::Config { batch: 4, adapt_batch: true, window: 0, ..nigh_control::Config::default() };
    let mut host = host_of(adapting, config(400, "lru"));
    let accesses = (0..200).map(|block| chunk(0, 2 * block, 1)).collect();
    host.engine.direct(ONE, &Directive::Predict { accesses }).unwrap();
    let mut batches = Vec::new();
    loop {
        let operations = host.operations();
        if operations.is_empty() {
            break;
        }
        batches.push(operations.len());
        host.now += batch_us(operations.len() as u64);
        operations.into_iter().for_each(|operation| host.perform(operation));
    }
    assert_eq!(batches.iter().sum::<usize>(), 200);
    batches.into_iter().skip(70).max().expect("more batches than both trials have")
}

#[test]
fn batches_adapt_to_how_long_the_device_takes() {
    assert_eq!(batch_of(|_| 100), 4, "blocks of a batch are read at once");
    assert_eq!(batch_of(|blocks| 100 * blocks), 1, "one after the other");
}

#[test]
fn a_batch_of_all_that_the_host_fetches_at_a_time_is_followed_by_the_next() {
    let batches = nigh_control::Config { batch: 4, ..nigh_control::Config::default() };
    let mut host = host_of(batches, config(16, "lru"));
    host.engine.direct(ONE, &Directive::Predict { accesses: vec![chunk(0, 0, 8)] }).unwrap();
    for _ in 0..2 {
        let fetched = host.operations();
        assert_eq!(fetched.iter().map(|operation| operation.length).sum::<u64>(), 4 * BLOCK as u64);
        fetched.into_iter().for_each(|operation| host.perform(operation));
    }
}

#[test]
fn blocks_that_need_no_read_hold_up_no_prefetch() {
    let single = nigh_control::Config { batch: 1, free_least: 1, window: 0, ..nigh_control::Config::default() };
    let mut host = host_of(single, Config { spare: 24, ..config(8, "lru") });
    (0..4).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    // These leave the cache for others, but have not been written.
    for block in 8..16 {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, BLOCK), 0).is_none());
    }
    let (reads, writes): (Vec<_>, Vec<_>) =
        host.operations().into_iter().partition(|operation| matches!(operation.action, Action::Read(_)));
    reads.into_iter().for_each(|operation| host.perform(operation));
    host.engine.direct(ONE, &Directive::Predict { accesses: vec![chunk(0, 0, 4), chunk(0, 40, 1)] }).unwrap();
    let fetched: Vec<u64> = host.operations().iter().map(|operation| operation.offset).collect();
    assert_eq!(fetched, [40 * BLOCK as u64]);
    writes.into_iter().for_each(|operation| host.perform(operation));
}

#[test]
fn a_list_is_extended_by_ranges_of_the_disk_and_the_rest_of_it_is_told() {
    let mut host = host(16, 2);
    host.engine.extend(Tenant(1), Volume(1), 0..3 * BLOCK as u64).unwrap();
    host.engine.extend(Tenant(1), Volume(1), 40 * BLOCK as u64 + 7..41 * BLOCK as u64 + 1).unwrap();
    host.run();
    host.read(1, 0, BLOCK);
    let rest = Directive::Predict { accesses: vec![chunk(1, 1, 2), chunk(1, 40, 2)] };
    assert_eq!(host.engine.said(Tenant(1)), [rest]);
    host.run();
    host.read(1, BLOCK, 2 * BLOCK);
    host.read(1, 40 * BLOCK, 2 * BLOCK);
    assert_eq!((host.engine.said(Tenant(1)), host.engine.is_predicted(Tenant(1))), (vec![], false));
    let counters = host.counters(1);
    assert_eq!((counters.prefetch_issued, counters.prefetch_used, counters.misses), (5, 5, 0));
}

#[test]
fn files_can_be_named_anew_and_what_was_said_is_forgotten_then() {
    let mut host = host(8, 1);
    let piece = |disk, file, offset, blocks| Piece { volume: Volume(0), disk, file, offset, blocks };
    host.engine.set_bounds(ONE, 2, 6).unwrap();
    host.engine.direct(ONE, &Directive::SetPriority { file: 0, priority: 1 }).unwrap();
    host.engine.name_files(ONE, Volume(0), vec![piece(10, 5, 0, 4), piece(0, 5, 4, 2), piece(20, 6, 0, 30)]).unwrap();
    assert!(host.engine.name_files(ONE, Volume(0), vec![piece(0, 5, 0, 4), piece(3, 6, 0, 1)]).is_err());
    assert!(host.engine.has_file(5) && !host.engine.has_file(0));
    assert_eq!(host.engine.said(ONE), []);
    // The first file is kept, as far as the ceiling lets it; the second leaves.
    host.engine.direct(ONE, &Directive::SetPriority { file: 5, priority: 1 }).unwrap();
    for block in (10..14).chain(0..2).chain(20..40) {
        host.read(0, block * BLOCK, BLOCK);
    }
    host.engine.check();
    let before = host.counters(0).misses;
    for block in (10..14).chain(0..1) {
        host.read(0, block * BLOCK, BLOCK);
    }
    assert_eq!(host.counters(0).misses, before);
    host.engine.extend(ONE, Volume(0), 0..12 * BLOCK as u64).unwrap();
    let list = Directive::Predict { accesses: vec![chunk(5, 4, 2), chunk(5, 0, 2)] };
    assert_eq!(host.engine.said(ONE)[1..], [list]);
    host.engine.close_tenant(ONE);
    assert_eq!(host.engine.said(ONE), []);
}

#[test]
fn one_tenant_has_a_floor_and_a_list_on_two_disks_and_keeps_what_it_said_of_the_one_that_stays() {
    let mut host = host(16, 3);
    let whole =
        |volume: u32| vec![Piece { volume: Volume(volume), disk: 0, file: volume << 16, offset: 0, blocks: 64 }];
    let other = Tenant(2);
    host.engine.name_files(other, Volume(2), whole(2)).unwrap();
    host.engine.name_files(ONE, Volume(0), whole(0)).unwrap();
    host.engine.set_bounds(ONE, 6, 0).unwrap();
    let (first, second) = (0, 1 << 16);
    host.engine.direct(ONE, &Directive::SetPriority { file: first, priority: 1 }).unwrap();
    host.engine.name_files(ONE, Volume(1), whole(1)).unwrap();
    host.engine.direct(ONE, &Directive::SetPriority { file: second, priority: 2 }).unwrap();
    let list = [chunk(first, 0, 3), chunk(second, 0, 3), chunk(first, 8, 2)];
    host.engine.direct(ONE, &Directive::Predict { accesses: list.to_vec() }).unwrap();
    host.run();
    let read = |host: &mut Host, tenant: Tenant, volume: u32, block: usize| {
        let request = host.request(volume, Op::Read, block * BLOCK, BLOCK);
        assert!(matches!(host.finish(nigh_engine::Request { tenant, ..request }, 0), Outcome::Data(_)));
    };
    (0..3).for_each(|block| read(&mut host, ONE, 0, block));
    (0..2).for_each(|block| read(&mut host, ONE, 1, block));
    assert_eq!(statistics(&mut host, ONE).predicted, 5);
    // A neighbour that needs everything leaves it its floor, wherever these blocks lie.
    (0..60).for_each(|block| read(&mut host, other, 2, block));
    assert_eq!(host.engine.owned(ONE), Some(6));

    host.engine.close(0, Volume(1), false, 9).unwrap();
    host.run();
    host.steps();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    host.engine.name_files(ONE, Volume(1), Vec::new()).unwrap();
    host.run();
    host.engine.check();
    let stays = [
        Directive::SetPriority { file: first, priority: 1 },
        Directive::Predict { accesses: vec![chunk(first, 8, 2)] },
    ];
    assert_eq!(host.engine.said(ONE), stays);
    assert!(host.engine.has_file(first) && !host.engine.has_file(second));
    let before = host.counters(0).misses;
    (8..10).for_each(|block| read(&mut host, ONE, 0, block));
    assert_eq!((host.counters(0).misses, statistics(&mut host, ONE).predicted), (before, 7));
    // The floor is still its own.
    assert!(host.engine.set_bounds(other, 10, 0).is_err());
    host.engine.set_bounds(other, 9, 0).unwrap();
    // Directives for a closed disk are rejected.
    host.engine.extend(ONE, Volume(1), 0..4096).unwrap();
    assert!(!host.engine.is_predicted(ONE));
}
