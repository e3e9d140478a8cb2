//! Whatever several clients and an administrator do at the same time, another client's bytes stay what it wrote, it is
//! answered, and nothing is left of those that leave.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nigh_nbd::client::{Client, Handshake};
use nigh_nbd::{Framing, RequestHeader};
use nigh_server::{Command, ExportOptions, ExportSettings, Server, Settings};

const DISK: u64 = 1 << 20;
/// Less than one disk, so that blocks of all are evicted all the time.
const MEMORY: u64 = 256 << 10;
const BLOCK: u64 = 512;
const CLIENTS: usize = 4;
/// More than any wait in the server that is not a defect.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is at most sent at a time.
const LONGEST: u64 = 128 << 10;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A client comes; one that was there with this number leaves.
    Come {
        client: u8,
        export: Name,
        framing: Wanted,
        contexts: bool,
    },
    /// A client comes, and negotiates by itself.
    ComeRaw {
        client: u8,
        flags: u8,
    },
    /// An option of a client that negotiates.
    Option {
        client: u8,
        option: u8,
        data: Vec<u8>,
    },
    /// A request with all its bytes.
    Request {
        client: u8,
        extended: bool,
        command: u8,
        flags: u8,
        offset: u32,
        length: u32,
        blocks: bool,
        byte: u8,
    },
    /// Any bytes.
    Bytes {
        client: u8,
        bytes: Vec<u8>,
    },
    /// Reads what has been answered, at most so much.
    Receive {
        client: u8,
        most: u16,
    },
    /// Sends nothing more.
    Fall {
        client: u8,
    },
    Leave {
        client: u8,
    },
    /// What the administrator does.
    Change(Change),
    /// What the client whose bytes are watched does.
    Own(Own),
}

#[derive(Arbitrary, Debug)]
enum Name {
    Fast,
    Slow,
    More,
    Unknown(String),
}

#[derive(Arbitrary, Debug)]
enum Wanted {
    ExportName,
    Simple,
    Structured,
    Extended,
}

#[derive(Arbitrary, Debug)]
enum Change {
    Memory(u8),
    Policy(u8),
    Readahead(bool),
    Add,
    Remove { discard: bool },
    Limit { iops: u16 },
    ReadOnly(bool),
    Flush,
    Status,
    Line(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Own {
    Read { block: u16, blocks: u8 },
    Write { block: u16, blocks: u8, byte: u8 },
    Zero { block: u16, blocks: u8 },
    Trim { block: u16, blocks: u8 },
    Cache { block: u16, blocks: u8 },
    Status { block: u16, blocks: u8 },
    Flush,
}

/// A server in this process, and the client whose bytes are watched.
struct Fixture {
    server: Server,
    control: std::path::PathBuf,
    _folder: tempfile::TempDir,
    own: Client<UnixStream>,
    /// What it wrote.
    bytes: Vec<u8>,
}

fn export(name: &str, target: &str) -> ExportSettings {
    ExportSettings::new(name, target.parse().expect("a target"))
}

fn attached(server: &Server) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    for stream in [&ours, &theirs] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    server.attach(theirs.try_clone().expect("a descriptor").into(), theirs.into(), || ());
    ours
}

impl Fixture {
    fn start() -> Fixture {
        let exports =
            vec![export("own", "memory:1M"), export("fast", "memory:1M"), export("slow", "delay:200us:memory:1M")];
        let server =
            Server::start(Settings::new(MEMORY, "lirs".parse().expect("a policy"), exports)).expect("a server");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let control = folder.path().join("control");
        server.control(&control, || Ok(())).expect("a socket");
        let own = Client::connect(attached(&server), "own", &["base:allocation"]).expect("a client");
        Fixture { server, control, _folder: folder, own, bytes: vec![0; DISK as usize] }
    }

