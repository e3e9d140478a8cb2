//! Why an engine cannot be set up.

use nigh_policy::{Spec, SpecError};

/// Why an engine cannot be made or changed as asked for.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Two settings contradict each other, or one is out of range.
    #[error("the cache cannot be set up: {what}")]
    Impossible {
        /// What must hold.
        what: &'static str,
    },
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// The policy remembers any number of blocks, for which a cache has no room.
    #[error("policy '{policy}' remembers any number of blocks: that is for replay only, give a number for ghosts=")]
    Unlimited {
        /// The policy.
        policy: Box<Spec>,
    },
    /// A cache that grows would have more slots than the policy, as it was made for the cache before, can number.
    #[error(
        "policy '{policy}' was made for at most {most} slots, and a cache of this size has {slots}: choose a smaller size, \
         another policy, or start with this size"
    )]
    Slots {
        /// The policy.
        policy: Box<Spec>,
        /// How many the cache would have.
        slots: u32,
        /// How many there can be.
        most: u32,
    },
    /// There is no address space for the frames.
    #[error("no address space for {bytes} bytes of frames")]
    NoMemory {
        /// How much was asked for.
        bytes: u64,
    },
    /// The number of the volume is taken.
    #[error("volume {0} is already open")]
    Taken(u32),
    /// The number of the port is taken.
    #[error("port {0} is already open")]
    PortTaken(u16),
    /// There is no such port.
    #[error("port {0} is not open")]
    NoPort(u16),
    /// Volumes have regions at the port, or it has operations.
    #[error("port {0} is in use")]
    PortInUse(u16),
}
