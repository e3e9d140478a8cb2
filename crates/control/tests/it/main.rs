//! Allocation and prefetching by hints, against models and the figures of ACFS.

mod allowance;
mod bounds;
mod controlled_aggressive;
mod criteria;
mod host;
mod levels;
mod model;
mod soak;
mod tenants;
