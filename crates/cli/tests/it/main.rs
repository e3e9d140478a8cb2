//! The real binary as its users meet it: one program, so that it is linked once.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod admin;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod advise;
mod agreement;
mod alerts;
#[cfg(feature = "objects")]
mod bucket;
mod cli;
mod cli_reference;
mod command;
mod content;
mod contents;
mod daily;
mod demo;
mod descriptors;
mod destroys;
mod devices;
mod encoded;
mod files;
mod filesystem;
mod flags;
mod flushes;
mod freeze;
mod full;
mod golden;
mod guard;
mod hardened;
mod hung;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod incomplete;
mod levels;
mod loops;
mod metrics;
mod mounts;
#[cfg(feature = "objects")]
mod objects;
mod outputs;
mod page;
mod patterns;
mod plan;
mod power;
mod quotas;
mod readahead;
mod record;
mod record_disk;
mod record_postgres;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod record_program;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod record_ptrace;
mod recorded;
mod remote;
mod remote_level;
mod replace;
mod resident;
mod serve;
mod serving;
mod slow;
mod slow_level;
mod sweep;
mod tables;
mod throttle;
mod tiers;
mod timed;
mod together;
mod told;
mod trace_cached;
mod trace_recording;
mod tutorials;
mod ublk;
mod unwritable;
mod vhost;
mod warm;
mod words;
mod write_log;
