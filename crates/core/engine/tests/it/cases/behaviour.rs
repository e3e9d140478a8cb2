//! The engine's operations on devices, and its guarantees to clients, case by case.

use crate::cases::host::{BLOCK, Host, config, fill_of};
use nigh_engine::{
    Action, BlockState, Config, Engine, Fault, Op, Operation, Outcome, Port, Refusal, Region, Reply, Request, Volume,
    WriteMode,
};

const DISK: usize = 64 * BLOCK;

fn one_disk(capacity: u32) -> Host {
    Host::new(config(capacity, "lru"), &[(DISK, WriteMode::Back)])
}

/// (offset, length) of each, in blocks.
fn blocks(operations: &[Operation]) -> Vec<(u64, u64)> {
    let block = BLOCK as u64;
    operations.iter().map(|operation| (operation.offset / block, operation.length / block)).collect()
}

#[test]
fn neighbouring_misses_make_one_operation_up_to_the_limit() {
    let mut host = one_disk(16);
    host.read(0, 3 * BLOCK, 1);
    assert!(host.submit(host.request(0, Op::Read, 0, 8 * BLOCK), 0).is_none());
    assert_eq!(blocks(&host.operations()), [(0, 3), (4, 4)]);
}

#[test]
fn neighbours_of_different_requests_are_joined_in_the_queue() {
    let mut host = one_disk(16);
    for block in [10, 12, 11, 20] {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, BLOCK), 0).is_none());
    }
    let operations = host.operations();
    assert_eq!(blocks(&operations), [(10, 3), (20, 1)]);
    operations.into_iter().for_each(|operation| host.perform(operation));
    for _ in 0..4 {
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
}

#[test]
fn a_second_miss_joins_the_first() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Read, 0, 2 * BLOCK), 0).is_none());
    assert!(host.submit(host.request(0, Op::Read, BLOCK, 2 * BLOCK), 0).is_none());
    let operations = host.operations();
    assert_eq!(blocks(&operations), [(0, 3)]);
    operations.into_iter().for_each(|operation| host.perform(operation));
    assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    let counters = host.counters(0);
    assert_eq!((counters.misses, counters.joined, counters.hits, counters.device_reads), (3, 1, 0, 1));
}

#[test]
fn the_first_blocks_of_a_read_can_be_completed_before_the_others() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Read, 0, 4 * BLOCK), 0).is_none());
    let mut operation = host.operations().remove(0);
    let Action::Read(frames) = &mut operation.action else { panic!("a read") };
    frames.copy_from(&host.disks[0][..4 * BLOCK]);
    assert!(!host.engine.complete_first(host.now, &mut operation, 4), "there are no others");
    assert!(host.engine.complete_first(host.now, &mut operation, 3));
    assert!(host.reply().is_none());
    assert!(matches!(host.submit(host.request(0, Op::Read, 0, 3 * BLOCK), 0), Some(Outcome::Data(_))));
    assert!(host.submit(host.request(0, Op::Read, 3 * BLOCK, BLOCK), 0).is_none());
    assert!(!host.engine.complete_first(host.now, &mut operation, 1));
    host.engine.complete(host.now, operation, Ok(()));
    for length in [4 * BLOCK, BLOCK] {
        assert!(matches!(host.reply(), Some(Outcome::Data(data)) if data.len() == length));
    }
    assert_eq!(host.counters(0).device_reads, 1);
}

#[test]
fn a_hit_does_not_wait_for_a_miss() {
    let mut host = one_disk(16);
    host.read(0, 0, BLOCK);
    for block in 1..10 {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, BLOCK), 0).is_none());
    }
    assert!(matches!(host.submit(host.request(0, Op::Read, 10, 20), 0), Some(Outcome::Data(_))));
}

#[test]
fn a_whole_overwrite_reads_nothing_and_a_partial_one_only_its_edges() {
    let mut host = one_disk(16);
    host.write(0, 4 * BLOCK, 2 * BLOCK, 0xaa);
    assert_eq!(host.counters(0).device_reads, 0);
    assert!(host.submit(host.request(0, Op::Write, 9 * BLOCK + 100, 3 * BLOCK), 0xbb).is_none());
    let operations = host.operations();
    assert_eq!(blocks(&operations), [(9, 1), (12, 1)]);
    operations.into_iter().for_each(|operation| host.perform(operation));
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    let bytes = host.read(0, 9 * BLOCK, 4 * BLOCK);
    assert!(bytes[..100].iter().all(|&byte| byte == 9));
    assert!(bytes[100..3 * BLOCK + 100].iter().all(|&byte| byte == 0xbb));
    assert!(bytes[3 * BLOCK + 100..].iter().all(|&byte| byte == 12));
}

#[test]
fn a_partial_write_merges_with_a_write_that_overtook_it() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Write, 0, 10), 0xaa).is_none());
    // The load of the block is still going on.
    assert!(matches!(host.submit(host.request(0, Op::Write, 0, BLOCK), 0xbb), Some(Outcome::Done)));
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    host.run();
    let bytes = host.read(0, 0, BLOCK);
    assert!(bytes[10..].iter().all(|&byte| byte == 0xbb));
    host.engine.check();
}

