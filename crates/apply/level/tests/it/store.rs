//! The server's state against a model of every block: clients write, connections break, what was sent on them arrives late, epochs are resumed, and the
//! file that has some of the blocks answers late, or something else.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

use nigh_level::{
    Cold, Connection, Decoded, Fetch, Handled, Hello, Kept, KeptBlock, Limits, Place, ReadBlock, Refusal, Rejected,
    Reply, Request, Result, Store,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const BLOCK_BYTES: u32 = 16;
const BLOCKS: u64 = 24;
const LEVEL: u8 = 1;
const LIMITS: Limits =
    Limits { blocks: 20, memory_blocks: 20, block_bytes: BLOCK_BYTES, clients: 3, blocks_each: 15, namespaces_each: 2 };

fn hello() -> Hello<'static> {
    Hello { versions: (2, 2), block_bytes: BLOCK_BYTES, level: LEVEL, instance: 1, name: "" }
}

fn contents(client: usize, block: u64, version: u64) -> Vec<u8> {
    let mut bytes = (version << 8 | client as u64).to_le_bytes().to_vec();
    bytes.extend(block.to_le_bytes());
    bytes
}

/// A message that was sent, and for a Retrieve the version of the block that was acknowledged then.
struct Sent {
    bytes: Vec<u8>,
    acknowledged: u64,
}

/// A client with one disk. It acknowledges a write when the server's copy is invalid, or the epoch is over.
struct Client {
    number: usize,
    connection: Connection,
    namespace: u32,
    epoch: u64,
    sent: VecDeque<Sent>,
    versions: HashMap<u64, u64>,
    acknowledged: HashMap<u64, u64>,
    cookie: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Demote(u64),
    Retrieve(u64, bool),
    Write(u64, u64),
    /// The server receives some of what was sent.
    Arrive(usize),
    /// The connection breaks.
    Break,
    /// Something arrives that was sent on a broken connection.
    Late(usize),
    /// Blocks are written to the file: some of them, and perhaps in vain.
    File(usize, bool),
    /// A block is there that was to be read from the file.
    Finish(usize),
    /// The file has something else at a place.
    Damage(u32),
    /// The server ends, and another one begins with what the first one kept.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..BLOCKS).prop_map(Step::Demote),
        20 => (0..BLOCKS, any::<bool>()).prop_map(|(block, keep)| Step::Retrieve(block, keep)),
        2 => (0..BLOCKS, 1..4u64).prop_map(|(block, count)| Step::Write(block, count)),
        1 => (0..BLOCKS, Just(BLOCKS)).prop_map(|(block, count)| Step::Write(block, count)),
        30 => (1..5usize).prop_map(Step::Arrive),
        2 => Just(Step::Break),
        4 => (0..9usize).prop_map(Step::Late),
        12 => (1..9usize, prop::bool::weighted(0.1)).prop_map(|(most, fails)| Step::File(most, fails)),
        4 => (0..99usize).prop_map(Step::Finish),
        1 => (0..20u32).prop_map(Step::Damage),
        1 => Just(Step::Restart),
    ]
}

/// The result of a Retrieve of `block`.
struct Found {
    block: u64,
    data: Vec<u8>,
}

/// A block that is being read from the file.
struct Reading {
    fetch: Fetch,
    client: usize,
    connection: Connection,
    acknowledged: u64,
    block: u64,
    /// The bytes, if they were read at once and not just before they are there.
    early: Option<Option<Vec<u8>>>,
}

fn received(reply: Reply<'_>, cookie: u64, block: u64) -> (Option<Found>, bool) {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    let Ok(Decoded::Whole(reply, _)) = Reply::decode(&bytes) else { panic!("a reply") };
    assert_eq!(reply.cookie, cookie);
    let refused = matches!(reply.result, Result::Refused { refusal: Refusal::Epoch | Refusal::Namespace, .. });
    let found = match reply.result {
        Result::Found { data } => Some(Found { block, data: data.to_vec() }),
        _ => None,
    };
    (found, refused)
}

/// A checksum that many blocks share, and that shows damage.
fn sum(data: &[u8]) -> NonZeroU64 {
    NonZeroU64::new(u64::from(data[0] & 1) + 1).unwrap()
}

