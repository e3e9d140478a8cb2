//! A report as a replay of a workstation's disk might give it: twelve policies, an exact LRU curve, loops and a hot set.

use nigh_report::{Curve, Internals, Map, Point, Report, Series, Trace, Verdict};

pub(crate) const SIZES: [u64; 15] =
    [50, 100, 200, 300, 500, 750, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 10_000];
pub(crate) const LRU_POINTS: usize = 2000;

const BLOCK: u64 = 4096;
const REFERENCES: u64 = 200_000;
const BLOCKS: u64 = 12_000;

pub(crate) fn report() -> Report {
    // Share of the way from what LRU misses to what OPT misses.
    let policies = [
        ("lirs:hir=1%", 0.72),
        ("clockpro", 0.69),
        ("arc", 0.44),
        ("car", 0.42),
        ("2q:in=25%,out=50%", 0.46),
        ("mq", 0.36),
        ("lru-2", 0.40),
        ("clock", -0.02),
        ("fifo", -0.14),
        ("s3-fifo", 0.52),
    ];
    let mut curves = vec![
        Curve {
            policy: "opt".into(),
            clairvoyant: true,
            points: SIZES.iter().map(|&size| point(size, opt(size), true)).collect(),
        },
        Curve { policy: "lru".into(), clairvoyant: false, points: lru_points() },
    ];
    curves.extend(policies.iter().enumerate().map(|(i, &(policy, share))| {
        Curve {
            policy: policy.into(),
            clairvoyant: false,
            points: SIZES
                .iter()
                .enumerate()
                .map(|(k, &size)| {
                    let wobble = 0.07 * ((i * 5 + k * 3) as f64).sin();
                    let miss = lru(size) - (share + wobble) * (lru(size) - opt(size));
                    Point { error: (policy == "mq").then_some(0.008), ..point(size, miss, true) }
                })
                .collect(),
        }
    }));
    Report {
        title: "Replacement policies on a workstation's disk".into(),
        command:
            "nigh compare --policies all --sizes 50..10000 --map --internals traces/workstation.lis.zst -o report.html"
                .into(),
        generator: "nigh 0.1.0".into(),
        trace: Trace {
            name: "traces/workstation.lis.zst".into(),
            format: "lis".into(),
            references: REFERENCES,
            distinct_blocks: BLOCKS,
            block_bytes: BLOCK,
            requests: 61_344,
            reads: 52_101,
            writes: 9_243,
            duration_s: Some(7_311.4),
        },
        curves,
        timed: None,
        levels: None,
        traces: None,
        verdict: Some(Verdict {
            headline: "Change the policy to lirs: it hits as much with half of the memory.".into(),
            facts: vec![
                ("target".into(), "80.00 % needs 24 MiB with lru, 15 MiB with lirs:hir=1%.".into()),
                ("certainty".into(), "High: the gain is +13.1 points ± 0.2.".into()),
            ],
            next: "nigh serve --memory 16M --policy lirs disk=PATH --listen unix:/run/nigh.sock".into(),
        }),
        served: Vec::new(),
        map: Some(map()),
        internals: internals(),
        notes: vec![
            "mq was replayed on a sample of one block in eight; its error is estimated.".into(),
            "size 20000 is beyond the trace's distinct blocks and was left out.".into(),
        ],
    }
}

/// Miss ratio of LRU: a hot set, and loops that miss until they fit.
fn lru(size: u64) -> f64 {
    let size = size as f64;
    let fits = |loop_blocks: f64| 1.0 / (1.0 + (-(size - loop_blocks) / (0.06 * loop_blocks)).exp());
    0.06 + 0.34 * (-(size / 260.0).powf(0.7)).exp() + 0.28 * (1.0 - fits(3000.0)) + 0.32 * (1.0 - fits(6500.0))
}

/// Miss ratio of OPT: loops hit in proportion to the part that is kept.
fn opt(size: u64) -> f64 {
    let size = size as f64;
    0.06 + 0.30 * (-(size / 150.0).powf(0.8)).exp() + 0.6 * (1.0 - (size / 6800.0).min(1.0)).powf(1.5)
}

fn point(size: u64, miss_ratio: f64, replayed: bool) -> Point {
    let misses = (miss_ratio * REFERENCES as f64).round() as u64;
    Point {
        size_blocks: size,
        size_bytes: size * BLOCK,
        references: REFERENCES,
        hits: REFERENCES - misses,
        hit_ratio: 1.0 - miss_ratio,
        miss_ratio,
        error: None,
        bytes_missed: misses * BLOCK,
        evictions: replayed.then(|| misses.saturating_sub(size)),
        cpu_s: replayed.then_some(0.011 + 1e-7 * misses as f64),
    }
}

fn lru_points() -> Vec<Point> {
    let mut sizes: Vec<u64> = (1..=LRU_POINTS as u64).map(|i| i * 5).collect();
    assert!(SIZES.iter().all(|size| sizes.contains(size)));
    sizes.reverse();
    sizes.into_iter().map(|size| point(size, lru(size), false)).collect()
}

fn map() -> Map {
    let (columns, rows) = (600, 300);
    let mut counts = vec![0; (columns * rows) as usize];
    let mut random = 1_u64;
    for at in 0..REFERENCES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (random >> 33) % 100;
        let spread = (random >> 40) % 1000;
        let block = match draw {
            0..40 => 1000 + spread * spread * 400 / 1_000_000,
            40..70 if at < 90_000 => 2000 + at / 3 % 3000,
            40..85 if at >= 120_000 => 5200 + at / 2 % 5500,
            _ if (95_000..110_000).contains(&at) => (at - 95_000) * 12_000 / 15_000,
            85..87 => (random >> 20) % BLOCKS,
            _ => 11_000 + at / 8 % 600,
        };
        let (column, row) = (at * columns / REFERENCES, block * rows / BLOCKS);
        counts[(row * columns + column) as usize] += 1;
    }
    Map {
        columns: columns as u32,
        rows: rows as u32,
        counts,
        references: [0, REFERENCES],
        blocks: [0, BLOCKS],
        addresses: (0..=rows).map(|row| (0, row * row * BLOCK * 40)).collect(),
    }
}

fn internals() -> Vec<Internals> {
    let series = |name: &str, value: &dyn Fn(f64) -> f64| Series {
        name: name.into(),
        about: "what it is, in a phrase".into(),
        samples: (0..500).map(|i| (i * REFERENCES / 500, value(i as f64 / 500.0).round())).collect(),
    };
    vec![
        Internals {
            policy: "lirs:hir=1%".into(),
            size_blocks: 1000,
            series: vec![series("stack", &|t| {
                1000.0 * (1.2 + 2.2 * (t * 9.0).sin().abs().powi(3) + 0.15 * (t * 140.0).sin())
            })],
        },
        Internals {
            policy: "clockpro".into(),
            size_blocks: 1000,
            series: vec![
                series("cold_target", &|t| 20.0 + 180.0 * (t * 7.0).cos().abs() * (1.0 - t)),
                series("cold_resident", &|t| {
                    30.0 + 170.0 * (t * 7.0).cos().abs() * (1.0 - t) + 12.0 * (t * 90.0).sin()
                }),
            ],
        },
    ]
}
