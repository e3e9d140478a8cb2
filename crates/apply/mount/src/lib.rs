//! Files behind the cache: a FUSE mount of a folder on a slow or remote file system.

#![doc = include_str!("../README.md")]

mod attributes;
mod caller;
mod device;
mod directory;
mod error;
mod file;
mod files;
mod handle;
mod handles;
mod inodes;
mod mounted;
mod place;
mod ranges;
mod reading;
mod settings;
mod shared;
mod source;
mod tree;
mod volume;
mod writing;

pub use error::MountError;
pub use mounted::{Ended, Mount, Prepared, READERS};
pub use settings::MountSettings;
