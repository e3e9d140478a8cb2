//! Programs in groups of their own: a program to be protected must be in one from its start, because memory stays
//! charged to the group that first used it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::beside::{Beside, Running, Summary};
use crate::made;
use crate::tree::{Tree, TreeError, Version};

/// Why a program was not started in a group of its own.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There are no memory cgroups.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// No part of the cgroups belongs to this user.
    #[error(
        "no memory cgroup is delegated to this user, so nothing can be protected: run this as root, or in a session of systemd"
    )]
    NotDelegated,
    /// The group cannot be created or entered.
    #[error("{}: {source}", path.display())]
    Group {
        /// The folder or file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The group has processes, so the memory controller cannot be enabled for groups below it.
    #[error(
        "{}: this group contains processes, and cgroup v2 allows child groups only in groups without processes: choose another group with --within",
        .0.display()
    )]
    HasProcesses(PathBuf),
    /// The program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// The name of the program.
        program: String,
        /// The error.
        source: io::Error,
    },
    /// Waiting for its end failed.
    #[error("waiting for the program: {0}")]
    Wait(io::Error),
}

/// A command to be run in a group of its own.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Mount point of the cgroups.
    pub cgroupfs: &'a Path,
    /// Mount point of the processes.
    pub procfs: &'a Path,
    /// The parent of the new group; `None` for a command that creates its own, such as `systemd-run --scope`.
    pub within: Option<&'a str>,
    /// The name of the new group.
    pub name: &'a str,
    /// The command.
    pub command: Command,
}

/// A group for one program, in each hierarchy that needs it.
struct OwnGroup {
    /// Its folders, and the previous group of this process.
    folders: Vec<(PathBuf, PathBuf)>,
    /// Those that were missing, with the groups above them.
    made: Vec<PathBuf>,
}

impl Launch<'_> {
    /// Runs the command to its end, guarded as `beside` describes. SIGTERM and SIGHUP are forwarded to it; SIGINT, SIGQUIT and SIGTSTP
    /// reach it from the terminal. Everything is restored before SIGTSTP stops this process.
    ///
    /// # Errors
    /// If the group cannot be created or the program cannot be started; the group is removed then.
    pub fn run(mut self, beside: &Beside) -> Result<(ExitStatus, Summary), LaunchError> {
        let ran = self.run_listed(beside);
        if let Err(error) = made::tidy(&beside.state) {
            tracing::warn!("groups may be left behind: {}: {error}", beside.state.display());
        }
        ran
    }

    fn run_listed(&mut self, beside: &Beside) -> Result<(ExitStatus, Summary), LaunchError> {
        let mut group = OwnGroup { folders: Vec::new(), made: Vec::new() };
        let made = self.within.map(|within| group.make(self.cgroupfs, self.procfs, within, self.name)).transpose();
        let listed = made::make_state(&beside.state).and_then(|()| made::add(&beside.state, &group.made));
        if let Err(error) = &listed {
            tracing::warn!("groups may be left behind: {}: {error}", beside.state.display());
        }
        let ran = made.and_then(|_| self.run_in(self.within.map(|_| &group), beside));
        if listed.is_err() {
            // As far as it goes without a list.
            group.made.iter().rev().for_each(|folder| _ = fs::remove_dir(folder));
        }
        ran
    }

    fn run_in(&mut self, group: Option<&OwnGroup>, beside: &Beside) -> Result<(ExitStatus, Summary), LaunchError> {
        let signals = [SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP];
        let signals = Signals::new(signals).map_err(LaunchError::Wait)?;
        // A child starts in the group of its parent, and all its memory is charged there.
        group.map_or(Ok(()), OwnGroup::enter)?;
        let child = self.command.spawn();
        group.into_iter().for_each(OwnGroup::leave);
        let program = self.command.get_program().to_string_lossy().into_owned();
        let child = child.map_err(|source| LaunchError::Start { program, source })?;
        let mut guard = Running::start(beside).map_err(LaunchError::Wait)?;
        let status = wait(child, signals, &mut guard).map_err(LaunchError::Wait)?;
        Ok((status, guard.stop()))
    }
}

fn wait(mut child: Child, mut signals: Signals, guard: &mut Running<'_>) -> io::Result<ExitStatus> {
    let id = Pid::from_child(&child);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.wait() {
            let forwarded = match signal {
                SIGTERM => Signal::TERM,
                SIGHUP => Signal::HUP,
                SIGTSTP => {
                    guard.pause(|| emulate_default_handler(SIGTSTP))?;
                    continue;
                }
                _ => continue,
            };
            // Fails if it has ended, which the next iteration detects.
            let _ = kill_process(id, forwarded);
        }
    }
}

