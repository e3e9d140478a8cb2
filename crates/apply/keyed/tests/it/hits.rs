//! Hits: those of a replay, and without allocation.

use nigh_keyed::{Cache, Spec};
use nigh_testkit::workload::mixed;

use crate::support::{Distinct, policies};

#[test]
fn a_hit_allocates_nothing() {
    for info in policies() {
        let spec: Spec = info.name.parse().unwrap();
        let mut cache: Cache<u64, [u64; 4]> = Cache::new(spec, 1000).unwrap();
        for key in mixed(1, 3000, 30_000) {
            cache.get_or_insert_with(key, |key| [*key; 4]);
        }
        let keys: Vec<u64> = cache.iter().map(|(key, _)| *key).collect();
        let mut hits = 0;
        let mut hit = |cache: &mut Cache<u64, [u64; 4]>| {
            for at in 0..20_000 {
                let key = keys[at * at % keys.len()];
                hits += u64::from(cache.get(&key) == Some(&[key; 4]));
            }
        };
        // Lists of a policy may reach their length.
        hit(&mut cache);
        let counted = allocation_counter::measure(|| hit(&mut cache));
        // AMP has a structure for each loop that it detects.
        let most = if info.name == "amp" { 200 } else { 0 };
        assert!(counted.count_total <= most && hits == 40_000, "{}: {}", info.name, counted.count_total);
    }
}

#[test]
fn insertions_that_evict_one_pair_allocate_nothing() {
    for info in policies() {
        let mut cache: Cache<u64, u64, Distinct> =
            Cache::with_hasher(info.name.parse().unwrap(), 1000, Distinct::default()).unwrap();
        (0..40_000).for_each(|key| _ = cache.insert(key * 7919 % 20_000, key));
        let counted = allocation_counter::measure(|| {
            for key in 0..4000 {
                cache.insert(key * 7919 % 20_000, key);
            }
        });
        // Lists may double; AMP has a structure for each loop that it detects.
        let most = if info.name == "amp" { 100 } else { 2 };
        assert!(counted.count_total <= most, "{}: {} allocations", info.name, counted.count_total);
    }
}
