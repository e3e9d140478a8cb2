//! How long clients have.

use std::time::Duration;

/// A client that takes longer to negotiate, to send the rest of a request, or to take a reply is left.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes per second that a client has to send of a write, or take of its replies, in addition to that time.
pub(crate) const RATE_MIN: u64 = 16 << 10;
