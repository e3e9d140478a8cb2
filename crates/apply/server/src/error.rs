//! Errors of connections.

use std::io;

use nigh_nbd::InvalidExport;
use nigh_service::front::Refused;

/// Why a connection ended before the client disconnected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("{0}")]
    Violation(#[from] nigh_nbd::Violation),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the exports cannot be offered: {0}")]
    Exports(#[from] InvalidExport),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("its thread panicked")]
    Panic,
}
