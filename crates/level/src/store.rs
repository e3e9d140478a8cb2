//! The state of a level's server, without I/O and clock: the blocks of all clients, and which of them a request may still use.
//!
//! **Invariant:** a block is returned only to the client that demoted it, in the same epoch, on the same connection, and not after a
//! request of that client to invalidate it.

use std::collections::{HashMap, VecDeque};

use nigh_policy::Slot;
use nigh_tier::{CLIENTS_MAX, Client, Server};

use crate::{Hello, NOTICES_MAX, Notice, Place, Refusal, Reply, Request, Result};

/// Why a namespace is [`Refusal::Taken`].
const TAKEN: &str = "another server with this name has the level";
/// The most notices that wait for a namespace. The oldest are dropped beyond that: the client's next request for such a block misses.
const WAITING_MAX: usize = 64 << 10;

/// The size of a store, and what each client may use of it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Blocks of all clients.
    pub blocks: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The most clients, by name.
    pub clients: Client,
    /// The most blocks of one client; as many as there are, or more, for no limit.
    pub blocks_each: u32,
    /// The most namespaces of one client.
    pub namespaces_each: u32,
}

/// Why a client is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// There are too many clients.
    #[error("no more than {0} clients are possible")]
    Clients(Client),
    /// The client has blocks of another size.
    #[error("blocks have {has} bytes here, not {given}")]
    BlockBytes {
        /// The size here.
        has: u32,
        /// The client's.
        given: u32,
    },
}

/// A connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    client: Client,
    number: u64,
    instance: u64,
    level: u8,
}

/// Counts of a client since it connected, or of all clients since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Blocks that were retrieved.
    pub found: u64,
    /// Requests for blocks that were not here.
    pub missed: u64,
    /// Blocks that were demoted to here.
    pub demoted: u64,
    /// Blocks that left to make room.
    pub replaced: u64,
    /// Blocks that were invalidated, or were of an earlier epoch.
    pub invalidated: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl StoreCounts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: StoreCounts) -> StoreCounts {
        let StoreCounts { found, missed, demoted, replaced, invalidated, refused } = other;
        StoreCounts {
            found: self.found + found,
            missed: self.missed + missed,
            demoted: self.demoted + demoted,
            replaced: self.replaced + replaced,
            invalidated: self.invalidated + invalidated,
            refused: self.refused + refused,
        }
    }
}

/// A client at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its connections.
    pub connections: u32,
    /// Its blocks.
    pub blocks: u32,
    /// Counts since it connected.
    pub counts: StoreCounts,
}

#[derive(Default)]
struct State {
    /// Its connections. Without any, it is forgotten.
    connections: u32,
    /// The numbers of its namespaces, by name.
    namespaces: HashMap<Box<str>, u32>,
    counts: StoreCounts,
}

/// A name of a client, and its blocks of the present epoch.
struct Namespace {
    client: Client,
    /// The connection on which it is open, and the number of its process; no connection has the number 0.
    connection: u64,
    instance: u64,
    epoch: u64,
    blocks: HashMap<u64, Slot>,
    /// Of blocks that were replaced in this epoch.
    notices: VecDeque<Notice>,
}

/// A block in a slot.
struct Stored {
    namespace: u32,
    block: u64,
    sum: u64,
    data: Box<[u8]>,
}

/// The blocks of all clients, in memory.
pub struct Store {
    limits: Limits,
    glru: Server,
    clients: Vec<State>,
    /// The counts of clients that are forgotten.
    gone: StoreCounts,
    names: HashMap<Box<str>, Client>,
    namespaces: Vec<Namespace>,
    /// Numbers of namespaces that are closed.
    unused: Vec<u32>,
    slots: Vec<Option<Stored>>,
    free: Vec<Slot>,
    connections: u64,
    /// The slots of notices, which are free again.
    noticed: Vec<Slot>,
}

enum Done {
    Opened(u32),
    Found(u64),
    Missed,
    Finished,
}

