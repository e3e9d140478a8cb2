//! The cache behind [`Cache`](crate::Cache), for callers that hash and compare keys themselves, like hashbrown's `HashTable`.
//!
//! 1. A caller hashes a key and calls [`find`](RawCache::find), which compares it with the resident keys that have the same hash.
//! 2. It passes the place to [`hit`](RawCache::hit), or `None`, which counts a miss.
//! 3. After a miss, it may [`insert`](RawCache::insert) the key. Pairs that leave are handed to the caller, and none is dropped here: code of
//!    keys and values runs outside.
//! 4. An evicted key is remembered, if the policy remembers it, by its hash alone.
//!
//! **Weights.** The sum of weights is at most the limit when a call returns. Policies count values, not weights, so a policy is given a
//! capacity in values that follows the limit:
//!
//! * It grows, up to twice at a time, while the cache fills. Once there was no room for a value, it grows only if there is room for a
//!   sixteenth of the values. A policy whose capacity grows by one and shrinks by one all the time keeps new values without comparing them
//!   with what they replace. LIRS, for one, gives LIR status to them: it lost 4 to 8 points (`tests/it/weights.rs`).
//! * If there is no room for a value, the capacity becomes the number of resident values, so that the policy's shares (1 % for new values in
//!   LIRS, the small queue of S3-FIFO) are shares of these, and the policy evicts one. Before that, it sheds others if the new value is
//!   heavier than the mean, and afterwards if the evicted value was too light.

use hashbrown::HashTable;
use nigh_policy::{
    Access, Block, Kind, Policy, Room, Setup, Slot, Spec, Stream, Succession, Tenant, build, build_to_grow,
};

use crate::Error;
use crate::room::{check_slots, ghosts_of};

/// The slots of a cache that is not used yet.
const SLOTS_LEAST: u32 = 16;

/// The values for which a cache with weights is planned at first.
const PLANNED_LEAST: u32 = 1024;

/// Twice as much is a number, too: a sum exceeds the limit by one value for a moment.
const LIMIT_MOST: u64 = u64::MAX / 2;

/// A change of policy moves this many values or evicted keys at each insertion.
const STEP: u32 = 16;

/// The position of a resident value, until the next call that changes which values are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(Slot);

/// Look-ups and evictions since a cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Look-ups that found the key.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Values that left to make room.
    pub evictions: u64,
}

impl Counts {
    /// Hits of all look-ups, 0 to 1; 0 if there were none.
    pub fn hit_ratio(&self) -> f64 {
        let lookups = self.hits + self.misses;
        if lookups == 0 { 0.0 } else { self.hits as f64 / lookups as f64 }
    }
}

/// A key that is known. Without a pair, it was evicted and the policy remembers it, or the slot is free.
struct Entry<K, V> {
    hash: u64,
    pair: Option<(K, V)>,
}

/// Pairs by slot, and the policy that decides which leave.
pub struct RawCache<K, V> {
    spec: Spec,
    policy: Succession,
    /// The most that the weights of the resident values can sum up to.
    limit: u64,
    /// Their sum.
    weight: u64,
    resident: u32,
    /// Whether there was no room for a value since the limit was set.
    is_full: bool,
    /// The most resident values, as far as the policy knows.
    capacity: u32,
    /// There is room for the evicted keys that the policy remembers with a capacity of up to this.
    planned: u32,
    /// A capacity that the policy can be created with.
    created: u32,
    ghosts: u32,
    /// The slots that the policy knows of; they double when all are in use.
    slots: u32,
    /// The slot of each known key.
    table: HashTable<u32>,
    entries: Vec<Entry<K, V>>,
    /// By slot, once a weight other than 1 is known: until then, the capacity is the limit.
    weights: Option<Vec<u64>>,
    /// Slots below the length of `entries` that hold no key.
    free: Vec<u32>,
    tick: u64,
    counts: Counts,
}

impl<K, V> RawCache<K, V> {
    /// An empty cache of at most `capacity` values of weight 1. Other weights can be given, too: then `capacity` is the limit of their sum.
    ///
    /// # Errors
    /// If the policy does not work without places on a disk or without a limit of evicted keys, or not with that capacity.
    pub fn new(spec: Spec, capacity: u32) -> Result<RawCache<K, V>, Error> {
        RawCache::of(spec, capacity.into(), capacity, None)
    }