#[test]
fn readers_keep_what_they_hold_while_it_is_overwritten_and_evicted() {
    let mut host = one_disk(2);
    host.read(0, 0, BLOCK);
    let Some(Outcome::Data(held)) = host.submit(host.request(0, Op::Read, 0, BLOCK), 0) else { panic!("a hit") };
    host.write(0, 0, BLOCK, 0xaa);
    for block in 1..20 {
        host.read(0, block * BLOCK, BLOCK);
    }
    assert!(held.slices().all(|slice| slice.iter().all(|&byte| byte == 0)));
    assert_eq!(host.read(0, 0, 1), [0xaa]);
    assert!(!held.release());
    host.run();
    host.engine.check();
    assert_eq!(host.engine.gauges().frames, 2);
}

#[test]
fn an_evicted_dirty_block_is_taken_back_without_the_device() {
    let mut host = one_disk(1);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Read, BLOCK, BLOCK), 0).is_none());
    assert_eq!(host.engine.state(Volume(0), 0), BlockState::Dirty);
    let Some(Outcome::Data(data)) = host.submit(host.request(0, Op::Read, 0, BLOCK), 0) else { panic!("taken back") };
    assert_eq!(data.slices().next().map(|slice| slice[0]), Some(0xaa));
    let counters = host.counters(0);
    assert_eq!((counters.misses, counters.adopted), (3, 1));
    assert_eq!(blocks(&host.operations()), [(1, 1)]);
    assert_eq!(host.engine.state(Volume(0), 0), BlockState::Dirty, "it is resident: nothing hurries its write");
}

#[test]
fn a_block_that_left_while_it_was_loaded_is_loaded_again() {
    let mut host = one_disk(1);
    // Each block evicts the one before, whose load goes on.
    for block in 0..4 {
        assert!(host.submit(host.request(0, Op::Read, block * BLOCK, BLOCK), 0).is_none());
    }
    host.run();
    // The last block is the only one with room; replies are taken and released.
    while let Some(outcome) = host.reply() {
        assert!(matches!(outcome, Outcome::Data(_)));
    }
    let before = host.counters(0);
    for block in 0..4 {
        host.read(0, block * BLOCK, BLOCK);
    }
    let after = host.counters(0);
    assert_eq!(after.misses - before.misses, 4);
    assert_eq!(after.device_read_bytes - before.device_read_bytes, 4 * BLOCK as u64, "one block has room");
    host.engine.check();
}

#[test]
fn dirty_blocks_that_leave_one_by_one_are_written_in_long_runs() {
    let mut config = config(64, "lirs");
    (config.spare, config.limits.operation_bytes) = (64, 8 * BLOCK as u32);
    (config.limits.dirty, config.write_back.start, config.write_back.stop) = (64, 64, 64);
    let mut host = Host::new(config, &[(256 * BLOCK, WriteMode::Back)]);
    // Once the LIR blocks are there, each new block evicts the one before.
    (0..128).for_each(|block| _ = host.read(0, block * BLOCK, BLOCK));
    for block in 128..256 {
        host.write(0, block * BLOCK, BLOCK, block as u8);
        host.run();
        let waiting = host.engine.dirty(Volume(0)).expect("open");
        assert!(waiting <= 64 / 8 + 2, "{waiting} blocks beyond the capacity wait");
    }
    let writes = host.counters(0).device_writes;
    assert!((14..=30).contains(&writes), "{writes} writes of 128 blocks");
    assert!(matches!(host.finish(host.request(0, Op::Flush, 0, 0), 0), Outcome::Done));
    for block in 128..256 {
        assert_eq!(host.disks[0][block * BLOCK..][..BLOCK], [block as u8; BLOCK]);
    }
}

#[test]
fn exports_do_not_see_each_other() {
    let mut host = Host::new(config(8, "lru"), &[(DISK, WriteMode::Back), (DISK, WriteMode::Back)]);
    assert_eq!(host.read(0, 5 * BLOCK, 1), [5]);
    assert_eq!(host.read(1, 5 * BLOCK, 1), [69]);
    host.write(0, 5 * BLOCK, BLOCK, 0xaa);
    assert_eq!(host.read(1, 5 * BLOCK, 1), [69]);
    assert_eq!(host.counters(1).writes, 0);
}

#[test]
fn the_end_of_a_disk_may_lie_in_mid_block() {
    let mut host = Host::new(config(8, "lru"), &[(2 * BLOCK + 100, WriteMode::Back)]);
    assert_eq!(host.read(0, 2 * BLOCK, 100), [2; 100]);
    host.write(0, 2 * BLOCK, 100, 0xaa);
    assert_eq!(host.counters(0).device_reads, 1);
    host.finish(host.request(0, Op::Flush, 0, 0), 0);
    assert_eq!(host.disks[0][2 * BLOCK..], [0xaa; 100]);
    let past = host.request(0, Op::Read, 2 * BLOCK, 101);
    assert_eq!(host.engine.submit(0, past).err(), Some(Refusal::OutOfRange));
    host.finish(host.request(0, Op::Trim, 0, 2 * BLOCK + 100), 0);
    assert_eq!(host.read(0, 2 * BLOCK + 99, 1), [0xdd]);
}

