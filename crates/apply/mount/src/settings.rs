//! How a folder is mounted.

use std::path::PathBuf;
use std::time::Duration;

use glob::Pattern;

/// How a folder is mounted.
#[derive(Clone, Debug)]
pub struct MountSettings {
    /// The folder whose files are cached.
    pub source: PathBuf,
    /// An existing folder, at which they appear.
    pub at: PathBuf,
    /// Whether all changes are rejected.
    pub read_only: bool,
    /// Whether other users than the one who mounts can use it. Their permissions are checked by the modes and ACLs of the source.
    pub allow_other: bool,
    /// Files that are not cached: patterns with a slash match the path from `source` on, those without one match the name.
    pub uncached: Vec<Pattern>,
    /// For how long names, attributes and contents count as current after a check of the source. With zero, contents are compared at each
    /// open, and names of files at each use.
    pub fresh: Duration,
    /// Threads that take requests of the kernel: as many can wait for the source at a time. Reads that miss do not occupy one.
    pub loops: usize,
    /// Files that the kernel may know at a time, each of which takes a descriptor; it is asked to forget some beyond that. Without this, half
    /// of the descriptors that the process may have.
    pub known_most: Option<usize>,
}

impl MountSettings {
    /// Default of `loops`.
    pub const LOOPS: usize = 16;

    /// `source` at `at`, for reading and writing by the user who mounts.
    pub fn new(source: impl Into<PathBuf>, at: impl Into<PathBuf>) -> MountSettings {
        MountSettings {
            source: source.into(),
            at: at.into(),
            read_only: false,
            allow_other: false,
            uncached: Vec::new(),
            fresh: Duration::ZERO,
            loops: MountSettings::LOOPS,
            known_most: None,
        }
    }
}
