//! What a cache over Python keys holds: keys and values by slot, and the policy that decides which leave.
//!
//! Nothing here runs Python code. Objects that leave are handed to the caller, which drops them when nothing is borrowed:
//! their finalizers may use the cache. `Python::attach` would drop what other threads left to it, so `py` is passed in.

use hashbrown::HashTable;
use nigh_policy::{Access, Block, Policy, Room, Setup, Slot, Spec, Stream, Tenant, build, ghosts};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;

/// The slots of a cache that is not used yet.
const SLOTS_LEAST: u32 = 16;

/// A key, and its value if it is resident. A key without a value is a ghost.
#[derive(Default)]
pub(crate) struct Entry {
    hash: u64,
    pub(crate) key: Option<Py<PyAny>>,
    pub(crate) value: Option<Py<PyAny>>,
    pub(crate) kind: Kind,
}

/// How a key is compared to others.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number that is its own hash.
    Small,
    /// None, a bool, int, float, str or bytes, or a tuple of these without bytes: to compare it to a small or plain key runs
    /// no Python code.
    Plain,
    /// To compare it may run any Python code.
    #[default]
    Foreign,
}

/// What happened so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

/// Objects that left a cache.
#[derive(Default)]
pub(crate) struct Left {
    /// Keys and values that left to make room.
    pub(crate) evicted: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// What else is no longer held.
    pub(crate) dropped: Vec<Py<PyAny>>,
}

/// A key that is looked up.
pub(crate) struct Wanted {
    /// Python's.
    pub(crate) hash: u64,
    pub(crate) kind: Kind,
}

/// Entries by slot, and the policy.
pub(crate) struct Store {
    spec: Spec,
    policy: Box<dyn Policy + Send>,
    capacity: u32,
    ghosts: u32,
    /// The slot of each key.
    table: HashTable<u32>,
    entries: Vec<Entry>,
    /// Slots below the length of `entries` that hold no key.
    free: Vec<u32>,
    /// The slots that the policy knows of; they double when all are in use.
    slots: u32,
    resident: u32,
    tick: u64,
    pub(crate) counts: Counts,
    /// Called with each key and value that leave to make room.
    pub(crate) on_evict: Option<Py<PyAny>>,
}

impl Store {
    /// An empty cache of at most `capacity` values.
    pub(crate) fn new(spec: Spec, capacity: u32, on_evict: Option<Py<PyAny>>) -> PyResult<Store> {
        if spec.info().spatial {
            let text =
                format!("policy '{spec}' looks at which blocks are neighbours on disk, and keys are not on a disk");
            return Err(PyValueError::new_err(text));
        }
        let ghosts = ghosts_of(&spec, capacity)?;
        let slots = SLOTS_LEAST.min(capacity.saturating_add(ghosts).saturating_add(1));
        let setup = Setup { capacity, slots, block_bytes: 4096, ghosts, future: None, patterns: None };
        let policy = build(&spec, &setup).map_err(|error| error::value(&error))?;
        check_slots(&spec, policy.as_ref(), capacity, ghosts)?;
        Ok(Store {
            spec,
            policy,
            capacity,
            ghosts,
            table: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            slots,
            resident: 0,
            tick: 0,
            counts: Counts::default(),
            on_evict,
        })
    }

    /// Removes everything but the counts: what was removed.
    pub(crate) fn empty(&mut self) -> PyResult<Store> {
        let empty = Store::new(self.spec.clone(), self.capacity, None)?;
        let mut full = std::mem::replace(self, empty);
        self.counts = full.counts;
        self.on_evict = full.on_evict.take();
        Ok(full)
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn resident(&self) -> u32 {
        self.resident
    }

    /// Every entry, used or not.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The slot whose entry `is` the one wanted, among those whose keys have this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(&Entry) -> bool) -> Option<Slot> {
        let found = self.table.find(mixed(hash), |&slot| {
            let entry = &self.entries[slot as usize];
            entry.hash == hash && is(entry)
        });
        found.map(|&slot| Slot(slot))
    }

    /// The value of `slot`, if it is resident.
    pub(crate) fn value(&self, slot: Option<Slot>) -> Option<&Py<PyAny>> {
        self.entries[slot?.index()].value.as_ref()
    }

    /// The value of `slot`, which is referenced.
    #[inline]
    pub(crate) fn get(&mut self, slot: Option<Slot>) -> Option<&Py<PyAny>> {
        let known = slot.map(|slot| (slot, &self.entries[slot.index()]));
        let Some((slot, Entry { hash, value: Some(value), .. })) = known else {
            self.counts.misses += 1;
            return None;
        };
        self.counts.hits += 1;
        self.policy.hit(slot, &access(&mut self.tick, *hash));
        Some(value)
    }

