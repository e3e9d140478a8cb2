//! The mail of a queue's thread.

use nigh_host::front::Measure;
use nigh_service::front::Asked;

/// A request that is over: its chain is to become used.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    pub(crate) head: u16,
    /// Bytes that the guest can read.
    pub(crate) bytes: u32,
    /// The counter of its latency, and its range; none if it failed before anything was asked.
    pub(crate) measure: Option<(Measure, Asked)>,
}

/// Requests and orders that other threads leave for the thread of a queue.
pub(crate) type Mail = nigh_service::front::Mail<Over>;
