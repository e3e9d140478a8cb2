//! Programs that can be recorded: finds the program, and refuses those that would not load the library.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program that can be recorded.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
}

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecordable {
    /// There is no such program.
    #[error("{name}: no such program on the PATH")]
    NotFound {
        /// The name given.
        name: String,
    },
    /// Its file cannot be read.
    #[error("{}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It is not linked against shared libraries.
    #[error("{}: the program is statically linked, so the recording library cannot be loaded into it", path.display())]
    Static {
        /// The file.
        path: PathBuf,
    },
    /// It runs with the rights of its file's owner or group, who is another.
    #[error("{}: the program is setuid or setgid, so the system loads no recording library into it", path.display())]
    SetUser {
        /// The file.
        path: PathBuf,
    },
    /// This build has no recording library for this machine.
    #[error("this build of nigh records programs on x86-64 Linux with the GNU C library only")]
    Machine,
}

impl Program {
    /// Finds the program called `name`, as a shell would, and checks that it can be recorded.
    pub fn find(name: &str) -> Result<Program, Unrecordable> {
        let path = if name.contains('/') {
            PathBuf::from(name)
        } else {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path));
            found.ok_or_else(|| Unrecordable::NotFound { name: name.to_owned() })?
        };
        let unreadable = |source| Unrecordable::Unreadable { path: path.clone(), source };
        let file = open_file(&path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if (about.mode() & 0o4000 != 0 && about.uid() != user) || (about.mode() & 0o2000 != 0 && about.gid() != group) {
            return Err(Unrecordable::SetUser { path });
        }
        match interpreter(&file).map_err(unreadable)? {
            Some(Linked::Statically) => Err(Unrecordable::Static { path }),
            _ => Ok(Program { path }),
        }
    }

    /// The program's name, without its folder.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// Opens a file that a recorded program may have named: anything else could be waited for, such as a pipe.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"))
    }
}

/// Whether there is a file that may be executed.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[derive(Debug, PartialEq, Eq)]
enum Linked {
    Dynamically,
    Statically,
}

/// How an ELF program of 64 bits is linked; `None` for other files, such as scripts.
fn interpreter(file: &File) -> io::Result<Option<Linked>> {
    const HEADER_BYTES: usize = 64;
    const INTERP: u32 = 3;
    let mut header = Vec::new();
    let mut beginning = file;
    (&mut beginning).take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut whole = [0; 8];
        whole.get_mut(..bytes)?.copy_from_slice(header.get(at..at + bytes)?);
        Some(u64::from_le_bytes(whole))
    };
    let is_elf = header.starts_with(b"\x7fELF\x02\x01");
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else { return Ok(None) };
    if !is_elf {
        return Ok(None);
    }
    for at in 0..count {
        let mut kind = [0; 4];
        let Some(place) = at.checked_mul(size).and_then(|offset| table.checked_add(offset)) else { break };
        if file.read_exact_at(&mut kind, place).is_err() {
            break;
        }
        if u32::from_le_bytes(kind) == INTERP {
            return Ok(Some(Linked::Dynamically));
        }
    }
    Ok(Some(Linked::Statically))
}

/// The name of a module without its folder and what changes between runs.
pub(crate) fn base_name(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    Path::new(&path).file_name().map_or_else(|| path.clone(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(Program::find("sh").unwrap().name(), "sh");
        assert!(matches!(Program::find("no-such-program"), Err(Unrecordable::NotFound { .. })));
        assert!(matches!(Program::find("/no/such/program"), Err(Unrecordable::Unreadable { .. })));
        let own = std::env::current_exe().unwrap();
        assert!(Program::find(own.to_str().unwrap()).is_ok(), "this test is linked dynamically");
    }

    #[test]
    fn files_that_the_library_is_not_loaded_into_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64, 0);
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf.extend([1, 0, 0, 0]);
        std::fs::write(&path, &elf).unwrap();
        assert!(matches!(Program::find(path.to_str().unwrap()), Err(Unrecordable::Static { .. })));
        elf[64] = 3;
        std::fs::write(&path, &elf).unwrap();
        assert!(Program::find(path.to_str().unwrap()).is_ok());
        std::fs::write(&path, b"#!/bin/sh\n").unwrap();
        assert!(Program::find(path.to_str().unwrap()).is_ok(), "a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(Program::find(path.to_str().unwrap()).is_ok(), "it runs with the same rights");
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(matches!(Program::find(path.to_str().unwrap()), Err(Unrecordable::SetUser { .. })));
    }
}