    fn own(&mut self, step: &Own) {
        let range = |block: u16, blocks: u8| {
            let first = u64::from(block) % (DISK / BLOCK);
            let last = (first + u64::from(blocks) + 1).min(DISK / BLOCK);
            first * BLOCK..last * BLOCK
        };
        let at = |range: &std::ops::Range<u64>| range.start as usize..range.end as usize;
        match *step {
            Own::Read { block, blocks } => {
                let range = range(block, blocks);
                let read = self.own.read(range.start, (range.end - range.start) as usize).expect("a read succeeds");
                assert!(read == self.bytes[at(&range)], "bytes {range:?} are not what was written");
            }
            Own::Write { block, blocks, byte } => {
                let range = range(block, blocks);
                self.bytes[at(&range)].fill(byte);
                self.own.write(range.start, &self.bytes[at(&range)]).expect("a write succeeds");
            }
            Own::Zero { block, blocks } | Own::Trim { block, blocks } => {
                let range = range(block, blocks);
                self.bytes[at(&range)].fill(0);
                // What is trimmed may have any bytes until it is written.
                if matches!(step, Own::Trim { .. }) {
                    self.own.trim(range.start, range.end - range.start).expect("a trim succeeds");
                }
                self.own.zero(range.start, range.end - range.start).expect("zeroing succeeds");
            }
            Own::Cache { block, blocks } => {
                let range = range(block, blocks);
                self.own.cache(range.start, range.end - range.start).expect("fetching ahead succeeds");
            }
            Own::Status { block, blocks } => {
                let range = range(block, blocks);
                let status = self.own.block_status(range.start, range.end - range.start).expect("a status succeeds");
                assert!(!status.is_empty());
            }
            Own::Flush => self.own.flush().expect("a flush succeeds"),
        }
    }

    fn change(&self, change: &Change) {
        const POLICIES: [&str; 8] = ["lru", "lirs", "clock-pro", "arc", "s3-fifo", "w-tinylfu", "dulo", "2q"];
        let name = || "more".to_owned();
        let set = |memory, policy: Option<&str>, readahead: Option<&str>| Command::Set {
            memory,
            policy: policy.map(Into::into),
            readahead: readahead.map(Into::into),
        };
        let command = match change {
            Change::Memory(blocks) => set(Some(u64::from(*blocks) * 4096), None, None),
            Change::Policy(at) => set(None, Some(POLICIES[usize::from(*at) % POLICIES.len()]), None),
            Change::Readahead(on) => set(None, None, Some(if *on { "linux" } else { "none" })),
            Change::Add => {
                Command::AddExport { name: name(), target: "memory:1M".into(), options: ExportOptions::default() }
            }
            Change::Remove { discard } => Command::RemoveExport { name: name(), discard: *discard },
            // More than a client of this fuzzer needs in a second.
            Change::Limit { iops } => {
                let options = ExportOptions { iops: Some(1000 + u64::from(*iops)), ..ExportOptions::default() };
                Command::SetExport { name: "fast".into(), options }
            }
            Change::ReadOnly(read_only) => {
                let options = ExportOptions { read_only: Some(*read_only), ..ExportOptions::default() };
                Command::SetExport { name: "fast".into(), options }
            }
            Change::Flush => Command::Flush { name: None },
            Change::Status => Command::Status {},
            Change::Line(line) => return self.say(line),
        };
        let line = serde_json::to_vec(&command).expect("commands are plain data");
        self.say(&line);
    }

    /// Says a line, unless it is a command of the fuzzer's own that may change files or the export that is watched.
    fn say(&self, line: &[u8]) {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_harmless = match serde_json::from_slice::<Command>(line) {
            Ok(Command::AddExport { name, target, .. }) => name == "more" && target == "memory:1M",
            Ok(Command::RemoveExport { name, .. } | Command::SetExport { name, .. }) => name != "own",
            Ok(Command::Record { .. } | Command::Reload {} | Command::Hint { .. }) => false,
            _ => true,
        };
        if !is_harmless {
            return;
        }
        let mut control = UnixStream::connect(&self.control).expect("it listens");
        control.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        control.write_all(&[line, b"\n"].concat()).expect("it reads");
        // At least a byte; libFuzzer's timer interrupts reads.
        let answer = control.read_exact(&mut [0]);
        assert!(answer.is_ok(), "no answer to {}: {answer:?}", line.escape_ascii());
    }