/// The reply to a request that needs nothing of the file.
fn reply(handled: Handled<'_>) -> Reply<'_> {
    match handled {
        Handled::Reply(reply) => reply,
        Handled::Fetch(fetch) => panic!("{fetch:?}"),
    }
}

/// The file, by place.
type File = HashMap<u32, Vec<u8>>;

fn read(file: &File, fetch: &Fetch) -> Option<Vec<u8>> {
    file.get(&fetch.filed.place).filter(|data| sum(data) == fetch.filed.sum).cloned()
}

fn write(store: &mut Store, file: &mut File, cold: &[Cold], fails: bool) {
    for cold in cold {
        if fails {
            store.evict(cold);
        } else {
            let data = store.contents(cold).expect("it is in memory").to_vec();
            store.note_filed(cold, sum(&data));
            file.insert(cold.place, data);
        }
    }
}

impl Client {
    fn new(number: usize, store: &mut Store) -> Client {
        let connection = store.connect(&hello(), &number.to_string()).unwrap();
        let mut client = Client {
            number,
            connection,
            namespace: 0,
            epoch: 0,
            sent: VecDeque::new(),
            versions: HashMap::new(),
            acknowledged: HashMap::new(),
            cookie: 0,
        };
        client.open(store);
        client
    }

    /// A new epoch on the present connection. All writes before it are acknowledged: nothing older can be returned.
    fn open(&mut self, store: &mut Store) {
        self.begin(store, 0);
        self.acknowledged = self.versions.clone();
    }

    /// Opens the namespace on the present connection. Returns whether the epoch `resumes` goes on.
    fn begin(&mut self, store: &mut Store, resumes: u64) -> bool {
        self.epoch += 1;
        let mut data = Vec::new();
        let request = Request::Open { name: "disk", epoch: self.epoch, resumes };
        match store.handle(0, self.connection, 0, &request, &mut data) {
            Handled::Reply(Reply { result: Result::Opened { namespace, resumed }, .. }) => {
                self.namespace = namespace;
                resumed
            }
            other => panic!("{other:?}"),
        }
    }

    /// Connects again. The changes that were not invalidated in the epoch before are, if it goes on.
    fn resume(&mut self, store: &mut Store, late: &mut Vec<(Connection, Sent)>) -> bool {
        let old = self.connection;
        self.connection = store.connect(&hello(), &self.number.to_string()).unwrap();
        let resumed = self.begin(store, self.epoch);
        for sent in std::mem::take(&mut self.sent) {
            if let Ok(Decoded::Whole((_, Request::Invalidate { place, count }), _)) = Request::decode(&sent.bytes)
                && resumed
            {
                let place = Place { namespace: self.namespace, epoch: self.epoch, block: place.block };
                self.send(&Request::Invalidate { place, count }, place.block);
            }
            late.push((old, sent));
        }
        if !resumed {
            self.acknowledged = self.versions.clone();
        }
        resumed
    }

    fn version(&self, block: u64) -> u64 {
        self.versions.get(&block).copied().unwrap_or(0)
    }

    fn send(&mut self, request: &Request<'_>, block: u64) {
        self.cookie += 1;
        let mut bytes = Vec::new();
        request.encode(self.cookie, &mut bytes);
        self.sent.push_back(Sent { bytes, acknowledged: self.acknowledged.get(&block).copied().unwrap_or(0) });
    }
}

#[derive(Default)]
struct Seen {
    found: u64,
    refused: u64,
    resumed: u64,
    filed: u64,
    damaged: u64,
    kept: u64,
}

impl Seen {
    fn check(&mut self, client: &Client, acknowledged: u64, Found { block, data }: &Found) {
        self.found += 1;
        let known: Vec<Vec<u8>> =
            (acknowledged..=client.version(*block)).map(|version| contents(client.number, *block, version)).collect();
        assert!(known.contains(data), "stale or foreign contents of block {block}: {data:?}");
    }
}

fn run(limits: Limits, steps: &[(usize, Step)]) -> Seen {
    let mut store = Store::new(limits).unwrap();
    let mut file = File::new();
    let mut reading: Vec<Reading> = Vec::new();
    let mut clients: Vec<Client> = (0..3).map(|number| Client::new(number, &mut store)).collect();
    let mut late: Vec<(Connection, Sent)> = Vec::new();
    let mut seen = Seen::default();
    for (now_us, (number, step)) in (1..).zip(steps) {
        let client = &mut clients[*number];
        let place = |block: u64, client: &Client| Place { namespace: client.namespace, epoch: client.epoch, block };
        match *step {
            Step::Demote(block) => {
                let data = contents(client.number, block, client.version(block));
                let place = place(block, client);
                client.send(&Request::Demote { place, from: 0, to: LEVEL, age_us: block, data: &data }, block);
            }
            Step::Retrieve(block, keep) => {
                let to = Some(if keep { LEVEL } else { 0 });
                let place = place(block, client);
                client.send(&Request::Retrieve { place, from: Some(LEVEL), to }, block);
            }
            Step::Write(block, count) => {
                let end = (block + count).min(BLOCKS);
                for block in block..end {
                    *client.versions.entry(block).or_default() += 1;
                }
                let place = place(block, client);
                client.send(&Request::Invalidate { place, count: end - block }, block);
            }
            Step::Arrive(count) => {
                for _ in 0..count {
                    let Some(sent) = client.sent.pop_front() else { break };
                    let Ok(Decoded::Whole((cookie, request), length)) = Request::decode(&sent.bytes) else {
                        panic!("a request")
                    };
                    assert_eq!(length, sent.bytes.len());
                    let block = if let Request::Retrieve { place, .. } = request { place.block } else { 0 };
                    let mut data = Vec::new();
                    match store.handle(now_us, client.connection, cookie, &request, &mut data) {
                        Handled::Reply(reply) => {
                            let (found, refused) = received(reply, cookie, block);
                            assert!(!refused, "a request of the present epoch");
                            found.iter().for_each(|found| seen.check(client, sent.acknowledged, found));
                        }
                        Handled::Fetch(fetch) => {
                            seen.filed += 1;
                            reading.push(Reading {
                                fetch,
                                client: *number,
                                connection: client.connection,
                                acknowledged: sent.acknowledged,
                                block,
                                early: (now_us % 2 == 0).then(|| read(&file, &fetch)),
                            });
                        }
                    }
                    if let Ok(Decoded::Whole((_, Request::Invalidate { place, count }), _)) =
                        Request::decode(&sent.bytes)
                    {
                        // Later writes of the same blocks have Invalidates of their own, which are still on the way.
                        let pending: Vec<(u64, u64)> = client
                            .sent
                            .iter()
                            .filter_map(|sent| match Request::decode(&sent.bytes) {
                                Ok(Decoded::Whole((_, Request::Invalidate { place, count }), _)) => {
                                    Some((place.block, count))
                                }
                                _ => None,
                            })
                            .collect();
                        for block in place.block..place.block + count {
                            let later =
                                pending.iter().filter(|&&(first, count)| (first..first + count).contains(&block));
                            let version = client.version(block) - later.count() as u64;
                            client.acknowledged.insert(block, version);
                        }
                    }
                }
            }
            Step::Break => {
                // The server notices the end of the old connection before or after the new one begins.
                let old = client.connection;
                if now_us % 2 == 0 {
                    store.disconnect(old);
                }
                if now_us % 3 == 0 {
                    late.extend(client.sent.drain(..).map(|sent| (old, sent)));
                    client.connection = store.connect(&hello(), &client.number.to_string()).unwrap();
                    client.open(&mut store);
                } else {
                    seen.resumed += u64::from(client.resume(&mut store, &mut late));
                }
                if now_us % 2 != 0 {
                    store.disconnect(old);
                }
            }
            Step::File(most, fails) => {
                let cold = store.cold(most);
                write(&mut store, &mut file, &cold, fails);
            }
            Step::Finish(at) if reading.is_empty() => _ = at,
            Step::Finish(at) => {
                let Reading { fetch, client, connection, acknowledged, block, early } =
                    reading.remove(at % reading.len());
                let data = early.unwrap_or_else(|| read(&file, &fetch));
                let read = match &data {
                    Some(data) => ReadBlock::Contents(data),
                    None => ReadBlock::Damaged,
                };
                let read = if at % 7 == 0 { ReadBlock::Skipped } else { read };
                let (reply, _) = store.finish(now_us, &fetch, read);
                let cookie = reply.cookie;
                let (found, _) = received(reply, cookie, block);
                let client = &clients[client];
                // On a connection that has ended, nobody receives it.
                if connection == client.connection {
                    found.iter().for_each(|found| seen.check(client, acknowledged, found));
                }
            }
            Step::Damage(place) => {
                if let Some(data) = file.get_mut(&place) {
                    data[0] ^= 1;
                }
            }
            Step::Restart => {
                // The pending reads are not done.
                reading.clear();
                let most = now_us as usize % 9;
                let unfiled = store.unfiled(most);
                write(&mut store, &mut file, &unfiled, false);
                let (kept, blocks) = (store.kept(), store.kept_blocks().collect::<Vec<_>>());
                seen.damaged += store.counts().damaged;
                store = Store::new(limits).unwrap();
                let numbers: HashMap<u32, u32> =
                    kept.iter().map(|kept| (kept.number, store.restore(kept).unwrap())).collect();
                let blocks = blocks.into_iter().map(|kept| KeptBlock { namespace: numbers[&kept.namespace], ..kept });
                seen.kept += store.restore_blocks(blocks.filter(|_| limits.memory_blocks < limits.blocks));
                store.restored();
                // Late notices were sent to the server before.
                late.clear();
                for client in &mut clients {
                    client.resume(&mut store, &mut Vec::new());
                }
            }
            Step::Late(at) => {
                if !late.is_empty() {
                    let (connection, sent) = late.remove(at % late.len());
                    let Ok(Decoded::Whole((cookie, request), _)) = Request::decode(&sent.bytes) else {
                        panic!("a request")
                    };
                    let mut data = Vec::new();
                    let Handled::Reply(reply) = store.handle(now_us, connection, cookie, &request, &mut data) else {
                        panic!("a request of an old connection is done")
                    };
                    let (found, refused) = received(reply, cookie, 0);
                    assert!(found.is_none() && refused, "a request of an old connection");
                    seen.refused += 1;
                }
            }
        }
        store.check();
    }
    seen.damaged += store.counts().damaged;
    seen
}

/// Most blocks are in the file.
const WITH_FILE: Limits = Limits { blocks: 10, memory_blocks: 3, blocks_each: 10, ..LIMITS };

proptest! {
    #[test]
    fn nothing_stale_is_returned(steps in prop::collection::vec((0..3usize, step()), 0..400), has_file: bool) {
        run(if has_file { WITH_FILE } else { LIMITS }, &steps);
    }
}

/// The cases above happen.
#[test]
fn blocks_are_found_and_late_requests_refused() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = prop::collection::vec((0..3usize, step()), 12_000).new_tree(&mut runner).unwrap().current();
    let Seen { found, refused, resumed, .. } = run(LIMITS, &steps);
    assert!(found > 200 && refused > 50 && resumed > 10, "{found} found, {refused} refused, {resumed} resumed");
    let Seen { found, filed, damaged, kept, .. } = run(WITH_FILE, &steps);
    assert!(
        found > 100 && filed > 100 && damaged > 1 && kept > 20,
        "{found} found, {filed} in the file, {damaged} damaged, {kept} after restarts"
    );
}

