//! The server's state against a model of every block: clients write, connections break, and what was sent on them arrives late.

use std::collections::{HashMap, VecDeque};

use nigh_level::{Connection, Decoded, Hello, Limits, Place, Refusal, Rejected, Reply, Request, Result, Store};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const BLOCK_BYTES: u32 = 16;
const BLOCKS: u64 = 24;
const LEVEL: u8 = 1;
const LIMITS: Limits = Limits { blocks: 20, block_bytes: BLOCK_BYTES, clients: 3, blocks_each: 15, namespaces_each: 2 };

fn hello() -> Hello<'static> {
    Hello { versions: (1, 1), block_bytes: BLOCK_BYTES, level: LEVEL, instance: 1, name: "" }
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
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..BLOCKS).prop_map(Step::Demote),
        20 => (0..BLOCKS, any::<bool>()).prop_map(|(block, keep)| Step::Retrieve(block, keep)),
        2 => (0..BLOCKS, 1..4u64).prop_map(|(block, count)| Step::Write(block, count)),
        1 => (0..BLOCKS, Just(BLOCKS)).prop_map(|(block, count)| Step::Write(block, count)),
        30 => (1..5usize).prop_map(Step::Arrive),
        1 => Just(Step::Break),
        4 => (0..9usize).prop_map(Step::Late),
    ]
}

/// What the server makes of a message.
fn execute(store: &mut Store, now_us: u64, connection: Connection, sent: &Sent) -> (Option<(u64, u64, Vec<u8>)>, bool) {
    let Ok(Decoded::Whole((cookie, request), length)) = Request::decode(&sent.bytes) else { panic!("a request") };
    assert_eq!(length, sent.bytes.len());
    let mut data = Vec::new();
    let reply = store.handle(now_us, connection, cookie, &request, &mut data);
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    let Ok(Decoded::Whole(reply, _)) = Reply::decode(&bytes) else { panic!("a reply") };
    assert_eq!(reply.cookie, cookie);
    let refused = matches!(reply.result, Result::Refused { refusal: Refusal::Epoch | Refusal::Namespace, .. });
    let found = match (reply.result, request) {
        (Result::Found { sum, data }, Request::Retrieve { place, .. }) => Some((place.block, sum, data.to_vec())),
        _ => None,
    };
    (found, refused)
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
        self.epoch += 1;
        let mut data = Vec::new();
        let request = Request::Open { name: "disk", epoch: self.epoch };
        match store.handle(0, self.connection, 0, &request, &mut data).result {
            Result::Opened { namespace } => self.namespace = namespace,
            other => panic!("{other:?}"),
        }
        self.acknowledged = self.versions.clone();
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
}

fn run(steps: &[(usize, Step)]) -> Seen {
    let mut store = Store::new(LIMITS);
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
                client.send(
                    &Request::Demote { place, from: 0, to: LEVEL, age_us: block, sum: block, data: &data },
                    block,
                );
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
                    let (found, refused) = execute(&mut store, now_us, client.connection, &sent);
                    assert!(!refused, "a request of the present epoch");
                    if let Some((block, sum, data)) = found {
                        seen.found += 1;
                        assert_eq!(sum, block);
                        let known: Vec<Vec<u8>> = (sent.acknowledged..=client.version(block))
                            .map(|version| contents(client.number, block, version))
                            .collect();
                        assert!(known.contains(&data), "stale or foreign contents of block {block}: {data:?}");
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
                late.extend(client.sent.drain(..).map(|sent| (client.connection, sent)));
                // The server notices the end of the old connection before or after the new one begins.
                let old = client.connection;
                if now_us % 2 == 0 {
                    store.disconnect(old);
                }
                client.connection = store.connect(&hello(), &client.number.to_string()).unwrap();
                client.open(&mut store);
                if now_us % 2 != 0 {
                    store.disconnect(old);
                }
            }
            Step::Late(at) => {
                if !late.is_empty() {
                    let (connection, sent) = late.remove(at % late.len());
                    let (found, refused) = execute(&mut store, now_us, connection, &sent);
                    assert!(found.is_none() && refused, "a request of an old connection");
                    seen.refused += 1;
                }
            }
        }
        store.check();
    }
    seen
}

proptest! {
    #[test]
    fn nothing_stale_is_returned(steps in prop::collection::vec((0..3usize, step()), 0..400)) {
        run(&steps);
    }
}

/// The cases above happen.
#[test]
fn blocks_are_found_and_late_requests_refused() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = prop::collection::vec((0..3usize, step()), 4000).new_tree(&mut runner).unwrap().current();
    let Seen { found, refused } = run(&steps);
    assert!(found > 200 && refused > 100, "{found} found, {refused} refused");
}

