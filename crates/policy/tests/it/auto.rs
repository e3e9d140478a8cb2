//! The policy that chooses: what it decides, and what that costs.

use nigh_policy::{Policy, Setup, ghosts, registry};
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::replay::{Replayed, replay};
use nigh_testkit::workload;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of the cache for generated loads.
const CAPACITY: u32 = 2_000;

/// Loads, each with blocks of its own.
#[derive(Clone, Copy)]
enum Load {
    Zigzag,
    Loop,
    Zipf,
    Scan,
}

const LOADS: [Load; 4] = [Load::Zigzag, Load::Loop, Load::Zipf, Load::Scan];
const ZIGZAG: u32 = CAPACITY * 5 / 2;
const LOOP: u32 = CAPACITY * 5 / 4;
const ZIPF: u32 = 20 * CAPACITY;
const SCAN: u32 = 400 * CAPACITY;

/// Generates references to one load after another.
struct Generated {
    random: Xoshiro256PlusPlus,
    at: [u32; 4],
    blocks: Vec<u32>,
}

impl Generated {
    fn new() -> Generated {
        Generated { random: Xoshiro256PlusPlus::seed_from_u64(1), at: [0; 4], blocks: Vec::new() }
    }

    /// `count` references to `load`, which continues where it stopped.
    fn run(&mut self, load: Load, count: u32) {
        for _ in 0..count {
            let at = self.at[load as usize];
            self.at[load as usize] += 1;
            self.blocks.push(match load {
                Load::Zigzag if (at / ZIGZAG).is_multiple_of(2) => at % ZIGZAG,
                Load::Zigzag => ZIGZAG - 1 - at % ZIGZAG,
                Load::Loop => ZIGZAG + at % LOOP,
                // Rank r with a probability of 1/r, nearly.
                Load::Zipf => ZIGZAG + LOOP + (f64::from(ZIPF).powf(self.random.random::<f64>()) - 1.0) as u32,
                Load::Scan => ZIGZAG + LOOP + ZIPF + at % SCAN,
            });
        }
    }

    fn replay(&self, spec: &str, capacity: u32) -> Replayed {
        let slots = ZIGZAG + LOOP + ZIPF + SCAN;
        let setup = Setup { capacity, slots, block_bytes: 4096, ghosts: slots, future: None, patterns: None };
        replay(spec, &setup, self.blocks.iter().copied())
    }

    /// In percent.
    fn hit_ratio(&self, spec: &str) -> f64 {
        100.0 * self.replay(spec, CAPACITY).hits as f64 / self.blocks.len() as f64
    }
}

fn gauge(policy: &dyn Policy, wanted: &str) -> u64 {
    let mut found = None;
    policy.gauges(&mut |name, value| {
        if name == wanted {
            found = Some(value);
        }
    });
    found.unwrap_or_else(|| panic!("there is no {wanted}"))
}

/// With nothing to choose, it decides as that policy alone, unless that has more ghosts.
#[test]
fn one_candidate_is_that_policy() {
    let fits = |name: &str| ghosts(&name.parse().expect("registered"), 100).expect("possible") <= 150;
    for info in registry().iter().filter(|info| !info.offline && info.name != "auto" && fits(info.name)) {
        for seed in 0..10 {
            let references = workload::mixed(seed, 40, 800);
            let capacity = 1 + (seed * 13 % 38) as u32;
            let new = |spec: &str| Host::new(spec, capacity, 40, Slots::Forever, None);
            let (mut alone, mut chosen) = (new(info.name), new(&format!("auto:candidates={}", info.name)));
            for &block in &references {
                assert_eq!(alone.access(block), chosen.access(block), "{}, seed {seed}", info.name);
                assert_eq!(alone.ghosts(), chosen.ghosts(), "{}, seed {seed}", info.name);
            }
        }
    }
}

