//! Serves disks over NBD through the engine: shards, connections, listeners, metrics.

#![doc = include_str!("../README.md")]

mod admin;
mod cache;
mod connection;
mod control;
mod disk;
mod hints;
mod http;
mod job;
mod latency;
mod link;
mod listen;
mod metrics;
mod negotiate;
mod options;
mod readahead;
mod refusals;
mod server;
mod settings;
mod status;
mod stream;
mod sync;
mod throttle;
mod tls;

pub use nigh_control::{Allocation, Chunk, Directive, Order};
pub use nigh_engine::WriteMode;

pub use admin::{ChangeError, ExportError, Unwritten};
pub use control::{Answer, Control, ControlClient, ControlError};
pub use hints::{FileExtent, HintError};
pub use listen::{Listen, ListenError};
pub use metrics::{ExportStatistics, LatencySummary, Statistics, TenantStatistics};
pub use options::{ExportOptions, OptionError};
pub use server::{Server, StartError};
pub use settings::{ExportSettings, Settings, TlsSettings};
pub use tls::TlsError;
