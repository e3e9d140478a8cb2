//! Modelled devices against published figures.

mod behaviour;
mod fit;
mod models;
