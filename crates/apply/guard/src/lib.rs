#![doc = include_str!("../README.md")]

mod beside;
mod choose;
mod clients;
mod detect;
mod gain;
mod guard;
mod journal;
mod launch;
pub mod made;
pub mod mechanism;
mod prefetch;
mod procfs;
mod profile;
mod sample;
mod sampler;
mod service;
mod status;
mod tree;
mod writer;

pub use beside::{Beside, Summary, journal_in};
pub use choose::choose;
pub use detect::{Action, Detector, State, Why};
pub use guard::{FREEZE_MOST, Guard, GuardError, MechanismName, Next, Settings};
pub use journal::{ApplyError, Journal, JournalError, Outcome, Restored};
pub use launch::{Launch, LaunchError, delegated};
pub use procfs::Procfs;
pub use profile::{CpuOf, NoProfile, Profile};
pub use sample::{Group, GroupSample, Sample};
pub use service::{Report, Service, ServiceError, ask, serve};
pub use status::{Counts, GroupStatus, Rates, ScopeStatus, Status};
pub use tree::{Scope, Tree, TreeError, Version};
pub use writer::Writer;
