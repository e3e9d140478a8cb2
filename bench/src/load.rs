//! The load: reads over one connection, the same code for every server.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nigh_nbd::client::{Client, Handshake};
use nigh_nbd::wire::{chunk_flag, command};
use nigh_nbd::{Decoded, Framing, ReplyHeader, RequestHeader};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Every multiple of it begins with its own offset, so that a wrong reply is noticed.
pub(crate) const STAMPED: u64 = 4096;
const BUFFER: usize = 4 << 20;

/// In which order blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Random,
    Sequential,
}

/// The reads.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    pub(crate) range: Range<u64>,
    pub(crate) length: u64,
    pub(crate) order: Order,
    /// How many are on their way: as soon as some were replied to, as many are asked for, in one message.
    pub(crate) depth: usize,
}

/// Results.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) elapsed: Duration,
    pub(crate) latencies_ns: Vec<u64>,
}

impl Found {
    pub(crate) fn per_second(&self) -> f64 {
        self.latencies_ns.len() as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn p50_us(&mut self) -> f64 {
        let middle = self.latencies_ns.len() / 2;
        *self.latencies_ns.select_nth_unstable(middle).1 as f64 / 1e3
    }
}

/// A connection that only reads.
pub(crate) struct Connection {
    /// A socket.
    stream: File,
    framing: Framing,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    seed: u64,
    next: u64,
}

impl Connection {
    /// Connects with structured replies where the server knows them, as libnbd and QEMU do.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Connection> {
        Connection::to(socket, "")
    }

    /// As `open`, to the export of this name.
    pub(crate) fn to(socket: &Path, export: &str) -> anyhow::Result<Connection> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        Connection::over(stream.into(), export)
    }

    /// To the first export of a server that listens on this port of this machine.
    pub(crate) fn over_tcp(port: u16) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Connection::over(stream.into(), "")
    }

    fn over(socket: OwnedFd, export: &str) -> anyhow::Result<Connection> {
        let stream = File::from(socket);
        let mut handshake = Handshake::begin(&stream)?;
        handshake.structured_replies()?;
        let framing = handshake.go(export)?.framing();
        let buffer = vec![0; BUFFER].into();
        Ok(Connection { stream, framing, buffer, start: 0, end: 0, seed: 0x9e37_79b9_7f4a_7c15, next: 0 })
    }

    /// With random offsets of its own; `seed` is not 0.
    pub(crate) fn seeded(self, seed: u64) -> Connection {
        Connection { seed: seed.wrapping_mul(self.seed), ..self }
    }

    /// Reads for `how_long`.
    pub(crate) fn read_for(&mut self, reads: &Reads, how_long: Duration) -> anyhow::Result<Found> {
        self.read_until(reads, |begun, _| begun.elapsed() >= how_long)
    }

    /// Reads all of a range once.
    pub(crate) fn read_all(&mut self, range: Range<u64>) -> anyhow::Result<()> {
        let length = (256 << 10).min(range.end - range.start);
        let count = (range.end - range.start).div_ceil(length);
        self.next = 0;
        self.read_until(&Reads { range, length, order: Order::Sequential, depth: 8 }, |_, asked| asked >= count)?;
        Ok(())
    }

    /// Reads until `over` returns true, given when it began and how many were asked for.
    pub(crate) fn read_until(&mut self, reads: &Reads, over: impl Fn(Instant, u64) -> bool) -> anyhow::Result<Found> {
        let mut asked: Vec<(u64, Instant)> = Vec::new();
        let mut free: Vec<usize> = (0..reads.depth).collect();
        let mut out = Vec::new();
        let mut found = Found::default();
        let (begun, mut count) = (Instant::now(), 0);
        loop {
            let now = Instant::now();
            while !over(begun, count) {
                let Some(place) = free.pop() else { break };
                let offset = self.pick(reads);
                let header = RequestHeader {
                    flags: 0,
                    command: command::READ,
                    cookie: place as u64,
                    offset,
                    length: reads.length,
                };
                out.extend_from_slice(&header.encode(self.framing).context("a request too long")?);
                asked.resize(asked.len().max(place + 1), (0, now));
                asked[place] = (offset, now);
                count += 1;
            }
            if !out.is_empty() {
                self.stream.write_all(&out)?;
                out.clear();
            }
            if free.len() == reads.depth {
                found.elapsed = begun.elapsed();
                return Ok(found);
            }
            self.receive()?;
            let now = Instant::now();
            while let Some(cookie) = self.reply(reads.length as usize, |cookie| {
                let (offset, _) = asked.get(cookie as usize)?;
                Some(*offset)
            })? {
                found.latencies_ns.push(now.duration_since(asked[cookie as usize].1).as_nanos() as u64);
                free.push(cookie as usize);
            }
        }
    }

    fn pick(&mut self, reads: &Reads) -> u64 {
        let count = (reads.range.end - reads.range.start) / reads.length;
        let at = match reads.order {
            Order::Sequential => self.next % count,
            Order::Random => {
                // xorshift64
                self.seed ^= self.seed << 13;
                self.seed ^= self.seed >> 7;
                self.seed ^= self.seed << 17;
                self.seed % count
            }
        };
        self.next += 1;
        reads.range.start + at * reads.length
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // As libnbd and QEMU wait.
        poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
        let read = self.stream.read(&mut self.buffer[self.end..])?;
        ensure!(read > 0, "the server hung up");
        self.end += read;
        Ok(())
    }

    /// The cookie of the next read whose reply is here as a whole; `offset` returns the offset that was asked with it.
    fn reply(&mut self, length: usize, offset: impl Fn(u64) -> Option<u64>) -> anyhow::Result<Option<u64>> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let Decoded::Whole(header, head) = ReplyHeader::decode(self.framing, bytes)? else { return Ok(None) };
            let (cookie, payload, skipped, last) = match header {
                ReplyHeader::Simple { errno, cookie } => {
                    ensure!(errno == 0, "a read failed with {errno}");
                    (cookie, length, 0, true)
                }
                ReplyHeader::Chunk { flags, kind, cookie, length } => {
                    ensure!(kind < 1 << 15, "a read failed");
                    (cookie, length as usize, 8, flags & chunk_flag::DONE != 0)
                }
            };
            if bytes.len() < head + payload {
                return Ok(None);
            }
            let data = &bytes[head..head + payload];
            let asked = offset(cookie).context("a reply to nothing")?;
            if let Some(&[a, b, c, d, e, f, g, h]) = data.get(skipped..skipped + 8) {
                let stamp = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                if stamp != 0 && stamp != asked {
                    bail!("a read of offset {asked} got the data of {stamp}");
                }
            }
            self.start += head + payload;
            if last {
                return Ok(Some(cookie));
            }
        }
    }
}

