//! Trace formats: readers, writers and generators.

mod columns;
mod formats;
mod generate;
mod parquet;
mod real_traces;
mod recording;
mod tools;
mod write;
