//! Locks and threads: the standard library's, or loom's, which explore all orders of the threads' steps
//! (`cargo xtask loom`, docs/adr/0020).

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
