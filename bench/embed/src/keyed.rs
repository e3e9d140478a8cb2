//! Caches of values by key, by one thread: a hit, and the insertion of a key that evicts another one.
//!
//! Keys and values are 64-bit numbers. Hits are at random among keys that are in the cache; insertions are of keys that come once. Each
//! cache has its own hash function. Times are those of the processor.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use nigh_keyed::Cache;
use rustix::time::{ClockId, clock_gettime};

use crate::{LOT, circumstances, median};

/// The values of a cache.
const VALUES: u64 = 16_384;

/// A cache with `VALUES` values.
trait Keyed {
    /// Whether `key` has a value. A reference.
    fn get(&mut self, key: u64) -> bool;

    fn insert(&mut self, key: u64);
}

impl Keyed for quick_cache::unsync::Cache<u64, u64> {
    fn get(&mut self, key: u64) -> bool {
        quick_cache::unsync::Cache::get(self, &key).is_some_and(|value| black_box(*value) == key)
    }

    fn insert(&mut self, key: u64) {
        quick_cache::unsync::Cache::insert(self, key, key);
    }
}

impl Keyed for moka::sync::Cache<u64, u64> {
    fn get(&mut self, key: u64) -> bool {
        moka::sync::Cache::get(self, &key).is_some_and(|value| black_box(value) == key)
    }

    fn insert(&mut self, key: u64) {
        moka::sync::Cache::insert(self, key, key);
    }
}

impl Keyed for lru::LruCache<u64, u64> {
    fn get(&mut self, key: u64) -> bool {
        lru::LruCache::get(self, &key).is_some_and(|value| black_box(*value) == key)
    }

    fn insert(&mut self, key: u64) {
        black_box(self.push(key, key));
    }
}

impl Keyed for Cache<u64, u64> {
    fn get(&mut self, key: u64) -> bool {
        Cache::get(self, &key).is_some_and(|value| black_box(*value) == key)
    }

    fn insert(&mut self, key: u64) {
        black_box(Cache::insert(self, key, key));
    }
}

/// Values of 1 to 9, in a cache for `VALUES` of the mean.
struct Weighted(Cache<u64, u64>);

impl Keyed for Weighted {
    fn get(&mut self, key: u64) -> bool {
        self.0.get(&key).is_some_and(|value| black_box(*value) == key)
    }

    fn insert(&mut self, key: u64) {
        black_box(self.0.insert_weighted(key, key, 1 + key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 9));
    }
}

/// A cache and its figures.
struct Row {
    name: String,
    cache: Box<dyn Keyed>,
    /// Keys with a value.
    known: Vec<u64>,
    /// The next key to insert.
    next: u64,
    hit_ns: Vec<f64>,
    insert_ns: Vec<f64>,
}

impl Row {
    fn new(name: impl Into<String>, cache: impl Keyed + 'static) -> Row {
        let mut cache: Box<dyn Keyed> = Box::new(cache);
        (0..VALUES).for_each(|key| cache.insert(key));
        Row { name: name.into(), cache, known: Vec::new(), next: VALUES, hit_ns: Vec::new(), insert_ns: Vec::new() }
    }

    fn measure(&mut self, turn: Duration) {
        // A policy keeps keys that are hit, or the newest ones.
        self.known.extend(self.next - VALUES..self.next);
        self.known.retain(|key| self.cache.get(*key));
        assert!(self.known.len() as u64 > VALUES / 4, "{} has {} known keys", self.name, self.known.len());
        fastrand::Rng::with_seed(1).shuffle(&mut self.known);
        let (mut random, known, cache) = (fastrand::Rng::with_seed(2), &self.known, &mut self.cache);
        self.hit_ns.push(ns(turn, || assert!(cache.get(known[random.usize(..known.len())]), "it is known")));
        let next = &mut self.next;
        self.insert_ns.push(ns(turn, || {
            cache.insert(*next);
            *next += 1;
        }));
    }
}

/// Processor time of a call in ns.
fn ns(turn: Duration, mut call: impl FnMut()) -> f64 {
    let (begin, mut count) = (processor_time(), 0);
    loop {
        (0..LOT).for_each(|_| call());
        count += LOT;
        let took = processor_time() - begin;
        if took >= turn {
            return took.as_nanos() as f64 / count as f64;
        }
    }
}

/// That of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Prints what a hit and an insertion take in each cache.
pub(crate) fn run(policies: &[String], rounds: usize, turn: Duration) -> anyhow::Result<()> {
    let values = NonZeroUsize::try_from(VALUES as usize)?;
    let mut rows = vec![
        Row::new("quick_cache unsync", quick_cache::unsync::Cache::new(VALUES as usize)),
        Row::new("lru", lru::LruCache::new(values)),
        Row::new("moka sync", moka::sync::Cache::new(VALUES)),
        Row::new("nigh lru", Cache::new("lru".parse()?, VALUES as u32)?),
    ];
    for policy in policies {
        rows.push(Row::new(format!("nigh {policy}"), Cache::new(policy.parse()?, VALUES as u32)?));
        let weighted = Weighted(Cache::with_weights(policy.parse()?, 5 * VALUES)?);
        rows.push(Row::new(format!("nigh {policy}, weights"), weighted));
    }
    println!("values by key, {VALUES} of them, one thread; {}", circumstances(rounds, turn));
    println!("{:24}{:>12}{:>30}", "", "ns a hit", "ns an insertion that evicts");
    for round in 0..rounds {
        for at in 0..rows.len() {
            let at = if round % 2 == 0 { at } else { rows.len() - 1 - at };
            rows[at].measure(turn);
        }
    }
    for Row { name, hit_ns, insert_ns, .. } in &mut rows {
        println!("{name:24}{:>12.0}{:>30.0}", median(hit_ns), median(insert_ns));
    }
    Ok(())
}
