//! Whatever several clients and an administrator do at the same time, another client's bytes stay what it wrote, it is
//! answered, and nothing is left of those that leave.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use nigh_fuzz::secure::{ALICE, BOB, Certificate, Pki, Wire};
use nigh_nbd::client::{Client, Handshake};
use nigh_nbd::wire::option;
use nigh_nbd::{Framing, RequestHeader};
use nigh_server::NBD;
use nigh_service::{Command, ExportOptions, ExportSettings, Listen, Service, Settings};

const DISK: u64 = 1 << 20;
/// Less than one disk, so that blocks of all are evicted all the time.
const MEMORY: u64 = 256 << 10;
const BLOCK: u64 = 512;
const CLIENTS: usize = 4;
/// More than any wait in the server that is not a defect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes sent at a time.
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
    /// A client comes over TLS.
    ComeSecure {
        client: u8,
        certificate: Certificate,
        is_old: bool,
        lists: bool,
        export: Name,
        framing: Wanted,
        contexts: bool,
    },
    /// A client comes, and negotiates by itself.
    ComeRaw {
        client: u8,
        flags: u8,
    },
    /// A client comes over TCP and negotiates by itself, but may have agreed on TLS.
    ComeOpen {
        client: u8,
        starts_tls: bool,
    },
    /// The first record of a TLS handshake, with one byte changed, and at most this many bytes of it.
    Hello {
        client: u8,
        certificate: Certificate,
        is_old: bool,
        most: u16,
        at: u16,
        change: u8,
    },
    /// Any bytes that are not encrypted, with or without the header of a record of TLS.
    Record {
        client: u8,
        kind: Option<u8>,
        data: Vec<u8>,
    },
    /// New keys for what the client sends.
    Refresh {
        client: u8,
    },
    /// Nothing more is sent, by TLS's own message.
    Goodbye {
        client: u8,
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
    /// Leaves so that the connection is lost.
    Lose {
        client: u8,
    },
    /// A change by the administrator.
    Change(Change),
    /// A request of the client whose bytes are watched, over one of its connections.
    Own {
        is_secure: bool,
        own: Own,
    },
}

#[derive(Arbitrary, Debug)]
enum Name {
    Fast,
    Slow,
    More,
    /// For `ALICE`.
    Hers,
    /// For `BOB`.
    His,
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
    Remove {
        discard: bool,
    },
    Limit {
        iops: u16,
    },
    ReadOnly(bool),
    /// Whether the fast export is for `ALICE` only.
    Restrict(bool),
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
    server: Service,
    control: std::path::PathBuf,
    pki: Pki,
    /// Address at which clients start TLS.
    address: SocketAddr,
    /// Its connections: one without TLS, and one with it.
    own: [Client<Wire>; 2],
    /// Bytes that it wrote.
    bytes: Vec<u8>,
    /// Whether the fast export is for `ALICE` only.
    is_restricted: bool,
}

fn export(name: &str, target: &str, client: Option<&str>) -> ExportSettings {
    let clients = client.iter().map(|&name| name.to_owned()).collect();
    ExportSettings { clients, ..ExportSettings::new(name, target.parse().expect("a target")) }
}

fn attached(server: &Service) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    for stream in [&ours, &theirs] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    server.attach(NBD, theirs.try_clone().expect("a descriptor").into(), theirs.into(), || ());
    ours
}

/// Starts TLS. `None` if the server does not take the certificate.
fn start_tls<'a>(
    pki: &Pki,
    socket: UnixStream,
    (certificate, is_old): (Certificate, bool),
    wire: &'a mut Option<Wire>,
) -> Option<Handshake<&'a mut Wire>> {
    let handshake = Handshake::begin(socket).expect("a greeting");
    let session = pki.session(certificate, is_old);
    let secure = handshake.start_tls(|socket| Ok(wire.insert(Wire::secure(socket, session)?)));
    assert!(secure.is_ok() || !certificate.is_valid(), "{certificate:?} is not taken: {:?}", secure.err());
    secure.ok()
}

