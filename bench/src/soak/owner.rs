//! The client whose data is watched: it reads, writes and flushes its disk at random, one request at a time, and checks
//! every byte that it reads.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use fastrand::Rng;
use nigh_nbd::client::Client;

use crate::neighbours::connect;
use crate::times::{HITS, TURNS_PER_FLUSH, Times, WRITES};

const BLOCK: usize = 4096;
/// Of its disk: more than memory holds.
const DISK: u64 = 256 << 20;
const BLOCKS: usize = DISK as usize / BLOCK;
/// Blocks that are read again and again.
const HOT: usize = 64;

pub(super) struct Owner {
    client: Client<UnixStream>,
    random: Rng,
    /// How often each block was written.
    versions: Vec<u32>,
}

/// Content of a block after this many writes.
fn content(block: usize, version: u32, out: &mut [u8; BLOCK]) {
    let word = (block as u64) << 32 | u64::from(version);
    for bytes in out.as_chunks_mut::<8>().0 {
        *bytes = word.to_le_bytes();
    }
}

/// Makes the file of the disk. All its blocks are written: holes are read faster.
pub(super) fn prepare(file: &Path) -> anyhow::Result<()> {
    let mut bytes = vec![0; DISK as usize];
    for (block, bytes) in bytes.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        content(block, 1, bytes);
    }
    std::fs::write(file, bytes).with_context(|| file.display().to_string())
}

impl Owner {
    pub(super) fn new(socket: &Path, seed: u64) -> anyhow::Result<Owner> {
        Ok(Owner { client: connect(socket, "own")?, random: Rng::with_seed(seed), versions: vec![1; BLOCKS] })
    }

    /// Works until it is over; what it waits is added to `times`.
    pub(super) fn work(&mut self, times: &Mutex<Times>, over: &AtomicBool) -> anyhow::Result<()> {
        // Once, so that they are hits from now on.
        for block in 0..HOT {
            self.read(block)?;
        }
        while !over.load(Ordering::Relaxed) {
            let mut turn = Times::default();
            for _ in 0..HITS {
                let block = self.random.usize(..HOT);
                turn.time(0, || self.read(block))?;
            }
            let block = self.random.usize(HOT..BLOCKS);
            turn.time(1, || self.read(block))?;
            for _ in 0..WRITES {
                let block = self.random.usize(HOT..BLOCKS);
                turn.time(2, || self.write(block))?;
            }
            if self.random.u64(..TURNS_PER_FLUSH) == 0 {
                turn.time(3, || self.client.flush()).context("a flush")?;
            }
            times.lock().expect("no thread panics").append(turn);
        }
        Ok(())
    }

    fn read(&mut self, block: usize) -> anyhow::Result<()> {
        let mut expected = [0; BLOCK];
        content(block, self.versions[block], &mut expected);
        let read =
            self.client.read((block * BLOCK) as u64, BLOCK).with_context(|| format!("a read of block {block}"))?;
        ensure!(read == expected, "block {block} is not what write {} of it wrote", self.versions[block]);
        Ok(())
    }

    fn write(&mut self, block: usize) -> anyhow::Result<()> {
        let mut bytes = [0; BLOCK];
        content(block, self.versions[block] + 1, &mut bytes);
        self.client.write((block * BLOCK) as u64, &bytes).with_context(|| format!("a write of block {block}"))?;
        self.versions[block] += 1;
        Ok(())
    }

    /// Whether a file has all that was written: how many blocks were, since it was made.
    pub(super) fn check(&self, file: &Path) -> anyhow::Result<usize> {
        let bytes = std::fs::read(file)?;
        ensure!(bytes.len() as u64 == DISK, "the disk has {} bytes", bytes.len());
        let mut expected = [0; BLOCK];
        for (block, (bytes, version)) in bytes.chunks_exact(BLOCK).zip(&self.versions).enumerate() {
            content(block, *version, &mut expected);
            ensure!(bytes == expected, "block {block} of the file is not what write {version} of it wrote");
        }
        Ok(self.versions.iter().filter(|version| **version > 1).count())
    }
}
