//! Advice to the kernel's page cache.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod kernel;
mod profile;
