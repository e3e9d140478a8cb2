//! CLOCK-Pro and DULO against second models, which were written from the papers alone. Their parameters name what the
//! papers leave open. A policy equals its witness exactly, with the choices stated here.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use nigh_testkit::Outcome;
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::naive::witness::clock_pro::{
    AccessedAtEnd, ClockPro, Hand, Judged, Promotion, Reading as ClockProReading, Spared, TestRuns, WarmUp,
};
use nigh_testkit::naive::witness::dulo::{Dulo, Empty, Fill, Inflates, Reading as DuloReading, Reclaim, Ties, Within};
use nigh_testkit::{runs, workload};

fn seeds() -> u64 {
    runs(80, 320)
}

const REFERENCES: usize = 3_000;
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/traces");

/// A reference string, and the cache that it is for.
struct Case {
    seed: u64,
    capacity: usize,
    blocks: u64,
    references: Vec<u64>,
}

/// Mixtures of loops, scans, Zipf's law and uniform choices, for caches of each size from 1 to 64. At odd seeds, only six blocks
/// each are adjacent, so that the block table of DULO reaches its limit.
fn cases() -> impl Iterator<Item = Case> {
    (0..seeds()).map(|seed| {
        let capacity = 1 + seed % 64;
        let blocks = capacity + 1 + seed * 37 % (4 * capacity + 12);
        let mut references = workload::mixed(seed, blocks, REFERENCES);
        if seed % 2 == 1 {
            references.iter_mut().for_each(|block| *block = *block / 6 * 100 + *block % 6);
        }
        Case { seed, capacity: capacity as usize, blocks, references }
    })
}

/// A second model.
enum Witness {
    ClockPro(ClockPro),
    Dulo(Dulo),
}

impl Witness {
    fn access(&mut self, block: u64) -> Outcome {
        match self {
            Witness::ClockPro(model) => model.access(block),
            Witness::Dulo(model) => model.access(block),
        }
    }
}

/// The position of the first reference of `case` at which policy and witness differ.
fn difference(spec: &str, case: &Case, mut witness: Witness) -> Option<usize> {
    let mut host = Host::new(spec, case.capacity as u32, case.blocks as u32, Slots::Forever, None);
    case.references.iter().enumerate().position(|(at, &block)| {
        let outcomes_differ = host.access_unchecked(block) != witness.access(block);
        outcomes_differ
            || at % 16 == 0 && matches!(&witness, Witness::ClockPro(model) if model.ghosts() != *host.ghosts())
    })
}

/// The seeds at which policy and witness differ somewhere.
fn differing(spec: &str, witness: impl Fn(usize) -> Witness) -> u64 {
    cases().map(|case| u64::from(difference(spec, &case, witness(case.capacity)).is_some())).sum()
}

fn assert_equal(spec: &str, witness: impl Fn(usize) -> Witness) {
    for case in cases() {
        let found = difference(spec, &case, witness(case.capacity));
        assert_eq!(found, None, "{spec}, seed {}, capacity {}: first difference", case.seed, case.capacity);
    }
}

/// The nearest number of blocks to a share of the cache.
fn share(capacity: usize, percent: usize) -> usize {
    (2 * capacity * percent + 100) / 200
}

/// The choices of the policy where the text is open, in a cache of `memory` blocks.
fn clock_pro_choices(memory: usize) -> ClockProReading {
    ClockProReading {
        cold_start: share(memory, 1),
        hot_min: 1,
        non_residents_max: 2 * memory,
        hand_cold: Hand::Last,
        warm_up: WarmUp::Hot,
        spared: Spared::ToHeadInTest,
        promotion: Promotion::HandHotFirst,
        ..ClockProReading::first(memory)
    }
}