#[test]
fn limits_hold() {
    let mut store = Store::new(LIMITS).unwrap();
    let other = Hello { block_bytes: 4096, ..hello() };
    assert_eq!(store.connect(&other, "a").unwrap_err(), Rejected::BlockBytes { has: 16, given: 4096 });
    let connection = store.connect(&hello(), "a").unwrap();
    let mut data = Vec::new();
    let mut open = |store: &mut Store, name: &str, epoch: u64| match reply(store.handle(
        1,
        connection,
        7,
        &Request::Open { name, epoch, resumes: 0 },
        &mut data,
    ))
    .result
    {
        Result::Opened { namespace, .. } => Ok(namespace),
        Result::Refused { refusal, .. } => Err(refusal),
        other => panic!("{other:?}"),
    };
    assert_eq!(open(&mut store, "x", 5), Ok(0));
    assert_eq!(open(&mut store, "x", 5), Err(Refusal::Epoch), "epochs grow");
    assert_eq!((open(&mut store, "y", 1), open(&mut store, "z", 1)), (Ok(1), Err(Refusal::Limit)));
    let place = |block| Place { namespace: 0, epoch: 5, block };
    let mut refused = 0;
    for block in 0..LIMITS.blocks_each as u64 + 3 {
        let data = contents(0, block, 0);
        let request = Request::Demote { place: place(block), from: 0, to: LEVEL, age_us: 0, data: &data };
        let mut buffer = Vec::new();
        let reply = reply(store.handle(block + 2, connection, 0, &request, &mut buffer));
        refused += u32::from(matches!(reply.result, Result::Refused { refusal: Refusal::Limit, .. }));
    }
    assert_eq!(refused, 3, "a client has a limit");
    assert!(store.connect(&hello(), "b").is_ok() && store.connect(&hello(), "c").is_ok());
    assert_eq!(store.connect(&hello(), "d").unwrap_err(), Rejected::Clients(3));
    assert!(store.connect(&hello(), "a").is_ok(), "a client that is known");
    let a = |store: &Store| {
        let state = store.clients().find(|client| client.name == "a").unwrap();
        (state.counts.demoted, state.counts.refused, state.blocks, state.connections)
    };
    assert_eq!(a(&store), (15, 5, 15, 2));
    store.disconnect(connection);
    assert_eq!(a(&store), (15, 5, 15, 1), "its blocks wait, and the client has another connection");
    let other = store.connect(&hello(), "a").unwrap();
    let opened = reply(store.handle(1, other, 0, &Request::Open { name: "z", epoch: 1, resumes: 0 }, &mut data)).result;
    assert!(matches!(opened, Result::Opened { .. }), "a namespace without blocks ends with its connection: {opened:?}");
    let request = Request::Open { name: "w", epoch: 1, resumes: 0 };
    let opened = reply(store.handle(1, other, 0, &request, &mut data)).result;
    assert!(matches!(opened, Result::Opened { .. }), "one without a connection makes room: {opened:?}");
    assert_eq!(a(&store).2, 15, "its blocks are freed step by step");
    let request = Request::Open { name: "v", epoch: 1, resumes: 0 };
    let refused = reply(store.handle(1, other, 0, &request, &mut data)).result;
    assert!(matches!(refused, Result::Refused { refusal: Refusal::Limit, .. }), "{refused:?}");
    assert_eq!(a(&store).2, 0);
    store.check();
}

