//! Tests that go step by step, on disks in memory.

mod behaviour;
mod host;
mod levels;
mod replay;
mod tenants;
