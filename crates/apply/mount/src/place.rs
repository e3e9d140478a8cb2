//! The place of a mount: whether source and place go together, and mounts that a killed process left behind.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fuser::MountOption;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as kernel_unmount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::attributes::Id;
use crate::error::MountError;
use crate::settings::MountSettings;
use crate::source;

/// The time between two time stamps of a file system that takes them from the kernel's clock ticks, at least 100 a second.
const TICK: Duration = Duration::from_millis(20);
/// File systems whose numbers of files are on stable storage, or the server's: those of [`FINE_TYPES`], NFS, F2FS, ZFS, Ceph, Lustre, GFS2 and
/// OCFS2.
const LASTING_TYPES: [u64; 11] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x6969,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x0116_1970,
    0x7461_636f,
];
/// As many descriptors are used at most, whatever the system allows.
const DESCRIPTORS_MOST: usize = 1 << 20;
/// The beginning of the names of our devices.
const DEVICE: &str = "nigh:";
/// The first kernel that gives each change a time of its own, once somebody has looked at the previous one.
const FINE: (u32, u32) = (6, 13);
/// File systems for which it does: ext4, XFS, Btrfs and tmpfs.
const FINE_TYPES: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Opens the source, and returns it with the absolute path of the place.
pub(crate) fn check(settings: &MountSettings, own: &[&Path]) -> Result<(OwnedFd, PathBuf), MountError> {
    let of_source = |error| MountError::Source { path: settings.source.clone(), error };
    let at = clear(&settings.at)?;
    let source = settings.source.canonicalize().map_err(of_source)?;
    let nested = || MountError::Nested { folder: source.clone(), at: at.clone() };
    if source.starts_with(&at) || at.starts_with(&source) {
        return Err(nested());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, &source, flags, Mode::empty()).map_err(|error| of_source(error.into()))?;
    // The same folder by another path, as of a bind mount.
    let id = |path: &Path| source::stat_at(CWD, path.as_os_str()).map(|stat| Id::of(&stat));
    let (source_id, at_id) = (id(&source).map_err(of_source)?, id(&at).map_err(|error| of_place(&at, error))?);
    let contains = |path: &Path, folder: Id| path.ancestors().any(|above| id(above).is_ok_and(|id| id == folder));
    if contains(&at, source_id) || contains(&source, at_id) {
        return Err(nested());
    }
    for path in own {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if folder.canonicalize().is_ok_and(|folder| folder.starts_with(&at)) {
            return Err(MountError::Own { path: path.to_path_buf(), at });
        }
    }
    Ok((opened, at))
}

fn of_place(path: &Path, error: io::Error) -> MountError {
    MountError::Place { path: path.to_owned(), error }
}

/// The absolute path of the place, after a mount of ours that nobody serves any more was removed.
fn clear(at: &Path) -> Result<PathBuf, MountError> {
    // The last component may be unreachable, but not those above.
    let absolute = || {
        let name = at.file_name();
        let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok::<_, io::Error>(
            name.map_or(folder.canonicalize()?, |name| folder.canonicalize().unwrap_or_default().join(name)),
        )
    };
    // Several can lie on each other.
    for _ in 0..16 {
        let error = match std::fs::metadata(at) {
            Ok(found) if !found.is_dir() => return Err(of_place(at, Errno::NOTDIR.into())),
            Ok(_) => {
                let at = at.canonicalize().map_err(|error| of_place(at, error))?;
                let is_ours = mounts().is_ok_and(|mounts| mounts.iter().any(|mount| mount.is_ours() && mount.at == at));
                return if is_ours { Err(MountError::Busy(at)) } else { Ok(at) };
            }
            Err(error) => error,
        };
        if error.raw_os_error() != Some(Errno::NOTCONN.raw_os_error()) {
            return Err(of_place(at, error));
        }
        let path = absolute().map_err(|error| of_place(at, error))?;
        let mounts = mounts().map_err(|error| of_place(at, error))?;
        // The last one is on top.
        if !mounts.iter().rev().find(|mount| mount.at == path).is_some_and(Mounted::is_ours) {
            return Err(MountError::Foreign { path, error });
        }
        tracing::warn!(at = %path.display(), "removing the mount of a process that was killed");
        unmount(&path, true).map_err(|error| of_place(&path, error))?;
    }
    Err(of_place(at, Errno::BUSY.into()))
}

