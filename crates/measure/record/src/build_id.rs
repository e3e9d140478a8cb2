//! Which build of a program or library a file is.

use std::fmt::Write;
use std::path::Path;

use object::read::{Object, ReadCache};

use crate::program::open_file;

/// The build id of the program or library at `path`, in hexadecimal digits, as its linker wrote it; `None` if there is none.
pub fn build_id(path: &Path) -> Option<String> {
    let cache = ReadCache::new(open_file(path).ok()?);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    let digits = id.iter().take(64).fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    (!digits.is_empty()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    #[test]
    fn programs_have_one() {
        let libraries = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = libraries.lines().find_map(|line| line.split_whitespace().find(|word| word.contains("/libc.so")));
        let Some(libc) = libc else { return println!("skipped: programs_have_one: no GNU C library") };
        let id = build_id(Path::new(libc)).unwrap();
        assert!(id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(build_id(Path::new("/dev/null")), None);
        assert_eq!(build_id(Path::new("/no/such/file")), None);
    }

    /// A recorded program names any path: a pipe without a writer is not waited for.
    #[test]
    fn only_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let (answers, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || answers.send((build_id(&pipe), Program::find(pipe.to_str().unwrap()).is_err())));
        assert_eq!(answer.recv_timeout(std::time::Duration::from_secs(10)), Ok((None, true)));
    }
}
