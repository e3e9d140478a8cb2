//! Devices of the program's own: functions that perform requests.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ptr::null;
use std::sync::{Arc, OnceLock};

use ::nigh_host::{Custom, CustomAction, CustomDevice, CustomRequest, DiskSettings, Target};
use libc::iovec;

use crate::args::{flags, owned, reference, text};
use crate::error::{Error, entry};
use crate::host::nigh_host;
use crate::{
    NIGH_ACTION_DISCARD, NIGH_ACTION_FLUSH, NIGH_ACTION_READ, NIGH_ACTION_WRITE, NIGH_ACTION_ZERO, NIGH_READ_ONLY,
};

/// A device of the program's own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nigh_device {
    /// Size of this structure.
    pub size: usize,
    /// Name of the disk.
    pub name: *const c_char,
    /// Its bytes.
    pub name_length: usize,
    /// Threads that call it.
    pub threads: u32,
    /// 0 or [`NIGH_READ_ONLY`].
    pub flags: u32,
    /// The first argument of the functions.
    pub user: *mut c_void,
    /// The size in bytes.
    pub bytes: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    /// Performs a request.
    pub perform: Option<unsafe extern "C" fn(*mut c_void, *const nigh_request)>,
    /// The last call.
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A request to a device.
#[repr(C)]
pub struct nigh_request {
    /// One of `NIGH_ACTION_*`.
    pub action: u32,
    /// Number of parts.
    pub parts_count: u32,
    /// The first byte of the device.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Memory.
    pub parts: *const iovec,
    /// A [`Request`].
    pub opaque: *mut c_void,
}

/// A request until it is finished.
struct Request {
    shown: nigh_request,
    /// The memory that `shown` shows.
    _parts: Vec<iovec>,
    request: CustomRequest,
    forks: u32,
}

/// The functions of a device.
struct Functions {
    user: *mut c_void,
    bytes: unsafe extern "C" fn(*mut c_void) -> i64,
    perform: unsafe extern "C" fn(*mut c_void, *const nigh_request),
    /// Set when the disk is open.
    close: OnceLock<unsafe extern "C" fn(*mut c_void)>,
    forks: u32,
}

// SAFETY: nigh.h: the functions may be called by any thread.
unsafe impl Send for Functions {}
// SAFETY: likewise, by several at a time.
unsafe impl Sync for Functions {}

impl CustomDevice for Functions {
    fn size(&self) -> io::Result<u64> {
        // SAFETY: nigh.h: any thread may call it until `close`.
        let bytes = unsafe { (self.bytes)(self.user) };
        u64::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(error_of(bytes)))
    }

    fn perform(&self, request: CustomRequest) {
        let request = Box::into_raw(Request::new(request));
        // SAFETY: `shown` lives as long as the request, which the program finishes once.
        unsafe { (self.perform)(self.user, &raw const (*request).shown) };
    }
}

/// No request is in progress, and none follows.
impl Drop for Functions {
    fn drop(&mut self) {
        if let Some(close) = self.close.get()
            && self.forks == nigh_backend::forks()
        {
            // SAFETY: nigh.h: the last call.
            unsafe { close(self.user) };
        }
    }
}

/// The errno of a negative result.
fn error_of(result: i64) -> c_int {
    c_int::try_from(-result).ok().filter(|code| (1..4096).contains(code)).unwrap_or(libc::EIO)
}

impl Request {
    fn new(mut request: CustomRequest) -> Box<Request> {
        let range = request.range();
        let part = |start: *mut u8, length: usize| iovec { iov_base: start.cast(), iov_len: length };
        let (action, parts) = match request.action() {
            CustomAction::Read(slices) => {
                let parts = slices.into_iter().map(|mut slice| part(slice.as_mut_ptr(), slice.len()));
                (NIGH_ACTION_READ, parts.collect())
            }
            CustomAction::Write(slices) => {
                let parts = slices.iter().map(|slice| part(slice.as_ptr().cast_mut(), slice.len()));
                (NIGH_ACTION_WRITE, parts.collect())
            }
            CustomAction::Flush => (NIGH_ACTION_FLUSH, Vec::new()),
            CustomAction::Discard => (NIGH_ACTION_DISCARD, Vec::new()),
            CustomAction::Zero => (NIGH_ACTION_ZERO, Vec::new()),
        };
        let shown = nigh_request {
            action,
            parts_count: parts.len() as u32,
            offset: range.start,
            length: range.end - range.start,
            parts: if parts.is_empty() { null() } else { parts.as_ptr() },
            opaque: std::ptr::null_mut(),
        };
        let mut boxed = Box::new(Request { shown, _parts: parts, request, forks: nigh_backend::forks() });
        boxed.shown.opaque = (&raw mut *boxed).cast();
        boxed
    }
}

/// Opens a disk on a device of the program's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_add_device(host: *mut nigh_host, device: *const nigh_device) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a handle that is not closed, and a place that begins with its size.
        let (host, size) = unsafe { (reference(host)?, *reference(device.cast::<usize>())?) };
        host.check()?;
        if size < size_of::<nigh_device>() {
            return Err(Error::invalid(c"size: expected sizeof(nigh_device)"));
        }
        // SAFETY: it has as many bytes.
        let device = unsafe { reference(device) }?;
        flags(device.flags, NIGH_READ_ONLY)?;
        let (Some(bytes), Some(perform)) = (device.bytes, device.perform) else {
            return Err(Error::invalid(c"a device has the functions bytes and perform"));
        };
        if device.threads == 0 {
            return Err(Error::invalid(c"threads: expected at least 1"));
        }
        // SAFETY: nigh.h: a text of this length.
        let name = unsafe { text(device.name, device.name_length) }?;
        let (user, forks) = (device.user, nigh_backend::forks());
        let functions = Arc::new(Functions { user, bytes, perform, close: OnceLock::new(), forks });
        let target = Target::Custom(Custom::new(name, device.threads as usize, functions.clone()));
        let mut settings = DiskSettings::new(name, target);
        settings.read_only = device.flags & NIGH_READ_ONLY != 0;
        host.add(settings)?;
        if let Some(close) = device.close {
            functions.close.set(close).map_err(|_| Error::invalid(c"it is set once"))?;
        }
        Ok(0)
    })
}

/// A request is done or failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_finish(request: *const nigh_request, result: c_int) -> c_int {
    entry(|| {
        // SAFETY: nigh.h: a request that is not finished.
        let boxed: *mut Request = unsafe { reference(request) }?.opaque.cast();
        // SAFETY: `new` set it.
        if unsafe { reference(boxed) }?.forks != nigh_backend::forks() {
            return Err(Error::FORKED);
        }
        // SAFETY: likewise; it is the last call with it.
        let boxed = unsafe { owned(boxed) }?;
        boxed.request.finish(match result {
            0 => Ok(()),
            result => Err(io::Error::from_raw_os_error(error_of(result.into()))),
        });
        Ok(0)
    })
}