/// Blocks of clients that are away stay until their room or their names are needed.
#[test]
fn a_client_that_is_away_is_forgotten_in_the_end() {
    let mut store = Store::new(LIMITS).unwrap();
    let mut data = Vec::new();
    let mut open = |store: &mut Store, connection: Connection, name: &str, resumes: u64| {
        let request = Request::Open { name, epoch: resumes + 1, resumes };
        match reply(store.handle(1, connection, 0, &request, &mut data)).result {
            Result::Opened { namespace, resumed } => (namespace, resumed),
            other => panic!("{other:?}"),
        }
    };
    for round in 0..100 {
        let connection = store.connect(&hello(), &round.to_string()).unwrap();
        for name in ["x", "y"] {
            let (namespace, resumed) = open(&mut store, connection, name, 0);
            assert!(namespace < 8 && !resumed, "numbers are used again");
            let place = Place { namespace, epoch: 1, block: 3 };
            let contents = contents(0, 3, 0);
            let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, data: &contents };
            assert_eq!(reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result, Result::Done);
        }
        store.disconnect(connection);
        store.check();
        assert_eq!(store.clients().count(), (round + 1).min(3));
    }
    assert_eq!(store.counts().demoted, 200, "what they did is not");
    for (client, is_known) in [("99", true), ("98", true), ("96", false)] {
        let connection = store.connect(&hello(), client).unwrap();
        assert_eq!(open(&mut store, connection, "x", 1).1, is_known, "{client}");
    }
    assert_eq!(store.connect(&hello(), "d").unwrap_err(), Rejected::Clients(3));
}

