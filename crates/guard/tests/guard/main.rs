//! The guard on recorded samples and on trees of files that look like a kernel's.

mod common;
mod counting;
mod detection;
mod mechanisms;
mod safety;
