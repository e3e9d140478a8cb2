//! The memory that servers take from the system: `nigh level`, while clients fill it, replace each other's blocks and are silent, and `nigh serve`, while
//! clients take long replies whose data is copied.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use nigh_level::{Decoded, Hello, MESSAGE_MAX, Place, Reply, Request, Result, Welcome};
use nigh_testkit::runs;

use crate::remote_level::Level;
use crate::serving::{Folder, Server};

const BLOCK: usize = 4096;
/// Memory besides `--memory` and the program, by docs/serve.md: of a block, and of a connection.
const BLOCK_INDEX: u64 = 88;
const CONNECTION: u64 = 200 << 10;
/// Requests that a client sends together.
const TOGETHER: usize = 32;

struct Client {
    stream: TcpStream,
    namespace: u32,
    input: Vec<u8>,
}

impl Client {
    fn connect(address: &str, number: u64) -> Client {
        let stream = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Client { stream, namespace: 0, input: Vec::with_capacity(MESSAGE_MAX) };
        let name = format!("host{number}");
        let hello = Hello { versions: (2, 2), block_bytes: BLOCK as u32, level: 1, instance: number + 1, name: &name };
        let mut out = Vec::new();
        hello.encode(&mut out);
        Request::Open { name: "disk", epoch: 1, resumes: 0 }.encode(0, &mut out);
        client.stream.write_all(&out).unwrap();
        client.receive(|input| match Welcome::decode(input).unwrap() {
            Decoded::Whole(_, length) => Some(((), length)),
            Decoded::Need(_) => None,
        });
        client.namespace = client.reply(|reply| match reply.result {
            Result::Opened { namespace, .. } => namespace,
            other => panic!("{other:?}"),
        });
        client
    }

    fn receive<T>(&mut self, decode: impl Fn(&[u8]) -> Option<(T, usize)>) -> T {
        loop {
            if let Some((message, length)) = decode(&self.input) {
                self.input.drain(..length);
                return message;
            }
            let mut more = [0; 1 << 16];
            let read = self.stream.read(&mut more).unwrap();
            assert!(read > 0, "the level closed the connection");
            self.input.extend_from_slice(&more[..read]);
        }
    }

