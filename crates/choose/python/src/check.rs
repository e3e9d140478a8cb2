//! The contract suite over policies written in Python.

use std::sync::Arc;

use nigh_testkit::contract::{self, BLOCKS, CAPACITIES};
use nigh_testkit::host::{Host, Slots};
use nigh_testkit::workload;
use pyo3::prelude::*;

use crate::policy::{Fault, Hosted};

const LENGTH: usize = 1_000;

/// A policy written in Python, and what it is checked with.
struct Checked<'a, 'py> {
    factory: &'a Bound<'py, PyAny>,
    name: &'a str,
    seed: u64,
    capacity: u32,
}

impl Checked<'_, '_> {
    /// Runs `part` on a host with a new policy of `capacity` blocks.
    fn run(&self, part: &str, capacity: u32, run: impl FnOnce(Host)) -> PyResult<()> {
        let room = Slots::Forever.room(capacity, BLOCKS as u32);
        let fault = Arc::new(Fault::default());
        let place = format!(", seed {}, {part}", self.seed);
        let policy = Hosted::new(self.factory, self.name, place, room, Arc::clone(&fault))?;
        run(Host::of(Box::new(policy), room, Slots::Forever));
        fault.raised()
    }

    fn check(&self, sizes: bool, removals: bool) -> PyResult<()> {
        let Checked { seed, capacity, .. } = *self;
        let references = workload::mixed(seed, BLOCKS, LENGTH);
        self.run("references alone", capacity, |mut host| {
            contract::invariants_hold(&mut host, &references, capacity, true);
        })?;
        if removals {
            self.run("removals", capacity, |mut host| contract::blocks_can_be_removed(&mut host, &references))?;
        }
        if sizes {
            let steps = workload::resized(seed, BLOCKS, LENGTH, capacity);
            self.run("changes of size", capacity, |host| {
                contract::sizes_can_change(&mut [host], &steps, capacity, removals);
            })?;
        }
        if sizes && removals {
            self.run("a cache as large as what it holds", 1, |mut host| {
                contract::a_cache_can_be_as_large_as_what_it_holds(&mut host, &references, capacity, 0, true);
            })?;
        }
        Ok(())
    }
}

/// Runs the contract suite over what `factory` returns for a capacity.
#[pyfunction]
pub(crate) fn check_policy(
    factory: &Bound<'_, PyAny>,
    name: &str,
    seeds: u64,
    sizes: bool,
    removals: bool,
) -> PyResult<()> {
    for seed in 0..seeds {
        let capacity = CAPACITIES[seed as usize % CAPACITIES.len()];
        Checked { factory, name, seed, capacity }.check(sizes, removals)?;
    }
    Ok(())
}
