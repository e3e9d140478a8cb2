//! Modelled devices against published figures.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod behaviour;
mod fit;
mod models;