#[test]
fn write_through_and_fua_reach_the_device_first() {
    let mut host = Host::new(config(8, "lru"), &[(DISK, WriteMode::Through), (DISK, WriteMode::Back)]);
    assert!(host.submit(host.request(0, Op::Write, 0, BLOCK), 0xaa).is_none());
    let mut operations = host.operations();
    assert!(matches!(operations[..], [Operation { action: Action::Write(_), .. }]));
    host.perform(operations.remove(0));
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    let mut request = host.request(1, Op::Write, 0, BLOCK);
    request.fua = true;
    assert!(host.submit(request, 0xbb).is_none());
    let write = host.operations().remove(0);
    assert!(matches!(write.action, Action::Write(_)));
    host.perform(write);
    assert!(host.reply().is_none());
    let flush = host.operations().remove(0);
    assert!(matches!(flush.action, Action::Flush));
    host.perform(flush);
    assert!(matches!(host.reply(), Some(Outcome::Done)));
}

#[test]
fn a_flush_writes_in_device_order_and_a_second_one_needs_nothing() {
    let mut host = one_disk(16);
    for block in [9, 2, 8, 1, 30] {
        host.write(0, block * BLOCK, BLOCK, 0xaa);
    }
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    let writes = host.operations();
    assert_eq!(blocks(&writes), [(1, 2), (8, 2), (30, 1)]);
    writes.into_iter().for_each(|operation| host.perform(operation));
    host.run();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert!(matches!(host.submit(host.request(0, Op::Flush, 0, 0), 0), Some(Outcome::Done)));
    assert_eq!(host.counters(0).device_flushes, 1);
}

#[test]
fn a_write_during_write_back_is_written_again() {
    let mut host = one_disk(16);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    let write = host.operations().remove(0);
    host.write(0, 0, BLOCK, 0xbb);
    host.perform(write);
    host.run();
    // The first flush does not wait for what came later.
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert_eq!(host.disks[0][0], 0xaa);
    host.finish(host.request(0, Op::Flush, 0, 0), 0);
    assert_eq!(host.disks[0][0], 0xbb);
}

#[test]
fn an_error_of_write_back_is_told_to_the_next_flush_and_the_data_stays() {
    let mut config = config(16, "lru");
    config.write_back.age_us = 100;
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    host.write(0, 0, BLOCK, 0xaa);
    assert_eq!(host.engine.next_wakeup(), Some(100));
    host.now = 100;
    let write = host.operations().remove(0);
    host.fail(write);
    assert!(host.operations().is_empty());
    assert_eq!(host.engine.next_wakeup(), Some(1100));
    assert!(matches!(host.submit(host.request(0, Op::Flush, 0, 0), 0), Some(Outcome::Failed(Fault(5)))));
    assert_eq!(host.read(0, 0, 1), [0xaa]);
    assert!(matches!(host.finish(host.request(0, Op::Flush, 0, 0), 0), Outcome::Done));
    assert_eq!(host.disks[0][0], 0xaa);
}

#[test]
fn a_flush_fails_with_the_write_it_waits_for() {
    let mut host = one_disk(16);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    let write = host.operations().remove(0);
    host.fail(write);
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    // It was reported, and is not reported twice.
    assert!(matches!(host.finish(host.request(0, Op::Flush, 0, 0), 0), Outcome::Done));
    assert_eq!(host.disks[0][0], 0xaa);
}

#[test]
fn an_evicted_block_whose_write_failed_is_tried_again() {
    let mut host = one_disk(1);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Read, BLOCK, 1), 0).is_none());
    let mut operations = host.operations();
    assert_eq!(blocks(&operations), [(1, 1), (0, 1)]);
    host.fail(operations.remove(1));
    host.perform(operations.remove(0));
    assert!(host.operations().is_empty());
    host.now = host.engine.next_wakeup().expect("a time to try again");
    assert_eq!(host.now, 1000);
    host.run();
    assert_eq!(host.disks[0][0], 0xaa);
    assert_eq!(host.engine.gauges().frames, 1);
}

#[test]
fn an_error_of_a_read_is_told_to_all_who_wait_and_leaves_nothing() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Read, 0, 2 * BLOCK), 0).is_none());
    assert!(host.submit(host.request(0, Op::Write, 10, 20), 0xaa).is_none());
    let read = host.operations().remove(0);
    host.fail(read);
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    // The write asked for one of the two blocks only.
    let read = host.operations();
    assert_eq!(blocks(&read), [(0, 1)]);
    assert!(host.submit(host.request(0, Op::Read, 20, 10), 0).is_none());
    read.into_iter().for_each(|read| host.fail(read));
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    host.engine.check();
    let gauges = host.engine.gauges();
    assert_eq!((gauges.resident, gauges.frames, gauges.requests), (0, 0, 0));
    assert_eq!(host.read(0, 0, 1), [0]);
}

