//! Trace formats: readers, writers and generators.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

mod columns;
mod files;
mod formats;
mod generate;
mod parquet;
mod real_traces;
mod recording;
mod tools;
mod write;
