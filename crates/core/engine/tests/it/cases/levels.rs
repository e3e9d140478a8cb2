//! Levels and regions, step by step.

use nigh_engine::{
    Action, Engine, Fault, LeftOut, LevelConfig, Op, Operation, Outcome, Port, PortConfig, Region, Request, Submitted,
    Volume, WriteMode,
};
use nigh_policy::{Stream, Tenant};

use crate::cases::host::{BLOCK, config};

const HOME: Port = Port(0);
const LEVEL: Port = Port(1);
const OTHER: Port = Port(2);
const PATIENCE: u64 = 1000;
const SIZE: u64 = 64 * BLOCK as u64;

/// A level that waits for its device as long as `PATIENCE`.
pub(crate) fn level(port: Port, blocks: u32, faults: u32) -> LevelConfig {
    LevelConfig { port, offset: 0, blocks, faults, patience_us: PATIENCE, shared: false, elastic: false }
}

/// An engine of 4 blocks with a level of 16, and a volume whose second half is at another port.
fn engine() -> Engine {
    let mut config = config(4, "lru");
    config.storing = 8;
    let mut engine = Engine::new(config).expect("a possible set-up");
    for port in [HOME, LEVEL, OTHER] {
        engine.attach(port, PortConfig::default()).expect("not open yet");
    }
    assert_eq!(engine.add_level(level(LEVEL, 16, 2)).expect("a possible level"), 0);
    let regions = [Region::whole(HOME, SIZE / 2), Region { port: OTHER, offset: 0, bytes: SIZE / 2 }];
    engine.open(Volume(0), WriteMode::Back, &regions).expect("not open yet");
    engine
}

fn request(op: Op, block: u64, blocks: u64) -> Request {
    let (offset, length) = (block * BLOCK as u64, blocks * BLOCK as u64);
    Request { volume: Volume(0), tenant: Tenant(0), op, offset, length, fua: false, stream: Stream(0), token: 7 }
}

fn submit(engine: &mut Engine, op: Op, block: u64, blocks: u64) -> Submitted {
    engine.submit(0, request(op, block, blocks)).expect("taken")
}

fn operations(engine: &mut Engine) -> Vec<Operation> {
    operations_at(engine, 0)
}

fn operations_at(engine: &mut Engine, now: u64) -> Vec<Operation> {
    std::iter::from_fn(|| engine.next_operation(now)).collect()
}

/// Ports of operations, first blocks, and numbers of blocks.
fn places(operations: &[Operation]) -> Vec<(Port, u64, u64)> {
    let block = BLOCK as u64;
    operations.iter().map(|of| (of.port, of.offset / block, of.length / block)).collect()
}

/// Completes `operations`; what is read is all `byte`.
fn complete(engine: &mut Engine, operations: Vec<Operation>, byte: u8) {
    for mut operation in operations {
        if let Action::Read(frames) = &mut operation.action {
            frames.slices_mut().for_each(|slice| slice.fill(byte));
        }
        engine.complete(0, operation, Ok(()));
    }
    engine.check();
}

/// Reads `blocks` from home, so that they leave again as others come.
fn load(engine: &mut Engine, block: u64, blocks: u64) {
    assert!(submit(engine, Op::Read, block, blocks).missed);
    let reads = operations(engine);
    let reads = reads.into_iter().filter(|of| matches!(of.action, Action::Read(_))).collect();
    complete(engine, reads, 0x11);
    assert!(matches!(engine.next_reply().expect("data").outcome, Outcome::Data(_)));
}

/// Stores that are due are started at any call: also if there are hits only.
#[test]
fn hits_look_after_levels() {
    for has_level in [false, true] {
        let mut config = config(4, "lru");
        (config.storing, config.verify) = (8, 0);
        let mut engine = Engine::new(config).expect("a possible set-up");
        for port in [HOME, LEVEL] {
            engine.attach(port, PortConfig::default()).expect("not open yet");
        }
        if has_level {
            engine.add_level(level(LEVEL, 16, 2)).expect("a possible level");
        }
        engine.open(Volume(0), WriteMode::Back, &[Region::whole(HOME, SIZE)]).expect("not open yet");
        load(&mut engine, 0, 1);
        assert!(!submit(&mut engine, Op::Read, 0, 1).missed);
        let Request { volume, offset, length, .. } = request(Op::Read, 0, 1);
        assert_eq!(engine.published().read(volume, offset, length).is_err(), has_level);
    }
}

