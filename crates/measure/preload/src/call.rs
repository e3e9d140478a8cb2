//! A call that is about to be made, and the errno that it leaves.

use std::ffi::c_int;

use nigh_ring::Kind;

use crate::kernel;

/// A call that may be recorded.
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) fd: c_int,
    pub(crate) asked: u64,
    /// `None`: at the descriptor's position.
    pub(crate) offset: Option<u64>,
    /// Of the call.
    pub(crate) rsp: u64,
    pub(crate) rbp: u64,
}

impl Call {
    /// The offset in the file at which the call begins, before it is made; `None` if that cannot be asked.
    pub(crate) fn offset(&self) -> Option<u64> {
        let arguments = [self.fd.into(), 0, libc::SEEK_CUR.into()];
        // SAFETY: a plain call.
        let position = || unsafe { kernel::call(libc::SYS_lseek, arguments) };
        self.offset.or_else(|| kernel::may(libc::SYS_lseek).then(|| position().max(0) as u64))
    }
}

/// This thread's errno, which recording must not change.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn save() -> Errno {
        // SAFETY: the pointer is valid in every thread.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn value(&self) -> c_int {
        self.0
    }

    pub(crate) fn restore(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
