//! The state of a level's server, without I/O and clock: the blocks of all clients, and which of them a request may still use.
//!
//! **Invariant:** a block is returned only to the client that demoted it, in the same epoch or one that resumes it, on the connection on which that was opened, and not after a
//! request of that client to invalidate it.
//!
//! **Invariant:** no call frees all blocks of a namespace: they are freed step by step, by the calls that follow.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

use nigh_policy::Slot;
use nigh_tier::{CLIENTS_MAX, Client, Server};

use crate::contents::{Cold, Contents, Filed};
use crate::frames::NoRoom;
use crate::index::{Index, Owner, Set};
use crate::{Hello, INVALIDATED_MAX, NOTICES_MAX, Notice, Place, Refusal, Reply, Request, Result};

/// Why a namespace is [`Refusal::Taken`].
const TAKEN: &str = "another server with this name has the level";
/// The most notices that wait for a namespace. The oldest are dropped beyond that: the client's next request for such a block misses.
const WAITING_MAX: usize = 64 << 10;
/// All namespaces together have at most one notice for this many blocks of the store, or `WAITING_LEAST` if that is more. Beyond that, the
/// namespace with the most notices loses the older half of its own.
const BLOCKS_PER_NOTICE: u32 = 8;
const WAITING_LEAST: u32 = 1024;
/// Blocks of namespaces that are over, freed by each call.
const FREED: usize = 32;
/// Slots, beyond those of the blocks, of blocks that leave the store as soon as they are read from the file.
const LEAVING: u32 = 16 << 10;
/// The most blocks that a demoted one passes on the way to its place in gLRU.
const STEPS: u32 = 64;

/// The size of a store, and what each client may use of it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Blocks of all clients.
    pub blocks: u32,
    /// The most of them in memory. If these are not all, there is a file for the others: see [`Store::blocks_of`].
    pub memory_blocks: u32,
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
    /// The client has too many namespaces.
    #[error("no more than {0} namespaces of a client are possible")]
    Namespaces(u32),
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
    /// Blocks that were read from the file.
    pub filed: u64,
    /// Of these, those that the file did not have as they were written, or that could not be read.
    pub damaged: u64,
}

impl StoreCounts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: StoreCounts) -> StoreCounts {
        let StoreCounts { found, missed, demoted, replaced, invalidated, refused, filed, damaged } = other;
        StoreCounts {
            found: self.found + found,
            missed: self.missed + missed,
            demoted: self.demoted + demoted,
            replaced: self.replaced + replaced,
            invalidated: self.invalidated + invalidated,
            refused: self.refused + refused,
            filed: self.filed + filed,
            damaged: self.damaged + damaged,
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
    /// Counts since it connected first.
    pub counts: StoreCounts,
}

/// Answer to a request, or the next step.
#[derive(Debug)]
pub enum Handled<'a> {
    /// It is done.
    Reply(Reply<'a>),
    /// The block is in the file: read it, and call [`Store::finish`].
    Fetch(Fetch),
}

/// A Retrieve of a block that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Its place.
    pub filed: Filed,
    connection: Connection,
    cookie: u64,
    namespace: u32,
    /// As the namespace had it.
    changes: u64,
    keep: bool,
}

/// Result of reading a block from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBlock<'a> {
    /// Its contents, with the right checksum.
    Contents(&'a [u8]),
    /// It cannot be read, or has another checksum.
    Damaged,
    /// It was not read. It stays, unless it was to leave.
    Skipped,
}

/// A namespace, as it is kept for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number among the namespaces that are kept.
    pub number: u32,
    /// The name of the client.
    pub client: String,
    /// Its own name.
    pub name: String,
    /// The process of the client, as in [`Hello::instance`].
    pub instance: u64,
    /// Its epoch.
    pub epoch: u64,
}

/// A block in the file, as it is kept for the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBlock {
    /// The number of its namespace.
    pub namespace: u32,
    /// The block.
    pub block: u64,
    /// Its place in the file.
    pub place: u32,
    /// The checksum of its contents.
    pub sum: NonZeroU64,
}

#[derive(Default)]
struct State {
    connections: u32,
    /// The number of the connection that it had last.
    last: u64,
    /// The numbers of its namespaces, by name.
    namespaces: HashMap<Box<str>, u32>,
    counts: StoreCounts,
}

