//! The cache as a program uses it, on files.

mod content;
mod custom;
mod examples;
mod flushes;
mod futures;
mod levels;
mod pins;
mod sessions;
mod targets;
mod tenants;
mod threads;
mod warm;
mod write_log;
