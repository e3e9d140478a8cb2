//! Connections, limits and tenants of the NBD server.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod early_replies;
mod hostile;
mod resources;
mod serving;
mod tenants;
mod timer;
