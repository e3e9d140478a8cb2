//! Serves disks over NBD: negotiation, connections, listeners, TLS, the control socket and statistics.

#![doc = include_str!("../README.md")]

mod admin;
mod check;
mod clients;
mod command;
mod connection;
mod control;
mod controllers;
mod denied;
mod descriptors;
mod error;
mod export;
mod exposition;
mod gate;
mod http;
mod input;
mod job;
mod lender;
mod link;
mod listen;
mod metrics;
mod negotiate;
mod newcomers;
mod options;
mod patience;
mod pending;
mod rates;
mod recording;
mod refusals;
mod server;
mod settings;
mod socket;
mod status;
mod stream;
mod tls;
mod uri;

pub use nigh_host::{
    Allocation, BLOCK, Chunk, ClientTlsSettings, ContentSettings, ContentStatistics, Directive, DiskError,
    DiskSettings, DiskStatistics, FileExtent, HintError, HostStatistics, LatencySummary, LevelServerStatistics,
    LevelSettings, LevelStatistics, Order, RemoteLevelSettings, Scheme, ServerShare, Settings as HostSettings,
    TargetStatistics, TenantStatistics, Unwritten, WarmSettings, WriteMode,
};

pub use command::Command;
pub use control::{Answer, ControlClient, ControlError, ReloadError};
pub use denied::is_denied;
pub use descriptors::TooFewDescriptors;
pub use error::{ChangeError, ExportError, StartError};
pub use gate::Closed;
pub use lender::statistics::{LenderClient, LenderCounts, LenderFile, LenderStatistics};
pub use lender::{Lender, LenderFileSettings, LenderSettings};
pub use listen::{Listen, ListenError};
pub use metrics::{ExportStatistics, Statistics};
pub use nigh_tls::{TlsError, TlsSettings};
pub use options::{ExportOptions, OptionError, amount};
pub use pending::{PendingExport, PendingState};
pub use rates::Rates;
pub use recording::{RecordError, Recording, RecordingEnd, RecordingStatus};
pub use server::Server;
pub use settings::{ExportSettings, MetricsSettings, Settings, SocketSettings};
