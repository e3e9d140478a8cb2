//! Requests to a disk: the kernel's block tracepoints, read through a private instance of tracefs.

#![doc = include_str!("../README.md")]
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing))]

mod disk;
mod format;
mod instance;
mod page;
mod pairs;
mod tracer;

use std::io;
use std::path::PathBuf;

pub use disk::{Disk, Kind, SECTOR_BYTES};
pub use format::{Field, Layout};
pub use page::{Events, Shape};
pub use pairs::{Io, Pairs};
pub use tracer::Tracer;

/// Why a disk cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path is no block device.
    #[error("{}: not a block device, such as /dev/vda or /dev/nvme0n1p2", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
    },
    /// The process may not use tracefs.
    #[error("tracefs: the block tracepoints can be read by root only (CAP_SYS_ADMIN)")]
    NotPermitted,
    /// The kernel has no tracefs.
    #[error("this kernel has no tracefs")]
    NoTracefs,
    /// The kernel does not have a tracepoint.
    #[error("this kernel has no tracepoint block:{event}")]
    NoEvent {
        /// The tracepoint.
        event: &'static str,
    },
    /// The kernel's description of an event or a page, or a page itself, is not as expected.
    #[error("{what}: found {found}, expected {expected}")]
    Unexpected {
        /// Its name.
        what: String,
        /// Its content.
        found: String,
        /// The expected content.
        expected: &'static str,
    },
    /// A file of tracefs or sysfs cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// Its name.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
