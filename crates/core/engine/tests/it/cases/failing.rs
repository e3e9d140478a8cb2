//! Devices that fail writes for long.

use nigh_engine::{Action, Fault, Op, Outcome, Reply, Request, Volume, WriteMode};

use super::host::{BLOCK, Host, config};

const ENOSPC: Fault = Fault(28);
const PATIENCE: u64 = 5000;

/// Lets the first `failing` devices fail everything that is written, for `time` µs.
fn fail_writes(host: &mut Host, failing: u16, time: u64) {
    let end = host.now + time;
    while host.now < end {
        for operation in host.operations() {
            match (&operation.action, operation.port.0) {
                (Action::Write(_), port) if port < failing => host.engine.complete(host.now, operation, Err(ENOSPC)),
                _ => host.perform(operation),
            }
        }
        host.now += 500;
    }
}

#[test]
fn full_15_writes_that_find_no_room_fail_after_a_time() {
    let mut config = config(64, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back), (64 * BLOCK, WriteMode::Back)]);
    let write = |host: &Host, volume, block| host.request(volume, Op::Write, block * BLOCK, BLOCK);
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    // There is no more room for dirty blocks: these wait.
    assert!(host.submit(write(&host, 0, 16), 2).is_none());
    fail_writes(&mut host, 1, PATIENCE);
    assert!(host.reply().is_none());
    assert_eq!(host.engine.next_report(), None);

    fail_writes(&mut host, 1, 2000);
    assert!(matches!(host.reply(), Some(Outcome::Failed(ENOSPC))));
    assert_eq!(host.engine.next_report(), Some((Volume(0), Some(ENOSPC))));
    assert_eq!(host.engine.next_report(), None);
    let outcome = host.submit(write(&host, 0, 16), 2);
    assert!(matches!(outcome, Some(Outcome::Failed(ENOSPC))), "{outcome:?}");
    let zeroes = host.request(0, Op::Zeroes { keep: false, fast: false }, 17 * BLOCK, BLOCK / 2);
    assert!(matches!(host.submit(zeroes, 0), Some(Outcome::Failed(ENOSPC))));
    // The device of the other volume does not fail: its writes do not wait.
    (0..16).for_each(|block| {
        let outcome = host.submit(write(&host, 1, block), 3);
        assert!(matches!(outcome, Some(Outcome::Done)), "{outcome:?}");
    });
    host.engine.check();
    assert_eq!(host.read(0, 0, BLOCK), [1; BLOCK]);
    assert_eq!(host.engine.dirty(Volume(0)), Some(16));

    // The device works again.
    host.now += 2000;
    host.run();
    assert_eq!(host.engine.next_report(), Some((Volume(0), None)));
    host.write(0, 16 * BLOCK, BLOCK, 4);
    let flush = host.request(0, Op::Flush, 0, 0);
    assert!(matches!(host.finish(flush, 0), Outcome::Failed(ENOSPC)), "the first flush reports what failed before");
    assert!(matches!(host.finish(flush, 0), Outcome::Done));
    assert_eq!(host.disks[0][..16 * BLOCK], [1; 16 * BLOCK]);
    assert_eq!(host.disks[0][16 * BLOCK..17 * BLOCK], [4; BLOCK]);
}

/// Blocks that cannot be written leave the policy, but not memory: the frames that reads need come from other blocks.
#[test]
fn full_15_reads_find_room_beside_blocks_that_cannot_be_written() {
    let mut config = config(32, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back), (64 * BLOCK, WriteMode::Back)]);
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    assert!(host.submit(host.request(0, Op::Write, 16 * BLOCK, BLOCK), 1).is_none());
    fail_writes(&mut host, 1, 2 * PATIENCE);
    assert!(matches!(host.reply(), Some(Outcome::Failed(ENOSPC))));
    for volume in [0, 1] {
        for block in 16..64 {
            assert!(host.submit(host.request(volume, Op::Read, block * BLOCK, BLOCK), 0).is_none());
            host.steps();
            fail_writes(&mut host, 1, 500);
            assert!(matches!(host.reply(), Some(Outcome::Data(_))), "block {block} of volume {volume} waits");
        }
    }
    host.engine.check();
    assert_eq!(host.engine.dirty(Volume(0)), Some(16));
}

/// A volume fails only if its writes fail one after the other.
#[test]
fn full_15_single_failures_do_not_add_up() {
    let mut config = config(32, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Through)]);
    for _ in 0..5 {
        assert!(host.submit(host.request(0, Op::Write, 0, BLOCK), 1).is_none());
        let failed = host.operations().pop().unwrap();
        host.engine.complete(host.now, failed, Err(ENOSPC));
        assert!(matches!(host.reply(), Some(Outcome::Failed(ENOSPC))));
        // It is not needed any more.
        assert!(matches!(host.finish(host.request(0, Op::Trim, 0, 8 * BLOCK), 0), Outcome::Done));
        host.now += 2 * PATIENCE;
    }
    assert_eq!(host.engine.next_report(), None);
}

