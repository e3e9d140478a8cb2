//! The cache itself, without I/O: requests and completions go in, device operations and replies come out.
//!
//! An [`Engine`] makes no system call, starts no thread and reads no clock: the host passes in the time, in µs from any
//! start. This crate's README states the rules that the engine keeps and the duties of a host.

#![doc = include_str!("../README.md")]

mod admin;
mod ahead;
mod arena;
mod change;
mod checks;
mod choice;
mod cleaner;
mod closing;
mod config;
mod cost;
mod counters;
mod course;
mod curves;
mod decider;
mod device;
mod dirty;
mod distrust;
mod engine;
mod error;
mod failing;
mod fair;
mod files;
mod flushes;
mod frames;
mod freeze;
mod late;
mod level;
mod levels;
mod line;
mod loads;
mod memory;
mod notice;
mod own;
mod placement;
mod port;
mod predictions;
mod progress;
mod published;
mod queue;
mod read;
mod record;
mod references;
mod refusals;
mod request;
mod requests;
mod scheduler;
mod shard;
mod shares;
mod size;
mod slots;
mod store;
mod sync;
mod tenants;
mod unflushed;
mod unified;
mod verify;
mod volume;
mod volumes;
mod worth;
mod write;
mod write_back;

pub use ahead::Span;
pub use arena::{Exclusive, Shared};
pub use config::{Config, Limits, Tenants, WriteBack};
pub use counters::{Counters, Gauges, LevelCounters};
pub use decider::Successor;
pub use engine::Engine;
pub use error::ConfigError;
pub use files::{Files, Piece};
pub use level::{LevelConfig, Stored};
pub use own::OwnFrames;
pub use port::PortConfig;
pub use published::{Noted, Published};
pub use request::{
    Action, BlockState, Damage, Fault, Fill, Op, Operation, Outcome, Port, Reached, Refusal, Region, Reply, Request,
    Submitted, Volume, WriteMode,
};
pub use scheduler::{Deadline, Scheduler, SchedulerError};
pub use shard::{EXTENT_BYTES, shard_of};
pub use worth::LeftOut;
