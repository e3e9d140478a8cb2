//! The cache as a program uses it, on files.

mod content;
mod flushes;
mod levels;
mod sessions;
mod targets;
mod tenants;
mod threads;
mod warm;
