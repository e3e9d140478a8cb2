//! Helpers of the tests of the timed simulation.

use nigh_device::Profile;
use nigh_engine::Scheduler;
use nigh_sim::timed::{Disk, Processors, Program, Setup};

pub(crate) const BLOCK: u64 = 4096;

/// A device on which each request takes `us`, and `depth` at a time.
pub(crate) fn device(depth: u32, us: u32) -> Profile {
    let text = format!(
        "kind = 'volume'\ntitle = 'a test'\nbytes = 1_073_741_824\ndepth = {depth}\nread_us = {us}\nwrite_us = {us}\n\
         jitter_us = 0\niops = 1e9\nio_kib = 1024\nmb_per_s = 1e6\nburst_ms = 1000\n"
    );
    Profile::parse(&text).unwrap()
}

/// Programs on disks, without levels and tenants.
pub(crate) fn setup<'a>(
    programs: &'a [Program],
    disks: &'a [Disk<'a>],
    readahead: &'a nigh_prefetch::Spec,
) -> Setup<'a> {
    Setup {
        programs,
        block_bytes: BLOCK as u32,
        disks,
        levels: &[],
        encoded: None,
        seed: 1,
        readahead,
        scheduler: Scheduler::default(),
        tenants: None,
        processors: Processors::Each,
        processor_ns_a_block: 0,
        warmup: 0,
        progress: None,
        stop: None,
    }
}
