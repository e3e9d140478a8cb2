//! One request at a time, the engine hits and misses exactly where the bare policy does.

use std::io::{BufRead, BufReader};

use crate::cases::host::{BLOCK, Host, config};
use nigh_engine::{Config, Counters, Engine, Noted, Op, Volume, WriteMode};
use nigh_policy::{Kind, Stream, Tenant};
use nigh_testkit::host::{Host as Bare, Slots};
use nigh_testkit::workload::mixed;

fn policies() -> impl Iterator<Item = &'static str> {
    nigh_policy::registry().iter().filter(|info| !info.offline).map(|info| info.name)
}

/// Reads or, every third time, overwrites each block in turn, and compares with `bare`, which distinguishes hits from misses.
fn compare(policy: &str, capacity: u32, references: &[u64], mut bare: impl FnMut(u64, Kind) -> bool) {
    let config = config(capacity, policy);
    let blocks = references.iter().max().map_or(1, |&block| block as usize + 1);
    let mut host = Host::new(config, &[(blocks * BLOCK, WriteMode::Back)]);
    let mut written = vec![None; blocks];
    let mut hits = 0;
    for (at, &block) in references.iter().enumerate() {
        let offset = block as usize * BLOCK;
        let kind = if at % 3 == 2 { Kind::Write } else { Kind::Read };
        if kind == Kind::Write {
            written[block as usize] = Some(at as u8);
            host.write(0, offset, BLOCK, at as u8);
        } else {
            let bytes = host.read(0, offset, BLOCK);
            let expected = written[block as usize].unwrap_or(block as u8 % 64);
            assert!(bytes == [expected; BLOCK], "{policy}: reference {at} read other bytes");
        }
        host.run();
        let hit = host.counters(0).hits > hits;
        hits = host.counters(0).hits;
        assert_eq!(hit, bare(block, kind), "{policy}, {capacity} blocks: reference {at}, of block {block}");
    }
    let counters = host.counters(0);
    assert_eq!(counters.hits + counters.misses, references.len() as u64);
    host.finish(host.request(0, Op::Flush, 0, 0), 0);
    for (block, written) in written.iter().enumerate() {
        let bytes = &host.disks[0][block * BLOCK..(block + 1) * BLOCK];
        assert!(bytes == [written.unwrap_or(block as u8 % 64); BLOCK], "{policy}: block {block} of the disk");
    }
    host.engine.check();
}

/// With room for as many ghosts as the engine gives the policy.
fn bare(policy: &str, capacity: u32, blocks: u64) -> Bare {
    let spec = policy.parse().expect("registered");
    let engine = Engine::new(config(capacity, policy)).expect("possible");
    let ghosts = engine.setup(&spec).expect("possible").ghosts;
    Bare::with_block_bytes(BLOCK as u32, policy, capacity, blocks as u32, Slots::Reused { ghosts }, None)
}

