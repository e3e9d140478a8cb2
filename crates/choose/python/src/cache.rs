//! A cache over Python keys, under any policy.
//!
//! `__hash__`, `__eq__` and finalizers of keys and values may run any Python code, also on the same cache. None runs while
//! the store is locked: keys that may run some when compared ([`Kind::Foreign`]) are compared outside, and then looked up
//! again. The thread that has the lock has the interpreter's, too, so it is never waited for.

use nigh_policy::{Slot, Spec};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyIterator, PyList, PyString, PyTuple};
use try_lock::{Locked, TryLock};

use crate::error;
use crate::store::{Counts, Entry, Kind, Left, Store, Wanted};

/// Keys whose comparison was done outside the lock, and the results.
type Compared = Vec<(Py<PyAny>, bool)>;

/// A cache of keys and values.
#[pyclass(frozen, subclass, mapping, weakref, module = "nigh._nigh")]
pub(crate) struct CacheBase {
    store: TryLock<Store>,
}

impl CacheBase {
    fn lock(&self) -> PyResult<Locked<'_, Store>> {
        // Only if the interpreter ran Python code where it has none to run, such as a collection of garbage.
        self.store.try_lock().ok_or_else(|| PyRuntimeError::new_err("the cache is being changed"))
    }

    /// Looks `key` up and passes its slot, if it has one, to `then`. Objects that `then` takes out belong in its result.
    #[inline]
    fn with<T>(&self, key: &Bound<'_, PyAny>, then: impl FnOnce(&mut Store, Option<Slot>, Wanted) -> T) -> PyResult<T> {
        let wanted = wanted(key)?;
        // Outlives the lock: to drop a key may run Python code.
        let mut compared = Compared::new();
        let mut store = self.lock()?;
        let (mut raised, mut foreign) = (None, false);
        let mut slot = store.find(wanted.hash, |entry| {
            let Some(other) = &entry.key else { return false };
            if other.is(key) || entry.kind == Kind::Small && wanted.kind == Kind::Small {
                return true;
            }
            let plain = entry.kind != Kind::Foreign && wanted.kind != Kind::Foreign;
            foreign |= !plain;
            plain && equal(other, key, &mut raised)
        });
        if slot.is_none() && (foreign || raised.is_some()) {
            (store, slot) = self.search(store, key, &wanted, &mut compared)?;
        }
        Ok(then(&mut store, slot, wanted))
    }

    /// The slot of a key that only Python code can compare.
    #[cold]
    fn search<'a>(
        &'a self,
        mut store: Locked<'a, Store>,
        key: &Bound<'_, PyAny>,
        wanted: &Wanted,
        compared: &mut Compared,
    ) -> PyResult<(Locked<'a, Store>, Option<Slot>)> {
        loop {
            let (found, unsure) = find(&store, key, wanted, compared);
            if found.is_err() || unsure.is_empty() || matches!(found, Ok(Some(_))) {
                // Dropped by the caller, without the lock.
                compared.extend(unsure.into_iter().map(|other| (other, false)));
                return found.map(|slot| (store, slot));
            }
            drop(store);
            for other in unsure {
                let equal = other.bind(key.py()).eq(key)?;
                compared.push((other, equal));
                if equal {
                    break;
                }
            }
            store = self.lock()?;
        }
    }

    /// Drops what left, and reports what was evicted.
    fn finish(&self, py: Python<'_>, left: Left) -> PyResult<()> {
        let Left { evicted, dropped } = left;
        drop(dropped);
        if evicted.is_empty() {
            return Ok(());
        }
        let on_evict = self.lock()?.on_evict.as_ref().map(|on_evict| on_evict.clone_ref(py));
        let Some(on_evict) = on_evict else { return Ok(()) };
        let mut raised = Ok(());
        for pair in evicted {
            let called = on_evict.call1(py, pair);
            raised = raised.and(called.map(|_| ()));
        }
        raised
    }

    /// What `of` returns for each resident key and value.
    fn collect<T>(&self, of: impl Fn(&Py<PyAny>, &Py<PyAny>) -> T) -> PyResult<Vec<T>> {
        let store = self.lock()?;
        let resident = store.entries().iter().filter_map(|entry| entry.key.as_ref().zip(entry.value.as_ref()));
        Ok(resident.map(|(key, value)| of(key, value)).collect())
    }
}

