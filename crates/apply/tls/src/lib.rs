#![doc = include_str!("../README.md")]

mod client;
mod files;
mod names;
mod server;

pub use client::{ClientStream, ClientTlsSettings};
pub use files::TlsError;
pub use names::names;
pub use rustls::ClientConfig;
pub use server::TlsSettings;
