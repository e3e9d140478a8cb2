//! Deterministic simulation: engines with random set-ups serve random requests on disks that fail, tear, reorder and
//! crash, on a virtual clock, and every byte is checked against a model. The same seed does exactly the same.
pub(crate) mod administer;
pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod encoded;
mod flight;
pub(crate) mod hang;
pub(crate) mod level;
pub(crate) mod model;
pub(crate) mod tenants;

use std::collections::BTreeMap;
use std::ops::Range;

use disk::{Disk, SECTOR};
use level::LevelDisk;
use model::{ATOM, Model, Moment, Safety, ZEROS, encode};
use nigh_control::Allocation;
use nigh_engine::{
    Action, Config, Deadline, Engine, Fault, Fill, Limits, Noted, Op, Operation, Outcome, Port, PortConfig, Refusal,
    Region, Reply, Request, Scheduler, Shared, Submitted, Volume, WriteBack, WriteMode,
};
use nigh_policy::{Stream, Tenant};
use rand::{RngExt, SeedableRng};
pub(crate) use rand_xoshiro::Xoshiro256PlusPlus as Random;
use tenants::{TENANTS, Talk};

/// Configuration of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Steps at random.
    pub(crate) steps: u32,
    /// Whether operations fail at random, and volumes crash.
    pub(crate) calm: bool,
    /// The operation that fails, counted from 0.
    pub(crate) fail_at: Option<u64>,
    /// From this operation on, counted from 0, some disks fail every operation.
    pub(crate) dead_from: Option<u64>,
    /// The loss of power comes when this many device writes are complete.
    pub(crate) crash_at: Option<u64>,
    /// From some operation on, the first disk completes nothing until the end. The other volumes must not notice. Implies
    /// `calm`.
    pub(crate) hangs: bool,
    /// Memory damages blocks. Implies `calm`.
    pub(crate) damages: bool,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    /// Hits without the engine.
    pub(crate) found: u64,
    /// Times that the first blocks of a read were completed before the others.
    pub(crate) first_blocks: u64,
    pub(crate) operations: u64,
    pub(crate) device_writes: u64,
    pub(crate) failed: u64,
    pub(crate) crashes: u64,
    pub(crate) adopted: u64,
    pub(crate) joined: u64,
    pub(crate) atoms_read: u64,
    /// Directives of tenants that were accepted.
    pub(crate) said: u64,
    pub(crate) prefetched: u64,
    pub(crate) prefetch_used: u64,
    pub(crate) overruled: u64,
    pub(crate) mistakes: u64,
    pub(crate) lists_dropped: u64,
    pub(crate) level_hits: u64,
    pub(crate) stores: u64,
    pub(crate) mismatches: u64,
    /// Times that levels took too long.
    pub(crate) late: u64,
    /// Blocks that were fetched from encoded ones.
    pub(crate) decoded: u64,
    /// Bits that flipped in encoded blocks.
    pub(crate) flipped: u64,
    pub(crate) invalidations: u64,
    pub(crate) switched_off: u64,
    pub(crate) restored: u64,
    /// Failed flushes after which a volume had lost data.
    pub(crate) lost: u64,
    /// Flushes that failed for another engine.
    pub(crate) distrusted: u64,
    /// Operations that a disk did not complete until the end.
    pub(crate) hung: u64,
    /// Blocks found to be damaged in memory.
    pub(crate) damaged: u64,
}

struct Pending {
    request: Request,
    began: Moment,
}

pub(crate) struct InFlight {
    operation: Operation,
    due: u64,
    /// For a flush: how far it reaches.
    reach: u64,
    fails: bool,
    /// For a write: the device had it when a flush failed, and forgot it.
    forgotten: bool,
    /// The device is done with it, and some of its blocks are complete.
    begun: bool,
}

struct Held {
    data: Shared,
    expected: Vec<u8>,
    until: u64,
}