#[pymethods]
impl CacheBase {
    #[new]
    #[pyo3(signature = (capacity, policy = None, *, on_evict = None))]
    fn new(
        capacity: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        on_evict: Option<Bound<'_, PyAny>>,
    ) -> PyResult<CacheBase> {
        let name = match policy {
            Some(policy) => policy.extract().map_err(|_| {
                let text = "policy: expected a name such as 'lirs', see nigh.policies(); policies written in Python run \
                            in nigh.sim() only";
                PyTypeError::new_err(text)
            })?,
            None => "lirs".to_owned(),
        };
        let spec: Spec = name.parse().map_err(|error| error::value(&error))?;
        if let Some(on_evict) = on_evict.as_ref().filter(|on_evict| !on_evict.is_callable()) {
            let kind = on_evict.get_type().name()?;
            return Err(PyTypeError::new_err(format!("on_evict: a {kind}, expected a function of key and value")));
        }
        let store = Store::new(spec, capacity_of(capacity)?, on_evict.map(Bound::unbind))?;
        Ok(CacheBase { store: TryLock::new(store) })
    }

    /// The value of `key`, or `default`. A reference: the policy learns of it, and it counts as a hit or a miss.
    #[pyo3(signature = (key, /, default = None))]
    fn get(&self, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let py = key.py();
        let found = self.with(key, |store, slot, _| store.get(slot).map(|value| value.clone_ref(py)))?;
        Ok(found.or(default))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        let found = self.with(key, |store, slot, _| store.get(slot).map(|value| value.clone_ref(py)))?;
        found.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// The value of `key`, or `default`; not a reference.
    #[pyo3(signature = (key, /, default = None))]
    fn peek(&self, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let py = key.py();
        let found = self.with(key, |store, slot, _| store.value(slot).map(|value| value.clone_ref(py)))?;
        Ok(found.or(default))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.with(key, |store, slot, _| store.value(slot).is_some())
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let mut left = Left::default();
        let (new_key, new_value) = (key.clone().unbind(), value.clone().unbind());
        self.with(key, |store, slot, wanted| store.set(py, slot, wanted, new_key, new_value, &mut left))?;
        self.finish(py, left)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut left = Left::default();
        let removed = self.with(key, |store, slot, _| store.remove(slot, &mut left))?;
        removed.map(|_| ()).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// Removes `key`: its value, or `default`; without one, KeyError. Not a reference.
    #[pyo3(signature = (key, /, *default))]
    fn pop(&self, key: &Bound<'_, PyAny>, default: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err(format!("pop expected at most 2 arguments, got {}", default.len() + 1)));
        }
        let mut left = Left::default();
        let removed = self.with(key, |store, slot, _| store.remove(slot, &mut left))?;
        match (removed, default.get_item(0)) {
            (Some(value), _) => Ok(value),
            (None, Ok(default)) => Ok(default.unbind()),
            (None, Err(_)) => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Removes the key that the policy would evict next: the pair of key and value.
    fn popitem(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let mut left = Left::default();
        let pair = self.lock()?.shed(py, &mut left);
        pair.ok_or_else(|| PyKeyError::new_err("the cache is empty"))
    }

    /// Removes all keys, and what the policy learned. The counts stay.
    fn clear(&self) -> PyResult<()> {
        let old = self.lock()?.empty()?;
        drop(old);
        Ok(())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.lock()?.resident() as usize)
    }

    /// An iterator over the keys of this moment, in no order. Not a reference.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.collect(|key, _| key.clone_ref(py))?)?.try_iter()
    }

    fn _items(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
        self.collect(|key, value| (key.clone_ref(py), value.clone_ref(py)))
    }

    /// The most keys. If it is set to less than are in the cache, keys are evicted.
    #[getter]
    fn capacity(&self) -> PyResult<u32> {
        Ok(self.lock()?.capacity())
    }

    #[setter]
    fn set_capacity(&self, capacity: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = capacity.py();
        let capacity = capacity_of(capacity)?;
        let mut left = Left::default();
        let resized = self.lock()?.resize(py, capacity, &mut left);
        self.finish(py, left)?;
        resized
    }

    /// The policy with its parameters.
    #[getter]
    fn policy(&self) -> PyResult<String> {
        Ok(self.lock()?.spec().to_string())
    }

    fn _counts(&self) -> PyResult<(u64, u64, u64)> {
        let Counts { hits, misses, evictions } = self.lock()?.counts;
        Ok((hits, misses, evictions))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(store) = self.store.try_lock() {
            for Entry { key, value, .. } in store.entries() {
                visit.call(key)?;
                visit.call(value)?;
            }
            visit.call(&store.on_evict)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        // Where it fails, the cycle stays, and the cache is whole.
        let _ = self.clear();
        let on_evict = self.lock().map(|mut store| store.on_evict.take());
        drop(on_evict);
    }
}

/// The slot of `key`, and keys of which only Python code can say whether they equal it, but those that were `compared`.
fn find(
    store: &Store,
    key: &Bound<'_, PyAny>,
    wanted: &Wanted,
    compared: &Compared,
) -> (PyResult<Option<Slot>>, Vec<Py<PyAny>>) {
    let py = key.py();
    let (mut raised, mut unsure) = (None, Vec::new());
    let slot = store.find(wanted.hash, |entry| {
        let Some(other) = &entry.key else { return false };
        if other.is(key) {
            return true;
        }
        if entry.kind != Kind::Foreign && wanted.kind != Kind::Foreign {
            return equal(other, key, &mut raised);
        }
        if let Some((_, equal)) = compared.iter().find(|(known, _)| known.is(other)) {
            return *equal;
        }
        unsure.push(other.clone_ref(py));
        false
    });
    (raised.map_or(Ok(slot), Err), unsure)
}

/// Whether two keys that are small or plain are equal.
#[inline]
fn equal(other: &Py<PyAny>, key: &Bound<'_, PyAny>, raised: &mut Option<PyErr>) -> bool {
    let other = other.bind(key.py());
    // They differ. Under `python -b`, to compare them gives a warning, which runs Python code.
    if other.is_exact_instance_of::<PyBytes>() != key.is_exact_instance_of::<PyBytes>() {
        return false;
    }
    match other.rich_compare(key, CompareOp::Eq) {
        Ok(result) => result.is(&*PyBool::new(key.py(), true)),
        // Too deep a recursion.
        Err(error) => {
            *raised = Some(error);
            false
        }
    }
}

/// The greatest whole number that is its own hash, and the least, negated: Python's modulus is one more.
const SMALL_MOST: i64 = if isize::BITS == 64 { (1 << 61) - 2 } else { (1 << 31) - 2 };

/// The hash of `key`, and how it is compared.
#[inline]
fn wanted(key: &Bound<'_, PyAny>) -> PyResult<Wanted> {
    let kind = if key.is_exact_instance_of::<PyInt>() {
        match key.extract::<i64>() {
            // The hash of -1 is -2.
            Ok(value) if value != -1 && (-SMALL_MOST..=SMALL_MOST).contains(&value) => {
                return Ok(Wanted { hash: value as u64, kind: Kind::Small });
            }
            _ => Kind::Plain,
        }
    } else if key.is_exact_instance_of::<PyString>() {
        Kind::Plain
    } else {
        let plain = match key.cast_exact::<PyTuple>() {
            // See `equal` for bytes.
            Ok(tuple) => tuple.iter().all(|part| is_plain_part(&part) && !part.is_exact_instance_of::<PyBytes>()),
            Err(_) => is_plain_part(key),
        };
        if plain { Kind::Plain } else { Kind::Foreign }
    };
    Ok(Wanted { hash: key.hash()? as u64, kind })
}

/// Whether `key` is of one of Python's own types without parts.
fn is_plain_part(key: &Bound<'_, PyAny>) -> bool {
    key.is_none()
        || key.is_exact_instance_of::<PyString>()
        || key.is_exact_instance_of::<PyInt>()
        || key.is_exact_instance_of::<PyBytes>()
        || key.is_exact_instance_of::<PyFloat>()
        || key.is_exact_instance_of::<PyBool>()
}

fn capacity_of(capacity: &Bound<'_, PyAny>) -> PyResult<u32> {
    if capacity.is_instance_of::<PyBool>() || !capacity.hasattr("__index__")? {
        let kind = capacity.get_type().name()?;
        return Err(PyTypeError::new_err(format!("capacity: a {kind}, expected a number of keys")));
    }
    capacity.extract().ok().filter(|&capacity| capacity > 0).ok_or_else(|| {
        let shown = capacity.str().map_or_else(|_| String::new(), |text| text.to_string());
        PyValueError::new_err(format!("capacity={shown}: expected 1 to {} keys", u32::MAX))
    })
}
