//! nigh: a disk in memory, all of which is cached.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use nigh_engine::{Op, Outcome};
use nigh_host::front::{Submission, Waiter, Work};
use nigh_host::{DiskSettings, Host, Settings};
use nigh_policy::Stream;

use crate::{BLOCK, Cache, HOT, ROOM, repeat};

pub(crate) struct Nigh {
    policy: String,
    host: Host,
}

impl Nigh {
    pub(crate) fn start(policy: String) -> anyhow::Result<Nigh> {
        let disk = DiskSettings::new("disk", format!("memory:{}B", HOT * BLOCK as u64).parse()?);
        let host = Host::start(Settings::new(ROOM * BLOCK as u64, policy.parse()?, vec![disk]))?;
        let session = host.open("disk").context("it was just added")?;
        let mut bytes = vec![0; BLOCK];
        // Loaded, and then hit.
        for _ in 0..2 {
            (0..HOT).try_for_each(|block| session.read(block * BLOCK as u64, &mut bytes))?;
        }
        Ok(Nigh { policy, host })
    }
}

impl Cache for Nigh {
    fn name(&self) -> String {
        format!("nigh {}", self.policy)
    }

    fn hit(&self, number: u64, stop: &AtomicBool) -> u64 {
        let disk = self.host.disk("disk").expect("it is open");
        let cache = self.host.cache();
        let (client, mut work) = (cache.client(&disk, Stream(number)), Work::default());
        repeat(number, stop, |block| {
            let range = block * BLOCK as u64..(block + 1) * BLOCK as u64;
            let submission = Submission { op: Op::Read, range, fua: false };
            let waiter = || -> Arc<dyn Waiter> { unreachable!("all is in memory") };
            let submitted = cache.submit(&client, submission, &mut work, waiter).expect("a hit is not refused");
            let Some(Outcome::Data(data)) = submitted.outcome else { unreachable!("all is in memory") };
            std::hint::black_box(data.len());
            work.release(submitted.shard, data);
            cache.dispatch(&mut work, None);
        })
    }

    fn locked(&self) -> Option<u64> {
        Some(self.host.cache().acquisitions())
    }
}