#[test]
fn a_bad_block_read_ahead_does_not_fail_the_read() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Read, 3 * BLOCK, 2 * BLOCK), 0).is_none());
    for block in [2, 5] {
        host.submit(host.request(0, Op::Prefetch, block * BLOCK, BLOCK), 0);
    }
    let read = host.operations().remove(0);
    assert_eq!(blocks(std::slice::from_ref(&read)), [(2, 4)]);
    host.fail(read);
    assert!(host.reply().is_none(), "the bad block may be one that was fetched ahead");
    let again = host.operations();
    assert_eq!(blocks(&again), [(3, 2)]);
    let states = [2, 5].map(|block| host.engine.state(Volume(0), block));
    assert_eq!((states, host.engine.gauges().resident), ([BlockState::Absent; 2], 2));
    again.into_iter().for_each(|read| host.perform(read));
    assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    assert_eq!(host.counters(0).prefetch_wasted, 2);
    host.engine.check();
}

#[test]
fn a_read_fails_only_with_a_read_of_its_own_blocks() {
    let mut host = one_disk(16);
    let bad = |read: &Operation| read.offset <= 4 * BLOCK as u64 && read.offset + read.length > 4 * BLOCK as u64;
    // The middle one shares block 3 with the first and block 4 with the last.
    for (token, block) in [(1, 2), (2, 3), (3, 4)] {
        let request = Request { token, ..host.request(0, Op::Read, block * BLOCK, 2 * BLOCK) };
        assert!(host.submit(request, 0).is_none());
    }
    let mut reads = Vec::new();
    while let Some(read) = host.engine.next_operation(0) {
        reads.push((read.offset / BLOCK as u64, read.length / BLOCK as u64));
        if bad(&read) { host.fail(read) } else { host.perform(read) }
    }
    // Never joined again, although they are neighbours.
    assert_eq!(reads, [(2, 4), (2, 1), (3, 1), (4, 1), (5, 1)]);
    let mut outcomes: Vec<_> = std::iter::from_fn(|| host.engine.next_reply()).collect();
    outcomes.sort_by_key(|reply| reply.token);
    assert!(matches!(outcomes[0].outcome, Outcome::Data(_)));
    assert!(
        outcomes[1..].iter().all(|reply| matches!(reply.outcome, Outcome::Failed(Fault(5)))) && outcomes.len() == 3
    );
    host.engine.check();
}

#[test]
fn who_joins_a_read_that_is_tried_again_is_not_failed_by_it() {
    let mut host = one_disk(16);
    assert!(host.submit(host.request(0, Op::Read, 0, 2 * BLOCK), 0).is_none());
    host.submit(host.request(0, Op::Prefetch, 2 * BLOCK, BLOCK), 0);
    let read = host.operations().remove(0);
    host.fail(read);
    let again = host.operations().remove(0);
    assert!(host.submit(host.request(0, Op::Read, 0, 1), 0).is_none());
    host.fail(again);
    // It was all that the first read asked for, but not what the second did.
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    assert!(host.reply().is_none());
    let last = host.operations();
    assert_eq!(blocks(&last), [(0, 1)]);
    last.into_iter().for_each(|read| host.fail(read));
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    assert_eq!(host.engine.gauges().frames, 0);
    host.engine.check();
}

#[test]
fn zeroes_and_trim_drop_what_is_dirty_once_the_device_did_them() {
    let mut host = one_disk(16);
    host.write(0, 0, 4 * BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Zeroes { keep: true, fast: false }, 100, 2 * BLOCK), 0).is_none());
    let operations = host.operations();
    assert_eq!(blocks(&operations), [(1, 1)]);
    assert!(matches!(operations[0].action, Action::Zeroes { keep: true, fast: false }));
    // Hits do not wait, but writes to the range do.
    assert!(matches!(host.submit(host.request(0, Op::Read, BLOCK, 1), 0), Some(Outcome::Data(_))));
    assert!(host.submit(host.request(0, Op::Write, BLOCK + 50, 1), 0xbb).is_none());
    operations.into_iter().for_each(|operation| host.perform(operation));
    host.run();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert_eq!(host.read(0, BLOCK + 50, 2), [0xbb, 0]);
    host.write(0, BLOCK + 50, 1, 0);
    let bytes = host.read(0, 0, 4 * BLOCK);
    assert!(bytes[..100].iter().chain(&bytes[2 * BLOCK + 100..]).all(|&byte| byte == 0xaa));
    assert!(bytes[100..2 * BLOCK + 100].iter().all(|&byte| byte == 0));
    assert!(matches!(host.finish(host.request(0, Op::Trim, 2 * BLOCK + 1, 2 * BLOCK - 1), 0), Outcome::Done));
    assert_eq!(host.read(0, 2 * BLOCK, 1), [0]);
    assert_eq!(host.read(0, 3 * BLOCK, 1), [0xdd]);
}

#[test]
fn a_failed_trim_changes_nothing_in_the_cache() {
    let mut host = one_disk(16);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Trim, 0, BLOCK), 0).is_none());
    let trim = host.operations().remove(0);
    host.fail(trim);
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    assert_eq!(host.read(0, 0, 1), [0xaa]);
    assert_eq!(host.engine.dirty(Volume(0)), Some(1));
}