/// A place is written again while it is read.
#[test]
fn what_is_read_of_another_block_is_not_returned() {
    let mut store = Store::new(WITH_FILE).unwrap();
    let connection = store.connect(&hello(), "a").unwrap();
    let request = Request::Open { name: "x", epoch: 1, resumes: 0 };
    assert!(matches!(store.handle(1, connection, 0, &request, &mut Vec::new()), Handled::Reply(_)));
    let place = |block| Place { namespace: 0, epoch: 1, block };
    let mut file = File::new();
    let mut demote = |store: &mut Store, block| {
        let data = contents(0, block, 0);
        let request = Request::Demote { place: place(block), from: 0, to: LEVEL, age_us: 0, data: &data };
        assert_eq!(reply(store.handle(2, connection, 0, &request, &mut Vec::new())).result, Result::Done);
        let cold = store.cold(9);
        write(store, &mut file, &cold, false);
        cold.first().map(|cold| cold.place)
    };
    assert_eq!([demote(&mut store, 0), demote(&mut store, 1), demote(&mut store, 2)], [None, None, Some(0)]);
    let retrieve = Request::Retrieve { place: place(0), from: Some(LEVEL), to: Some(LEVEL) };
    let Handled::Fetch(fetch) = store.handle(3, connection, 9, &retrieve, &mut Vec::new()) else { panic!("a fetch") };
    let invalidate = Request::Invalidate { place: place(0), count: 1 };
    assert_eq!(reply(store.handle(4, connection, 0, &invalidate, &mut Vec::new())).result, Result::Done);
    assert_eq!([demote(&mut store, 3), demote(&mut store, 4), demote(&mut store, 5)], [Some(1), Some(2), Some(0)]);
    let other = contents(0, 3, 0);
    assert_eq!((&file[&0], sum(&other)), (&other, fetch.filed.sum), "the checksum does not tell");
    assert_eq!(store.finish(5, &fetch, ReadBlock::Contents(&other)).0.result, Result::Missed);
    store.check();
    let retrieve = Request::Retrieve { place: place(3), from: Some(LEVEL), to: Some(0) };
    let Handled::Fetch(fetch) = store.handle(6, connection, 9, &retrieve, &mut Vec::new()) else { panic!("a fetch") };
    assert_eq!(store.finish(7, &fetch, ReadBlock::Contents(&other)).0.result, Result::Found { data: &other });
    store.check();
}

