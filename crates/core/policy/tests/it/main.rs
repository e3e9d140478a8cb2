//! The policies against their contract, naive models of their papers, and published figures.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "what a test has to say besides its result")]

mod aoio;
mod auto;
mod contract;
mod curve;
mod dulo;
mod figures_dulo;
mod figures_history;
mod figures_lirs;
mod figures_simple;
mod ghosts;
mod model;
mod pauses;
mod promises;
mod rivals;
mod succession;
mod values;
mod witness;
