//! An instance of tracefs: buffers and events of its own, which nobody else's tracing sees.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{Error, Result};

/// Usual mount point of tracefs.
const USUAL: &str = "/sys/kernel/tracing";

/// More than any description that is read here.
const MOST_BYTES: usize = 64 << 10;

/// An instance, which is removed when it is dropped.
pub(crate) struct Instance {
    folder: PathBuf,
    root: PathBuf,
    /// tracefs itself, where it was not mounted.
    _mount: Option<OwnedFd>,
}

impl Instance {
    /// Creates an instance, and removes those of recorders that have ended.
    pub(crate) fn create() -> Result<Instance> {
        let (root, mount) = tracefs()?;
        let instances = root.join("instances");
        remove_stale(&instances);
        let pid = std::process::id();
        let folder = instances.join(name(pid, started(pid).unwrap_or(0)));
        // Several recordings of one process have one name.
        let folder = (0..).map(|number| folder.with_extension(number.to_string())).find(|folder| !folder.exists());
        let folder = folder.unwrap_or(instances);
        fs::create_dir(&folder).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted,
            _ => Error::Io { path: folder.clone(), source },
        })?;
        Ok(Instance { folder, root, _mount: mount })
    }

    /// The path of a file of the instance.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Writes `text` to a file of the instance.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        write(&self.path(file), text)
    }

    /// Reads a file of the instance.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        read(self.path(file))
    }

    /// Reads a file that all instances share.
    pub(crate) fn read_shared(&self, file: &str) -> Result<String> {
        read(self.root.join(file))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Some files of tracefs return their text to one read only: the first, which must have room for all of it.
fn read(path: PathBuf) -> Result<String> {
    let mut buffer = vec![0; MOST_BYTES];
    let mut read = || -> io::Result<String> {
        let mut file = File::open(&path)?;
        let mut text = Vec::new();
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into());
            }
            text.extend(buffer.iter().take(length));
        }
    };
    let result = read();
    result.map_err(|source| Error::Io { path, source })
}

fn write(path: &Path, text: &str) -> Result<()> {
    let written = File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| Error::Io { path: path.to_owned(), source })
}

fn remove(folder: &Path) {
    let _ = write(&folder.join("tracing_on"), "0");
    // It fails while somebody has a file of it open.
    let _ = fs::remove_dir(folder);
}

/// tracefs, and a descriptor that keeps it where it is not mounted.
fn tracefs() -> Result<(PathBuf, Option<OwnedFd>)> {
    if Path::new(USUAL).join("instances").is_dir() {
        return Ok((PathBuf::from(USUAL), None));
    }
    let attach = || -> rustix::io::Result<OwnedFd> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    };
    let mount = attach().map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => Error::NotPermitted,
        Errno::NODEV | Errno::NOSYS => Error::NoTracefs,
        error => Error::Io { path: PathBuf::from("tracefs"), source: error.into() },
    })?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())), Some(mount)))
}

/// The name of the instances of process `pid`, which was started at `started`.
fn name(pid: u32, started: u64) -> String {
    format!("nigh-{pid}-{started}")
}

/// When process `pid` was started, in ticks since the machine was; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether an instance has the name of a recorder that has ended.
fn is_stale(instance: &str) -> bool {
    let numbers = || -> Option<(u32, u64)> {
        let (pid, start) = instance.strip_prefix("nigh-")?.split_once('-')?;
        let start = start.split('.').next()?;
        Some((pid.parse().ok()?, start.parse().ok()?))
    };
    numbers().is_some_and(|(pid, start)| started(pid) != Some(start))
}

fn remove_stale(instances: &Path) {
    let found = fs::read_dir(instances).into_iter().flatten().flatten();
    found.filter(|entry| entry.file_name().to_str().is_some_and(is_stale)).for_each(|entry| remove(&entry.path()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_ended_recorders_are_stale() {
        let pid = std::process::id();
        let start = started(pid).unwrap();
        assert!(!is_stale(&format!("{}.0", name(pid, start))));
        assert!(is_stale(&format!("{}.3", name(pid, start + 1))), "another process had this number");
        assert!(is_stale(&name(u32::MAX, 1)));
        for foreign in ["nigh", "nigh-", "nigh-x-1", "nigh-1", "trace-cmd", "nigh-1-2x"] {
            assert!(!is_stale(foreign), "{foreign}");
        }
    }
}