#[test]
fn prefetches_keep_to_their_budget_and_are_counted() {
    let mut host = one_disk(16);
    host.read(0, BLOCK, 1);
    assert!(matches!(host.submit(host.request(0, Op::Prefetch, 0, 9 * BLOCK), 0), Some(Outcome::Done)));
    let counters = host.counters(0);
    assert_eq!((counters.prefetch_issued, counters.prefetch_dropped), (3, 6));
    // A read that waits for one makes it go first.
    assert!(host.submit(host.request(0, Op::Read, 20 * BLOCK, 1), 0).is_none());
    assert!(host.submit(host.request(0, Op::Read, 2 * BLOCK, 1), 0).is_none());
    let operations = host.operations();
    assert_eq!(blocks(&operations), [(2, 2), (20, 1), (0, 1)]);
    operations.into_iter().for_each(|operation| host.perform(operation));
    assert_eq!((host.counters(0).prefetch_used, host.counters(0).prefetch_late), (1, 1));
    for block in 30..46 {
        host.read(0, block * BLOCK, 1);
    }
    assert_eq!(host.counters(0).prefetch_wasted, 2);
    host.engine.check();
}

#[test]
fn a_prefetch_and_its_first_use_are_one_reference() {
    // The policy learns of block 0 when it is used or, into the policy, when it is loaded: then, it stays the least recently used.
    for (into_policy, leaves) in [(false, 1), (true, 0)] {
        let mut host = Host::new(Config { into_policy, ..config(3, "lru") }, &[(DISK, WriteMode::Back)]);
        host.submit(host.request(0, Op::Prefetch, 0, BLOCK), 0);
        host.run();
        for block in [1, 0, 2, 3] {
            host.read(0, block * BLOCK, 1);
        }
        let absent = (0..4).filter(|&block| host.engine.state(Volume(0), block) == BlockState::Absent);
        assert_eq!(absent.collect::<Vec<_>>(), [leaves]);
        host.engine.check();
    }
    // Its second use is a reference, whether it waits for others or not.
    for length in [BLOCK, 2 * BLOCK] {
        let mut host = one_disk(3);
        host.submit(host.request(0, Op::Prefetch, 0, BLOCK), 0);
        host.run();
        host.read(0, 2 * BLOCK, 1);
        host.read(0, 0, 1);
        host.read(0, 0, length);
        for block in (3..).take(if length == BLOCK { 2 } else { 1 }) {
            host.read(0, block * BLOCK, 1);
        }
        let states = [0, 2].map(|block| host.engine.state(Volume(0), block));
        assert_eq!(states, [BlockState::Clean, BlockState::Absent]);
        let counters = host.counters(0);
        assert_eq!((counters.prefetch_issued, counters.prefetch_used, counters.prefetch_late), (1, 1, 0));
        host.engine.check();
    }
}

#[test]
fn a_prefetch_that_fails_or_is_trimmed_is_wasted() {
    let mut host = one_disk(16);
    host.submit(host.request(0, Op::Prefetch, 0, BLOCK), 0);
    let read = host.operations().remove(0);
    host.fail(read);
    host.submit(host.request(0, Op::Prefetch, BLOCK, 2 * BLOCK), 0);
    host.run();
    assert!(matches!(host.finish(host.request(0, Op::Trim, 0, 3 * BLOCK), 0), Outcome::Done));
    let counters = host.counters(0);
    assert_eq!((counters.prefetch_issued, counters.prefetch_wasted), (3, 3));
    host.engine.check();
}

#[test]
fn background_write_back_starts_and_stops_at_its_marks() {
    let mut config = config(16, "lru");
    (config.write_back.start, config.write_back.stop) = (6, 2);
    let mut host = Host::new(config, &[(DISK, WriteMode::Back)]);
    for block in 0..6 {
        host.write(0, 2 * block * BLOCK, BLOCK, 0xaa);
    }
    host.run();
    assert_eq!(host.engine.dirty(Volume(0)), Some(6));
    host.write(0, 40 * BLOCK, BLOCK, 0xaa);
    host.run();
    assert!(host.engine.dirty(Volume(0)) <= Some(2));
}

#[test]
fn every_limit_holds_and_says_busy() {
    // Requests.
    let mut host = one_disk(16);
    for block in 0..16 {
        assert!(host.submit(host.request(0, Op::Read, 4 * block * BLOCK, 1), 0).is_none());
    }
    let request = host.request(0, Op::Read, BLOCK, 1);
    assert_eq!(host.engine.submit(0, request).err(), Some(Refusal::Busy));
    // Loads: at most 16 blocks, 4 operations at the device.
    let gauges = host.engine.gauges();
    assert_eq!((gauges.loading, gauges.requests), (16, 16));
    assert_eq!(host.operations().len(), 4);
    // A request longer than allowed.
    let long = host.request(0, Op::Read, 0, 8 * BLOCK + 1);
    assert_eq!(host.engine.submit(0, long).err(), Some(Refusal::TooLong));
}

