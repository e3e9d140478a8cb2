//! Text that users write: sizes, counts, times, shares, and names with slips.

#![doc = include_str!("../README.md")]

mod nearest;
mod printable;
mod quantity;

pub use nearest::{did_you_mean, nearest};
pub use printable::printable;
pub use quantity::{bytes, count, exact, seconds, share};
