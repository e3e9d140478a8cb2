//! Logs on devices that lose power.

mod simulation;
