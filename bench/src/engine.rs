//! An engine without a host: its device is done at once, and contents are nobody's business.

use anyhow::Context;
use nigh_engine::{Config, Engine, Op, Port, PortConfig, Region, Reply, Request, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};

pub(crate) const BLOCK: u64 = 4096;

/// An engine with one disk of this many bytes.
pub(crate) fn with_disk(config: Config, bytes: u64) -> anyhow::Result<Engine> {
    let mut engine = Engine::new(config)?;
    engine.attach(Port(0), PortConfig::default())?;
    engine.open(Volume(0), WriteMode::Back, &[Region::whole(Port(0), bytes)])?;
    Ok(engine)
}

/// Asks for `block`. The reply, if it is there.
pub(crate) fn ask(engine: &mut Engine, block: u64) -> anyhow::Result<Option<Reply>> {
    let (volume, tenant, stream) = (Volume(0), Tenant(0), Stream(0));
    let request =
        Request { volume, tenant, op: Op::Read, offset: block * BLOCK, length: BLOCK, fua: false, stream, token: 0 };
    Ok(engine.submit(0, request).ok().context("no request is refused")?.reply)
}

/// Reads `block`.
pub(crate) fn read(engine: &mut Engine, block: u64) -> anyhow::Result<()> {
    if ask(engine, block)?.is_none() {
        let operation = engine.next_operation(0).context("a miss is read")?;
        engine.complete(0, operation, Ok(()));
        engine.next_reply().context("the read is over")?;
    }
    Ok(())
}
