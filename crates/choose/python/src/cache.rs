//! A cache over Python keys, under any policy.
//!
//! `__hash__`, `__eq__` and finalizers of keys and values may run any Python code, also on the same cache. None runs while
//! the store is locked: keys that may run some when compared ([`Kind::Foreign`]) are compared outside, and then looked up
//! again. The thread that has the lock has the interpreter's, too, so it is never waited for.

use nigh_keyed::raw::{Place, RawCache};
use nigh_policy::Spec;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyIterator, PyList, PyString, PyTuple};
use try_lock::{Locked, TryLock};

use crate::error;
use crate::store::{Key, Kind, Left, Store, Wanted};

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

    /// Looks `key` up and passes its place, if it has one, to `then`. Objects that `then` takes out belong in its result.
    #[inline]
    fn with<T>(
        &self,
        key: &Bound<'_, PyAny>,
        then: impl FnOnce(&mut Store, Option<Place>, Wanted) -> T,
    ) -> PyResult<T> {
        let wanted = wanted(key)?;
        // Outlives the lock: to drop a key may run Python code.
        let mut compared = Compared::new();
        let mut store = self.lock()?;
        let (mut raised, mut foreign) = (None, false);
        let mut place = store.pairs.find(wanted.hash, |other| {
            if other.object.is(key) || other.kind == Kind::Small && wanted.kind == Kind::Small {
                return true;
            }
            let plain = other.kind != Kind::Foreign && wanted.kind != Kind::Foreign;
            foreign |= !plain;
            plain && equal(&other.object, key, &mut raised)
        });
        if place.is_none() && (foreign || raised.is_some()) {
            (store, place) = self.search(store, key, &wanted, &mut compared)?;
        }
        Ok(then(&mut store, place, wanted))
    }

    /// The place of a key that only Python code can compare.
    #[cold]
    fn search<'a>(
        &'a self,
        mut store: Locked<'a, Store>,
        key: &Bound<'_, PyAny>,
        wanted: &Wanted,
        compared: &mut Compared,
    ) -> PyResult<(Locked<'a, Store>, Option<Place>)> {
        loop {
            let (found, unsure) = find(&store, key, wanted, compared);
            if found.is_err() || unsure.is_empty() || matches!(found, Ok(Some(_))) {
                // Dropped by the caller, without the lock.
                compared.extend(unsure.into_iter().map(|other| (other, false)));
                return found.map(|place| (store, place));
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
        let Left { evicted, replaced, rejected } = left;
        drop((replaced, rejected));
        if evicted.is_empty() {
            return Ok(());
        }
        let on_evict = self.lock()?.on_evict.as_ref().map(|on_evict| on_evict.clone_ref(py));
        let Some(on_evict) = on_evict else { return Ok(()) };
        let mut raised = Ok(());
        for (key, value) in evicted {
            let called = on_evict.call1(py, (key.object, value));
            raised = raised.and(called.map(|_| ()));
        }
        raised
    }

    /// The results of `of` for each resident key and value.
    fn collect<T>(&self, of: impl Fn(&Py<PyAny>, &Py<PyAny>) -> T) -> PyResult<Vec<T>> {
        Ok(self.lock()?.pairs.iter().map(|(key, value)| of(&key.object, value)).collect())
    }

    /// The value of `key`, which is referenced.
    #[inline]
    fn found(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let py = key.py();
        self.with(key, |store, place, _| store.pairs.hit(place).map(|value| value.clone_ref(py)))
    }

    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<(Key, Py<PyAny>)>> {
        self.with(key, |store, place, _| place.map(|place| store.pairs.remove(place)))
    }

    /// The weight that the user's function gives `value`, or 1.
    fn weight_of(&self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = value.py();
        let weigh = self.lock()?.weigh.as_ref().map(|weigh| weigh.clone_ref(py));
        let Some(weigh) = weigh else { return Ok(1) };
        let weight = weigh.call1(py, (value,))?.into_bound(py);
        whole(&weight).map_err(|shown| match shown {
            Some(shown) => PyValueError::new_err(format!("weigh: {shown}, expected a weight of 0 to {}", u64::MAX)),
            None => PyTypeError::new_err("weigh: expected a function that returns whole numbers"),
        })
    }
}

#[pymethods]
impl CacheBase {
    #[new]
    #[pyo3(signature = (capacity, policy = None, *, on_evict = None, weigh = None))]
    fn new(
        capacity: &Bound<'_, PyAny>,
        policy: Option<&Bound<'_, PyAny>>,
        on_evict: Option<Bound<'_, PyAny>>,
        weigh: Option<Bound<'_, PyAny>>,
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
        for (name, function, of) in [("on_evict", &on_evict, "key and value"), ("weigh", &weigh, "a value")] {
            if let Some(function) = function.as_ref().filter(|function| !function.is_callable()) {
                let kind = function.get_type().name()?;
                return Err(PyTypeError::new_err(format!("{name}: a {kind}, expected a function of {of}")));
            }
        }
        let pairs = match weigh {
            Some(_) => RawCache::with_weights(spec, capacity_of(capacity, u64::MAX)?),
            None => RawCache::new(spec, capacity_of(capacity, KEYS_MOST)? as u32),
        };
        let pairs = pairs.map_err(|error| error::value(&error))?;
        let store = Store { pairs, on_evict: on_evict.map(Bound::unbind), weigh: weigh.map(Bound::unbind) };
        Ok(CacheBase { store: TryLock::new(store) })
    }

    /// The value of `key`, or `default`. A reference: the policy learns of it, and it counts as a hit or a miss.
    #[pyo3(signature = (key, /, default = None))]
    fn get(&self, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.found(key)?.or(default))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.found(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// The value of `key`, or `default`; not a reference.
    #[pyo3(signature = (key, /, default = None))]
    fn peek(&self, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        let py = key.py();
        let found = self.with(key, |store, place, _| place.map(|place| store.pairs.pair(place).1.clone_ref(py)))?;
        Ok(found.or(default))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.with(key, |_, place, _| place.is_some())
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let weight = self.weight_of(value)?;
        let left = self.with(key, |store, place, Wanted { hash, kind }| {
            let (mut left, value) = (Left::default(), value.clone().unbind());
            match place {
                Some(place) => match store.pairs.replace(place, value, weight, &mut left.evicted) {
                    Ok(old) => left.replaced = Some(old),
                    Err((old, pair)) => (left.replaced, left.rejected) = (Some(old), Some(pair)),
                },
                None => {
                    let key = Key { object: key.clone().unbind(), kind };
                    left.rejected = store.pairs.insert(hash, key, value, weight, &mut left.evicted).err();
                }
            }
            left
        })?;
        self.finish(key.py(), left)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let removed = self.remove(key)?;
        removed.map(drop).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    /// Removes `key`: its value, or `default`; without one, KeyError. Not a reference.
    #[pyo3(signature = (key, /, *default))]
    fn pop(&self, key: &Bound<'_, PyAny>, default: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err(format!("pop expected at most 2 arguments, got {}", default.len() + 1)));
        }
        match (self.remove(key)?, default.get_item(0)) {
            (Some((_, value)), _) => Ok(value),
            (None, Ok(default)) => Ok(default.unbind()),
            (None, Err(_)) => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Removes the key that the policy would evict next: the pair of key and value.
    fn popitem(&self) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let pair = self.lock()?.pairs.shed();
        pair.map(|(key, value)| (key.object, value)).ok_or_else(|| PyKeyError::new_err("the cache is empty"))
    }

    /// Removes all keys, and what the policy learned. The counts stay.
    fn clear(&self) -> PyResult<()> {
        let old = self.lock()?.pairs.take();
        drop(old);
        Ok(())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.lock()?.pairs.len())
    }

    /// An iterator over the keys of this moment, in no order. Not a reference.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.collect(|key, _| key.clone_ref(py))?)?.try_iter()
    }

    fn _items(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
        self.collect(|key, value| (key.clone_ref(py), value.clone_ref(py)))
    }

    /// The most keys, or the most that the weights sum up to. If it is set to less than that, keys are evicted.
    #[getter]
    fn capacity(&self) -> PyResult<u64> {
        Ok(self.lock()?.pairs.limit())
    }

    #[setter]
    fn set_capacity(&self, capacity: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = capacity.py();
        let most = if self._weighs()? { u64::MAX } else { KEYS_MOST };
        let capacity = capacity_of(capacity, most)?;
        let mut left = Left::default();
        let resized = self.lock()?.pairs.resize(capacity, &mut left.evicted);
        self.finish(py, left)?;
        resized.map_err(|error| error::value(&error))
    }

    /// The sum of the weights of all values: their number without ``weigh``.
    #[getter]
    fn weight(&self) -> PyResult<u64> {
        Ok(self.lock()?.pairs.weight())
    }

    fn _weighs(&self) -> PyResult<bool> {
        Ok(self.lock()?.weigh.is_some())
    }

    /// The policy with its parameters.
    #[getter]
    fn policy(&self) -> PyResult<String> {
        Ok(self.lock()?.pairs.spec().to_string())
    }

    fn _counts(&self) -> PyResult<(u64, u64, u64)> {
        let counts = self.lock()?.pairs.counts();
        Ok((counts.hits, counts.misses, counts.evictions))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(store) = self.store.try_lock() {
            for (key, value) in store.pairs.iter() {
                visit.call(&key.object)?;
                visit.call(value)?;
            }
            visit.call(&store.on_evict)?;
            visit.call(&store.weigh)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        // If it fails, the cycle stays, and the cache is whole.
        let _ = self.clear();
        let functions = self.lock().map(|mut store| (store.on_evict.take(), store.weigh.take()));
        drop(functions);
    }
}

/// The place of `key`, and keys that only Python code can compare with it, but those that were `compared`.
fn find(
    store: &Store,
    key: &Bound<'_, PyAny>,
    wanted: &Wanted,
    compared: &Compared,
) -> (PyResult<Option<Place>>, Vec<Py<PyAny>>) {
    let py = key.py();
    let (mut raised, mut unsure) = (None, Vec::new());
    let place = store.pairs.find(wanted.hash, |Key { object: other, kind }| {
        if other.is(key) {
            return true;
        }
        if *kind != Kind::Foreign && wanted.kind != Kind::Foreign {
            return equal(other, key, &mut raised);
        }
        if let Some((_, equal)) = compared.iter().find(|(known, _)| known.is(other)) {
            return *equal;
        }
        unsure.push(other.clone_ref(py));
        false
    });
    (raised.map_or(Ok(place), Err), unsure)
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

/// The most keys of a cache without weights.
const KEYS_MOST: u64 = u32::MAX as u64;

fn capacity_of(capacity: &Bound<'_, PyAny>, most: u64) -> PyResult<u64> {
    let least = |found: u64| (1..=most).contains(&found).then_some(found);
    let shown = match whole(capacity) {
        Ok(found) => match least(found) {
            Some(capacity) => return Ok(capacity),
            None => found.to_string(),
        },
        Err(Some(shown)) => shown,
        Err(None) => {
            let kind = capacity.get_type().name()?;
            return Err(PyTypeError::new_err(format!("capacity: a {kind}, expected a number of keys")));
        }
    };
    Err(PyValueError::new_err(format!("capacity={shown}: expected 1 to {most} keys, or weights with weigh")))
}

/// A whole number from Python; the number as text if it is below 0 or too great, and nothing if it is something else.
fn whole(number: &Bound<'_, PyAny>) -> Result<u64, Option<String>> {
    if number.is_instance_of::<PyBool>() || !number.hasattr("__index__").unwrap_or(false) {
        return Err(None);
    }
    number.extract().map_err(|_| Some(number.str().map_or_else(|_| String::new(), |text| text.to_string())))
}
