//! Allocation and prefetching by hints, against models and the figures of ACFS.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "what a test has to say besides its result")]

mod allowance;
mod bounds;
mod controlled_aggressive;
mod criteria;
mod host;
mod levels;
mod model;
mod policies;
mod soak;
mod tenants;
mod utility;
