//! Locks on files, so that nobody serves one twice, and who has them.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::process::{has_ended, state};

/// How long a lock is waited for that a process left behind.
const FAREWELL: Duration = Duration::from_secs(5);
/// Interval between two checks of it.
const GLANCE: Duration = Duration::from_millis(5);

/// Locks the image `file`, for one writer or for any number of readers, also against QEMU and its tools.
pub(crate) fn lock_image(file: &File, shared: bool) -> Result<(), TryLockError> {
    lock(file, shared)?;
    match image::lock(file, shared) {
        Ok(true) => Ok(()),
        Ok(false) => {
            unlock_image(file);
            Err(TryLockError::WouldBlock)
        }
        Err(error) => {
            let _ = image::unlock(file);
            Err(TryLockError::Error(error))
        }
    }
}

/// Errors are ignored: they mean that the file was not locked.
pub(crate) fn unlock_image(file: &File) {
    let _ = image::unlock(file);
    let _ = file.unlock();
}

/// Locks `file`, for one writer or for any number of readers. It waits for operations of a killed process that are still under way.
pub(crate) fn lock(file: &File, shared: bool) -> Result<(), TryLockError> {
    let begin = Instant::now();
    loop {
        match if shared { file.try_lock_shared() } else { file.try_lock() } {
            Err(TryLockError::WouldBlock) if begin.elapsed() < FAREWELL && is_left_behind(file) => {
                std::thread::sleep(GLANCE);
            }
            locked => return locked,
        }
    }
}

/// Whether no process that lives is known to have locked `file`.
fn is_left_behind(file: &File) -> bool {
    let holder = file.metadata().ok().and_then(|metadata| holder(&metadata));
    holder.is_none_or(|process| match state(&process) {
        Ok((state, _)) => has_ended(state),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

/// The error of `file` if a process that lives has locked it. Takes the locks for a moment otherwise, until `file` is closed.
pub(crate) fn check(file: &File, shared: bool) -> io::Result<()> {
    let is_taken = match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => image::lock(file, shared).is_ok_and(|locked| !locked),
        Err(TryLockError::WouldBlock) => !is_left_behind(file),
        Err(TryLockError::Error(_)) => false,
    };
    if !is_taken {
        return Ok(());
    }
    // Its own lock is not the one that is in the way.
    unlock_image(file);
    Err(in_use(&file.metadata()?))
}

/// The process that has locked a file with `flock`, if the system reports it.
fn holder(metadata: &Metadata) -> Option<String> {
    let id = id(metadata);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&id.as_str())).then(|| fields[4].to_owned())
    })
}

/// A file as `/proc/locks` names it.
fn id(metadata: &Metadata) -> String {
    let device = metadata.dev();
    format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), metadata.ino())
}

/// The error of a file that somebody else has locked.
pub(crate) fn in_use(metadata: &Metadata) -> io::Error {
    let who = holder(metadata).map(|process| format!("process {process}")).or_else(|| image::holder(&id(metadata)));
    let who = who.unwrap_or_else(|| "another process".to_owned());
    let message = format!(
        "{who} has it open, and may change it: end that process, or risk wrong data with the target unlocked:PATH"
    );
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// QEMU's locks on images: shared locks of single bytes, by open file description, whatever data the bytes have. One byte stands for each
/// right that is used, and another one for each right that nobody else may use. QEMU's part is in its `block/file-posix.c`;
/// `/proc/locks` shows the bytes.
mod image {
    use std::fs::File;
    use std::io;

    use crate::kernel::{is_locked, share, unlock as unlock_bytes};

    const USED: i64 = 100;
    const FORBIDDEN: i64 = 200;
    const READ: i64 = 0;
    const WRITE: i64 = 1;
    const RESIZE: i64 = 3;
    /// Beyond all of them.
    const END: i64 = 300;

    /// Locks `file`, so that no other program that respects these locks writes or resizes it. Returns false if another's lock is in the way.
    pub(super) fn lock(file: &File, shared: bool) -> io::Result<bool> {
        let used = if shared { &[READ][..] } else { &[READ, WRITE] };
        let forbidden = &[WRITE, RESIZE];
        for at in used.iter().map(|right| USED + right).chain(forbidden.iter().map(|right| FORBIDDEN + right)) {
            share(file, at..at + 1)?;
        }
        // After the locks are taken: of two that begin at once, at least one sees the other.
        for at in used.iter().map(|right| FORBIDDEN + right).chain(forbidden.iter().map(|right| USED + right)) {
            if is_locked(file, at..at + 1)? {
                unlock(file)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        unlock_bytes(file, USED..END)
    }

    /// A process with such locks on the file `id`, by its number and name, as far as this process may see that.
    pub(super) fn holder(id: &str) -> Option<String> {
        let is_lock = |line: &str| line.contains("OFDLCK") && line.split_whitespace().any(|word| word == id);
        std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let process: u32 =
                entry.file_name().to_str()?.parse().ok().filter(|process| *process != std::process::id())?;
            let mut descriptors = std::fs::read_dir(entry.path().join("fdinfo")).ok()?.flatten();
            descriptors.find(|descriptor| {
                std::fs::read_to_string(descriptor.path()).is_ok_and(|text| text.lines().any(is_lock))
            })?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            Some(format!("process {process} ({})", name.trim_end()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_lock_that_is_left_behind_is_waited_for() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        // The process that locked it ends, and what it started goes on.
        let left = Command::new("flock").arg(&*path).args(["-c", "sleep 0.3 &"]).status().unwrap();
        assert!(left.success());
        let file = open();
        assert!(matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
        lock(&file, false).unwrap();
        let begin = Instant::now();
        assert!(matches!(lock(&open(), true), Err(TryLockError::WouldBlock)));
        assert!(begin.elapsed() < FAREWELL / 2, "its process lives");
    }
}
