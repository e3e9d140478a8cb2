//! The client that is measured: hits, misses, writes and flushes in turns, one at a time, each checked.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nigh_nbd::client::Client;

use crate::neighbours::{Turn, connect};
use crate::times::{HITS, TURNS_PER_FLUSH, Times, WRITES};

const BLOCK: usize = 4096;
/// Blocks that are read again and again.
const HOT: u64 = 64;
/// Blocks that are written again and again, behind those.
const WRITTEN: u64 = 512;
/// Blocks that are read once, behind those; one of each this many, so that none is fetched with another.
const STRIDE: u64 = 8;

pub(super) struct Victim {
    client: Client<UnixStream>,
    /// Beginning of its part of the disk.
    base: u64,
    turns: u64,
}

impl Victim {
    pub(super) fn new(socket: &Path, export: &str, base: u64) -> anyhow::Result<Victim> {
        let mut client = connect(socket, export)?;
        for block in 0..HOT {
            client.write(base + block * BLOCK as u64, &[block as u8 + 1; BLOCK])?;
        }
        client.flush()?;
        Ok(Victim { client, base, turns: 0 })
    }

    /// In a thread that has a processor whenever it wants one, as on a machine of its own.
    pub(super) fn measure(&mut self, how_long: Duration) -> anyhow::Result<Times> {
        let measure = || {
            Turn::First.take()?;
            self.measure_here(how_long)
        };
        std::thread::scope(|scope| scope.spawn(measure).join().expect("a client does not panic"))
    }

    fn measure_here(&mut self, how_long: Duration) -> anyhow::Result<Times> {
        let mut times = Times::default();
        let (client, base) = (&mut self.client, self.base);
        let begun = Instant::now();
        while begun.elapsed() < how_long || times.lacks_some() {
            self.turns += 1;
            for at in 0..HITS {
                let block = (self.turns * HITS + at) % HOT;
                let read = times.time(0, || client.read(base + block * BLOCK as u64, BLOCK))?;
                ensure!(read == [block as u8 + 1; BLOCK], "block {block} has the contents of another");
            }
            let block = HOT + WRITTEN + self.turns * STRIDE;
            let read = times.time(1, || client.read(base + block * BLOCK as u64, BLOCK))?;
            ensure!(read == [0; BLOCK], "block {block}, never written, is not zeros");
            for at in 0..WRITES {
                let block = HOT + (self.turns * WRITES + at) % WRITTEN;
                times.time(2, || client.write(base + block * BLOCK as u64, &[self.turns as u8; BLOCK]))?;
            }
            if self.turns.is_multiple_of(TURNS_PER_FLUSH) {
                times.time(3, || client.flush())?;
            }
        }
        Ok(times)
    }
}