#[test]
fn what_leaves_together_is_stored_as_one_and_loaded_as_one() {
    let mut engine = engine();
    load(&mut engine, 0, 4);
    assert!(submit(&mut engine, Op::Read, 8, 4).missed);
    let mut all = operations(&mut engine);
    all.sort_by_key(|of| of.port);
    assert_eq!(places(&all), [(HOME, 8, 4), (LEVEL, 0, 4)]);
    complete(&mut engine, all, 0x11);
    assert_eq!(engine.level_blocks(0), Some(4));
    engine.next_reply().expect("data");
    assert!(submit(&mut engine, Op::Read, 0, 4).missed);
    let all = operations(&mut engine);
    assert_eq!(places(&all), [(LEVEL, 0, 4), (LEVEL, 4, 4)], "the blocks, and the next victims");
    complete(&mut engine, all, 0x11);
    assert!(matches!(engine.next_reply().expect("data").outcome, Outcome::Data(_)));
    let counters = engine.counters(Volume(0)).expect("open");
    assert_eq!((counters.level_1_hits, counters.device_reads), (4, 2));
    // They are there already when they leave again.
    load(&mut engine, 16, 4);
    assert_eq!(engine.level_counters(0).expect("a level").0.stores, 8);
}

/// A request of more blocks than memory has for such ones pushes its own out before they are there.
#[test]
fn what_leaves_while_it_is_loaded_is_stored_as_soon_as_it_is_there() {
    let mut engine = engine();
    load(&mut engine, 0, 8);
    let stores = operations(&mut engine);
    assert_eq!(places(&stores), [(LEVEL, 0, 4)], "of blocks 0 to 3");
    complete(&mut engine, stores, 0x11);
    assert!(submit(&mut engine, Op::Read, 0, 8).missed);
    let all = operations(&mut engine);
    assert_eq!(places(&all), [(LEVEL, 0, 4), (LEVEL, 4, 4)], "the blocks that left, and those that leave now");
}

#[test]
fn what_the_level_fails_or_damages_comes_from_home() {
    let mut engine = engine();
    load(&mut engine, 0, 4);
    assert!(submit(&mut engine, Op::Read, 8, 4).missed);
    let all = operations(&mut engine);
    complete(&mut engine, all, 0x11);
    engine.next_reply().expect("data");
    for (block, fails) in [(0, true), (1, false)] {
        assert!(submit(&mut engine, Op::Read, block, 1).reply.is_none());
        let (fetches, others): (Vec<_>, Vec<_>) =
            operations(&mut engine).into_iter().partition(|of| matches!(of.action, Action::Read(_)));
        complete(&mut engine, others, 0);
        assert_eq!(places(&fetches), [(LEVEL, block, 1)]);
        match fails {
            true => fetches.into_iter().for_each(|fetch| engine.complete(0, fetch, Err(Fault(5)))),
            false => complete(&mut engine, fetches, 0xee),
        }
        assert!(engine.next_reply().is_none());
        let reads = operations(&mut engine);
        assert_eq!(places(&reads), [(HOME, block, 1)]);
        complete(&mut engine, reads, 0x11);
        let Outcome::Data(data) = engine.next_reply().expect("data").outcome else { panic!("data") };
        assert!(data.slices().all(|slice| slice.iter().all(|&byte| byte == 0x11)));
    }
    let (counters, off) = engine.level_counters(0).expect("a level");
    assert_eq!((counters.mismatches, counters.faults, off), (1, 1, false));
}