/// A process takes a namespace over from its own earlier connection, and not from another process.
#[test]
fn two_processes_with_one_name() {
    let mut store = Store::new(LIMITS).unwrap();
    let mut data = Vec::new();
    let mut connect = |store: &mut Store, instance: u64, name: &'static str, epoch: u64| {
        let connection = store.connect(&Hello { instance, ..hello() }, "a").unwrap();
        let result =
            match reply(store.handle(1, connection, 0, &Request::Open { name, epoch, resumes: 0 }, &mut data)).result {
                Result::Opened { namespace, .. } => Ok(namespace),
                Result::Refused { refusal, .. } => Err(refusal),
                other => panic!("{other:?}"),
            };
        (connection, result)
    };
    let (first, opened) = connect(&mut store, 1, "x", 1);
    assert_eq!(opened, Ok(0));
    let (second, refused) = connect(&mut store, 2, "x", 2);
    assert_eq!(refused, Err(Refusal::Taken));
    assert_eq!(connect(&mut store, 2, "y", 2).1, Ok(1), "another namespace");
    let (again, opened) = connect(&mut store, 1, "x", 3);
    assert_eq!(opened, Ok(0), "the first process connects again before the end of its connection is known");
    store.disconnect(first);
    assert_eq!(connect(&mut store, 2, "x", 4).1, Err(Refusal::Taken));
    store.disconnect(again);
    store.disconnect(second);
    assert!(connect(&mut store, 2, "x", 1).1.is_ok(), "the first process is gone, and its epochs do not matter");
    store.check();
}

/// Two processes of a client have namespaces of their own, and each gets only its own notices.
#[test]
fn notices_go_to_the_connection_with_the_namespace() {
    let mut store = Store::new(Limits { blocks_each: 20, ..LIMITS }).unwrap();
    let mut data = Vec::new();
    let mut open = |store: &mut Store, name, instance| {
        let connection = store.connect(&Hello { instance, ..hello() }, "a").unwrap();
        match reply(store.handle(1, connection, 0, &Request::Open { name, epoch: 1, resumes: 0 }, &mut data)).result {
            Result::Opened { namespace, .. } => (connection, Place { namespace, epoch: 1, block: 0 }),
            other => panic!("{other:?}"),
        }
    };
    let (one, here) = open(&mut store, "x", 1);
    let (other, there) = open(&mut store, "y", 2);
    let mut noticed = [0, 0];
    for (now_us, block) in (2..).zip(0..20) {
        let data = contents(0, block, 0);
        let place = Place { block, ..here };
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, data: &data };
        store.handle(now_us, one, 0, &request, &mut Vec::new());
    }
    for (now_us, block) in (100..).zip(0..10) {
        let data = contents(1, block, 0);
        let place = Place { block, ..there };
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, data: &data };
        noticed[1] += reply(store.handle(now_us, other, 0, &request, &mut Vec::new())).notices.len();
    }
    let request = Request::Retrieve { place: here, from: Some(LEVEL), to: Some(LEVEL) };
    let mut buffer = Vec::new();
    let reply = reply(store.handle(200, one, 0, &request, &mut buffer));
    noticed[0] = reply.notices.iter().filter(|notice| notice.namespace == here.namespace).count();
    assert_eq!((noticed, reply.result), ([10, 0], Result::Missed));
}