/// However long a device takes to fail a write, and however long the pause before the next attempt.
#[test]
fn full_15_failures_that_come_slowly_add_up() {
    for pause in [PATIENCE / 4, 2 * PATIENCE] {
        let mut config = config(64, "lru");
        config.write_back.patience_us = PATIENCE;
        config.write_back.retry_us = pause;
        let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back)]);
        (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
        assert!(host.submit(host.request(0, Op::Write, 16 * BLOCK, BLOCK), 2).is_none());
        for _ in 0..2 {
            let operations = host.operations();
            assert!(!operations.is_empty());
            host.now += 2 * PATIENCE;
            operations.into_iter().for_each(|operation| host.engine.complete(host.now, operation, Err(ENOSPC)));
            host.now += pause;
        }
        assert!(matches!(host.reply(), Some(Outcome::Failed(ENOSPC))), "a pause of {pause} µs");
        assert_eq!(host.engine.next_report(), Some((Volume(0), Some(ENOSPC))));
    }
}

/// Volumes on one file system that is full: those that begin to write later do not take the room of others.
#[test]
fn full_15_volumes_that_fail_one_after_the_other_leave_room() {
    let mut config = config(128, "lru");
    config.write_back.patience_us = PATIENCE;
    (config.write_back.start, config.write_back.stop) = (8, 4);
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back); 8]);
    let write = |host: &Host, volume, block| host.request(volume, Op::Write, block * BLOCK, BLOCK);
    for volume in 0..7 {
        let mut waits = false;
        for block in 0..17 {
            if !waits {
                waits = host.submit(write(&host, volume, block), 1).is_none();
                fail_writes(&mut host, 7, 500);
            }
        }
        fail_writes(&mut host, 7, 2 * PATIENCE);
        // Of the write that waited.
        while host.reply().is_some() {}
    }
    host.engine.check();
    for block in 0..16 {
        let outcome = host.submit(write(&host, 7, block), 3);
        assert!(matches!(outcome, Some(Outcome::Done)), "block {block}: {outcome:?}");
        fail_writes(&mut host, 7, 500);
    }
}

/// Some blocks can be written, and others still cannot: it is one failure, not many.
#[test]
fn full_15_a_volume_fails_until_the_blocks_that_could_not_be_written_are() {
    let mut config = config(64, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back)]);
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    assert!(host.submit(host.request(0, Op::Write, 16 * BLOCK, BLOCK), 1).is_none());
    fail_writes(&mut host, 1, 2 * PATIENCE);
    assert!(matches!(host.reply(), Some(Outcome::Failed(ENOSPC))));
    assert_eq!(host.engine.next_report(), Some((Volume(0), Some(ENOSPC))));
    for round in 0..4 {
        // Those of its second half find space, and there are new ones each time.
        host.submit(host.request(0, Op::Write, (20 + round) * BLOCK, BLOCK), 1);
        host.submit(host.request(0, Op::Flush, 0, 0), 0);
        for _ in 0..20 {
            for operation in host.operations() {
                match operation.offset >= (8 * BLOCK) as u64 {
                    true => host.perform(operation),
                    false => host.engine.complete(host.now, operation, Err(ENOSPC)),
                }
            }
            host.now += 500;
        }
        assert_eq!(host.engine.next_report(), None, "round {round}");
    }
    assert!((8..16).contains(&host.engine.dirty(Volume(0)).unwrap()));
    host.now += 2000;
    // The first one reports what failed before.
    (0..2).for_each(|_| _ = host.finish(host.request(0, Op::Flush, 0, 0), 0));
    assert_eq!(host.engine.next_report(), Some((Volume(0), None)));
}

