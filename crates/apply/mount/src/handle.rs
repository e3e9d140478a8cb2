//! A file that a program has open.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use fuser::BackingId;
use nigh_host::Session;

use crate::file::File;

/// An open file.
pub(crate) struct Handle {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
    /// `None` if it was opened without a call to the source.
    pub(crate) opened: Option<Arc<OwnedFd>>,
    /// For programs that only append: the source decides where.
    pub(crate) append: Option<OwnedFd>,
    /// `None` for a file that is not cached.
    pub(crate) session: Option<Session>,
    /// The file that the kernel reads and writes in place of this process.
    pub(crate) backing: OnceLock<Arc<BackingId>>,
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
}