/// One simulated machine.
pub(crate) struct World {
    plan: Plan,
    random: Random,
    engine: Engine,
    /// Reads that are not reported to it yet.
    noted: BTreeMap<Volume, Noted>,
    modes: Vec<WriteMode>,
    /// Of each disk.
    ports: PortConfig,
    /// Beginning of each volume's second region, at another port of its disk; the end of a volume with one region.
    splits: Vec<u64>,
    disks: Vec<Disk>,
    levels: Vec<LevelDisk>,
    /// Whether volumes that are closed stay so, and which are.
    restarting: bool,
    shut: Vec<usize>,
    models: Vec<Model>,
    closed: Vec<bool>,
    /// Of those closed, volumes that drop what is dirty.
    discarding: Vec<bool>,
    /// Of volumes that are frozen, the time until which they are, and whether they were still.
    frozen: Vec<Option<(u64, bool)>>,
    /// Disks that fail everything from `Plan::dead_from` on.
    dying: Vec<bool>,
    now: u64,
    moment: Moment,
    next_token: u64,
    pending: BTreeMap<u64, Pending>,
    fills: Vec<(u64, Fill)>,
    held: Vec<Held>,
    in_flight: Vec<InFlight>,
    /// Operations that a disk that hangs does not complete, and the first of them, counted from 0.
    stuck: Vec<InFlight>,
    hangs_from: u64,
    fault_rate: f64,
    /// Present if there are tenants.
    talk: Option<Talk>,
    done: Done,
}

const CLOSE: u64 = 1 << 60;

/// The policies that an engine can have.
pub(crate) fn policies() -> Vec<&'static str> {
    nigh_policy::registry().iter().filter(|info| !info.offline).map(|info| info.name).collect()
}

fn config(random: &mut Random) -> Config {
    let block_bytes = 512 << random.random_range(0..4u32);
    let request_blocks = random.random_range(1..12u32);
    let spare = request_blocks + 4 + if random.random_bool(0.5) { 0 } else { random.random_range(0..40) };
    let dirty = request_blocks + 1 + random.random_range(0..60u32);
    let start = random.random_range(0..=dirty);
    let policies = policies();
    let capacity = if random.random_bool(0.2) { random.random_range(1..8) } else { random.random_range(8..=160) };
    Config {
        block_bytes,
        capacity,
        capacity_max: if random.random_bool(0.5) { capacity } else { 160 },
        spare,
        storing: 0,
        policy: policies[random.random_range(0..policies.len())].parse().expect("a registered policy"),
        levels: Vec::new(),
        tenants: None,
        limits: Limits {
            requests: random.random_range(1..40),
            request_bytes: request_blocks * block_bytes,
            loading: request_blocks + 1 + random.random_range(0..60u32),
            prefetching: random.random_range(0..20),
            operation_bytes: block_bytes * random.random_range(1..10u32),
            dirty,
        },
        write_back: WriteBack {
            start,
            stop: random.random_range(0..=start),
            age_us: if random.random_bool(0.5) { u64::MAX } else { random.random_range(0..20_000) },
            retry_us: random.random_range(0..2_000),
            patience_us: random.random_range(0..50_000),
            unflushed: if random.random_bool(0.5) { 1 << 20 } else { random.random_range(1..60) },
        },
        verify: 0,
        fixed_hash: true,
        into_policy: capacity.is_multiple_of(5),
        curves: if capacity.is_multiple_of(3) { 16 } else { 0 },
    }
}

fn port_config(random: &mut Random) -> PortConfig {
    let scheduler = match random.random_range(0..5) {
        0 => Scheduler::FirstCome,
        1 => Scheduler::Batches { most: random.random_range(1..20) },
        2 => Scheduler::Elevator,
        3 => Scheduler::Look,
        _ => Scheduler::Deadline(Deadline {
            read_us: random.random_range(0..3000),
            write_us: random.random_range(0..9000),
            batch: random.random_range(1..20),
            reads_per_write: random.random_range(0..4),
        }),
    };
    PortConfig { depth: random.random_range(1..12), scheduler, replays: false }
}

