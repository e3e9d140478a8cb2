//! The protocol's error numbers.

use std::io::ErrorKind;

/// An error of the transmission phase, with the protocol's own number whatever the platform's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Errno {
    /// Operation not permitted: a write to a read-only export.
    #[error("operation not permitted (EPERM)")]
    Perm = 1,
    /// Input or output error of the device.
    #[error("input/output error (EIO)")]
    Io = 5,
    /// Out of memory.
    #[error("cannot allocate memory (ENOMEM)")]
    NoMem = 12,
    /// The request makes no sense: unknown, misaligned, or a read past the end.
    #[error("invalid argument (EINVAL)")]
    Inval = 22,
    /// A write past the end, or the device is full.
    #[error("no space left on device (ENOSPC)")]
    NoSpc = 28,
    /// The read is too large to be sent in one chunk.
    #[error("value too large (EOVERFLOW)")]
    Overflow = 75,
    /// The zeroes would be as slow as a write; only in reply to FAST_ZERO.
    #[error("operation not supported (ENOTSUP)")]
    NotSup = 95,
    /// The server is shutting down.
    #[error("server is shutting down (ESHUTDOWN)")]
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The error of a number on the wire; the protocol has clients treat unknown ones as EINVAL.
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        }
    }
}

/// The reply of a server whose storage fails this way. EDQUOT and EFBIG become ENOSPC, as the protocol asks; errors
/// without a number of the protocol become EIO.
impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Perm,
            ErrorKind::OutOfMemory => Self::NoMem,
            ErrorKind::InvalidInput => Self::Inval,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Self::NoSpc,
            ErrorKind::Unsupported => Self::NotSup,
            _ => Self::Io,
        }
    }
}
