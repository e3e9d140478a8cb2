//! Errors of the start.

use std::path::PathBuf;

/// Why a level server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// As with any server.
    #[error(transparent)]
    Service(#[from] nigh_service::StartError),
    /// Its file cannot be used.
    #[error("level {0}")]
    File(#[from] nigh_backend::LevelError),
    /// The same.
    #[error("level {0}")]
    OpenFile(#[from] nigh_backend::OpenError),
    /// Its file has no more room than its memory.
    #[error("level {path}: it has to be at least 70M larger than --memory, because every block in memory has a place in it, too", path = .0.display())]
    SmallFile(PathBuf),
    /// There is no memory for its blocks.
    #[error(transparent)]
    NoRoom(#[from] nigh_level::NoRoom),
}