type Outcome = std::result::Result<Done, (Refusal, &'static str)>;

impl Store {
    /// An empty store.
    ///
    /// # Panics
    /// Without room for a block or a client.
    pub fn new(limits: Limits) -> Store {
        let clients = limits.clients.min(CLIENTS_MAX);
        // The incoming block has a slot before another one leaves.
        let slots = limits.blocks.saturating_add(1);
        Store {
            limits: Limits { clients, ..limits },
            glru: Server::new(slots, clients, limits.blocks),
            clients: Vec::new(),
            gone: StoreCounts::default(),
            names: HashMap::new(),
            namespaces: Vec::new(),
            unused: Vec::new(),
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            connections: 0,
            noticed: Vec::new(),
        }
    }

    /// A client connects as `name`: that of its certificate, or of its Hello.
    pub fn connect(&mut self, hello: &Hello<'_>, name: &str) -> std::result::Result<Connection, Rejected> {
        let Limits { block_bytes, clients, .. } = self.limits;
        if hello.block_bytes != block_bytes {
            return Err(Rejected::BlockBytes { has: block_bytes, given: hello.block_bytes });
        }
        let client = match self.names.get(name) {
            Some(&client) => client,
            None => {
                let unused = (0..).zip(&self.clients).find_map(|(at, state)| (state.connections == 0).then_some(at));
                let client = unused.unwrap_or(self.clients.len() as Client);
                if client >= clients {
                    return Err(Rejected::Clients(clients));
                }
                self.names.insert(name.into(), client);
                if unused.is_none() {
                    self.clients.push(State::default());
                }
                client
            }
        };
        if let Some(state) = self.clients.get_mut(usize::from(client)) {
            state.connections += 1;
        }
        self.connections += 1;
        Ok(Connection { client, number: self.connections, instance: hello.instance, level: hello.level })
    }

    /// `connection` is closed: its namespaces are, too, because nothing of their epochs can be asked for any more. A client without
    /// connections is forgotten.
    pub fn disconnect(&mut self, connection: Connection) {
        let Some(state) = self.clients.get_mut(usize::from(connection.client)) else { return };
        let mut gone = Vec::new();
        state.namespaces.retain(|_, &mut number| {
            let Some(of) = self.namespaces.get_mut(number as usize) else { return false };
            if of.connection != connection.number {
                return true;
            }
            of.connection = 0;
            of.notices.clear();
            gone.extend(of.blocks.drain().map(|(_, slot)| slot));
            self.unused.push(number);
            false
        });
        state.connections = state.connections.saturating_sub(1);
        if state.connections == 0 {
            self.gone = self.gone.plus(state.counts);
            *state = State::default();
            self.names.retain(|_, client| *client != connection.client);
        }
        gone.into_iter().for_each(|slot| self.vacate(slot));
    }

    /// Executes a request that came on `connection` at `now_us`, which does not go backwards. `contents` receives those of a block that
    /// is found.
    pub fn handle<'a>(
        &mut self,
        now_us: u64,
        connection: Connection,
        cookie: u64,
        request: &Request<'_>,
        contents: &'a mut Vec<u8>,
    ) -> Reply<'a> {
        contents.clear();
        let outcome = match *request {
            Request::Open { name, epoch } => self.open(connection, name, epoch),
            Request::Retrieve { place, to, .. } => self.retrieve(now_us, connection, place, to, contents),
            Request::Demote { place, to, age_us, sum, data, .. } => {
                self.demote(now_us.saturating_sub(age_us), connection, place, to, sum, data)
            }
            Request::Invalidate { place, count } => self.invalidate(connection, place, count),
        };
        let result = match outcome {
            Ok(Done::Opened(namespace)) => Result::Opened { namespace },
            Ok(Done::Found(sum)) => Result::Found { sum, data: contents },
            Ok(Done::Missed) => Result::Missed,
            Ok(Done::Finished) => Result::Done,
            Err((refusal, text)) => Result::Refused { refusal, text },
        };
        let mut notices = Vec::new();
        if let Some(state) = self.clients.get_mut(usize::from(connection.client)) {
            let StoreCounts { found, missed, refused, .. } = &mut state.counts;
            match result {
                Result::Found { .. } => *found += 1,
                Result::Missed => *missed += 1,
                Result::Refused { .. } => *refused += 1,
                Result::Opened { .. } | Result::Done => {}
            }
        }
        let of = request.namespace().and_then(|namespace| self.namespaces.get_mut(namespace as usize));
        if let Some(of) = of.filter(|of| of.connection == connection.number) {
            notices.extend(of.notices.drain(..of.notices.len().min(NOTICES_MAX)));
        }
        let oldest = self.glru.oldest();
        Reply {
            cookie,
            result,
            free: self.glru.free().into(),
            oldest_us: (oldest > 0).then(|| now_us.saturating_sub(oldest)),
            notices,
        }
    }

    fn open(&mut self, connection: Connection, name: &str, epoch: u64) -> Outcome {
        let Connection { client, number, instance, .. } = connection;
        let Some(state) = self.clients.get_mut(usize::from(client)) else {
            return Err((Refusal::Denied, "no such client"));
        };
        let namespace = match state.namespaces.get(name) {
            Some(&namespace) => namespace,
            None if state.namespaces.len() as u64 >= self.limits.namespaces_each.into() => {
                return Err((Refusal::Limit, "the client has too many namespaces"));
            }
            None => {
                let new = Namespace {
                    client,
                    connection: 0,
                    instance,
                    epoch: 0,
                    blocks: HashMap::new(),
                    notices: VecDeque::new(),
                };
                let namespace = self.unused.pop().unwrap_or(self.namespaces.len() as u32);
                state.namespaces.insert(name.into(), namespace);
                match self.namespaces.get_mut(namespace as usize) {
                    Some(unused) => *unused = new,
                    None => self.namespaces.push(new),
                }
                namespace
            }
        };
        let Some(of) = self.namespaces.get_mut(namespace as usize) else {
            return Err((Refusal::Namespace, "no such namespace"));
        };
        if of.connection != 0 && of.instance != instance {
            return Err((Refusal::Taken, TAKEN));
        }
        if epoch <= of.epoch {
            return Err((Refusal::Epoch, "there was a higher epoch"));
        }
        (of.epoch, of.connection, of.instance) = (epoch, number, instance);
        of.notices.clear();
        let old: Vec<Slot> = of.blocks.drain().map(|(_, slot)| slot).collect();
        state.counts.invalidated += old.len() as u64;
        old.into_iter().for_each(|slot| self.vacate(slot));
        Ok(Done::Opened(namespace))
    }

    /// The namespace of a request, if it may use it.
    fn namespace(
        &mut self,
        connection: Connection,
        place: Place,
    ) -> std::result::Result<&mut Namespace, (Refusal, &'static str)> {
        let of = self.namespaces.get_mut(place.namespace as usize);
        let of = of.filter(|of| of.client == connection.client && of.connection == connection.number);
        let of = of.ok_or((Refusal::Namespace, "the namespace is not open on this connection"))?;
        if of.epoch == place.epoch { Ok(of) } else { Err((Refusal::Epoch, "the epoch is over")) }
    }

    fn retrieve(
        &mut self,
        now_us: u64,
        connection: Connection,
        place: Place,
        to: crate::Level,
        contents: &mut Vec<u8>,
    ) -> Outcome {
        let keep = to == Some(connection.level);
        let of = self.namespace(connection, place)?;
        let slot = if keep { of.blocks.get(&place.block).copied() } else { of.blocks.remove(&place.block) };
        let Some(slot) = slot else { return Ok(Done::Missed) };
        let Some(Some(stored)) = self.slots.get(slot.index()) else { return Ok(Done::Missed) };
        contents.extend_from_slice(&stored.data);
        let sum = stored.sum;
        if keep {
            self.glru.retrieve(connection.client, slot, true, now_us.max(1));
        } else {
            self.vacate(slot);
        }
        Ok(Done::Found(sum))
    }

    fn demote(&mut self, last_us: u64, connection: Connection, place: Place, to: u8, sum: u64, data: &[u8]) -> Outcome {
        let Connection { client, level, .. } = connection;
        let Limits { blocks, block_bytes, blocks_each, .. } = self.limits;
        let known = self.namespace(connection, place)?.blocks.get(&place.block).copied();
        if to != level || data.len() != block_bytes as usize {
            return Err((Refusal::Denied, "another level, or another size of blocks"));
        }
        // A client that may have all blocks replaces its own oldest ones.
        if known.is_none() && blocks_each < blocks && self.glru.share(client) >= blocks_each {
            return Err((Refusal::Limit, "the client has too many blocks"));
        }
        let Some(slot) = known.or_else(|| self.free.pop()) else {
            return Err((Refusal::Limit, "there is no room"));
        };
        self.namespace(connection, place)?.blocks.insert(place.block, slot);
        if let Some(stored) = self.slots.get_mut(slot.index()) {
            *stored = Some(Stored { namespace: place.namespace, block: place.block, sum, data: data.into() });
        }
        if let Some(state) = self.clients.get_mut(usize::from(client)) {
            state.counts.demoted += 1;
        }
        if let Some(replaced) = self.glru.demote(client, slot, last_us.max(1)) {
            self.notice(replaced);
        }
        Ok(Done::Finished)
    }

    /// The block of `slot` was replaced: its owner will be noticed.
    fn notice(&mut self, slot: Slot) {
        let Some(stored) = self.slots.get_mut(slot.index()).and_then(Option::take) else { return };
        self.free.push(slot);
        let Some(of) = self.namespaces.get_mut(stored.namespace as usize) else { return };
        of.blocks.remove(&stored.block);
        // The slot can be used again before the client gets the notice.
        self.noticed.clear();
        self.glru.take_notices(of.client, &mut self.noticed);
        if let Some(state) = self.clients.get_mut(usize::from(of.client)) {
            state.counts.replaced += 1;
        }
        if of.notices.len() >= WAITING_MAX {
            of.notices.pop_front();
        }
        of.notices.push_back(Notice { namespace: stored.namespace, epoch: of.epoch, block: stored.block });
    }

    fn invalidate(&mut self, connection: Connection, place: Place, count: u64) -> Outcome {
        let of = self.namespace(connection, place)?;
        let range = place.block..place.block.saturating_add(count);
        let gone: Vec<Slot> = if count <= of.blocks.len() as u64 {
            range.filter_map(|block| of.blocks.remove(&block)).collect()
        } else {
            of.blocks.extract_if(|block, _| range.contains(block)).map(|(_, slot)| slot).collect()
        };
        if let Some(state) = self.clients.get_mut(usize::from(connection.client)) {
            state.counts.invalidated += gone.len() as u64;
        }
        gone.into_iter().for_each(|slot| self.vacate(slot));
        Ok(Done::Finished)
    }

    /// Frees `slot`, whose block belongs to no namespace any more.
    fn vacate(&mut self, slot: Slot) {
        if let Some(stored) = self.slots.get_mut(slot.index()).filter(|stored| stored.is_some()) {
            *stored = None;
            self.glru.remove(slot);
            self.free.push(slot);
        }
    }

    /// Each client that is connected.
    pub fn clients(&self) -> impl Iterator<Item = ClientState<'_>> {
        self.names.iter().filter_map(|(name, &client)| {
            let &State { connections, counts, .. } = self.clients.get(usize::from(client))?;
            Some(ClientState { name, connections, blocks: self.glru.share(client), counts })
        })
    }

    /// What was counted for all clients, also for those that are gone.
    pub fn counts(&self) -> StoreCounts {
        self.clients.iter().fold(self.gone, |sum, state| sum.plus(state.counts))
    }

    /// Blocks that fit in before one is replaced.
    pub fn free(&self) -> u32 {
        self.glru.free()
    }

    /// Recounts every invariant.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        let mut cached = 0;
        for (number, of) in (0..).zip(&self.namespaces) {
            for (&block, &slot) in &of.blocks {
                let stored = self.slots.get(slot.index()).and_then(Option::as_ref);
                let is_it = stored.is_some_and(|stored| (stored.namespace, stored.block) == (number, block));
                assert!(is_it && self.glru.owner(slot) == Some(of.client), "a block is not where it should be");
                cached += 1;
            }
        }
        let stored = self.slots.iter().flatten().count();
        assert_eq!((stored, self.free.len()), (cached, self.slots.len() - cached), "slots are lost");
        assert!(cached <= self.limits.blocks as usize, "there are too many blocks");
        self.glru.check(&[]);
    }
}
