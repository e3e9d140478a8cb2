//! The virtual clock, and what happens when.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Range, Sub};
use std::sync::atomic::Ordering;

use nigh_control::{Saying, Statistics};
use nigh_device::{Device, Kind, Model, Request as Order};
use nigh_engine::{
    Action, Config, Counters, Engine, Fill, LevelConfig, LevelCounters, Op, Operation, Outcome as Reply, Port,
    PortConfig, Refusal, Region, Request, Shared, Span, Submitted, Volume, WriteMode,
};
use nigh_policy::{Stream, Tenant};
use nigh_prefetch::Prefetcher;

use super::encoded::EncodedLevel;
use super::processor::Processor;
use super::{
    IN_FLIGHT, Latencies, LevelOutcome, Outcome, PART_BYTES, Pace, Sequences, Setup, Step, TimedError, What,
    level_blocks,
};

/// Steps between two reports of progress.
const STRETCH: usize = 1 << 12;

/// Why the engine refuses no request for good.
const TAKEN: &str = "parts are short and inside the disk";

/// An event at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The device is done with the operation of this number.
    Complete(u32),
    /// A program in a closed loop issues its next request, or the next part of it.
    Issue(u32),
    /// The next request of a program in an open loop is due.
    Arrive(u32),
    /// The next part of a request of such a program, by its place.
    Part(u32),
    /// The encoder of blocks has something to do.
    Encoder,
    /// The engine has something to do.
    Wakeup,
}

/// State of a program.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its next step; in a closed loop, the one that it waits for.
    at: usize,
    /// Steps that have their replies.
    over: usize,
    /// Number of its directives that were sent.
    said: usize,
    waited_ns: u64,
    end_ns: u64,
    /// In a closed loop: the event that ends what it computes.
    issue: u64,
    /// In an open loop: when the step `at` is due, in ns.
    due_ns: u64,
    /// Places that its requests have.
    in_flight: usize,
}

/// The place of a request in progress. Its number is the token of the request.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    program: u32,
    step: usize,
    /// Bytes of that step that are over.
    done: u64,
    /// When the part that it waits for was issued, in ns.
    since_ns: u64,
    /// When its first part was issued, or due, in ns.
    issued_ns: u64,
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

