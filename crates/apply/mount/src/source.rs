//! Descriptors of the source. Names are resolved only below open folders, a component at a time and without following links, so what others
//! move in the source never leads out of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawMode, Stat, openat};

/// A descriptor that stands for the file `name` in `folder`, and can be reopened.
pub(crate) fn find(folder: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// The path of an open file in /proc: calls that take a path reach the file by it, whatever its name is now.
pub(crate) fn path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Opens the same file again.
pub(crate) fn reopen(file: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path(file), flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Creates a file, or opens it if there is one.
pub(crate) fn create(folder: impl AsFd, name: &OsStr, flags: OFlags, mode: RawMode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::from_raw_mode(mode))?)
}

/// The attributes of an open file.
pub(crate) fn stat(file: impl AsFd) -> io::Result<Stat> {
    Ok(rustix::fs::fstat(file)?)
}

/// The attributes of the file `name` in `folder`.
pub(crate) fn stat_at(folder: impl AsFd, name: &OsStr) -> io::Result<Stat> {
    Ok(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)
}
