//! How much of a device write-back takes.

use nigh_engine::{Op, Request, Volume, WriteMode};

use super::host::{BLOCK, Host, config};

/// A disk that takes 16 operations at a time, with this many dirty blocks apart from each other; one in 100 blocks may be dirty.
fn dirtied(blocks: usize) -> Host {
    let mut config = config(200, "lru");
    (config.limits.dirty, config.write_back.start, config.write_back.stop) = (100, 60, 20);
    config.write_back.age_us = 1000;
    let mut host = Host::with_depth(config, &[(1000 * BLOCK, WriteMode::Back)], 16);
    for block in 0..blocks {
        host.write(0, 3 * block * BLOCK, BLOCK, 0xaa);
    }
    host
}

#[test]
fn write_back_takes_more_of_the_device_the_nearer_the_limit_is() {
    // Of 16 operations: by the square of what is dirty between the end of write-back, 20, and the limit, 100.
    for (blocks, most) in [(61, 5), (80, 9), (95, 15)] {
        let mut host = dirtied(blocks);
        assert_eq!(host.operations().len(), most, "{blocks} blocks");
        host.engine.check();
    }
    // It ends nevertheless, one operation after the other.
    let mut host = dirtied(80);
    host.run();
    assert!(host.engine.dirty(Volume(0)) <= Some(20));
}

#[test]
fn old_blocks_are_written_one_by_one_until_they_are_late() {
    let mut host = dirtied(15);
    assert_eq!(host.operations().len(), 0, "few, and young");
    host.now = 1000;
    assert_eq!(host.operations().len(), 1);
    host.now = 2000;
    assert_eq!(host.operations().len(), 0, "its completion lets others begin");
    let mut host = dirtied(15);
    host.now = 2000;
    assert_eq!(host.operations().len(), 15, "they waited for twice their age");
}

#[test]
fn whatever_waits_for_write_back_gets_the_whole_device() {
    // A flush, also while calm write-back is under way.
    let mut host = dirtied(15);
    host.now = 1000;
    let first = host.operations();
    assert_eq!(first.len(), 1);
    assert!(host.submit(host.request(0, Op::Flush, 0, 0), 0).is_none());
    assert_eq!(host.operations().len(), 14, "without a wait for the first");
    first.into_iter().for_each(|operation| host.perform(operation));
    // A write with FUA.
    let mut host = dirtied(15);
    host.now = 1000;
    assert_eq!(host.operations().len(), 1);
    let durable = Request { fua: true, ..host.request(0, Op::Write, 900 * BLOCK, BLOCK) };
    assert!(host.submit(durable, 0xbb).is_none());
    let next = host.operations();
    assert!(next.iter().any(|operation| operation.offset == 900 * BLOCK as u64), "{next:?}");
    // The end of the host.
    let mut host = dirtied(15);
    host.engine.hurry();
    assert_eq!(host.operations().len(), 15);
    // A write beyond the limit.
    let mut host = dirtied(100);
    let request = host.request(0, Op::Write, 900 * BLOCK, BLOCK);
    assert!(host.engine.submit(0, request).expect("queued").reply.is_none());
    assert_eq!(host.operations().len(), 16);
}
