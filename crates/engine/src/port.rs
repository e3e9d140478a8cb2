//! Ports: queues to devices, and which of them has an operation to start.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::engine::Engine;
use crate::error::ConfigError;
use crate::queue::{PortState, Queue};
use crate::record::Record;
use crate::request::{Port, Region, Volume, WriteMode};
use crate::scheduler::Scheduler;
use crate::slots::Key;
use crate::volume::{Part, VolumeState};

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

impl Engine {
    /// Opens `port`.
    pub fn attach(&mut self, port: Port, config: PortConfig) -> Result<(), ConfigError> {
        if config.depth == 0 {
            return Err(ConfigError::Impossible { what: "the depth of a port must be at least 1" });
        }
        let at = usize::from(port.0);
        if self.ports.all.len() <= at {
            self.ports.all.resize_with(at + 1, || None);
        }
        if self.ports.all[at].is_some() {
            return Err(ConfigError::PortTaken(port.0));
        }
        self.ports.all[at] = Some(Box::new(PortState {
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
    pub fn detach(&mut self, port: Port) -> Result<(), ConfigError> {
        let slot = self.ports.all.get_mut(usize::from(port.0)).filter(|slot| slot.is_some());
        let slot = slot.ok_or(ConfigError::NoPort(port.0))?;
        let state = slot.as_ref().expect("just found");
        if state.users > 0 || state.at_device > 0 || state.queue.len() > 0 {
            return Err(ConfigError::PortInUse(port.0));
        }
        *slot = None;
        Ok(())
    }

    /// Opens `volume`, which consists of `regions`, one after the other.
    pub fn open(&mut self, volume: Volume, mode: WriteMode, regions: &[Region]) -> Result<(), ConfigError> {
        let block_bytes = u64::from(self.config.block_bytes);
        let mut bytes = 0u64;
        let mut parts = smallvec::SmallVec::new();
        for (at, region) in (1..).zip(regions) {
            if self.ports.all.get(usize::from(region.port.0)).is_none_or(Option::is_none) {
                return Err(ConfigError::NoPort(region.port.0));
            }
            let is_last = at == regions.len();
            let whole = region.bytes.is_multiple_of(block_bytes) && region.bytes > 0;
            if !(whole || is_last) || !region.offset.is_multiple_of(block_bytes) {
                return Err(ConfigError::Impossible {
                    what: "regions must begin and end with a block, and only the last may be empty",
                });
            }
            let start = bytes >> self.shift;
            bytes = bytes.saturating_add(region.bytes);
            let blocks = start..bytes.div_ceil(block_bytes);
            parts.push(Part { blocks, port: region.port, place: region.offset >> self.shift });
        }
        if regions.is_empty() || bytes.div_ceil(block_bytes) > Key::BLOCKS {
            return Err(ConfigError::Impossible { what: "a volume must have regions, of at most 2^34 blocks" });
        }
        if volume.0 >= Key::VOLUMES {
            return Err(ConfigError::Impossible { what: "the number of a volume must be below 2^22 - 1" });
        }
        if self.volumes.get(volume).is_some() {
            return Err(ConfigError::Taken(volume.0));
        }
        let opening = self.next_opening(volume);
        let state = VolumeState::new(mode, bytes, opening, parts, self.levels.all.len());
        for part in &state.parts {
            self.port(part.port).users += 1;
        }
        for target in &state.targets {
            self.port(target.port).volumes.push(volume);
        }
        self.volumes.add(volume, state);
        Ok(())
    }

    pub(crate) fn port(&mut self, port: Port) -> &mut PortState {
        self.ports.all[usize::from(port.0)].as_mut().expect("an open port")
    }

    /// Adds `port` to the ready list if it has an operation to start and its depth allows it.
    pub(crate) fn make_ready(&mut self, port: Port) {
        let state = self.port(port);
        if !state.ready && state.at_device < state.depth && state.queue.len() > 0 {
            state.ready = true;
            self.ports.ready.push_back(port);
        }
    }

    /// Takes the next port from the ready list.
    pub(crate) fn next_ready(&mut self) -> Option<Port> {
        let port = self.ports.ready.pop_front()?;
        self.port(port).ready = false;
        Some(port)
    }
}
