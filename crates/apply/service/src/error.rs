//! The errors of a service.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nigh_tls::TlsError;

use crate::descriptors::TooFewDescriptors;
use crate::listen::ListenError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to serve.
    #[error("there is no export to serve")]
    NoExports,
    /// An export cannot be served.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The cache does not start.
    #[error(transparent)]
    Host(#[from] nigh_host::StartError),
    /// There are not enough file descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Statistics cannot be served.
    #[error("cannot serve statistics on {0}: {1}")]
    Metrics(SocketAddr, io::Error),
    /// Other machines could read the statistics.
    #[error(
        "statistics on {0} would be open to the network: use a loopback address, give a token=FILE behind it, or say --insecure-tcp"
    )]
    OpenMetrics(SocketAddr),
    /// The token for statistics cannot be used.
    #[error("the token in {path} cannot be used: {reason}")]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system gives no thread or descriptor.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Why an export cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Its name is too long or has a NUL.
    #[error("the export name {0:?} has a NUL or more than 4096 bytes")]
    Name(String),
    /// Another export has its name.
    #[error("two exports are named {0:?}")]
    Duplicate(String),
    /// Its name has characters that change a terminal instead of being shown.
    #[error("export {0:?}: a name has no control characters")]
    Controls(String),
    /// It is for certain clients, and nobody is asked for a certificate.
    #[error("export {0} is for certain clients, which takes TLS with an authority for client certificates")]
    NoClientCa(String),
}

/// Why a running server cannot be changed so.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no export of this name.
    #[error("there is no export {0}")]
    NoExport(String),
    /// The export is being removed.
    #[error("export {0} is being removed, and its device has not completed that: try again later")]
    Leaving(String),
    /// The export is being opened.
    #[error("export {0} is being opened, and its device has not responded: remove it first, or try again later")]
    Opening(String),
    /// Writes reach its target past the cache.
    #[error("{0} cannot be frozen: a mount writes files past its cache. Freeze the file system below it")]
    PastTheCache(String),
    /// An export cannot be served.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The cache cannot be changed so.
    #[error(transparent)]
    Host(#[from] nigh_host::ChangeError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There are not enough file descriptors.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// TLS is for all clients over TCP or for none.
    #[error("TLS cannot be switched on or off while the server runs")]
    TlsOnOff,
    /// The system gives no thread.
    #[error("no thread for the change: {0}")]
    Thread(io::Error),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopping,
}

/// Why a server does not end for the one that is to take its place, and goes on.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// Not everything can be written, which would be lost.
    #[error("not everything can be written back: {0}")]
    Unwritten(#[from] ChangeError),
    /// The other server has left.
    #[error("the server that was to take its place has left")]
    Left,
    /// It is being shut down already.
    #[error("it is being shut down")]
    Ends,
}

/// Why a client cannot have the export that it chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `ExportSettings::connections` are there.
    #[error("the export has as many clients as allowed")]
    Full,
    /// Each export has some connections of its own.
    #[error("the remaining connections are reserved for other exports")]
    Crowded,
    /// It will be gone.
    #[error("the export is being removed")]
    Leaving,
    /// The server before this one did not end in order, and the client may rely on what it lost.
    #[error(
        "the server before this one was killed, and this client may rely on writes that it lost: start the client again"
    )]
    Lost,
    /// The names of its certificate are not among `ExportSettings::clients`.
    #[error("the export is for other clients now")]
    Others,
}
