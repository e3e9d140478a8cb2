//! What the parts of a running host share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nigh_backend::Handle;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::ChangeError;
use crate::settings::Settings;
use crate::sync::lock;

/// What the threads share.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) handle: Handle,
    /// As they are now; those of the disks are with the disks, and what is fetched ahead is with the cache.
    pub(crate) settings: Mutex<Settings>,
    /// Nothing can be changed any more.
    pub(crate) stopping: AtomicBool,
    /// Every disk is closed: the timer has nothing to do any more.
    pub(crate) closed: AtomicBool,
    /// Held by the one who changes the host.
    pub(crate) administration: Mutex<()>,
}

impl Common {
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Disk>, ChangeError> {
        self.cache.disks.named(name).ok_or_else(|| ChangeError::NoDisk(name.to_owned()))
    }

    /// The right to change the host, one at a time.
    pub(crate) fn administrate(&self) -> Result<MutexGuard<'_, ()>, ChangeError> {
        let one = lock(&self.administration);
        match self.stopping.load(Ordering::Acquire) {
            true => Err(ChangeError::Stopping),
            false => Ok(one),
        }
    }
}
