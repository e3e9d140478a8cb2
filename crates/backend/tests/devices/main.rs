//! Devices as an engine uses them.

mod driver;
mod host;
mod model;
mod trouble;
