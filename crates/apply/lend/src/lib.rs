//! The server of a level on another host (`nigh level`).

#![doc = include_str!("../README.md")]

mod error;
mod lender;

pub use error::StartError;
pub use lender::{Lender, LenderFileSettings, LenderSettings};
