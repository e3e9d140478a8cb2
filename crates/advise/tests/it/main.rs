//! Advice to the kernel's page cache.

mod kernel;
mod profile;
