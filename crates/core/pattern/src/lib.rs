//! Access patterns of the code that issues I/O: identity of call sites, and their classes.

#![doc = include_str!("../README.md")]

mod class;
mod classifier;
mod pc;
mod table;

pub use class::{Class, Counts, Thresholds};
pub use classifier::{Classifier, Code, Limits};
pub use pc::{module_token, pc, token};
pub use table::{Pattern, Table};