/// How many bytes are stamped at once.
const STEP: usize = 1 << 20;

/// A [`STEP`] of a disk from `offset` on, each block stamped with its offset.
fn stamped(offset: u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; STEP];
    for (block, at) in bytes.chunks_mut(STAMPED as usize).zip((offset..).step_by(STAMPED as usize)) {
        block[..8].copy_from_slice(&at.to_be_bytes());
    }
    bytes
}

/// Writes stamped blocks to a disk's image.
pub(crate) fn stamp(image: &File, range: Range<u64>) -> std::io::Result<()> {
    range.step_by(STEP).try_for_each(|offset| image.write_all_at(&stamped(offset), offset))
}

/// Writes stamped blocks over the wire.
pub(crate) fn write_stamped(socket: &Path, range: Range<u64>) -> anyhow::Result<()> {
    let mut client = Client::connect(UnixStream::connect(socket)?, "", &[])?;
    for offset in range.step_by(STEP) {
        client.write(offset, &stamped(offset))?;
    }
    Ok(client.flush()?)
}

/// Says whether nigh has all of `range` in its cache.
pub(crate) fn all_cached(socket: &Path, range: Range<u64>) -> anyhow::Result<bool> {
    let mut client = Client::connect(UnixStream::connect(socket)?, "", &["x-nigh:cache"])?;
    let mut at = range.start;
    while at < range.end {
        let status = client.block_status(at, range.end - at)?;
        let extents = &status.first().context("a server that does not tell what is cached")?.extents;
        if extents.iter().any(|extent| extent.flags == 0) {
            return Ok(false);
        }
        at += extents.iter().map(|extent| extent.length).sum::<u64>();
    }
    Ok(true)
}
