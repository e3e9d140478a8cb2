//! Attributes of files, as the source reports them and as the kernel wants them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{FileType as Type, Stat};

/// A file of the source: the device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Id {
    pub(crate) fn of(stat: &Stat) -> Id {
        Id { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Differs when the contents of a file may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    #[expect(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    pub(crate) fn of(stat: &Stat) -> Stamp {
        Stamp {
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    /// The time of the last change of the contents or attributes.
    pub(crate) fn changed(&self) -> SystemTime {
        time(self.changed.0, self.changed.1)
    }

    /// Whether its times have no parts of seconds, as on file systems with coarse time stamps.
    pub(crate) fn is_whole(&self) -> bool {
        self.changed.1 == 0 && self.modified.1 == 0
    }
}

/// A time since 1970, or before it.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    at.and_then(|at| at.checked_add(Duration::from_nanos(nanoseconds))).unwrap_or(UNIX_EPOCH)
}

/// The kind of a file, by its mode.
pub(crate) fn kind(kind: Type) -> FileType {
    match kind {
        Type::Directory => FileType::Directory,
        Type::Symlink => FileType::Symlink,
        Type::Fifo => FileType::NamedPipe,
        Type::Socket => FileType::Socket,
        Type::CharacterDevice => FileType::CharDevice,
        Type::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// The attributes of the file that the kernel knows by `number`.
#[expect(clippy::unnecessary_cast, reason = "the types differ between architectures")]
pub(crate) fn attributes(number: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
        mtime: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        ctime: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        crtime: UNIX_EPOCH,
        kind: kind(Type::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: device(stat.st_rdev),
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// The number of a device as the kernel encodes it for FUSE: 12 bits of the major number between the 20 of the minor one.
fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The reverse of [`device`].
pub(crate) fn device_of(encoded: u32) -> u64 {
    rustix::fs::makedev((encoded >> 8) & 0xfff, (encoded & 0xff) | ((encoded >> 12) & 0xfff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_survive() {
        for (major, minor) in [(1, 3), (8, 0), (259, 70_000), (4095, (1 << 20) - 1)] {
            let number = rustix::fs::makedev(major, minor);
            assert_eq!(device_of(device(number)), number, "{major}:{minor}");
        }
    }

    #[test]
    fn times_before_1970_are_times() {
        assert_eq!(time(-2, 500_000_000), UNIX_EPOCH - Duration::from_millis(1500));
        assert_eq!(time(3, 7), UNIX_EPOCH + Duration::new(3, 7));
    }
}
