//! A folder for the processes' shared files, and the library beside it; removed at the end.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_ring::{BOARD_VARIABLE, Board, FILTERS_VARIABLE, FOLDER_VARIABLE, Reader, Told, Unseen};

use crate::program::base_name;
use crate::{Program, Unrecordable};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnigh_preload.so"));

/// Prefix of shared files that programs create, while a recorder reads them and after that.
const SHARED: &str = "shared-";
const ENDED: &str = "ended";

/// The folder of files that the recorder is reading.
pub(crate) const TAKEN: &str = "taken";

/// The library's name.
const LIBRARY_NAME: &str = "libnigh_preload.so";

/// Other users find what they know the name of: the library, and those of their programs that are recorded also the folder for shared
/// files, where they may create their own.
const NAMED: u32 = 0o711;
const SHARED_MODE: u32 = 0o1733;
const TAKEN_MODE: u32 = 0o700;
const LIBRARY_MODE: u32 = 0o755;

/// Characters of the shared folder's name that nobody guesses.
const SECRET: usize = 32;

/// Of AddressSanitizer, whose library ends programs that load another one before it.
const ADDRESS_SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order=0");

/// Of ThreadSanitizer, which sees only some of the library's accesses and reports them as races: a file with this line.
const THREAD_SANITIZER: (&str, &str) = ("TSAN_OPTIONS", "suppressions=");
const SUPPRESSIONS: &str = "called_from_lib:libnigh_preload.so\n";
const SUPPRESSIONS_NAME: &str = "suppressions";
const SUPPRESSIONS_MODE: u32 = 0o644;

/// File that advised programs share with nigh.
const BOARD: &str = "board";

/// A folder whose files have no disk behind them.
const MEMORY: &str = "/dev/shm";

/// The name of the folders begins so, and goes on with the recorder's process.
const PREFIX: &str = "nigh-record-";

/// The folder that recorded processes share with the recorder.
pub struct Session {
    folder: tempfile::TempDir,
    shared: PathBuf,
}