    /// An empty cache of values whose weights sum up to at most `limit`. Limits beyond 2^63 - 1 are as that one.
    ///
    /// # Errors
    /// See [`new`](RawCache::new).
    pub fn with_weights(spec: Spec, limit: u64) -> Result<RawCache<K, V>, Error> {
        let planned = limit.min(PLANNED_LEAST.into()) as u32;
        RawCache::of(spec, limit, planned, Some(Vec::new()))
    }

    fn of(spec: Spec, limit: u64, planned: u32, weights: Option<Vec<u64>>) -> Result<RawCache<K, V>, Error> {
        if limit == 0 {
            return Err(Error::Empty);
        }
        let limit = limit.min(LIMIT_MOST);
        let ghosts = ghosts_of(&spec, planned)?;
        let capacity = if weights.is_some() { 1 } else { planned };
        let room = Room { capacity, slots: slots_least(planned, ghosts), ghosts };
        let policy = create(&spec, room, planned)?;
        check_slots(&spec, policy.as_ref(), planned, ghosts)?;
        Ok(RawCache {
            spec,
            policy: Succession::new(policy, room),
            limit,
            weight: 0,
            resident: 0,
            is_full: false,
            capacity,
            planned,
            created: planned,
            ghosts,
            slots: room.slots,
            table: HashTable::new(),
            entries: Vec::new(),
            weights,
            free: Vec::new(),
            tick: 0,
            counts: Counts::default(),
        })
    }