impl Fixture {
    fn start() -> Fixture {
        let exports = vec![
            export("own", "memory:1M", None),
            export("fast", "memory:1M", None),
            export("slow", "delay:200us:memory:1M", None),
            export("hers", "memory:1M", Some(ALICE)),
            export("his", "memory:1M", Some(BOB)),
        ];
        let pki = Pki::new();
        let mut settings = Settings::new(MEMORY, "lirs".parse().expect("a policy"), exports);
        settings.tls = Some(pki.settings());
        let server = Service::start(settings).expect("a server");
        let control = pki.folder().join("control");
        server.control(&control, || Ok(())).expect("a socket");
        let address = server.listen(NBD, &Listen::Tcp("127.0.0.1:0".into()), false).expect("an address");
        let Listen::Tcp(address) = address else { unreachable!("it is TCP") };
        let address = address.parse().expect("an address");
        let plain = Client::connect(Wire::Plain(attached(&server)), "own", &["base:allocation"]).expect("a client");
        let handshake = Handshake::begin(Wire::over_tcp(address, PATIENCE)).expect("a greeting");
        let session = pki.session(Certificate::Both, false);
        let mut secure = handshake.start_tls(|socket| Wire::secure(socket, session)).expect("a session");
        assert!(secure.structured_replies().expect("an answer"));
        secure.set_contexts("own", &["base:allocation"]).expect("a context");
        let own = [plain, secure.go("own").expect("a client")];
        Fixture { server, control, pki, address, own, bytes: vec![0; DISK as usize], is_restricted: false }
    }

    fn own(&mut self, is_secure: bool, step: &Own) {
        let own = &mut self.own[usize::from(is_secure)];
        let range = |block: u16, blocks: u8| {
            let first = u64::from(block) % (DISK / BLOCK);
            let last = (first + u64::from(blocks) + 1).min(DISK / BLOCK);
            first * BLOCK..last * BLOCK
        };
        let at = |range: &std::ops::Range<u64>| range.start as usize..range.end as usize;
        match *step {
            Own::Read { block, blocks } => {
                let range = range(block, blocks);
                let read = own.read(range.start, (range.end - range.start) as usize).expect("a read succeeds");
                assert!(read == self.bytes[at(&range)], "bytes {range:?} are not what was written");
            }
            Own::Write { block, blocks, byte } => {
                let range = range(block, blocks);
                self.bytes[at(&range)].fill(byte);
                own.write(range.start, &self.bytes[at(&range)]).expect("a write succeeds");
            }
            Own::Zero { block, blocks } | Own::Trim { block, blocks } => {
                let range = range(block, blocks);
                self.bytes[at(&range)].fill(0);
                // Trimmed bytes may have any value until they are written.
                if matches!(step, Own::Trim { .. }) {
                    own.trim(range.start, range.end - range.start).expect("a trim succeeds");
                }
                own.zero(range.start, range.end - range.start).expect("zeroing succeeds");
            }
            Own::Cache { block, blocks } => {
                let range = range(block, blocks);
                own.cache(range.start, range.end - range.start).expect("fetching ahead succeeds");
            }
            Own::Status { block, blocks } => {
                let range = range(block, blocks);
                let status = own.block_status(range.start, range.end - range.start).expect("a status succeeds");
                assert!(!status.is_empty());
            }
            Own::Flush => own.flush().expect("a flush succeeds"),
        }
    }

    fn change(&mut self, change: &Change) {
        const POLICIES: [&str; 8] = ["lru", "lirs", "clock-pro", "arc", "s3-fifo", "w-tinylfu", "dulo", "2q"];
        let name = || "more".to_owned();
        let set = |memory, policy: Option<&str>, readahead: Option<&str>| Command::Set {
            memory,
            policy: policy.map(Into::into),
            readahead: readahead.map(Into::into),
            slow: None,
        };
        let command = match change {
            Change::Memory(blocks) => set(Some(u64::from(*blocks) * 4096), None, None),
            Change::Policy(at) => set(None, Some(POLICIES[usize::from(*at) % POLICIES.len()]), None),
            Change::Readahead(on) => set(None, None, Some(if *on { "linux" } else { "none" })),
            Change::Add => Command::AddExport {
                name: name(),
                target: "memory:1M".into(),
                options: ExportOptions::default(),
                take_over: false,
            },
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
            Change::Restrict(is_restricted) => {
                self.is_restricted = *is_restricted;
                let clients = Some(if *is_restricted { vec![ALICE.to_owned()] } else { Vec::new() });
                Command::SetExport { name: "fast".into(), options: ExportOptions { clients, ..Default::default() } }
            }
            Change::Flush => Command::Flush { name: None },
            Change::Status => Command::Status {},
            Change::Line(line) => return self.say(line),
        };
        let line = serde_json::to_vec(&command).expect("commands are plain data");
        self.tell(&line);
    }

    /// Says a line, unless it is a command of the fuzzer's own that may change files, the export that is watched or who may see
    /// which export.
    fn say(&self, line: &[u8]) {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_harmless = match serde_json::from_slice::<Command>(line) {
            Ok(Command::AddExport { name, target, .. }) => name == "more" && target == "memory:1M",
            Ok(Command::RemoveExport { name, .. }) => name == "more",
            Ok(Command::SetExport { name, options }) => name == "more" || (name == "fast" && options.clients.is_none()),
            Ok(Command::Record { .. } | Command::Reload {} | Command::Hint { .. }) => false,
            _ => true,
        };
        if is_harmless {
            self.tell(line);
        }
    }

