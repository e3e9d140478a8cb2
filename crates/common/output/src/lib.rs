//! Files that users name for output: what they may replace, and how they appear whole.
#![doc = include_str!("../README.md")]

mod destination;
mod draft;

use std::io;
use std::path::PathBuf;

pub use destination::Destination;
pub use draft::{Draft, is_growing};

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It would replace a file.
    #[error("{}: the file exists; add --force to replace it", .0.display())]
    Exists(PathBuf),
    /// It would replace a file that the command reads.
    #[error("{}: this file is read; write to another one", .0.display())]
    Read(PathBuf),
    /// A disk is there.
    #[error("{}: this is a block device; name a file", .0.display())]
    BlockDevice(PathBuf),
    /// Others may have made the link, or may change it.
    #[error("{}: a symbolic link in a folder that other users can write to; name the file that it points to", .0.display())]
    Link(PathBuf),
    /// A folder is there.
    #[error("{}: this is a folder; name a file in it", .0.display())]
    IsFolder(PathBuf),
    /// Its folder does not exist.
    #[error("{}: there is no folder {}; create it first", path.display(), folder.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// Another process writes it.
    #[error("{}: another process is writing this file", .0.display())]
    Busy(PathBuf),
    /// A pipe or device, where only a file can grow.
    #[error("{}: this is no regular file, and a recording needs one", .0.display())]
    NotRegular(PathBuf),
    /// The system refused.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