#[test]
fn loads_beyond_the_limit_wait() {
    let mut host = one_disk(16);
    for at in 0..3 {
        assert!(host.submit(host.request(0, Op::Read, 8 * at * BLOCK, 8 * BLOCK), 0).is_none());
    }
    let gauges = host.engine.gauges();
    assert_eq!((gauges.loading, gauges.waiting), (16, 1));
    host.run();
    for _ in 0..3 {
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
}

#[test]
fn writes_beyond_the_dirty_limit_wait_and_force_write_back() {
    let mut host = one_disk(32);
    for at in 0..2 {
        host.write(0, 8 * at * BLOCK, 8 * BLOCK, 0xaa);
    }
    let request = host.request(0, Op::Write, 40 * BLOCK, BLOCK);
    assert!(host.engine.submit(0, request).expect("queued").reply.is_none());
    assert_eq!(host.engine.gauges().waiting, 1);
    let operations = host.operations();
    assert!(!operations.is_empty());
    operations.into_iter().for_each(|operation| host.perform(operation));
    let fill = fill_of(host.engine.next_reply());
    host.engine.commit(0, fill);
    assert!(host.engine.gauges().dirty <= 16);
}

#[test]
fn misses_wait_for_frames_that_are_held_and_go_on_when_they_are_released() {
    let mut host = one_disk(2);
    let mut held = Vec::new();
    let mut waiting = 0;
    for block in 0..20 {
        let request = host.request(0, Op::Read, block * BLOCK, 1);
        match host.submit(request, 0) {
            Some(Outcome::Data(data)) => held.push(data),
            _ => {
                host.run();
                match host.reply() {
                    Some(Outcome::Data(data)) => held.push(data),
                    _ => waiting += 1,
                }
            }
        }
    }
    // 2 blocks and 12 spare frames.
    assert_eq!((held.len(), waiting), (14, 6));
    assert_eq!(host.engine.gauges().frames, 14);
    let mut asked = false;
    for data in held {
        asked |= data.release();
    }
    assert!(asked);
    host.engine.poll(0);
    host.run();
    for _ in 0..6 {
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
    host.engine.check();
    assert_eq!(host.engine.gauges().frames, 2);
}

#[test]
fn an_abandoned_write_leaves_nothing() {
    let mut host = one_disk(4);
    let request = host.request(0, Op::Write, 100, 3 * BLOCK);
    let fill = fill_of(host.engine.submit(0, request).expect("taken").reply);
    host.engine.abort(0, fill);
    host.engine.check();
    let gauges = host.engine.gauges();
    assert_eq!((gauges.frames, gauges.requests, gauges.dirty), (0, 0, 0));
}

/// Frames are numbered in 24 bits.
#[test]
fn too_many_frames_are_refused() {
    let config = Config::new(16 << 20, "lru".parse().expect("registered"));
    let Err(error) = Engine::new(config) else { panic!("2^24 frames and more") };
    assert!(error.to_string().contains("64 GiB"), "{error}");
}

#[test]
fn the_write_mode_changes_while_blocks_are_dirty() {
    let mut host = one_disk(16);
    host.write(0, 0, BLOCK, 0xaa);
    host.engine.set_mode(Volume(0), WriteMode::Through).expect("it is open");
    assert!(host.submit(host.request(0, Op::Write, 5 * BLOCK, BLOCK), 0xbb).is_none(), "it waits for the device");
    host.run();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert_eq!(host.disks[0][5 * BLOCK], 0xbb);
    assert_eq!(host.engine.dirty(Volume(0)), Some(1), "what was dirty stays so");
    host.engine.set_mode(Volume(0), WriteMode::Back).expect("it is open");
    host.write(0, 6 * BLOCK, BLOCK, 0xcc);
    assert_ne!(host.disks[0][6 * BLOCK], 0xcc);
    assert_eq!(host.engine.set_mode(Volume(1), WriteMode::Back), Err(Refusal::NoVolume));
}

#[test]
fn closing_writes_back_and_forgets() {
    let mut host = Host::new(config(8, "lru"), &[(DISK, WriteMode::Back), (DISK, WriteMode::Back)]);
    host.write(0, 0, BLOCK, 0xaa);
    host.read(1, 0, 1);
    host.engine.close(0, Volume(0), false, 99).expect("open");
    let request = host.request(0, Op::Read, 0, 1);
    assert_eq!(host.engine.submit(0, request).err(), Some(Refusal::NoVolume));
    host.run();
    host.steps();
    assert!(matches!(host.engine.next_reply(), Some(Reply { token: 99, outcome: Outcome::Done })));
    assert_eq!(host.disks[0][0], 0xaa);
    assert_eq!(host.engine.gauges().resident, 1);
    host.engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), DISK as u64)]).expect("closed");
    host.disks[0][0] = 0xbb;
    assert_eq!(host.read(0, 0, 1), [0xbb]);
}

