//! Replays and timed simulations.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod acfs;
mod clients;
mod encoded;
mod open;
mod replay;
mod simulated;
mod tenants;
mod timed;
