//! Ports: queues to devices, and which of them has an operation to start.
//!
//! 1. An operation gets a number and a record, and waits in the queue of its port (`add`).
//! 2. A port whose device can take one more is ready, once.
//! 3. The record stays until the device has finished the operation.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashMap;

use crate::error::ConfigError;
use crate::queue::{Class, PortState, Queue, Waiting};
use crate::record::Record;
use crate::request::{Port, Volume};
use crate::scheduler::Scheduler;
use crate::volumes::Volumes;

/// The configuration of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The most operations at its device at a time, and the most writes that are queued or at the device.
    pub depth: u32,
    /// The order in which operations go to the device.
    pub scheduler: Scheduler,
    /// Whether the device itself repeats the changes that it may have lost when a flush failed, before any other
    /// operation.
    pub replays: bool,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig { depth: 32, scheduler: Scheduler::default(), replays: false }
    }
}

/// The ports, and the operations in their queues and at their devices.
#[derive(Default)]
pub(crate) struct Ports {
    /// By number of the port.
    pub(crate) all: Vec<Option<Box<PortState>>>,
    /// Ports with an operation that can be started, the next first.
    pub(crate) ready: VecDeque<Port>,
    /// Operations in the queues of all ports.
    pub(crate) queued: u32,
    pub(crate) operations: HashMap<u64, Record>,
    /// The number of operations so far.
    pub(crate) made: u64,
}

impl Ports {
    /// Opens `port`.
    pub(crate) fn attach(&mut self, port: Port, config: PortConfig) -> Result<(), ConfigError> {
        if config.depth == 0 {
            return Err(ConfigError::Impossible { what: "the depth of a port must be at least 1" });
        }
        let at = usize::from(port.0);
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        if self.all[at].is_some() {
            return Err(ConfigError::PortTaken(port.0));
        }
        self.all[at] = Some(Box::new(PortState {
            depth: config.depth,
            replays: config.replays,
            queue: Queue::new(config.scheduler),
            at_device: 0,
            writes: 0,
            ready: false,
            blocked: VecDeque::new(),
            users: 0,
            volumes: Vec::new(),
        }));
        Ok(())
    }

    /// Closes `port`. Volumes with regions at it must be closed first.
    pub(crate) fn detach(&mut self, port: Port) -> Result<(), ConfigError> {
        let slot = self.all.get_mut(usize::from(port.0)).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ConfigError::NoPort(port.0))?;
        let state = slot.as_ref().expect("just found");
        if state.users > 0 || state.at_device > 0 || state.queue.len() > 0 {
            return Err(ConfigError::PortInUse(port.0));
        }
        *slot = None;
        Ok(())
    }

    pub(crate) fn get(&self, port: Port) -> Option<&PortState> {
        self.all.get(usize::from(port.0))?.as_deref()
    }

    /// The state of an open port.
    pub(crate) fn state(&self, port: Port) -> &PortState {
        self.get(port).expect("an open port")
    }

    /// As `state`.
    pub(crate) fn state_mut(&mut self, port: Port) -> &mut PortState {
        self.all[usize::from(port.0)].as_mut().expect("an open port")
    }

    /// Adds `port` to the ready list if it has an operation to start and its depth allows it.
    pub(crate) fn make_ready(&mut self, port: Port) {
        let state = self.state_mut(port);
        if !state.ready && state.at_device < state.depth && state.queue.len() > 0 {
            state.ready = true;
            self.ready.push_back(port);
        }
    }

    /// Takes the next port from the ready list.
    pub(crate) fn next_ready(&mut self) -> Option<Port> {
        let port = self.ready.pop_front()?;
        self.state_mut(port).ready = false;
        Some(port)
    }

    pub(crate) fn add(&mut self, port: Port, class: Class, waiting: Waiting, record: Record) -> u64 {
        let id = waiting.id;
        self.made += 1;
        self.operations.insert(id, record);
        self.state_mut(port).queue.push(class, waiting);
        self.queued += 1;
        self.make_ready(port);
        id
    }

    /// Queues an operation on `blocks` of `volume`, which are in one region, at the port of that region.
    pub(crate) fn queue_home(
        &mut self,
        volumes: &mut Volumes,
        volume: Volume,
        class: Class,
        blocks: Range<u64>,
        record: Record,
        now: u64,
    ) -> u64 {
        let state = volumes.state_mut(volume);
        state.operations += 1;
        let at = state.part_of(blocks.start);
        let part = &state.parts[at];
        let (port, block) = (part.port, part.place + blocks.start - part.blocks.start);
        let region = u64::from(volume.0) << 32 | at as u64;
        let alone = matches!(record, Record::Read { alone: true, .. });
        let id = self.made;
        let waiting = Waiting { id, block, blocks: blocks.end - blocks.start, since: now, region, alone };
        self.add(port, class, waiting, record)
    }
}
