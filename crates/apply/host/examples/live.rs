//! Policy and size are changed while the program runs, and what more memory would bring is known before.
//!
//! `cargo run --release -p nigh-host --example live`

#![allow(clippy::print_stdout, reason = "its output")]

use std::error::Error;

use nigh_host::{BLOCK, DiskSettings, Host, Session, Settings};

const ROOM: u64 = 1024;

/// Reads a loop over 1.5 times as many blocks as there is room; returns the hits of 100 reads.
fn run(host: &Host, session: &Session) -> Result<f64, Box<dyn Error>> {
    let before = host.statistics().1[0].clone();
    for at in 0..20 * ROOM {
        let block = at % (ROOM * 3 / 2);
        drop(session.pin(block * BLOCK..(block + 1) * BLOCK)?);
    }
    let after = &host.statistics().1[0];
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    Ok(100.0 * hits as f64 / (hits + misses) as f64)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let disk = DiskSettings::new("disk", "memory:64M".parse()?);
    let mut settings = Settings::new(ROOM * BLOCK, "lru".parse()?, vec![disk]);
    settings.memory_max = 2 * ROOM * BLOCK;
    let host = Host::start(settings)?;
    let session = host.open("disk")?;
    let lru = run(&host, &session)?;
    host.change(None, Some(&"lirs".parse()?))?;
    let lirs = run(&host, &session)?;
    host.change(Some(2 * ROOM * BLOCK), None)?;
    run(&host, &session)?;
    let larger = run(&host, &session)?;
    println!("hits: {lru:.1} % with LRU, {lirs:.1} % with LIRS, {larger:.1} % with twice the memory");
    assert!(lru < 1.0 && lirs > 50.0 && larger > 99.9);
    Ok(())
}
