//! The part of a server of disks that all fronts share: exports, the control socket, statistics, recording, listening, TLS.

#![doc = include_str!("../README.md")]

mod admin;
mod asked;
mod check;
mod choices;
mod clients;
mod command;
mod control;
mod controllers;
mod counts;
mod denied;
mod descriptors;
mod error;
mod export;
mod exposition;
mod gate;
mod guest;
mod handover;
mod history;
mod http;
mod lender;
mod listen;
mod loss;
mod mail;
mod metrics;
mod newcomers;
mod options;
mod pending;
mod rates;
mod recording;
mod refusals;
mod replace;
mod service;
mod settings;
mod slow;
mod socket;
mod stream;
mod tls;

pub use nigh_host::{
    Allocation, BLOCK, CandidateStatistics, ChoiceStatistics, Chunk, ClientTlsSettings, ContentSettings,
    ContentStatistics, CurvePoint, CurveStatistics, Directive, DiskError, DiskSettings, DiskStatistics, FileExtent,
    HintError, HostStatistics, LatencySummary, LevelServerStatistics, LevelSettings, LevelStatistics, Order,
    RemoteLevelSettings, Scheme, ServerShare, Settings as HostSettings, TargetStatistics, TenantStatistics, Unwritten,
    WarmSettings, WriteLogSettings, WriteLogStatistics, WriteMode,
};

pub use admin::warn_of_code;
pub use command::Command;
pub use control::{Answer, ControlClient, ControlError, ReloadError};
pub use counts::Counts;
pub use denied::is_denied;
pub use descriptors::TooFewDescriptors;
pub use error::{ChangeError, ExportError, HandOverError, StartError};
pub use gate::Closed;
pub use handover::{Departure, HandedOver, Offer, Succession, Successor};
pub use lender::{LenderClient, LenderCounts, LenderFile, LenderStatistics};
pub use listen::{Listen, ListenError};
pub use loss::beginning;
pub use metrics::{ExportStatistics, Statistics};
pub use nigh_tls::{TlsError, TlsSettings};
pub use options::{ExportOption, ExportOptions, OptionError, OptionForm, amount};
pub use pending::{PendingExport, PendingState};
pub use rates::Rates;
pub use recording::{RecordError, Recording, RecordingEnd, RecordingStatus};
pub use replace::{Predecessor, ReplaceError, Sockets};
pub use service::Service;
pub use settings::{ExportSettings, MetricsSettings, Settings, SocketSettings};
pub use slow::{NoLimit, slow_limit};

/// The interface for fronts: protocols by which clients use exports.
pub mod front {
    pub use crate::asked::Asked;
    pub use crate::error::Refused;
    pub use crate::export::Export;
    pub use crate::guest::{Front, Guest};
    pub use crate::mail::Mail;
    pub use crate::recording::Recorder;
    pub use crate::stream::{SLICES_MAX, Stream};
}

/// Parts of any server, also of one that serves no exports.
pub mod parts {
    pub use crate::control::{attend_with, one_line};
    pub use crate::controllers::Controllers;
    pub use crate::descriptors::allow_descriptors;
    pub use crate::gate::Gate;
    pub use crate::http::{Desk, Form, Report};
    pub use crate::listen::Listener;
    pub use crate::newcomers::{Fruitless, Newcomer, Peer, Place, place};
    pub use crate::refusals::Refusals;
    pub use crate::stream::Stream;
}