impl World {
    fn new(mut plan: Plan) -> World {
        let mut random = Random::seed_from_u64(plan.seed);
        let mut config = config(&mut random);
        let hangs_from = if plan.hangs { random.random_range(0..100) } else { u64::MAX };
        plan.calm |= plan.hangs || plan.damages;
        config.verify = if plan.damages { 1 } else { (plan.seed % 3) as u32 };
        if plan.hangs {
            hang::enlarge(&mut config);
        }
        let ports = port_config(&mut random);
        let (mut levels, storing) = level::levels(&mut random, config.block_bytes, plan.calm);
        config.storing = storing;
        let count = random.random_range(if plan.hangs { 2..4 } else { 1..4 });
        let fault_rate = if !plan.calm && random.random_bool(0.5) { random.random_range(0.0..0.2) } else { 0.0 };
        if !plan.calm && random.random_bool(0.2) {
            plan.dead_from = Some(random.random_range(0..200));
        }
        let bad_sectors = if plan.calm { 0 } else { [0, 0, 1, 4][random.random_range(0..4usize)] };
        let (mut modes, mut disks, mut models) = (Vec::new(), Vec::new(), Vec::new());
        let (mut blocks, mut dying, mut splits) = (Vec::new(), Vec::new(), Vec::new());
        for salt in 1..=count {
            blocks.push(random.random_range(4..120));
            let bytes = blocks[blocks.len() - 1] * config.block_bytes as usize;
            let bytes = (bytes - random.random_range(0..config.block_bytes as usize)).next_multiple_of(SECTOR);
            modes.push(if random.random_bool(0.3) { WriteMode::Through } else { WriteMode::Back });
            let bad = (0..bad_sectors).map(|_| random.random_range(0..(bytes / SECTOR) as u64)).collect();
            disks.push(Disk::new(bytes, salt, bad));
            models.push(Model::new(bytes / ATOM, salt));
            dying.push(random.random_bool(0.5));
            let whole = bytes as u64 / u64::from(config.block_bytes);
            let split = random.random_bool(0.3) && whole > 1;
            let first =
                if split { random.random_range(1..whole) * u64::from(config.block_bytes) } else { bytes as u64 };
            splits.push(first);
        }
        let talk = random.random_bool(0.4).then(|| {
            let (tenants, talk) = tenants::tenants(&mut random, &blocks);
            if tenants.control.allocation == Allocation::Global {
                config.policy = "lru".parse().expect("registered");
            }
            config.tenants = Some(tenants);
            talk
        });
        if talk.is_none() && random.random_bool(0.5) {
            level::unify(&mut random, &mut config, &mut levels);
        }
        let mut world = World {
            plan,
            engine: Engine::new(config).expect("the set-up is possible"),
            noted: BTreeMap::new(),
            closed: vec![false; disks.len()],
            discarding: vec![false; disks.len()],
            frozen: vec![None; disks.len()],
            dying,
            modes,
            ports,
            splits,
            disks,
            levels,
            restarting: false,
            shut: Vec::new(),
            models,
            now: 0,
            moment: 1,
            next_token: 2,
            pending: BTreeMap::new(),
            fills: Vec::new(),
            held: Vec::new(),
            in_flight: Vec::new(),
            stuck: Vec::new(),
            hangs_from,
            fault_rate,
            talk,
            done: Done::default(),
            random,
        };
        world.open_all();
        world
    }

    fn open_all(&mut self) {
        self.add_levels();
        for at in 0..self.disks.len() {
            for port in World::ports(at) {
                self.engine.attach(port, self.ports).expect("the port is not open");
            }
            self.open(at);
            self.closed[at] = false;
            self.frozen[at] = None;
            self.discarding[at] = false;
        }
    }

    /// A disk has two ports, so that a volume can have two regions.
    fn ports(disk: usize) -> [Port; 2] {
        [Port(2 * disk as u16), Port(2 * disk as u16 + 1)]
    }

    fn disk_of(port: Port) -> usize {
        usize::from(port.0 / 2)
    }

    /// The bytes of the disk that `port` serves.
    fn range_of(&self, port: Port) -> Range<u64> {
        let disk = World::disk_of(port);
        if port.0.is_multiple_of(2) { 0..self.splits[disk] } else { self.splits[disk]..u64::MAX }
    }

