//! Every operation in random order: limits hold, each value is dropped once, and a key has the value that it was given last.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;

use nigh_keyed::{Cache, Value};
use nigh_policy::Spec;
use nigh_testkit::runs;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::{Colliding, Distinct, policies};

/// The tokens that live.
type Living = Rc<RefCell<BTreeSet<u64>>>;

/// A part of a pair. It is dropped once.
struct Token {
    number: u64,
    living: Living,
}

impl Drop for Token {
    fn drop(&mut self) {
        assert!(self.living.borrow_mut().remove(&self.number), "dropped twice");
    }
}

/// A key: its name is compared.
struct Key {
    name: u64,
    _token: Token,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl std::borrow::Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.name
    }
}

struct Maker {
    next: u64,
    living: Living,
}

impl Maker {
    fn token(&mut self) -> Token {
        self.next += 1;
        self.living.borrow_mut().insert(self.next);
        Token { number: self.next, living: self.living.clone() }
    }
}

fn random_operations<S: BuildHasher + Default>(spec: &Spec, seed: u64, weighs: bool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut limit = random.random_range(1..60);
    let mut cache: Cache<Key, Token, S> = match weighs {
        true => Cache::with_weights_and_hasher(spec.clone(), limit, S::default()).unwrap(),
        false => Cache::with_hasher(spec.clone(), limit as u32, S::default()).unwrap(),
    };
    let mut maker = Maker { next: 0, living: Living::default() };
    // By key, the number and the weight of its value if it is resident.
    let mut resident: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let (mut hits, mut misses, mut evictions) = (0, 0, 0);
    for _ in 0..runs(400, 4000) {
        let name = random.random_range(0..50);
        // Some cannot be kept.
        let weight = if weighs { random.random_range(0..20) * random.random_range(0..5) } else { 1 };
        let mut forget = |evicted: nigh_keyed::Evicted<Key, Token>| {
            for (key, value) in evicted {
                assert_eq!(resident.remove(&key.name).expect("it was resident").0, value.number);
                evictions += 1;
            }
        };
        match random.random_range(0..100) {
            0..40 => {
                let found = cache.get(&name).map(|value| value.number);
                assert_eq!(found, resident.get(&name).map(|value| value.0));
                if found.is_some() { hits += 1 } else { misses += 1 }
            }
            40..70 => {
                let (key, value) = (Key { name, _token: maker.token() }, maker.token());
                let number = value.number;
                let inserted = cache.insert_weighted(key, value, weight);
                let (is_kept, is_empty) = (inserted.is_kept(), inserted.evicted.is_empty());
                assert_eq!(inserted.evicted.len(), inserted.evicted.iter().count());
                assert!(weight.max(1) <= limit || !is_kept && is_empty, "too heavy");
                forget(inserted.evicted);
                let before = resident.remove(&name).map(|value| value.0);
                assert_eq!(inserted.replaced.map(|value| value.number), before);
                match inserted.rejected {
                    Some((key, value)) => assert_eq!((key.name, value.number), (name, number)),
                    None => _ = resident.insert(name, (number, weight.max(1))),
                }
            }
            70..85 => {
                let (key, value) = (Key { name, _token: maker.token() }, maker.token());
                let (number, known) = (value.number, resident.get(&name).copied());
                let evicted_before = cache.counts().evictions;
                let kept = cache.get_or_load(key, |_| Ok::<_, ()>((value, weight))).unwrap();
                match (&kept, known) {
                    (Value::Kept(value), Some((known, _))) => assert_eq!(value.number, known),
                    (Value::Rejected(_), Some(_)) => panic!("it was resident"),
                    (value, None) => assert_eq!(value.number, number),
                }
                let is_kept = matches!(kept, Value::Kept(_));
                drop(kept);
                if known.is_some() {
                    hits += 1
                } else {
                    misses += 1
                }
                evictions += cache.counts().evictions - evicted_before;
                // Those that left were dropped.
                resident.retain(|name, _| cache.contains(name));
                if known.is_none() && is_kept {
                    resident.insert(name, (number, weight.max(1)));
                }
            }
            85..93 => {
                let removed = cache.remove(&name).map(|(key, value)| (key.name, value.number));
                assert_eq!(removed, resident.remove(&name).map(|value| (name, value.0)));
            }
            93..96 => match cache.pop() {
                Some((key, value)) => assert_eq!(resident.remove(&key.name).unwrap().0, value.number),
                None => assert!(resident.is_empty()),
            },
            96..99 => {
                limit = random.random_range(1..90);
                forget(cache.resize(limit).unwrap());
            }
            _ => {
                cache.clear();
                resident.clear();
            }
        }
        cache.check();
        let found: BTreeMap<u64, u64> = cache.iter().map(|(key, value)| (key.name, value.number)).collect();
        assert_eq!(found, resident.iter().map(|(name, value)| (*name, value.0)).collect());
        assert_eq!(cache.weight(), resident.values().map(|value| value.1).sum::<u64>());
        assert!(cache.weight() <= limit && cache.limit() == limit);
        assert_eq!(cache.len(), resident.len());
        assert!(resident.keys().all(|name| cache.peek(name).is_some()) && cache.peek(&99).is_none());
        assert_eq!(maker.living.borrow().len(), 2 * resident.len(), "a value that left was not dropped");
    }
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.evictions), (hits, misses, evictions));
    drop(cache);
    assert!(maker.living.borrow().is_empty());
}

