//! Recorded accesses: one file per format, generators, and nigh's own canonical form.

pub mod error;
pub mod format;
pub mod generate;
pub mod request;
pub mod write;

pub use error::{Error, Result};
pub use format::Format;
pub use request::{Field, Op, Request, Requests};
