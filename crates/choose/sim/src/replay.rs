//! One policy at one size over a whole trace.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nigh_policy::{Access, Block, Kind, Policy, Setup, Slot, Spec, SpecError, Tenant, Visit};

use crate::References;
use crate::references::Streams;
use crate::writes::Writes;

/// References between two reports of progress and two readings of the gauges, at the least.
pub(crate) const STRETCH: usize = 1 << 16;
/// How far ahead a policy is given the slot that comes, so that its state is near when it does.
const AHEAD: usize = 32;
/// The same for what lies beside that state.
const NEAR: usize = 12;

/// Values to observe while a policy runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// The first references, which are replayed but not counted.
    pub warmup: usize,
    /// How often the policy's gauges are read, spread evenly over the run. A replay of levels counts in that many intervals.
    pub gauges: usize,
    /// Grows by the number of references replayed.
    pub progress: Option<&'a AtomicU64>,
    /// Once it is true the replay ends early, and what it counted means nothing.
    pub stop: Option<&'a AtomicBool>,
}

impl Watch<'_> {
    /// `count` references are done; whether to go on.
    pub(crate) fn did(&self, count: usize) -> bool {
        if let Some(progress) = self.progress {
            progress.fetch_add(count as u64, Ordering::Relaxed);
        }
        !self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// Counts of a replay, without the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// References.
    pub references: u64,
    /// References to resident blocks.
    pub hits: u64,
    /// References that write.
    pub writes: u64,
    /// Of these, references to resident blocks.
    pub write_hits: u64,
    /// Blocks that left to make room.
    pub evictions: u64,
    /// If the references are a sample: the sum over its blocks of the squares of their misses, and else 0.
    pub misses_squared: u64,
}

/// A policy's internals over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The names of the quantities.
    pub names: Vec<&'static str>,
    /// The number of references replayed, and the quantities then.
    pub points: Vec<(u64, Vec<u64>)>,
}

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Run {
    /// The counts.
    pub counts: Counts,
    /// The policy's gauges over time, if they were asked for and it has any.
    pub series: Series,
    /// Processor time of the replay alone, in seconds.
    pub cpu_s: f64,
}

/// Replays `references` through the policy `spec` with a cache of `capacity` blocks.
///
/// # Panics
/// If `capacity` is 0.
pub fn replay(
    references: &References,
    spec: &Spec,
    capacity: u32,
    future: Option<std::sync::Arc<[u32]>>,
    watch: Watch,
) -> Result<Run, SpecError> {
    assert!(capacity > 0, "a cache holds a block");
    let distinct = references.distinct();
    let ghosts = nigh_policy::ghosts(spec, capacity)?.min(distinct);
    let patterns = references.patterns.as_ref().and_then(|patterns| patterns.at(spec, capacity));
    let setup = Setup { capacity, slots: distinct, block_bytes: references.block_bytes, ghosts, future, patterns };
    let start = cpu_s();
    let (counts, series) = nigh_policy::visit(spec, &setup, Host { references, capacity, watch })?;
    Ok(Run { counts, series, cpu_s: cpu_s() - start })
}

/// Processor time of this thread, in seconds.
pub(crate) fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Host<'a> {
    references: &'a References,
    capacity: u32,
    watch: Watch<'a>,
}

impl Visit for Host<'_> {
    type Out = (Counts, Series);

    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> (Counts, Series) {
        let Host { references, capacity, watch } = self;
        run(references, &mut policy, capacity, watch)
    }
}

/// Replays `references` through `policy`, which is new and has `capacity` blocks and a slot for each block of the
/// references. No slot is used again, so it may have any number of ghosts. An `evict` may reject the incoming block.
///
/// # Panics
/// If `capacity` is 0, or if `policy` names a victim that is not the slot of a block.
pub fn drive<P: Policy>(references: &References, policy: &mut P, capacity: u32, watch: Watch) -> Run {
    assert!(capacity > 0, "a cache holds a block");
    let start = cpu_s();
    let (counts, series) = run(references, policy, capacity, watch);
    Run { counts, series, cpu_s: cpu_s() - start }
}

