#![doc = include_str!("../README.md")]

mod cache;
mod error;
mod inserted;
pub mod raw;
mod room;

pub use cache::Cache;
pub use error::Error;
pub use inserted::{Evicted, Inserted, Value};
pub use nigh_policy::Spec;
pub use raw::Counts;
