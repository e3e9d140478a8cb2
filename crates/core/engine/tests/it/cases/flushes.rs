//! Device flushes that fail.

use nigh_engine::{Action, Fault, Op, Outcome, Port, Refusal, Reply, Request, Volume, WriteMode};

use super::host::{BLOCK, Host, config};

const VOLUME: Volume = Volume(0);
const EIO: Fault = Fault(5);
const DISK: (usize, WriteMode) = (64 * BLOCK, WriteMode::Through);

fn host(capacity: u32) -> Host {
    Host::new(config(capacity, "lru"), &[DISK])
}

/// The outcome of `request`, for which the first flush of the device fails.
fn flush_fails(host: &mut Host, request: Request) -> Option<Outcome> {
    assert!(host.submit(request, 9).is_none());
    loop {
        let operations = host.operations();
        assert!(!operations.is_empty(), "it needs no flush");
        for operation in operations {
            if matches!(operation.action, Action::Flush) {
                host.fail(operation);
                return host.reply();
            }
            host.perform(operation);
        }
    }
}

fn flush(host: &mut Host) -> Outcome {
    host.finish(host.request(0, Op::Flush, 0, 0), 0)
}

fn flush_fails_first(host: &mut Host) {
    let request = host.request(0, Op::Flush, 0, 0);
    let outcome = flush_fails(host, request);
    assert!(matches!(outcome, Some(Outcome::Failed(EIO))), "{outcome:?}");
}

fn close(host: &mut Host, discard: bool) -> Outcome {
    host.engine.close(host.now, VOLUME, discard, 1).unwrap();
    host.run();
    host.steps();
    host.reply().expect("nothing is left to wait for")
}

#[test]
fn flush_7_what_was_written_since_the_last_good_flush_is_written_again() {
    let mut host = host(8);
    host.write(0, 0, BLOCK, 1);
    assert!(matches!(flush(&mut host), Outcome::Done));
    host.write(0, 2 * BLOCK, BLOCK, 2);
    // The first block is stable, and the device loses the second one.
    let lost = host.disks[0].clone();
    flush_fails_first(&mut host);
    host.disks[0] = lost;
    host.disks[0][2 * BLOCK..3 * BLOCK].fill(0xee);
    assert_eq!(host.engine.dirty(VOLUME), Some(1));
    assert!(matches!(flush(&mut host), Outcome::Done));
    assert_eq!(host.disks[0][2 * BLOCK..3 * BLOCK], [2; BLOCK]);
    assert_eq!(host.engine.lost(VOLUME), None);
    host.engine.check();
}

#[test]
fn flush_7_a_volume_whose_lost_blocks_left_memory_fails_every_flush() {
    let mut host = host(2);
    (0..4).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    flush_fails_first(&mut host);
    assert_eq!(host.engine.lost(VOLUME), Some(EIO));
    for _ in 0..2 {
        assert!(matches!(flush(&mut host), Outcome::Failed(EIO)));
        let durable = Request { fua: true, ..host.request(0, Op::Write, 0, BLOCK) };
        assert!(matches!(host.finish(durable, 3), Outcome::Failed(EIO)));
    }
    host.write(0, 5 * BLOCK, BLOCK, 4);
    assert_eq!(host.read(0, 5 * BLOCK, BLOCK), [4; BLOCK]);
    assert!(matches!(close(&mut host, false), Outcome::Failed(EIO)));
    assert_eq!(host.engine.dirty(VOLUME), Some(0));
    assert!(matches!(close(&mut host, true), Outcome::Done));
}

#[test]
fn flush_7_zeroes_may_be_lost_and_trims_may_not() {
    for (op, lost) in [(Op::Zeroes { keep: false, fast: false }, Some(EIO)), (Op::Trim, None)] {
        let mut host = host(8);
        assert!(matches!(host.finish(host.request(0, op, 0, 8 * BLOCK), 0), Outcome::Done));
        flush_fails_first(&mut host);
        assert_eq!(host.engine.lost(VOLUME), lost, "{op:?}");
    }
}

#[test]
fn flush_7_a_write_with_fua_waits_for_what_was_lost_before_it() {
    let mut host = host(8);
    host.write(0, 0, BLOCK, 1);
    let durable = Request { fua: true, ..host.request(0, Op::Write, 4 * BLOCK, BLOCK) };
    assert!(matches!(flush_fails(&mut host, durable), Some(Outcome::Failed(EIO))));
    host.disks[0][..8 * BLOCK].fill(0xee);
    assert!(matches!(flush(&mut host), Outcome::Done));
    assert_eq!(host.disks[0][..BLOCK], [1; BLOCK]);
    assert_eq!(host.disks[0][4 * BLOCK..5 * BLOCK], [9; BLOCK]);
}

/// A flush of the device fails for another engine while a volume that drops its dirty blocks is being forgotten.
#[test]
fn flush_7_a_volume_that_is_being_forgotten_writes_nothing_again() {
    let mut host = host(8);
    host.write(0, 0, BLOCK, 1);
    host.engine.close(host.now, VOLUME, true, 1).unwrap();
    host.engine.distrust(host.now, Port(0), EIO);
    assert!(host.operations().is_empty());
    host.steps();
    let reply = host.engine.next_reply();
    assert!(matches!(reply, Some(Reply { token: 1, outcome: Outcome::Done })), "{reply:?}");
    assert_eq!(host.engine.gauges().dirty, 0);
    host.engine.check();
}