/// Others have the engine between the steps in which the blocks of a closed volume are forgotten.
#[test]
fn closing_a_large_volume_takes_bounded_steps() {
    let blocks = 20_000;
    let disk = 2 * blocks * BLOCK;
    let mut large =
        Config { block_bytes: BLOCK as u32, ..Config::new(2 * blocks as u32, "lirs".parse().expect("a policy")) };
    large.limits.request_bytes = 8 * BLOCK as u32;
    let mut host = Host::new(large, &[(disk, WriteMode::Back), (disk, WriteMode::Back)]);
    for block in (0..2 * blocks).step_by(8) {
        host.read(0, block * BLOCK, 8 * BLOCK);
    }
    host.read(1, 0, 8 * BLOCK);
    let mut resident = host.engine.gauges().resident;
    host.engine.close(0, Volume(0), false, 99).expect("open");
    host.run();
    let mut steps = 0;
    while host.engine.step(0) {
        steps += 1;
        let left = host.engine.gauges().resident;
        assert!(resident - left <= 512, "{} blocks in one step", resident - left);
        resident = left;
        let hits = host.engine.counters(Volume(1)).expect("open").hits;
        host.read(1, 0, 1);
        assert_eq!(host.engine.counters(Volume(1)).expect("open").hits, hits + 1);
        if steps % 16 == 0 {
            host.engine.check();
        }
    }
    assert!(steps >= blocks / 512, "{steps} steps");
    assert!(matches!(host.engine.next_reply(), Some(Reply { token: 99, outcome: Outcome::Done })));
    assert_eq!(host.engine.gauges().resident, 8);
    host.engine.check();
}

#[test]
fn closing_fails_with_the_device_unless_dirty_data_is_given_up() {
    let mut host = one_disk(8);
    host.write(0, 0, BLOCK, 0xaa);
    host.engine.close(0, Volume(0), false, 99).expect("open");
    let write = host.operations().remove(0);
    host.fail(write);
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    assert_eq!(host.read(0, 0, 1), [0xaa]);
    host.engine.close(0, Volume(0), true, 99).expect("open");
    host.steps();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    host.engine.check();
    assert_eq!(host.engine.gauges().frames, 0);
}

/// Everything that a request can wait for, on a device that fails everything.
#[test]
fn giving_up_a_dead_device_ends_and_replies_to_everybody() {
    let mut host = Host::new(config(32, "lru"), &[(DISK, WriteMode::Back), (DISK, WriteMode::Back)]);
    for block in 0..14 {
        host.write(0, block * BLOCK, BLOCK, 0xaa);
    }
    let ask = |host: &mut Host, token: u64, op: Op, offset: usize, length: usize, fua: bool| {
        let request = Request { token, fua, ..host.request(0, op, offset, length) };
        assert!(host.submit(request, 0xbb).is_none(), "request {token} waits");
    };
    ask(&mut host, 1, Op::Flush, 0, 0, false);
    ask(&mut host, 2, Op::Write, 20 * BLOCK, BLOCK, true);
    ask(&mut host, 3, Op::Write, 30 * BLOCK + 5, 10, false);
    // The dirty limit is reached: zeroes have one edge only, the others do not begin.
    ask(&mut host, 4, Op::Zeroes { keep: false, fast: false }, 5, 2 * BLOCK, true);
    ask(&mut host, 5, Op::Write, 22 * BLOCK, 3 * BLOCK, true);
    ask(&mut host, 6, Op::Write, 26 * BLOCK, BLOCK, false);
    ask(&mut host, 7, Op::Trim, 10 * BLOCK, 2 * BLOCK, false);
    // Another volume has room of its own.
    assert!(matches!(host.submit(host.request(1, Op::Write, 0, BLOCK), 0xcc), Some(Outcome::Done)));
    let mut flight = host.operations();
    assert!(!flight.is_empty());
    host.engine.close(0, Volume(0), true, 99).expect("open");
    let mut replies = std::collections::BTreeMap::new();
    for round in 0.. {
        assert!(round < 100, "no end; replies so far: {replies:?}");
        host.steps();
        while let Some(Reply { token, outcome }) = host.engine.next_reply() {
            match outcome {
                Outcome::Fill(fill) => host.engine.commit(host.now, fill),
                outcome => assert!(replies.insert(token, outcome).is_none(), "a second reply to {token}"),
            }
        }
        if replies.contains_key(&99) {
            break;
        }
        flight.extend(host.operations());
        match flight.pop() {
            Some(operation) => host.fail(operation),
            None => host.now = host.engine.next_wakeup().expect("something to wait for"),
        }
        host.engine.check();
    }
    let failed = |token: u64| matches!(replies[&token], Outcome::Failed(_));
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(failed), [true; 7]);
    assert!([5, 6].iter().all(|token| matches!(replies[token], Outcome::Failed(Fault::SHUT_DOWN))));
    assert!(matches!(replies[&99], Outcome::Done));
    let gauges = host.engine.gauges();
    assert_eq!((gauges.dirty, gauges.frames, gauges.requests), (1, 1, 0));
}

#[test]
fn giving_up_keeps_what_requests_wait_for() {
    let mut host = one_disk(16);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    host.write(0, BLOCK, BLOCK, 0xbb);
    let fua = Request { fua: true, ..host.request(0, Op::Write, 2 * BLOCK, BLOCK) };
    assert!(host.submit(fua, 0xcc).is_none());
    host.engine.close(0, Volume(0), true, 99).expect("open");
    assert_eq!(host.engine.dirty(Volume(0)), Some(2));
    host.run();
    host.steps();
    for _ in 0..3 {
        assert!(matches!(host.reply(), Some(Outcome::Done)));
    }
    assert_eq!([0, 1, 2].map(|block| host.disks[0][block * BLOCK]), [0xaa, 1, 0xcc]);
}

