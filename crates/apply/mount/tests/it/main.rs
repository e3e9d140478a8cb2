//! A mount in this process, whose files are compared with those of the source.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod consistency;
mod reading;
mod rights;
mod support;
mod tree;
mod writing;
