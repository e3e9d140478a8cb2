//! A folder, mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_mount::{Ended, Mount, MountSettings, Prepared};
use nigh_service::{DiskStatistics, ExportSettings, Service, Settings};
use tempfile::TempDir;

/// A mounted folder of this test's own.
pub(crate) struct Mounted {
    pub(crate) mount: Mount,
    pub(crate) service: Arc<Service>,
    source: PathBuf,
    _folders: (Option<TempDir>, TempDir),
}

impl Mounted {
    /// An empty folder in 16 MiB of memory. `None`, with a note, where FUSE cannot be used.
    pub(crate) fn new() -> Option<Mounted> {
        Mounted::with(|_| (), |_| ())
    }

    pub(crate) fn with(mount: impl FnOnce(&mut MountSettings), service: impl FnOnce(&mut Settings)) -> Option<Mounted> {
        let source = TempDir::new().expect("a folder");
        let path = source.path().to_owned();
        Mounted::of(&path, Some(source), mount, service)
    }

    pub(crate) fn of(
        source: &Path,
        kept: Option<TempDir>,
        mount: impl FnOnce(&mut MountSettings),
        service: impl FnOnce(&mut Settings),
    ) -> Option<Mounted> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let at = TempDir::new().expect("a folder");
        let mut settings = MountSettings::new(source, at.path());
        mount(&mut settings);
        let prepared = Prepared::new(settings, &[]).expect("they go together");
        let export = ExportSettings::new("files", prepared.target());
        let mut settings = Settings::new(16 << 20, "lirs".parse().expect("a policy"), vec![export]);
        service(&mut settings);
        let service = Arc::new(Service::start(settings).expect("a service"));
        let mount = prepared.mount(&service, "files").expect("mounted");
        Some(Mounted { mount, service, source: source.to_owned(), _folders: (kept, at) })
    }

    /// `name` behind the mount.
    pub(crate) fn behind(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }

    /// `name` in the mount.
    pub(crate) fn inside(&self, name: &str) -> PathBuf {
        self.mount.at().join(name)
    }

    pub(crate) fn disk(&self) -> DiskStatistics {
        self.service.statistics().exports.remove(0).disk
    }

    /// Unmounts, and ends the service.
    pub(crate) fn end(self) {
        assert_eq!(self.mount.end(), Ended::Unmounted);
        self.service.shut_down().expect("nothing is left to write");
    }
}

/// Bytes that differ by place and by `seed`.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