    /// Gives `key` a value. A policy may reject a key that is not resident.
    pub(crate) fn set(
        &mut self,
        py: Python<'_>,
        slot: Option<Slot>,
        wanted: Wanted,
        key: Py<PyAny>,
        value: Py<PyAny>,
        left: &mut Left,
    ) {
        self.drain(left);
        if let Some(slot) = slot.filter(|slot| self.entries[slot.index()].value.is_some()) {
            left.dropped.extend(self.entries[slot.index()].value.replace(value));
            left.dropped.push(key);
            let access = access(&mut self.tick, wanted.hash);
            self.policy.hit(slot, &access);
            return;
        }
        // Not a ghost that a hit has made the policy forget.
        let ghost = slot.filter(|slot| self.entries[slot.index()].key.is_some());
        let slot = ghost.unwrap_or_else(|| self.unused(left));
        let access = access(&mut self.tick, wanted.hash);
        if self.resident == self.capacity {
            let victim = self.policy.evict(slot, &access);
            if let Some(victim) = victim {
                self.counts.evictions += 1;
                left.evicted.extend(self.leave(py, victim));
            }
            self.drain(left);
            if victim.is_none() {
                if ghost.is_none() {
                    self.free.push(slot.0);
                }
                left.dropped.extend([key, value]);
                return;
            }
        }
        if ghost.is_some() {
            left.dropped.push(key);
        } else {
            let Wanted { hash, kind } = wanted;
            self.entries[slot.index()] = Entry { hash, key: Some(key), value: None, kind };
            let entries = &self.entries;
            self.table.insert_unique(mixed(hash), slot.0, |&slot| mixed(entries[slot as usize].hash));
        }
        self.entries[slot.index()].value = Some(value);
        self.resident += 1;
        self.policy.insert(slot, &access);
        let entries = &self.entries;
        self.policy.go_on(&access, &|slot| block(entries[slot.index()].hash));
        self.drain(left);
    }

    /// Takes the value of `slot` out, if it is resident, and forgets the key.
    pub(crate) fn remove(&mut self, slot: Option<Slot>, left: &mut Left) -> Option<Py<PyAny>> {
        let slot = slot?;
        let value = self.entries[slot.index()].value.take()?;
        self.drain(left);
        self.resident -= 1;
        self.policy.remove(slot);
        self.release(slot, left);
        self.drain(left);
        Some(value)
    }

    /// Takes out the key that the policy would evict next, and its value.
    pub(crate) fn shed(&mut self, py: Python<'_>, left: &mut Left) -> Option<(Py<PyAny>, Py<PyAny>)> {
        if self.resident == 0 {
            return None;
        }
        self.drain(left);
        let victim = self.policy.shed();
        let pair = self.leave(py, victim);
        self.drain(left);
        pair
    }

    /// Changes the size. What no longer fits leaves.
    pub(crate) fn resize(&mut self, py: Python<'_>, capacity: u32, left: &mut Left) -> PyResult<()> {
        let ghosts = ghosts_of(&self.spec, capacity)?;
        check_slots(&self.spec, self.policy.as_ref(), capacity, ghosts)?;
        (self.capacity, self.ghosts) = (capacity, ghosts);
        self.drain(left);
        self.policy.resize(Room { capacity, slots: self.slots, ghosts });
        self.drain(left);
        while self.resident > capacity {
            let pair = self.shed(py, left);
            self.counts.evictions += 1;
            left.evicted.extend(pair);
        }
        Ok(())
    }

    /// A slot without a key.
    fn unused(&mut self, left: &mut Left) -> Slot {
        if let Some(slot) = self.free.pop() {
            return Slot(slot);
        }
        let slot = self.entries.len() as u32;
        if slot == self.slots {
            let most = self.capacity.saturating_add(self.ghosts).saturating_add(1);
            self.slots = self.slots.saturating_mul(2).min(most).max(slot + 1);
            self.policy.resize(Room { capacity: self.capacity, slots: self.slots, ghosts: self.ghosts });
            self.drain(left);
        }
        self.entries.push(Entry::default());
        Slot(slot)
    }

    /// `victim` is not resident from now on: its key and value.
    fn leave(&mut self, py: Python<'_>, victim: Slot) -> Option<(Py<PyAny>, Py<PyAny>)> {
        self.resident -= 1;
        let entry = &mut self.entries[victim.index()];
        let key = entry.key.as_ref().map(|key| key.clone_ref(py));
        key.zip(entry.value.take())
    }

    /// Takes back the slots that the policy no longer remembers.
    fn drain(&mut self, left: &mut Left) {
        while let Some(slot) = self.policy.take_forgotten() {
            self.release(slot, left);
        }
    }

    fn release(&mut self, slot: Slot, left: &mut Left) {
        let entry = &mut self.entries[slot.index()];
        let found = self.table.find_entry(mixed(entry.hash), |&other| other == slot.0);
        found.expect("a slot in use has a key").remove();
        left.dropped.extend(entry.key.take());
        self.free.push(slot.0);
    }
}

/// The next reference, to a key with this hash, which identifies it for policies that estimate frequencies.
fn access(tick: &mut u64, hash: u64) -> Access {
    let now = *tick;
    *tick += 1;
    Access { block: block(hash), tenant: Tenant(0), stream: Stream(0), kind: nigh_policy::Kind::Read, tick: now }
}

fn block(hash: u64) -> Block {
    Block { volume: 0, index: hash }
}

/// Python's hashes of small numbers are those numbers: the table needs all bits.
fn mixed(hash: u64) -> u64 {
    let product = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// The ghosts that the policy can use with `capacity` keys.
fn ghosts_of(spec: &Spec, capacity: u32) -> PyResult<u32> {
    let of = |capacity| ghosts(spec, capacity).map_err(|error| error::value(&error));
    if of(1)? == u32::MAX {
        let text = format!("policy '{spec}' would remember every key for ever: give it a limit, such as ghosts=2");
        return Err(PyValueError::new_err(text));
    }
    of(capacity)
}

fn check_slots(spec: &Spec, policy: &dyn Policy, capacity: u32, ghosts: u32) -> PyResult<()> {
    let most = policy.slots_most();
    if capacity.checked_add(ghosts).and_then(|slots| slots.checked_add(1)).is_some_and(|slots| slots <= most) {
        return Ok(());
    }
    let text = format!(
        "capacity={capacity}: policy '{spec}' is limited to {most} keys, with the {ghosts} evicted ones that it remembers"
    );
    Err(PyValueError::new_err(text))
}
