//! Locks on files, so that nobody serves one twice, and who has them.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How long a lock is waited for that a process left behind.
const FAREWELL: Duration = Duration::from_secs(5);
/// Between two looks at it.
const GLANCE: Duration = Duration::from_millis(5);

/// Locks `file`, for one writer or for any number of readers. What a process that is gone still has under way is waited for.
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
    let program = |process: &String| std::fs::read_link(format!("/proc/{process}/exe"));
    // One that ended and was not waited for has no program either.
    holder.is_none_or(|process| program(&process).is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
}

/// The process that has locked a file, where the system tells it.
fn holder(metadata: &Metadata) -> Option<String> {
    let (device, inode) = (metadata.dev(), metadata.ino());
    let id = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&id.as_str())).then(|| fields[4].to_owned())
    })
}

/// The error of a file that somebody else has locked.
pub(crate) fn in_use(metadata: &Metadata) -> io::Error {
    let message = match holder(metadata) {
        Some(process) => format!("process {process} has it open, and two must not write it"),
        None => "another process has it open, and two must not write it".to_owned(),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, message)
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
