//! The state of a write log, for anyone who asks a device.

use std::ops::Range;

/// The state of a write log at one moment. Counts are since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteLogState {
    /// The log's target.
    pub target: String,
    /// Bytes that it has room for.
    pub bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// Changes in it that are not home.
    pub records: u64,
    /// Age of the oldest of them, in µs.
    pub oldest_us: u64,
    /// Writes to the log, and their bytes.
    pub log_writes: u64,
    /// Bytes of these.
    pub log_bytes: u64,
    /// Writes that went home.
    pub home_writes: u64,
    /// Bytes of these.
    pub home_bytes: u64,
    /// Memory for its bookkeeping, in bytes.
    pub memory_bytes: u64,
    /// Changes wait for room.
    pub is_full: bool,
    /// The last attempt to write home failed.
    pub is_failing: bool,
    /// Why it takes no more changes.
    pub failure: Option<String>,
    /// With a failure, the first ranges of the disk whose newest bytes are not home.
    pub missing: Vec<Range<u64>>,
    /// The count of all.
    pub missing_ranges: u64,
    /// Their bytes.
    pub missing_bytes: u64,
}