/// The outermost group that belongs to this user: that of the user's manager, or one above this process.
///
/// # Errors
/// If there is none.
pub fn delegated(cgroupfs: &Path, procfs: &Path) -> Result<String, LaunchError> {
    let version = Tree::open(cgroupfs, "")?.version();
    let (root, own) = match version {
        Version::V2 => (cgroupfs.to_owned(), own(procfs, "")),
        Version::V1 => (cgroupfs.join("memory"), own(procfs, "memory")),
    };
    let user = rustix::process::geteuid().as_raw();
    let of_manager = format!("user.slice/user-{user}.slice/user@{user}.service");
    let own = own.unwrap_or_default();
    let own = own.trim_matches('/');
    let above_own = own.match_indices('/').map(|(at, _)| &own[..at]).chain([own]);
    let is_ours = |group: &&str| {
        let files: &[&str] = match version {
            Version::V2 => &["", "cgroup.procs", "cgroup.subtree_control"],
            Version::V1 => &["", "cgroup.procs"],
        };
        let has_memory = version == Version::V1 || lists_memory(&root.join(group).join("cgroup.controllers"));
        has_memory && files.iter().all(|file| access(root.join(group).join(file), Access::WRITE_OK).is_ok())
    };
    let found = [&*of_manager].into_iter().chain(above_own).filter(|group| !group.is_empty()).find(is_ours);
    found.map(str::to_owned).ok_or(LaunchError::NotDelegated)
}

/// Whether a file of cgroup v2 lists the memory controller.
fn lists_memory(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_ascii_whitespace().any(|word| word == "memory"))
}

impl OwnGroup {
    fn make(&mut self, cgroupfs: &Path, procfs: &Path, within: &str, name: &str) -> Result<(), LaunchError> {
        let tree = Tree::open(cgroupfs, "")?;
        let within = within.trim_matches('/');
        let memory = tree.file("", "");
        let roots = match tree.version() {
            Version::V2 => vec![(memory, "")],
            Version::V1 => vec![(memory, "memory"), (cgroupfs.join("freezer"), "freezer")],
        };
        for (root, controller) in roots.into_iter().filter(|(root, _)| root.is_dir()) {
            let before = root.join(own(procfs, controller).unwrap_or_default().trim_start_matches('/'));
            match while_others_remove(|| make_group(&root, within, name, tree.version(), &mut self.made)) {
                Ok(folder) => self.folders.push((folder, before)),
                Err(error) if controller == "freezer" => tracing::info!("the command cannot be frozen: {error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn enter(&self) -> Result<(), LaunchError> {
        for (folder, _) in &self.folders {
            if let Err(error) = move_to(folder) {
                self.leave();
                return Err(error);
            }
        }
        Ok(())
    }

    fn leave(&self) {
        for (_, before) in &self.folders {
            if let Err(error) = move_to(before) {
                tracing::warn!("cannot return to the previous group: {error}");
            }
        }
    }
}

/// Attempts to make a group in one that another run removes at the same time.
const ATTEMPTS: usize = 100;

/// Makes a group, again and again while others remove the one that it is in.
fn while_others_remove(mut make: impl FnMut() -> Result<PathBuf, LaunchError>) -> Result<PathBuf, LaunchError> {
    let mut attempts = 1..;
    loop {
        match make() {
            Err(LaunchError::Group { source, .. })
                if source.kind() == io::ErrorKind::NotFound && attempts.next() < Some(ATTEMPTS) => {}
            other => return other,
        }
    }
}

/// Makes the group `name` in the group `within`, and those above it that are missing. Adds to `made` what was missing.
fn make_group(
    root: &Path,
    within: &str,
    name: &str,
    version: Version,
    made: &mut Vec<PathBuf>,
) -> Result<PathBuf, LaunchError> {
    let mut folder = root.to_owned();
    for part in within.split('/').filter(|part| !part.is_empty()).chain([name]) {
        if version == Version::V2 {
            let file = folder.join("cgroup.subtree_control");
            if !lists_memory(&file) {
                fs::write(&file, "+memory").map_err(|source| match source.kind() {
                    io::ErrorKind::ResourceBusy => LaunchError::HasProcesses(folder.clone()),
                    _ => LaunchError::Group { path: file.clone(), source },
                })?;
            }
        }
        folder.push(part);
        match fs::create_dir(&folder) {
            Ok(()) => made.push(folder.clone()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(LaunchError::Group { path: folder, source }),
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

/// The present group of this process in the hierarchy of v1's `controller`, or of v2 if that is empty.
fn own(procfs: &Path, controller: &str) -> Option<String> {
    let text = fs::read_to_string(procfs.join("self/cgroup")).ok()?;
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    })
}
