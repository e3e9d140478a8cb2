//! Disks for virtual machines: what their drivers get, and what hostile ones cannot do.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod hostile;
mod random;
mod serving;
mod tools;
