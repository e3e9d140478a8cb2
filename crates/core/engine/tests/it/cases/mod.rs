//! Tests that go step by step, on disks in memory.

mod behaviour;
mod change;
mod failing;
mod flushes;
mod freeze;
mod host;
mod levels;
mod published;
mod replay;
mod shares;
mod tenants;
mod unified;
mod verify;
mod write_back;