    fn reply<T>(&mut self, of: impl Fn(Reply<'_>) -> T) -> T {
        self.receive(|input| match Reply::decode(input).unwrap() {
            Decoded::Whole(reply, length) => Some((of(reply), length)),
            Decoded::Need(_) => None,
        })
    }

    fn place(&self, block: u64) -> Place {
        Place { namespace: self.namespace, epoch: 1, block }
    }

    /// Stores blocks at random places below `blocks`, and then takes some of them.
    fn churn(&mut self, random: &mut fastrand::Rng, blocks: u64) {
        let data = [random.u8(..); BLOCK];
        let mut out = Vec::new();
        for _ in 0..TOGETHER {
            let (place, age_us) = (self.place(random.u64(..blocks)), random.u64(..1 << 26));
            Request::Demote { place, from: 0, to: 1, age_us, data: &data }.encode(0, &mut out);
        }
        let retrieved = random.usize(..TOGETHER / 4);
        for _ in 0..retrieved {
            let (place, to) = (self.place(random.u64(..blocks)), Some(random.u8(..2)));
            Request::Retrieve { place, from: Some(1), to }.encode(0, &mut out);
        }
        self.stream.write_all(&out).unwrap();
        for _ in 0..TOGETHER + retrieved {
            // A file may refuse blocks that come too fast.
            self.reply(|reply| assert!(!matches!(reply.result, Result::Opened { .. })));
        }
    }
}

/// The resident memory of a process, in bytes.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// `count` clients of a level of this many MiB in memory, and in a file of `file` MiB.
fn churn(mib: u64, file: u64, count: u64, arguments: &[&str]) {
    let memory = format!("{mib}M");
    let level = Level::start_with_memory("tcp:127.0.0.1:0", &[&["--memory", &memory], arguments].concat());
    let program = resident(level.process.id());
    let mut clients: Vec<Client> = (0..count).map(|number| Client::connect(&level.address, number)).collect();
    let all = (mib.max(file) << 20) / BLOCK as u64;
    let documented = program + (mib << 20) + all * BLOCK_INDEX + count * CONNECTION;
    let mut random = fastrand::Rng::with_seed(count);
    let mut most = 0;
    // Each of them once, and then, some time later, some of them: those that are silent meanwhile keep what they have.
    let turns = 40 + 20 * count as usize;
    for turn in 0..turns {
        let number = if turn < clients.len() { turn } else { random.usize(..clients.len()) };
        // Alone, it takes all that there is.
        let blocks = if random.bool() { 2 * all } else { 2 * all / count };
        for _ in 0..(6 * all as usize / TOGETHER / turns).max(4) {
            clients[number].churn(&mut random, blocks);
        }
        most = most.max(resident(level.process.id()));
    }
    let share = most as f64 / documented as f64;
    println!("{mib} MiB, {count} clients: {} KiB resident, {share:.3} of the sum", most >> 10);
    assert!(
        (0.9..=1.1).contains(&share),
        "{share:.3} of {} KiB, of which {} are the program",
        documented >> 10,
        program >> 10
    );
}

/// Before a release, also with the sizes of docs/serve.md, "Its memory", in MiB.
fn churn_larger(count: u64) {
    [32, 192, 2048].into_iter().take(runs(0, 3) as usize).for_each(|mib| churn(mib, 0, count, &[]));
}

#[test]
fn level_2_memory_of_one_client() {
    churn(32, 0, 1, &[]);
    churn_larger(1);
}

#[test]
fn level_2_memory_of_twelve_clients() {
    churn(32, 0, 12, &[]);
    churn_larger(12);
}

#[test]
fn level_2_memory_of_many_clients() {
    churn(64, 0, 64, &[]);
    churn_larger(64);
}

#[test]
fn level_2_memory_with_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}:224M", folder.path().join("level").display());
    churn(32, 224, 12, &["--level", &file]);
}

/// A client of `disk` with simple replies, whose data is copied before it is sent.
fn simple(server: &Server) -> UnixStream {
    let mut client = UnixStream::connect(&server.socket).unwrap();
    client.read_exact(&mut [0; 18]).unwrap();
    client.write_all(&[&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 4], b"disk"].concat()).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    client
}

/// Data of replies is allocated by one thread and freed by another.
#[test]
fn level_2_memory_of_a_server_with_simple_replies() {
    const CLIENTS: u64 = 12;
    let folder = Folder::new();
    let disk = format!("disk={}", folder.empty_image("image", 256 << 20));
    let server = folder.serve(&["--memory", "64M", &disk]);
    let program = resident(server.process.id());
    std::thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let mut client = simple(&server);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut taken = vec![0; 16 + (1 << 20)];
                for _ in 0..150 {
                    let lengths: Vec<u32> = (0..random.usize(1..4)).map(|_| random.u32(1..257) << 12).collect();
                    for &length in &lengths {
                        let offset = random.u64(..255) << 20;
                        let head = [&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0][..], &[7; 8], &offset.to_be_bytes()].concat();
                        client.write_all(&[&head[..], &length.to_be_bytes()].concat()).unwrap();
                    }
                    lengths.iter().for_each(|&length| client.read_exact(&mut taken[..16 + length as usize]).unwrap());
                }
            });
        }
    });
    // Frames on their way, index and state; what an export has for replies, and what is kept for the next ones.
    let documented = program + (64 << 20) * 1045 / 1000 + ((2 + 4) << 20) + CLIENTS * CONNECTION;
    let after = resident(server.process.id());
    println!("{} KiB resident, {:.3} of the sum", after >> 10, after as f64 / documented as f64);
    assert!(after <= documented * 11 / 10, "{} KiB, of {} KiB", after >> 10, documented >> 10);
    server.end();
}
