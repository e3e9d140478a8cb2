//! Replays against the test host, the exact curve against replays, samples against the whole.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use nigh_policy::{Spec, registry};
use nigh_sim::replay::Watch;
use nigh_sim::sample::Misses;
use nigh_sim::{Job, Loader, Ops, Options, References, Sample, replay, stack, sweep};
use nigh_testkit::host::{Host, Slots, future};
use nigh_testkit::workload;
use nigh_trace::{Op, Request};

const BLOCK: u32 = 4096;

fn options() -> Options {
    Options { block_bytes: BLOCK, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX }
}

fn gather(blocks: &[u64], options: Options) -> References {
    let requests: Vec<Request> = blocks
        .iter()
        .map(|&block| Request { offset: block * u64::from(BLOCK), length: BLOCK, ..Request::default() })
        .collect();
    let mut loader = Loader::new(options);
    for batch in requests.chunks(1_000) {
        assert!(loader.push(batch).unwrap());
    }
    loader.finish()
}

fn spec(name: &str) -> Spec {
    name.parse().unwrap()
}

/// A replay hits and evicts as the host that checks every step does.
#[test]
fn replays_as_the_checking_host() {
    let blocks = workload::mixed(3, 200, 20_000);
    let references = gather(&blocks, options());
    for info in registry() {
        for capacity in [1, 7, 50, 150] {
            let known = info.offline.then(|| references.future());
            let run = replay(&references, &spec(info.name), capacity, known, Watch::default()).unwrap();
            let known = info.offline.then(|| future(&blocks));
            let mut host = Host::new(info.name, capacity, 200, Slots::Forever, known);
            let outcomes: Vec<_> = blocks.iter().map(|&block| host.access(block)).collect();
            let hits = outcomes.iter().filter(|outcome| outcome.hit).count() as u64;
            let evictions = outcomes.iter().filter(|outcome| outcome.evicted.is_some()).count() as u64;
            assert_eq!((run.counts.hits, run.counts.evictions), (hits, evictions), "{} at {capacity}", info.name);
        }
    }
}

