//! Decoded pages of a file, for several threads: shards by hash, each a cache behind a lock. The weight of a page is its size in bytes.

#![allow(clippy::print_stdout, reason = "an example")]

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use nigh_keyed::{Cache, Error};

/// Page `number` as it is stored: pairs of a count and a byte.
fn stored(number: u64) -> Vec<(u16, u8)> {
    (0..=number % 5).map(|at| (100 * (at + 1) as u16, (number + at) as u8)).collect()
}

/// The page as it is used.
fn decoded(number: u64) -> Arc<[u8]> {
    stored(number).into_iter().flat_map(|(count, byte)| std::iter::repeat_n(byte, count.into())).collect()
}

/// A cache of decoded pages that threads share.
struct Pages {
    shards: Vec<Mutex<Cache<u64, Arc<[u8]>>>>,
    hasher: RandomState,
}

impl Pages {
    /// Pages of at most `limit` bytes in sum, each shard a part of them.
    fn new(policy: &str, limit: u64, shards: u64) -> Result<Pages, Error> {
        let shard = |_| Ok(Mutex::new(Cache::with_weights(policy.parse()?, limit / shards)?));
        Ok(Pages { shards: (0..shards).map(shard).collect::<Result<_, Error>>()?, hasher: RandomState::new() })
    }

    /// Page `number`. Pages are decoded without the lock, so that hits do not wait for that.
    fn page(&self, number: u64) -> Arc<[u8]> {
        let shard = &self.shards[self.hasher.hash_one(number) as usize % self.shards.len()];
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = lock().get(&number) {
            return page.clone();
        }
        let page = decoded(number);
        // In a variable, so that what leaves is dropped after the lock.
        let inserted = lock().insert_weighted(number, page.clone(), page.len() as u64);
        drop(inserted);
        page
    }
}

pub(crate) fn main() {
    let pages = Pages::new("s3-fifo", 400_000, 4).expect("a policy that works with keys");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pages = &pages;
            scope.spawn(move || {
                for step in 0..20_000_u64 {
                    // Few pages often, and many seldom.
                    let number = if step % 3 == 0 { step * 7919 % 5000 } else { (step * step + thread) % 100 };
                    let page = pages.page(number);
                    assert_eq!(page[0], number as u8);
                }
            });
        }
    });
    let (mut hits, mut misses, mut bytes) = (0, 0, 0);
    for shard in pages.shards {
        let cache = shard.into_inner().expect("no thread panicked");
        let counts = cache.counts();
        (hits, misses, bytes) = (hits + counts.hits, misses + counts.misses, bytes + cache.weight());
    }
    println!("{hits} hits, {misses} misses, {bytes} bytes of decoded pages");
    assert!(hits + misses == 80_000 && hits > misses && bytes <= 400_000);
}
