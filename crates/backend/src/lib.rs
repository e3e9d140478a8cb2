//! Real devices that carry out the engine's operations.

#![doc = include_str!("../README.md")]

mod allocation;
mod delay;
mod device;
mod driver;
mod error;
mod fault;
mod file;
mod kernel;
mod memory;
mod open;
mod perform;
mod pool;
mod signal;
mod target;
mod units;
mod uring;

pub use delay::Latency;
pub use device::{Completion, Device, Extent, Geometry, Job};
pub use driver::{Driver, Handle};
pub use error::{OpenError, OpenErrorKind, TargetError};
pub use fault::{FaultKind, Planned};
pub use kernel::release_memory;
pub use open::Options;
pub use target::Target;
