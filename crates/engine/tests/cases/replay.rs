//! One request at a time, the engine hits and misses exactly where the bare policy does.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};

use crate::host::{BLOCK, Host, config};
use nigh_engine::{Op, WriteMode};
use nigh_policy::{Access, Block, Kind, Setup, Slot, Spec, Stream, Tenant, build};
use nigh_testkit::host::{Host as Bare, Slots};
use nigh_testkit::workload::mixed;

fn policies() -> impl Iterator<Item = &'static str> {
    nigh_policy::registry().iter().filter(|info| !info.offline).map(|info| info.name)
}

/// Reads or, every third time, overwrites each block in turn, and compares with `bare`, which tells hits from misses.
fn compare(policy: &str, capacity: u32, ghosts_per_block: f32, references: &[u64], mut bare: impl FnMut(u64) -> bool) {
    let mut config = config(capacity, policy);
    config.ghosts_per_block = ghosts_per_block;
    let blocks = references.iter().max().map_or(1, |&block| block as usize + 1);
    let mut host = Host::new(config, &[(blocks * BLOCK, WriteMode::Back)]);
    let mut written = vec![None; blocks];
    let mut hits = 0;
    for (at, &block) in references.iter().enumerate() {
        let offset = block as usize * BLOCK;
        if at % 3 == 2 {
            written[block as usize] = Some(at as u8);
            host.write(0, offset, BLOCK, at as u8);
        } else {
            let bytes = host.read(0, offset, BLOCK);
            assert_eq!(bytes[0], written[block as usize].unwrap_or(block as u8 % 64));
        }
        host.run();
        let hit = host.counters(0).hits > hits;
        hits = host.counters(0).hits;
        assert_eq!(hit, bare(block), "{policy}, {capacity} blocks: reference {at}, of block {block}");
    }
    let counters = host.counters(0);
    assert_eq!(counters.hits + counters.misses, references.len() as u64);
    host.finish(host.request(0, Op::Flush, 0, 0), 0);
    for (block, written) in written.iter().enumerate() {
        assert_eq!(host.disks[0][block * BLOCK], written.unwrap_or(block as u8 % 64), "block {block} of the disk");
    }
    host.engine.check();
}

#[test]
fn every_policy_on_random_references() {
    let mut count = 0;
    for policy in policies() {
        for seed in 0..6 {
            let (blocks, capacity) = ([40, 120, 300][seed as usize % 3], [9, 25, 64][seed as usize / 2]);
            let references = mixed(seed, blocks, 4000);
            let ghosts = if seed % 2 == 0 { capacity } else { 2 * capacity };
            let slots = Slots::Reused { ghosts };
            let mut bare = Bare::with_block_bytes(BLOCK as u32, policy, capacity, blocks as u32, slots, None);
            let ghosts_per_block = ghosts as f32 / capacity as f32;
            compare(policy, capacity, ghosts_per_block, &references, |block| bare.access(block).hit);
            count += 1;
        }
    }
    println!("{count} runs");
}

#[test]
fn every_policy_on_multi1() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces/lirs/multi1.trace.gz");
    let Ok(file) = std::fs::File::open(path) else {
        println!("skipped: every_policy_on_multi1: no ../shared/traces/lirs/multi1.trace.gz");
        return;
    };
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    let references: Vec<u64> = lines.filter_map(|line| line.expect("text").trim().parse().ok()).collect();
    let blocks = references.iter().max().expect("references") + 1;
    for policy in policies() {
        // Room for every block of the trace, as a replay has; its slots are the blocks' numbers.
        let (capacity, ghosts) = (1000, 4000);
        let setup = Setup { capacity, slots: blocks as u32, block_bytes: BLOCK as u32, ghosts, future: None };
        let spec: Spec = policy.parse().expect("a registered policy");
        let mut bare = build(&spec, &setup).expect("a policy that needs no future");
        let mut resident = HashSet::new();
        let mut tick = 0;
        compare(policy, capacity, 4.0, &references, |block| {
            let (tenant, stream) = (Tenant(0), Stream(0));
            let access = Access { block: Block { volume: 0, index: block }, tenant, stream, kind: Kind::Read, tick };
            tick += 1;
            let slot = Slot(block as u32);
            let hit = resident.contains(&slot);
            if hit {
                bare.hit(slot, &access);
            } else {
                if resident.len() == capacity as usize {
                    resident.remove(&bare.evict(slot, &access));
                    while bare.take_forgotten().is_some() {}
                }
                bare.insert(slot, &access);
                resident.insert(slot);
            }
            while bare.take_forgotten().is_some() {}
            hit
        });
    }
}
