//! Disks: requests that wait for their end.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use ::nigh_host::{Host, HostError, Session};

use crate::NIGH_DURABLE;
use crate::args::{buffer, bytes, flags, owned, place, range, reference, text};
use crate::error::{Error, entry};
use crate::host::nigh_host;

/// A program's use of a disk. Clones share the session.
pub struct nigh_disk {
    pub(crate) session: Session,
    host: Arc<Host>,
    pub(crate) forks: u32,
}

impl nigh_disk {
    /// An error in a child of the process that opened it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if nigh_backend::forks() == self.forks { Ok(()) } else { Err(Error::FORKED) }
    }
}

/// Opens a disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_open_disk(
    host: *mut nigh_host,
    name: *const c_char,
    length: usize,
    disk: *mut *mut nigh_disk,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, a text of this length, and a place for a pointer.
        let (host, name, disk) = unsafe { (reference(host)?, text(name, length)?, place(disk)?) };
        host.check()?;
        let session = host.host.open(name)?;
        *disk = Box::into_raw(Box::new(nigh_disk { session, host: host.host.clone(), forks: nigh_backend::forks() }));
        Ok(0)
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_close_disk(disk: *mut nigh_disk) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: of nigh_open_disk, and not closed.
        unsafe { reference(disk) }?.check()?;
        // SAFETY: likewise; it is the last call with it.
        drop(unsafe { owned(disk) }?);
        Ok(0)
    })
}

/// The size in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_size(disk: *mut nigh_disk, bytes: *mut u64) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a place for a number.
        let (disk, bytes) = unsafe { (reference(disk)?, place(bytes)?) };
        disk.check()?;
        *bytes = disk.session.disk().size();
        Ok(0)
    })
}

/// Reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_read(disk: *mut nigh_disk, offset: u64, into: *mut c_void, length: usize) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and memory of this length.
        let (disk, into) = unsafe { (reference(disk)?, buffer(into.cast(), length)?) };
        disk.session.read(offset, into)?;
        Ok(0)
    })
}

/// Writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_write(
    disk: *mut nigh_disk,
    offset: u64,
    from: *const c_void,
    length: usize,
    flag: u32,
) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and bytes of this length.
        let (disk, from) = unsafe { (reference(disk)?, bytes(from.cast(), length)?) };
        flags(flag, NIGH_DURABLE)?;
        // In a child, a read-only disk would return its own error.
        disk.check()?;
        disk.session.write(offset, from, flag & NIGH_DURABLE != 0)?;
        Ok(0)
    })
}

/// Makes everything stable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_flush(disk: *mut nigh_disk) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed.
        unsafe { reference(disk) }?.session.flush()?;
        Ok(0)
    })
}

/// Calls `alter` with the session and a range.
///
/// # Safety
/// `disk` is null, or a handle that is not closed.
unsafe fn altered(
    disk: *mut nigh_disk,
    offset: u64,
    length: u64,
    alter: impl FnOnce(&Session, Range<u64>) -> Result<(), HostError>,
) -> c_int {
    entry(|| {
        // SAFETY: the caller's.
        let disk = unsafe { reference(disk) }?;
        disk.check()?;
        alter(&disk.session, range(offset, length)?)?;
        Ok(0)
    })
}

/// The range is no longer needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_trim(disk: *mut nigh_disk, offset: u64, length: u64) -> c_int {
    // SAFETY: nigh.h: a handle that is not closed.
    unsafe { altered(disk, offset, length, Session::trim) }
}

/// Makes the range read as zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_zero(disk: *mut nigh_disk, offset: u64, length: u64) -> c_int {
    // SAFETY: nigh.h: a handle that is not closed.
    unsafe { altered(disk, offset, length, Session::zero) }
}

/// The range will be read soon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_prefetch(disk: *mut nigh_disk, offset: u64, length: u64) -> c_int {
    // SAFETY: nigh.h: a handle that is not closed.
    unsafe { altered(disk, offset, length, Session::prefetch) }
}

/// Applies hints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_hint(disk: *mut nigh_disk, sidecar: *const c_char, length: usize) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a text of this length.
        let (disk, sidecar) = unsafe { (reference(disk)?, text(sidecar, length)?) };
        disk.check()?;
        disk.host.hint_all(disk.session.disk().name(), &[], sidecar)?;
        Ok(0)
    })
}