    fn tell(&self, line: &[u8]) {
        let mut control = UnixStream::connect(&self.control).expect("it listens");
        control.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        control.write_all(&[line, b"\n"].concat()).expect("it reads");
        // At least a byte; libFuzzer's timer interrupts reads.
        let answer = control.read_exact(&mut [0]);
        assert!(answer.is_ok(), "no answer to {}: {answer:?}", line.escape_ascii());
    }

    /// A client comes without TLS.
    fn come(&self, name: &Name, wanted: (&Wanted, bool)) -> Option<Wire> {
        let mut wire = Wire::Plain(attached(&self.server));
        let chosen = choose(Handshake::begin(&mut wire).expect("a greeting"), name.text(), wanted);
        assert!(!chosen || self.may(None, name), "a client without a certificate has {name:?}");
        chosen.then_some(wire)
    }

    /// A client comes over TLS.
    fn come_secure(
        &self,
        name: &Name,
        (certificate, is_old): (Certificate, bool),
        lists: bool,
        wanted: (&Wanted, bool),
    ) -> Option<Wire> {
        let mut wire = None;
        let socket = Wire::over_tcp(self.address, PATIENCE);
        let mut handshake = start_tls(&self.pki, socket, (certificate, is_old), &mut wire)?;
        if lists && let Some(listed) = answered(certificate, handshake.list()) {
            for (export, client) in [("hers", ALICE), ("his", BOB)] {
                let is_listed = listed.iter().any(|(name, _)| name == export);
                assert_eq!(is_listed, certificate.has(client), "{export} in the list for {certificate:?}");
            }
        }
        let chosen = choose(handshake, name.text(), wanted);
        assert!(!chosen || self.may(Some(certificate), name), "{certificate:?} has {name:?}");
        let has_to = matches!(name, Name::Hers | Name::His | Name::Slow) && self.may(Some(certificate), name);
        assert!(chosen || !has_to, "{certificate:?} does not get {name:?}");
        wire.filter(|_| chosen)
    }

    /// Whether a client, over TLS with this certificate or without TLS, may have an export, if it is there.
    fn may(&self, certificate: Option<Certificate>, name: &Name) -> bool {
        let has = |name| certificate.is_some_and(|certificate| certificate.has(name));
        let is_let_in = certificate.is_none_or(Certificate::is_valid);
        is_let_in
            && match name {
                Name::Hers => has(ALICE),
                Name::His => has(BOB),
                Name::Fast => has(ALICE) || !self.is_restricted,
                _ => true,
            }
    }
}

impl Name {
    /// Never that of the export that is watched, nor in another way one of those that are for some.
    fn text(&self) -> &str {
        match self {
            Name::Fast => "fast",
            Name::Slow => "slow",
            Name::More => "more",
            Name::Hers => "hers",
            Name::His => "his",
            Name::Unknown(name) if !["own", "hers", "his", "fast"].contains(&&name[..]) && name.len() < 4096 => name,
            Name::Unknown(_) => "unknown",
        }
    }
}

/// Answers to a valid certificate have to come; others get none.
fn answered<T>(certificate: Certificate, answer: Result<T, nigh_nbd::client::Error>) -> Option<T> {
    assert_eq!(answer.is_ok(), certificate.is_valid(), "{certificate:?}: {:?}", answer.err());
    answer.ok()
}

/// Whether the server agreed.
fn choose<S: Read + Write>(mut handshake: Handshake<S>, name: &str, (framing, contexts): (&Wanted, bool)) -> bool {
    match framing {
        Wanted::ExportName => return handshake.export_name(name).is_ok(),
        Wanted::Simple => {}
        Wanted::Structured | Wanted::Extended => {
            let done = match framing {
                Wanted::Extended => handshake.extended_headers(),
                _ => handshake.structured_replies(),
            };
            // The connection may be closed because of the certificate.
            let Ok(done) = done else { return false };
            assert!(done);
            if contexts {
                let _ = handshake.set_contexts(name, &["base:allocation"]);
            }
        }
    }
    handshake.negotiate(name).is_ok()
}

/// Sends what fits: a client that reads no answers is not waited for.
fn send(wire: &mut Wire, bytes: &[u8]) {
    wire.socket().set_nonblocking(true).expect("a socket");
    let _ = wire.write(bytes);
}

/// The same without encryption.
fn send_below(wire: &mut Wire, bytes: &[u8]) {
    let socket = wire.socket();
    socket.set_nonblocking(true).expect("a socket");
    let _ = socket.write(bytes);
}

fn receive(wire: &mut Wire, most: u16) {
    wire.socket().set_nonblocking(true).expect("a socket");
    let mut answers = vec![0; usize::from(most)];
    let _ = wire.read(&mut answers);
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Whether it names the export whose bytes are watched.
fn is_own(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|bytes| bytes == b"own")
}

