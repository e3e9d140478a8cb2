//! Caches of objects for Rust programs, with counted references to blocks as their objects.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{BLOCK, Cache, HOT, ROOM, repeat};

type Block = Arc<[u8; BLOCK]>;

struct Peer<G> {
    name: &'static str,
    get: G,
}

impl<G: Fn(u64) -> bool + Sync> Cache for Peer<G> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn hit(&self, number: u64, stop: &AtomicBool) -> u64 {
        repeat(number, stop, |block| assert!((self.get)(block), "all is in memory"))
    }
}

pub(crate) fn all() -> Vec<Box<dyn Cache>> {
    let block = || -> Block { Arc::new([0; BLOCK]) };
    let quick = quick_cache::sync::Cache::<u64, Block>::new(ROOM as usize);
    let moka = moka::sync::Cache::<u64, Block>::new(ROOM);
    let foyer = |eviction: foyer_memory::EvictionConfig| {
        let cache = foyer_memory::CacheBuilder::new(ROOM as usize)
            .with_eviction_config(eviction)
            .build::<foyer_memory::CacheProperties>();
        (0..HOT).for_each(|at| _ = cache.insert(at, block()));
        move |at: u64| cache.get(&at).is_some_and(|entry| std::hint::black_box(entry.value().len()) == BLOCK)
    };
    for at in 0..HOT {
        quick.insert(at, block());
        moka.insert(at, block());
    }
    let is_whole = |block: Block| std::hint::black_box(block.len()) == BLOCK;
    vec![
        Box::new(Peer { name: "quick_cache", get: move |at: u64| quick.get(&at).is_some_and(is_whole) }),
        Box::new(Peer { name: "foyer lru", get: foyer(foyer_memory::LruConfig::default().into()) }),
        Box::new(Peer { name: "foyer s3-fifo", get: foyer(foyer_memory::S3FifoConfig::default().into()) }),
        Box::new(Peer { name: "moka", get: move |at: u64| moka.get(&at).is_some_and(is_whole) }),
    ]
}
