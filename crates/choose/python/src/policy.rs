//! Policies written in Python, as policies of a host.
//!
//! A host calls them in a thread that has the interpreter's lock. They see a number for each block instead of a slot, and
//! remember evicted blocks as they like: to the host, an evicted block is forgotten at once.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nigh_policy::{Policy, Room, Slot};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::work;

pyo3::create_exception!(
    nigh,
    PolicyError,
    PyValueError,
    "A policy written in Python broke its contract. The text names the policy, the method and the reference, counted from 0."
);

/// References between two readings of the clock.
const LOOK: u64 = 256;
/// The calls that an error lists.
const RECENT: usize = 6;
/// The names of quantities that all policies of a process can report; they stay in memory.
const NAMES_MOST: usize = 1000;

/// One reference to one block.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct Access {
    /// The number of the reference, counted from 0.
    #[pyo3(get)]
    tick: u64,
    /// The file or disk.
    #[pyo3(get)]
    volume: u32,
    /// The position in the volume, in blocks.
    #[pyo3(get)]
    index: u64,
    /// The identity of the issuing code, file or tenant; 0 if the trace has none.
    #[pyo3(get)]
    stream: u64,
}

#[pymethods]
impl Access {
    #[new]
    #[pyo3(signature = (tick, volume = 0, index = 0, stream = 0))]
    fn new(tick: u64, volume: u32, index: u64, stream: u64) -> Access {
        Access { tick, volume, index, stream }
    }

    fn __repr__(&self) -> String {
        let Access { tick, volume, index, stream } = self;
        format!("Access(tick={tick}, volume={volume}, index={index}, stream={stream})")
    }
}

/// The first error of a policy; it ends the replay.
#[derive(Default)]
pub(crate) struct Fault {
    raised: Mutex<Option<PyErr>>,
    pub(crate) stop: AtomicBool,
}

