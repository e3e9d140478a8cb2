//! Why a folder cannot be mounted.

use std::io;
use std::path::PathBuf;

/// Why a folder cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The source cannot be opened.
    #[error("{}: {error}", .path.display())]
    Source {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no folder to mount at.
    #[error("{}: {error}; the folder to mount at has to exist", .path.display())]
    Place {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// One folder contains the other, or they are the same: requests would wait for themselves.
    #[error("{} and {} contain each other: mount at a folder outside of the source", .folder.display(), .at.display())]
    Nested {
        /// The folder with the files.
        folder: PathBuf,
        /// The folder to mount at.
        at: PathBuf,
    },
    /// A file that the server itself uses would be below the mount.
    #[error("{}: the server would wait for itself, since this is below {}", .path.display(), .at.display())]
    Own {
        /// The file.
        path: PathBuf,
        /// The folder to mount at.
        at: PathBuf,
    },
    /// Another file system of ours is mounted there and alive.
    #[error("{}: a nigh mount is there already", .0.display())]
    Busy(PathBuf),
    /// A file system of others is mounted there, and does not respond.
    #[error("{}: a file system that is not nigh's is mounted there, and does not respond: {error}", .path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Why it cannot be looked at.
        error: io::Error,
    },
    /// The kernel, or fusermount3, refuses.
    #[error("cannot mount at {}: {error}", .path.display())]
    Mount {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The export of the files is not open in the service.
    #[error("the cache has no disk {0}")]
    NoDisk(String),
}