    fn open(&mut self, at: usize) {
        let (bytes, split) = (self.disks[at].bytes().len() as u64, self.splits[at]);
        let [first, second] = World::ports(at);
        let regions = [Region::whole(first, split), Region { port: second, offset: split, bytes: bytes - split }];
        let count = if split == bytes { 1 } else { 2 };
        self.engine.open(Volume(at as u32), self.modes[at], &regions[..count]).expect("the volume is not open");
    }

    fn atoms(request: &Request) -> Range<usize> {
        request.offset as usize / ATOM..(request.offset + request.length) as usize / ATOM
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// The atoms that a request changes.
    fn changed(&self, request: &Request) -> Range<usize> {
        if request.op != Op::Trim {
            return World::atoms(request);
        }
        let block_bytes = self.block_bytes();
        let bytes = self.disks[request.volume.0 as usize].bytes().len() as u64;
        let start = request.offset.next_multiple_of(block_bytes).min(bytes);
        let end = request.offset + request.length;
        let end = if end == bytes { end } else { end / block_bytes * block_bytes };
        start as usize / ATOM..end.max(start) as usize / ATOM
    }

    fn block_bytes(&self) -> u64 {
        self.engine.config().block_bytes.into()
    }

    fn submit(&mut self) {
        if self.talk.is_some()
            && self.random.random_bool(0.7)
            && let Some((tenant, at, offset, length)) = self.scripted()
        {
            return self.send(tenant, at, Op::Read, offset, length);
        }
        let at = self.random.random_range(0..self.disks.len());
        let atoms = self.disks[at].bytes().len() / ATOM;
        let block_atoms = self.block_bytes() as usize / ATOM;
        let most = self.engine.config().limits.request_bytes as usize / ATOM;
        let mut first = self.random.random_range(0..atoms);
        let mut count = match self.random.random_range(0..4) {
            0 => self.random.random_range(1..=most),
            1 => self.random.random_range(1..=block_atoms.min(most)),
            _ => block_atoms * self.random.random_range(1..=(most / block_atoms).clamp(1, 4)),
        };
        if self.random.random_bool(0.6) {
            first = first / block_atoms * block_atoms;
        }
        if self.random.random_bool(0.3) {
            // A part of the disk that is hot.
            first %= (atoms / 4).max(1);
        }
        let op = match self.random.random_range(0..100) {
            0..=44 => Op::Read,
            45..=79 => Op::Write,
            80..=85 => Op::Flush,
            86..=89 => Op::Trim,
            90..=94 => Op::Zeroes { keep: self.random.random_bool(0.5), fast: self.random.random_bool(0.5) },
            _ => Op::Prefetch,
        };
        if !matches!(op, Op::Read | Op::Write) && self.random.random_bool(0.5) {
            count *= 4;
        }
        count = count.min(atoms - first);
        let (offset, length) = ((first * ATOM) as u64, (count * ATOM) as u64);
        let tenant = Tenant(if self.talk.is_some() { self.random.random_range(0..TENANTS) } else { at as u32 });
        self.send(tenant, at, op, offset, length);
        let behind = self.disks[at].bytes().len() as u64 - (offset + length);
        if op == Op::Read && behind > 0 && self.random.random_bool(0.2) {
            // As a host that reads ahead does, before it gives the device anything.
            let ahead = self.random.random_range(1..=32) * self.block_bytes();
            self.send(tenant, at, Op::Prefetch, offset + length, ahead.min(behind));
        }
    }

    fn send(&mut self, tenant: Tenant, at: usize, op: Op, offset: u64, length: u64) {
        let token = self.next_token;
        self.next_token += 1;
        let fua = self.random.random_bool(0.1);
        let request = Request { volume: Volume(at as u32), tenant, op, offset, length, fua, stream: Stream(0), token };
        let began = self.tick();
        let value = match op {
            Op::Write => Some(token),
            Op::Zeroes { .. } => Some(ZEROS),
            Op::Trim => Some(model::DISCARDED),
            _ => None,
        };
        let changed = self.changed(&request);
        // Some hosts look first at what is published.
        let mut hit = None;
        if op == Op::Read && !token.is_multiple_of(4) && !self.closed[at] {
            hit = self.find(tenant, at, offset, length);
        }
        let submitted = match hit {
            Some(data) => Ok(Submitted { reply: Some(Reply { token, outcome: Outcome::Data(data) }), missed: false }),
            None => self.engine.submit(self.now, request),
        };
        match submitted {
            Ok(Submitted { reply, .. }) => {
                self.done.requests += 1;
                if let Some(value) = value {
                    self.models[at].begin(began, changed, token, value);
                }
                self.pending.insert(token, Pending { request, began });
                if let Some(reply) = reply {
                    self.reply(reply);
                }
            }
            Err(Refusal::Busy) => {
                self.done.refused += 1;
                let own = |pending: &Pending| pending.request.volume.0 as usize == at;
                assert!(self.pending.values().any(own), "a volume is refused because of others");
            }
            Err(Refusal::NoVolume) => assert!(self.closed[at]),
            Err(other) => panic!("{request:?}: {other}"),
        }
    }

    /// The bytes of a read if they are published. Every fifth of these reports all before it.
    fn find(&mut self, tenant: Tenant, at: usize, offset: u64, length: u64) -> Option<Shared> {
        let volume = Volume(at as u32);
        let noted = self.noted.entry(volume).or_insert_with(|| Noted::new(volume, tenant, Stream(0)));
        let published = self.engine.published().clone();
        let data = published.read(volume, offset, length).ok()?;
        if !published.note(noted, offset, length) {
            self.engine.take_notice(noted);
            if !published.note(noted, offset, length) {
                return None;
            }
        }
        self.done.found += 1;
        if self.done.found.is_multiple_of(5) {
            self.engine.take_notice(noted);
        }
        Some(data)
    }

    fn reply(&mut self, reply: Reply) {
        let now = self.tick();
        if reply.token >= CLOSE {
            let at = (reply.token - CLOSE) as usize;
            match reply.outcome {
                Outcome::Done => {
                    let pending = self.pending.values().filter(|pending| pending.request.volume.0 as usize == at);
                    assert_eq!(pending.count(), 0, "requests of a closed volume are in progress");
                    assert!(self.discarding[at] || !self.is_lost(at), "closed although data is lost");
                    match self.discarding[at] {
                        true => self.models[at].discard(now),
                        false => self.models[at].flushed(now),
                    }
                    match self.restarting {
                        true => self.shut.push(at),
                        false => self.open(at),
                    }
                }
                Outcome::Failed(_) => assert!(!self.discarding[at], "giving up cannot fail"),
                other => panic!("a close got {other:?}"),
            }
            self.closed[at] = false;
            self.discarding[at] = false;
            return;
        }
        if let Outcome::Fill(fill) = reply.outcome {
            assert_eq!(self.pending[&reply.token].request.op, Op::Write);
            self.fills.push((reply.token, fill));
            return;
        }
        let Pending { request, began } = self.pending.remove(&reply.token).expect("a request in progress");
        let at = request.volume.0 as usize;
        let changed = self.changed(&request);
        if matches!(reply.outcome, Outcome::Done)
            && (request.op == Op::Flush || request.fua)
            && request.op != Op::Prefetch
        {
            assert!(!self.is_lost(at), "{request:?} is acknowledged although data is lost");
        }
        match (request.op, reply.outcome) {
            (Op::Read, Outcome::Data(data)) => {
                assert_eq!(data.len() as u64, request.length);
                let mut bytes = vec![0; data.len()];
                data.copy_to(&mut bytes);
                self.models[at].check_read(began, request.offset as usize / ATOM, &bytes);
                self.done.atoms_read += request.length / ATOM as u64;
                let until = self.now + self.random.random_range(0..5000);
                self.held.push(Held { data, expected: bytes, until });
            }
            (Op::Flush, Outcome::Done) => self.models[at].flushed(began),
            (Op::Prefetch, Outcome::Done) => {}
            (Op::Write | Op::Trim | Op::Zeroes { .. }, Outcome::Done) => {
                // The edges of zeroes are written back.
                let through = self.modes[at] == WriteMode::Through || request.op == Op::Trim;
                let safety = match (request.fua, through) {
                    (true, _) => Safety::Stable,
                    (_, true) => Safety::Device,
                    _ if self.discarding[at] => Safety::GivenUp,
                    _ => Safety::Seen,
                };
                self.models[at].end(now, changed, reply.token, Some(safety));
            }
            (op, Outcome::Failed(fault)) => {
                self.done.failed += 1;
                match fault {
                    Fault::SHUT_DOWN => assert!(self.discarding[at], "{request:?} of an open volume"),
                    _ => assert!(self.may_fail(&request), "{request:?} fails with its neighbours"),
                }
                if matches!(op, Op::Write | Op::Trim | Op::Zeroes { .. }) {
                    self.models[at].end(now, changed, reply.token, Some(Safety::Failed));
                }
            }
            (op, outcome) => panic!("{op:?} got {outcome:?}"),
        }
    }

    /// Whether anything that `request` needs of its disk can have failed.
    fn may_fail(&self, request: &Request) -> bool {
        if self.fault_rate > 0.0 || self.plan.fail_at.is_some() || self.plan.dead_from.is_some() {
            return true;
        }
        let disk = &self.disks[request.volume.0 as usize];
        let size = self.block_bytes();
        let block = |byte: u64| byte / size * size..(byte / size + 1) * size;
        let (first, last) = (block(request.offset), block(request.offset + request.length.max(1) - 1));
        match request.op {
            Op::Read => !disk.is_good(&(first.start..last.end)),
            Op::Write | Op::Zeroes { .. } => !(disk.is_good(&first) && disk.is_good(&last)),
            Op::Flush | Op::Trim | Op::Prefetch => false,
        }
    }

    fn replies(&mut self) {
        while let Some(reply) = self.engine.next_reply() {
            self.reply(reply);
        }
    }

    /// Gives the devices what the engine has for them.
    fn operations(&mut self) {
        self.check_frozen();
        while let Some(operation) = self.next_operation() {
            if let Some(level) = World::level_of(operation.port) {
                let fails = self.level_fails(level);
                let due = self.now + self.random.random_range(1..4000);
                self.in_flight.push(InFlight { operation, due, reach: 0, fails, forgotten: false, begun: false });
                continue;
            }
            let at = World::disk_of(operation.port);
            let range = operation.offset..operation.offset + operation.length;
            let changes = |action: &Action| !matches!(action, Action::Read(_) | Action::Flush);
            let others = self.in_flight.iter().filter(|other| other.operation.port == operation.port);
            assert!(others.clone().count() < self.ports.depth as usize, "more than the depth");
            let own = self.range_of(operation.port);
            assert!(range.is_empty() || own.start <= range.start && range.end <= own.end, "across the end of a region");
            for other in others {
                let begin = other.operation.offset;
                let overlaps = begin < range.end && range.start < begin + other.operation.length;
                assert!(
                    !overlaps || !changes(&operation.action) || !changes(&other.operation.action),
                    "{operation:?} overlaps {:?}",
                    other.operation
                );
            }
            if matches!(operation.action, Action::Read(_) | Action::Write(_)) {
                assert!(operation.length <= u64::from(self.engine.config().limits.operation_bytes));
            }
            let fails = self.plan.fail_at == Some(self.done.operations)
                || self.plan.dead_from.is_some_and(|from| from <= self.done.operations && self.dying[at])
                || matches!(operation.action, Action::Read(_)) && !self.disks[at].is_good(&range)
                || self.random.random_bool(self.fault_rate);
            self.done.operations += 1;
            let due = self.now + self.random.random_range(1..4000);
            let reach = self.disks[at].begin_flush();
            let hangs = at == 0 && self.done.operations > self.hangs_from;
            let list = if hangs { &mut self.stuck } else { &mut self.in_flight };
            list.push(InFlight { operation, due, reach, fails, forgotten: false, begun: false });
        }
    }

    /// A flush of a device fails that was for another engine.
    fn fail_elsewhere(&mut self) {
        let at = self.random.random_range(0..self.disks.len());
        self.frozen[at] = None;
        let ports = World::ports(at);
        let port = ports[self.random.random_range(0..ports.len())];
        self.forget_unflushed(port);
        self.engine.distrust(self.now, port, Fault(5));
        self.flush_failed(port);
        self.replies();
        self.done.distrusted += 1;
    }

    /// The engine knows that a flush at `port` failed.
    fn flush_failed(&mut self, port: Port) {
        let at = World::disk_of(port);
        let served = self.range_of(port);
        let bytes = self.disks[at].bytes().len() as u64;
        let lost = self.is_lost(at);
        self.done.lost += u64::from(lost);
        let atoms = served.start.min(bytes) as usize / ATOM..served.end.min(bytes) as usize / ATOM;
        self.models[at].flush_failed(atoms, lost);
        if self.discarding[at] {
            self.models[at].lower(Safety::Seen, Safety::GivenUp);
        }
    }

    /// A flush at `port` failed: its disk forgets what was not stable, also of writes that it has not acknowledged.
    fn forget_unflushed(&mut self, port: Port) {
        let served = self.range_of(port);
        let World { random, disks, in_flight, .. } = self;
        disks[World::disk_of(port)].fail_flush(&served, random);
        for flight in in_flight.iter_mut().filter(|flight| flight.operation.port == port) {
            flight.forgotten |= random.random_bool(0.5);
        }
    }

    /// Whether the engine reports that a disk lost data.
    fn is_lost(&self, at: usize) -> bool {
        self.engine.lost(Volume(at as u32)).is_some()
    }

    /// Fills a write's frames and commits it, or gives it up.
    fn commit(&mut self, at: usize) {
        let (token, mut fill) = self.fills.swap_remove(at);
        let request = self.pending[&token].request;
        let atoms = World::atoms(&request);
        if self.random.random_bool(0.03) {
            self.engine.abort(self.now, fill);
            self.pending.remove(&token);
            let now = self.tick();
            self.models[request.volume.0 as usize].end(now, atoms, token, None);
        } else {
            let mut data = vec![0; request.length as usize];
            for (at, atom) in atoms.zip(data.chunks_exact_mut(ATOM)) {
                encode(token, u64::from(request.volume.0) + 1, at, atom);
            }
            fill.frames.copy_from(&data);
            self.engine.commit(self.now, fill);
        }
        self.replies();
    }

    fn release(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        let mut bytes = vec![0; held.data.len()];
        held.data.copy_to(&mut bytes);
        assert!(bytes == held.expected, "frames changed while they were held");
        if held.data.release() {
            self.engine.poll(self.now);
            self.replies();
        }
    }

    /// The host dies, and with `power` the devices' caches, too; then a new engine starts on what is left.
    fn crash(&mut self, power: bool) {
        self.done.crashes += 1;
        for mut flight in std::mem::take(&mut self.in_flight) {
            if !flight.begun {
                self.apply(&mut flight, false);
            }
        }
        let config = self.engine.config().clone();
        self.count();
        if let Some(talk) = &mut self.talk {
            talk.forget();
        }
        self.engine = Engine::new(config).expect("the set-up is possible");
        self.pending.clear();
        self.fills.clear();
        self.held.clear();
        let now = self.tick();
        for (disk, model) in self.disks.iter_mut().zip(&mut self.models) {
            let safety = if power { Safety::Stable } else { Safety::Device };
            if power {
                disk.lose_power(&mut self.random);
            } else {
                disk.lose_host();
            }
            model.check_crash(now, disk.bytes(), safety);
        }
        self.open_all();
    }

    fn count(&mut self) {
        for at in 0..self.disks.len() {
            if let Some(counters) = self.engine.counters(Volume(at as u32)) {
                self.done.damaged += counters.damaged;
                self.done.adopted += counters.adopted;
                self.done.joined += counters.joined;
            }
        }
        (0..TENANTS).for_each(|tenant| self.count_tenant(Tenant(tenant)));
        self.count_levels();
    }

    fn close(&mut self, at: usize, discard: bool) {
        self.closed[at] = true;
        self.frozen[at] = None;
        self.discarding[at] = discard;
        if discard {
            self.models[at].lower(Safety::Seen, Safety::GivenUp);
        }
        self.engine.close(self.now, Volume(at as u32), discard, CLOSE + at as u64).expect("an open volume");
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..=39 => self.submit(),
            40..=69 if !self.in_flight.is_empty() => {
                let at = self.random.random_range(0..self.in_flight.len());
                self.now = self.now.max(self.in_flight[at].due);
                self.complete(at);
            }
            70..=84 if !self.fills.is_empty() => {
                let at = self.random.random_range(0..self.fills.len());
                self.commit(at);
            }
            85..=92 if !self.held.is_empty() => {
                let at = self.random.random_range(0..self.held.len());
                self.release(at);
            }
            93 if !self.plan.hangs => self.administer(),
            95..=98 if self.talk.is_some() => self.talk(),
            94 if self.plan.damages => self.damage(),
            94 if self.random.random_bool(0.1) && self.fault_rate > 0.0 => self.fail_elsewhere(),
            94 if self.random.random_bool(0.05) && !self.plan.calm => {
                let power = self.random.random_bool(0.6);
                self.crash(power);
            }
            _ => self.now += self.random.random_range(0..1000),
        }
        while let Some(at) = self.held.iter().position(|held| held.until <= self.now) {
            self.release(at);
        }
        if self.random.random_bool(0.2) {
            self.engine.step(self.now);
            self.replies();
        }
        if self.random.random_bool(0.9) {
            self.operations();
        }
    }

