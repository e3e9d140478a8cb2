//! Read-ahead: one setting, which can change at any time, and each reader's prefetcher.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nigh_prefetch::{Prefetcher, Spec};

use crate::settings::BLOCK;
use crate::sync::lock;

/// The setting.
pub struct ReadAhead {
    spec: Mutex<Spec>,
    /// Whether read-ahead is on; avoids the lock of a session.
    on: AtomicBool,
    /// The number of changes; avoids the lock.
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

    /// The present setting.
    pub fn spec(&self) -> Spec {
        lock(&self.spec).clone()
    }

    /// From its next read on, every reader follows `spec`. The history of its reads is lost.
    pub fn set(&self, spec: &Spec) {
        let mut now = lock(&self.spec);
        if *now != *spec {
            now.clone_from(spec);
            self.on.store(*spec != Spec::None, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

/// The prefetcher of a reader: a connection or a session.
pub struct Ahead {
    prefetcher: Prefetcher,
    /// `ReadAhead::changes` at its creation.
    changes: u64,
}

impl Ahead {
    /// A prefetcher for the present `setting`.
    pub fn new(setting: &ReadAhead) -> Ahead {
        let spec = lock(&setting.spec);
        Ahead { prefetcher: Prefetcher::new(&spec, BLOCK as u32), changes: setting.changes.load(Ordering::Relaxed) }
    }

    /// The prefetcher for the present `setting`; `None` if read-ahead is off.
    #[inline]
    pub fn prefetcher(&mut self, setting: &ReadAhead) -> Option<&mut Prefetcher> {
        if self.changes != setting.changes.load(Ordering::Acquire) {
            *self = Ahead::new(setting);
        }
        Some(&mut self.prefetcher).filter(|prefetcher| !prefetcher.is_none())
    }
}