/// One block that can never be written: all others are, at once, also at the limit of dirty blocks.
#[test]
fn bad_block_16_only_writes_to_it_fail() {
    const BAD: u64 = 5 * BLOCK as u64;
    let mut config = config(64, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(64 * BLOCK, WriteMode::Back), (64 * BLOCK, WriteMode::Back)]);
    let write = |host: &Host, volume, block| host.request(volume, Op::Write, block * BLOCK, BLOCK);
    let run = |host: &mut Host, time: u64| {
        let (end, mut failures) = (host.now + time, 0);
        while host.now < end {
            for operation in host.operations() {
                let range = operation.offset..operation.offset + operation.length;
                let bad = operation.port.0 == 0 && range.contains(&BAD) && matches!(operation.action, Action::Write(_));
                failures += u32::from(bad);
                match bad {
                    true => host.engine.complete(host.now, operation, Err(ENOSPC)),
                    false => host.perform(operation),
                }
            }
            host.now += 100;
        }
        failures
    };
    (0..16).for_each(|block| host.write(0, block * BLOCK, BLOCK, 1));
    assert!(host.submit(write(&host, 0, 16), 1).is_none());
    run(&mut host, 900);
    // It was looked for within its neighbours.
    let (count, runs) = host.engine.failed_blocks(Volume(0), 9);
    assert_eq!((count, runs.len(), runs[0].clone()), (1, 1, 5..6));
    let Some(Outcome::Fill(fill)) = host.reply() else { panic!("there is room") };
    host.engine.commit(host.now, fill);
    assert!(matches!(host.reply(), Some(Outcome::Done)));
    let failures = run(&mut host, 2 * PATIENCE);
    assert!((PATIENCE / 1000..=4 * PATIENCE / 1000).contains(&u64::from(failures)), "{failures} attempts");
    assert_eq!(host.engine.next_report(), Some((Volume(0), Some(ENOSPC))));

    // As many dirty blocks as there may be, of both volumes.
    for block in 16..64 {
        for volume in [0, 1] {
            let outcome = host.submit(write(&host, volume, block), 2);
            assert!(matches!(outcome, None | Some(Outcome::Done)), "block {block} of volume {volume}: {outcome:?}");
            if outcome.is_none() {
                run(&mut host, 200);
                let Some(Outcome::Fill(mut fill)) = host.reply() else {
                    panic!("block {block} of volume {volume} waits")
                };
                fill.frames.slices_mut().for_each(|slice| slice.fill(2));
                host.engine.commit(host.now, fill);
                assert!(matches!(host.reply(), Some(Outcome::Done)));
            }
        }
        host.engine.check();
    }
    assert!(matches!(host.submit(write(&host, 0, 5), 2), Some(Outcome::Failed(ENOSPC))));
    let across = host.request(0, Op::Write, 3 * BLOCK, 4 * BLOCK);
    assert!(matches!(host.submit(across, 2), Some(Outcome::Failed(ENOSPC))));
    let flush = host.request(0, Op::Flush, 0, 0);
    for _ in 0..2 {
        let outcome = host.submit(flush, 0).or_else(|| {
            run(&mut host, 2000);
            host.reply()
        });
        assert!(matches!(outcome, Some(Outcome::Failed(ENOSPC))), "{outcome:?}");
    }
    assert_eq!(host.engine.next_report(), None, "it was reported");

    // The device writes it: all is well.
    host.now += 2000;
    host.run();
    assert_eq!(host.engine.next_report(), Some((Volume(0), None)));
    assert_eq!(host.engine.failed_blocks(Volume(0), 9), (0, vec![]));
    // The first one reports what failed before.
    (0..2).for_each(|_| _ = host.finish(host.request(0, Op::Flush, 0, 0), 0));
    host.write(0, 5 * BLOCK, BLOCK, 3);
    assert!(matches!(host.finish(host.request(0, Op::Flush, 0, 0), 0), Outcome::Done));
    assert_eq!(host.disks[0][5 * BLOCK..6 * BLOCK], [3; BLOCK]);
    assert!(host.disks[0][16 * BLOCK..].iter().all(|&byte| byte == 2));
}

/// A full file system takes what overwrites its blocks, and fails all new ones: writes that succeed do not let failed blocks
/// fill the cache.
#[test]
fn full_15_failed_blocks_are_few_although_others_can_be_written() {
    let mut config = config(256, "lru");
    config.write_back.patience_us = PATIENCE;
    let mut host = Host::new(config, &[(256 * BLOCK, WriteMode::Back); 2]);
    let write = |host: &Host, volume, block| host.request(volume, Op::Write, block * BLOCK, BLOCK);
    let run = |host: &mut Host| {
        for _ in 0..2 {
            for operation in host.operations() {
                let new = operation.port.0 == 0 && operation.offset >= BLOCK as u64;
                match new && matches!(operation.action, Action::Write(_)) {
                    true => host.engine.complete(host.now, operation, Err(ENOSPC)),
                    false => host.perform(operation),
                }
            }
            host.now += 100;
        }
    };
    // By volume: requests without a reply, and those that failed.
    let (mut open, mut failed) = ([0, 0], [0, 0]);
    for round in 0..100 {
        let blocks = 1 + round * 2;
        for (volume, block) in [(0, 0), (0, blocks), (0, blocks + 1), (1, round)] {
            if open[volume] == 8 {
                // The client does not begin more requests than that.
                continue;
            }
            open[volume] += 1;
            let request = Request { token: volume as u64, ..write(&host, volume as u32, block) };
            let mut reply = host.engine.submit(host.now, request).expect("the request is taken").reply;
            while let Some(Reply { token, outcome }) = reply.take().or_else(|| host.engine.next_reply()) {
                if let Outcome::Fill(fill) = outcome {
                    host.engine.commit(host.now, fill);
                    continue;
                }
                open[token as usize] -= 1;
                failed[token as usize] += u32::from(matches!(outcome, Outcome::Failed(ENOSPC)));
            }
        }
        assert_eq!(open[1], 0, "block {round} of the other volume waits");
        run(&mut host);
        host.engine.check();
    }
    let (count, _) = host.engine.failed_blocks(Volume(0), 1);
    assert!(count <= 32, "{count} blocks cannot be written");
    assert!(failed[0] > 100 && failed[1] == 0, "{failed:?} writes failed");
}