#[test]
fn operations_end_with_regions_and_a_flush_goes_to_each_port() {
    let mut engine = engine();
    assert!(submit(&mut engine, Op::Read, 30, 4).missed);
    let reads = operations(&mut engine);
    assert_eq!(places(&reads), [(HOME, 30, 2), (OTHER, 0, 2)]);
    complete(&mut engine, reads, 0x11);
    engine.next_reply().expect("data");
    assert!(submit(&mut engine, Op::Flush, 0, 0).reply.is_none());
    let mut flushes = operations(&mut engine);
    assert_eq!(places(&flushes), [(HOME, 0, 0), (OTHER, 0, 0)]);
    let last = flushes.pop().expect("two");
    complete(&mut engine, flushes, 0);
    assert!(engine.next_reply().is_none(), "one port is not flushed yet");
    engine.complete(0, last, Err(Fault(5)));
    assert!(matches!(engine.next_reply().expect("a reply").outcome, Outcome::Failed(Fault(5))));
    // Only the port that failed is flushed again.
    assert!(submit(&mut engine, Op::Flush, 0, 0).reply.is_none());
    assert_eq!(places(&operations(&mut engine)), [(OTHER, 0, 0)]);
}

/// A level that does not answer: what it holds comes from home after a time, and at once until it answers again.
#[test]
fn levels_18_one_that_hangs_makes_nobody_wait() {
    let mut engine = engine();
    for block in [0, 4, 8] {
        assert!(submit(&mut engine, Op::Read, block, 4).missed);
        let all = operations(&mut engine);
        complete(&mut engine, all, 0x11);
        engine.next_reply().expect("data");
    }
    assert_eq!(engine.level_blocks(0), Some(8));
    assert_eq!(engine.next_wakeup(), None);

    assert!(submit(&mut engine, Op::Read, 0, 2).reply.is_none());
    let at_level = operations(&mut engine);
    assert_eq!(places(&at_level), [(LEVEL, 0, 2), (LEVEL, 8, 2)], "the blocks, and the next victims");
    assert_eq!(engine.next_wakeup(), Some(PATIENCE));
    assert!(operations_at(&mut engine, PATIENCE - 1).is_empty());
    let reads = operations_at(&mut engine, PATIENCE);
    assert_eq!(places(&reads), [(HOME, 0, 2)]);
    assert!(engine.is_level_late(0));
    engine.check();
    complete(&mut engine, reads, 0x11);
    let Outcome::Data(data) = engine.next_reply().expect("data").outcome else { panic!("data") };
    assert!(data.slices().all(|slice| slice.iter().all(|&byte| byte == 0x11)));

    // Others do not wait, and the volume can be closed.
    assert!(submit(&mut engine, Op::Read, 4, 2).reply.is_none());
    let reads = operations_at(&mut engine, PATIENCE);
    assert_eq!(places(&reads), [(HOME, 4, 2)]);
    complete(&mut engine, reads, 0x11);
    assert!(matches!(engine.next_reply().expect("data").outcome, Outcome::Data(_)));
    engine.close(PATIENCE, Volume(0), false, 9).expect("it is open");
    let flushes = operations_at(&mut engine, PATIENCE);
    complete(&mut engine, flushes, 0);
    while engine.step(PATIENCE) {}
    assert!(matches!(engine.next_reply().expect("closed").outcome, Outcome::Done));

    // Late data is dropped.
    complete(&mut engine, at_level, 0xee);
    assert!(operations_at(&mut engine, 2 * PATIENCE).is_empty());
    assert!(!engine.is_level_late(0));
    assert_eq!(engine.level_counters(0).expect("a level").0.late, 1);
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(HOME, SIZE)]).expect("it was closed");
    load(&mut engine, 0, 4);
}

/// Reads one block after the other of those that the level has. Returns how many of them went there, and what is reported.
fn read_slowly(engine: &mut Engine, now: &mut u64, count: u64, level_us: u64, home_us: u64) -> (u64, Vec<LeftOut>) {
    let mut there = 0;
    for at in 0..count {
        // 16 blocks in turn, in memory for 4.
        if engine.submit(*now, request(Op::Read, at % 16, 1)).expect("taken").reply.is_some() {
            continue;
        }
        let mut left = operations_at(engine, *now);
        while !left.is_empty() {
            for operation in left {
                let is_read = matches!(operation.action, Action::Read(_));
                there += u64::from(is_read && operation.port == LEVEL);
                *now += if !is_read {
                    0
                } else if operation.port == LEVEL {
                    level_us
                } else {
                    home_us
                };
                engine.complete(*now, operation, Ok(()));
            }
            left = operations_at(engine, *now);
        }
        assert!(matches!(engine.next_reply().expect("data").outcome, Outcome::Data(_)));
        engine.check();
    }
    (there, std::iter::from_fn(|| engine.next_left_out()).collect())
}

