//! nigh: a disk in memory, all of which is cached. A hit is a pin, or a read with its copy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use nigh_host::{DiskSettings, Host, Settings, Stream};

use crate::{BLOCK, Cache, HOT, ROOM, THREADS, repeat};

/// The most ns that a hit may take, by number of threads.
const PIN: [Option<f64>; THREADS.len()] = [Some(350.0), Some(600.0), None, None];
const READ: [Option<f64>; THREADS.len()] = [Some(1100.0), None, None, None];

pub(crate) struct Nigh {
    policy: String,
    reads: bool,
    host: Arc<Host>,
}

impl Nigh {
    /// A cache whose hits are pins, and the same one whose hits are reads.
    pub(crate) fn start(policy: &str) -> anyhow::Result<[Nigh; 2]> {
        let disk = DiskSettings::new("disk", format!("memory:{}B", HOT * BLOCK as u64).parse()?);
        let host = Arc::new(Host::start(Settings::new(ROOM * BLOCK as u64, policy.parse()?, vec![disk]))?);
        let session = host.open("disk").context("it was just added")?;
        let mut bytes = vec![0; BLOCK];
        // Loaded, and then hit.
        for _ in 0..2 {
            (0..HOT).try_for_each(|block| session.read(block * BLOCK as u64, &mut bytes))?;
        }
        Ok([false, true].map(|reads| Nigh { policy: policy.to_owned(), reads, host: host.clone() }))
    }
}

impl Cache for Nigh {
    fn name(&self) -> String {
        format!("nigh {}{}", self.policy, if self.reads { ", copy" } else { "" })
    }

    fn hit(&self, number: u64, stop: &AtomicBool) -> u64 {
        let session = self.host.open_as("disk", Stream(number)).expect("it is open");
        let mut bytes = [0; BLOCK];
        repeat(number, stop, |block| {
            let start = block * BLOCK as u64;
            if self.reads {
                session.read(start, &mut bytes).expect("all is in memory");
                std::hint::black_box(&bytes);
            } else {
                let pinned = session.try_pin(start..start + BLOCK as u64).expect("there are few pins");
                std::hint::black_box(pinned.expect("all is in memory").len());
            }
        })
    }

    fn goal(&self, at: usize) -> Option<f64> {
        if self.reads { READ[at] } else { PIN[at] }
    }

    fn locked(&self) -> Option<u64> {
        Some(self.host.cache().acquisitions())
    }
}
