//! Tenants and what they say, in the engine.

use nigh_control::{Chunk, Directive, Statistics};
use nigh_engine::{Config, Op, Outcome, Tenants, WriteMode};
use nigh_policy::Tenant;

use crate::host::{BLOCK, Host, config};

const ONE: Tenant = Tenant(0);

/// A cache of `capacity` blocks, and disks of 64 blocks, each with a tenant of its number.
fn host(capacity: u32, disks: usize) -> Host {
    let config = Config { tenants: Some(Tenants::default()), ..config(capacity, "lru") };
    Host::new(config, &vec![(64 * BLOCK, WriteMode::Back); disks])
}

fn chunk(file: u32, first: usize, blocks: usize) -> Chunk {
    Chunk { file, bytes: Some(((first * BLOCK) as u64, (blocks * BLOCK) as u64)) }
}

fn statistics(host: &mut Host, tenant: Tenant) -> Statistics {
    host.engine.statistics(tenant).expect("a cache with tenants")
}

#[test]
fn what_comes_too_late_for_its_tenant_is_counted() {
    let mut host = host(16, 1);
    host.engine.direct(ONE, &Directive::Predict { accesses: vec![chunk(0, 0, 3)] }).unwrap();
    let fetched = host.operations();
    assert_eq!(fetched.iter().map(|operation| operation.length).sum::<u64>(), 3 * BLOCK as u64);
    // Twice by two requests, but it is late once.
    for _ in 0..2 {
        assert!(host.submit(host.request(0, Op::Read, 0, BLOCK), 0).is_none());
    }
    fetched.into_iter().for_each(|operation| host.perform(operation));
    for _ in 0..2 {
        assert!(matches!(host.reply(), Some(Outcome::Data(_))));
    }
    host.read(0, BLOCK, 2 * BLOCK);
    let Statistics { prefetched, used, late, wasted, .. } = statistics(&mut host, ONE);
    assert_eq!((prefetched, used, late, wasted), (3, 3, 1, 0));
    assert_eq!(host.counters(0).prefetch_late, 1);
}
