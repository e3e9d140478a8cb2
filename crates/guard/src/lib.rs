#![doc = include_str!("../README.md")]

mod choose;
mod detect;
mod guard;
mod journal;
mod launch;
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

pub use choose::choose;
pub use detect::{Action, Detector, State, Why};
pub use guard::{FREEZE_MOST, Guard, GuardError, MechanismName, Next, Settings};
pub use journal::{ApplyError, Journal, JournalError, Outcome, Restored};
pub use launch::{LaunchError, run_in_group};
pub use procfs::Procfs;
pub use profile::{CpuOf, NoProfile, Profile};
pub use sample::{Group, GroupSample, Sample};
pub use service::{Listen, ServiceError, ask, serve};
pub use status::{Counts, ScopeStatus, Status};
pub use tree::{Scope, Tree, TreeError, Version};
pub use writer::Writer;