impl Fault {
    /// The error, if there is one.
    pub(crate) fn raised(&self) -> PyResult<()> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn set(&self, error: PyErr) {
        if !self.stop.swap(true, Ordering::Relaxed) {
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

/// A policy written in Python. After its first error it is not called again: the rest of its host's calls have no effect but
/// to keep the count of what is resident.
pub(crate) struct Hosted {
    name: String,
    /// The circumstances in the error's text, after a comma.
    place: String,
    capacity: u32,
    methods: Methods,
    /// A bit for each block: whether it is resident.
    resident: Vec<u64>,
    /// The evicted block, until the host takes it back.
    forgotten: Option<Slot>,
    /// The number of the reference.
    at: u64,
    /// The last calls, the latest last, and the block or capacity of each.
    recent: VecDeque<(&'static str, Option<u32>)>,
    /// The names of the quantities that `gauges` reports.
    names: RefCell<Option<Vec<&'static str>>>,
    progress: Option<Py<PyAny>>,
    /// The references that were done before the first of this replay.
    before: u64,
    looked: Instant,
    fault: Arc<Fault>,
}

/// The bound methods; nothing where the class has that of the base, which does nothing.
struct Methods {
    hit: Option<Py<PyAny>>,
    evict: Py<PyAny>,
    insert: Py<PyAny>,
    shed: Py<PyAny>,
    resize: Py<PyAny>,
    remove: Py<PyAny>,
    check: Option<Py<PyAny>>,
    gauges: Option<Py<PyAny>>,
}

impl Hosted {
    /// The policy that `factory` makes for the capacity of `room`.
    pub(crate) fn new(
        factory: &Bound<'_, PyAny>,
        name: &str,
        place: String,
        room: Room,
        fault: Arc<Fault>,
    ) -> PyResult<Hosted> {
        let py = factory.py();
        let capacity = room.capacity;
        let object = factory
            .call1((capacity,))
            .map_err(|error| wrapped(py, error, |error| format!("policy {name}: {name}({capacity}) raised {error}")))?;
        let base = py.import("nigh._policy")?.getattr("Policy")?;
        if !object.is_instance(&base)? {
            let kind = object.get_type().name()?;
            let text = format!("policy {name}: {name}({capacity}) returned a {kind}, expected a nigh.Policy");
            return Err(PolicyError::new_err(text));
        }
        let method = |method: &str| object.getattr(method).map(Bound::unbind);
        let own = |of: &str| -> PyResult<Option<Py<PyAny>>> {
            let (bound, inherited) = (object.getattr(of)?, base.getattr(of)?);
            let is_inherited = bound.getattr("__func__").is_ok_and(|function| function.is(&inherited));
            Ok((!is_inherited).then(|| bound.unbind()))
        };
        Ok(Hosted {
            name: name.to_owned(),
            place,
            capacity,
            methods: Methods {
                hit: own("hit")?,
                evict: method("evict")?,
                insert: method("insert")?,
                shed: method("shed")?,
                resize: method("resize")?,
                remove: method("remove")?,
                check: own("check")?,
                gauges: own("gauges")?,
            },
            resident: vec![0; room.slots.div_ceil(64) as usize],
            forgotten: None,
            at: 0,
            recent: VecDeque::with_capacity(RECENT),
            names: RefCell::new(None),
            progress: None,
            before: 0,
            looked: Instant::now(),
            fault,
        })
    }

    /// Calls `progress` now and then with the number of references that are done, of which there were `before`.
    pub(crate) fn report(&mut self, progress: Option<&Bound<'_, PyAny>>, before: u64) {
        self.progress = progress.map(|progress| progress.clone().unbind());
        self.before = before;
    }

    fn is_resident(&self, block: u32) -> bool {
        self.resident.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    fn set_resident(&mut self, slot: Slot, resident: bool) {
        let word = &mut self.resident[slot.index() / 64];
        *word = *word & !(1 << (slot.0 % 64)) | u64::from(resident) << (slot.0 % 64);
    }

    /// Any resident block, for a host that goes on after an error.
    fn any_resident(&self) -> Slot {
        let word = self.resident.iter().position(|&word| word != 0).expect("a block is resident");
        Slot(word as u32 * 64 + self.resident[word].trailing_zeros())
    }

    /// At each reference: checks for signals and reports progress when it is time. Returns whether to go on.
    fn goes_on(&mut self, py: Python<'_>, access: &nigh_policy::Access) -> bool {
        self.at = access.tick;
        if self.at.is_multiple_of(LOOK) && self.looked.elapsed() >= work::INTERVAL {
            self.looked = Instant::now();
            if let Err(error) = work::look(py, self.progress.as_ref(), self.before + self.at) {
                self.fault.set(error);
            }
        }
        !self.broken()
    }

    fn broken(&self) -> bool {
        self.fault.stop.load(Ordering::Relaxed)
    }

    fn note(&mut self, method: &'static str, block: Option<u32>) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((method, block));
    }

    /// "policy NAME (capacity 10): METHOD() at reference 7 WHAT".
    fn text(&self, method: &str, what: &str) -> String {
        let Hosted { name, place, capacity, at, .. } = self;
        let mut text = format!("policy {name} (capacity {capacity}{place}): {method}() at reference {at} {what}");
        for (at, (method, block)) in self.recent.iter().enumerate() {
            text.push_str(if at == 0 { "; the last calls were " } else { ", " });
            let block = block.map_or_else(String::new, |block| block.to_string());
            text.push_str(&format!("{method}({block})"));
        }
        text
    }

    fn fail(&self, method: &str, what: &str) {
        self.fault.set(PolicyError::new_err(self.text(method, what)));
    }

    fn raised(&self, py: Python<'_>, method: &str, error: PyErr) {
        self.fault.set(wrapped(py, error, |error| self.text(method, &format!("raised {error}"))));
    }

    /// The method's result, unless it raised.
    fn call<'py, A>(&self, py: Python<'py>, name: &str, method: &Py<PyAny>, arguments: A) -> Option<Bound<'py, PyAny>>
    where
        A: pyo3::call::PyCallArgs<'py>,
    {
        method.bind(py).call1(arguments).map_err(|error| self.raised(py, name, error)).ok()
    }

    fn access(access: &nigh_policy::Access) -> Access {
        let nigh_policy::Access { block, stream, tick, .. } = *access;
        Access { tick, volume: block.volume, index: block.index, stream: stream.0 }
    }

    /// The resident block that `method` returned.
    fn victim(&self, method: &str, value: &Bound<'_, PyAny>, expected: &str) -> Option<Slot> {
        if let Some(block) = value.extract().ok().filter(|&block| self.is_resident(block)) {
            return Some(Slot(block));
        }
        if !value.is_instance_of::<PyInt>() && !value.hasattr("__index__").unwrap_or(false) {
            let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
            let kind = if value.is_none() { "None".to_owned() } else { format!("a {kind}") };
            self.fail(method, &format!("returned {kind}, expected {expected}"));
            return None;
        }
        let shown = value.str().map_or_else(|_| "a block".to_owned(), |text| format!("block {text}"));
        self.fail(method, &format!("returned {shown}, which is not resident"));
        None
    }

    /// The quantities that the policy reports, the same each time. None if they break its contract.
    fn quantities(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        let Some(gauges) = &self.methods.gauges else { return Ok(Vec::new()) };
        let mut quantities = Vec::new();
        for item in gauges.bind(py).call0()?.call_method0("items")?.try_iter()? {
            let (name, value): (String, u64) = item?.extract()?;
            let Some(name) = interned(&name) else {
                self.fail("gauges", &format!("returned a name beyond the {NAMES_MOST} that a process can have"));
                return Ok(Vec::new());
            };
            quantities.push((name, value));
        }
        let names: Vec<&'static str> = quantities.iter().map(|&(name, _)| name).collect();
        let mut known = self.names.borrow_mut();
        let expected = known.get_or_insert_with(|| names.clone());
        if names != *expected {
            let text = format!("returned {names:?} after {expected:?}: the same names each time, in the same order");
            self.fail("gauges", &text);
            return Ok(Vec::new());
        }
        Ok(quantities)
    }
}

impl Policy for Hosted {
    fn hit(&mut self, slot: Slot, access: &nigh_policy::Access) {
        Python::attach(|py| {
            if !self.goes_on(py, access) {
                return;
            }
            self.note("hit", Some(slot.0));
            if let Some(hit) = &self.methods.hit {
                self.call(py, "hit", hit, (slot.0, Hosted::access(access)));
            }
        });
    }

    fn evict(&mut self, incoming: Slot, access: &nigh_policy::Access) -> Option<Slot> {
        Python::attach(|py| {
            if !self.goes_on(py, access) {
                return None;
            }
            self.note("evict", Some(incoming.0));
            let value = self.call(py, "evict", &self.methods.evict, (incoming.0, Hosted::access(access)))?;
            if value.is_none() {
                return None;
            }
            let victim = self.victim("evict", &value, "a resident block, or None to reject the incoming one")?;
            self.set_resident(victim, false);
            self.forgotten = Some(victim);
            Some(victim)
        })
    }

    fn insert(&mut self, slot: Slot, access: &nigh_policy::Access) {
        self.set_resident(slot, true);
        Python::attach(|py| {
            if !self.goes_on(py, access) {
                return;
            }
            self.note("insert", Some(slot.0));
            self.call(py, "insert", &self.methods.insert, (slot.0, Hosted::access(access)));
        });
    }

    fn shed(&mut self) -> Slot {
        self.note("shed", None);
        let victim = Python::attach(|py| {
            if self.broken() {
                return None;
            }
            let value = self.call(py, "shed", &self.methods.shed, ())?;
            self.victim("shed", &value, "a resident block")
        });
        let victim = victim.unwrap_or_else(|| self.any_resident());
        if let Some((_, block)) = self.recent.back_mut() {
            *block = Some(victim.0);
        }
        self.set_resident(victim, false);
        self.forgotten = Some(victim);
        victim
    }

    fn resize(&mut self, room: Room) {
        self.capacity = room.capacity;
        self.note("resize", Some(room.capacity));
        Python::attach(|py| {
            if !self.broken() {
                self.call(py, "resize", &self.methods.resize, (room.capacity,));
            }
        });
    }

    fn remove(&mut self, slot: Slot) {
        self.set_resident(slot, false);
        self.note("remove", Some(slot.0));
        Python::attach(|py| {
            if !self.broken() {
                self.call(py, "remove", &self.methods.remove, (slot.0,));
            }
        });
    }

    fn take_forgotten(&mut self) -> Option<Slot> {
        self.forgotten.take()
    }

    fn check(&self) {
        let Some(check) = self.methods.check.as_ref().filter(|_| !self.broken()) else { return };
        Python::attach(|py| {
            self.call(py, "check", check, ());
        });
    }

    fn gauges(&self, report: &mut dyn FnMut(&'static str, u64)) {
        if self.broken() {
            return;
        }
        Python::attach(|py| match self.quantities(py) {
            Ok(quantities) => quantities.into_iter().for_each(|(name, value)| report(name, value)),
            Err(error) => self.raised(py, "gauges", error),
        });
    }
}

/// A PolicyError with this text, caused by `error`. Exceptions that are no `Exception`, such as KeyboardInterrupt, are passed on.
fn wrapped(py: Python<'_>, error: PyErr, text: impl FnOnce(&PyErr) -> String) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let wrapped = PolicyError::new_err(text(&error));
    wrapped.set_cause(py, Some(error));
    wrapped
}

/// The name of a quantity, kept for as long as the process runs; nothing if there are too many.
fn interned(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    if names.len() == NAMES_MOST {
        return None;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    Some(name)
}
