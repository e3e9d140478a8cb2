//! An engine on one device, in one thread: what makes operations for the tests, and checks what comes back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nigh_backend::{Completion, Device, Driver, Handle, Options, Target};
use nigh_engine::{Config, Engine, Fault, Op, Outcome, Port, PortConfig, Region, Reply, Request, Volume, WriteMode};
use nigh_policy::{Stream, Tenant};

/// The volume of all tests with one device.
pub(crate) const VOLUME: Volume = Volume(0);

/// Folders for tests: one on a disk and, if the machine has a file system in memory, one there.
pub(crate) fn folders() -> Vec<PathBuf> {
    let folders = [PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from("/dev/shm")];
    folders.into_iter().filter(|folder| folder.is_dir()).collect()
}

/// An empty file of `size` bytes in `folder`.
pub(crate) fn sparse(folder: &Path, size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(folder).expect("a temporary file");
    file.as_file().set_len(size).expect("room");
    file
}

/// `target` opened.
pub(crate) fn open(target: &str, options: &Options) -> Box<dyn Device> {
    target.parse::<Target>().expect("a target").open(options).expect("it opens")
}

/// A set-up that keeps almost nothing, so that requests become operations: one block resident, writes go through.
pub(crate) fn config(block_bytes: u32) -> Config {
    let mut config = Config::new(1, "lru".parse().expect("a policy"));
    config.block_bytes = block_bytes;
    config.spare = 3 * (1 << 20) / block_bytes + 64;
    config.limits.dirty = config.spare;
    config.write_back.start = 0;
    config.write_back.stop = 0;
    config
}

/// How a request ended: with a read's bytes.
pub(crate) type Ended = Result<Vec<u8>, Fault>;

/// A request, and the bytes of a write.
type Asked = (Request, Vec<u8>);

/// The engine and the device.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    device: Box<dyn Device>,
    start: Instant,
    tokens: u64,
    asked: BTreeMap<u64, Asked>,
    ended: BTreeMap<u64, Ended>,
    /// Operations done, in the order of their completion: offset and length.
    pub(crate) operations: Vec<(u64, u64)>,
}

impl Host {
    pub(crate) fn new(device: Box<dyn Device>, config: Config) -> Host {
        let mut engine = Engine::new(config).expect("a cache");
        let size = device.geometry().size().expect("a size");
        let replays = device.geometry().replays();
        engine.attach(Port(0), PortConfig { replays, ..PortConfig::default() }).expect("a port");
        engine.open(VOLUME, WriteMode::Through, &[Region::whole(Port(0), size)]).expect("a volume");
        Host {
            engine,
            device,
            start: Instant::now(),
            tokens: 0,
            asked: BTreeMap::new(),
            ended: BTreeMap::new(),
            operations: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Submits a request and the operations that follow; does not wait. `end` takes its outcome.
    pub(crate) fn begin(&mut self, op: Op, offset: u64, length: u64, data: &[u8]) -> u64 {
        self.tokens += 1;
        let token = self.tokens;
        let request =
            Request { volume: VOLUME, tenant: Tenant(0), op, offset, length, fua: false, stream: Stream(0), token };
        self.asked.insert(token, (request, data.to_vec()));
        let reply = self.engine.submit(self.now(), request).expect("accepted").reply;
        reply.into_iter().for_each(|reply| self.reply(reply));
        self.pump();
        token
    }

    fn reply(&mut self, reply: Reply) {
        let ended = match reply.outcome {
            Outcome::Fill(mut fill) => {
                fill.frames.copy_from(&self.asked[&reply.token].1);
                return self.engine.commit(self.now(), fill);
            }
            Outcome::Data(frames) => {
                let mut bytes = vec![0; frames.len()];
                frames.copy_to(&mut bytes);
                Ok(bytes)
            }
            Outcome::Done => Ok(Vec::new()),
            Outcome::Failed(fault) => Err(fault),
        };
        self.asked.remove(&reply.token);
        self.ended.insert(reply.token, ended);
    }

    /// Takes on what has happened, without waiting.
    pub(crate) fn pump(&mut self) {
        loop {
            self.engine.poll(self.now());
            while let Some(reply) = self.engine.next_reply() {
                self.reply(reply);
            }
            while let Some(operation) = self.engine.next_operation(self.now()) {
                self.device.submit(nigh_backend::Job::new(0, operation));
            }
            let mut done = Vec::new();
            self.device.poll(Instant::now(), &mut done);
            if done.is_empty() {
                return;
            }
            for completion in done {
                let (_, operation, result) = completion.settle();
                self.operations.push((operation.offset, operation.length));
                self.engine.complete(self.now(), operation, result);
            }
        }
    }

    /// Waits for the outcome of a request.
    pub(crate) fn end(&mut self, token: u64) -> Ended {
        while !self.ended.contains_key(&token) {
            self.pump();
            std::thread::yield_now();
        }
        self.ended.remove(&token).expect("just seen")
    }

    /// The outcome of a request, if there is one.
    pub(crate) fn try_end(&mut self, token: u64) -> Option<Ended> {
        self.ended.remove(&token)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Ended {
        let token = self.begin(Op::Read, offset, length, &[]);
        self.end(token)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Ended {
        let token = self.begin(Op::Write, offset, data.len() as u64, data);
        self.end(token)
    }

    pub(crate) fn flush(&mut self) -> Ended {
        let token = self.begin(Op::Flush, 0, 0, &[]);
        self.end(token)
    }

    /// The device, without the engine: as it is, whatever it has still to do.
    pub(crate) fn into_device(self) -> Box<dyn Device> {
        self.device
    }
}

/// A driver on a thread of its own that passes on completions.
pub(crate) fn driver(
    limit: usize,
    complete: impl FnMut(&mut Vec<Completion>) + Send + 'static,
) -> (Handle, std::thread::JoinHandle<()>) {
    let (driver, handle) = Driver::new(limit).expect("a driver");
    (handle, std::thread::spawn(move || driver.run(complete)))
}