/// A name of a client, and its blocks of the present epoch.
struct Namespace {
    client: Client,
    /// The connection on which it is open, and the number of its process; no connection has the number 0. Without a connection, the blocks wait for one that
    /// resumes the epoch.
    connection: u64,
    instance: u64,
    epoch: u64,
    /// The epoch that this one resumed, until something is done in this one: the client may not know yet that it began.
    resumed: Option<u64>,
    /// How often blocks became invalid by a request.
    changes: u64,
    /// The number of the connection that it had last.
    last: u64,
    /// Those of its blocks that are valid.
    blocks: Set,
    /// Blocks that were replaced in this epoch.
    notices: VecDeque<u64>,
}

/// The blocks of all clients.
///
/// Blocks that are in slots and not in the index are being read from the file as they leave.
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
    contents: Contents,
    index: Index,
    /// Notices that wait, of all namespaces.
    waiting: usize,
    connections: u64,
    /// The slots of notices, which are free again.
    noticed: Vec<Slot>,
    /// Blocks of an earlier run.
    restored: u64,
}

enum Done {
    Opened(u32, bool),
    Found,
    Filed(Filed, u64, bool),
    Missed,
    Finished,
}

type Attempt<T> = std::result::Result<T, (Refusal, &'static str)>;

impl Store {
    /// An empty store.
    ///
    /// # Panics
    /// Without room for a block or a client.
    pub fn new(limits: Limits) -> std::result::Result<Store, NoRoom> {
        let clients = limits.clients.min(CLIENTS_MAX);
        let has_file = limits.memory_blocks < limits.blocks;
        // The incoming block has a slot before another one leaves.
        let slots = limits.blocks.saturating_add(if has_file { LEAVING } else { 1 });
        let memory = if has_file { limits.memory_blocks } else { slots };
        Ok(Store {
            limits: Limits { clients, ..limits },
            glru: Server::new(slots, clients, limits.blocks).with_most_steps(STEPS),
            clients: Vec::new(),
            gone: StoreCounts::default(),
            names: HashMap::new(),
            namespaces: Vec::new(),
            unused: Vec::new(),
            contents: Contents::new(slots, memory, limits.block_bytes)?,
            index: Index::new(slots),
            waiting: 0,
            connections: 0,
            noticed: Vec::new(),
            restored: 0,
        })
    }

    /// The time at the start, in microseconds: blocks of an earlier run were referenced before.
    pub const START_US: u64 = 1 << 32;

    /// The number of blocks of a store whose file has this many places.
    pub const fn blocks_of(places: u32) -> u32 {
        places.saturating_sub(LEAVING)
    }

    /// A client connects as `name`: that of its certificate, or of its Hello.
    pub fn connect(&mut self, hello: &Hello<'_>, name: &str) -> std::result::Result<Connection, Rejected> {
        let Limits { block_bytes, .. } = self.limits;
        if hello.block_bytes != block_bytes {
            return Err(Rejected::BlockBytes { has: block_bytes, given: hello.block_bytes });
        }
        let client = self.client(name)?;
        self.connections += 1;
        if let Some(state) = self.clients.get_mut(usize::from(client)) {
            state.connections += 1;
            state.last = self.connections;
        }
        Ok(Connection { client, number: self.connections, instance: hello.instance, level: hello.level })
    }

    /// The number of a client, which may be new. Then the one that has been without a connection for longest may have to be forgotten.
    fn client(&mut self, name: &str) -> std::result::Result<Client, Rejected> {
        if let Some(&client) = self.names.get(name) {
            return Ok(client);
        }
        let most = self.limits.clients;
        let next = self.clients.len() as Client;
        let unused = (0..next).find(|client| self.names.values().all(|used| used != client));
        let away = || {
            let states = (0..).zip(&self.clients).filter(|(_, state)| state.connections == 0);
            states.min_by_key(|(_, state)| state.last).map(|(client, _)| client)
        };
        let client = match unused {
            Some(client) => client,
            None if next < most => next,
            None => away().ok_or(Rejected::Clients(most))?,
        };
        self.forget(client);
        if client == next {
            self.clients.push(State::default());
        }
        self.names.insert(name.into(), client);
        Ok(client)
    }

    /// Forgets a client without connections.
    fn forget(&mut self, client: Client) {
        let Some(state) = self.clients.get_mut(usize::from(client)) else { return };
        let State { namespaces, counts, .. } = std::mem::take(state);
        self.gone = self.gone.plus(counts);
        self.names.retain(|_, of| *of != client);
        namespaces.into_values().for_each(|number| self.close(number));
    }

    /// Ends the namespace of this number, which its client no longer knows.
    fn close(&mut self, number: u32) {
        self.end_epoch(number);
        if let Some(of) = self.namespaces.get_mut(number as usize) {
            self.index.end(std::mem::replace(&mut of.blocks, Set::NONE));
            of.connection = 0;
            self.unused.push(number);
        }
    }

    /// The blocks of the namespace's epoch are no longer valid. Returns their number.
    fn end_epoch(&mut self, number: u32) -> u32 {
        let Some(of) = self.namespaces.get_mut(number as usize) else { return 0 };
        self.waiting -= std::mem::take(&mut of.notices).len();
        of.changes += 1;
        let count = self.index.count(of.blocks);
        if count > 0 {
            self.index.end(of.blocks);
            of.blocks = self.index.set(of.client, number);
        }
        count
    }

    /// Frees some blocks of epochs that are over, as each request does. Returns whether there are more.
    pub fn free_some(&mut self) -> bool {
        for _ in 0..FREED {
            let Some(slot) = self.index.take_over() else { return false };
            self.vacate(slot);
        }
        true
    }

    /// `connection` is closed. The blocks of its namespaces wait for another connection of the same process, which may resume their epochs.
    pub fn disconnect(&mut self, connection: Connection) {
        let Some(state) = self.clients.get_mut(usize::from(connection.client)) else { return };
        state.connections = state.connections.saturating_sub(1);
        let numbers: Vec<u32> = state.namespaces.values().copied().collect();
        for number in numbers {
            if let Some(of) = self.namespaces.get_mut(number as usize)
                && of.connection == connection.number
            {
                of.connection = 0;
                self.close_empty(number);
            }
        }
        self.forget_empty(connection.client);
    }

    /// Ends the namespace of this number if it has neither a connection nor blocks.
    fn close_empty(&mut self, number: u32) {
        let Some(of) = self.namespaces.get(number as usize) else { return };
        let client = of.client;
        if of.connection == 0
            && self.index.count(of.blocks) == 0
            && let Some(state) = self.clients.get_mut(usize::from(client))
        {
            // It may be closed already.
            let open = state.namespaces.len();
            state.namespaces.retain(|_, of| *of != number);
            if state.namespaces.len() < open {
                self.close(number);
            }
        }
    }

    fn forget_empty(&mut self, client: Client) {
        let is_empty = |state: &State| state.connections == 0 && state.namespaces.is_empty();
        if self.clients.get(usize::from(client)).is_some_and(is_empty) {
            self.forget(client);
        }
    }

    /// Executes a request that came on `connection` at `now_us`, which does not go backwards, and is at least [`Store::START_US`] if blocks were restored. `contents` receives those of a block that
    /// is found in memory.
    pub fn handle<'a>(
        &mut self,
        now_us: u64,
        connection: Connection,
        cookie: u64,
        request: &Request<'_>,
        contents: &'a mut Vec<u8>,
    ) -> Handled<'a> {
        contents.clear();
        self.free_some();
        let done = match *request {
            Request::Open { name, epoch, resumes } => self.open(connection, name, epoch, resumes),
            Request::Retrieve { place, to, .. } => self.retrieve(now_us, connection, place, to, contents),
            Request::Demote { place, to, age_us, data, .. } => {
                self.demote(now_us.saturating_sub(age_us), connection, place, to, data)
            }
            Request::Invalidate { place, count } => self.invalidate(connection, place, count),
        };
        let namespace = request.namespace();
        let result = match done {
            Ok(Done::Filed(filed, changes, keep)) => {
                let namespace = namespace.unwrap_or_default();
                return Handled::Fetch(Fetch { filed, connection, cookie, namespace, changes, keep });
            }
            Ok(Done::Opened(namespace, resumed)) => Result::Opened { namespace, resumed },
            Ok(Done::Found) => Result::Found { data: contents },
            Ok(Done::Missed) => Result::Missed,
            Ok(Done::Finished) => Result::Done,
            Err((refusal, text)) => Result::Refused { refusal, text },
        };
        Handled::Reply(self.reply(now_us, connection, namespace, cookie, result))
    }

    /// Replies to a request whose block was in the file. To be called for each [`Fetch`], also when its connection has ended. Returns whether the file lost
    /// the block, too.
    pub fn finish<'a>(&mut self, now_us: u64, fetch: &Fetch, read: ReadBlock<'a>) -> (Reply<'a>, bool) {
        let Fetch { filed, connection, cookie, namespace, changes, keep } = *fetch;
        let slot = Slot(filed.place);
        let is_there = self.contents.has(filed);
        let is_lost = is_there && read == ReadBlock::Damaged;
        if let Some(state) = self.clients.get_mut(usize::from(connection.client)) {
            state.counts.filed += u64::from(read != ReadBlock::Skipped);
            state.counts.damaged += u64::from(is_lost);
        }
        match read {
            ReadBlock::Contents(data) if is_there && keep => self.contents.load(slot, data),
            ReadBlock::Skipped if keep => {}
            _ if is_there => self.drop_block(slot),
            _ => {}
        }
        let is_same = self.namespaces.get(namespace as usize).is_some_and(|of| of.changes == changes);
        let result = match read {
            ReadBlock::Contents(data) if is_there && is_same => Result::Found { data },
            ReadBlock::Skipped => Result::Refused { refusal: Refusal::Busy, text: "the file does not respond" },
            _ => Result::Missed,
        };
        (self.reply(now_us, connection, Some(namespace), cookie, result), is_lost)
    }

    fn reply<'a>(
        &mut self,
        now_us: u64,
        connection: Connection,
        namespace: Option<u32>,
        cookie: u64,
        result: Result<'a>,
    ) -> Reply<'a> {
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
        let of = namespace.and_then(|namespace| self.namespaces.get_mut(namespace as usize));
        if let Some(of) = of.filter(|of| of.connection == connection.number) {
            let epoch = of.epoch;
            let due = of.notices.drain(..of.notices.len().min(NOTICES_MAX));
            let due = due.map(|block| Notice { namespace: namespace.unwrap_or_default(), epoch, block });
            notices.extend(due);
            self.waiting -= notices.len();
            of.notices.shrink_to(4 * of.notices.len());
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

    fn open(&mut self, connection: Connection, name: &str, epoch: u64, resumes: u64) -> Attempt<Done> {
        let Connection { client, number, instance, .. } = connection;
        if epoch == 0 {
            return Err((Refusal::Epoch, "epochs are numbered from 1"));
        }
        let most = self.limits.namespaces_each as usize;
        let Some(state) = self.clients.get_mut(usize::from(client)) else {
            return Err((Refusal::Denied, "no such client"));
        };
        if state.namespaces.len() >= most && !state.namespaces.contains_key(name) {
            // One whose process may not return makes room.
            let away = state.namespaces.iter().filter_map(|(name, of)| {
                let Namespace { connection: 0, last, .. } = self.namespaces.get(*of as usize)? else { return None };
                Some((*last, name.clone(), *of))
            });
            let away = away.min_by_key(|(last, ..)| *last).map(|(_, name, of)| (name, of));
            let Some((away, of)) = away else { return Err((Refusal::Limit, "the client has too many namespaces")) };
            state.namespaces.remove(&away);
            self.close(of);
        }
        let namespace = self.namespace_of(client, name, instance);
        let Some(of) = self.namespaces.get_mut(namespace as usize) else {
            return Err((Refusal::Namespace, "no such namespace"));
        };
        if of.connection != 0 && of.instance != instance {
            return Err((Refusal::Taken, TAKEN));
        }
        let is_same = of.instance == instance;
        if is_same && epoch <= of.epoch {
            return Err((Refusal::Epoch, "there was a higher epoch"));
        }
        let resumed = is_same && resumes != 0 && (of.epoch == resumes || of.resumed == Some(resumes));
        (of.epoch, of.connection, of.instance, of.last) = (epoch, number, instance, number);
        of.resumed = resumed.then_some(resumes);
        if !resumed {
            let gone = u64::from(self.end_epoch(namespace));
            if let Some(state) = self.clients.get_mut(usize::from(client)) {
                state.counts.invalidated += gone;
            }
        }
        Ok(Done::Opened(namespace, resumed))
    }

    /// The number of a client's namespace, which may be new.
    fn namespace_of(&mut self, client: Client, name: &str, instance: u64) -> u32 {
        let known = self.clients.get(usize::from(client)).and_then(|state| state.namespaces.get(name));
        if let Some(&number) = known {
            return number;
        }
        let number = self.unused.pop().unwrap_or(self.namespaces.len() as u32);
        let new = Namespace {
            client,
            connection: 0,
            instance,
            epoch: 0,
            resumed: None,
            changes: 0,
            last: 0,
            blocks: self.index.set(client, number),
            notices: VecDeque::new(),
        };
        match self.namespaces.get_mut(number as usize) {
            Some(unused) => *unused = new,
            None => self.namespaces.push(new),
        }
        if let Some(state) = self.clients.get_mut(usize::from(client)) {
            state.namespaces.insert(name.into(), number);
        }
        number
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
        if of.epoch != place.epoch {
            return Err((Refusal::Epoch, "the epoch is over"));
        }
        of.resumed = None;
        Ok(of)
    }

    fn retrieve(
        &mut self,
        now_us: u64,
        connection: Connection,
        place: Place,
        to: crate::Level,
        contents: &mut Vec<u8>,
    ) -> Attempt<Done> {
        let keep = to == Some(connection.level);
        let &mut Namespace { changes, blocks, .. } = self.namespace(connection, place)?;
        let Some(slot) = self.index.find(blocks, place.block) else { return Ok(Done::Missed) };
        let in_file = match self.contents.in_memory(slot) {
            Some(data) => {
                contents.extend_from_slice(data);
                None
            }
            None => self.contents.filed(slot),
        };
        if keep {
            self.glru.retrieve(connection.client, slot, true, now_us.max(1));
        }
        match in_file {
            Some(filed) => {
                // Until it is read, it has its slot, but nobody finds it any more.
                if !keep {
                    self.index.remove(slot);
                    self.glru.remove(slot);
                }
                return Ok(Done::Filed(filed, changes, keep));
            }
            None if keep => self.contents.touch(slot),
            None => self.vacate(slot),
        }
        Ok(Done::Found)
    }

    fn demote(&mut self, last_us: u64, connection: Connection, place: Place, to: u8, data: &[u8]) -> Attempt<Done> {
        let Connection { client, level, .. } = connection;
        let Limits { blocks, block_bytes, blocks_each, .. } = self.limits;
        let set = self.namespace(connection, place)?.blocks;
        let known = self.index.find(set, place.block);
        if to != level || data.len() != block_bytes as usize {
            return Err((Refusal::Denied, "another level, or another size of blocks"));
        }
        // Without a limit of its own, a client replaces the oldest block instead.
        if known.is_none() && blocks_each < blocks && self.glru.share(client) >= blocks_each {
            return Err((Refusal::Limit, "the client has too many blocks"));
        }
        let in_memory = |slot: Slot| self.contents.in_memory(slot).is_some();
        if !known.is_some_and(in_memory) && !self.contents.has_room() {
            return Err((Refusal::Limit, "the file does not take blocks fast enough"));
        }
        let Some(slot) = known.or_else(|| self.contents.take_free()) else {
            return Err((Refusal::Limit, "there is no room"));
        };
        if known.is_none() {
            self.index.insert(set, place.block, slot);
        }
        self.contents.put(slot, data);
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
        let of = self.index.of(slot);
        self.index.remove(slot);
        self.contents.vacate(slot);
        let Some((Owner { client, namespace }, block)) = of else { return };
        // The slot can be used again before the client gets the notice.
        self.noticed.clear();
        self.glru.take_notices(client, &mut self.noticed);
        if let Some(state) = self.clients.get_mut(usize::from(client)) {
            state.counts.replaced += 1;
        }
        // A block of an epoch that is over is nothing to notice.
        let Some(namespace) = namespace else { return };
        self.add_notice(namespace, block);
        self.close_empty(namespace);
        self.forget_empty(client);
    }

    /// The most notices that wait for all namespaces.
    fn most_waiting(&self) -> usize {
        (self.limits.blocks / BLOCKS_PER_NOTICE).max(WAITING_LEAST) as usize
    }

    fn add_notice(&mut self, namespace: u32, block: u64) {
        if self.waiting >= self.most_waiting()
            && let Some(of) = self.namespaces.iter_mut().max_by_key(|of| of.notices.len())
        {
            let dropped = of.notices.len().div_ceil(2);
            of.notices.drain(..dropped);
            of.notices.shrink_to_fit();
            self.waiting -= dropped;
        }
        let Some(of) = self.namespaces.get_mut(namespace as usize) else { return };
        if of.notices.len() >= WAITING_MAX {
            of.notices.pop_front();
            self.waiting -= 1;
        }
        of.notices.push_back(block);
        self.waiting += 1;
    }

    fn invalidate(&mut self, connection: Connection, place: Place, count: u64) -> Attempt<Done> {
        let of = self.namespace(connection, place)?;
        let range = place.block..place.block.saturating_add(count);
        let gone = if range == (0..u64::MAX) {
            u64::from(self.end_epoch(place.namespace))
        } else if count > INVALIDATED_MAX {
            return Err((Refusal::Denied, "too many blocks at once, and not all"));
        } else {
            of.changes += 1;
            let set = of.blocks;
            let mut gone = 0;
            for block in range {
                if let Some(slot) = self.index.find(set, block) {
                    self.vacate(slot);
                    gone += 1;
                }
            }
            gone
        };
        if let Some(state) = self.clients.get_mut(usize::from(connection.client)) {
            state.counts.invalidated += gone;
        }
        Ok(Done::Finished)
    }

    /// Frees `slot`.
    fn vacate(&mut self, slot: Slot) {
        self.index.remove(slot);
        self.glru.remove(slot);
        self.contents.vacate(slot);
    }

    /// Frees `slot`, and what has no other block.
    fn drop_block(&mut self, slot: Slot) {
        let of = self.index.of(slot);
        self.vacate(slot);
        if let Some((Owner { client, namespace: Some(namespace) }, _)) = of {
            self.close_empty(namespace);
            self.forget_empty(client);
        }
    }

    /// Whether blocks are to be written to the file: see [`Store::cold`].
    pub fn is_crowded(&self) -> bool {
        self.contents.is_crowded()
    }

    /// At most `most` blocks to be written to the file, each at its place, so that there is room in memory. [`Store::note_filed`] or [`Store::evict`]
    /// follows for each, before the next call.
    pub fn cold(&mut self, most: usize) -> Vec<Cold> {
        self.contents.cold(most)
    }

    /// At most `most` blocks that the file does not have, those that were used last first; to be written before the end.
    pub fn unfiled(&self, most: usize) -> Vec<Cold> {
        self.contents.unfiled(most)
    }

    /// The contents of a block that is to be written. None if it left the store, or memory: [`Store::note_filed`] then does nothing.
    pub fn contents(&self, cold: &Cold) -> Option<&[u8]> {
        self.contents.of(cold)
    }

    /// The file has the block, with this checksum.
    pub fn note_filed(&mut self, cold: &Cold, sum: NonZeroU64) {
        self.contents.note_filed(cold, sum);
    }

    /// The file does not take the block: it leaves the store.
    pub fn evict(&mut self, cold: &Cold) {
        if let Some(slot) = self.contents.slot_of(cold) {
            self.glru.remove(slot);
            self.notice(slot);
        }
    }

    /// All namespaces, for the next start.
    pub fn kept(&self) -> Vec<Kept> {
        let names = self.names.iter().filter_map(|(client, at)| Some((client, self.clients.get(usize::from(*at))?)));
        let all = names
            .flat_map(|(client, state)| state.namespaces.iter().map(move |(name, number)| (client, name, *number)));
        let kept = all.filter_map(|(client, name, number)| {
            let Namespace { instance, epoch, .. } = self.namespaces.get(number as usize)?;
            let (client, name) = (client.to_string(), name.to_string());
            Some(Kept { number, client, name, instance: *instance, epoch: *epoch })
        });
        kept.collect()
    }

    /// The blocks of these in the file, the one whose last use is longest ago first.
    pub fn kept_blocks(&self) -> impl Iterator<Item = KeptBlock> + '_ {
        self.glru.from_the_bottom().filter_map(|slot| {
            let (Owner { namespace, .. }, block) = self.index.of(slot)?;
            let Filed { place, sum, .. } = self.contents.filed(slot)?;
            Some(KeptBlock { namespace: namespace?, block, place, sum })
        })
    }

    /// Adds a namespace of an earlier run, before any client connects. Its blocks wait for a connection that resumes its epoch. Returns its number now.
    pub fn restore(&mut self, kept: &Kept) -> std::result::Result<u32, Rejected> {
        let Kept { client, name, instance, epoch, .. } = kept;
        let Limits { clients, namespaces_each, .. } = self.limits;
        if !self.names.contains_key(&**client) && self.names.len() >= usize::from(clients) {
            return Err(Rejected::Clients(clients));
        }
        let client = self.client(client)?;
        let state = self.clients.get(usize::from(client));
        if state.is_some_and(|state| state.namespaces.len() >= namespaces_each as usize) {
            return Err(Rejected::Namespaces(namespaces_each));
        }
        let number = self.namespace_of(client, name, *instance);
        if let Some(of) = self.namespaces.get_mut(number as usize) {
            of.epoch = *epoch;
        }
        Ok(number)
    }

    /// Adds blocks of namespaces that were restored, the one whose last use is longest ago first. Returns how many could be added. After the last ones,
    /// [`Store::restored`] follows.
    pub fn restore_blocks(&mut self, blocks: impl IntoIterator<Item = KeptBlock>) -> u64 {
        let before = self.restored;
        for KeptBlock { namespace, block, place, sum } in blocks {
            let Some(of) = self.namespaces.get(namespace as usize) else { continue };
            let is_new = self.index.find(of.blocks, block).is_none();
            if is_new && self.glru.free() > 0 && self.contents.restore(place, sum) {
                self.index.insert(of.blocks, block, Slot(place));
                self.restored += 1;
                self.glru.demote(of.client, Slot(place), self.restored);
            }
        }
        self.restored - before
    }

    /// All blocks of an earlier run are there.
    pub fn restored(&mut self) {
        self.contents.restored();
        let unused = (0..).zip(&self.namespaces).filter(|(_, of)| self.index.count(of.blocks) == 0);
        let unused: Vec<(u32, Client)> = unused.map(|(number, of)| (number, of.client)).collect();
        for (number, client) in unused {
            self.close_empty(number);
            self.forget_empty(client);
        }
    }

    /// Each client that is connected, or was and has blocks.
    pub fn clients(&self) -> impl Iterator<Item = ClientState<'_>> {
        self.names.iter().filter_map(|(name, &client)| {
            let &State { connections, counts, .. } = self.clients.get(usize::from(client))?;
            Some(ClientState { name, connections, blocks: self.glru.share(client), counts })
        })
    }

    /// Counts for all clients, also for those that are gone.
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
        let sets = self.index.check();
        for &slot in sets.iter().flatten() {
            let client = self.index.of(slot).map(|(owner, _)| owner.client);
            assert!(
                self.contents.has_block(slot) && self.glru.owner(slot) == client,
                "a block is not where it should be"
            );
        }
        for (number, of) in (0..).zip(&self.namespaces).filter(|(_, of)| of.blocks != Set::NONE) {
            let owner = Owner { client: of.client, namespace: Some(number) };
            assert!(self.index.owner(of.blocks) == Some(owner), "the blocks of a namespace are not its own");
        }
        let waiting: usize = self.namespaces.iter().map(|of| of.notices.len()).sum();
        assert_eq!(waiting, self.waiting, "notices are miscounted");
        assert!(waiting <= self.most_waiting(), "too many notices wait");
        let open: Vec<u32> = self.clients.iter().flat_map(|state| state.namespaces.values().copied()).collect();
        let mut numbers: Vec<u32> = open.iter().chain(&self.unused).copied().collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, next| one < next), "a namespace is in use twice");
        assert_eq!(numbers.len(), self.namespaces.len(), "a namespace is lost");
        let valid = sets.iter().map(Vec::len).sum::<usize>();
        assert!(valid <= self.contents.check().min(self.limits.blocks as usize), "there are too many blocks");
        self.glru.check(&[]);
    }
}
