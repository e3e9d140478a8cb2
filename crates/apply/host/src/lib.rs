//! The cache as a program uses it: runs the engine on real I/O.

#![doc = include_str!("../README.md")]

mod admin;
mod buffers;
mod cache;
mod call;
mod change;
mod check;
mod client;
mod common;
mod content;
mod curve;
mod damage;
mod device;
mod disk;
mod encode;
mod ending;
mod error;
mod extent;
mod failing;
mod faults;
mod flush;
mod freeze;
mod future;
mod hints;
mod host;
mod latency;
mod level;
mod levels;
mod locked;
mod mailbox;
mod opening;
mod pinned;
mod pins;
mod readahead;
mod session;
mod settings;
mod shard;
mod sidecar;
mod statistics;
mod sync;
mod tenants;
mod throttle;
mod timer;
mod volumes;
mod warm;
mod warming;
mod work;

pub use nigh_content::Scheme;
pub use nigh_control::{Allocation, Chunk, Directive, Order};
pub use nigh_engine::{Fault, WriteMode};
pub use nigh_policy::{Spec, Stream};
pub use nigh_prefetch::Spec as ReadAheadSpec;

pub use check::problems;
pub use content::ContentStatistics;
pub use curve::{CurvePoint, CurveStatistics};
pub use error::{
    ChangeError, DiskError, HintError, HostError, LevelError, Poisoned, StartError, SubmitError, Unwritten,
};
pub use extent::FileExtent;
pub use host::Host;
pub use latency::{Latencies, LatencySummary};
pub use level::{LevelServerStatistics, LevelStatistics};
pub use nigh_backend::{
    ClientTlsSettings, Custom, CustomAction, CustomDevice, CustomRequest, ServerShare, Target, WriteLogSettings,
};
pub use opening::Late;
pub use pinned::{Pinned, PinnedMut};
pub use session::Session;
pub use settings::{
    BLOCK, ContentSettings, DISKS_MAX, DiskSettings, LEVELS_MAX, LevelSettings, PIN_MOST, RemoteLevelSettings,
    Settings, TARGETS_MAX, WarmSettings,
};
pub use statistics::{
    CandidateStatistics, ChoiceStatistics, DiskStatistics, HostStatistics, TargetStatistics, WriteLogStatistics,
};
pub use tenants::{TenantStatistics, agree_in_tenants};

/// The tutorial, whose programs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/embed.md")]
struct Embed;

/// The interface for front ends: requests that do not wait, and replies to waiters.
pub mod front {
    pub use crate::buffers::Buffers;
    pub use crate::cache::{Cache, Presence, Submission, pieces};
    pub use crate::client::Client;
    pub use crate::disk::{Disk, Measure};
    pub use crate::readahead::{Ahead, ReadAhead};
    pub use crate::settings::{PIECE, STEP};
    pub use crate::sync::{Budget, lock};
    pub use crate::work::{Outlet, Submitted, Waiter, Work};
}
