//! The virtual clock, and what happens when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Range, Sub};
use std::sync::atomic::Ordering;

use nigh_control::{Saying, Statistics};
use nigh_device::{Device, Kind, Model, Request as Order};
use nigh_engine::{
    Action, Config, Counters, Engine, Fill, LevelConfig, LevelCounters, Op, Operation, Outcome as Reply, Port,
    PortConfig, Region, Request, Shared, Span, Submitted, Volume, WriteMode,
};
use nigh_policy::{Stream, Tenant};
use nigh_prefetch::Prefetcher;

use super::encoded::EncodedLevel;
use super::processor::Processor;
use super::{Latencies, LevelOutcome, Outcome, PART_BYTES, Sequences, Setup, Step, TimedError, What, level_blocks};

/// Steps between two reports of progress.
const STRETCH: usize = 1 << 12;

/// Why the engine takes every request.
const TAKEN: &str = "parts are short, few, and inside the disk";

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The device is done with the operation of this number.
    Complete(u32),
    /// A program issues its next request, or the next part of it.
    Issue(u32),
    /// The encoder of blocks has something to do.
    Encoder,
    /// The engine has something to do.
    Wakeup,
}

/// Where a program is.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its next step, or the one that it waits for.
    at: usize,
    /// How much of what it says is said.
    said: usize,
    /// Bytes of that step that are over.
    done: u64,
    /// When it issued the part that it waits for, in ns.
    since_ns: u64,
    /// When it issued the first part of that step, in ns.
    issued_ns: u64,
    waited_ns: u64,
    end_ns: u64,
    /// The event that ends what it computes.
    issue: u64,
}

/// The counts at the end of the warm-up.
#[derive(Default)]
struct Warm {
    ns: u64,
    cache: Counters,
    tenants: Vec<Statistics>,
    /// By port.
    devices: Vec<nigh_device::Counters>,
    /// By number.
    levels: Vec<LevelCounters>,
}

/// The increase of each counter since `before`, or since the beginning if that is empty.
fn since<T: Copy + Default + Sub<Output = T>>(now: &[T], before: &[T]) -> impl Iterator<Item = T> {
    let before = before.iter().copied().chain(std::iter::repeat(T::default()));
    now.iter().zip(before).map(|(&now, before)| now - before)
}

/// The part of `step` behind its first `done` bytes.
fn part(step: &Step, done: u64) -> Range<u64> {
    let start = step.offset + done;
    let border = (start / u64::from(PART_BYTES) + 1) * u64::from(PART_BYTES);
    start..border.min(step.end())
}

/// Who issues `step`: where the trace does not say, program `number`.
fn stream(number: u32, step: &Step) -> Stream {
    Stream(if step.stream == 0 { number.into() } else { step.stream })
}

