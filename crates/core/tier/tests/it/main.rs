//! Several levels managed as one, against twins and published figures.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod clients;
mod figures;
mod twin;
