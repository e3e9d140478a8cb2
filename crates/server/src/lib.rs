//! Serves disks over NBD through the engine: shards, connections, listeners, metrics.

#![doc = include_str!("../README.md")]

mod cache;
mod connection;
mod disk;
mod http;
mod job;
mod latency;
mod link;
mod listen;
mod metrics;
mod server;
mod settings;
mod status;
mod stream;
mod sync;

pub use nigh_engine::WriteMode;

pub use listen::{Listen, ListenError};
pub use metrics::{ExportStatistics, LatencySummary, Statistics};
pub use server::{Server, StartError, Unwritten};
pub use settings::{ExportSettings, Settings};