pub(super) struct World<'a> {
    setup: &'a Setup<'a>,
    engine: Engine,
    /// By port: the disks', then the levels'.
    devices: Vec<Device>,
    /// Its port is the one behind these.
    encoded: Option<EncodedLevel<'a>>,
    prefetcher: Prefetcher,
    now_ns: u64,
    /// What happens at the same time happens in the order in which it was decided.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_made: u64,
    processes: Vec<Process>,
    /// None where each program has one.
    processor: Option<Processor>,
    /// What the processor has to do for operations that were begun, in ns: whoever computes next does it.
    owed_ns: u64,
    /// Programs that have steps left.
    running: usize,
    at_device: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// The earliest wakeup among the events, in ns.
    wakeup_ns: u64,
    /// By disk.
    sequences: Vec<Sequences>,
    latencies: Latencies,
    /// References that are left of the warm-up, until it ends.
    cold: Option<u64>,
    warm: Warm,
    /// What a program said and was refused: the end of the simulation.
    refused: Option<TimedError>,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup<'a>, config: Config) -> Result<World<'a>, TimedError> {
        let profiles =
            setup.disks.iter().map(|disk| disk.profile).chain(setup.levels.iter().map(|level| level.profile));
        let devices: Vec<Device> = profiles.map(|profile| Device::new(profile, setup.seed)).collect();
        let memory = config.capacity_max;
        let mut engine = Engine::new(config)?;
        let port = Port(devices.len() as u16);
        let encoded = setup.encoded.as_ref().map(|encoded| EncodedLevel::new(encoded, memory, port, &mut engine));
        let encoded = encoded.transpose()?;
        for (number, device) in (0..).zip(&devices) {
            let depth = u32::try_from(device.parallel()).unwrap_or(u32::MAX);
            engine.attach(Port(number), PortConfig { depth, scheduler: setup.scheduler, ..PortConfig::default() })?;
        }
        let disks = &devices[..setup.disks.len()];
        for (number, level) in (disks.len()..).zip(setup.levels) {
            let blocks = level_blocks(level, setup.block_bytes);
            engine.add_level(LevelConfig {
                port: Port(number as u16),
                offset: 0,
                blocks,
                faults: 1,
                patience_us: LevelConfig::PATIENCE_US,
                // Memory of another host.
                shared: matches!(level.profile.model(), Model::Store(_)),
                elastic: false,
            })?;
        }
        for (number, device) in (0..).zip(disks) {
            let region = Region::whole(Port(number), device.bytes());
            engine.open(Volume(number.into()), WriteMode::Back, &[region])?;
        }
        Ok(World {
            setup,
            engine,
            sequences: vec![Sequences::default(); setup.disks.len()],
            latencies: Latencies::default(),
            devices,
            encoded,
            prefetcher: Prefetcher::new(setup.readahead, setup.block_bytes),
            now_ns: 0,
            events: BinaryHeap::new(),
            events_made: 0,
            processes: vec![Process::default(); setup.programs.len()],
            processor: Processor::new(setup.processors, setup.programs.len()),
            owed_ns: 0,
            running: 0,
            at_device: Vec::new(),
            free: Vec::new(),
            wakeup_ns: u64::MAX,
            cold: Some(setup.warmup).filter(|&warmup| warmup > 0),
            warm: Warm::default(),
            refused: None,
        })
    }

    pub(super) fn run(mut self) -> Result<Outcome, TimedError> {
        for (number, program) in (0..).zip(self.setup.programs) {
            if let Some(step) = program.steps.first() {
                self.running += 1;
                self.compute(number, step.think_ns);
            }
        }
        while self.running > 0 {
            let Reverse((time_ns, made, event)) = self.events.pop().expect("a program waits for something that comes");
            self.now_ns = time_ns;
            match event {
                Event::Issue(number) if self.is_overtaken(number, made) => {}
                Event::Issue(number) => self.issue(number),
                Event::Complete(number) => self.complete(number),
                Event::Encoder => self.encode(),
                Event::Wakeup => {
                    self.wakeup_ns = u64::MAX;
                    self.launch();
                }
            }
            if let Some(refused) = self.refused.take() {
                return Err(refused);
            }
        }
        self.outcome()
    }

    /// The outcome since the warm-up.
    fn outcome(mut self) -> Result<Outcome, TimedError> {
        let (now, warm) = (self.count(), std::mem::take(&mut self.warm));
        let devices: Vec<_> = since(&now.devices, &warm.devices).collect();
        let (disks, of_levels) = devices.split_at(self.setup.disks.len());
        let mut device = nigh_device::Counters::default();
        disks.iter().for_each(|&one| device += one);
        let mut caches = since(&now.levels, &warm.levels);
        let encoded = self.encoded.take().map(|encoded| encoded.outcome(caches.next().expect("it was added first")));
        let encoded = encoded.transpose()?;
        let levels = of_levels.iter().zip(caches).map(|(&device, cache)| LevelOutcome { cache, device }).collect();
        let mut sequences = Sequences::default();
        self.sequences.drain(..).for_each(|one| sequences.add(one));
        Ok(Outcome {
            tenants: since(&now.tenants, &warm.tenants).collect(),
            ends_ns: self.processes.iter().map(|process| process.end_ns.saturating_sub(warm.ns)).collect(),
            waited_ns: self.processes.iter().map(|process| process.waited_ns).collect(),
            cache: now.cache - warm.cache,
            device,
            disks: disks.to_vec(),
            encoded,
            levels,
            sequences,
            latencies: self.latencies,
        })
    }

    /// The counts now.
    fn count(&self) -> Warm {
        let levels = (0..).map_while(|number| self.engine.level_counters(number)).map(|(cache, _)| cache);
        let tenants = (0..self.processes.len() as u32).filter_map(|number| self.engine.statistics(Tenant(number)));
        Warm {
            ns: self.now_ns,
            cache: self.counters(),
            tenants: tenants.collect(),
            devices: self.devices.iter().map(Device::counters).collect(),
            levels: levels.collect(),
        }
    }

    /// `step` is about to be issued: the warm-up may be over before it.
    fn warm_up(&mut self, step: &Step) {
        let Some(cold) = self.cold else { return };
        self.cold = cold.checked_sub(step.references(self.setup.block_bytes));
        if self.cold.is_some() {
            return;
        }
        self.warm = self.count();
        if let Some(encoded) = &mut self.encoded {
            encoded.end_warmup();
        }
        self.latencies = Latencies::default();
        self.sequences.fill(Sequences::default());
        for process in &mut self.processes {
            process.waited_ns = 0;
            // Those that wait go on to.
            process.since_ns = self.now_ns;
        }
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        let counters = |number| self.engine.counters(Volume(number)).expect("every disk is open");
        (0..).take(self.setup.disks.len()).for_each(|number| sum += counters(number));
        sum
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.events.push(Reverse((time_ns, self.events_made, event)));
        self.events_made += 1;
    }

    fn now_us(&self) -> u64 {
        self.now_ns / 1000
    }

    fn step(&self, number: u32) -> Option<&'a Step> {
        self.setup.programs[number as usize].steps.get(self.processes[number as usize].at)
    }

    /// Has a program that waited compute and then issue its next request, once it has a processor.
    fn compute(&mut self, number: u32, think_ns: u64) {
        let now_ns = self.now_ns;
        if self.processor.as_mut().is_none_or(|processor| processor.wake(number, think_ns, now_ns)) {
            self.issue_in(number, think_ns);
        }
    }

    /// The program that has the processor waits, or is at its end.
    fn leave_processor(&mut self) {
        let (now_ns, running) = (self.now_ns, self.running);
        if let Some((number, think_ns)) = self.processor.as_mut().and_then(|shared| shared.leave(now_ns, running)) {
            self.issue_in(number, think_ns);
        }
    }

    /// Whether another program has got the processor since this event was decided.
    fn is_overtaken(&self, number: u32, made: u64) -> bool {
        let has_processor = self.processor.as_ref().is_none_or(|shared| shared.has(number));
        self.processes[number as usize].issue != made || !has_processor
    }

    /// A program that computes so long issues its next request.
    fn issue_in(&mut self, number: u32, think_ns: u64) {
        self.processes[number as usize].issue = self.events_made;
        self.at(self.now_ns.saturating_add(think_ns), Event::Issue(number));
    }

    /// Has a program go on: through hits at once, as long as nothing else happens before, and then until it waits.
    fn issue(&mut self, number: u32) {
        while let Some(step) = self.step(number) {
            if !self.say(number) {
                return;
            }
            if self.processes[number as usize].done == 0 {
                self.warm_up(step);
            }
            let process = &mut self.processes[number as usize];
            process.since_ns = self.now_ns;
            if process.done == 0 {
                process.issued_ns = self.now_ns;
            }
            if !self.submit(number, step) {
                return self.leave_processor();
            }
            let Some(think_ns) = self.advance(number) else { return self.leave_processor() };
            let (now_ns, running) = (self.now_ns, self.running);
            let goes_on = self.processor.as_mut().map(|shared| shared.go_on(think_ns, now_ns, running));
            let (next, think_ns) = goes_on.unwrap_or((number, think_ns));
            let next_ns = now_ns.saturating_add(think_ns);
            if next != number || self.events.peek().is_some_and(|Reverse((time_ns, ..))| *time_ns <= next_ns) {
                return self.issue_in(next, think_ns);
            }
            self.now_ns = next_ns;
        }
    }

    /// Says what a program says before its next step. Whether none of it was refused.
    fn say(&mut self, number: u32) -> bool {
        if self.setup.tenants.is_none() {
            return true;
        }
        let (program, process) = (&self.setup.programs[number as usize], &mut self.processes[number as usize]);
        while let Some(said) = program.says.get(process.said).filter(|said| said.step <= process.at) {
            process.said += 1;
            let done = match &said.saying {
                Saying::Directive(directive) => self.engine.direct(Tenant(number), directive),
                Saying::Bounds { floor, ceiling } => self.engine.set_bounds(Tenant(number), *floor, *ceiling),
            };
            if let Err(refusal) = done {
                let program = program.name.clone();
                self.refused = Some(TimedError::Refused { program, step: said.step, refusal });
                return false;
            }
        }
        true
    }

    /// Submits the next part of `step`. Says whether it was replied to at once.
    fn submit(&mut self, number: u32, step: &Step) -> bool {
        let part = part(step, self.processes[number as usize].done);
        let (offset, length) = (part.start, part.end - part.start);
        let op = match step.what {
            What::Read => Op::Read,
            What::Write => Op::Write,
            What::Trim => Op::Trim,
            What::Flush => Op::Flush,
        };
        let predicted = self.engine.is_predicted(Tenant(number));
        let volume = Volume(step.disk.into());
        let (tenant, token) = (Tenant(number), u64::from(number));
        let request = Request { volume, tenant, op, offset, length, fua: false, stream: stream(number, step), token };
        let (submitted, ahead) = if op == Op::Read { self.read(request) } else { (self.request(request), false) };
        if let (Op::Trim, Some(encoded)) = (op, &mut self.encoded) {
            encoded.trim(step.disk, offset, length);
        }
        let outcome = submitted.reply.map(|reply| reply.outcome);
        let waits = outcome.is_none();
        let replied = match outcome {
            Some(Reply::Fill(fill)) => {
                self.commit(number, fill);
                // The reply to the write itself, unless it waits for a load.
                self.take_reply(number)
            }
            Some(Reply::Data(data)) => {
                self.release(data);
                true
            }
            Some(Reply::Done) => true,
            Some(Reply::Failed(fault)) => unreachable!("a modelled device does not fail: {fault}"),
            None => false,
        };
        if waits || ahead || predicted || op != Op::Read {
            self.launch();
        }
        replied
    }

    fn request(&mut self, request: Request) -> Submitted {
        self.engine.submit(self.now_us(), request).expect(TAKEN)
    }

    /// Submits a read, and says whether anything was asked for ahead of it.
    fn read(&mut self, request: Request) -> (Submitted, bool) {
        let Request { tenant: Tenant(number), volume, offset, length, .. } = request;
        let disk = volume.0 as usize;
        let layouts = self.setup.disks[disk].layouts;
        let layout = layouts.get(number as usize).or(layouts.last());
        let extent = layout.map(|layout| layout.at(offset));
        // What no file has is not read ahead.
        if self.prefetcher.is_none() || extent == Some(None) {
            return (self.request(request), false);
        }
        let now = self.now_us();
        let mut any = false;
        let submitted = match layout.zip(extent.flatten()) {
            Some((layout, extent)) => {
                let start = offset - extent.disk + extent.offset;
                let span = Span {
                    file: u64::from(number) << 32 | u64::from(extent.file),
                    bytes: start..(start + length).min(extent.offset + extent.length),
                    end: layout.end_of(extent.file),
                };
                let places = |ahead| {
                    any = true;
                    layout.places(extent.file, ahead)
                };
                self.engine.read_ahead(now, request, &mut self.prefetcher, span, places)
            }
            None => {
                let end = self.devices[disk].bytes();
                let span = Span { file: u64::from(number) << 32 | disk as u64, bytes: offset..offset + length, end };
                let places = |ahead| {
                    any = true;
                    std::iter::once(ahead)
                };
                self.engine.read_ahead(now, request, &mut self.prefetcher, span, places)
            }
        };
        (submitted.expect(TAKEN), any)
    }

    /// Fills the frames of a write of `number`, where their contents count.
    fn commit(&mut self, number: u32, mut fill: Fill) {
        let done = self.processes[number as usize].done;
        if let (Some(step), Some(encoded)) = (self.step(number), &mut self.encoded) {
            encoded.write(step, part(step, done).start, fill.frames.slices_mut());
        }
        self.engine.commit(self.now_us(), fill);
    }

    /// After the commit of a write of `number`, whose own reply, if there is one, is the last.
    fn take_reply(&mut self, number: u32) -> bool {
        let mut own = false;
        while let Some(reply) = self.engine.next_reply() {
            if reply.token == u64::from(number) {
                own = true;
            } else {
                self.reply(reply.token as u32, reply.outcome);
            }
        }
        own
    }

    fn release(&mut self, data: Shared) {
        if data.release() {
            self.engine.poll(self.now_us());
            self.replies();
            self.launch();
        }
    }

    /// A part of a program's step is over. How long it computes before it issues its next; none if it is at its end.
    fn advance(&mut self, number: u32) -> Option<u64> {
        let step = self.step(number)?;
        let process = &mut self.processes[number as usize];
        process.waited_ns += self.now_ns - process.since_ns;
        let part = part(step, process.done);
        if part.end < step.end() {
            process.done = part.end - step.offset;
            return Some(0);
        }
        process.done = 0;
        process.at += 1;
        if matches!(step.what, What::Read | What::Write) {
            self.latencies.add(self.now_ns - process.issued_ns);
        }
        if process.at.is_multiple_of(STRETCH) {
            self.progress(STRETCH);
        }
        let Some(next) = self.step(number) else {
            self.processes[number as usize].end_ns = self.now_ns;
            self.running -= 1;
            self.progress(self.processes[number as usize].at % STRETCH);
            return None;
        };
        Some(next.think_ns.saturating_add(std::mem::take(&mut self.owed_ns)))
    }

    fn progress(&mut self, steps: usize) {
        if let Some(progress) = self.setup.progress {
            progress.fetch_add(steps as u64, Ordering::Relaxed);
        }
        if self.setup.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            self.refused.get_or_insert(TimedError::Stopped);
        }
    }

    /// The reply that a program waited for.
    fn reply(&mut self, number: u32, outcome: Reply) {
        match outcome {
            Reply::Data(data) => self.release(data),
            Reply::Fill(fill) => {
                self.commit(number, fill);
                return self.replies();
            }
            Reply::Done => {}
            Reply::Failed(fault) => unreachable!("a modelled device does not fail: {fault}"),
        }
        if let Some(think_ns) = self.advance(number) {
            self.compute(number, think_ns);
        }
    }

    fn replies(&mut self) {
        while let Some(reply) = self.engine.next_reply() {
            self.reply(reply.token as u32, reply.outcome);
        }
    }

    fn complete(&mut self, number: u32) {
        let mut operation = self.at_device[number as usize].take().expect("an operation at the device");
        self.free.push(number);
        if let Some(encoded) = self.encoded.as_mut().filter(|encoded| !encoded.has(operation.port)) {
            let disk = Some(operation.port.0).filter(|&port| usize::from(port) < self.setup.disks.len());
            encoded.transfer(&mut operation, disk);
        }
        self.engine.complete(self.now_us(), operation, Ok(()));
        self.replies();
        self.launch();
    }

    fn encode(&mut self) {
        if let Some(encoded) = &mut self.encoded
            && let Some(next_ns) = encoded.go_on(&mut self.engine, self.now_ns)
        {
            self.at(next_ns, Event::Encoder);
        }
        self.replies();
        self.launch();
    }

    /// Has encoded blocks decoded, or others encoded.
    fn launch_encoded(&mut self, mut operation: Operation) {
        let encoded = self.encoded.as_mut().expect("the port of encoded blocks");
        if matches!(operation.action, Action::Read(_)) {
            let done_ns = self.now_ns + encoded.fetch(&mut operation);
            self.wait_for(operation, done_ns);
        } else if let Some(next_ns) = encoded.store(operation, &mut self.engine, self.now_ns) {
            self.at(next_ns, Event::Encoder);
        }
    }

    /// An operation that is done at a time.
    fn wait_for(&mut self, operation: Operation, done_ns: u64) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.at_device.push(None);
            self.at_device.len() as u32 - 1
        });
        self.at_device[number as usize] = Some(operation);
        self.at(done_ns, Event::Complete(number));
    }

    /// Gives the device what it can work on, and sees to it that the engine is called when it wants to be.
    fn launch(&mut self) {
        while self.engine.step(self.now_us()) {}
        while let Some(operation) = self.engine.next_operation(self.now_us()) {
            if self.encoded.as_ref().is_some_and(|encoded| encoded.has(operation.port)) {
                self.launch_encoded(operation);
                continue;
            }
            let block = u64::from(self.setup.block_bytes);
            let device = usize::from(operation.port.0);
            let kind = match operation.action {
                Action::Read(_) => Kind::Read,
                Action::Write(_) | Action::Zeroes { .. } => Kind::Write,
                Action::Flush => Kind::Flush,
                Action::Discard => Kind::Trim,
            };
            match self.sequences.get_mut(device) {
                Some(of) if kind == Kind::Read => of.read(operation.offset / block, operation.length.div_ceil(block)),
                Some(of) => of.interrupt(),
                None => {}
            }
            if matches!(kind, Kind::Read | Kind::Write) {
                self.owed_ns += self.setup.processor_ns_a_block * operation.length.div_ceil(block);
            }
            let order = Order { kind, offset_bytes: operation.offset, bytes: operation.length };
            let done_ns = self.devices[device]
                .start(self.now_ns, order)
                .expect("disks and levels are no longer than their devices");
            self.wait_for(operation, done_ns);
        }
        if let Some(wakeup_us) = self.engine.next_wakeup() {
            let wakeup_ns = wakeup_us.saturating_mul(1000).max(self.now_ns);
            if wakeup_ns < self.wakeup_ns {
                self.wakeup_ns = wakeup_ns;
                self.at(wakeup_ns, Event::Wakeup);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_stream_is_its_programs() {
        let step = Step { offset: 0, think_ns: 0, length: 4096, what: What::Read, disk: 0, stream: 0, content: 0 };
        assert_eq!(stream(3, &step), Stream(3));
        assert_eq!(stream(3, &Step { stream: 0x55_1234, ..step }), Stream(0x55_1234));
    }
}
