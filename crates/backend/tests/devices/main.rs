//! Devices as an engine uses them.

mod driver;
mod host;
mod model;
#[cfg(feature = "objects")]
mod objects;
mod trouble;