/// While policies take turns, in a small cache that is checked at every step: the contract holds, also for a host that uses slots again, and where blocks are
/// removed and the size changes.
#[test]
fn the_contract_holds_through_changes() {
    const BLOCKS: u32 = 400;
    for candidates in ["lirs+s3-fifo+w-tinylfu+mq", "fifo+lirs+mq", "dulo+lirs+lru+lfu", "clock-pro+mq+2q"] {
        let spec = format!("auto:candidates={candidates}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let (size, most) = (40, ghosts(&spec.parse().expect("registered"), 80).expect("possible"));
        for disturbed in [false, true] {
            let new = |slots| Host::new(&spec, size, BLOCKS, slots, None);
            let (mut forever, mut reused) = (new(Slots::Forever), new(Slots::Reused { ghosts: most }));
            for at in 0..24_000_u64 {
                let block = match at / 2_000 % 4 {
                    0 if at / 100 % 2 == 0 => at % 100,
                    0 => 99 - at % 100,
                    1 => 100 + at % 50,
                    2 => 150 + (100.0_f64.powf(random.random()) - 1.0) as u64,
                    _ => 250 + at % 150,
                };
                assert_eq!(forever.access(block), reused.access(block), "{spec}, reference {at}");
                assert_eq!(forever.ghosts(), reused.ghosts(), "{spec}, reference {at}");
                if disturbed && at % 97 == 0 {
                    [&mut forever, &mut reused].into_iter().for_each(|host| host.remove(at * 7 % 200));
                }
                if disturbed && at % 3_000 == 0 {
                    let capacity = 20 + (at / 3_000 * 17 % 60) as u32;
                    for host in [&mut forever, &mut reused] {
                        host.resize(capacity, most);
                        while host.resident().len() > capacity as usize {
                            host.shed();
                        }
                    }
                }
            }
            let changes = forever.gauges()[0];
            println!("{spec}: {changes:?}");
            assert!(changes.0 == "changes" && changes.1 >= 2, "{spec}: {changes:?}");
        }
    }
}

/// Where phases are long enough to pay for a change, it is better than every policy that it chooses among.
#[test]
fn phases_pay() {
    let mut generated = Generated::new();
    for _ in 0..2 {
        LOADS.iter().for_each(|&load| generated.run(load, 50 * CAPACITY));
    }
    let best =
        ["lirs", "s3-fifo", "w-tinylfu", "mq"].map(|spec| generated.hit_ratio(spec)).into_iter().fold(0.0, f64::max);
    let auto = generated.hit_ratio("auto");
    assert!(auto >= best + 5.0, "{auto:.1} % instead of {best:.1} %");
}

/// A zigzag lets policies lead in turn within each period. Following each lead loses nearly everything.
#[test]
fn a_zigzag_is_not_followed() {
    let mut generated = Generated::new();
    generated.run(Load::Zigzag, 200 * CAPACITY);
    let best = ["s3-fifo", "w-tinylfu", "mq"].map(|spec| generated.hit_ratio(spec)).into_iter().fold(0.0, f64::max);
    let auto = generated.hit_ratio("auto");
    assert!(auto >= best - 3.0, "{auto:.1} % instead of {best:.1} %");
}

/// A load that turns before a change pays costs little, because the guard makes changes rarer.
#[test]
fn flips_cost_little() {
    for period in [5, 10] {
        let mut generated = Generated::new();
        for at in 0..400 / period {
            generated.run([Load::Zigzag, Load::Loop][at as usize % 2], period * CAPACITY);
        }
        let best = ["lirs", "s3-fifo", "w-tinylfu", "mq"].map(|spec| generated.hit_ratio(spec));
        let best = best.into_iter().fold(0.0, f64::max);
        let auto = generated.hit_ratio("auto");
        assert!(auto >= best - 6.0, "periods of {period} C: {auto:.1} % instead of {best:.1} %");
    }
}

/// Where the first candidate is best, nothing changes.
#[test]
fn nothing_changes_without_a_reason() {
    let mut generated = Generated::new();
    generated.run(Load::Loop, 100 * CAPACITY);
    let replayed = generated.replay("auto", CAPACITY);
    assert_eq!(gauge(&*replayed.policy, "changes"), 0);
    assert_eq!(replayed.hits, generated.replay("lirs", CAPACITY).hits);
}
