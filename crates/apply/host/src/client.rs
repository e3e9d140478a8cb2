//! A client of a disk, and its reads without a shard's lock.
//!
//! 1. A read that [`Published`](nigh_engine::Published) finds is noted in its client's list for the shard.
//! 2. A client that begins a list enters itself in `Shard::unknown`.
//! 3. A client reports its own list before each request that it executes under the lock. With one client, the policy therefore gets all references in
//!    their order.
//! 4. Each call of an engine also reports the list that was begun first. Statistics report all before they look (`Cache::report_all`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nigh_engine::Shared;
use nigh_policy::Stream;

use crate::disk::Disk;
use crate::shard::{Part, Shard};
use crate::work::Work;

/// A client of a disk: a connection or a session.
pub struct Client {
    pub(crate) disk: Arc<Disk>,
    /// The code or connection that issues its requests.
    pub(crate) stream: Stream,
    /// Read-ahead ends here at the latest.
    ahead_end: AtomicU64,
    /// By shard.
    parts: Box<[Arc<Part>]>,
}

impl Client {
    pub(crate) fn new(shards: &[Shard], disk: &Arc<Disk>, stream: Stream) -> Client {
        let parts = shards.iter().map(|shard| Arc::new(Part::new(shard, disk, stream))).collect();
        Client { disk: disk.clone(), stream, ahead_end: AtomicU64::new(u64::MAX), parts }
    }

    /// Read-ahead goes no further than `end` from now on.
    #[inline]
    pub(crate) fn limit_readahead(&self, end: u64) {
        self.ahead_end.store(end, Ordering::Relaxed);
    }

    /// The end of what may be read ahead.
    pub(crate) fn ahead_end(&self) -> u64 {
        self.ahead_end.load(Ordering::Relaxed).min(self.disk.size())
    }

    pub(crate) fn part(&self, shard: u32) -> &Part {
        &self.parts[shard as usize]
    }

    /// The bytes of a read of the shard `at`, which has the number `shard`, if they can be read without its lock.
    #[inline]
    pub(crate) fn read(&self, at: &Shard, shard: u32, bytes: &Range<u64>, work: &mut Work) -> Option<Shared> {
        let (offset, length) = (bytes.start, bytes.end - bytes.start);
        match self.part(shard).published.read(self.disk.volume, offset, length) {
            Ok(data) if at.note(&self.parts[shard as usize], offset, length) => return Some(data),
            Ok(data) => work.release(shard, data),
            Err(true) => _ = work.polls.insert(shard),
            Err(false) => {}
        }
        None
    }
}
