//! Errors: a negative errno, and a text for each thread. Every entry of the library passes [`entry`].

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::nigh_host::{ChangeError, DiskError, HostError, StartError, Unwritten};
use nigh_backend::{OpenError, OpenErrorKind};

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Error {
    /// The errno, positive.
    pub(crate) code: c_int,
    text: Text,
}

#[derive(Debug)]
enum Text {
    Fixed(&'static CStr),
    Owned(CString),
}

thread_local! {
    static LAST: RefCell<Text> = const { RefCell::new(Text::Fixed(c"")) };
}

impl Error {
    pub(crate) fn new(code: c_int, text: impl Into<Vec<u8>>) -> Error {
        let mut text = text.into();
        text.retain(|byte| *byte != 0);
        Error { code, text: Text::Owned(CString::new(text).expect("it has no 0")) }
    }

    /// An error whose text needs no memory.
    pub(crate) const fn fixed(code: c_int, text: &'static CStr) -> Error {
        Error { code, text: Text::Fixed(text) }
    }

    pub(crate) const fn invalid(text: &'static CStr) -> Error {
        Error::fixed(libc::EINVAL, text)
    }

    pub(crate) const FORKED: Error =
        Error::fixed(libc::ECHILD, c"the cache belongs to the process that forked this one");
}

/// Runs the body of a function of the library. A panic ends here: the program is not Rust.
#[inline]
pub(crate) fn entry(run: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => keep(error),
        Err(_) => keep(Error::fixed(libc::EIO, c"a bug in nigh: an assertion failed, and the call was given up")),
    }
}

/// Keeps the text of an error; returns its negative errno.
#[cold]
fn keep(error: Error) -> c_int {
    let code = error.code;
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| last.replace(error.text));
    -code
}

/// The text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_error() -> *const c_char {
    let text = |last: &RefCell<Text>| match &*last.borrow() {
        Text::Fixed(text) => text.as_ptr(),
        Text::Owned(text) => text.as_ptr(),
    };
    LAST.try_with(text).unwrap_or(c"".as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `code` if it is an errno.
fn errno(code: c_int) -> c_int {
    if (1..4096).contains(&code) { code } else { libc::EIO }
}

fn of_host(error: &HostError) -> c_int {
    match error {
        HostError::NoDisk(_) => libc::ENOENT,
        HostError::Closed => libc::ESHUTDOWN,
        HostError::ReadOnly => libc::EROFS,
        HostError::InCallback => libc::EDEADLK,
        HostError::OutOfRange => libc::ERANGE,
        HostError::Forked => libc::ECHILD,
        HostError::PinRange => libc::EINVAL,
        HostError::TooManyPins => libc::ENOBUFS,
        HostError::BeingChanged => libc::EBUSY,
        HostError::Device(fault) => errno(fault.0),
        HostError::Lost(_) => libc::EIO,
        HostError::Late => libc::ETIMEDOUT,
        HostError::Poisoned(_) => libc::ENOTRECOVERABLE,
    }
}

fn of_opening(error: &OpenError) -> c_int {
    error.source.raw_os_error().map_or_else(
        || match error.kind {
            OpenErrorKind::NotFound => libc::ENOENT,
            OpenErrorKind::Denied => libc::EACCES,
            OpenErrorKind::Busy => libc::EBUSY,
            OpenErrorKind::Unsuitable | OpenErrorKind::System => libc::EINVAL,
        },
        errno,
    )
}

fn of_disk(error: &DiskError) -> c_int {
    match error {
        DiskError::Duplicate(_) => libc::EEXIST,
        DiskError::Open { source, .. } => of_opening(source),
        DiskError::OneFile { .. } | DiskError::OneWriter { .. } => libc::EBUSY,
        DiskError::Poisoned(_) => libc::ENOTRECOVERABLE,
        _ => libc::EINVAL,
    }
}

fn of_change(error: &ChangeError) -> c_int {
    match error {
        ChangeError::NoDisk(_) => libc::ENOENT,
        ChangeError::OpenedReadOnly(_) => libc::EROFS,
        ChangeError::Disk(error) => of_disk(error),
        ChangeError::Memory { .. } | ChangeError::MemoryMax { .. } => libc::ENOMEM,
        ChangeError::Unwritten(unwritten) => of_host(&unwritten.cause),
        ChangeError::Lost { .. } => libc::EIO,
        ChangeError::Busy(_) => libc::EBUSY,
        ChangeError::Stopping => libc::ESHUTDOWN,
        ChangeError::Poisoned(_) => libc::ENOTRECOVERABLE,
        _ => libc::EINVAL,
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Error {
        match error {
            HostError::Forked => Error::FORKED,
            HostError::TooManyPins => {
                Error::fixed(libc::ENOBUFS, c"the disk's handle has as many blocks pinned as it can")
            }
            HostError::BeingChanged => Error::fixed(libc::EBUSY, c"the blocks are being changed"),
            error => Error::new(of_host(&error), error.to_string()),
        }
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Error {
        let code = match &error {
            StartError::Disk(error) => of_disk(error),
            StartError::Memory { .. } => libc::ENOMEM,
            StartError::System(source) => source.raw_os_error().map_or(libc::EIO, errno),
            _ => libc::EINVAL,
        };
        Error::new(code, error.to_string())
    }
}

impl From<ChangeError> for Error {
    fn from(error: ChangeError) -> Error {
        Error::new(of_change(&error), error.to_string())
    }
}

/// The disks that could not be written at the end.
impl From<Vec<Unwritten>> for Error {
    fn from(unwritten: Vec<Unwritten>) -> Error {
        let texts: Vec<String> = unwritten.iter().map(ToString::to_string).collect();
        Error::new(unwritten.first().map_or(libc::EIO, |first| of_host(&first.cause)), texts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> &'static str {
        // SAFETY: the text is valid until the next error of this thread, and each caller compares it before.
        unsafe { CStr::from_ptr(nigh_error()) }.to_str().unwrap()
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(last(), "");
        assert_eq!(entry(|| panic!("induced")), -libc::EIO);
        assert!(last().contains("a bug in nigh"), "{}", last());
        assert_eq!(entry(|| Ok(3)), 3);
        assert_eq!(entry(|| Err(Error::new(libc::EBUSY, "a\0b"))), -libc::EBUSY);
        assert_eq!(last(), "ab");
        assert_eq!(std::thread::spawn(|| last().to_owned()).join().unwrap(), "", "each thread has its own");
    }

    #[test]
    fn every_error_is_an_errno() {
        assert_eq!(of_host(&HostError::Device(::nigh_host::Fault(libc::ENOSPC))), libc::ENOSPC);
        assert_eq!(of_host(&HostError::Device(::nigh_host::Fault(-1))), libc::EIO);
        assert_eq!(of_host(&HostError::Device(::nigh_host::Fault(70_000))), libc::EIO);
    }
}