/// An Open whose reply is lost costs nothing: the next one may resume the epoch before it.
#[test]
fn an_epoch_is_resumed_although_a_reply_is_lost() {
    let mut store = Store::new(LIMITS).unwrap();
    let connection = store.connect(&hello(), "a").unwrap();
    let open = |store: &mut Store, epoch: u64, resumes: u64| {
        let request = Request::Open { name: "x", epoch, resumes };
        match reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result {
            Result::Opened { resumed, .. } => resumed,
            other => panic!("{other:?}"),
        }
    };
    let demote = |store: &mut Store, epoch: u64| {
        let (place, data) = (Place { namespace: 0, epoch, block: 3 }, contents(0, 3, 0));
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, data: &data };
        assert_eq!(reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result, Result::Done);
    };
    assert!(!open(&mut store, 1, 0));
    demote(&mut store, 1);
    assert!(open(&mut store, 2, 1), "it is not known that this succeeded");
    assert!(open(&mut store, 3, 1));
    demote(&mut store, 3);
    assert!(!open(&mut store, 4, 2), "something was done in epoch 3");
    store.check();
}

/// A client leaves while its last blocks are being read: its number is free once.
#[test]
fn a_client_that_leaves_while_blocks_are_read() {
    let mut store = Store::new(WITH_FILE).unwrap();
    let open = |store: &mut Store, client: &str| {
        let connection = store.connect(&hello(), client).unwrap();
        let request = Request::Open { name: "x", epoch: 1, resumes: 0 };
        match reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result {
            Result::Opened { namespace, .. } => (connection, namespace),
            other => panic!("{other:?}"),
        }
    };
    let (connection, namespace) = open(&mut store, "a");
    let place = |block| Place { namespace, epoch: 1, block };
    let mut file = File::new();
    for block in 0..2 {
        let data = contents(0, block, 0);
        let request = Request::Demote { place: place(block), from: 0, to: LEVEL, age_us: 0, data: &data };
        assert_eq!(reply(store.handle(2, connection, 0, &request, &mut Vec::new())).result, Result::Done);
    }
    let unfiled = store.unfiled(9);
    write(&mut store, &mut file, &unfiled, false);
    // They leave memory.
    for block in 2..4 {
        let data = contents(0, block, 0);
        let request = Request::Demote { place: place(block), from: 0, to: LEVEL, age_us: 0, data: &data };
        assert_eq!(reply(store.handle(2, connection, 0, &request, &mut Vec::new())).result, Result::Done);
        store.cold(9);
    }
    let request = Request::Invalidate { place: place(2), count: 2 };
    assert_eq!(reply(store.handle(2, connection, 0, &request, &mut Vec::new())).result, Result::Done);
    let fetches = [0, 1].map(|block| {
        let request = Request::Retrieve { place: place(block), from: Some(LEVEL), to: Some(0) };
        match store.handle(3, connection, block, &request, &mut Vec::new()) {
            Handled::Fetch(fetch) => fetch,
            other => panic!("{other:?}"),
        }
    });
    store.disconnect(connection);
    store.check();
    for fetch in &fetches {
        let data = read(&file, fetch);
        store.finish(4, fetch, data.as_deref().map_or(ReadBlock::Damaged, ReadBlock::Contents));
        store.check();
    }
    let numbers = [open(&mut store, "b").1, open(&mut store, "c").1];
    assert_ne!(numbers[0], numbers[1]);
    store.check();
}

/// A client's outstanding requests are limited, whatever it has.
#[test]
fn an_invalidate_is_of_all_blocks_or_of_a_few() {
    let mut store = Store::new(LIMITS).unwrap();
    let connection = store.connect(&hello(), "a").unwrap();
    let request = Request::Open { name: "x", epoch: 1, resumes: 0 };
    assert!(matches!(store.handle(1, connection, 0, &request, &mut Vec::new()), Handled::Reply(_)));
    let data = contents(0, 3, 0);
    let place = |block| Place { namespace: 0, epoch: 1, block };
    let request = Request::Demote { place: place(3), from: 0, to: LEVEL, age_us: 0, data: &data };
    assert_eq!(reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result, Result::Done);
    let mut invalidate = |count: u64| {
        let request = Request::Invalidate { place: place(0), count };
        let done = reply(store.handle(1, connection, 0, &request, &mut Vec::new())).result == Result::Done;
        let of = store.clients().next().map_or(0, |client| client.counts.invalidated);
        (done, of)
    };
    let most = nigh_level::INVALIDATED_MAX;
    assert_eq!([invalidate(3), invalidate(most + 1), invalidate(u64::MAX)], [(true, 0), (false, 0), (true, 1)]);
}