    /// The policy with its parameters.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.resident as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.resident == 0
    }

    /// The sum of their weights.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The most that the sum of their weights can be.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The most values, as far as the policy knows: follows the limit, if there are weights.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Look-ups and evictions.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The place of the resident key for which `is` holds, among those with this hash.
    #[inline]
    pub fn find(&self, hash: u64, mut is: impl FnMut(&K) -> bool) -> Option<Place> {
        let found = self.table.find(mixed(hash), |&slot| {
            let entry = &self.entries[slot as usize];
            entry.hash == hash && entry.pair.as_ref().is_some_and(|(key, _)| is(key))
        });
        found.map(|&slot| Place(Slot(slot)))
    }

    /// The pair at `place`.
    ///
    /// # Panics
    /// If nothing is resident there.
    #[inline]
    pub fn pair(&self, place: Place) -> (&K, &V) {
        let (key, value) = self.entries[place.0.index()].pair.as_ref().expect("a place of a resident pair");
        (key, value)
    }

    /// Counts a look-up that found `place`, which is a reference to it, or nothing. Returns the value.
    ///
    /// # Panics
    /// If nothing is resident there.
    #[inline]
    pub fn hit(&mut self, place: Option<Place>) -> Option<&V> {
        let Some(Place(slot)) = place else {
            self.counts.misses += 1;
            return None;
        };
        let Entry { hash, pair } = &self.entries[slot.index()];
        let (_, value) = pair.as_ref().expect("a place of a resident pair");
        self.counts.hits += 1;
        self.policy.hit(slot, &access(&mut self.tick, *hash));
        Some(value)
    }

    /// Inserts a key that is not resident, with a weight, of which 0 counts as 1. This is a reference. Pairs that leave to make room go
    /// to `left`.
    ///
    /// # Errors
    /// The pair, if it is not kept: it is heavier than the limit, in which case nothing changes, or the policy chose it to leave.
    pub fn insert(
        &mut self,
        hash: u64,
        key: K,
        value: V,
        weight: u64,
        left: &mut impl Extend<(K, V)>,
    ) -> Result<Place, (K, V)> {
        let weight = weight.max(1);
        if weight > self.limit {
            return Err((key, value));
        }
        self.drain();
        self.note_weights(weight);
        self.fit(weight, left);
        let ghost = self.ghost(hash);
        let slot = ghost.unwrap_or_else(|| self.unused());
        let access = access(&mut self.tick, hash);
        if self.resident == self.capacity {
            let victim = self.policy.evict(slot, &access);
            if let Some(victim) = victim {
                self.evicted(victim, left);
            }
            self.drain();
            if victim.is_none() {
                if ghost.is_none() {
                    self.free.push(slot.0);
                }
                return Err((key, value));
            }
        }
        if ghost.is_none() {
            let entries = &self.entries;
            self.table.insert_unique(mixed(hash), slot.0, |&slot| mixed(entries[slot as usize].hash));
        }
        self.entries[slot.index()] = Entry { hash, pair: Some((key, value)) };
        if let Some(weights) = &mut self.weights {
            weights[slot.index()] = weight;
        }
        self.weight += weight;
        self.resident += 1;
        self.policy.insert(slot, &access);
        let entries = &self.entries;
        self.policy.go_on(&access, &|slot| block(entries[slot.index()].hash));
        self.drain();
        self.succeed(STEP);
        match self.shed_to(self.limit, slot, left) {
            Some(pair) => Err(pair),
            None => Ok(Place(slot)),
        }
    }

    /// Gives the pair at `place` another value and weight; this is a reference. Pairs that leave to make room go to `left`. Returns the
    /// value that was there.
    ///
    /// # Errors
    /// That value, and the pair with the new one if it is not kept: it is heavier than the limit, or the policy chose it to leave.
    ///
    /// # Panics
    /// If nothing is resident at `place`.
    pub fn replace(
        &mut self,
        place: Place,
        value: V,
        weight: u64,
        left: &mut impl Extend<(K, V)>,
    ) -> Result<V, (V, (K, V))> {
        let (Place(slot), weight) = (place, weight.max(1));
        let Entry { hash, pair } = &mut self.entries[slot.index()];
        let (_, old) = pair.as_mut().expect("a place of a resident pair");
        let (old, hash) = (std::mem::replace(old, value), *hash);
        if weight > self.limit {
            return Err((old, self.remove(place)));
        }
        self.drain();
        self.note_weights(weight);
        self.weight = self.weight - self.weight_of(slot) + weight;
        if let Some(weights) = &mut self.weights {
            weights[slot.index()] = weight;
        }
        let access = access(&mut self.tick, hash);
        self.policy.hit(slot, &access);
        self.drain();
        match self.shed_to(self.limit, slot, left) {
            Some(pair) => Err((old, pair)),
            None => Ok(old),
        }
    }

    /// Takes the pair at `place` out; the policy forgets the key. This is no reference and no eviction.
    ///
    /// # Panics
    /// If nothing is resident there.
    pub fn remove(&mut self, place: Place) -> (K, V) {
        let Place(slot) = place;
        let pair = self.leave(slot);
        self.drain();
        self.policy.remove(slot);
        self.release(slot);
        self.drain();
        pair
    }

    /// Takes out the pair that the policy would evict next. This is no reference, and not counted as an eviction.
    pub fn shed(&mut self) -> Option<(K, V)> {
        if self.resident == 0 {
            return None;
        }
        self.drain();
        let victim = self.policy.shed();
        let pair = self.leave(victim);
        self.drain();
        Some(pair)
    }

    /// Changes the limit. Pairs for which there is no room any more go to `left`.
    ///
    /// # Errors
    /// If the policy cannot work with it; then nothing changes.
    pub fn resize(&mut self, limit: u64, left: &mut impl Extend<(K, V)>) -> Result<(), Error> {
        if limit == 0 {
            return Err(Error::Empty);
        }
        let limit = limit.min(LIMIT_MOST);
        self.drain();
        self.is_full = false;
        if self.weights.is_none() {
            let capacity = u32::try_from(limit).unwrap_or(u32::MAX);
            self.plan(capacity)?;
            self.limit = limit;
            self.set_capacity(capacity);
        } else {
            self.limit = limit;
            if self.weight > limit {
                let fits = u128::from(self.resident) * u128::from(limit) / u128::from(self.weight);
                self.set_capacity((fits as u32).max(1).min(self.capacity));
            }
        }
        while self.resident > self.capacity {
            self.shed_one(left);
        }
        while self.weight > limit {
            self.shed_smaller(left);
        }
        Ok(())
    }

    /// From now on, another policy decides. It takes over the values in the order in which the present one would evict them, a few at each
    /// insertion. Evicted keys are forgotten.
    ///
    /// # Errors
    /// As for [`new`](RawCache::new); then nothing changes.
    pub fn change_policy(&mut self, spec: Spec) -> Result<(), Error> {
        let ghosts = ghosts_of(&spec, self.planned)?;
        let room = Room { ghosts, ..self.room() };
        let policy = create(&spec, room, self.planned)?;
        // The predecessor's evicted keys are given back one by one.
        check_slots(&spec, policy.as_ref(), self.planned, ghosts.max(self.ghosts))?;
        self.drain();
        self.succeed(u32::MAX);
        self.policy.succeed(policy, room);
        (self.spec, self.ghosts, self.created) = (spec, ghosts, self.planned);
        self.drain();
        self.succeed(0);
        Ok(())
    }

    /// Takes out everything, as a cache of its own, and what the policy learned. The counts stay.
    pub fn take(&mut self) -> RawCache<K, V> {
        let capacity = if self.weights.is_some() { 1 } else { self.capacity };
        let room = Room { capacity, slots: slots_least(self.planned, self.ghosts), ghosts: self.ghosts };
        let policy = create(&self.spec, room, self.created).expect("it was created before");
        let empty = RawCache {
            spec: self.spec.clone(),
            policy: Succession::new(policy, room),
            weight: 0,
            resident: 0,
            is_full: false,
            capacity,
            slots: room.slots,
            table: HashTable::new(),
            entries: Vec::new(),
            weights: self.weights.as_ref().map(|_| Vec::new()),
            free: Vec::new(),
            ..*self
        };
        std::mem::replace(self, empty)
    }

    /// The resident pairs, in no order. Not a reference.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter_map(|entry| entry.pair.as_ref()).map(|(key, value)| (key, value))
    }

    /// Recounts every invariant.
    ///
    /// # Panics
    /// On a broken one.
    pub fn check(&self) {
        self.policy.check();
        let resident = (0..).zip(&self.entries).filter(|(_, entry)| entry.pair.is_some());
        let weights: Vec<u64> = resident.map(|(slot, _)| self.weight_of(Slot(slot))).collect();
        assert_eq!(weights.len(), self.len(), "the number of resident values");
        assert_eq!(weights.iter().sum::<u64>(), self.weight, "the sum of weights");
        assert!(self.weight <= self.limit, "the values are too heavy");
        assert!(self.resident <= self.capacity && self.capacity <= self.planned, "the policy's capacity");
        assert_eq!(self.table.len() + self.free.len(), self.entries.len(), "each slot has a key or is free");
        assert!(self.entries.len() <= self.slots as usize, "the policy knows all slots");
        let mut known = vec![false; self.entries.len()];
        for &slot in self.table.iter().chain(&self.free) {
            assert!(!std::mem::replace(&mut known[slot as usize], true), "a slot twice");
        }
        for &slot in &self.free {
            assert!(self.entries[slot as usize].pair.is_none(), "a free slot has a pair");
        }
    }

    fn weight_of(&self, slot: Slot) -> u64 {
        self.weights.as_ref().map_or(1, |weights| weights[slot.index()])
    }

    /// Weights are kept from the first one on that is not 1.
    fn note_weights(&mut self, weight: u64) {
        if weight != 1 && self.weights.is_none() {
            self.weights = Some(vec![1; self.entries.len()]);
        }
    }

    fn room(&self) -> Room {
        Room { capacity: self.capacity, slots: self.slots, ghosts: self.ghosts }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.policy.resize(self.room());
        self.drain();
    }

    /// Has room for the evicted keys that the policy remembers with a capacity of up to `planned`.
    fn plan(&mut self, planned: u32) -> Result<(), Error> {
        let ghosts = ghosts_of(&self.spec, planned)?;
        check_slots(&self.spec, &self.policy, planned, ghosts)?;
        (self.planned, self.ghosts) = (planned, ghosts);
        Ok(())
    }

    /// Prepares the policy for a value of this weight: afterwards, it is called to evict if and only if `resident` is `capacity`.
    fn fit(&mut self, weight: u64, left: &mut impl Extend<(K, V)>) {
        if self.weights.is_none() || self.resident == 0 {
            return;
        }
        if weight <= self.limit - self.weight {
            if self.resident == self.capacity {
                self.grow();
            }
            return;
        }
        self.is_full = true;
        // The victim of `evict` has the mean weight, more or less.
        while self.resident > 1 && self.weight - self.weight / u64::from(self.resident) + weight > self.limit {
            self.shed_smaller(left);
        }
        if self.capacity != self.resident {
            self.set_capacity(self.resident);
        }
    }

    /// Gives the policy a greater capacity, if enough room is left.
    fn grow(&mut self) {
        let (resident, spare) = (u64::from(self.resident), self.limit - self.weight);
        let more =
            u64::try_from(u128::from(spare) * u128::from(resident) / u128::from(self.weight)).unwrap_or(u64::MAX);
        if self.is_full && more < grain(self.resident) {
            return;
        }
        let Ok(capacity) = u32::try_from(resident + more.clamp(1, resident)) else { return };
        let twice = self.planned.saturating_mul(2);
        if capacity <= self.planned || self.plan(capacity.max(twice)).is_ok() || self.plan(capacity).is_ok() {
            self.set_capacity(capacity);
        }
    }

    /// Sheds until the weights sum up to at most `most`. Returns the pair of `own`, if it left, too; it is not counted as an eviction.
    fn shed_to(&mut self, most: u64, own: Slot, left: &mut impl Extend<(K, V)>) -> Option<(K, V)> {
        let mut rejected = None;
        while self.weight > most {
            self.set_capacity((self.resident - 1).max(1));
            let victim = self.policy.shed();
            if victim == own {
                rejected = Some(self.leave(victim));
            } else {
                self.evicted(victim, left);
            }
            self.drain();
        }
        rejected
    }

    fn shed_smaller(&mut self, left: &mut impl Extend<(K, V)>) {
        self.set_capacity((self.resident - 1).max(1));
        self.shed_one(left);
    }

    fn shed_one(&mut self, left: &mut impl Extend<(K, V)>) {
        self.counts.evictions += 1;
        left.extend(self.shed());
    }

    fn evicted(&mut self, victim: Slot, left: &mut impl Extend<(K, V)>) {
        self.counts.evictions += 1;
        left.extend([self.leave(victim)]);
    }

    /// Goes on with a change of policy.
    fn succeed(&mut self, most: u32) {
        if !self.policy.is_pending() {
            return;
        }
        let (entries, tick) = (&self.entries, self.tick);
        self.policy.step(most, &mut |slot| access(&mut tick.clone(), entries[slot.index()].hash));
        drop(self.policy.take_retired());
        self.drain();
    }

    /// The slot of an evicted key with this hash.
    fn ghost(&self, hash: u64) -> Option<Slot> {
        let found = self.table.find(mixed(hash), |&slot| {
            let entry = &self.entries[slot as usize];
            entry.hash == hash && entry.pair.is_none()
        });
        found.map(|&slot| Slot(slot))
    }

    /// A slot without a key.
    fn unused(&mut self) -> Slot {
        if let Some(slot) = self.free.pop() {
            return Slot(slot);
        }
        let slot = self.entries.len() as u32;
        if slot == self.slots {
            let most = self.planned.saturating_add(self.ghosts).saturating_add(1);
            self.slots = self.slots.saturating_mul(2).min(most).max(slot + 1);
            self.policy.resize(self.room());
            self.drain();
        }
        self.entries.push(Entry { hash: 0, pair: None });
        if let Some(weights) = &mut self.weights {
            weights.push(1);
        }
        Slot(slot)
    }

    /// `slot` is not resident from now on: its pair.
    fn leave(&mut self, slot: Slot) -> (K, V) {
        self.resident -= 1;
        self.weight -= self.weight_of(slot);
        self.entries[slot.index()].pair.take().expect("a place of a resident pair")
    }

    /// Takes back the slots that the policy no longer remembers.
    fn drain(&mut self) {
        while let Some(slot) = self.policy.take_forgotten() {
            self.release(slot);
        }
    }

    fn release(&mut self, slot: Slot) {
        let hash = self.entries[slot.index()].hash;
        let found = self.table.find_entry(mixed(hash), |&other| other == slot.0);
        found.expect("a slot in use has a key").remove();
        self.free.push(slot.0);
    }
}

