//! Errors of a cache's settings.

use std::fmt;

use nigh_policy::{Spec, SpecError};

/// Why a cache was not made or changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The policy does not exist, or not with these parameters, or needs what a cache by key does not have.
    Spec(SpecError),
    /// The policy depends on which blocks are neighbours on a disk.
    Neighbours {
        /// The policy.
        policy: Spec,
    },
    /// The policy would remember every key for ever.
    Unlimited {
        /// The policy.
        policy: Spec,
    },
    /// The policy cannot number that many values and evicted keys.
    TooLarge {
        /// The policy.
        policy: Spec,
        /// The number of values.
        capacity: u32,
        /// The number of evicted keys that the policy remembers.
        ghosts: u32,
        /// The most that the policy can number.
        most: u32,
    },
    /// The capacity or the limit is 0.
    Empty,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Spec(error) => error.fmt(f),
            Error::Neighbours { policy } => {
                write!(f, "policy '{policy}' looks at which blocks are neighbours on disk, and keys are not on a disk")
            }
            Error::Unlimited { policy } => {
                write!(f, "policy '{policy}' would remember every key for ever: give it a limit, such as ghosts=2")
            }
            Error::TooLarge { policy, capacity, ghosts, most } => {
                write!(
                    f,
                    "capacity={capacity}: policy '{policy}' is limited to {most} keys, with the {ghosts} evicted ones \
                     that it remembers"
                )
            }
            Error::Empty => write!(f, "a capacity of 0: expected 1 or more"),
        }
    }
}

impl std::error::Error for Error {}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Error {
        Error::Spec(error)
    }
}