/// A block was written, and its newer contents are given up while a flush waits for the older ones.
#[test]
fn flush_7_a_block_that_closing_drops_is_missed_by_a_flush() {
    let mut host = Host::new(config(8, "lru"), &[(64 * BLOCK, WriteMode::Back)]);
    host.write(0, 0, BLOCK, 1);
    let request = host.request(0, Op::Flush, 0, 0);
    assert!(host.submit(request, 0).is_none());
    for operation in host.operations() {
        host.perform(operation);
    }
    let flush = host.operations().pop().expect("the device is flushed");
    assert!(matches!(flush.action, Action::Flush));
    host.write(0, 0, BLOCK, 2);
    host.engine.close(host.now, VOLUME, true, 1).unwrap();
    assert_eq!(host.engine.gauges().dirty, 0);
    host.fail(flush);
    assert_eq!(host.engine.lost(VOLUME), Some(EIO));
    let reply = host.reply();
    assert!(matches!(reply, Some(Outcome::Failed(EIO))), "{reply:?}");
}

#[test]
fn flush_7_a_part_of_a_volume_that_another_engine_lost() {
    let mut host = host(8);
    host.engine.condemn(VOLUME, EIO);
    assert!(matches!(flush(&mut host), Outcome::Failed(EIO)));
    host.write(0, 0, BLOCK, 1);
    assert!(matches!(flush(&mut host), Outcome::Failed(EIO)));
    assert!(matches!(close(&mut host, true), Outcome::Done));
    let request = host.request(0, Op::Flush, 0, 0);
    assert!(matches!(host.engine.submit(host.now, request), Err(Refusal::NoVolume)));
    assert_eq!(host.engine.lost(VOLUME), None);
}

/// A cache that flushes a device after this many blocks.
const UNFLUSHED: u32 = 8;

fn bounded() -> Host {
    let mut config = config(64, "lru");
    config.write_back.unflushed = UNFLUSHED;
    Host::new(config, &[DISK])
}

/// Losses of a device at a failed flush are limited, although no client asks for flushes.
#[test]
fn flush_bound_the_engine_flushes_by_itself() {
    let mut host = bounded();
    let mut flushes = 0;
    for block in 0..32 {
        assert!(host.submit(host.request(0, Op::Write, block * BLOCK, BLOCK), 1).is_none());
        loop {
            let operations = host.operations();
            flushes += operations.iter().filter(|operation| matches!(operation.action, Action::Flush)).count();
            if operations.is_empty() {
                break;
            }
            operations.into_iter().for_each(|operation| host.perform(operation));
        }
        assert!(matches!(host.reply(), Some(Outcome::Done)));
        host.engine.check();
    }
    assert_eq!(flushes, 32 / UNFLUSHED as usize);
    host.engine.distrust(host.now, Port(0), EIO);
    assert_eq!(host.engine.dirty(VOLUME), Some(0));
    assert_eq!(host.engine.lost(VOLUME), None);
}

/// While the device does not complete the flush, write-back waits.
#[test]
fn flush_bound_write_back_waits_for_the_flush() {
    let mut host = bounded();
    let mut at_device = None;
    for block in 0..28 {
        host.submit(host.request(0, Op::Write, block % 16 * BLOCK, BLOCK), 1);
        for operation in host.operations() {
            match operation.action {
                Action::Flush => at_device = Some(operation),
                _ => host.perform(operation),
            }
        }
        host.engine.check();
    }
    let written = host.counters(0).device_written_bytes as usize / BLOCK;
    assert!(written <= 2 * UNFLUSHED as usize, "{written} blocks were written");
    assert!(host.engine.dirty(VOLUME) > Some(0));
    host.fail(at_device.expect("the engine flushes"));
    // The engine does not repeat it at once.
    assert!(host.operations().is_empty());
    host.now += 1000;
    host.run();
    while host.reply().is_some() {}
    assert!(matches!(flush(&mut host), Outcome::Done));
    assert_eq!(host.disks[0][..16 * BLOCK], [1; 16 * BLOCK]);
}

#[test]
fn flush_bound_a_port_that_is_not_open() {
    let mut host = bounded();
    host.engine.distrust(host.now, Port(7), EIO);
    host.engine.distrust(host.now, Port(u16::MAX), EIO);
}

/// The memory for unflushed blocks is reported.
#[test]
fn flush_bound_memory_is_counted() {
    let mut host = host(64);
    let before = host.engine.metadata_bytes();
    (0..32).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    assert!(host.engine.metadata_bytes() >= before + 32 * size_of::<u64>());
}

/// Blocks that are written again do not make older dirty blocks look younger.
#[test]
fn flush_5_a_failed_flush_does_not_delay_older_blocks() {
    let mut config = config(64, "lru");
    config.write_back.age_us = 1000;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back)]);
    host.write(0, 3 * BLOCK, BLOCK, 1);
    host.now = 1000;
    host.run();
    assert_eq!(host.engine.dirty(Volume(0)), Some(0));
    host.now = 1100;
    host.write(0, 9 * BLOCK, BLOCK, 2);
    host.now = 2000;
    host.engine.distrust(host.now, Port(0), Fault(5));
    assert!(host.operations().is_empty());
    assert_eq!((host.engine.dirty(Volume(0)), host.engine.next_wakeup()), (Some(2), Some(2100)));
    host.engine.check();
}
