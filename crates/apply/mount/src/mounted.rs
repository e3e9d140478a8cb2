//! A mount: its beginning and its end.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use nigh_host::front::lock;
use nigh_host::{Custom, HostError, Target};
use nigh_service::Service;

use crate::error::MountError;
use crate::file::{File, Rules};
use crate::files::Files;
use crate::handles::Handles;
use crate::inodes::Inodes;
use crate::place;
use crate::settings::MountSettings;
use crate::shared::Shared;
use crate::tree::Tree;
use crate::volume::Volume;

/// Threads that read from the source: as many reads can wait for it at a time.
pub const READERS: u32 = 64;
/// For how long a mount may be in use before it is detached.
const MOMENT: Duration = Duration::from_millis(500);
/// The interval between attempts to unmount it.
const GLANCE: Duration = Duration::from_millis(10);

/// A source and a place that go together. Nothing is mounted yet.
pub struct Prepared {
    settings: MountSettings,
    source: OwnedFd,
    at: PathBuf,
    volume: Arc<Volume<File>>,
}

/// Files behind the cache. Dropping it unmounts them.
pub struct Mount {
    state: Mutex<State>,
    at: PathBuf,
}

enum State {
    Mounted(BackgroundSession),
    /// Its files can no longer be found, but are still served to programs that have them open.
    Detached(BackgroundSession),
    Ended,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nobody used it.
    Unmounted,
    /// Programs still had files open: they keep them, but no new ones can be opened, and what they do fails once the process ends.
    Detached,
}

impl Prepared {
    /// Opens the source and checks the place, where a mount of an earlier process that was killed is removed. `own` are files that the
    /// server itself uses.
    pub fn new(settings: MountSettings, own: &[&Path]) -> Result<Prepared, MountError> {
        let (source, at) = place::check(&settings, own)?;
        Ok(Prepared { settings, source, at, volume: Arc::default() })
    }

    /// The target of the disk on which the files lie.
    pub fn target(&self) -> Target {
        let name = self.settings.source.display().to_string();
        Target::Custom(Custom::new(name, READERS as usize, self.volume.clone()))
    }

    /// Mounts, with the disk `name` of `service`, which has the [`target`](Prepared::target).
    pub fn mount(self, service: &Arc<Service>, name: &str) -> Result<Mount, MountError> {
        let Prepared { settings, source, at, volume } = self;
        let no_disk = |_: HostError| MountError::NoDisk(name.to_owned());
        let session = service.host().open(name).map_err(no_disk)?;
        let disk = service.host().disk(name).ok_or_else(|| MountError::NoDisk(name.to_owned()))?;
        let of_source = |error| MountError::Source { path: settings.source.clone(), error };
        let tick = place::tick(&source);
        let has_acls = place::has_acls(&source);
        let keeps_numbers = place::keeps_numbers(&source);
        let rights = place::rights(&source).map_err(of_source)?;
        let most = settings.known_most.unwrap_or_else(|| place::raise_limit() / 2);
        let inodes = Inodes::new(source, !settings.uncached.is_empty(), most.max(8)).map_err(of_source)?;
        let (too_many, are_many) = sync_channel(1);
        let shared = Arc::new(Shared {
            service: service.clone(),
            name: name.to_owned(),
            disk,
            session,
            recorder: service.recorder().clone(),
            volume,
            inodes,
            files: Files::default(),
            handles: Handles::default(),
            directories: Handles::default(),
            rules: Rules { tick, whole_tick: Duration::from_secs(2), fresh: settings.fresh },
            uncached: settings.uncached.clone(),
            has_acls,
            keeps_numbers,
            notifier: OnceLock::new(),
            too_many,
            passes_through: AtomicBool::new(false),
        });
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(place::device(&settings.source)),
            MountOption::Subtype("nigh".to_owned()),
            MountOption::DefaultPermissions,
        ];
        if settings.read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.mount_options.extend(rights);
        config.acl = if settings.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(settings.loops.max(1));
        config.clone_fd = true;
        let failed = |error| MountError::Mount { path: at.clone(), error };
        let session = fuser::spawn_mount(Tree(shared.clone()), &at, &config).map_err(failed)?;
        // Nobody has another one.
        let _ = shared.notifier.set(session.notifier());
        // It ends when no request can come any more.
        let shared = Arc::downgrade(&shared);
        let forget = move || are_many.iter().for_each(|()| shared.upgrade().iter().for_each(|shared| shared.shrink()));
        Builder::new().name("forget".into()).spawn(forget).map_err(failed)?;
        Ok(Mount { state: Mutex::new(State::Mounted(session)), at })
    }
}

impl Mount {
    /// The folder at which it is mounted.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether nobody can use it any more: it was unmounted, here or elsewhere, and the last file is closed.
    pub fn is_over(&self) -> bool {
        match &*lock(&self.state) {
            State::Mounted(session) | State::Detached(session) => session.guard.is_finished(),
            State::Ended => true,
        }
    }

    /// Unmounts. Everything that was written is in the source already.
    pub fn end(&self) -> Ended {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Ended) {
            State::Mounted(session) if session.guard.is_finished() || self.unmounts() => {
                // It can only report that the connection is gone.
                let _ = session.join();
                Ended::Unmounted
            }
            State::Mounted(session) => {
                if let Err(error) = place::unmount(&self.at, true) {
                    tracing::warn!(at = %self.at.display(), %error, "cannot be unmounted");
                }
                *state = State::Detached(session);
                Ended::Detached
            }
            detached @ State::Detached(_) => {
                *state = detached;
                Ended::Detached
            }
            State::Ended => Ended::Unmounted,
        }
    }
}

impl Mount {
    /// Unmounts it unless it is in use. A file that was just closed, or that a new process has until it starts its program, is in use for a moment.
    fn unmounts(&self) -> bool {
        let begun = Instant::now();
        while place::unmount(&self.at, false).is_err() {
            if begun.elapsed() > MOMENT {
                return false;
            }
            std::thread::sleep(GLANCE);
        }
        true
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
        if let State::Detached(session) = std::mem::replace(&mut *lock(&self.state), State::Ended) {
            // Dropping it would unmount what may be mounted at the same place meanwhile.
            std::mem::forget(session);
        }
    }
}
