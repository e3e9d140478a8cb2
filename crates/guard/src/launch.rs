//! Programs in groups of their own: what is to be protected must be in one from its start, because memory stays charged where it
//! was first used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::tree::{Tree, TreeError, Version};

/// Why a program was not started in a group of its own.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There are no memory cgroups.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The group cannot be made, or not be entered.
    #[error("{}: {source}", path.display())]
    Group {
        /// Which folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Its end cannot be waited for.
    #[error("waiting for the program: {0}")]
    Wait(io::Error),
}

/// A group, made for one program, in each hierarchy where it is needed.
struct OwnGroup {
    /// Its folders, and where this process was before.
    folders: Vec<(PathBuf, PathBuf)>,
}

/// Runs `command` to its end in the new group `within/name` of the cgroups mounted at `cgroupfs`. SIGTERM and SIGHUP are handed on to it;
/// SIGINT comes to it from the terminal.
///
/// # Errors
/// Where the group or the program cannot be made; the group is removed then.
pub fn run_in_group(
    cgroupfs: &Path,
    procfs: &Path,
    within: &str,
    name: &str,
    command: &mut Command,
) -> Result<ExitStatus, LaunchError> {
    let group = OwnGroup::make(cgroupfs, procfs, within, name)?;
    let signals = Signals::new([SIGCHLD, SIGTERM, SIGHUP, SIGINT]).map_err(LaunchError::Wait)?;
    // A child is born where its parent is, and all that it ever uses is charged there.
    group.enter()?;
    let child = command.spawn();
    group.leave();
    let program = command.get_program().to_string_lossy().into_owned();
    let child = child.map_err(|source| LaunchError::Start { program, source });
    let status = child.and_then(|child| wait(child, signals).map_err(LaunchError::Wait));
    group.remove();
    status
}

fn wait(mut child: Child, mut signals: Signals) -> io::Result<ExitStatus> {
    let id = Pid::from_child(&child);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.wait() {
            let handed_on = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                _ => continue,
            };
            // Fails where it has ended, which the next round sees.
            let _ = kill_process(id, handed_on);
        }
    }
}

impl OwnGroup {
    fn make(cgroupfs: &Path, procfs: &Path, within: &str, name: &str) -> Result<OwnGroup, LaunchError> {
        let tree = Tree::open(cgroupfs, "")?;
        let within = within.trim_matches('/');
        let memory = tree.file("", "");
        let mut group = OwnGroup { folders: Vec::new() };
        let roots = match tree.version() {
            Version::V2 => vec![(memory, "")],
            Version::V1 => vec![(memory, "memory"), (cgroupfs.join("freezer"), "freezer")],
        };
        for (root, controller) in roots.into_iter().filter(|(root, _)| root.is_dir()) {
            let before = root.join(own(procfs, controller).unwrap_or_default().trim_start_matches('/'));
            let made = make_group(&root, within, name, tree.version());
            match made {
                Ok(folder) => group.folders.push((folder, before)),
                Err(error) => {
                    group.remove();
                    return Err(error);
                }
            }
        }
        Ok(group)
    }

    fn enter(&self) -> Result<(), LaunchError> {
        for (folder, _) in &self.folders {
            if let Err(error) = move_to(folder) {
                self.leave();
                self.remove();
                return Err(error);
            }
        }
        Ok(())
    }

    fn leave(&self) {
        for (_, before) in &self.folders {
            if let Err(error) = move_to(before) {
                tracing::warn!("cannot go back: {error}");
            }
        }
    }

    fn remove(&self) {
        for (folder, _) in &self.folders {
            // Kept while what the program left behind runs in it.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn make_group(root: &Path, within: &str, name: &str, version: Version) -> Result<PathBuf, LaunchError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LaunchError::Group { path, source }
    };
    let mut folder = root.to_owned();
    for part in within.split('/').filter(|part| !part.is_empty()).chain([name]) {
        if version == Version::V2 {
            let file = folder.join("cgroup.subtree_control");
            let has_memory =
                fs::read_to_string(&file).is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"));
            if !has_memory {
                fs::write(&file, "+memory").map_err(failed(&file))?;
            }
        }
        folder.push(part);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder)(error)),
            _ => {}
        }
    }
    Ok(folder)
}

/// Moves this process, with all its threads.
fn move_to(folder: &Path) -> Result<(), LaunchError> {
    let file = folder.join("cgroup.procs");
    let write = || fs::File::options().write(true).open(&file).and_then(|mut to| io::Write::write_all(&mut to, b"0"));
    write().map_err(|source| LaunchError::Group { path: file.clone(), source })
}

/// The group in which this process is, of v1's `controller`, or of v2 if that is empty.
fn own(procfs: &Path, controller: &str) -> Option<String> {
    let text = fs::read_to_string(procfs.join("self/cgroup")).ok()?;
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}
