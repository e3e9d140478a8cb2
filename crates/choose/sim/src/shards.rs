//! A cache in parts, as `nigh serve` divides it: each part has its share of the room, and decides for itself.

use nigh_engine::{Volume, shard_of};
use nigh_policy::{Block, SpecError};

use crate::references::Streams;
use crate::replay::{Counts, Watch};
use crate::writes::Writes;
use crate::{Job, References, Run, sweep};

/// The references in `shards` parts, those of each block in the one that `shard_of` names.
///
/// # Panics
/// If there is no such part.
pub fn split(references: &References, shards: u32, shard_of: impl Fn(Block) -> u32) -> Vec<References> {
    let empty = || References {
        ids: Vec::new(),
        streams: Streams::default(),
        writes: Writes::default(),
        blocks: Vec::new(),
        block_bytes: references.block_bytes,
        totals: references.totals,
        sample: references.sample,
        patterns: references.patterns.clone(),
        contents: Vec::new(),
    };
    let mut parts: Vec<References> = (0..shards).map(|_| empty()).collect();
    // Of each block, its part and its number there.
    let mut places = Vec::with_capacity(references.blocks.len());
    for &block in &references.blocks {
        let shard = shard_of(block);
        let blocks = &mut parts[shard as usize].blocks;
        places.push((shard, blocks.len() as u32));
        blocks.push(block);
    }
    for &id in &references.ids {
        let (shard, number) = places[id as usize];
        parts[shard as usize].ids.push(number);
    }
    for (shard, part) in (0..).zip(&mut parts) {
        let own = |&(_, id): &(u32, &u32)| places[*id as usize].0 == shard;
        part.streams = references.streams.select((0..).zip(&references.ids).filter(own).map(|(at, _)| at));
        part.writes = references.writes.select((0..).zip(&references.ids).filter(own).map(|(at, _)| at));
    }
    parts
}

/// The references in the parts that a server with this many shards has, the trace's volumes being its disks in their order.
pub fn as_served(references: &References, shards: u32) -> Vec<References> {
    let block_bytes = u64::from(references.block_bytes);
    split(references, shards, |block| shard_of(Volume(block.volume), block.index * block_bytes, shards))
}

/// As [`sweep()`], each cache divided into `parts`: its blocks among them, and what it counted added up. There are no gauges.
pub fn sweep_parts(parts: &[References], jobs: &[Job], threads: usize, watch: Watch) -> Result<Vec<Run>, SpecError> {
    let shards = parts.len() as u32;
    let share = |job: &Job| Job { capacity: (job.capacity / shards).max(1), gauges: 0, ..job.clone() };
    let jobs: Vec<Job> = jobs.iter().map(share).collect();
    let mut sums: Vec<Run> = Vec::new();
    // An empty part has no hits.
    for part in parts.iter().filter(|part| !part.ids.is_empty()) {
        let runs = sweep(part, &jobs, threads, watch)?;
        if sums.is_empty() {
            sums = runs;
            continue;
        }
        for (sum, run) in sums.iter_mut().zip(runs) {
            let Counts { references, hits, writes, write_hits, evictions, misses_squared } = run.counts;
            sum.counts.references += references;
            sum.counts.hits += hits;
            sum.counts.writes += writes;
            sum.counts.write_hits += write_hits;
            sum.counts.evictions += evictions;
            sum.counts.misses_squared += misses_squared;
            sum.cpu_s += run.cpu_s;
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use nigh_trace::{Op, Request};

    use super::*;
    use crate::{Loader, Ops, Options, replay};

    fn load(blocks: &[u64]) -> References {
        let options =
            Options { block_bytes: 4096, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        let request = |&block| Request { offset: block * 4096, length: 4096, op: Op::Read, ..Request::default() };
        loader.push(&blocks.iter().map(request).collect::<Vec<_>>()).unwrap();
        loader.finish()
    }

    /// Odd and even blocks in caches of their own.
    #[test]
    fn parts_are_caches_of_their_own() {
        let blocks: Vec<u64> = (0..4000).map(|at| at * at % 97).collect();
        let whole = load(&blocks);
        let parts = split(&whole, 2, |block| (block.index % 2) as u32);
        let jobs = [("lru", 20), ("lirs", 31), ("opt", 12)].map(|(spec, capacity)| Job {
            spec: spec.parse().unwrap(),
            capacity,
            gauges: 0,
        });
        let runs = sweep_parts(&parts, &jobs, 2, Watch::default()).unwrap();
        for (job, run) in jobs.iter().zip(runs) {
            let hits = [0, 1].map(|parity| {
                let own = load(&blocks.iter().copied().filter(|block| block % 2 == parity).collect::<Vec<_>>());
                let future = (job.spec.name() == "opt").then(|| own.future());
                replay(&own, &job.spec, job.capacity / 2, future, Watch::default()).unwrap().counts.hits
            });
            assert_eq!((run.counts.hits, run.counts.references), (hits.iter().sum(), 4000), "{}", job.spec);
        }
    }
}