/// The policy's spec, and what it changes in the choices.
type ClockProSetting = (&'static str, fn(usize, ClockProReading) -> ClockProReading);

const CLOCK_PRO: &[ClockProSetting] = &[
    ("clock-pro", |_, reading| reading),
    ("clock-pro:ghosts=1", |m, reading| ClockProReading { non_residents_max: m, ..reading }),
    ("clock-pro:ghosts=0", |_, reading| ClockProReading { non_residents_max: 0, ..reading }),
    ("clock-pro:start=50%:overtaken=same:ghosts=unlimited", |m, reading| ClockProReading {
        cold_start: share(m, 50),
        non_residents_max: usize::MAX,
        met_shrinks: true,
        ..reading
    }),
    ("clock-pro:cold=30%", |m, reading| ClockProReading { cold_start: share(m, 30), adaptive: false, ..reading }),
];

#[test]
fn clock_pro_equals_its_witness() {
    for (spec, change) in CLOCK_PRO {
        assert_equal(spec, |m| Witness::ClockPro(ClockPro::new(m, change(m, clock_pro_choices(m)))));
    }
}

/// One change of a reading.
type Change<T> = (&'static str, fn(usize, T) -> T);

/// Differences of the first reading, one at a time.
const CLOCK_PRO_DIFFERENCES: &[Change<ClockProReading>] = &[
    ("at most m ghosts", |m, reading| ClockProReading { non_residents_max: m, ..reading }),
    ("pages enter cold while there is room", |_, reading| ClockProReading { warm_up: WarmUp::Cold, ..reading }),
    ("m_c starts at 1", |_, reading| ClockProReading { cold_start: 1, ..reading }),
    ("m_c up to m", |_, reading| ClockProReading { hot_min: 0, ..reading }),
    ("HAND_cold has a place, spared pages keep theirs", |_, reading| ClockProReading {
        hand_cold: Hand::Place,
        spared: Spared::Stays,
        ..reading
    }),
    ("pages turn hot before HAND_hot runs", |_, reading| ClockProReading {
        promotion: Promotion::ThenHandHot,
        ..reading
    }),
    ("all of these", |m, _| ClockProReading::first(m)),
];

/// Other readings that policy and witness both rejected.
const CLOCK_PRO_OTHERS: &[Change<ClockProReading>] = &[
    ("m_c starts at m/2", |m, reading| ClockProReading { cold_start: m / 2, ..reading }),
    ("m_c fixed", |_, reading| ClockProReading { adaptive: false, ..reading }),
    ("HAND_cold has a place", |_, reading| ClockProReading { hand_cold: Hand::Place, ..reading }),
    ("HAND_cold is pushed", |_, reading| ClockProReading { hand_cold: Hand::Pushed, ..reading }),
    ("HAND_test has a place", |_, reading| ClockProReading { hand_test: Hand::Place, ..reading }),
    ("spared pages without a test", |_, reading| ClockProReading { spared: Spared::ToHead, ..reading }),
    ("m_c stays for pages accessed by the end", |_, reading| ClockProReading {
        accessed_at_end: AccessedAtEnd::Nothing,
        ..reading
    }),
    ("m_c shrinks for pages accessed by the end", |_, reading| ClockProReading {
        accessed_at_end: AccessedAtEnd::Shrinks,
        ..reading
    }),
    ("faults judged before HAND_cold", |_, reading| ClockProReading { judged: Judged::Before, ..reading }),
    ("HAND_test at replacement", |_, reading| ClockProReading { test_runs: TestRuns::AtReplacement, ..reading }),
    ("pages that turn cold are tested", |_, reading| ClockProReading { demoted_in_test: true, ..reading }),
    ("pages that turn hot keep their bit", |_, reading| ClockProReading { promoted_keeps_bit: true, ..reading }),
    ("faults set the bit", |_, reading| ClockProReading { fault_sets_bit: true, ..reading }),
    ("HAND_hot stops early", |_, reading| ClockProReading { hot_may_stop_early: true, ..reading }),
    ("HAND_hot sweeps without hot pages", |_, reading| ClockProReading { sweeps_without_hot: true, ..reading }),
    ("m_c shrinks for pages met", |_, reading| ClockProReading { met_shrinks: true, ..reading }),
];

/// Changes that make no difference. In caches of 1 to 64 blocks, 1 % is one block. The others concern resident cold pages that
/// HAND_hot or HAND_test pass, and the policy has none: pages are replaced from the tail on, so all ghosts are behind all
/// resident cold pages, and HAND_hot does not pass the page that is to turn hot.
const CLOCK_PRO_SAME: &[&str] = &[
    "m_c starts at 1",
    "HAND_cold has a place",
    "HAND_cold is pushed",
    "HAND_test has a place",
    "m_c stays for pages accessed by the end",
    "m_c shrinks for pages accessed by the end",
];

/// Each choice is observable: the comparison would find a policy that made another one.
#[test]
fn clock_pro_choices_are_observable() {
    let mut same = Vec::new();
    for (name, change) in CLOCK_PRO_DIFFERENCES.iter().chain(CLOCK_PRO_OTHERS) {
        let seeds = differing("clock-pro", |m| Witness::ClockPro(ClockPro::new(m, change(m, clock_pro_choices(m)))));
        println!("clock-pro, {name}: differs in {seeds} of {} seeds", self::seeds());
        if seeds == 0 {
            same.push(*name);
        }
    }
    assert_eq!(same, CLOCK_PRO_SAME);
}

/// HAND_hot passes resident cold pages if it runs after the page turned hot, as 3.3.3 has it.
#[test]
fn hand_hot_passes_resident_cold_pages_in_the_order_of_the_text() {
    let text = |m| ClockProReading { promotion: Promotion::ThenHandHot, ..clock_pro_choices(m) };
    let differ = |case: Case, change: fn(usize, ClockProReading) -> ClockProReading| {
        let mut one = ClockPro::new(case.capacity, text(case.capacity));
        let mut other = ClockPro::new(case.capacity, change(case.capacity, text(case.capacity)));
        case.references.iter().any(|&block| one.access(block) != other.access(block))
    };
    let swept = ["HAND_cold has a place", "m_c shrinks for pages accessed by the end"];
    for (name, change) in CLOCK_PRO_OTHERS.iter().filter(|(name, _)| swept.contains(name)) {
        let seeds: u64 = cases().map(|case| u64::from(differ(case, *change))).sum();
        println!("in the order of the text, {name}: differs in {seeds} of {} seeds", self::seeds());
        assert!(seeds > 0, "{name}");
    }
}

/// Nodes of the block table have 16 entries and 128 bytes.
fn table(capacity: usize, percent: usize) -> Reclaim {
    Reclaim::Limit { nodes: capacity * 4096 * percent / 100 / 128, entries: 16 }
}

/// The choices of the policy where the text is open.
fn dulo_choices(capacity: usize) -> DuloReading {
    DuloReading { ties: Ties::MostRecent, reclaim: table(capacity, 2), ..DuloReading::default() }
}

/// A witness whose bank and evicting section have these shares of the cache; the rest is its correlation buffer.
fn dulo(capacity: usize, bank: usize, evicting: usize, reading: DuloReading) -> Witness {
    let bank = share(capacity, bank).clamp(1, capacity);
    let evicting = share(capacity, evicting).min(capacity - bank);
    Witness::Dulo(Dulo::new(capacity, capacity - bank - evicting, bank, reading))
}

/// The policy's spec, the shares of bank and evicting section in percent, and what the spec changes in the choices.
type DuloSetting = (&'static str, usize, usize, fn(usize, DuloReading) -> DuloReading);

const DULO: &[DuloSetting] = &[
    ("dulo:bank=20%:evicting=80%", 20, 80, |_, reading| reading),
    ("dulo:bank=1%:evicting=30%:table=0%", 1, 30, |m, reading| DuloReading { reclaim: table(m, 0), ..reading }),
    ("dulo:bank=10%:evicting=30%:table=100%", 10, 30, |_, reading| DuloReading { reclaim: Reclaim::Never, ..reading }),
    ("dulo:bank=30%:evicting=40%:first=1:table=10%", 30, 40, |m, reading| DuloReading {
        fetched_young: true,
        reclaim: table(m, 10),
        ..reading
    }),
    ("dulo:bank=50%:evicting=50%:table=100%", 50, 50, |_, reading| DuloReading { reclaim: Reclaim::Never, ..reading }),
];

#[test]
fn dulo_equals_its_witness() {
    assert_equal("dulo", |m| {
        let bank = (m / 5).max(1);
        Witness::Dulo(Dulo::new(m, 0, bank, dulo_choices(m)))
    });
    for (spec, bank, evicting, change) in DULO {
        assert_equal(spec, |m| dulo(m, *bank, *evicting, change(m, dulo_choices(m))));
    }
}

/// A sequence has at most 128 blocks (3.3, condition 4): a cache whose bank holds more.
#[test]
fn dulo_equals_its_witness_in_long_sequences() {
    let spec = "dulo:bank=30%:evicting=60%:table=100%";
    let choices = |_| DuloReading { reclaim: Reclaim::Never, ..dulo_choices(0) };
    let longer = |_| DuloReading { sequence_max: 129, ..choices(0) };
    let mut found = 0;
    for seed in 0..20 {
        let (capacity, blocks) = (500 + 10 * seed as usize, 1_500);
        let references = workload::mixed(seed, blocks, 12_000);
        let case = Case { seed, capacity, blocks, references };
        assert_eq!(difference(spec, &case, dulo(capacity, 30, 60, choices(capacity))), None, "seed {seed}");
        found += u64::from(difference(spec, &case, dulo(capacity, 30, 60, longer(capacity))).is_some());
    }
    assert!(found > 0, "no sequence is as long");
}

/// Differences of the first reading, one at a time.
const DULO_DIFFERENCES: &[Change<DuloReading>] = &[
    ("equal sequences by their least recent block", |_, reading| DuloReading { ties: Ties::LeastRecent, ..reading }),
    ("the block table is never reclaimed", |_, reading| DuloReading { reclaim: Reclaim::Never, ..reading }),
    ("all of these", |_, _| DuloReading::default()),
];

/// Other readings that policy and witness both rejected.
const DULO_OTHERS: &[Change<DuloReading>] = &[
    ("equal sequences by location", |_, reading| DuloReading { ties: Ties::Location, ..reading }),
    ("filled together", |_, reading| DuloReading { fill: Fill::Together, ..reading }),
    ("L changes with whole sequences", |_, reading| DuloReading { inflates: Inflates::LastBlock, ..reading }),
    ("L changes with spared blocks", |_, reading| DuloReading { spared_inflates: true, ..reading }),
    ("newer of equal sequences first", |_, reading| DuloReading { newer_first: true, ..reading }),
    ("descending locations", |_, reading| DuloReading { within: Within::Descending, ..reading }),
    ("blocks of a sequence by recency", |_, reading| DuloReading { within: Within::Recency, ..reading }),
    ("no young blocks in the buffer", |_, reading| DuloReading { young_in_buffer: false, ..reading }),
    ("fetched blocks are young", |_, reading| DuloReading { fetched_young: true, ..reading }),
    ("condition 1 as printed", |_, reading| DuloReading { as_printed: true, ..reading }),
    ("no difference of times in a sequence", |_, reading| DuloReading { difference_max: 0, ..reading }),
    ("any difference of times in a sequence", |_, reading| DuloReading { difference_max: u64::MAX, ..reading }),
    ("at most four blocks in a sequence", |_, reading| DuloReading { sequence_max: 4, ..reading }),
    ("reclaimed after four ticks", |_, reading| DuloReading { reclaim: Reclaim::After(4), ..reading }),
    ("an empty evicting section is refilled", |_, reading| DuloReading { empty: Empty::Sequence, ..reading }),
];

/// A full cache has more blocks below the correlation buffer than the bank holds, so the evicting section is never empty.
const DULO_SAME: &[&str] = &["an empty evicting section is refilled"];

/// Each choice is observable: the comparison would find a policy that made another one.
#[test]
fn dulo_choices_are_observable() {
    let mut same = Vec::new();
    for (name, change) in DULO_DIFFERENCES.iter().chain(DULO_OTHERS) {
        let seeds = differing("dulo:bank=20%:evicting=50%", |m| dulo(m, 20, 50, change(m, dulo_choices(m))));
        println!("dulo:bank=20%:evicting=50%, {name}: differs in {seeds} of {} seeds", self::seeds());
        if seeds == 0 {
            same.push(*name);
        }
    }
    assert_eq!(same, DULO_SAME);
}

/// The block numbers of a compressed list, or `None` where the traces are missing, which it reports.
fn trace(name: &str) -> Option<Vec<u64>> {
    let path = Path::new(TRACES).join("lirs").join(format!("{name}.trace.gz"));
    if !path.exists() {
        println!("skipped: readings_on_traces: no lirs/{name}.trace.gz in {TRACES}");
        return None;
    }
    let mut text = String::new();
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    MultiGzDecoder::new(file).read_to_string(&mut text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// Hits in percent.
fn hit_ratio(references: &[u64], mut access: impl FnMut(u64) -> Outcome) -> f64 {
    let hits = references.iter().filter(|&&block| access(block).hit).count();
    100.0 * hits as f64 / references.len() as f64
}

/// On recorded traces, policies equal their witnesses too. Prints the hit ratios of the first reading, one choice at a time:
/// `cargo test -p nigh-policy --test it witness:: -- --nocapture readings_on_traces`.
#[test]
fn readings_on_traces() {
    let traces: [(&str, &[usize]); 3] = [
        ("cpp", &[20, 35, 50, 80, 100, 200, 300, 400, 500, 600, 700, 800, 900]),
        ("cs", &[400, 800, 1000, 1200]),
        ("multi1", &[600, 800, 1000, 1200]),
    ];
    for (name, sizes) in traces {
        let Some(references) = trace(name) else { return };
        let blocks = references.iter().collect::<HashSet<_>>().len() as u32;
        let row = |reading: &str, ratios: Vec<f64>| {
            let ratios: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
            println!("{name} at {sizes:?}: {} | {reading}", ratios.join(" "));
        };
        let with = |witness: &dyn Fn(usize) -> Witness| -> Vec<f64> {
            let of = |&size: &usize| {
                let mut witness = witness(size);
                hit_ratio(&references, |block| witness.access(block))
            };
            sizes.iter().map(of).collect()
        };
        let policy = |spec: &str| -> Vec<f64> {
            let of = |&size: &usize| {
                let mut host = Host::new(spec, size as u32, blocks, Slots::Forever, None);
                hit_ratio(&references, |block| host.access_unchecked(block))
            };
            sizes.iter().map(of).collect()
        };
        let ours = policy("clock-pro");
        let stated = with(&|m| Witness::ClockPro(ClockPro::new(m, clock_pro_choices(m))));
        assert_eq!(ours, stated, "clock-pro on {name}");
        row("clock-pro", ours);
        for (reading, change) in CLOCK_PRO_DIFFERENCES {
            row(reading, with(&|m| Witness::ClockPro(ClockPro::new(m, change(m, clock_pro_choices(m))))));
        }
        let ours = policy("dulo");
        let auto = |m: usize, reading| Witness::Dulo(Dulo::new(m, 0, (m / 5).max(1), reading));
        assert_eq!(ours, with(&|m| auto(m, dulo_choices(m))), "dulo on {name}");
        row("dulo", ours);
        for (reading, change) in DULO_DIFFERENCES {
            row(reading, with(&|m| auto(m, change(m, dulo_choices(m)))));
        }
    }
}
