//! `nigh level`: memory of this host as a level of servers on other hosts.
//!
//! Each connection has a thread. The store's lock is held for one request: while a block is copied, and never while a thread waits
//! for a client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use nigh_level::{Decoded, Hello, Limits, MESSAGE_MAX, Request, Store, Welcome};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::LevelArgs;
use crate::log;
use crate::size::human_bytes;

const BLOCK: u64 = 4096;
/// Requests of a client that may be on their way.
const REQUESTS: u32 = 256;
const NAMESPACES: u32 = 16;
/// How long a client may take for its first message, for the rest of a message, and to accept replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

struct Common {
    store: Mutex<Store>,
    limits: Limits,
    connections: AtomicUsize,
    start: Instant,
    instance: u64,
}

impl Common {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn run(args: &LevelArgs) -> anyhow::Result<()> {
    let form = || format!("--listen {}: it is written tcp:HOST:PORT, such as tcp:127.0.0.1:10810", args.listen);
    let address = args.listen.strip_prefix("tcp:").with_context(form)?;
    let addresses: Vec<_> = address.to_socket_addrs().with_context(form)?.collect();
    if let Some(open) = addresses.iter().find(|address| !address.ip().is_loopback()).filter(|_| !args.insecure_tcp) {
        bail!("{open} would be open to the network, without encryption: use a loopback address, or say --insecure-tcp");
    }
    let blocks = |flag: &str, text: &str| {
        let bytes = nigh_text::bytes(text).with_context(|| format!("{flag} {text}: expected a size, such as 64G"))?;
        u32::try_from(bytes / BLOCK)
            .ok()
            .filter(|blocks| (1..u32::MAX).contains(blocks))
            .with_context(|| format!("{flag} is from 4K to 16T"))
    };
    let all = blocks("--memory", &args.memory)?;
    let each = args.client_memory.as_deref().map(|text| blocks("--client-memory", text)).transpose()?.unwrap_or(all);
    ensure!(each <= all, "--client-memory is more than --memory");
    let there = rustix::system::sysinfo();
    let there = (there.totalram as u64).saturating_mul(u64::from(there.mem_unit));
    let asked = u64::from(all) * BLOCK;
    ensure!(asked <= there, "--memory is {}, but the machine has {}", human_bytes(asked), human_bytes(there));
    log::start(&args.log)?;

    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot watch signals")?;
    let listener = TcpListener::bind(&addresses[..]).with_context(|| format!("cannot listen on {address}"))?;
    let limits = Limits {
        blocks: all,
        block_bytes: BLOCK as u32,
        clients: args.connections,
        blocks_each: each,
        namespaces_each: NAMESPACES,
    };
    let instance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let common = Arc::new(Common {
        store: Mutex::new(Store::new(limits)),
        limits,
        connections: AtomicUsize::new(0),
        start: Instant::now(),
        instance,
    });
    tracing::info!("a level of {}", human_bytes(asked));
    tracing::info!("listening on tcp:{}", listener.local_addr()?);
    let most = usize::from(args.connections);
    let at = common.clone();
    Builder::new().name("accept".into()).spawn(move || accept(&listener, &at, most))?;
    signals.forever().next();
    tracing::info!("shutting down");
    for (name, counts, share) in common.store().counts() {
        tracing::info!(client = name, blocks = share, ?counts, "at the end");
    }
    Ok(())
}

fn accept(listener: &TcpListener, common: &Arc<Common>, most: usize) {
    loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        if common.connections.load(Ordering::Relaxed) >= most {
            tracing::warn!(%peer, "rejected: there are {most} connections");
            continue;
        }
        common.connections.fetch_add(1, Ordering::Relaxed);
        let of = common.clone();
        let serve = move || {
            match serve(&of, &stream) {
                Ok(()) => tracing::info!(%peer, "disconnected"),
                Err(error) => tracing::warn!(%peer, "disconnected: {error:#}"),
            }
            let _ = stream.shutdown(Shutdown::Both);
            of.connections.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = Builder::new().name("client".into()).spawn(serve) {
            common.connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%peer, %error, "rejected: no thread can be started");
        }
    }
}

/// Reads more of a message. Between messages, a client may be silent for as long as it likes. Returns whether there is more.
fn more(mut stream: &TcpStream, input: &mut Vec<u8>, since: &mut Option<Instant>) -> anyhow::Result<bool> {
    let mut bytes = [0; 16 << 10];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) if input.is_empty() => return Ok(false),
            Ok(0) => bail!("the connection ended within a message"),
            Ok(read) => {
                if input.is_empty() {
                    *since = Some(Instant::now());
                }
                input.extend(&bytes[..read]);
                return Ok(true);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && since.is_none() => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("a message is incomplete for too long"),
            Err(error) => return Err(error.into()),
        }
    }
}

fn serve(common: &Common, mut stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut since = Some(Instant::now());
    let connection = loop {
        match Hello::decode(&input)? {
            Decoded::Whole(hello, length) => {
                let version = hello.version()?;
                let name = hello.name.to_owned();
                let connection = common.store().connect(&hello, &name)?;
                let Limits { blocks_each, .. } = common.limits;
                Welcome { version, requests: REQUESTS, blocks: blocks_each.into(), instance: common.instance }
                    .encode(&mut out);
                input.drain(..length);
                tracing::info!(client = name, "connected");
                break connection;
            }
            Decoded::Need(_) => {
                ensure!(more(stream, &mut input, &mut since)?, "it sent nothing");
                ensure!(since.is_none_or(|since| since.elapsed() < PATIENCE), "the first message takes too long");
            }
        }
    };
    let result = (|| {
        let mut contents = Vec::new();
        loop {
            let mut used = 0;
            while let Decoded::Whole((cookie, request), length) = Request::decode(&input[used..])? {
                let now_us = common.start.elapsed().as_micros() as u64;
                common.store().handle(now_us, connection, cookie, &request, &mut contents).encode(&mut out);
                used += length;
                if out.len() >= MESSAGE_MAX {
                    stream.write_all(&out)?;
                    out.clear();
                }
            }
            input.drain(..used);
            if used > 0 {
                since = (!input.is_empty()).then(Instant::now);
            }
            ensure!(since.is_none_or(|since| since.elapsed() < PATIENCE), "a message takes too long");
            stream.write_all(&out)?;
            out.clear();
            if input.is_empty() {
                since = None;
            }
            if !more(stream, &mut input, &mut since)? {
                return Ok(());
            }
        }
    })();
    common.store().disconnect(connection);
    result
}
