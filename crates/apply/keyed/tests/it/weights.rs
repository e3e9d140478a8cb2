//! Hit ratios with weights, beside those of a cache of as many values of weight 1.

use nigh_keyed::{Cache, Spec};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::{Distinct, policies, scattered};

/// Values that fit, if they have the mean weight.
const VALUES: u64 = 1000;

/// Skewed choices among twenty times the values, loops over one and a half times, and scans.
fn references() -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let zipf = Zipf::new(20.0 * VALUES as f64, 0.9).unwrap();
    let (mut keys, mut next) = (Vec::new(), 1 << 31);
    while keys.len() < 100 * VALUES as usize {
        match random.random_range(0..10) {
            0..7 => keys.extend((0..VALUES).map(|_| zipf.sample(&mut random) as u64)),
            7 | 8 => keys.extend((0..VALUES * 3 / 2).map(|at| (1 << 30) + at)),
            _ => {
                keys.extend(next..next + VALUES);
                next += VALUES;
            }
        }
    }
    keys
}

/// Hits in percent, the mean number of values, and the mean share of the limit that they take in percent.
struct Run {
    hits: f64,
    values: f64,
    used: f64,
}

fn run(mut cache: Cache<u64, (), Distinct>, keys: &[u64], weigh: impl Fn(u64) -> u64) -> Run {
    let warm = keys.len() / 4;
    let (mut values, mut weight) = (0, 0);
    for (at, &key) in keys.iter().enumerate() {
        if cache.get(&key).is_none() {
            cache.insert_weighted(key, (), weigh(key));
        }
        if at >= warm {
            values += cache.len();
            weight += cache.weight();
        }
    }
    cache.check();
    let count = (keys.len() - warm) as f64;
    Run {
        hits: 100.0 * cache.counts().hit_ratio(),
        values: values as f64 / count,
        used: 100.0 * weight as f64 / count / cache.limit() as f64,
    }
}

/// `cargo test -p nigh-keyed --test it -- weights --nocapture` prints the table of the README.
#[test]
fn hit_ratios_are_those_of_as_many_values_of_weight_one() {
    let keys = references();
    type Weigh = fn(u64) -> u64;
    let even: Weigh = |_| 7;
    let uneven: Weigh = |key| 1 + scattered(key) % 9;
    // Half of them weigh up to 16, and one in a hundred 250 or more; at most a tenth of the limit.
    let skewed: Weigh = |key| {
        let chance = (scattered(key) % 100_000) as f64 / 100_000.0;
        (10.0 / (1.0 - chance).powf(0.7)).min(2500.0) as u64
    };
    println!("hits in %, and the difference for weights: all 7, 1 to 9, and skewed (values, share of the limit used)");
    for info in policies() {
        let spec: Spec = info.name.parse().unwrap();
        let of_one = |values: f64| {
            let cache = Cache::with_hasher(spec.clone(), values.round() as u32, Distinct::default()).unwrap();
            run(cache, &keys, |_| 1).hits
        };
        print!("| {} | {:.1}", info.name, of_one(VALUES as f64));
        for (weigh, limit, most) in [(even, 7 * VALUES + 3, 0.5), (uneven, 5 * VALUES, 1.0), (skewed, 25 * VALUES, 3.0)]
        {
            let cache = Cache::with_weights_and_hasher(spec.clone(), limit, Distinct::default()).unwrap();
            let Run { hits, values, used } = run(cache, &keys, weigh);
            let difference = hits - of_one(values);
            // It chooses among policies at times that depend on single references.
            let most = if info.name == "auto" { 3.0 } else { most };
            print!(" | {difference:+.1} ({values:.0}, {used:.0} %)");
            assert!(difference > -most, "{spec}: {difference} points with weights");
            assert!(used > 94.0, "{spec}: {used} % of the limit is used");
        }
        println!(" |");
    }
}
