//! The contents of a cache over Python keys: keys and values (`nigh-keyed`), and what it calls.
//!
//! Nothing here runs Python code, and no object is dropped here: those that leave are handed to the caller, which drops them when nothing is
//! borrowed, because their finalizers may use the cache.

use nigh_keyed::raw::RawCache;
use pyo3::prelude::*;

/// How a key is compared to others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number that is its own hash.
    Small,
    /// None, a bool, int, float, str or bytes, or a tuple of these without bytes: to compare it to a small or plain key runs
    /// no Python code.
    Plain,
    /// To compare it may run any Python code.
    Foreign,
}

/// A key of a resident value.
pub(crate) struct Key {
    pub(crate) object: Py<PyAny>,
    pub(crate) kind: Kind,
}

/// A key that is looked up.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Python's.
    pub(crate) hash: u64,
    pub(crate) kind: Kind,
}

/// Objects that left a cache.
#[derive(Default)]
pub(crate) struct Left {
    /// Keys and values that left to make room.
    pub(crate) evicted: Vec<(Key, Py<PyAny>)>,
    /// A value that was replaced.
    pub(crate) replaced: Option<Py<PyAny>>,
    /// A pair that was not kept.
    pub(crate) rejected: Option<(Key, Py<PyAny>)>,
}

/// Keys and values, and what the cache calls.
pub(crate) struct Store {
    pub(crate) pairs: RawCache<Key, Py<PyAny>>,
    /// Called with each key and value that leave to make room.
    pub(crate) on_evict: Option<Py<PyAny>>,
    /// Returns the weight of a value.
    pub(crate) weigh: Option<Py<PyAny>>,
}
