//! Access patterns of the code that issues I/O: identity of call sites, and their classes.

#![doc = include_str!("../README.md")]

mod pc;

pub use pc::pc;
