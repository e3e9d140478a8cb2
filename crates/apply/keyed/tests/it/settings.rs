//! Settings that are refused, and results of single calls.

use nigh_keyed::{Cache, Error, Spec, Value};

fn refused(policy: &str, capacity: u32) -> Error {
    let spec: Spec = policy.parse().unwrap();
    let refused = Cache::<u64, ()>::with_weights(spec.clone(), capacity.into()).err();
    let error = Cache::<u64, ()>::new(spec, capacity).err().unwrap();
    // A cache with weights has room for few values at first.
    if !matches!(error, Error::TooLarge { .. }) {
        assert_eq!(refused.unwrap().to_string(), error.to_string());
    }
    error
}

#[test]
fn policies_that_do_not_work_with_keys() {
    for policy in ["dulo", "aoio", "ubm", "pcc", "auto:candidates=lirs+dulo"] {
        let error = refused(policy, 10);
        assert!(matches!(error, Error::Neighbours { .. }), "{error}");
        assert!(error.to_string().contains("neighbours on disk"));
    }
    for policy in ["lirs:ghosts=unlimited", "s3-fifo:ghosts=unlimited"] {
        assert!(matches!(refused(policy, 10), Error::Unlimited { .. }), "{policy}");
    }
    assert!(refused("opt", 10).to_string().contains("needs to know the future"));
    assert!(refused("ulc", 10).to_string().contains("levels"));
    assert!(refused("lirs:hir=50", 10).to_string().contains("hir=50"));
    assert!(matches!(refused("lru", 0), Error::Empty));
    assert!(matches!(refused("lirs", u32::MAX), Error::TooLarge { capacity: u32::MAX, .. }));
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut cache: Cache<u64, u64> = Cache::new("lirs:hir=50".parse().unwrap(), 100).unwrap();
    (0..200).for_each(|key| _ = cache.insert(key, key));
    assert!(cache.change_policy("dulo".parse().unwrap()).is_err());
    assert!(cache.resize(0).is_err() && cache.resize(10).is_err() && cache.resize(1 << 33).is_err());
    assert_eq!((cache.limit(), cache.len(), cache.policy().name()), (100, 100, "lirs"));
    cache.clear();
    assert!(cache.is_empty() && cache.weight() == 0);
    cache.check();
}

/// The parameter is a number of values, which one value is too few for.
#[test]
fn parameters_that_are_counts() {
    let mut cache: Cache<u64, ()> = Cache::with_weights("lirs:hir=50".parse().unwrap(), 10_000).unwrap();
    (0..3000).for_each(|key| _ = cache.insert_weighted(key, (), 5));
    assert_eq!(cache.len(), 2000);
    cache.resize(5).unwrap();
    cache.clear();
    cache.insert_weighted(1, (), 5);
    cache.check();
    assert_eq!(cache.len(), 1);
}

#[test]
fn values_that_are_too_heavy() {
    let mut cache: Cache<&str, &str> = Cache::with_weights("lru".parse().unwrap(), 10).unwrap();
    assert!(cache.insert_weighted("a", "old", 6).is_kept() && cache.insert_weighted("b", "b", 4).is_kept());
    assert_eq!((cache.len(), cache.weight()), (2, 10));
    let inserted = cache.insert_weighted("c", "c", 11);
    assert_eq!(inserted.rejected, Some(("c", "c")));
    assert!(inserted.evicted.is_empty() && cache.len() == 2);
    // The value that it had before is not its value any more.
    let inserted = cache.insert_weighted("a", "new", 11);
    assert_eq!((inserted.replaced, inserted.rejected), (Some("old"), Some(("a", "new"))));
    assert_eq!(cache.get("a"), None);
    assert_eq!(cache.get("b"), Some(&"b"));
    // Heavier than before.
    cache.insert_weighted("c", "c", 6);
    let inserted = cache.insert_weighted("c", "heavy", 7);
    assert_eq!(inserted.evicted.into_iter().collect::<Vec<_>>(), [("b", "b")]);
    assert_eq!((cache.weight(), cache.counts().evictions), (7, 1));
}

#[test]
fn equal_values_fill_the_limit() {
    for policy in ["lru", "lirs", "s3-fifo", "w-tinylfu", "arc"] {
        for (limit, weight) in [(10, 3), (100, 10), (1 << 30, 4096 << 3), (2, 2)] {
            let mut cache: Cache<u64, ()> = Cache::with_weights(policy.parse().unwrap(), limit).unwrap();
            for key in 0..2 * limit / weight {
                cache.insert_weighted(key, (), weight);
                assert_eq!(cache.len() as u64, (key + 1).min(limit / weight), "{policy}");
            }
        }
    }
}

#[test]
fn weights_beyond_any_memory() {
    let mut cache: Cache<u64, ()> = Cache::with_weights("lru".parse().unwrap(), u64::MAX).unwrap();
    for key in 0..9 {
        cache.insert_weighted(key, (), cache.limit() - key);
        cache.check();
    }
    assert!(!cache.insert_weighted(9, (), u64::MAX).is_kept());
    cache.resize(u64::MAX).unwrap();
    assert_eq!((cache.len(), cache.weight()), (1, cache.limit() - 8));
}

/// A limit in bytes is not a number of values.
#[test]
fn large_limits_take_no_memory() {
    for info in crate::support::policies() {
        let counted = allocation_counter::measure(|| {
            let mut cache: Cache<u64, ()> = Cache::with_weights(info.name.parse().unwrap(), 1 << 40).unwrap();
            cache.insert_weighted(1, (), 1 << 20);
        });
        assert!(counted.bytes_max < 100_000, "{}: {} bytes", info.name, counted.bytes_max);
    }
}

#[test]
fn what_fails_to_load_changes_nothing() {
    let mut cache: Cache<String, u64> = Cache::new("lirs".parse().unwrap(), 10).unwrap();
    assert_eq!(cache.get_or_load("a".to_owned(), |_| Err("no")).unwrap_err(), "no");
    assert_eq!((cache.len(), cache.counts().misses), (0, 1));
    let loaded = cache.get_or_load("a".to_owned(), |key| Ok::<_, ()>((key.len() as u64, 1))).unwrap();
    assert!(matches!(loaded, Value::Kept(1)));
    assert_eq!(*cache.get_or_insert_with("a".to_owned(), |_| unreachable!("it is resident")), 1);
    assert_eq!(cache.counts().hit_ratio(), 1.0 / 3.0);
    let shown = format!("{cache:?}");
    assert_eq!(shown, r#"Cache { policy: "lirs", len: 1, weight: 1, limit: 10 }"#);
}
