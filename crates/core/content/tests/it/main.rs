//! Encodings of blocks: round trips, and the paper's examples.

mod generated;
mod round_trips;
mod text;
mod twin;
