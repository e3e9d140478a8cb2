//! Hosts: a cache and its disks, from the start to the end.

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use ::nigh_host::{DiskSettings, DiskStatistics, Host, HostStatistics, TenantStatistics};
use serde::Serialize;

use crate::args::{flags, owned, place, reference, text};
use crate::error::{Error, entry};
use crate::{NIGH_DISCARD, settings};

/// A cache.
pub struct nigh_host {
    pub(crate) host: Arc<Host>,
    forks: u32,
}

impl nigh_host {
    fn start(settings: ::nigh_host::Settings) -> Result<Box<nigh_host>, Error> {
        // Counted from here on: an earlier child of the program is not one of the host's.
        let forks = nigh_backend::forks();
        Ok(Box::new(nigh_host { host: Arc::new(Host::start(settings)?), forks }))
    }

    /// An error in a child of the process that started it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if nigh_backend::forks() == self.forks { Ok(()) } else { Err(Error::FORKED) }
    }

    pub(crate) fn add(&self, settings: DiskSettings) -> Result<(), Error> {
        self.host.add(settings)?;
        Ok(())
    }
}

/// The form of `nigh_statistics_json`.
#[derive(Serialize)]
struct Statistics {
    schema: u32,
    version: &'static str,
    #[serde(flatten)]
    host: HostStatistics,
    disks: Vec<DiskStatistics>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<TenantStatistics>,
}

/// Opens the disks and starts a cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_open(settings: *const c_char, length: usize, host: *mut *mut nigh_host) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a place for a pointer, and a text of this length.
        let (host, settings) = unsafe { (place(host)?, text(settings, length)?) };
        *host = Box::into_raw(nigh_host::start(settings::host(settings)?)?);
        Ok(0)
    })
}

/// Writes everything back and frees the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_close(host: *mut nigh_host, timeout_ms: c_int) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: of nigh_open, and not closed.
        unsafe { reference(host) }?.check()?;
        // SAFETY: likewise; it is the last call with it.
        let host = unsafe { owned(host) }?;
        match u64::try_from(timeout_ms) {
            Ok(limit) => host.host.shut_down_within(Duration::from_millis(limit))?,
            Err(_) => host.host.shut_down()?,
        }
        Ok(0)
    })
}

/// Opens another disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_add(host: *mut nigh_host, settings: *const c_char, length: usize) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a text of this length.
        let (host, settings) = unsafe { (reference(host)?, text(settings, length)?) };
        host.check()?;
        host.add(settings::disk(settings)?)?;
        Ok(0)
    })
}

/// Closes a disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_remove(host: *mut nigh_host, name: *const c_char, length: usize, flag: u32) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a text of this length.
        let (host, name) = unsafe { (reference(host)?, text(name, length)?) };
        flags(flag, NIGH_DISCARD)?;
        host.check()?;
        host.host.remove(name, flag & NIGH_DISCARD != 0)?;
        Ok(0)
    })
}

/// Changes memory and policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_change(host: *mut nigh_host, memory: u64, policy: *const c_char, length: usize) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed.
        let host = unsafe { reference(host) }?;
        let policy = match policy.is_null() {
            true => None,
            // SAFETY: nigh.h: a text of this length.
            false => Some(unsafe { text(policy, length) }?),
        };
        host.check()?;
        let policy = policy.map(str::parse).transpose();
        let policy = policy.map_err(|error| Error::new(libc::EINVAL, format!("policy: {error}")))?;
        host.host.change((memory != 0).then_some(memory), policy.as_ref())?;
        Ok(0)
    })
}

/// The state of the cache as JSON.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_statistics_json(
    host: *mut nigh_host,
    text: *mut *mut c_char,
    length: *mut usize,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a place for a pointer.
        let (host, text) = unsafe { (reference(host)?, place(text)?) };
        host.check()?;
        let (state, disks) = host.host.statistics();
        let tenants = host.host.tenant_statistics();
        let statistics = Statistics { schema: 1, version: env!("CARGO_PKG_VERSION"), host: state, disks, tenants };
        let json = serde_json::to_string(&statistics).map_err(|error| Error::new(libc::EIO, error.to_string()))?;
        if !length.is_null() {
            // SAFETY: nigh.h: a place for a number.
            *unsafe { place(length) }? = json.len();
        }
        *text = CString::new(json).map_err(|_| Error::fixed(libc::EIO, c"JSON has no 0"))?.into_raw();
        Ok(0)
    })
}

/// Frees a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_free(text: *mut c_char) {
    entry(|| {
        if !text.is_null() {
            // SAFETY: nigh.h: of nigh_statistics_json, which got it from `into_raw`, and not freed.
            drop(unsafe { CString::from_raw(text) });
        }
        Ok(0)
    });
}
