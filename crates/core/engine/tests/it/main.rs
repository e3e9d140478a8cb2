//! The engine: cases, and random runs with faults and crashes.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod cases;
mod simulation;
mod vopr;