#[test]
fn limits_hold() {
    let mut store = Store::new(LIMITS);
    let other = Hello { block_bytes: 4096, ..hello() };
    assert_eq!(store.connect(&other, "a").unwrap_err(), Rejected::BlockBytes { has: 16, given: 4096 });
    let connection = store.connect(&hello(), "a").unwrap();
    let mut data = Vec::new();
    let mut open = |store: &mut Store, name: &str, epoch: u64| match store
        .handle(1, connection, 7, &Request::Open { name, epoch }, &mut data)
        .result
    {
        Result::Opened { namespace } => Ok(namespace),
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
        let request = Request::Demote { place: place(block), from: 0, to: LEVEL, age_us: 0, sum: 0, data: &data };
        let mut buffer = Vec::new();
        let reply = store.handle(block + 2, connection, 0, &request, &mut buffer);
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
    assert_eq!(a(&store), (15, 5, 0, 1), "its blocks are gone, and the client has another connection");
    let other = store.connect(&hello(), "a").unwrap();
    let opened = store.handle(1, other, 0, &Request::Open { name: "z", epoch: 1 }, &mut data).result;
    assert!(
        matches!(opened, Result::Opened { .. }),
        "the namespaces of the closed connection do not count: {opened:?}"
    );
}

#[test]
fn a_client_without_connections_is_forgotten() {
    let mut store = Store::new(LIMITS);
    let mut data = Vec::new();
    for round in 0..100 {
        let connection = store.connect(&hello(), &round.to_string()).unwrap();
        for name in ["x", "y"] {
            let result = store.handle(1, connection, 0, &Request::Open { name, epoch: 1 }, &mut data).result;
            let Result::Opened { namespace } = result else { panic!("{result:?}") };
            assert!(namespace < 2, "numbers are used again");
            let place = Place { namespace, epoch: 1, block: 3 };
            let contents = contents(0, 3, 0);
            let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, sum: 0, data: &contents };
            assert_eq!(store.handle(1, connection, 0, &request, &mut data).result, Result::Done);
        }
        store.disconnect(connection);
        store.check();
        assert_eq!(store.clients().count(), 0);
    }
    assert_eq!(store.counts().demoted, 200, "what they did is not");
}

/// A process takes a namespace over from its own earlier connection, and not from another process.
#[test]
fn two_processes_with_one_name() {
    let mut store = Store::new(LIMITS);
    let mut data = Vec::new();
    let mut connect = |store: &mut Store, instance: u64, name: &'static str, epoch: u64| {
        let connection = store.connect(&Hello { instance, ..hello() }, "a").unwrap();
        let result = match store.handle(1, connection, 0, &Request::Open { name, epoch }, &mut data).result {
            Result::Opened { namespace } => Ok(namespace),
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
    let mut store = Store::new(Limits { blocks_each: 20, ..LIMITS });
    let mut data = Vec::new();
    let mut open = |store: &mut Store, name, instance| {
        let connection = store.connect(&Hello { instance, ..hello() }, "a").unwrap();
        match store.handle(1, connection, 0, &Request::Open { name, epoch: 1 }, &mut data).result {
            Result::Opened { namespace } => (connection, Place { namespace, epoch: 1, block: 0 }),
            other => panic!("{other:?}"),
        }
    };
    let (one, here) = open(&mut store, "x", 1);
    let (other, there) = open(&mut store, "y", 2);
    let mut noticed = [0, 0];
    for (now_us, block) in (2..).zip(0..20) {
        let data = contents(0, block, 0);
        let place = Place { block, ..here };
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, sum: 0, data: &data };
        store.handle(now_us, one, 0, &request, &mut Vec::new());
    }
    for (now_us, block) in (100..).zip(0..10) {
        let data = contents(1, block, 0);
        let place = Place { block, ..there };
        let request = Request::Demote { place, from: 0, to: LEVEL, age_us: 0, sum: 0, data: &data };
        noticed[1] += store.handle(now_us, other, 0, &request, &mut Vec::new()).notices.len();
    }
    let request = Request::Retrieve { place: here, from: Some(LEVEL), to: Some(LEVEL) };
    let mut buffer = Vec::new();
    let reply = store.handle(200, one, 0, &request, &mut buffer);
    noticed[0] = reply.notices.iter().filter(|notice| notice.namespace == here.namespace).count();
    assert_eq!((noticed, reply.result), ([10, 0], Result::Missed));
}
