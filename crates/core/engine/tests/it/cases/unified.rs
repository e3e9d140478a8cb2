//! Unified level-aware caching in an engine: it hits where the pure scheme does, in memory and at each level.

use nigh_engine::{Action, BlockState, Engine, Op, Outcome, Port, PortConfig, Region, Request, Volume, WriteMode};
use nigh_policy::{Slot, Stream, Tenant};
use nigh_testkit::workload;
use nigh_tier::{Move, Tier, Ulc};

use crate::cases::host::{BLOCK, config};
use crate::cases::levels::level;

const HOME: Port = Port(0);

/// An engine with levels, and what its devices contain.
struct Host {
    engine: Engine,
    home: Vec<u8>,
    levels: Vec<Vec<u8>>,
}

impl Host {
    fn new(policy: &str, memory: u32, levels: &[u32], blocks: u64) -> Host {
        let mut config = config(memory, policy);
        config.storing = 64;
        config.levels = levels.to_vec();
        let mut engine = Engine::new(config).expect("a possible set-up");
        engine.attach(HOME, PortConfig::default()).expect("not open yet");
        for (number, &blocks) in (1..).zip(levels) {
            engine.attach(Port(number), PortConfig::default()).expect("not open yet");
            let level = level(Port(number), blocks, 3);
            engine.add_level(level).expect("a possible level");
        }
        let bytes = blocks * BLOCK as u64;
        engine.open(Volume(0), WriteMode::Back, &[Region::whole(HOME, bytes)]).expect("not open yet");
        let home = (0..bytes).map(|at| (at / BLOCK as u64 % 251) as u8).collect();
        let levels = levels.iter().map(|&blocks| vec![0; blocks as usize * BLOCK]).collect();
        Host { engine, home, levels }
    }

    /// Completes everything.
    fn run(&mut self) {
        while let Some(mut operation) = self.engine.next_operation(0) {
            let bytes = operation.offset as usize..(operation.offset + operation.length) as usize;
            let device = match operation.port {
                HOME => &mut self.home,
                Port(level) => &mut self.levels[usize::from(level) - 1],
            };
            match &mut operation.action {
                Action::Read(frames) => frames.copy_from(&device[bytes]),
                Action::Write(frames) => frames.copy_to(&mut device[bytes]),
                _ => {}
            }
            self.engine.complete(0, operation, Ok(()));
        }
    }

    fn submit(&mut self, op: Op, block: u64) -> Outcome {
        let (tenant, stream) = (Tenant(0), Stream(0));
        let (offset, length) = (block * BLOCK as u64, BLOCK as u64);
        let request = Request { volume: Volume(0), tenant, op, offset, length, fua: false, stream, token: 7 };
        let submitted = self.engine.submit(0, request).expect("taken");
        if let Some(reply) = submitted.reply {
            return reply.outcome;
        }
        self.run();
        self.engine.next_reply().expect("everything is complete").outcome
    }

    fn read(&mut self, block: u64) -> Vec<u8> {
        let Outcome::Data(data) = self.submit(Op::Read, block) else { panic!("data") };
        let bytes = data.slices().flatten().copied().collect();
        drop(data);
        self.run();
        bytes
    }

    fn write(&mut self, block: u64, byte: u8) {
        let Outcome::Fill(mut fill) = self.submit(Op::Write, block) else { panic!("frames to fill") };
        fill.frames.slices_mut().for_each(|slice| slice.fill(byte));
        self.engine.commit(0, fill);
        self.run();
        assert!(matches!(self.engine.next_reply().expect("done").outcome, Outcome::Done));
    }

    /// Blocks that came from memory, from each level, and from home.
    fn found(&self) -> [u64; 4] {
        let counters = self.engine.counters(Volume(0)).expect("open");
        let levels = [counters.level_1_hits, counters.level_2_hits];
        let home = counters.misses - counters.adopted - levels[0] - levels[1];
        [counters.hits, levels[0], levels[1], home]
    }
}

/// The blocks of a level of `places` that ULC uses.
fn kept(places: u32) -> u32 {
    places - (places / 64).clamp(1, 1024).min(places - 1)
}