/// The stream of `step`: if the trace has none, program `number`.
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
    /// Events at the same time happen in the order in which they were decided.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_made: u64,
    processes: Vec<Process>,
    /// First a place for each program, which those in a closed loop use, and then those of open loops.
    flights: Vec<Flight>,
    /// Of these, those that no request has.
    landed: Vec<u32>,
    /// Those whose requests the engine could not take, in order.
    refused: VecDeque<u32>,
    /// Programs in an open loop with a request that is due and has no place.
    held: Vec<u32>,
    /// Whether there ever was such a program.
    was_held: bool,
    /// None where each program has one.
    processor: Option<Processor>,
    /// Processor time owed for operations that were begun, in ns: the program that computes next spends it.
    owed_ns: u64,
    /// Programs that have steps left.
    running: usize,
    at_device: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// The earliest wakeup among the events, in ns.
    wakeup_ns: u64,
    /// By disk.
    sequences: Vec<Sequences>,
    reads: Latencies,
    writes: Latencies,
    /// References that are left of the warm-up, until it ends.
    cold: Option<u64>,
    warm: Warm,
    /// The end of the simulation, such as a directive that was refused.
    failed: Option<TimedError>,
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
            reads: Latencies::default(),
            writes: Latencies::default(),
            devices,
            encoded,
            prefetcher: Prefetcher::new(setup.readahead, setup.block_bytes),
            now_ns: 0,
            events: BinaryHeap::new(),
            events_made: 0,
            processes: vec![Process::default(); setup.programs.len()],
            flights: (0..setup.programs.len() as u32).map(|program| Flight { program, ..Flight::default() }).collect(),
            landed: Vec::new(),
            refused: VecDeque::new(),
            held: Vec::new(),
            was_held: false,
            processor: Processor::new(setup.processors, setup.programs.len()),
            owed_ns: 0,
            running: 0,
            at_device: Vec::new(),
            free: Vec::new(),
            wakeup_ns: u64::MAX,
            cold: Some(setup.warmup).filter(|&warmup| warmup > 0),
            warm: Warm::default(),
            failed: None,
        })
    }

    pub(super) fn run(mut self) -> Result<Outcome, TimedError> {
        for (number, program) in (0..).zip(self.setup.programs) {
            if let Some(step) = program.steps.first() {
                self.running += 1;
                match program.pace {
                    Pace::Closed => self.compute(number, step.think_ns),
                    Pace::Open => {
                        self.processes[number as usize].due_ns = step.think_ns;
                        self.at(step.think_ns, Event::Arrive(number));
                    }
                }
            }
        }
        while self.running > 0 {
            let Reverse((time_ns, made, event)) = self.events.pop().expect("a program waits for something that comes");
            self.now_ns = time_ns;
            match event {
                Event::Issue(number) if self.is_overtaken(number, made) => {}
                Event::Issue(number) => self.issue(number),
                Event::Arrive(number) => self.arrive(number),
                Event::Part(number) => self.go_on(number),
                Event::Complete(number) => self.complete(number),
                Event::Encoder => self.encode(),
                Event::Wakeup => {
                    self.wakeup_ns = u64::MAX;
                    self.launch();
                }
            }
            self.retry();
            if let Some(failed) = self.failed.take() {
                return Err(failed);
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
        let behind_ns = self.behind_ns();
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
            reads: self.reads,
            writes: self.writes,
            behind_ns,
            is_closed: self.setup.programs.iter().all(|program| program.pace == Pace::Closed),
            was_held: self.was_held,
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
        [self.reads, self.writes] = Default::default();
        self.sequences.fill(Sequences::default());
        self.processes.iter_mut().for_each(|process| process.waited_ns = 0);
        // Those that wait go on to.
        self.flights.iter_mut().for_each(|flight| flight.since_ns = self.now_ns);
    }

    /// How long after its last request was due a program in an open loop had its last reply, in ns: the most of all.
    fn behind_ns(&self) -> u64 {
        let open = self.setup.programs.iter().zip(&self.processes).filter(|(program, _)| program.pace == Pace::Open);
        open.map(|(_, process)| process.end_ns.saturating_sub(process.due_ns)).max().unwrap_or(0)
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

    /// A program issues its next request after computing for this time.
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
            if self.flights[number as usize].done == 0 {
                self.warm_up(step);
            }
            let (process, flight) = (&self.processes[number as usize], &mut self.flights[number as usize]);
            flight.step = process.at;
            flight.since_ns = self.now_ns;
            if flight.done == 0 {
                flight.issued_ns = self.now_ns;
            }
            if !self.submit(number) {
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

    /// Issues all that is due of a program in an open loop, as long as there is room, and waits for what is due next.
    fn arrive(&mut self, number: u32) {
        while let Some(step) = self.step(number) {
            let due_ns = self.processes[number as usize].due_ns;
            if due_ns > self.now_ns {
                if self.events.peek().is_some_and(|Reverse((time_ns, ..))| *time_ns <= due_ns) {
                    return self.at(due_ns, Event::Arrive(number));
                }
                self.now_ns = due_ns;
            }
            if self.processes[number as usize].in_flight == IN_FLIGHT {
                self.was_held = true;
                return self.held.push(number);
            }
            if !self.say(number) {
                return;
            }
            self.warm_up(step);
            let process = &mut self.processes[number as usize];
            let flight = Flight { program: number, step: process.at, done: 0, since_ns: due_ns, issued_ns: due_ns };
            process.in_flight += 1;
            process.at += 1;
            if let Some(next) = self.setup.programs[number as usize].steps.get(process.at) {
                process.due_ns = due_ns.saturating_add(next.think_ns);
            }
            let place = self.landed.pop().unwrap_or_else(|| {
                self.flights.push(flight);
                self.flights.len() as u32 - 1
            });
            self.flights[place as usize] = flight;
            self.go_on(place);
        }
    }

    /// Issues the next part of a request of a program in an open loop.
    fn go_on(&mut self, number: u32) {
        if self.submit(number) {
            self.part_over(number);
        }
    }

    /// Tries again what had no room.
    fn retry(&mut self) {
        while let Some(number) = self.refused.pop_front() {
            let before = self.refused.len();
            if self.submit(number) {
                self.part_over(number);
            }
            if self.refused.len() > before {
                // It is the last now.
                self.refused.rotate_right(1);
                break;
            }
        }
        if !self.held.is_empty() {
            std::mem::take(&mut self.held).into_iter().for_each(|number| self.arrive(number));
        }
    }

    /// Sends a program's directives before its next step. Returns whether none was refused.
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
                self.failed = Some(TimedError::Refused { program, step: said.step, refusal });
                return false;
            }
        }
        true
    }

    /// The step that has a place.
    fn step_of(&self, number: u32) -> &'a Step {
        let Flight { program, step, .. } = self.flights[number as usize];
        &self.setup.programs[program as usize].steps[step]
    }

    /// Submits the next part of the step that has a place. Returns whether it was replied to at once.
    fn submit(&mut self, number: u32) -> bool {
        let step = self.step_of(number);
        let Flight { program, done, .. } = self.flights[number as usize];
        let part = part(step, done);
        let (offset, length) = (part.start, part.end - part.start);
        let op = match step.what {
            What::Read => Op::Read,
            What::Write => Op::Write,
            What::Trim => Op::Trim,
            What::Flush => Op::Flush,
        };
        let predicted = self.engine.is_predicted(Tenant(program));
        let volume = Volume(step.disk.into());
        let (tenant, token) = (Tenant(program), u64::from(number));
        let request = Request { volume, tenant, op, offset, length, fua: false, stream: stream(program, step), token };
        let (submitted, ahead) = if op == Op::Read { self.read(request) } else { (self.request(request), false) };
        let submitted = match submitted {
            Ok(submitted) => submitted,
            Err(Refusal::Busy) => {
                self.refused.push_back(number);
                return false;
            }
            Err(refusal) => unreachable!("{TAKEN}: {refusal}"),
        };
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

    fn request(&mut self, request: Request) -> Result<Submitted, Refusal> {
        self.engine.submit(self.now_us(), request)
    }

    /// Submits a read, and returns whether anything was asked for ahead of it.
    fn read(&mut self, request: Request) -> (Result<Submitted, Refusal>, bool) {
        let Request { tenant: Tenant(number), volume, offset, length, .. } = request;
        let disk = volume.0 as usize;
        let layouts = self.setup.disks[disk].layouts;
        let layout = layouts.get(number as usize).or(layouts.last());
        let extent = layout.map(|layout| layout.at(offset));
        // Blocks that no file has are not read ahead.
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
        (submitted, any)
    }

    /// Fills the frames of a write, where their contents count.
    fn commit(&mut self, number: u32, mut fill: Fill) {
        let (step, done) = (self.step_of(number), self.flights[number as usize].done);
        if let Some(encoded) = &mut self.encoded {
            encoded.write(step, part(step, done).start, fill.frames.slices_mut());
        }
        self.engine.commit(self.now_us(), fill);
    }

    /// After the commit of a write, whose own reply, if there is one, is the last.
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

    /// A part of a step has its reply. Returns whether the step has another part.
    fn end_part(&mut self, number: u32) -> bool {
        let step = self.step_of(number);
        let flight = &mut self.flights[number as usize];
        let process = &mut self.processes[flight.program as usize];
        process.waited_ns += self.now_ns - flight.since_ns;
        flight.since_ns = self.now_ns;
        let part = part(step, flight.done);
        if part.end < step.end() {
            flight.done = part.end - step.offset;
            return true;
        }
        flight.done = 0;
        process.over += 1;
        let took_ns = self.now_ns - flight.issued_ns;
        match step.what {
            What::Read => self.reads.add(took_ns),
            What::Write => self.writes.add(took_ns),
            What::Trim | What::Flush => {}
        }
        let over = process.over;
        let is_last = over == self.setup.programs[flight.program as usize].steps.len();
        if is_last {
            process.end_ns = self.now_ns;
            self.running -= 1;
        }
        if over.is_multiple_of(STRETCH) {
            self.progress(STRETCH);
        } else if is_last {
            self.progress(over % STRETCH);
        }
        false
    }

    /// A part of a step in a closed loop is over. How long its program computes before it issues its next; none if it is at its end.
    fn advance(&mut self, number: u32) -> Option<u64> {
        if self.end_part(number) {
            return Some(0);
        }
        self.processes[number as usize].at += 1;
        let next = self.step(number)?;
        Some(next.think_ns.saturating_add(std::mem::take(&mut self.owed_ns)))
    }

    /// A part of a step is over, and its program goes on.
    fn part_over(&mut self, number: u32) {
        let program = self.flights[number as usize].program;
        match self.setup.programs[program as usize].pace {
            Pace::Closed => {
                if let Some(think_ns) = self.advance(number) {
                    self.compute(number, think_ns);
                }
            }
            Pace::Open => {
                if self.end_part(number) {
                    return self.at(self.now_ns, Event::Part(number));
                }
                self.processes[program as usize].in_flight -= 1;
                self.landed.push(number);
            }
        }
    }

    fn progress(&mut self, steps: usize) {
        if let Some(progress) = self.setup.progress {
            progress.fetch_add(steps as u64, Ordering::Relaxed);
        }
        if self.setup.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            self.failed.get_or_insert(TimedError::Stopped);
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
        self.part_over(number);
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
