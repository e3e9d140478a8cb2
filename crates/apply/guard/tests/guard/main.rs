//! The guard on recorded samples and on trees of files that look like a kernel's.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod common;
mod counting;
mod detection;
mod made;
mod mechanisms;
mod safety;
