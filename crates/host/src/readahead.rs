//! What is fetched ahead of reads: one setting, which may change at any time, and each reader's prefetcher.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nigh_prefetch::{Prefetcher, Spec};

use crate::settings::BLOCK;
use crate::sync::lock;

/// The setting.
pub struct ReadAhead {
    spec: Mutex<Spec>,
    /// Whether anything is fetched ahead: spares a session its lock.
    on: AtomicBool,
    /// How often it was changed: spares the lock.
    changes: AtomicU64,
}

impl ReadAhead {
    pub(crate) fn new(spec: Spec) -> ReadAhead {
        ReadAhead { on: AtomicBool::new(spec != Spec::None), spec: Mutex::new(spec), changes: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// As it is now.
    pub fn spec(&self) -> Spec {
        lock(&self.spec).clone()
    }

    /// From its next read on, every reader does as `spec` says. What it has learned of its reads is forgotten.
    pub fn set(&self, spec: &Spec) {
        let mut now = lock(&self.spec);
        if *now != *spec {
            now.clone_from(spec);
            self.on.store(*spec != Spec::None, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

/// A reader's prefetcher: a connection's, or a session's.
pub struct Ahead {
    prefetcher: Prefetcher,
    /// `ReadAhead::changes` when it was made.
    changes: u64,
}

impl Ahead {
    /// As `setting` is now.
    pub fn new(setting: &ReadAhead) -> Ahead {
        let spec = lock(&setting.spec);
        Ahead { prefetcher: Prefetcher::new(&spec, BLOCK as u32), changes: setting.changes.load(Ordering::Relaxed) }
    }

    /// As `setting` is now; none where nothing is fetched ahead.
    #[inline]
    pub fn prefetcher(&mut self, setting: &ReadAhead) -> Option<&mut Prefetcher> {
        if self.changes != setting.changes.load(Ordering::Acquire) {
            *self = Ahead::new(setting);
        }
        Some(&mut self.prefetcher).filter(|prefetcher| !prefetcher.is_none())
    }
}
