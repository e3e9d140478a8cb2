//! A level server, and a client that speaks its protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use nigh_level::{Decoded, Hello, MESSAGE_MAX, Place, Reply, Request, Result as Outcome, VERSIONS, Welcome};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use super::Killed;
use crate::measure::nigh;
use crate::peers::on_servers_processor;

const BLOCK: usize = 4096;

/// A running `nigh level`.
pub(super) struct LevelProcess {
    _process: Killed,
    pub(super) port: u16,
    clock: ClockId,
}

impl LevelProcess {
    /// Starts it where the calling thread runs.
    pub(super) fn start(memory: &str) -> anyhow::Result<LevelProcess> {
        LevelProcess::start_with(memory, |_| ())
    }

    /// As `start`, with more arguments.
    pub(super) fn start_with(memory: &str, more: impl FnOnce(&mut Command)) -> anyhow::Result<LevelProcess> {
        let mut command = nigh()?;
        command.args(["level", "--listen", "tcp:127.0.0.1:0", "--memory", memory]).stderr(Stdio::piped());
        more(&mut command);
        let mut process = command.stdin(Stdio::null()).spawn().context("starting nigh level")?;
        let clock = clock_getcpuclockid(Pid::from_raw(process.id() as i32))?;
        let stderr = process.stderr.take().context("its log")?;
        let mut level = LevelProcess { _process: Killed(process), port: 0, clock };
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("listening on")).context("nigh level does not listen")?;
        level.port = line.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).context("its port")?;
        // It never waits for a reader then.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(level)
    }

    /// As `start`, on the processor of the servers.
    pub(super) fn start_pinned(memory: &str) -> anyhow::Result<LevelProcess> {
        on_servers_processor(|| LevelProcess::start(memory))
    }

    /// User and system time of all its threads so far.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(self.clock.now()?.into())
    }
}

/// A client with one namespace.
pub(super) struct LevelConnection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    place: Place,
    blocks: u64,
    random: Rng,
}

impl LevelConnection {
    pub(super) fn open(port: u16) -> anyhow::Result<LevelConnection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let place = Place { namespace: 0, epoch: 1, block: 0 };
        let (buffer, random) = (vec![0; 4 * MESSAGE_MAX].into(), Rng::with_seed(3));
        let mut connection = LevelConnection { stream, buffer, start: 0, end: 0, place, blocks: 0, random };
        let versions = (*VERSIONS.start(), *VERSIONS.end());
        let mut out = Vec::new();
        Hello { versions, block_bytes: BLOCK as u32, level: 1, instance: 1, name: "bench" }.encode(&mut out);
        Request::Open { name: "bench", epoch: 1, resumes: 0 }.encode(0, &mut out);
        connection.stream.write_all(&out)?;
        while let Decoded::Need(_) = Welcome::decode(connection.rest())? {
            connection.receive()?;
        }
        if let Decoded::Whole(_, length) = Welcome::decode(connection.rest())? {
            connection.start += length;
        }
        let mut namespace = None;
        connection.replies(1, |reply| {
            let Outcome::Opened { namespace: opened, .. } = reply.result else { bail!("not opened: {reply:?}") };
            namespace = Some(opened);
            Ok(())
        })?;
        connection.place.namespace = namespace.context("no namespace")?;
        Ok(connection)
    }

    /// Demotes blocks, each of which begins with its number.
    pub(super) fn fill(&mut self, blocks: u64) -> anyhow::Result<()> {
        let mut data = vec![0xa5; BLOCK];
        for block in 0..blocks {
            data[..8].copy_from_slice(&block.to_be_bytes());
            let mut out = Vec::new();
            let place = Place { block, ..self.place };
            Request::Demote { place, from: 0, to: 1, age_us: 0, data: &data }.encode(block, &mut out);
            self.stream.write_all(&out)?;
            self.replies(1, |reply| {
                ensure!(reply.result == Outcome::Done, "not stored: {reply:?}");
                Ok(())
            })?;
        }
        self.blocks = blocks;
        Ok(())
    }

    /// Retrieves random blocks, `depth` of them at a time: as many are asked for as were replied to. Each is checked.
    pub(super) fn retrieve_for(&mut self, depth: usize, how_long: Duration) -> anyhow::Result<u64> {
        let begun = Instant::now();
        let (mut pending, mut done) = (0, 0);
        let mut out = Vec::new();
        loop {
            let is_over = begun.elapsed() >= how_long;
            while pending < depth && !is_over {
                let block = self.random.u64(..self.blocks);
                let place = Place { block, ..self.place };
                Request::Retrieve { place, from: Some(1), to: Some(1) }.encode(block, &mut out);
                pending += 1;
            }
            if pending == 0 {
                return Ok(done);
            }
            self.stream.write_all(&out)?;
            out.clear();
            let replies = self.replies(1, |reply| {
                let Outcome::Found { data, .. } = reply.result else { bail!("not found: {reply:?}") };
                ensure!(data.first_chunk() == Some(&reply.cookie.to_be_bytes()), "another block");
                Ok(())
            })?;
            pending -= replies;
            done += replies as u64;
        }
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes the replies that are there, and waits until they are at least `least`. Returns how many.
    fn replies(&mut self, least: usize, mut of: impl FnMut(Reply<'_>) -> anyhow::Result<()>) -> anyhow::Result<usize> {
        let mut count = 0;
        loop {
            while let Decoded::Whole(reply, length) = Reply::decode(&self.buffer[self.start..self.end])? {
                of(reply)?;
                self.start += length;
                count += 1;
            }
            if count >= least {
                return Ok(count);
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = self.stream.read(&mut self.buffer[self.end..])?;
        ensure!(read > 0, "the level server hung up");
        self.end += read;
        Ok(())
    }
}
