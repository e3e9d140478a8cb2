//! The cache for programs in C and C++: libnigh, whose interface is `include/nigh.h`.

#![doc = include_str!("../README.md")]
#![expect(
    clippy::missing_safety_doc,
    reason = "include/nigh.h states what callers have to observe; Rust programs use nigh-host"
)]
#![expect(non_camel_case_types, reason = "the types have their names in C")]

mod args;
mod device;
mod disk;
mod error;
mod host;
mod pin;
mod queue;
mod settings;

pub use device::{nigh_add_device, nigh_device, nigh_finish, nigh_request};
pub use disk::{
    nigh_close_disk, nigh_disk, nigh_flush, nigh_hint, nigh_open_disk, nigh_prefetch, nigh_read, nigh_size, nigh_trim,
    nigh_write, nigh_zero,
};
pub use error::{nigh_error, nigh_version};
pub use host::{nigh_add, nigh_change, nigh_close, nigh_free, nigh_host, nigh_open, nigh_remove, nigh_statistics_json};
pub use pin::{nigh_abort, nigh_commit, nigh_pin, nigh_pin_mut, nigh_pinned, nigh_pinned_mut, nigh_unpin};
pub use queue::{
    nigh_completion, nigh_completions, nigh_flush_async, nigh_pin_async, nigh_queue, nigh_queue_close, nigh_queue_fd,
    nigh_queue_new, nigh_read_async, nigh_write_async,
};

/// Bytes of a block.
pub const NIGH_BLOCK: u32 = 4096;
/// Most bytes of a change.
pub const NIGH_PIN_MOST: u32 = 262144;
/// For [`nigh_pin`].
pub const NIGH_NOWAIT: u32 = 1;
/// For [`nigh_pin_mut`].
pub const NIGH_NEW: u32 = 2;
/// For [`nigh_write`] and [`nigh_commit`].
pub const NIGH_DURABLE: u32 = 4;
/// For [`nigh_remove`].
pub const NIGH_DISCARD: u32 = 8;
/// For [`nigh_add_device`].
pub const NIGH_READ_ONLY: u32 = 16;
/// An action of a [`nigh_request`].
pub const NIGH_ACTION_READ: u32 = 1;
/// An action of a [`nigh_request`].
pub const NIGH_ACTION_WRITE: u32 = 2;
/// An action of a [`nigh_request`].
pub const NIGH_ACTION_FLUSH: u32 = 3;
/// An action of a [`nigh_request`].
pub const NIGH_ACTION_DISCARD: u32 = 4;
/// An action of a [`nigh_request`].
pub const NIGH_ACTION_ZERO: u32 = 5;

const _: () = assert!(NIGH_BLOCK as u64 == ::nigh_host::BLOCK && NIGH_PIN_MOST as u64 == ::nigh_host::PIN_MOST);