    fn come(&self, name: &Name, framing: &Wanted, contexts: bool) -> Option<UnixStream> {
        let stream = attached(&self.server);
        let name = match name {
            Name::Fast => "fast",
            Name::Slow => "slow",
            Name::More => "more",
            Name::Unknown(name) if name != "own" && name.len() < 4096 => name,
            Name::Unknown(_) => "",
        };
        let mut handshake = Handshake::begin(stream.try_clone().ok()?).expect("a greeting");
        let client = match framing {
            Wanted::ExportName => handshake.export_name(name).ok(),
            Wanted::Simple => handshake.go(name).ok(),
            Wanted::Structured | Wanted::Extended => {
                let done = match framing {
                    Wanted::Extended => handshake.extended_headers(),
                    _ => handshake.structured_replies(),
                };
                assert!(done.expect("an answer"));
                if contexts {
                    let _ = handshake.set_contexts(name, &["base:allocation"]);
                }
                handshake.go(name).ok()
            }
        };
        client.map(|_| stream)
    }
}

/// Sends what fits: a client that reads no answers is not waited for.
fn send(stream: &mut UnixStream, bytes: &[u8]) {
    stream.set_nonblocking(true).expect("a socket");
    let _ = stream.write(bytes);
}

fn receive(stream: &mut UnixStream, most: u16) {
    stream.set_nonblocking(true).expect("a socket");
    let mut answers = vec![0; usize::from(most)];
    let _ = stream.read(&mut answers);
}

fn run(fixture: &mut Fixture, script: &[Step]) {
    let mut clients: [Option<UnixStream>; CLIENTS] = Default::default();
    for step in script {
        let at = |client: &u8| usize::from(*client) % CLIENTS;
        match step {
            Step::Come { client, export, framing, contexts } => {
                clients[at(client)] = fixture.come(export, framing, *contexts);
            }
            Step::ComeRaw { client, flags } => {
                let mut stream = attached(&fixture.server);
                send(&mut stream, &u32::from(*flags).to_be_bytes());
                clients[at(client)] = Some(stream);
            }
            Step::Change(change) => fixture.change(change),
            Step::Own(own) => fixture.own(own),
            Step::Leave { client } => clients[at(client)] = None,
            Step::Option { client, option, data } => {
                let Some(stream) = &mut clients[at(client)] else { continue };
                let mut bytes = b"IHAVEOPT".to_vec();
                bytes.extend(u32::from(*option).to_be_bytes());
                bytes.extend((data.len() as u32).to_be_bytes());
                bytes.extend(data);
                send(stream, &bytes);
            }
            Step::Request { client, extended, command, flags, offset, length, blocks, byte } => {
                let Some(stream) = &mut clients[at(client)] else { continue };
                let unit = if *blocks { BLOCK } else { 1 };
                let (offset, length) =
                    (u64::from(*offset) % (2 * DISK) / unit * unit, u64::from(*length) / unit * unit);
                let command = u16::from(*command);
                let length = if command == 1 { length % LONGEST / unit * unit } else { length };
                let framing = if *extended { Framing::Extended } else { Framing::Structured };
                let header = RequestHeader { flags: u16::from(*flags), command, cookie: 7, offset, length };
                let mut bytes = header.encode(framing).expect("it fits 32 bits").to_vec();
                if command == 1 {
                    bytes.resize(bytes.len() + length as usize, *byte);
                }
                send(stream, &bytes);
            }
            Step::Bytes { client, bytes } => {
                let Some(stream) = &mut clients[at(client)] else { continue };
                send(stream, bytes);
            }
            Step::Receive { client, most } => {
                let Some(stream) = &mut clients[at(client)] else { continue };
                receive(stream, *most);
            }
            Step::Fall { client } => {
                let Some(stream) = &mut clients[at(client)] else { continue };
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
    drop(clients);
    // The client that stays has what it wrote, all of it.
    fixture.own(&Own::Read { block: 0, blocks: u8::MAX });
    fixture.own(&Own::Flush);
    let left = Instant::now();
    while fixture.server.statistics().connections > 1 {
        assert!(left.elapsed() < PATIENCE, "clients that left are still served");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Threads that are just ending look as if they leaked what they free in the end.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> i32 {
    1
}

fuzz_target!(|script: Vec<Step>| {
    static FIXTURE: OnceLock<Mutex<Fixture>> = OnceLock::new();
    let fixture = FIXTURE.get_or_init(|| Mutex::new(Fixture::start()));
    run(&mut fixture.lock().expect("a panic ends the process"), &script);
});