#[inline]
fn run<P: Policy>(references: &References, policy: &mut P, capacity: u32, watch: Watch) -> (Counts, Series) {
    let ids = &references.ids[..];
    let warmup = watch.warmup.min(ids.len());
    let mut cache = Cache::new(references, capacity);
    let mut series = Series::default();
    let stretch = STRETCH.min(ids.len() / watch.gauges.max(1)).max(1);
    let mut at = 0;
    while at < ids.len() {
        let mut end = (at + stretch).min(ids.len());
        if at < warmup {
            end = end.min(warmup);
        }
        cache.run(policy, ids, at..end);
        if !watch.did(end - at) {
            break;
        }
        at = end;
        if at == warmup {
            cache.forget_counts();
        }
        if watch.gauges > 0 {
            series.look(policy, at, ids.len(), watch.gauges);
        }
    }
    cache.counts.references = (ids.len() - warmup) as u64;
    cache.counts.writes = references.writes.count(warmup);
    let squares = cache.misses_of.iter().map(|&misses| u64::from(misses) * u64::from(misses));
    cache.counts.misses_squared = squares.sum();
    (cache.counts, series)
}

impl Series {
    /// Adds a point when the next of `wanted` is due at reference `at` of `length`.
    fn look(&mut self, policy: &impl Policy, at: usize, length: usize, wanted: usize) {
        if at < (self.points.len() + 1) * length / wanted {
            return;
        }
        let mut values = Vec::with_capacity(self.names.len());
        let names = &mut self.names;
        policy.gauges(&mut |name, value| {
            if values.len() == names.len() {
                names.push(name);
            }
            values.push(value);
        });
        if !values.is_empty() {
            self.points.push((at as u64, values));
        }
    }
}

/// The host's half of a cache: which blocks are resident, and what has been counted.
pub(crate) struct Cache<'a> {
    blocks: &'a [Block],
    streams: &'a Streams,
    writes: &'a Writes,
    /// A bit for each block: whether it is resident.
    resident: Vec<u64>,
    free: u32,
    counts: Counts,
    /// The misses of each block, where the references are a sample.
    misses_of: Vec<u32>,
}

