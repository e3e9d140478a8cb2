//! A disk with a write log on two devices of this process that lose what was not flushed: torn, in any order, and after flushes that fail.
//!
//! The power of either or both fails, or only the process that serves the disk ends, under writes and reads. Acknowledged writes have to be there.
//! `NIGH_CUTS` sets how often, `NIGH_SEED` what happens.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use nigh_backend::{Custom, CustomAction, CustomDevice, CustomRequest, Options, Target, WriteLogSettings};
use nigh_engine::Op;

use crate::host::{Host, config};

const BLOCK: usize = 4096;
const BLOCKS: usize = 512;
/// The disk ends inside a block.
const SIZE: usize = BLOCKS * BLOCK - 1024;
/// Of the log: often full.
const LOG: usize = 1 << 20;
const SECTOR: usize = 512;
/// Ends of a disk, if no other number is given.
const CUTS: u64 = 40;
/// Requests at a time.
const DEPTH: usize = 6;

struct Platter {
    stable: Vec<u8>,
    current: Vec<u8>,
    /// Writes that no flush has covered.
    volatile: Vec<(usize, Vec<u8>)>,
    is_off: bool,
    /// Of a hundred flushes and writes, so many fail.
    failing: u64,
    random: Rng,
}

/// A device that any number of disks has, one after the other.
struct Volatile(Mutex<Platter>);

impl Volatile {
    fn new(bytes: usize, seed: u64) -> Arc<Volatile> {
        let (stable, current, volatile) = (vec![0; bytes], vec![0; bytes], Vec::new());
        let random = Rng::with_seed(seed);
        Arc::new(Volatile(Mutex::new(Platter { stable, current, volatile, is_off: false, failing: 0, random })))
    }

    fn lock(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap()
    }

    fn start(&self, failing: u64) {
        let mut platter = self.lock();
        (platter.is_off, platter.failing) = (false, failing);
    }

    /// From now on, all requests fail.
    fn stop(&self) {
        self.lock().is_off = true;
    }

    /// Some of what is volatile becomes stable, in any order and torn between sectors.
    fn cut(&self) {
        let mut platter = self.lock();
        let Platter { stable, current, volatile, random, .. } = &mut *platter;
        let share = [0, 100, 50, random.u64(1..100)][random.usize(..4)];
        let mut writes = std::mem::take(volatile);
        if random.bool() {
            random.shuffle(&mut writes);
        }
        for (at, bytes) in writes {
            for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
                if random.u64(..100) < share {
                    stable[at + sector * SECTOR..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        current.clone_from(stable);
    }
}

impl CustomDevice for Volatile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.lock().current.len() as u64)
    }

    fn perform(&self, mut request: CustomRequest) {
        let delay_us = self.lock().random.u64(..150);
        std::thread::sleep(Duration::from_micros(delay_us));
        let mut platter = self.lock();
        let Range { start, end } = request.range();
        let range = start as usize..end as usize;
        let fails = platter.is_off || platter.random.u64(..100) < platter.failing;
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        let result = match request.action() {
            _ if platter.is_off => failed(),
            CustomAction::Read(slices) => {
                let mut at = range.start;
                for mut slice in slices {
                    let length = slice.len();
                    slice.copy_from_slice(&platter.current[at..at + length]);
                    at += length;
                }
                Ok(())
            }
            CustomAction::Write(slices) => {
                let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                if fails {
                    let arrived = platter.random.usize(..=bytes.len() / SECTOR) * SECTOR;
                    bytes.truncate(arrived);
                }
                platter.current[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
                platter.volatile.push((range.start, bytes));
                if fails { failed() } else { Ok(()) }
            }
            CustomAction::Flush if fails => {
                // Reads still return what never becomes stable.
                platter.volatile.clear();
                failed()
            }
            CustomAction::Flush => {
                let Platter { stable, volatile, .. } = &mut *platter;
                volatile.drain(..).for_each(|(at, bytes)| stable[at..at + bytes.len()].copy_from_slice(&bytes));
                Ok(())
            }
            CustomAction::Discard => Ok(()),
            CustomAction::Zero => {
                let zeros = vec![0; range.len()];
                platter.current[range.clone()].fill(0);
                platter.volatile.push((range.start, zeros));
                Ok(())
            }
        };
        drop(platter);
        request.finish(result);
    }
}

struct Bench {
    home: Arc<Volatile>,
    log: Arc<Volatile>,
    /// The value of each block that was acknowledged last.
    model: Vec<u64>,
    values: u64,
    acknowledged: u64,
}

fn range_of(blocks: &Range<usize>) -> Range<usize> {
    blocks.start * BLOCK..(blocks.end * BLOCK).min(SIZE)
}

/// The value of a block, which is whole.
fn value_of(bytes: &[u8], block: usize) -> u64 {
    let words: Vec<u64> = bytes[range_of(&(block..block + 1))]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert!(words.iter().all(|word| *word == words[0]), "block {block} is not whole");
    words[0]
}

impl Bench {
    fn open(&self) -> Host {
        let custom = |name: &str, device: &Arc<Volatile>| Target::Custom(Custom::new(name, 4, device.clone()));
        let log = WriteLogSettings { target: custom("log", &self.log), bytes: LOG as u64 };
        let device = custom("home", &self.home).open_logged(&log, &Options::default());
        Host::new(device.unwrap_or_else(|error| panic!("it does not open: {error}")), config(4096))
    }

