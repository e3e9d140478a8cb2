//! The engine: cases, and random runs with faults and crashes.

mod cases;
mod simulation;
mod vopr;
