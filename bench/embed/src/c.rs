//! nigh from C: the same hits by `nigh_pin` and `nigh_unpin`, called by a loop in C (`pins.c`).

#![expect(unsafe_code, reason = "calls C, and what C calls")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ::nigh_host::{DiskSettings, Host, Settings};
use anyhow::ensure;
use nigh::{nigh_close, nigh_close_disk, nigh_disk, nigh_host, nigh_open, nigh_open_disk, nigh_read};

use crate::{BLOCK, Cache, HOT, LOT, ROOM, median};

/// Blocks of the comparison: they stay in the processor's cache, whose misses would hide the difference.
const FEW: u64 = 64;
/// Pairs of turns of the comparison.
const PAIRS: usize = 2000;

unsafe extern "C" {
    fn pins_hit(disk: *mut c_void, state: &mut u64, blocks: u64, count: u64) -> c_int;
}

const NAME: &str = "disk";

pub(crate) struct C {
    policy: String,
    host: *mut nigh_host,
}

// SAFETY: any thread may call the library with a host.
unsafe impl Sync for C {}

impl C {
    /// A cache whose hits are pins.
    pub(crate) fn start(policy: &str) -> anyhow::Result<C> {
        let (memory, bytes) = (ROOM * BLOCK as u64, HOT * BLOCK as u64);
        let settings = format!(
            "memory = '{memory}B'\nmemory-max = '{memory}B'\npolicy = '{policy}'\nreadahead = 'none'\n[[disk]]\nname = '{NAME}'\ntarget = 'memory:{bytes}B'"
        );
        let mut host = null_mut();
        // SAFETY: a text of this length, and a place for a handle.
        let opened = unsafe { nigh_open(settings.as_ptr().cast(), settings.len(), &mut host) };
        ensure!(opened == 0, "nigh_open: {opened}");
        let (c, mut bytes) = (C { policy: policy.to_owned(), host }, vec![0_u8; BLOCK]);
        let disk = c.open();
        // Loaded, and then hit.
        for block in (0..2).flat_map(|_| 0..HOT) {
            // SAFETY: an open disk, and memory of this length.
            let read = unsafe { nigh_read(disk, block * BLOCK as u64, bytes.as_mut_ptr().cast(), BLOCK) };
            ensure!(read == 0, "nigh_read: {read}");
        }
        // SAFETY: the last call with it.
        unsafe { nigh_close_disk(disk) };
        Ok(c)
    }

    fn open(&self) -> *mut nigh_disk {
        let mut disk = null_mut();
        // SAFETY: a host that is open, a text of this length, and a place for a handle.
        let opened = unsafe { nigh_open_disk(self.host, NAME.as_ptr().cast(), NAME.len(), &mut disk) };
        assert_eq!(opened, 0, "it has the disk");
        disk
    }
}

impl Drop for C {
    fn drop(&mut self) {
        // SAFETY: the last call with it.
        unsafe { nigh_close(self.host, -1) };
    }
}

impl Cache for C {
    fn name(&self) -> String {
        format!("nigh {}, in C", self.policy)
    }

    fn hit(&self, number: u64, stop: &AtomicBool) -> u64 {
        let (disk, mut state, mut hits) = (self.open(), number, 0);
        while !stop.load(Ordering::Relaxed) {
            hit(disk, &mut state, HOT);
            hits += LOT;
        }
        // SAFETY: the last call with it.
        unsafe { nigh_close_disk(disk) };
        hits
    }
}

/// Hits `LOT` times from C.
fn hit(disk: *mut nigh_disk, state: &mut u64, blocks: u64) {
    // SAFETY: an open disk.
    let result = unsafe { pins_hit(disk.cast(), state, blocks, LOT) };
    assert_eq!(result, 0, "all is in memory");
}

/// The ns of a hit by `try_pin`, and how many more it takes from C: medians of pairs of turns.
pub(crate) fn price(policy: &str) -> anyhow::Result<(f64, f64)> {
    let disk = DiskSettings::new(NAME, format!("memory:{}B", HOT * BLOCK as u64).parse()?);
    let host = Host::start(Settings::new(ROOM * BLOCK as u64, policy.parse()?, vec![disk]))?;
    let session = host.open(NAME)?;
    (0..FEW).try_for_each(|block| session.pin(block * BLOCK as u64..(block + 1) * BLOCK as u64).map(drop))?;
    let c = C::start(policy)?;
    let (disk, mut state, mut random) = (c.open(), 1, fastrand::Rng::with_seed(1));
    let (mut ns, mut more) = (Vec::with_capacity(PAIRS), Vec::with_capacity(PAIRS));
    for _ in 0..PAIRS {
        let begin = Instant::now();
        hit(disk, &mut state, FEW);
        let from_c = begin.elapsed();
        let begin = Instant::now();
        for _ in 0..LOT {
            let start = random.u64(..FEW) * BLOCK as u64;
            let pinned = session.try_pin(start..start + BLOCK as u64)?;
            std::hint::black_box(pinned.expect("all is in memory").len());
        }
        let [from_c, from_rust] = [from_c, begin.elapsed()].map(|time| time.as_nanos() as f64 / LOT as f64);
        ns.push(from_rust);
        more.push(from_c - from_rust);
    }
    // SAFETY: the last call with it.
    unsafe { nigh_close_disk(disk) };
    Ok((median(&mut ns), median(&mut more)))
}