#[test]
fn the_engine_hits_at_each_level_where_ulc_does() {
    let set_ups: [(&str, u32, &[u32]); 4] = [
        ("ulc:first=out", 8, &[20]),
        ("ulc:ghosts=0.3:first=last", 8, &[20, 30]),
        ("ulc:first=out", 3, &[2, 90]),
        ("ulc:first=last", 16, &[80, 9]),
    ];
    for (number, (policy, memory, levels)) in set_ups.into_iter().enumerate() {
        let mut capacities = vec![memory];
        capacities.extend(levels.iter().map(|&places| kept(places)));
        let blocks = 120;
        let mut host = Host::new(policy, memory, levels, blocks);
        let mut ulc = Ulc::with(&policy.parse().expect("a scheme"), blocks as u32, &capacities).expect("possible");
        let mut moves: Vec<Move> = Vec::new();
        for (at, block) in workload::mixed(number as u64, blocks, 6000).into_iter().enumerate() {
            moves.clear();
            let from = ulc.reference(Slot(block as u32), &mut moves).from;
            let before = host.found();
            assert!(host.read(block) == [(block % 251) as u8; BLOCK], "other bytes at reference {at}");
            let after = host.found();
            let grown: Vec<usize> = (0..4).filter(|&place| after[place] > before[place]).collect();
            let expected = from.map_or(3, usize::from);
            // Blocks in the transit buffer come from neither level nor disk.
            let is_transit = grown.is_empty() && expected != 0;
            assert!(is_transit || grown == [expected], "{policy}, {levels:?}: reference {at} of {block}: {grown:?}");
            for other in 0..blocks {
                let Some(level) = ulc.level(Slot(other as u32)).filter(|&level| level > 0) else { continue };
                let place = host.engine.level_place(usize::from(level) - 1, Volume(0), other);
                let is_present = place.is_some() || host.engine.state(Volume(0), other) != BlockState::Absent;
                assert!(is_present, "{policy}, {levels:?}: after reference {at}, {other} is not at level {level}");
            }
            if at % 16 == 0 {
                host.engine.check();
            }
        }
        let mut demotions = 0;
        host.engine
            .policy_gauges(&mut |name, value| demotions += if name.starts_with("demotions") { value } else { 0 });
        assert_eq!(demotions, ulc.counts().demotions.iter().sum::<u64>());
        let counters = |level| host.engine.level_counters(level).expect("a level").0;
        for level in 0..levels.len() {
            let counters = counters(level);
            assert_eq!((counters.drops, counters.mismatches), (0, 0), "nothing is in a hurry here");
            println!("{policy}, level {}: {counters:?}", level + 1);
        }
        let found = host.found();
        assert!(found[..=levels.len()].iter().all(|&hits| hits > 0), "{policy}, {levels:?}: {found:?}");
        let references: u64 = found.iter().sum();
        assert!(references > 5000, "most blocks come from somewhere, not from the transit buffer: {found:?}");
        println!("{policy}, {memory} and {levels:?} blocks: {found:?} of {references}");
    }
}

/// Blocks that were written belong to any level, and stay in memory until they are at home.
#[test]
fn what_is_written_is_held_and_then_goes_where_it_belongs() {
    let blocks = 120;
    let mut host = Host::new("ulc", 32, &[20, 30], blocks);
    let mut bytes: Vec<u8> = (0..blocks).map(|block| (block % 251) as u8).collect();
    let (mut held_most, mut stored) = (0, 0);
    let gauge = |engine: &Engine, of: &str| {
        let mut found = 0;
        engine.policy_gauges(&mut |name, value| found += if name == of { value } else { 0 });
        found
    };
    for (at, block) in workload::mixed(7, blocks, 6000).into_iter().enumerate() {
        if at % 3 == 2 {
            bytes[block as usize] = at as u8;
            host.write(block, at as u8);
        } else {
            assert!(host.read(block) == [bytes[block as usize]; BLOCK], "other bytes at reference {at}");
        }
        held_most = held_most.max(gauge(&host.engine, "held"));
        if at % 40 == 39 {
            assert!(matches!(host.submit(Op::Flush, 0), Outcome::Done));
            assert_eq!(gauge(&host.engine, "held"), 0, "everything is written");
            stored = (0..2).map(|level| host.engine.level_counters(level).expect("a level").0.stores).sum();
        }
        host.engine.check();
    }
    assert_eq!(held_most, 4, "an eighth of memory");
    assert!(stored > 1000, "{stored} blocks were stored");
}
