//! Clients that connect before the server is ready wait.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

#[derive(Default)]
pub(crate) struct Gate(RwLock<()>);

/// While this exists, listeners that are started accept nobody.
pub struct Closed<'a> {
    _closed: RwLockWriteGuard<'a, ()>,
}

impl Gate {
    pub(crate) fn close(&self) -> Closed<'_> {
        Closed { _closed: self.0.write().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        drop(self.0.read().unwrap_or_else(PoisonError::into_inner));
    }
}