impl Fixture {
    /// A client that negotiates by itself over TCP.
    fn come_open(&self, starts_tls: bool) -> Wire {
        let mut wire = Wire::Plain(Wire::over_tcp(self.address, PATIENCE));
        if starts_tls {
            let hello = [&3_u32.to_be_bytes()[..], &option(option::STARTTLS, &[])].concat();
            wire.write_all(&hello).expect("it reads");
            // The greeting and the answer.
            wire.read_exact(&mut [0; 18 + 20]).expect("an answer");
        }
        wire
    }

    /// The first bytes of a handshake, one of them changed.
    fn hello(&self, certificate: Certificate, is_old: bool, at: u16, change: u8) -> Vec<u8> {
        let mut hello = Vec::new();
        self.pki.session(certificate, is_old).write_tls(&mut hello).expect("room for it");
        let at = usize::from(at) % hello.len();
        hello[at] ^= change;
        hello
    }
}

fn run(fixture: &mut Fixture, script: &[Step]) {
    let mut clients: [Option<Wire>; CLIENTS] = Default::default();
    for step in script {
        let at = |client: &u8| usize::from(*client) % CLIENTS;
        match step {
            Step::Come { client, export, framing, contexts } => {
                clients[at(client)] = fixture.come(export, (framing, *contexts));
            }
            Step::ComeSecure { client, certificate, is_old, lists, export, framing, contexts } => {
                let session = (*certificate, *is_old);
                clients[at(client)] = fixture.come_secure(export, session, *lists, (framing, *contexts));
            }
            Step::ComeRaw { client, flags } => {
                let mut wire = Wire::Plain(attached(&fixture.server));
                send(&mut wire, &u32::from(*flags).to_be_bytes());
                clients[at(client)] = Some(wire);
            }
            Step::ComeOpen { client, starts_tls } => clients[at(client)] = Some(fixture.come_open(*starts_tls)),
            Step::Change(change) => fixture.change(change),
            Step::Own { is_secure, own } => fixture.own(*is_secure, own),
            Step::Leave { client } => clients[at(client)] = None,
            Step::Lose { client } => clients[at(client)].take().into_iter().for_each(Wire::lose),
            Step::Hello { client, certificate, is_old, most, at: byte, change } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                let hello = fixture.hello(*certificate, *is_old, *byte, *change);
                send_below(wire, &hello[..hello.len().min(usize::from(*most))]);
            }
            Step::Record { client, kind, data } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                let header = kind.map(|kind| [&[kind, 3, 3][..], &(data.len() as u16).to_be_bytes()].concat());
                send_below(wire, &[&header.unwrap_or_default()[..], data].concat());
            }
            Step::Refresh { client } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                // Only TLS 1.3 has that.
                let _ = wire.session().map(|session| session.refresh_traffic_keys());
                send(wire, &[]);
            }
            Step::Goodbye { client } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                if let Some(session) = wire.session() {
                    session.send_close_notify();
                }
                send(wire, &[]);
            }
            Step::Option { client, option: number, data } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                if !is_own(data) {
                    send(wire, &option((*number).into(), data));
                }
            }
            Step::Request { client, extended, command, flags, offset, length, blocks, byte } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
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
                send(wire, &bytes);
            }
            Step::Bytes { client, bytes } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                if !is_own(bytes) {
                    send(wire, bytes);
                }
            }
            Step::Receive { client, most } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                receive(wire, *most);
            }
            Step::Fall { client } => {
                let Some(wire) = &mut clients[at(client)] else { continue };
                let _ = wire.socket().shutdown(Shutdown::Write);
            }
        }
    }
    drop(clients);
    // The next script finds what this one found.
    if fixture.is_restricted {
        fixture.change(&Change::Restrict(false));
    }
    // The client that stays has what it wrote, all of it: half of that over each of its connections.
    let half = fixture.bytes.len() / 2;
    for (at, (own, bytes)) in fixture.own.iter_mut().zip(fixture.bytes.chunks_exact(half)).enumerate() {
        let read = own.read((at * half) as u64, half).expect("a read succeeds");
        assert!(read == bytes, "half {at} of the bytes is not what was written");
        own.flush().expect("a flush succeeds");
    }
    let left = Instant::now();
    while fixture.server.statistics().connections > fixture.own.len() as u64 {
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
    let fixture = FIXTURE.get_or_init(|| {
        // libFuzzer's main function, unlike Rust's, leaves the signal that ends a process which writes to a client that left.
        let ignored = Arc::default();
        signal_hook::flag::register(signal_hook::consts::SIGPIPE, ignored).expect("a handler");
        Mutex::new(Fixture::start())
    });
    run(&mut fixture.lock().expect("a panic ends the process"), &script);
});