/// A disk with a memory of its own reads sequences fast, but seeks for the blocks that the level has.
#[test]
fn a_level_is_not_left_out_because_other_blocks_are_read_fast() {
    let mut config = config(4, "lru");
    config.storing = 8;
    let mut engine = Engine::new(config).expect("a possible set-up");
    for port in [HOME, LEVEL] {
        engine.attach(port, PortConfig::default()).expect("not open yet");
    }
    let config = LevelConfig { patience_us: LevelConfig::PATIENCE_US, ..level(LEVEL, 64, 2) };
    engine.add_level(config).expect("a possible level");
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(HOME, 8192 * BLOCK as u64)]).expect("not open yet");
    let (mut now, mut there, mut instead) = (0, 0, 0);
    // 16 blocks in turn, which stay in the level, and three that are read once after each of them.
    let others = 16..;
    for (at, other) in (0..2000).zip(others.step_by(3)) {
        for block in [at % 16, other, other + 1, other + 2] {
            let is_kept = block < 16;
            assert!(engine.submit(now, request(Op::Read, block, 1)).expect("taken").reply.is_none());
            let mut left = operations_at(&mut engine, now);
            while !left.is_empty() {
                for operation in left {
                    if matches!(operation.action, Action::Read(_)) {
                        (there, instead) = match operation.port {
                            LEVEL => (there + 1, instead),
                            _ => (there, instead + u64::from(is_kept)),
                        };
                        now += match (operation.port, is_kept) {
                            (LEVEL, _) => 3_000,
                            (_, true) => 8_000,
                            (_, false) => 80,
                        };
                    }
                    engine.complete(now, operation, Ok(()));
                }
                left = operations_at(&mut engine, now);
            }
            assert!(matches!(engine.next_reply().expect("data").outcome, Outcome::Data(_)));
        }
    }
    engine.check();
    assert_eq!(engine.next_left_out(), None);
    assert_eq!(there + instead, 2000);
    // The first of each, and eight for the one doubt in 10 s.
    assert_eq!(instead, 16 + 8);
}

#[test]
fn slow_7_a_level_that_takes_longer_than_the_disk_is_left_out() {
    let mut config = config(4, "lru");
    config.storing = 8;
    let mut engine = Engine::new(config).expect("a possible set-up");
    for port in [HOME, LEVEL] {
        engine.attach(port, PortConfig::default()).expect("not open yet");
    }
    let config = LevelConfig { patience_us: LevelConfig::PATIENCE_US, ..level(LEVEL, 16, 2) };
    engine.add_level(config).expect("a possible level");
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(HOME, SIZE)]).expect("not open yet");
    let mut now = 0;
    // A disk of 300 us, and a level of 100.
    assert_eq!(read_slowly(&mut engine, &mut now, 16, 100, 300), (0, vec![]));
    assert_eq!(read_slowly(&mut engine, &mut now, 96, 100, 300), (96, vec![]));
    // The level has trouble.
    let (there, reports) = read_slowly(&mut engine, &mut now, 2000, 50_000, 300);
    assert!(there < 100, "{there} reads from a slow level");
    let left_out = LeftOut { level: 0, volume: Volume(0), for_us: 10_000_000, level_us: 50_000, home_us: 300 };
    assert_eq!(reports, [left_out]);
    assert_eq!(engine.level_counters(0).expect("a level").0.left_out, 1);
    assert_eq!(engine.level_blocks(0), Some(16), "what it has stays");
    // It is tried by a few reads, and then for the rest.
    now += 10_000_000;
    let (there, reports) = read_slowly(&mut engine, &mut now, 1000, 50_000, 300);
    assert_eq!((there, reports.len(), reports[0].for_us), (8, 1, 20_000_000));
    now += 20_000_000;
    let (there, reports) = read_slowly(&mut engine, &mut now, 1000, 100, 300);
    assert_eq!((there > 900, reports), (true, vec![LeftOut { for_us: 0, level_us: 100, ..left_out }]));
}