/// The policy `spec` for a host with this `room`. It can be created with a capacity of `created`.
fn create(spec: &Spec, room: Room, created: u32) -> Result<Box<dyn Policy + Send>, Error> {
    if spec.is_spatial() {
        return Err(Error::Neighbours { policy: spec.clone() });
    }
    let Room { capacity, slots, ghosts } = room;
    let setup = Setup { capacity: created, slots, block_bytes: 4096, ghosts, future: None, patterns: None };
    if capacity == created {
        return Ok(build(spec, &setup)?);
    }
    let mut policy = build_to_grow(spec, slots, &setup)?;
    policy.resize(room);
    Ok(policy)
}

fn slots_least(capacity: u32, ghosts: u32) -> u32 {
    SLOTS_LEAST.min(capacity.saturating_add(ghosts).saturating_add(1))
}

/// The values for which room must be left before a full cache of this many takes one without evicting another.
fn grain(resident: u32) -> u64 {
    (resident / 8).clamp(1, 2).max(resident / 16).into()
}

/// The next reference, to a key with this hash, which identifies it for policies that estimate frequencies.
fn access(tick: &mut u64, hash: u64) -> Access {
    let now = *tick;
    *tick += 1;
    Access { block: block(hash), tenant: Tenant(0), stream: Stream(0), kind: Kind::Read, tick: now }
}

