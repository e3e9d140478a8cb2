#![doc = include_str!("../README.md")]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod contents;
mod fields;
mod frames;
mod hello;
mod index;
mod reply;
mod request;
mod store;

pub use contents::{Cold, Filed};
pub use frames::NoRoom;
pub use hello::{Hello, Welcome};
pub use reply::{Notice, Refusal, Reply, Result};
pub use request::{Level, Place, Request};
pub use store::{
    ClientState, Connection, Fetch, Handled, Kept, KeptBlock, Limits, ReadBlock, Rejected, Store, StoreCounts,
};

/// The versions of the protocol that this crate speaks.
pub const VERSIONS: std::ops::RangeInclusive<u16> = 2..=2;
/// The longest name of a client or a namespace, in bytes.
pub const NAME_MAX: usize = 256;
/// The largest block, in bytes.
pub const BLOCK_MAX: usize = 64 << 10;
/// The most notices in one reply. Further ones come with the next reply.
pub const NOTICES_MAX: usize = 1024;
/// The most blocks that one Invalidate names; another one names all blocks of an epoch, with the count `u64::MAX`.
pub const INVALIDATED_MAX: u64 = 4096;
/// The longest explanation of a refusal, in bytes.
pub const TEXT_MAX: usize = 1024;
/// The longest message, in bytes: a buffer of this size holds any.
pub const MESSAGE_MAX: usize = reply::HEAD + NOTICES_MAX * reply::NOTICE + BLOCK_MAX;

/// The longest message of a client, in bytes.
pub const REQUEST_MAX: usize = request::HEAD + BLOCK_MAX;

/// A message, or the number of bytes that are missing at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A message, and how many bytes it took.
    Whole(T, usize),
    /// The message is incomplete: at least this many bytes are missing, which is never 0.
    Need(usize),
}

/// The other side violates the protocol. The connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message does not begin as one.
    #[error("a message begins with {0:#x}: the other side does not speak the protocol of levels")]
    Magic(u64),
    /// There is no version that both sides speak.
    #[error("the other side speaks versions {lowest} to {highest}; this one speaks {} to {}", VERSIONS.start(), VERSIONS.end())]
    Version {
        /// The lowest version of the other side.
        lowest: u16,
        /// Its highest one.
        highest: u16,
    },
    /// A field has a value that it cannot have.
    #[error("{field} is {value}: {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The values that are possible.
        expected: &'static str,
    },
    /// A text is not UTF-8.
    #[error("{0} is no text")]
    Text(&'static str),
}