    fn all(host: &mut Host) -> Vec<u8> {
        (0..SIZE)
            .step_by(1 << 20)
            .flat_map(|at| host.read(at as u64, (SIZE - at).min(1 << 20) as u64).expect("a read"))
            .collect()
    }

    fn round(&mut self, random: &mut Rng) {
        let failing = if random.u8(..3) == 0 { 20 } else { 0 };
        self.home.start(0);
        self.log.start(0);
        let mut host = self.open();
        self.home.start(failing);
        self.log.start(failing / 5);
        // Values of requests that may have had their effect or not, by block.
        let mut open: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut sent: Vec<(u64, Range<usize>, Option<u64>)> = Vec::new();
        for _ in 0..random.u32(..400) {
            host.pump();
            for at in (0..sent.len()).rev() {
                let Some(ended) = host.try_end(sent[at].0) else { continue };
                let (_, blocks, value) = sent.swap_remove(at);
                match (value, ended) {
                    (Some(value), Ok(_)) => {
                        self.acknowledged += 1;
                        for block in blocks {
                            self.model[block] = value;
                            open.remove(&block);
                        }
                    }
                    // It may have arrived, and nothing else is allowed there from now on.
                    (Some(value), Err(_)) => blocks.for_each(|block| open.entry(block).or_default().push(value)),
                    (None, Ok(bytes)) if !bytes.is_empty() => {
                        let mut whole = vec![0; SIZE];
                        whole[range_of(&blocks)].copy_from_slice(&bytes);
                        for block in blocks {
                            let value = value_of(&whole, block);
                            let is_open = open.get(&block).is_some_and(|open| open.contains(&value));
                            assert!(value == self.model[block] || is_open, "block {block} was read as {value}");
                        }
                    }
                    (None, _) => {}
                }
            }
            if sent.len() >= DEPTH {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let area = if random.bool() { 24 } else { BLOCKS };
            let first = random.usize(..area);
            let most = if random.u8(..5) == 0 { 40 } else { 3 };
            let blocks = first..(first + random.usize(1..=most)).min(BLOCKS);
            let is_busy =
                |other: &(u64, Range<usize>, Option<u64>)| other.1.start < blocks.end && blocks.start < other.1.end;
            if sent.iter().any(is_busy) {
                continue;
            }
            let bytes = range_of(&blocks);
            let (offset, length) = (bytes.start as u64, bytes.len() as u64);
            match random.u8(..10) {
                0 => {
                    let token = host.begin(Op::Flush, 0, 0, &[]);
                    sent.push((token, 0..0, None));
                }
                1 => {
                    let token = host.begin(Op::Zeroes { keep: random.bool(), fast: false }, offset, length, &[]);
                    sent.push((token, blocks, Some(0)));
                }
                2..7 => {
                    self.values += 1;
                    let data = self.values.to_le_bytes().repeat(bytes.len() / 8);
                    let token = host.begin(Op::Write, offset, length, &data);
                    sent.push((token, blocks, Some(self.values)));
                }
                _ => {
                    let token = host.begin(Op::Read, offset, length, &[]);
                    sent.push((token, blocks, None));
                }
            }
        }
        for (_, blocks, value) in sent {
            blocks.for_each(|block| open.entry(block).or_default().extend(value));
        }
        let end = random.u8(..5);
        if end < 4 {
            // Both stop; the power of none, one or both is gone.
            self.home.stop();
            self.log.stop();
            if end & 1 > 0 {
                self.home.cut();
            }
            if end & 2 > 0 {
                self.log.cut();
            }
            drop(host.into_device());
        } else {
            // An orderly end, and then the power fails.
            drop(host.into_device());
            self.home.cut();
            self.log.cut();
        }
        self.home.start(0);
        self.log.start(0);
        let mut host = self.open();
        let bytes = Bench::all(&mut host);
        for block in 0..BLOCKS {
            let value = value_of(&bytes, block);
            let is_open = open.get(&block).is_some_and(|open| open.contains(&value));
            let expected = self.model[block];
            assert!(
                value == expected || is_open,
                "after end {end}, block {block} is {value} and not {expected} of {open:?}"
            );
            self.model[block] = value;
        }
        self.home.stop();
        self.log.stop();
        drop(host.into_device());
    }
}

#[test]
fn nothing_acknowledged_is_lost_on_devices_that_lose_power() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let (cuts, seed) = (number("NIGH_CUTS", CUTS), number("NIGH_SEED", 1));
    let mut random = Rng::with_seed(seed);
    let (home, log) = (Volatile::new(SIZE, seed), Volatile::new(LOG, seed + 1));
    let mut bench = Bench { home, log, model: vec![0; BLOCKS], values: 0, acknowledged: 0 };
    for _ in 0..cuts {
        bench.round(&mut random);
    }
    println!("{cuts} ends, {} changes acknowledged, none lost", bench.acknowledged);
    assert!(bench.acknowledged > cuts, "clients did something");
}