/// Unmounts. If `lazily`, programs keep the files that they have open, and new ones are not found any more.
pub(crate) fn unmount(at: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match kernel_unmount(at, flags | UnmountFlags::NOFOLLOW) {
        // Users unmount by a program that belongs to root.
        Err(Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mut command = Command::new("fusermount3");
    command.arg(if lazily { "-uzq" } else { "-uq" }).arg("--").arg(at);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(Errno::BUSY.into()) }
}

/// A line of the kernel's table of mounts.
struct Mounted {
    at: PathBuf,
    kind: String,
    device: String,
}

impl Mounted {
    fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse") && self.device.starts_with(DEVICE)
    }
}

/// The name of the device of a mount of ours, as `df` shows it: its source, after a prefix.
pub(crate) fn device(source: &Path) -> String {
    // Commas would separate options of the mount.
    format!("{DEVICE}{}", source.display()).replace([',', '\\'], "-")
}

fn mounts() -> io::Result<Vec<Mounted>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
}

/// A line of mountinfo: numbers, the root, the place, options, `-`, the type and the device. Blanks in paths are `\040`.
fn parse_mount(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
    let at = PathBuf::from(OsString::from_vec(unescape(fields.get(4)?)));
    Some(Mounted { at, kind: text(dash + 1)?, device: text(dash + 2)? })
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let digits = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    plain
}

/// Allows this process as many descriptors as it may have, and returns how many: each file that the kernel knows takes one.
pub(crate) fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // It is permitted; otherwise fewer files can be known at a time.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.map_or(DESCRIPTORS_MOST, |limit| limit.min(DESCRIPTORS_MOST as u64) as usize)
}

/// The time within which two changes of a file of the source may leave the same time stamp.
pub(crate) fn tick(source: impl AsFd) -> Duration {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|part| {
        let digits = part.find(|other: char| !other.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().unwrap_or(0)
    });
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let kind = rustix::fs::fstatfs(source).map_or(0, |stat| stat.f_type as u64);
    if version >= FINE && FINE_TYPES.contains(&kind) { Duration::ZERO } else { TICK }
}

/// Mount options for special files, as far as the source allows it and this process may.
pub(crate) fn rights(source: impl AsFd) -> io::Result<Vec<MountOption>> {
    let flags = rustix::fs::fstatvfs(source)?.f_flag;
    let is_root = rustix::process::geteuid().is_root();
    let mut options = Vec::new();
    for (flag, allows, refuses) in [
        (StatVfsMountFlags::NOSUID, MountOption::Suid, MountOption::NoSuid),
        (StatVfsMountFlags::NODEV, MountOption::Dev, MountOption::NoDev),
        (StatVfsMountFlags::NOEXEC, MountOption::Exec, MountOption::NoExec),
    ] {
        let is_allowed = !flags.contains(flag) && (is_root || allows == MountOption::Exec);
        options.push(if is_allowed { allows } else { refuses });
    }
    Ok(options)
}

/// Whether a file has its number for as long as it exists. Otherwise, as on FUSE, a file that nobody has open may get another one, and a
/// second file the first one's.
pub(crate) fn keeps_numbers(source: impl AsFd) -> bool {
    rustix::fs::fstatfs(source).is_ok_and(|stat| LASTING_TYPES.contains(&(stat.f_type as u64)))
}

/// Whether the file system of the source has ACLs.
pub(crate) fn has_acls(source: impl AsFd) -> bool {
    let mut value = [0; 4096];
    let got = rustix::fs::getxattr(source::path(source), "system.posix_acl_access", &mut value[..]);
    !matches!(got, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_of_mounts() {
        let line = br"36 35 0:41 / /mnt/a\040b rw,nosuid - fuse nigh:/src rw,user_id=0";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.at, Path::new("/mnt/a b"));
        assert!(mount.is_ours());
        let optional = br"36 35 0:41 / /mnt rw shared:1 master:2 - ext4 /dev/vda rw";
        let mount = parse_mount(optional).unwrap();
        assert_eq!((mount.at.as_path(), mount.kind.as_str()), (Path::new("/mnt"), "ext4"));
        assert!(parse_mount(b"").is_none() && parse_mount(b"1 2 3 4 5 6 7").is_none());
    }

    #[test]
    fn escapes_of_the_table_of_mounts() {
        assert_eq!(unescape(br"a\040b\134c\"), br"a b\c\");
        assert_eq!(unescape(br"\9zz"), br"\9zz");
    }
}
