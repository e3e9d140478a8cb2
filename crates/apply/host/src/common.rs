//! State shared by the parts of a running host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nigh_backend::Handle;

use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::ChangeError;
use crate::settings::Settings;
use crate::sync::lock;
use crate::warm::Warm;

/// State shared by the threads.
pub(crate) struct Common {
    pub(crate) cache: Arc<Cache>,
    pub(crate) handle: Handle,
    /// The present settings, without those of disks, which are with the disks, and read-ahead, which is with the cache.
    pub(crate) settings: Mutex<Settings>,
    /// Set when nothing can be changed any more.
    pub(crate) stopping: AtomicBool,
    /// Set when every disk is closed, so that the timer has nothing to do.
    pub(crate) closed: AtomicBool,
    /// Set when the end does not store in levels what is in memory.
    pub(crate) leaves_levels: AtomicBool,
    /// The list of the blocks in memory, if it is kept.
    pub(crate) warm: Option<Warm>,
    /// Held while the host is being changed.
    pub(crate) administration: Mutex<()>,
}

impl Common {
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Disk>, ChangeError> {
        self.cache.disks.named(name).ok_or_else(|| ChangeError::NoDisk(name.to_owned()))
    }

    /// Locks changes of the host, one at a time.
    pub(crate) fn administrate(&self) -> Result<MutexGuard<'_, ()>, ChangeError> {
        let one = lock(&self.administration);
        match self.stopping.load(Ordering::Acquire) {
            true => Err(ChangeError::Stopping),
            false => Ok(one),
        }
    }
}
