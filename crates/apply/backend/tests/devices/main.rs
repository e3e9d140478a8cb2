//! Devices as an engine uses them.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod driver;
mod host;
mod model;
#[cfg(feature = "objects")]
mod objects;
mod trouble;
mod writelog;
mod writelog_power;