impl<'a> Cache<'a> {
    pub(crate) fn new(references: &'a References, capacity: u32) -> Cache<'a> {
        let distinct = references.blocks.len();
        Cache {
            blocks: &references.blocks,
            streams: &references.streams,
            writes: &references.writes,
            resident: vec![0; distinct.div_ceil(64)],
            free: capacity,
            counts: Counts::default(),
            misses_of: vec![0; if references.sample.is_some() { distinct } else { 0 }],
        }
    }

    /// A bit for each block: whether it is resident.
    pub(crate) fn resident(&self) -> &[u64] {
        &self.resident
    }

    fn forget_counts(&mut self) {
        self.counts = Counts::default();
        self.misses_of.fill(0);
    }

    #[inline(always)]
    fn run<P: Policy>(&mut self, policy: &mut P, ids: &[u32], range: std::ops::Range<usize>) {
        for at in range {
            let id = ids[at];
            policy.warm(Slot(*ids.get(at + AHEAD).unwrap_or(&id)));
            policy.approach(Slot(*ids.get(at + NEAR).unwrap_or(&id)));
            self.reference(policy, Slot(id), at);
        }
    }

    /// The reference number `at`, to the block of `slot`; whether it hits.
    #[inline(always)]
    pub(crate) fn reference<P: Policy>(&mut self, policy: &mut P, slot: Slot, at: usize) -> bool {
        let hit = self.resident[slot.index() / 64] >> (slot.0 % 64) & 1 != 0;
        if hit {
            self.counts.hits += 1;
            self.counts.write_hits += u64::from(self.writes.of(at));
            policy.hit(slot, &self.access(slot, at));
        } else {
            self.miss(policy, slot, &self.access(slot, at));
        }
        hit
    }

    #[inline(always)]
    fn block(&self, slot: Slot) -> Block {
        self.blocks.get(slot.index()).copied().unwrap_or(Block { volume: 0, index: 0 })
    }

    /// The reference number `at`. Its block, stream or kind is not loaded for a policy that does not use it: a hit and a miss
    /// have each their own.
    #[inline(always)]
    fn access(&self, slot: Slot, at: usize) -> Access {
        Access {
            block: self.block(slot),
            tenant: Tenant(0),
            stream: self.streams.of(at),
            kind: if self.writes.of(at) { Kind::Write } else { Kind::Read },
            tick: at as u64,
        }
    }

    #[inline(always)]
    fn miss<P: Policy>(&mut self, policy: &mut P, slot: Slot, access: &Access) {
        if let Some(misses) = self.misses_of.get_mut(slot.index()) {
            *misses += 1;
        }
        // Here a slot belongs to its block for ever, so nothing is done with those that are forgotten.
        while policy.take_forgotten().is_some() {}
        if self.free == 0 {
            let Some(victim) = policy.evict(slot, access) else { return };
            self.counts.evictions += 1;
            self.resident[victim.index() / 64] &= !(1 << (victim.0 % 64));
            while policy.take_forgotten().is_some() {}
        } else {
            self.free -= 1;
        }
        policy.insert(slot, access);
        self.resident[slot.index() / 64] |= 1 << (slot.0 % 64);
        policy.go_on(access, &|slot| self.block(slot));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nigh_policy::{Room, Stream};
    use nigh_trace::Request;

    use super::*;
    use crate::shards::split;
    use crate::{Loader, Ops, Options, Sample};

    /// First in, first out; keeps the stream of each reference.
    struct Recorder {
        queue: std::collections::VecDeque<Slot>,
        streams: Arc<Mutex<Vec<u64>>>,
    }

    impl Recorder {
        fn note(&self, access: &Access) {
            self.streams.lock().unwrap().push(access.stream.0);
        }
    }

    impl Policy for Recorder {
        fn hit(&mut self, _: Slot, access: &Access) {
            self.note(access);
        }

        fn evict(&mut self, _: Slot, _: &Access) -> Option<Slot> {
            self.queue.pop_front()
        }

        fn insert(&mut self, slot: Slot, access: &Access) {
            self.note(access);
            self.queue.push_back(slot);
        }

        fn shed(&mut self) -> Slot {
            unreachable!("the size stays")
        }

        fn resize(&mut self, _: Room) {}

        fn remove(&mut self, _: Slot) {}

        fn take_forgotten(&mut self) -> Option<Slot> {
            None
        }

        fn check(&self) {}
    }

    fn load(requests: &[Request], collapse: bool, sample: Option<Sample>) -> References {
        let options = Options { block_bytes: 4096, ops: Ops::All, collapse, sample, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        requests.chunks(7).for_each(|batch| assert!(loader.push(batch).unwrap()));
        loader.finish()
    }

    /// The streams that a policy is given.
    fn heard(references: &References) -> Vec<u64> {
        let streams = Arc::default();
        let recorder = Recorder { queue: std::collections::VecDeque::new(), streams: Arc::clone(&streams) };
        Host { references, capacity: 3, watch: Watch::default() }.visit(recorder);
        streams.lock().unwrap().clone()
    }

    fn request(block: u64, blocks: u32, stream: u64, tenant: u32) -> Request {
        Request { offset: block * 4096, length: blocks * 4096, stream, tenant, ..Request::default() }
    }

    #[test]
    fn streams_come_from_the_trace() {
        let pc = 0x55_0000_1234_5678;
        let requests = [request(0, 2, 0, 0), request(5, 1, pc, 9), request(0, 3, 0, 9), request(5, 1, pc, 0)];
        assert_eq!(heard(&load(&requests, false, None)), [0, 0, pc, 9, 9, 9, pc], "a stream, or else a tenant");
        // The repeat of block 7 by tenant 9 is dropped.
        let repeats = [request(7, 1, 0, 9), request(7, 1, 0, 9), request(7, 1, 0, 8)];
        assert_eq!(heard(&load(&repeats, true, None)), [9, 8]);
        let one = load(&[request(0, 2, 4, 0); 3], false, None);
        assert_eq!((heard(&one), one.streams.of(1_000_000)), (vec![4; 6], Stream(4)), "one stream takes no memory");
        assert_eq!(heard(&load(&[request(0, 2, 0, 0); 3], false, None)), [0; 6]);
    }

    #[test]
    fn streams_stay_with_their_references() {
        let requests: Vec<Request> = (0..200).map(|at| request(at * 7 % 31, 3, at % 5, 0)).collect();
        let whole = load(&requests, false, None);
        let sampled = load(&requests, false, Sample::new(0.5));
        let parts = split(&whole, 2, |block| (block.index % 2) as u32);
        for (part, parity) in parts.iter().zip(0..) {
            let blocks =
                requests.iter().flat_map(|request| (0..3).map(move |at| (request.offset / 4096 + at, request.stream)));
            let own: Vec<u64> = blocks.filter(|(block, _)| block % 2 == parity).map(|(_, stream)| stream).collect();
            assert_eq!(heard(part), own);
        }
        assert_eq!(heard(&sampled).len(), sampled.ids.len());
        let takes = |index| Sample::new(0.5).unwrap().takes(Block { volume: 0, index });
        let blocks =
            requests.iter().flat_map(|request| (0..3).map(move |at| (request.offset / 4096 + at, request.stream)));
        assert_eq!(heard(&sampled), blocks.filter(|&(block, _)| takes(block)).map(|(_, of)| of).collect::<Vec<_>>());
    }
}
