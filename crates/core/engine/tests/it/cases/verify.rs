//! Blocks that are damaged in memory.

use nigh_engine::{Damage, Fault, Op, Outcome, Port, PortConfig, Volume, WriteMode};

use super::host::{BLOCK, Host, config};
use super::levels::level;

const VOLUME: Volume = Volume(0);
const BACK: (usize, WriteMode) = (64 * BLOCK, WriteMode::Back);

fn flush(host: &mut Host) -> Outcome {
    host.finish(host.request(0, Op::Flush, 0, 0), 0)
}

fn read(host: &mut Host, offset: usize, length: usize) -> Outcome {
    host.finish(host.request(0, Op::Read, offset, length), 0)
}

fn is_damaged(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(Fault::DAMAGED))
}

fn damages(host: &mut Host) -> Vec<(u64, bool)> {
    let next = || host.engine.next_damage().map(|Damage { block, lost, .. }| (block, lost));
    std::iter::from_fn(next).collect()
}

#[test]
fn verify_clean_blocks_are_read_again() {
    let mut host = Host::new(config(8, "lru"), &[BACK]);
    host.read(0, 0, 4 * BLOCK);
    assert!(host.engine.flip_bit(VOLUME, 2, 77));
    assert_eq!(host.read(0, 2 * BLOCK, BLOCK), [2; BLOCK]);
    assert_eq!(damages(&mut host), [(2, false)]);
    assert_eq!(host.counters(0).damaged, 1);
    // A partial write takes over the rest of a block.
    assert!(host.engine.flip_bit(VOLUME, 1, 8 * (BLOCK - 1)));
    host.write(0, BLOCK, 8, 9);
    assert_eq!(host.read(0, BLOCK + 8, BLOCK - 8), [1; BLOCK - 8]);
    assert!(matches!(flush(&mut host), Outcome::Done));
    assert_eq!(host.disks[0][BLOCK..2 * BLOCK], [[9; 8].as_slice(), &[1; BLOCK - 8]].concat());
    host.engine.check();
}

/// Only every so manyth read is checked, which is enough for a block that is read often.
#[test]
fn verify_checks_a_sample_of_reads() {
    let mut config = config(8, "lru");
    config.verify = 5;
    let mut host = Host::new(config, &[BACK]);
    host.read(0, 0, BLOCK);
    assert!(host.engine.flip_bit(VOLUME, 0, 0));
    let wrong = (0..5).filter(|_| host.read(0, 0, BLOCK) != [0; BLOCK]).count();
    assert!(wrong < 5);
    assert_eq!(host.read(0, 0, BLOCK), [0; BLOCK]);
}

#[test]
fn verify_dirty_blocks_are_lost_and_the_device_does_not_get_them() {
    let mut host = Host::new(config(8, "lru"), &[BACK]);
    host.write(0, 0, 3 * BLOCK, 7);
    assert!(host.engine.flip_bit(VOLUME, 1, 5));
    assert!(is_damaged(&flush(&mut host)));
    host.run();
    host.engine.check();
    assert_eq!(damages(&mut host), [(1, true)]);
    // The others of the same operation are written.
    assert_eq!(host.disks[0][..3 * BLOCK], [[7; BLOCK], [1; BLOCK], [7; BLOCK]].concat());
    assert_eq!((host.engine.damaged(VOLUME, 9), host.engine.lost(VOLUME)), (vec![1], Some(Fault::DAMAGED)));
    // Its clients do not get older contents.
    assert!(is_damaged(&read(&mut host, BLOCK, BLOCK)));
    assert!(is_damaged(&read(&mut host, 0, 3 * BLOCK)));
    assert!(is_damaged(&host.finish(host.request(0, Op::Write, BLOCK + 8, 8), 3)));
    assert_eq!(host.read(0, 2 * BLOCK, BLOCK), [7; BLOCK]);
    host.write(0, BLOCK, BLOCK, 8);
    assert_eq!(host.read(0, 0, 3 * BLOCK), [[7; BLOCK], [8; BLOCK], [7; BLOCK]].concat());
    assert!(host.engine.damaged(VOLUME, 9).is_empty());
    // Acknowledged data is lost all the same, until an administrator attends to the volume.
    assert!(is_damaged(&flush(&mut host)));
    host.engine.check();
}

#[test]
fn verify_dirty_blocks_fail_the_requests_that_wait_for_them() {
    let mut host = Host::new(config(8, "lru"), &[BACK]);
    host.write(0, 0, BLOCK, 7);
    assert!(host.engine.flip_bit(VOLUME, 0, 0));
    // Found by a read.
    assert!(is_damaged(&read(&mut host, 0, BLOCK)));
    assert_eq!(damages(&mut host), [(0, true)]);
    // A write with FUA, damaged before its operation begins.
    host.write(0, 5 * BLOCK, BLOCK, 7);
    assert!(host.engine.flip_bit(VOLUME, 5, 0));
    let mut fua = host.request(0, Op::Write, 4 * BLOCK, BLOCK);
    fua.fua = true;
    assert!(is_damaged(&host.finish(fua, 1)), "the volume is condemned");
    assert_eq!(host.disks[0][4 * BLOCK..6 * BLOCK], [[1; BLOCK], [5; BLOCK]].concat());
    host.engine.check();
}

/// A block that is damaged while a level stores it is not stored; the level would vouch for it.
#[test]
fn verify_levels_do_not_store_damaged_blocks() {
    let mut config = config(4, "lru");
    config.storing = 8;
    let mut host = Host::new(config, &[]);
    for port in [Port(0), Port(1)] {
        host.engine.attach(port, PortConfig::default()).unwrap();
    }
    host.engine.add_level(level(Port(1), 16, 2)).unwrap();
    host.disks = vec![(0..64 * BLOCK).map(|byte| (byte / BLOCK) as u8).collect(), vec![0; 16 * BLOCK]];
    let whole = nigh_engine::Region::whole(Port(0), 64 * BLOCK as u64);
    host.engine.open(VOLUME, WriteMode::Back, &[whole]).unwrap();
    host.read(0, 0, 4 * BLOCK);
    assert!(host.engine.flip_bit(VOLUME, 3, 9));
    host.read(0, 8 * BLOCK, 4 * BLOCK);
    host.run();
    assert_eq!(damages(&mut host), [(3, false)]);
    assert_eq!(host.read(0, 0, 4 * BLOCK), [[0; BLOCK], [1; BLOCK], [2; BLOCK], [3; BLOCK]].concat());
    host.engine.check();
}