#[test]
fn closing_does_not_wait_for_room_that_a_dead_device_holds() {
    let mut host = Host::new(config(32, "lru"), &[(DISK, WriteMode::Back); 3]);
    host.write(0, 0, BLOCK, 0xaa);
    for (volume, blocks) in [(1, 15), (2, 9)] {
        (0..blocks).for_each(|block| host.write(volume, block * BLOCK, BLOCK, 0xbb));
    }
    assert!(host.submit(host.request(0, Op::Write, BLOCK, 2 * BLOCK), 0xaa).is_none());
    host.engine.close(0, Volume(0), false, 99).expect("open");
    for operation in host.operations() {
        if operation.port == Port(0) { host.perform(operation) } else { host.fail(operation) }
    }
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    host.run();
    host.steps();
    assert!(matches!(host.engine.next_reply(), Some(Reply { token: 99, outcome: Outcome::Done })));
    assert_eq!(host.disks[0][0], 0xaa);
}

#[test]
fn a_flush_does_not_wait_for_the_pause_that_another_write_caused() {
    let mut host = Host::with_depth(config(16, "lru"), &[(DISK, WriteMode::Back)], 1);
    host.write(0, 0, BLOCK, 0xaa);
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    let fua = Request { fua: true, ..host.request(0, Op::Write, 9 * BLOCK, BLOCK) };
    assert!(host.submit(fua, 0xbb).is_none());
    let write = host.operations();
    assert_eq!(blocks(&write), [(9, 1)]);
    write.into_iter().for_each(|operation| host.fail(operation));
    assert!(matches!(host.reply(), Some(Outcome::Failed(Fault(5)))));
    let write = host.operations();
    assert_eq!(blocks(&write), [(0, 1)]);
    write.into_iter().for_each(|operation| host.perform(operation));
    host.run();
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    assert_eq!(host.engine.next_wakeup(), Some(1000));
}

#[test]
fn metadata_per_block_is_as_documented() {
    for capacity in [1 << 17, 114_600] {
        let config = Config::new(capacity, "lru".parse().expect("registered"));
        let engine = Engine::new(config).expect("a possible set-up");
        // A slot for a block or ghost, of which 94 in 100 can be in use, and 33 frames for 32 blocks, which can be published.
        let ghosts = engine.setup(&engine.config().policy).expect("it is the present one").ghosts;
        let slots = 1.0 + f64::from(ghosts) / f64::from(capacity);
        let documented = slots * 10.0 / 0.94 + 20.0 * 33.0 / 32.0;
        let per_block = engine.metadata_bytes() as f64 / f64::from(capacity);
        assert!((per_block - documented).abs() < 0.2, "{per_block} bytes for each of {capacity} blocks");
    }
}

#[test]
fn holds_outlive_the_engine() {
    let mut host = one_disk(8);
    host.read(0, 0, BLOCK);
    let Some(Outcome::Data(data)) = host.submit(host.request(0, Op::Read, 0, BLOCK), 0) else { panic!("a hit") };
    drop(host);
    assert!(data.slices().all(|slice| slice.iter().all(|&byte| byte == 0)));
}

#[test]
fn an_engine_crosses_threads() {
    fn sendable<T: Send>(_: &T) {}
    let host = one_disk(8);
    sendable(&host.engine);
    fn holds<T: Send + Sync>() {}
    holds::<nigh_engine::Shared>();
    holds::<nigh_engine::Exclusive>();
    assert!(Engine::new(config(0, "lru")).is_err());
}

/// At the end, only what has to be written counts: a cache of many blocks and volumes is closed without a step.
#[test]
fn end_4_volumes_are_closed_without_forgetting_their_blocks() {
    let mut host = Host::new(config(64, "lru"), &[(DISK, WriteMode::Back); 3]);
    for volume in 0..3 {
        host.read(volume, 0, 4 * BLOCK);
        host.write(volume, BLOCK, BLOCK, 0xaa);
    }
    let close = |host: &mut Host, volume, discard| {
        host.engine.close(host.now, Volume(volume), discard, 90 + u64::from(volume)).expect("it is open");
        host.run();
        host.engine.next_reply().map(|reply| (reply.token, matches!(reply.outcome, Outcome::Done)))
    };
    // One was being removed.
    assert_eq!(close(&mut host, 0, false), None);
    host.engine.end();
    assert_eq!(host.engine.next_reply().map(|reply| reply.token), Some(90));
    assert_eq!(close(&mut host, 1, false), Some((91, true)));
    assert!(host.engine.is_written(Volume(1)) && !host.engine.is_written(Volume(2)));
    // Others may still evict its blocks.
    (0..64).for_each(|block| _ = host.read(2, block * BLOCK % DISK, BLOCK));
    assert_eq!(close(&mut host, 2, true), Some((92, true)));
    assert_eq!(host.engine.next_wakeup(), None);
    host.engine.check();
    assert_eq!([host.disks[0][BLOCK], host.disks[1][BLOCK]], [0xaa; 2]);
}
