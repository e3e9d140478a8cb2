//! Recordings of programs: starts them with the recording library, and collects what they do.

#![doc = include_str!("../README.md")]

mod collect;
mod program;
mod session;
mod write;

pub use collect::{Collector, Summary};
pub use program::{Program, Unrecordable};
pub use session::Session;
pub use write::Writer;