/// Hits without the engine that are reported before its next request have the same effect on the policy as others.
#[test]
fn hits_that_are_reported_later_are_the_same() {
    const BLOCKS: usize = 40;
    for policy in policies() {
        let verify = Config { verify: 8, ..config(12, policy) };
        let [mut finds, mut submits] =
            [(); 2].map(|()| Host::new(verify.clone(), &[(BLOCKS * BLOCK, WriteMode::Back)]));
        let published = finds.engine.published().clone();
        let mut noted = Noted::new(Volume(0), Tenant(0), Stream(0));
        let mut found = 0;
        for (at, block) in mixed(1, BLOCKS as u64 - 1, 4000).into_iter().enumerate() {
            let (offset, length) = (block as usize * BLOCK, BLOCK + at % 2 * BLOCK);
            if at % 5 == 4 {
                finds.engine.take_notice(&mut noted);
                for host in [&mut finds, &mut submits] {
                    host.write(0, offset, BLOCK, at as u8);
                }
            } else {
                let data = published.read(Volume(0), offset as u64, length as u64);
                let bytes = match data.ok().filter(|_| published.note(&mut noted, offset as u64, length as u64)) {
                    Some(data) => {
                        found += 1;
                        let mut bytes = vec![0; length];
                        data.copy_to(&mut bytes);
                        bytes
                    }
                    None => {
                        finds.engine.take_notice(&mut noted);
                        finds.read(0, offset, length)
                    }
                };
                assert_eq!(bytes, submits.read(0, offset, length), "{policy}: {at}");
            }
            if at % 100 == 0 {
                finds.engine.take_notice(&mut noted);
                // Write-back and frames that are taken back depend on the calls of the engine.
                let of = |host: &Host| {
                    let Counters { reads, read_bytes, writes, hits, misses, evictions, write_hits, .. } =
                        host.counters(0);
                    [reads, read_bytes, writes, hits, misses, evictions, write_hits]
                };
                assert_eq!(of(&finds), of(&submits), "{policy}: {at}");
                finds.engine.check();
            }
            finds.run();
            submits.run();
        }
        assert!(found > 200, "{policy}: {found} hits");
    }
}

#[test]
fn every_policy_on_random_references() {
    let mut count = 0;
    for policy in policies() {
        for seed in 0..6 {
            let (blocks, capacity) = ([40, 120, 300][seed as usize % 3], [9, 25, 64][seed as usize / 2]);
            let references = mixed(seed, blocks, 4000);
            let mut bare = bare(policy, capacity, blocks);
            compare(policy, capacity, &references, |block, kind| {
                let hit = bare.reference(block, kind).hit;
                bare.check();
                hit
            });
            count += 1;
        }
    }
    println!("{count} runs");
}

/// Text traces of the LIRS authors: name, blocks of the cache, and how many references.
const TRACES: [(&str, u32, usize); 5] = [
    ("multi1", 1000, usize::MAX),
    ("cpp", 50, usize::MAX),
    ("cs", 1000, usize::MAX),
    ("gli", 1500, usize::MAX),
    ("2_pools", 450, 40_000),
];

#[test]
fn every_policy_on_traces() {
    for (name, capacity, most) in TRACES {
        let path = format!("{}/../../../../shared/traces/lirs/{name}.trace.gz", env!("CARGO_MANIFEST_DIR"));
        let Ok(file) = std::fs::File::open(path) else {
            println!("skipped: every_policy_on_traces: no ../shared/traces/lirs/{name}.trace.gz");
            continue;
        };
        let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
        let blocks = lines.filter_map(|line| line.expect("text").trim().parse().ok());
        let references: Vec<u64> = blocks.take(most).collect();
        for policy in policies() {
            let mut bare = bare(policy, capacity, 0);
            compare(policy, capacity, &references, |block, kind| bare.reference(block, kind).hit);
        }
        println!("{name}: {} references, {} policies", references.len(), policies().count());
    }
}

/// Reads of several blocks hit and miss as the same blocks one after the other.
#[test]
fn requests_of_many_blocks() {
    const MOST: u64 = 8;
    for policy in policies() {
        for (seed, capacity) in [(1, 9), (2, 25), (3, 64)] {
            let blocks = 300;
            let mut bare = bare(policy, capacity, blocks);
            let mut host = Host::new(config(capacity, policy), &[(blocks as usize * BLOCK, WriteMode::Back)]);
            for (at, first) in mixed(seed, blocks, 2000).into_iter().enumerate() {
                let length = (at as u64 * 7 + seed) % MOST + 1;
                let range = first..(first + length).min(blocks);
                let before = host.counters(0).hits;
                host.read(0, first as usize * BLOCK, (range.end - range.start) as usize * BLOCK);
                let expected = range.filter(|&block| bare.access(block).hit).count() as u64;
                let hits = host.counters(0).hits - before;
                assert_eq!(hits, expected, "{policy}, {capacity} blocks: request {at}, from block {first}");
            }
        }
    }
}