/// A replay that is to stop does so long before its end.
#[test]
fn replays_can_be_stopped() {
    let references = gather(&workload::mixed(3, 200, 1 << 18), options());
    let (progress, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    for (stopped, warmup) in [(false, 0), (true, 0), (true, 1 << 17)] {
        stop.store(stopped, Relaxed);
        progress.store(0, Relaxed);
        let watch = Watch { warmup, progress: Some(&progress), stop: Some(&stop), ..Watch::default() };
        replay(&references, &spec("lru"), 50, None, watch).unwrap();
        let replayed = progress.load(Relaxed);
        assert_eq!(replayed == 1 << 18, !stopped);
        assert!(replayed <= 1 << 16 || !stopped, "{replayed}");
    }
}

/// Mattson's pass has the hits of a replay of LRU at every size.
#[test]
fn the_curve_is_exact() {
    for seed in 0..20 {
        let references = gather(&workload::mixed(seed, 150, 5_000), options());
        for warmup in [0, 777] {
            let curve = stack::curve(&references, Watch { warmup, ..Watch::default() });
            for capacity in 1..=160 {
                let watch = Watch { warmup, ..Watch::default() };
                let run = replay(&references, &spec("lru"), capacity, None, watch).unwrap();
                assert_eq!(curve.hits(capacity), run.counts.hits, "seed {seed}, {capacity} blocks");
                assert_eq!(curve.references, run.counts.references);
            }
            for (size, hits) in curve.corners() {
                assert!(curve.hits(size - 1) < hits);
            }
        }
    }
}

/// The sample's estimates for the whole trace are within their errors, for replays and for the exact curve.
#[test]
fn samples_are_near() {
    let blocks = workload::mixed(5, 20_000, 1_500_000);
    let whole = gather(&blocks, options());
    let sample = Sample::new(0.1).unwrap();
    let part = gather(&blocks, Options { sample: Some(sample), ..options() });
    assert_eq!(part.totals, whole.totals);
    let total = part.totals.references as f64;
    let estimated_blocks = part.distinct_in_trace() as f64;
    assert!((estimated_blocks / f64::from(whole.distinct()) - 1.0).abs() < 0.1, "{estimated_blocks}");
    let (exact, curve) = (stack::curve(&whole, Watch::default()), stack::curve(&part, Watch::default()));
    for capacity in [200, 1_000, 4_000, 10_000, 16_000] {
        let scaled = sample.scaled(capacity);
        let run = replay(&part, &spec("lru"), scaled, None, Watch::default()).unwrap();
        let misses = run.counts.references - run.counts.hits;
        assert_eq!(misses, curve.references - curve.hits(scaled));
        let truth = 1.0 - exact.hits(capacity) as f64 / exact.references as f64;
        let around = sample.around(capacity).map(|size| curve.references - curve.hits(size));
        let squared = run.counts.misses_squared as f64;
        let by_replay = sample.estimate(total, &Misses { counted: misses, squared, around });
        let squared = curve.misses_squared(scaled);
        let by_curve = sample.estimate(total, &Misses { counted: misses, squared, around });
        assert!(by_replay.error > 0.0 && by_replay.error < 0.1);
        // 1.5 half-widths of the 95 % interval: one case in 300 lies outside, and the seed is fixed.
        let off = (by_replay.miss_ratio - truth).abs();
        assert!(off < 1.5 * by_replay.error, "{capacity} blocks: {truth} is not {by_replay:?}");
        let ratio = by_curve.error / by_replay.error;
        assert!((0.5..2.0).contains(&ratio), "errors {} and {}", by_curve.error, by_replay.error);
    }
}

/// Threads, and what else runs, change no result.
#[test]
fn sweeps_are_replays() {
    let references = gather(&workload::mixed(9, 300, 10_000), options());
    let jobs: Vec<Job> = registry()
        .iter()
        .flat_map(|info| [3, 40, 299].map(|capacity| Job { spec: spec(info.name), capacity, gauges: 10 }))
        .collect();
    let together = sweep(&references, &jobs, 2, Watch::default()).unwrap();
    for (job, run) in jobs.iter().zip(together) {
        let future = (job.spec.name() == "opt").then(|| references.future());
        let watch = Watch { gauges: job.gauges, ..Watch::default() };
        let alone = replay(&references, &job.spec, job.capacity, future, watch).unwrap();
        assert_eq!((run.counts, &run.series), (alone.counts, &alone.series), "{}", job.spec);
        assert!(alone.series.points.is_empty() || alone.series.points.len() == 10);
    }
}

/// Long requests are split, and only what is asked for counts.
#[test]
fn requests_become_references() {
    let block = u64::from(BLOCK);
    let requests = [
        Request { offset: 0, length: 3 * BLOCK, ..Request::default() },
        Request { offset: block - 1, length: 2, op: Op::Write, ..Request::default() },
        Request { offset: 5 * block, length: 0, ..Request::default() },
        Request { offset: 0, length: BLOCK, op: Op::Trim, ..Request::default() },
        Request { offset: block, length: BLOCK, tenant: 1, ..Request::default() },
        Request { offset: block, length: 1, volume: 9, ..Request::default() },
    ];
    let ids = |options: Options| {
        let mut loader = Loader::new(options);
        loader.push(&requests).unwrap();
        loader.finish().ids
    };
    assert_eq!(ids(options()), [0, 1, 2, 0, 1, 1, 3]);
    assert_eq!(ids(Options { ops: Ops::Reads, ..options() }), [0, 1, 2, 1, 3]);
    assert_eq!(ids(Options { ops: Ops::Writes, ..options() }), [0, 1]);
    assert_eq!(ids(Options { requests_most: 1, ..options() }), [0, 1, 2]);
    assert_eq!(ids(Options { block_bytes: 1 << 20, ..options() }), [0, 0, 0, 1]);
    // Tenant 0 reads block 0 again after the write to 0 and 1; tenant 1's reference to 1 is its first.
    assert_eq!(ids(Options { collapse: true, block_bytes: 1 << 20, ..options() }), [0, 0, 1]);
}

#[test]
fn a_long_trace_becomes_the_sample_that_a_rate_would_take() {
    let blocks = workload::mixed(5, 200_000, 400_000);
    let requests: Vec<Request> = (0..)
        .zip(&blocks)
        .map(|(at, block)| Request {
            time_ns: at,
            offset: block * 4096,
            length: 4096,
            op: if at % 3 == 0 { Op::Write } else { Op::Read },
            stream: 1 + block % 7,
            ..Request::default()
        })
        .collect();
    let load = |sample, most| {
        let mut loader = Loader::new(Options { sample, ..options() }).sampling_above(most);
        for part in requests.chunks(1_000) {
            loader.push(part).unwrap();
        }
        loader.finish()
    };
    let long = load(None, 50_000);
    let rate = long.sample.unwrap().rate();
    assert!(rate < 0.5 && long.ids.len() <= 50_000, "{rate}, {} references", long.ids.len());
    let asked = load(long.sample, usize::MAX);
    assert_eq!(
        (&long.ids, &long.blocks, &long.streams, long.totals),
        (&asked.ids, &asked.blocks, &asked.streams, asked.totals)
    );
    assert!((0..long.ids.len()).all(|at| long.writes.of(at) == asked.writes.of(at)));
    // A sample of too few blocks would be useless: a short one stays as it is.
    assert_eq!(load(None, 400_000).sample, None);
    let few = load(None, 1_000);
    assert!((10_000..20_000).contains(&few.distinct()), "{}", few.distinct());
}