impl Session {
    /// Creates the folder, in memory if possible. Other users can load the library, and read nothing else. Folders of recorders that were killed are removed, wherever they
    /// are.
    pub fn new() -> io::Result<Session> {
        let memory = Path::new(MEMORY);
        sweep(memory);
        sweep(&std::env::temp_dir());
        let mut builder = tempfile::Builder::new();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
        let folder = if is_usable(memory) { builder.tempdir_in(memory) } else { builder.tempdir() };
        let folder = folder.or_else(|_| builder.tempdir())?;
        let shared = tempfile::Builder::new().prefix(SHARED).rand_bytes(SECRET).tempdir_in(folder.path())?.keep();
        let taken = folder.path().join(TAKEN);
        std::fs::create_dir(&taken)?;
        let library = folder.path().join(LIBRARY_NAME);
        std::fs::write(&library, LIBRARY)?;
        let suppressions = folder.path().join(SUPPRESSIONS_NAME);
        std::fs::write(&suppressions, SUPPRESSIONS)?;
        // Whatever the mask for new files is.
        for (path, mode) in [
            (&*shared, SHARED_MODE),
            (&taken, TAKEN_MODE),
            (&library, LIBRARY_MODE),
            (&suppressions, SUPPRESSIONS_MODE),
            (folder.path(), NAMED),
        ] {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(Session { folder, shared })
    }

    /// Removes the folder. If recorded programs still run, they go on without being recorded. The library remains for the
    /// programs that they start, until a later recorder finds that they have ended.
    pub fn end(self) -> io::Result<()> {
        if !is_any_running(self.folder.path()) {
            return self.folder.close();
        }
        let folder = self.folder.keep();
        // Programs that start now find no folder for a shared file.
        std::fs::rename(self.shared, folder.join(ENDED))
    }

    /// Folder of the processes' shared files.
    pub fn shared(&self) -> PathBuf {
        self.shared.clone()
    }

    /// The command that starts `program` with the recording library.
    pub fn command(&self, program: &Program) -> Result<Command, Unrecordable> {
        if LIBRARY.is_empty() {
            return Err(Unrecordable::Machine);
        }
        let mut command = Command::new(&program.path);
        let library = self.folder.path().join(LIBRARY_NAME);
        let others = std::env::var("LD_PRELOAD").ok();
        command.env("LD_PRELOAD", joined(others.as_deref(), &library.display().to_string()));
        command.env(FOLDER_VARIABLE, self.shared());
        command.env(FILTERS_VARIABLE, filters().to_string());
        let (variable, setting) = ADDRESS_SANITIZER;
        command.env(variable, joined(std::env::var(variable).ok().as_deref(), setting));
        let (variable, setting) = THREAD_SANITIZER;
        let others = std::env::var(variable).ok();
        // It reads one such file: a program's own stays.
        if others.as_ref().is_none_or(|others| !others.contains(setting)) {
            let file = self.folder.path().join(SUPPRESSIONS_NAME);
            command.env(variable, joined(others.as_deref(), &format!("{setting}{}", file.display())));
        }
        let board = self.folder.path().join(BOARD);
        // Without one, this may be a program of another session.
        command.env_remove(BOARD_VARIABLE);
        if board.exists() {
            command.env(BOARD_VARIABLE, board);
        }
        Ok(command)
    }

    /// Programs that [`Session::command`] starts after this get advice by this table of `entries` entries.
    pub fn advise(&self, told: Told, entries: usize, table: &[u8]) -> io::Result<Board> {
        Board::create(&self.folder.path().join(BOARD), told, entries, table)
    }

    /// Removes the shared files of processes that have ended, where nobody reads them. Returns the programs of those that got no advice,
    /// because they ran as other users.
    pub fn forget_ended(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for path in of_ended(&self.shared(), "") {
            let reader = shared_file(&path).and_then(|file| Reader::open(&file).ok().flatten());
            let reader = reader.filter(|reader| reader.has(Unseen::Process));
            missed.extend(reader.map(|reader| base_name(&reader.program())));
            let _ = std::fs::remove_file(path);
        }
        missed
    }
}

/// Opens a shared file, and nothing else that another user may have put in its place.
pub(crate) fn shared_file(path: &Path) -> Option<File> {
    let file =
        File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// How many filters of system calls this process has.
fn filters() -> u64 {
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    nigh_ring::filters(&status).unwrap_or(0)
}

/// Whether libraries can be loaded from there, and some hundred threads have room for their rings. A program that writes into a
/// ring without room is killed.
fn is_usable(memory: &Path) -> bool {
    const FREE_LEAST: u64 = 512 << 20;
    rustix::fs::statvfs(memory).is_ok_and(|found| {
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        free >= FREE_LEAST && !found.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
    })
}

/// Removes the folders in `memory` whose recorder has ended, and all programs that it recorded.
fn sweep(memory: &Path) {
    for path in of_ended(memory, PREFIX).filter(|path| !is_any_running(path)) {
        // It may be another user's.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Leftovers in `folder` of processes that have ended: their names are `prefix`, the process, `-` and a rest.
pub fn of_ended(folder: &Path, prefix: &str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        let (process, _) = name.to_str()?.strip_prefix(prefix)?.split_once('-')?;
        // A folder of another name is none of a recorder.
        (is_number(process) && !is_running(process)).then(|| entry.path())
    })
}

/// Whether a program runs that has a shared file in `folder`, or that will have one as soon as it starts: its environment
/// names the folder. The names of shared files begin with the process.
fn is_any_running(folder: &Path) -> bool {
    has_any_file(folder) || is_named(folder)
}

fn is_named(folder: &Path) -> bool {
    let name = folder.as_os_str().as_encoded_bytes();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    // Those of other users can be read by root, who alone can record them.
    let mut environments = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    environments.any(|environment| environment.windows(name.len()).any(|part| part == name))
}

fn has_any_file(folder: &Path) -> bool {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = folders.flat_map(|kind| std::fs::read_dir(kind.path()));
    let mut names = files.flatten().flatten().map(|entry| entry.file_name());
    names
        .any(|name| name.to_str().and_then(|name| name.split_once('-')).is_some_and(|(process, _)| is_running(process)))
}

fn is_running(process: &str) -> bool {
    // A zombie has ended, and may remain until the end of a parent that does not wait for it.
    let state = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'));
    is_number(process) && std::fs::read_to_string(Path::new("/proc").join(process).join("stat")).is_ok_and(state)
}

fn is_number(process: &str) -> bool {
    !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit())
}

/// A list in a variable of the environment: `last` after what it has anyway.
fn joined(others: Option<&str>, last: &str) -> String {
    match others.filter(|others| !others.is_empty()) {
        Some(others) => format!("{others}:{last}"),
        None => last.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_are_loaded_too() {
        assert_eq!(joined(None, "/a.so"), "/a.so");
        assert_eq!(joined(Some(""), "/a.so"), "/a.so");
        assert_eq!(joined(Some("/b.so:/c.so"), "/a.so"), "/b.so:/c.so:/a.so");
    }

    #[test]
    fn nothing_is_left() {
        let session = Session::new().unwrap();
        let folder = session.shared();
        assert!(folder.is_dir());
        session.end().unwrap();
        assert!(!folder.parent().unwrap().exists());
    }

    #[test]
    fn folders_without_programs_are_removed() {
        let memory = tempfile::tempdir().unwrap();
        let folder = |name: &str, running: &str| {
            let folder = memory.path().join(name);
            std::fs::create_dir_all(folder.join(ENDED)).unwrap();
            std::fs::write(folder.join(ENDED).join(running), "").unwrap();
            folder
        };
        let own = std::process::id();
        // No process has this number.
        let gone = 1_u32 << 30;
        let kept =
            [folder(&format!("{PREFIX}{gone}-a"), &format!("{own}-1")), folder(&format!("{PREFIX}{own}-b"), "1-1")];
        let removed = folder(&format!("{PREFIX}{gone}-c"), &format!("{gone}-1"));
        let other = folder("other", &format!("{gone}-1"));
        let named = folder(&format!("{PREFIX}of-mine"), &format!("{gone}-1"));
        sweep(memory.path());
        assert!(kept.iter().all(|folder| folder.exists()) && other.exists() && named.exists());
        assert!(!removed.exists());
    }

    /// A shell in the background that has not read anything yet.
    #[test]
    fn programs_that_will_use_the_library_keep_it() {
        let session = Session::new().unwrap();
        let folder = session.folder.path().to_owned();
        let mut shell = Command::new("sleep");
        let mut shell = shell.arg("60").env(FOLDER_VARIABLE, session.shared()).spawn().unwrap();
        // Between fork and exec, it still has this test's environment.
        while !is_named(&folder) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        session.end().unwrap();
        assert!(folder.join("libnigh_preload.so").exists());
        shell.kill().unwrap();
        shell.wait().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A program that goes on keeps its library.
    #[test]
    fn programs_that_still_run_keep_the_library() {
        let session = Session::new().unwrap();
        let folder = session.folder.path().to_owned();
        let shared = session.shared();
        std::fs::write(shared.join(format!("{}-1", std::process::id())), "").unwrap();
        session.end().unwrap();
        assert!(folder.join("libnigh_preload.so").exists() && !shared.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
