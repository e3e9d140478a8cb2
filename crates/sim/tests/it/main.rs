//! Replays and timed simulations.

mod acfs;
mod clients;
mod encoded;
mod replay;
mod simulated;
mod tenants;
mod timed;
