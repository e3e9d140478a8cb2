//! Clients that write, read and flush a disk at random, several requests at a time, and keep what they saw.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use nigh_nbd::Command;
use nigh_nbd::client::{Client, Error};

use super::disk::SECTOR;
use super::history::{Flush, History, Kind, Op, ZEROS, decode, encode};

/// Most requests of a client at a time.
const DEPTH: usize = 4;
/// Most sectors of a request.
const SECTORS: usize = 64;
/// Half of the requests are to the first sectors, this many.
const HOT: usize = 512;

/// State that the clients of a disk share.
pub(crate) struct Shared {
    pub(crate) sectors: usize,
    /// Counts what happens.
    pub(crate) now: AtomicU64,
    /// The last value that a write was given.
    pub(crate) values: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst) + 1
    }
}

enum Asked {
    /// The place of the request in the history.
    Op(usize),
    Flush(u64),
}

/// Works until it is asked to end or the server is gone. Also returns whether a flush covers the writes of other clients.
pub(crate) fn work(
    shared: &Shared,
    socket: &Path,
    export: &str,
    client: usize,
    seed: u64,
) -> Result<(History, bool), String> {
    let mut history = History::default();
    let Ok(stream) = UnixStream::connect(socket) else { return Ok((history, true)) };
    // A server that no longer answers must be found, not waited for.
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(|error| error.to_string())?;
    let mut link = match Client::connect(stream, export, &[]) {
        Ok(link) => link,
        Err(Error::Io(_)) => return Ok((history, true)),
        Err(error) => return Err(format!("client {client}: {error}")),
    };
    let multi = link.export().features.multi_conn;
    let mut random = Rng::with_seed(seed);
    let mut asked: HashMap<u64, Asked> = HashMap::new();
    loop {
        let is_over = shared.is_over.load(Ordering::Relaxed);
        if is_over && asked.is_empty() {
            return Ok((history, multi));
        }
        let result = if !is_over && asked.len() < DEPTH {
            submit(shared, &mut link, &mut random, &mut history).map(|(cookie, what)| {
                asked.insert(cookie, what);
            })
        } else {
            receive(shared, &mut link, &mut asked, &mut history, client)?
        };
        match result {
            Ok(()) => {}
            // The server is gone.
            Err(Error::Io(error)) if error.kind() != std::io::ErrorKind::WouldBlock => return Ok((history, multi)),
            Err(error) => return Err(format!("client {client}: {error}")),
        }
    }
}

/// All bytes of a disk.
pub(crate) fn read_all(socket: &Path, export: &str, size: usize) -> Result<Vec<u8>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("it cannot be read afterwards: {error}");
    let stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
    let mut link = Client::connect(stream, export, &[]).map_err(|error| failed(&error))?;
    let mut all = Vec::new();
    while all.len() < size {
        all.extend(link.read(all.len() as u64, (size - all.len()).min(1 << 20)).map_err(|error| failed(&error))?);
    }
    Ok(all)
}

fn submit(
    shared: &Shared,
    link: &mut Client<UnixStream>,
    random: &mut Rng,
    history: &mut History,
) -> Result<(u64, Asked), Error> {
    let longest = if random.u8(..4) == 0 { SECTORS } else { 8 };
    let length = random.usize(1..=longest);
    let area = if random.bool() { HOT } else { shared.sectors };
    let first = random.usize(..=area - length);
    let (offset, bytes) = ((first * SECTOR) as u64, length * SECTOR);
    let kind = match random.u8(..100) {
        0..5 => {
            let began = shared.tick();
            return Ok((link.submit(Command::Flush, 0, 0)?, Asked::Flush(began)));
        }
        5..8 => Kind::Write { value: ZEROS, fua: false },
        8..60 => Kind::Write { value: 1 + shared.values.fetch_add(1, Ordering::Relaxed), fua: random.u8(..12) == 0 },
        _ => Kind::Read(Vec::new()),
    };
    let at = history.ops.len();
    history.ops.push(Op { first, sectors: length, began: shared.tick(), ended: None, kind });
    let cookie = match history.ops[at].kind {
        Kind::Read(_) => link.submit_read(offset, vec![0; bytes])?,
        Kind::Write { value: ZEROS, .. } => {
            let zeroes = Command::WriteZeroes { fua: false, no_hole: random.bool(), fast: false };
            link.submit(zeroes, offset, bytes as u64)?
        }
        Kind::Write { value, fua } => {
            let mut data = vec![0; bytes];
            encode(value, first, &mut data);
            link.submit_write(offset, &data, fua)?
        }
    };
    Ok((cookie, Asked::Op(at)))
}

/// Of what was read, the outer error means that it is no client's.
fn receive(
    shared: &Shared,
    link: &mut Client<UnixStream>,
    asked: &mut HashMap<u64, Asked>,
    history: &mut History,
    client: usize,
) -> Result<Result<(), Error>, String> {
    let done = match link.receive() {
        Ok(done) => done,
        Err(error) => return Ok(Err(error)),
    };
    let now = shared.tick();
    let asked = asked.remove(&done.cookie).ok_or("a reply to nothing")?;
    if done.result.is_err() {
        return Ok(Ok(()));
    }
    match asked {
        Asked::Flush(began) => history.flushes.push(Flush { began, client }),
        Asked::Op(at) => {
            let op = &mut history.ops[at];
            op.ended = Some(now);
            if let Kind::Read(values) = &mut op.kind {
                *values = decode(op.first, &done.buffer).map_err(|error| format!("client {client} read: {error}"))?;
            }
        }
    }
    Ok(Ok(()))
}