#[test]
fn operations_in_random_order() {
    for info in policies() {
        let spec = info.name.parse().unwrap();
        for seed in 0..runs(4, 200) {
            random_operations::<Distinct>(&spec, seed, true);
            random_operations::<Distinct>(&spec, seed, false);
        }
    }
}

#[test]
fn keys_whose_hashes_collide() {
    for info in policies() {
        let spec = info.name.parse().unwrap();
        for seed in 0..runs(4, 200) {
            random_operations::<Colliding>(&spec, seed, true);
            random_operations::<Colliding>(&spec, seed, false);
        }
    }
}

#[test]
fn one_policy_after_another() {
    let specs: Vec<Spec> = policies().map(|info| info.name.parse().unwrap()).collect();
    for (seed, (from, to)) in specs.iter().flat_map(|from| specs.iter().map(move |to| (from, to))).enumerate() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed as u64);
        let mut cache: Cache<u64, u64, Distinct> =
            Cache::with_weights_and_hasher(from.clone(), 400, Distinct::default()).unwrap();
        for step in 0..1500 {
            if step == 500 || step == 510 {
                let before: BTreeMap<u64, u64> = cache.iter().map(|(key, value)| (*key, *value)).collect();
                let wanted = if step == 500 { to } else { from };
                cache.change_policy(wanted.clone()).unwrap();
                assert_eq!(cache.policy(), wanted);
                assert_eq!(before, cache.iter().map(|(key, value)| (*key, *value)).collect(), "{from} to {to}");
            }
            let key = random.random_range(0..200) * random.random_range(0..200) / 100;
            if cache.get(&key).is_none() {
                cache.insert_weighted(key, step, 1 + key % 9);
            }
            if step % 100 == 0 {
                cache.resize(300 + step / 10).unwrap();
            }
            if step % 7 == 0 {
                cache.check();
            }
        }
    }
}

/// A few at each insertion, whether or not one leaves: FIFO then evicts them in its own order, in which hits do not count.
#[test]
fn a_new_policy_takes_all_values_over() {
    let mut cache: Cache<u64, (), Distinct> =
        Cache::with_hasher("lru".parse().unwrap(), 200, Distinct::default()).unwrap();
    (0..100).for_each(|key| _ = cache.insert(key, ()));
    cache.change_policy("fifo".parse().unwrap()).unwrap();
    (100..200).for_each(|key| _ = cache.insert(key, ()));
    assert!((0..50).all(|key| cache.get(&key).is_some()));
    (200..260).for_each(|key| _ = cache.insert(key, ()));
    assert!((0..50).all(|key| !cache.contains(&key)) && (60..100).all(|key| cache.contains(&key)));
}

/// The values of the predecessor are worth as much as its own to the successor, once it has them all.
#[test]
fn a_change_of_policy_changes_the_hits() {
    let lap = |cache: &mut Cache<u64, (), Distinct>| {
        (0..120)
            .filter(|key| {
                cache.get(key).is_some() || {
                    cache.insert(*key, ());
                    false
                }
            })
            .count()
    };
    let mut cache = Cache::with_hasher("lru".parse().unwrap(), 100, Distinct::default()).unwrap();
    (0..5).for_each(|_| _ = lap(&mut cache));
    assert_eq!(lap(&mut cache), 0, "a loop that is larger than the cache");
    cache.change_policy("lirs".parse().unwrap()).unwrap();
    (0..5).for_each(|_| _ = lap(&mut cache));
    assert!(lap(&mut cache) > 80);
}
