//! The NBD protocol, fixed newstyle: a codec without I/O, the server's side of a session as state machines, and a
//! small blocking client.
//!
//! A server feeds the bytes it received to a [`Negotiation`] until that turns into a [`Transmission`], which yields
//! requests; replies are framed by [`Framing`]. Payloads never pass through this crate: after the header of a write
//! the host reads the payload into its own buffer, and after the header of a read reply it sends its own.
//!
//! The specification is [the protocol document](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md),
//! whose terms are used throughout. Not spoken: oldstyle, RESIZE, and payloads of BLOCK_STATUS.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::cast_possible_truncation
)]

mod bytes;
pub mod client;

mod errno;
mod export;
pub mod handshake;
mod meta;
mod negotiation;
mod reply;
mod request;
mod transmission;
pub mod uri;
pub mod wire;

pub use bytes::{Decoded, Header};
pub use errno::Errno;
pub use export::{BlockSizes, Export, Exports, Features, InvalidExport};
pub use meta::{Context, Contexts, Extent, cache_state, state};
pub use negotiation::{Negotiation, Outcome, Tls};
pub use reply::{Chunks, Framing, ReplyHeader, Tag};
pub use request::{Command, Request, RequestHeader};
pub use transmission::{Event, Transmission};

/// How a peer broke the protocol so that its stream cannot be followed any further; the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message began with another magic number than the protocol has there.
    #[error("wrong magic number {0:#x}")]
    Magic(u64),
    /// The client set handshake flags that were not offered.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// An option came with more data than [`wire::OPTION_MAX`].
    #[error("option {option} with {length} bytes of data")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// Bytes of data it announced.
        length: u32,
    },
    /// A client that did not ask for fixed newstyle sent an option other than EXPORT_NAME.
    #[error("option {0} without fixed newstyle")]
    NotFixedNewstyle(u32),
    /// EXPORT_NAME, which has no error reply, named no export of the list, or was not UTF-8.
    #[error("no such export")]
    UnknownExport,
    /// EXPORT_NAME came before the TLS that the listener requires.
    #[error("the export needs TLS")]
    TlsRequired,
    /// EXPORT_NAME came after extended headers were agreed, which only GO may follow.
    #[error("EXPORT_NAME with extended headers")]
    ExportNameExtended,
    /// Bytes followed STARTTLS before its reply; taking them for encrypted ones would let a stranger inject options.
    #[error("unencrypted bytes after STARTTLS")]
    BytesBeforeTls,
    /// An extended request announced a payload beyond the export's maximum.
    #[error("payload of {length} bytes, at most {maximum} allowed")]
    PayloadTooLong {
        /// Bytes announced.
        length: u64,
        /// The export's maximum block size.
        maximum: u32,
    },
}
