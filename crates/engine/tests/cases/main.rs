//! Tests that go step by step, on disks in memory.

mod behaviour;
mod host;
mod replay;
mod tenants;
