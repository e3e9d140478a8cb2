//! Configuration errors of an engine.

use nigh_policy::{Spec, SpecError};

/// Why an engine cannot be created or changed as requested.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Two settings contradict each other, or one is out of range.
    #[error("the cache cannot be set up: {what}")]
    Impossible {
        /// The condition that is not met.
        what: &'static str,
    },
    /// The policy cannot be created.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// Tenants cannot have the policy.
    #[error(transparent)]
    Tenants(#[from] nigh_control::Refusal),
    /// The policy remembers an unlimited number of blocks, for which a cache has no room.
    #[error(
        "policy '{policy}' remembers an unlimited number of blocks, which only a replay allows: give ghosts= a number"
    )]
    Unlimited {
        /// The policy.
        policy: Box<Spec>,
    },
    /// A cache that grows would have more slots than its policy, created for the smaller cache, can number.
    #[error(
        "policy '{policy}' was created for at most {most} slots, and a cache of this size has {slots}: choose a smaller size \
         or another policy, or restart with this size"
    )]
    Slots {
        /// The policy.
        policy: Box<Spec>,
        /// The number of slots of the cache.
        slots: u32,
        /// The most slots that the policy can number.
        most: u32,
    },
    /// Cannot reserve address space for the frames.
    #[error("cannot reserve address space for {bytes} bytes of frames")]
    NoMemory {
        /// The bytes requested.
        bytes: u64,
    },
    /// The number of the volume is in use.
    #[error("volume {0} is already open")]
    Taken(u32),
    /// The number of the port is in use.
    #[error("port {0} is already open")]
    PortTaken(u16),
    /// There is no such port.
    #[error("port {0} is not open")]
    NoPort(u16),
    /// Volumes have regions at the port, or it has operations.
    #[error("port {0} is in use")]
    PortInUse(u16),
}
