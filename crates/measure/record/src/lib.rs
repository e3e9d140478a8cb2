//! Recordings of programs: starts them with the recording library, and collects what they do.

#![doc = include_str!("../README.md")]

mod build_id;
mod cached;
mod clock;
mod collect;
mod faults;
mod files;
mod program;
#[cfg(target_arch = "x86_64")]
mod ptrace;
mod session;
#[cfg(target_arch = "x86_64")]
mod symbols;
mod tracer;
pub mod uring;
mod write;

pub use build_id::build_id;
pub use cached::{Cached, Pages, Way, page_bytes};
pub use clock::now_ns;
pub use collect::{Collector, Summary};
pub use nigh_ring::{Board, Told};
pub use program::{Program, Unrecordable};
pub use session::{Session, of_ended};
pub use symbols::Symbols;
#[cfg(target_arch = "x86_64")]
pub use tracer::Tracer;
pub use write::Writer;

/// The exit code of a program that a signal ended is this and the signal's number, as in a shell.
pub const SIGNALLED: i32 = 128;
