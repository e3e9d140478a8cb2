//! Real devices that carry out the engine's operations.

#![doc = include_str!("../README.md")]

mod allocation;
mod asker;
mod below;
mod custom;
mod delay;
mod device;
mod driver;
mod error;
mod fault;
mod file;
mod kernel;
mod latency;
mod level;
mod lock;
mod log_state;
mod magic;
mod memory;
mod modelled;
#[cfg(all(test, loom))]
mod models;
mod objects;
mod open;
mod perform;
mod places;
mod pool;
mod process;
mod remote;
mod signal;
mod stamp;
mod sync;
mod target;
mod timing;
mod units;
mod uring;
mod writelog;

pub use below::{LevelLink, LevelNews, RemoteLevel, ServerShare, ServerState};
pub use custom::{Custom, CustomAction, CustomDevice, CustomRequest};
pub use device::{Completion, Device, Extent, Geometry, Job};
pub use driver::{Driver, Handle};
pub use error::{OpenError, OpenErrorKind, TargetError};
pub use fault::{FaultKind, Planned};
pub use kernel::{forks, map_large_allocations, processor_time, release_memory, take_turns_of};
pub use latency::Latency;
pub use level::{Home, Image, LevelError, LevelFile, PLACES};
pub use log_state::WriteLogState;
pub use magic::format_of;
pub use modelled::Modelled;
pub use nigh_tls::ClientTlsSettings;
pub use objects::{ObjectDisk, ObjectDiskState, ObjectTarget, Provider};
pub use open::Options;
pub use places::{Places, PlacesBuffer};
pub use remote::NbdExport;
pub use signal::Signal;
pub use stamp::{Stamp, joint_stamp};
pub use target::Target;
pub use timing::ReadTimer;
pub use writelog::WriteLogSettings;
