//! Recorded accesses: one file per format, generators, and nigh's own canonical form.

pub mod error;
pub mod request;

pub use error::{Error, Result};
pub use request::{Op, Request, Requests};
