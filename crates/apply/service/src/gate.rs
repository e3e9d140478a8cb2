//! Clients that connect before the server is ready wait.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Closed, it has the threads wait that accept clients.
#[derive(Default)]
pub struct Gate(RwLock<()>);

/// While this exists, started listeners accept no clients.
pub struct Closed<'a> {
    _closed: RwLockWriteGuard<'a, ()>,
}

impl Gate {
    /// Closes it until the result is dropped.
    pub fn close(&self) -> Closed<'_> {
        Closed { _closed: self.0.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Waits until it is open.
    pub fn wait(&self) {
        drop(self.0.read().unwrap_or_else(PoisonError::into_inner));
    }
}
