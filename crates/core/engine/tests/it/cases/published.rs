//! Blocks that are read without the engine.

use crate::cases::host::{BLOCK, Host, config};
use nigh_engine::{Config, Engine, Noted, Op, Shared, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};

const OF: Volume = Volume(0);

/// A cache of 8 blocks on a disk of 64 and a half.
fn host() -> Host {
    Host::new(Config { verify: 0, ..config(8, "lru") }, &[(64 * BLOCK + BLOCK / 2, WriteMode::Back)])
}

fn found(engine: &Engine, block: usize) -> Option<Shared> {
    engine.published().read(OF, (block * BLOCK) as u64, BLOCK as u64).ok()
}

fn bytes(data: &Shared) -> Vec<u8> {
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes
}

#[test]
fn a_block_is_found_from_its_first_hit_until_it_is_evicted() {
    let mut host = host();
    host.read(0, 3 * BLOCK, BLOCK);
    assert!(found(&host.engine, 3).is_none(), "it was not hit");
    host.read(0, 3 * BLOCK, BLOCK);
    let data = found(&host.engine, 3).expect("it was hit");
    assert_eq!(bytes(&data), [3; BLOCK]);
    assert!(found(&host.engine, 4).is_none(), "another block");
    for block in 8..16 {
        host.read(0, block * BLOCK, BLOCK);
    }
    assert!(found(&host.engine, 3).is_none(), "it left");
    assert_eq!(bytes(&data), [3; BLOCK], "who holds it has it");
    host.engine.check();
}

#[test]
fn what_is_written_is_not_found_as_it_was() {
    let mut host = host();
    host.read(0, 0, 2 * BLOCK);
    host.read(0, 0, 2 * BLOCK);
    let before = found(&host.engine, 1).expect("it was hit");
    host.write(0, BLOCK, BLOCK, 0x77);
    assert!(found(&host.engine, 1).is_none(), "it was written and not hit since");
    assert!(host.engine.published().read(OF, 0, 2 * BLOCK as u64).is_err(), "half of it was");
    assert!(found(&host.engine, 0).is_some());
    host.read(0, BLOCK, BLOCK);
    assert_eq!(bytes(&found(&host.engine, 1).expect("it was hit")), [0x77; BLOCK]);
    assert_eq!(bytes(&before), [1; BLOCK]);
    host.engine.check();
}

#[test]
fn parts_of_blocks_are_found_and_the_end_of_a_volume_is_not() {
    let mut host = host();
    for _ in 0..2 {
        host.read(0, 2 * BLOCK, 2 * BLOCK);
        host.read(0, 64 * BLOCK, BLOCK / 2);
    }
    let at = 2 * BLOCK as u64 + 100;
    let data = host.engine.published().read(OF, at, BLOCK as u64).expect("it was hit");
    let expected = [vec![2; BLOCK - 100], vec![3; 100]].concat();
    assert_eq!(bytes(&data), expected);
    for length in [BLOCK / 2, BLOCK] {
        assert!(host.engine.published().read(OF, 64 * BLOCK as u64, length as u64).is_err(), "{length} bytes");
    }
    assert!(host.engine.published().read(OF, 0, 0).is_err());
    assert!(host.engine.published().read(OF, u64::MAX - 5, 4096).is_err());
}

#[test]
fn dropped_blocks_are_not_found() {
    let mut host = host();
    for _ in 0..2 {
        host.read(0, 0, 4 * BLOCK);
    }
    host.finish(host.request(0, Op::Trim, 0, 2 * BLOCK), 0);
    assert!([0, 1].iter().all(|&block| found(&host.engine, block).is_none()));
    assert!([2, 3].iter().all(|&block| found(&host.engine, block).is_some()));
    host.engine.end();
    assert!(found(&host.engine, 2).is_none(), "the cache ends");
}

/// A list has room for the reads before the next one that is checked.
#[test]
fn reads_are_noted_until_one_is_to_be_checked() {
    for (verify, most) in [(0, 64), (1, 0), (8, 7), (1000, 64)] {
        let mut host = Host::new(Config { verify, ..config(8, "lru") }, &[(64 * BLOCK, WriteMode::Back)]);
        for _ in 0..2 {
            host.read(0, 0, BLOCK);
        }
        let (published, mut noted) = (host.engine.published().clone(), Noted::new(OF, Tenant(0), Stream(0)));
        let before = host.counters(0).hits;
        let read = |_: &u32| published.read(OF, 0, BLOCK as u64).is_ok() && published.note(&mut noted, 0, BLOCK as u64);
        assert_eq!((0..200).filter(read).count(), most, "{verify}");
        host.engine.take_notice(&mut noted);
        assert!(noted.is_empty());
        assert_eq!(host.counters(0).hits - before, most as u64);
    }
}
