//! Shared by the tests of several crates: naive models of the policies, a host that drives a policy and checks the
//! contract at every step, the contract as a suite, a host that only drives a policy, and random reference strings.

pub mod browser;
pub mod contract;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod host;
pub mod naive;
pub mod replay;
pub mod tools;
mod twins;
#[cfg(feature = "vhost")]
pub mod virtio;
pub mod workload;

/// How many of something random a test does: `few`, but `many` before a release (`cargo xtask release`).
pub fn runs(few: u64, many: u64) -> u64 {
    if std::env::var_os("NIGH_TESTS").is_some_and(|tests| tests == "release") { many } else { few }
}

/// The result of one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the block was resident.
    pub hit: bool,
    /// The block that left to make room.
    pub evicted: Option<u64>,
}
