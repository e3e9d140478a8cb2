//! An engine with disks in memory, for tests that go step by step.

use nigh_engine::{
    Action, Config, ConfigError, Counters, Engine, Fault, Fill, Limits, Op, Operation, Outcome, Port, PortConfig,
    Region, Reply, Request, Scheduler, Successor, Volume, WriteBack, WriteMode,
};
use nigh_policy::{Stream, Tenant};

pub(crate) const BLOCK: usize = 512;

/// A small cache of `capacity` blocks of 512 bytes, which writes nothing back on its own.
pub(crate) fn config(capacity: u32, policy: &str) -> Config {
    Config {
        block_bytes: BLOCK as u32,
        capacity,
        capacity_max: capacity.max(16),
        spare: 12,
        storing: 0,
        policy: policy.parse().expect("a registered policy"),
        levels: Vec::new(),
        tenants: None,
        limits: Limits {
            requests: 16,
            request_bytes: 8 * BLOCK as u32,
            loading: 16,
            prefetching: 4,
            operation_bytes: 4 * BLOCK as u32,
            dirty: 16,
        },
        write_back: WriteBack {
            start: 16,
            stop: 8,
            age_us: u64::MAX,
            retry_us: 1000,
            patience_us: u64::MAX,
            unflushed: u32::MAX,
        },
        verify: 1,
        fixed_hash: false,
        into_policy: false,
        curves: 0,
    }
}

/// An engine with disks in memory. Disk number `e` starts with byte `e * 64 + b % 64` all over its block `b`.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) disks: Vec<Vec<u8>>,
    pub(crate) now: u64,
}

impl Host {
    pub(crate) fn new(config: Config, disks: &[(usize, WriteMode)]) -> Host {
        Host::with_depth(config, disks, 4)
    }

    pub(crate) fn with_depth(config: Config, disks: &[(usize, WriteMode)], depth: u32) -> Host {
        let mut engine = Engine::new(config).expect("a possible set-up");
        let mut contents = Vec::new();
        for (at, &(bytes, mode)) in disks.iter().enumerate() {
            let port = Port(at as u16);
            engine
                .attach(port, PortConfig { depth, scheduler: Scheduler::FirstCome, replays: false })
                .expect("not open yet");
            engine.open(Volume(at as u32), mode, &[Region::whole(port, bytes as u64)]).expect("not open yet");
            contents.push((0..bytes).map(|byte| (at * 64 + byte / BLOCK % 64) as u8).collect());
        }
        Host { engine, disks: contents, now: 0 }
    }

    pub(crate) fn request(&self, volume: u32, op: Op, offset: usize, length: usize) -> Request {
        let (offset, length) = (offset as u64, length as u64);
        Request {
            volume: Volume(volume),
            tenant: Tenant(volume),
            op,
            offset,
            length,
            fua: false,
            stream: Stream(0),
            token: 7,
        }
    }

    /// Goes on with a change of size or policy as far as it goes without the devices.
    pub(crate) fn steps(&mut self) {
        while self.engine.step(self.now) {}
        drop(self.engine.take_retired());
    }

    /// Applies the tenants' pending directives.
    fn steps_of_tenants(&mut self) {
        if self.engine.hears_tenants() {
            self.steps();
        }
    }

    pub(crate) fn resize(&mut self, capacity: u32) {
        self.engine.resize(capacity).expect("possible");
        self.steps();
    }

    pub(crate) fn set_policy(&mut self, policy: &str) -> Result<(), ConfigError> {
        let policy = policy.parse().expect("registered");
        let next = Successor::new(&policy, &self.engine.setup(&policy)?)?;
        self.engine.set_policy(next)?;
        self.steps();
        Ok(())
    }

    /// Everything for the devices.
    pub(crate) fn operations(&mut self) -> Vec<Operation> {
        self.steps_of_tenants();
        std::iter::from_fn(|| self.engine.next_operation(self.now)).collect()
    }

    /// Does `operation` and completes it.
    pub(crate) fn perform(&mut self, mut operation: Operation) {
        if !operation.verify() {
            return self.engine.complete(self.now, operation, Err(Fault::DAMAGED));
        }
        let disk = &mut self.disks[usize::from(operation.port.0)];
        let range = operation.offset as usize..(operation.offset + operation.length) as usize;
        match &mut operation.action {
            Action::Read(frames) => frames.copy_from(&disk[range]),
            Action::Write(frames) => frames.copy_to(&mut disk[range]),
            Action::Flush => {}
            Action::Discard => disk[range].fill(0xdd),
            Action::Zeroes { .. } => disk[range].fill(0),
        }
        self.engine.complete(self.now, operation, Ok(()));
    }

    pub(crate) fn fail(&mut self, operation: Operation) {
        self.engine.complete(self.now, operation, Err(Fault(5)));
    }

    /// Does everything there is to do for the devices.
    pub(crate) fn run(&mut self) {
        self.steps_of_tenants();
        while let Some(operation) = self.engine.next_operation(self.now) {
            self.perform(operation);
        }
    }

    /// Submits; a write is filled with `byte`.
    pub(crate) fn submit(&mut self, request: Request, byte: u8) -> Option<Outcome> {
        let reply = self.engine.submit(self.now, request).expect("the request is taken");
        self.fill(reply.reply.map(|reply| reply.outcome), byte)
    }

    fn fill(&mut self, outcome: Option<Outcome>, byte: u8) -> Option<Outcome> {
        match outcome {
            Some(Outcome::Fill(mut fill)) => {
                fill.frames.slices_mut().for_each(|slice| slice.fill(byte));
                self.engine.commit(self.now, fill);
                self.reply()
            }
            outcome => outcome,
        }
    }

    pub(crate) fn reply(&mut self) -> Option<Outcome> {
        self.engine.next_reply().map(|reply| reply.outcome)
    }

    /// Submits, does everything for the devices, and gives the outcome.
    pub(crate) fn finish(&mut self, request: Request, byte: u8) -> Outcome {
        let mut outcome = self.submit(request, byte);
        while outcome.is_none() {
            self.run();
            let reply = self.reply();
            assert!(reply.is_some(), "nothing is left to wait for");
            outcome = self.fill(reply, byte);
        }
        outcome.expect("the loop's end")
    }

    pub(crate) fn read(&mut self, volume: u32, offset: usize, length: usize) -> Vec<u8> {
        match self.finish(self.request(volume, Op::Read, offset, length), 0) {
            Outcome::Data(data) => {
                let mut bytes = vec![0; length];
                data.copy_to(&mut bytes);
                bytes
            }
            other => panic!("a read got {other:?}"),
        }
    }

    pub(crate) fn write(&mut self, volume: u32, offset: usize, length: usize, byte: u8) {
        let outcome = self.finish(self.request(volume, Op::Write, offset, length), byte);
        assert!(matches!(outcome, Outcome::Done), "a write got {outcome:?}");
    }

    pub(crate) fn counters(&self, volume: u32) -> Counters {
        self.engine.counters(Volume(volume)).expect("an open volume")
    }
}

/// The frames to fill of a write that was replied to.
pub(crate) fn fill_of(reply: Option<Reply>) -> Fill {
    match reply {
        Some(Reply { outcome: Outcome::Fill(fill), .. }) => fill,
        other => panic!("expected frames to fill, not {other:?}"),
    }
}
