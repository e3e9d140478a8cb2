//! The policy that chooses: what it decides, and what that costs.

use nigh_policy::{Policy, Setup, ghosts, registry};
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::replay::{Replayed, replay};
use nigh_testkit::workload::{self, Load, Phases};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of the cache for generated loads.
const CAPACITY: u32 = 2_000;

fn replayed(phases: &Phases, spec: &str) -> Replayed {
    let slots = phases.distinct();
    let setup = Setup { capacity: CAPACITY, slots, block_bytes: 4096, ghosts: slots, future: None, patterns: None };
    replay(spec, &setup, phases.blocks.iter().copied())
}

/// In percent.
fn hit_ratio(phases: &Phases, spec: &str) -> f64 {
    100.0 * replayed(phases, spec).hits as f64 / phases.blocks.len() as f64
}

/// Of `auto`, and of the best of `specs`.
fn compared(phases: &Phases, specs: &[&str]) -> (f64, f64) {
    let best = specs.iter().map(|spec| hit_ratio(phases, spec)).fold(0.0, f64::max);
    (hit_ratio(phases, "auto"), best)
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

/// A cache that grows samples a smaller share of its blocks: shadows forget blocks and ghosts, whatever else a policy forgets because of that.
#[test]
fn a_cache_grows_and_shrinks() {
    const BLOCKS: u32 = 4_000;
    let spec = "auto:shadow=64:candidates=lirs+s3-fifo+w-tinylfu+mq+arc+2q+clock-pro+dulo";
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let mut host = Host::new(spec, 200, BLOCKS, Slots::Forever, None);
    for capacity in [1_000, 100, 2_000, 300, 1_500] {
        (0..20_000).for_each(|_| _ = host.access_unchecked((4_000.0_f64.powf(random.random()) - 1.0) as u64));
        host.resize(capacity, 2 * capacity);
        while host.resident().len() > capacity as usize {
            host.shed();
        }
        host.check();
    }
}

/// If phases are long enough to pay for a change, it is better than every policy that it chooses among.
#[test]
fn phases_pay() {
    let (auto, best) = compared(&Phases::rounds(CAPACITY, 50, 2), &["lirs", "s3-fifo", "w-tinylfu", "mq"]);
    assert!(auto >= best + 5.0, "{auto:.1} % instead of {best:.1} %");
}

/// A zigzag lets policies lead in turn within each period. Following each lead loses nearly everything.
#[test]
fn a_zigzag_is_not_followed() {
    let mut phases = Phases::new(CAPACITY);
    phases.run(Load::Zigzag, 200);
    let (auto, best) = compared(&phases, &["s3-fifo", "w-tinylfu", "mq"]);
    assert!(auto >= best - 3.0, "{auto:.1} % instead of {best:.1} %");
}

/// A load that turns before a change pays costs little, because the guard makes changes rarer.
#[test]
fn flips_cost_little() {
    for period in [5, 10] {
        let phases = Phases::flips(CAPACITY, period, 400);
        let (auto, best) = compared(&phases, &["lirs", "s3-fifo", "w-tinylfu", "mq"]);
        assert!(auto >= best - 6.0, "periods of {period} C: {auto:.1} % instead of {best:.1} %");
    }
}

/// If the first candidate is best, nothing changes.
#[test]
fn nothing_changes_without_a_reason() {
    let mut phases = Phases::new(CAPACITY);
    phases.run(Load::Loop, 100);
    let auto = replayed(&phases, "auto");
    assert_eq!(gauge(&*auto.policy, "changes"), 0);
    assert_eq!(auto.hits, replayed(&phases, "lirs").hits);
}
