//! Operations of an engine for models, and how models are explored.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nigh_engine::{Config, Engine, Op, Operation, Outcome, Port, PortConfig, Region, Request, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};

use crate::device::Completion;
use crate::open::{OpenFile, Options};

pub(crate) const BLOCK: u64 = 512;
const BLOCKS: u64 = 4;

/// Explores all orders of the steps of `model`'s threads in which at most `preemptions` times a thread is interrupted that
/// could go on.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A file with a block full of each of `bytes`.
pub(crate) fn file(bytes: &[u8]) -> Arc<OpenFile> {
    let named = tempfile::NamedTempFile::new().expect("a temporary file");
    named.as_file().set_len(bytes.len() as u64 * BLOCK).expect("room");
    let options = Options { block_bytes: BLOCK as u32, ..Options::default() };
    let file = OpenFile::open(named.path(), &options).expect("it opens");
    write(&file, bytes);
    Arc::new(file)
}

/// Fills the first blocks of `file`, without the pool.
pub(crate) fn write(file: &OpenFile, bytes: &[u8]) {
    for (&byte, at) in bytes.iter().zip(0..) {
        file.buffered.write_all_at(&[byte; BLOCK as usize], at * BLOCK).expect("room");
    }
}

/// The first bytes of the first `blocks` blocks.
pub(crate) fn read(file: &OpenFile, blocks: u64) -> Vec<u8> {
    let byte = |block| {
        let mut byte = [0];
        file.buffered.read_exact_at(&mut byte, block * BLOCK).map(|()| byte[0]).expect("a block")
    };
    (0..blocks).map(byte).collect()
}

/// An engine of which each request becomes an operation.
pub(crate) struct Requests {
    engine: Engine,
    token: u64,
}

impl Requests {
    pub(crate) fn new() -> Requests {
        let mut config = Config::new(1, "lru".parse().expect("a policy"));
        config.block_bytes = BLOCK as u32;
        config.spare = 8;
        config.limits.requests = 4;
        config.limits.request_bytes = BLOCK as u32;
        config.limits.operation_bytes = BLOCK as u32;
        config.limits.dirty = 4;
        config.write_back.start = 0;
        config.write_back.stop = 0;
        let mut engine = Engine::new(config).expect("a cache");
        engine.attach(Port(0), PortConfig { depth: 4, ..PortConfig::default() }).expect("a port");
        engine.open(Volume(0), WriteMode::Through, &[Region::whole(Port(0), BLOCKS * BLOCK)]).expect("a volume");
        Requests { engine, token: 0 }
    }

    fn submit(&mut self, op: Op, block: u64) -> Option<Outcome> {
        self.token += 1;
        let (volume, tenant, stream) = (Volume(0), Tenant(0), Stream(0));
        let (offset, length, token) = (block * BLOCK, BLOCK, self.token);
        let request = Request { volume, tenant, op, offset, length, fua: false, stream, token };
        self.engine.submit(0, request).expect("accepted").reply.map(|reply| reply.outcome)
    }

    /// A read of `block`.
    pub(crate) fn read(&mut self, block: u64) -> Operation {
        assert!(self.submit(Op::Read, block).is_none());
        self.engine.next_operation(0).expect("a read")
    }

    /// A write that fills `block` with `byte`.
    pub(crate) fn write(&mut self, block: u64, byte: u8) -> Operation {
        let Some(Outcome::Fill(mut fill)) = self.submit(Op::Write, block) else { panic!("a fill") };
        fill.frames.copy_from(&[byte; BLOCK as usize]);
        self.engine.commit(0, fill);
        self.engine.next_operation(0).expect("a write")
    }

    /// Everything is done: returns the blocks that were read, and their bytes, in the blocks' order.
    pub(crate) fn complete(&mut self, done: Vec<Completion>) -> Vec<(u64, u8)> {
        let mut blocks = Vec::new();
        for completion in done {
            let (_, operation, result) = completion.settle();
            blocks.push(operation.offset / BLOCK);
            self.engine.complete(0, operation, result);
        }
        blocks.sort_unstable();
        let mut bytes = Vec::new();
        while let Some(reply) = self.engine.next_reply() {
            match reply.outcome {
                Outcome::Data(data) => {
                    let byte = data.slices().next().map(|slice| slice[0]).expect("bytes");
                    assert!(data.slices().flatten().all(|&other| other == byte), "bytes of several blocks");
                    bytes.push((reply.token, byte));
                    let _ = data.release();
                }
                outcome => assert!(matches!(outcome, Outcome::Done), "{outcome:?}"),
            }
        }
        self.engine.check();
        assert_eq!(self.engine.gauges().requests, 0, "an operation is lost");
        // Requests of one engine have the order of their tokens.
        bytes.sort_unstable();
        blocks.into_iter().zip(bytes.into_iter().map(|(_, byte)| byte)).collect()
    }
}