fn block(hash: u64) -> Block {
    Block { volume: 0, index: hash }
}

/// A hash may be a small number itself: the table needs all bits.
fn mixed(hash: u64) -> u64 {
    let product = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LRU, but of keys that come when the cache is full, it rejects odd ones, also if it remembers them.
    struct Rejecting(Box<dyn Policy + Send>);

    impl Policy for Rejecting {
        fn hit(&mut self, slot: Slot, access: &Access) {
            self.0.hit(slot, access);
        }

        fn evict(&mut self, incoming: Slot, access: &Access) -> Option<Slot> {
            if access.block.index % 2 == 1 { None } else { self.0.evict(incoming, access) }
        }

        fn insert(&mut self, slot: Slot, access: &Access) {
            self.0.insert(slot, access);
        }

        fn shed(&mut self) -> Slot {
            self.0.shed()
        }

        fn resize(&mut self, room: Room) {
            self.0.resize(room);
        }

        fn remove(&mut self, slot: Slot) {
            self.0.remove(slot);
        }

        fn take_forgotten(&mut self) -> Option<Slot> {
            self.0.take_forgotten()
        }

        fn check(&self) {
            self.0.check();
        }
    }

    #[test]
    fn a_policy_may_reject_keys() {
        for name in ["lru", "arc", "lirs"] {
            for weight in [1, 3] {
                let spec: Spec = name.parse().unwrap();
                let mut cache: RawCache<u64, ()> = RawCache::new(spec.clone(), 30).unwrap();
                let room = cache.room();
                let policy = create(&spec, room, 30).unwrap();
                cache.policy = Succession::new(Box::new(Rejecting(policy)), room);
                let mut rejected = 0;
                for step in 0..2000_u64 {
                    let key = step * step % 97;
                    let place = cache.find(key, |other| *other == key);
                    cache.hit(place);
                    if place.is_none() {
                        let (was_full, mut left) = (cache.resident == cache.capacity, Vec::new());
                        let inserted = cache.insert(key, key, (), weight, &mut left);
                        assert_eq!(inserted.is_ok(), cache.find(key, |other| *other == key).is_some());
                        assert!(weight > 1 || inserted.is_err() == (was_full && key % 2 == 1));
                        rejected += u64::from(inserted.is_err());
                    }
                    cache.check();
                }
                assert!(rejected > 100, "{name}");
            }
        }
    }
}
