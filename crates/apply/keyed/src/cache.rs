//! A cache of values by key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use hashbrown::DefaultHashBuilder;
use nigh_policy::Spec;

use crate::inserted::{Inserted, Value};
use crate::raw::{Counts, Place, RawCache};
use crate::{Error, Evicted};

/// A cache of values by key, whose values have weights. A policy decides which values leave when others come.
///
/// `get` and `insert` are references: the policy learns of them. `peek`, `contains`, `iter` and `remove` are not.
pub struct Cache<K, V, S = DefaultHashBuilder> {
    raw: RawCache<K, V>,
    hasher: S,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// An empty cache of at most `capacity` values of weight 1, under the policy `spec`, such as `lirs` or `s3-fifo`.
    ///
    /// Weights can be given nevertheless: then their sum is at most `capacity`.
    ///
    /// # Errors
    /// If the policy does not work with keys (`dulo`, `aoio`, `ubm` and `pcc` use positions on a disk, `opt` the future), would
    /// remember every key (`lirs:ghosts=unlimited`), or cannot number that many.
    pub fn new(spec: Spec, capacity: u32) -> Result<Cache<K, V>, Error> {
        Cache::with_hasher(spec, capacity, DefaultHashBuilder::default())
    }

    /// An empty cache of values whose weights, which are given at their insertion, sum up to at most `limit`. The unit is the
    /// caller's: bytes, pages, milliseconds.
    ///
    /// # Errors
    /// See [`new`](Cache::new).
    pub fn with_weights(spec: Spec, limit: u64) -> Result<Cache<K, V>, Error> {
        Cache::with_weights_and_hasher(spec, limit, DefaultHashBuilder::default())
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Cache<K, V, S> {
    /// As [`new`](Cache::new), with another hash function. Evicted keys are remembered by their 64-bit hashes; W-TinyLFU and `auto` take
    /// keys with the same hash for one.
    ///
    /// # Errors
    /// See [`new`](Cache::new).
    pub fn with_hasher(spec: Spec, capacity: u32, hasher: S) -> Result<Cache<K, V, S>, Error> {
        Ok(Cache { raw: RawCache::new(spec, capacity)?, hasher })
    }

    /// As [`with_weights`](Cache::with_weights), with another hash function.
    ///
    /// # Errors
    /// See [`new`](Cache::new).
    pub fn with_weights_and_hasher(spec: Spec, limit: u64, hasher: S) -> Result<Cache<K, V, S>, Error> {
        Ok(Cache { raw: RawCache::with_weights(spec, limit)?, hasher })
    }

    /// The value of `key`. A reference, and counted as a hit or a miss. A hit allocates nothing.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let place = self.find(key);
        self.raw.hit(place)
    }

    /// The value of `key`. Not a reference.
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).map(|place| self.raw.pair(place).1)
    }

    /// Whether `key` has a value. Not a reference.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    /// Gives `key` a value of weight 1. See [`insert_weighted`](Cache::insert_weighted).
    pub fn insert(&mut self, key: K, value: V) -> Inserted<K, V> {
        self.insert_weighted(key, value, 1)
    }

    /// Gives `key` a value of this weight, of which 0 counts as 1. A reference, which is not counted as a hit or a miss.
    ///
    /// A value heavier than the limit is never kept; a value that its key had before leaves nevertheless.
    pub fn insert_weighted(&mut self, key: K, value: V, weight: u64) -> Inserted<K, V> {
        let hash = self.hasher.hash_one(&key);
        let mut evicted = Evicted::default();
        let (replaced, rejected) = match self.raw.find(hash, |other| *other == key) {
            Some(place) => match self.raw.replace(place, value, weight, &mut evicted) {
                Ok(old) => (Some(old), None),
                Err((old, pair)) => (Some(old), Some(pair)),
            },
            None => (None, self.raw.insert(hash, key, value, weight, &mut evicted).err()),
        };
        Inserted { replaced, rejected, evicted }
    }

    /// The value of `key`; if it has none, `make` returns one of weight 1. Values that leave are dropped.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce(&K) -> V) -> Value<'_, V> {
        let never = |key: &K| Ok::<_, std::convert::Infallible>((make(key), 1));
        let Ok(value) = self.get_or_load(key, never);
        value
    }

    /// The value of `key`; if it has none, `load` returns one and its weight. Values that leave are dropped.
    ///
    /// # Errors
    /// That of `load`. The miss is counted.
    pub fn get_or_load<E>(&mut self, key: K, load: impl FnOnce(&K) -> Result<(V, u64), E>) -> Result<Value<'_, V>, E> {
        let hash = self.hasher.hash_one(&key);
        let found = self.raw.find(hash, |other| *other == key);
        self.raw.hit(found);
        if let Some(place) = found {
            return Ok(Value::Kept(self.raw.pair(place).1));
        }
        let (value, weight) = load(&key)?;
        Ok(match self.raw.insert(hash, key, value, weight, &mut Evicted::default()) {
            Ok(place) => Value::Kept(self.raw.pair(place).1),
            Err((_, value)) => Value::Rejected(value),
        })
    }

    /// Takes `key` out with its value. Not a reference; the policy forgets the key.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        self.find(key).map(|place| self.raw.remove(place))
    }

    /// Takes out the pair that the policy would evict next. Not a reference, and not counted as an eviction.
    pub fn pop(&mut self) -> Option<(K, V)> {
        self.raw.shed()
    }

    /// Drops everything, and what the policy learned. The counts stay.
    pub fn clear(&mut self) {
        self.raw.take();
    }

    /// Changes the capacity, or the limit of the sum of weights. Returns the pairs for which there is no room any more.
    ///
    /// # Errors
    /// If the policy cannot number that many, or the limit is 0; then nothing changes.
    pub fn resize(&mut self, limit: u64) -> Result<Evicted<K, V>, Error> {
        let mut evicted = Evicted::default();
        self.raw.resize(limit, &mut evicted)?;
        Ok(evicted)
    }

    /// From now on, the policy `spec` decides. No value leaves: the policy takes them over in the order of the present one, a few at each
    /// insertion. Evicted keys are forgotten.
    ///
    /// # Errors
    /// As for [`new`](Cache::new); then nothing changes.
    pub fn change_policy(&mut self, spec: Spec) -> Result<(), Error> {
        self.raw.change_policy(spec)
    }

    #[inline]
    fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Place>
    where
        K: Borrow<Q>,
    {
        self.raw.find(self.hasher.hash_one(key), |other| other.borrow() == key)
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The sum of the weights of all values.
    pub fn weight(&self) -> u64 {
        self.raw.weight()
    }

    /// The most that the sum of weights can be: the capacity, if all values have weight 1.
    pub fn limit(&self) -> u64 {
        self.raw.limit()
    }

    /// The policy with its parameters.
    pub fn policy(&self) -> &Spec {
        self.raw.spec()
    }

    /// Hits, misses and evictions since the cache was made.
    pub fn counts(&self) -> Counts {
        self.raw.counts()
    }

    /// The pairs, in no order. Not references.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.raw.iter()
    }

    /// Recounts every invariant, for tests.
    ///
    /// # Panics
    /// On a broken one.
    pub fn check(&self) {
        self.raw.check();
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("policy", &self.policy().to_string())
            .field("len", &self.len())
            .field("weight", &self.weight())
            .field("limit", &self.limit())
            .finish()
    }
}