    /// Lets everything come to an end, or what `over` asks for.
    fn settle(&mut self, over: impl Fn(&World) -> bool) {
        for round in 0..1_000_000 {
            let more = self.engine.step(self.now);
            self.operations();
            self.replies();
            if over(self) {
                return;
            }
            // Dead devices may be busy for ever with writes that are tried again, while a close waits for a fill.
            let is_for_clients = round % 4096 == 4095 && !(self.fills.is_empty() && self.held.is_empty());
            if !self.in_flight.is_empty() && !is_for_clients {
                let next = (0..self.in_flight.len()).min_by_key(|&at| self.in_flight[at].due).expect("not empty");
                self.now = self.now.max(self.in_flight[next].due);
                self.complete(next);
            } else if !self.fills.is_empty() {
                self.commit(0);
            } else if !self.held.is_empty() {
                self.release(0);
            } else if self.pending.is_empty() && !self.closed.contains(&true) {
                return;
            } else if !more {
                let wakeup = self.engine.next_wakeup();
                let wakeup = wakeup.unwrap_or_else(|| panic!("{:?} wait for nothing", self.pending.keys()));
                assert!(wakeup > self.now, "the engine is due and does nothing");
                self.now = wakeup;
            }
        }
        panic!("no end");
    }

    fn run(mut self) -> Done {
        for step in 0..self.plan.steps {
            self.step();
            if step % 16 == 0 {
                self.engine.check();
            }
            if step % 256 == 0 {
                let oldest = self.pending.values().map(|pending| pending.began).min().unwrap_or(self.moment);
                self.models.iter_mut().for_each(|model| model.prune(oldest));
            }
        }
        if self.plan.dead_from.is_some() {
            // Requests may wait for ever, but each volume can be closed, whatever the others do.
            for at in 0..self.disks.len() {
                self.settle(|world| !world.closed[at]);
                let discard = self.dying[at] || self.random.random_bool(0.3);
                self.close(at, discard);
                self.settle(|world| !world.closed[at]);
            }
        }
        if self.plan.hangs {
            self.others_go_on();
        }
        self.settle(|_| false);
        self.fault_rate = 0.0;
        (self.plan.fail_at, self.plan.dead_from) = (None, None);
        // Everything can be written now, and nothing is left behind.
        for at in 0..self.disks.len() {
            self.close(at, self.is_lost(at));
        }
        self.count();
        self.settle(|_| false);
        self.engine.check();
        let gauges = self.engine.gauges();
        assert_eq!((gauges.frames, gauges.requests, gauges.dirty, gauges.ghosts), (0, 0, 0, 0), "something is left");
        let now = self.tick();
        for (disk, model) in self.disks.iter().zip(&self.models) {
            model.check_read(now, 0, disk.bytes());
        }
        self.done
    }
}

/// Executes `plan`.
///
/// # Panics
/// If anything is not as it must be.
pub(crate) fn run(plan: Plan) -> Done {
    World::new(plan).run()
}