/// Blocks of an earlier run go to the clients that they were kept for, or to nobody.
#[test]
fn a_restart_with_less_room_for_clients() {
    let kept = |number: u32, client: &str, name: &str| {
        let (client, name) = (client.to_owned(), name.to_owned());
        Kept { number, client, name, instance: 1, epoch: 5 }
    };
    let mut store = Store::new(WITH_FILE).unwrap();
    let all = ["a", "b", "c", "d", "e"].map(|client| kept(9, client, "x"));
    let numbers = all.each_ref().map(|kept| store.restore(kept).map_err(|error| error.to_string()));
    assert_eq!(numbers[..3], [Ok(0), Ok(1), Ok(2)]);
    assert!(numbers[3..].iter().all(|number| number.as_ref().is_err_and(|error| error.contains("3 clients"))));
    assert_eq!((store.restore(&kept(9, "a", "y")), store.restore(&kept(9, "a", "z")).is_err()), (Ok(3), true));
    let block = |namespace: u32, place: u32| KeptBlock { namespace, block: 256, place, sum: sum(&[namespace as u8]) };
    let blocks = [block(0, 4), block(1, 5), block(2, 4), block(0, 6), block(7, 8), block(1, 1 << 30)];
    assert_eq!(store.restore_blocks(blocks), 2, "each place and each block once, and no others");
    store.restored();
    store.check();
    assert_eq!(store.clients().count(), 2, "those without blocks are forgotten");
    let connection = store.connect(&hello(), "b").unwrap();
    let request = Request::Open { name: "x", epoch: 6, resumes: 5 };
    let mut data = Vec::new();
    let opened = reply(store.handle(Store::START_US, connection, 0, &request, &mut data)).result;
    assert_eq!(opened, Result::Opened { namespace: 1, resumed: true });
    let place = Place { namespace: 1, epoch: 6, block: 256 };
    let retrieve = Request::Retrieve { place, from: Some(LEVEL), to: Some(LEVEL) };
    let handled = store.handle(Store::START_US, connection, 1, &retrieve, &mut data);
    assert!(matches!(handled, Handled::Fetch(fetch) if fetch.filed.place == 5), "{handled:?}");
}

/// Notices for silent clients take little memory: only the latest ones wait.
#[test]
fn level_2_notices_that_wait_are_limited() {
    const MANY: u64 = 4000;
    let many = MANY as u32;
    let limits = Limits { blocks: many, memory_blocks: many, blocks_each: many, ..LIMITS };
    let mut store = Store::new(limits).unwrap();
    let mut data = Vec::new();
    let mut connect = |store: &mut Store, name: &str| {
        let connection = store.connect(&hello(), name).unwrap();
        let request = Request::Open { name: "x", epoch: 1, resumes: 0 };
        match reply(store.handle(1, connection, 0, &request, &mut data)).result {
            Result::Opened { namespace, .. } => (connection, namespace),
            other => panic!("{other:?}"),
        }
    };
    let (silent, busy) = (connect(&mut store, "silent"), connect(&mut store, "busy"));
    let demote = |store: &mut Store, (connection, namespace): (Connection, u32), now_us: u64, block: u64| {
        let (place, data) = (Place { namespace, epoch: 1, block }, contents(0, block, 0));
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, data: &data };
        let mut none = Vec::new();
        let Reply { result, notices, .. } = reply(store.handle(now_us, connection, 0, &request, &mut none));
        assert_eq!(result, Result::Done);
        notices
    };
    for block in 0..MANY {
        assert!(demote(&mut store, silent, 2 + block, block).is_empty());
    }
    for block in 0..MANY {
        assert!(
            demote(&mut store, busy, 2 + MANY + block, block).is_empty(),
            "the replaced block is the other client's"
        );
    }
    store.check();
    let (mut noticed, mut replies) = (Vec::new(), 0);
    while replies < 9 {
        let place = Place { namespace: silent.1, epoch: 1, block: 0 };
        let retrieve = Request::Retrieve { place, from: Some(LEVEL), to: Some(LEVEL) };
        let reply = reply(store.handle(3 * MANY, silent.0, 0, &retrieve, &mut data));
        noticed.extend(reply.notices.iter().map(|notice| notice.block));
        replies += 1;
    }
    assert!((256..=1024).contains(&noticed.len()), "{} notices", noticed.len());
    assert_eq!(noticed, (MANY - noticed.len() as u64..MANY).collect::<Vec<_>>(), "the latest ones");
    store.check();
}
