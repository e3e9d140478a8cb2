//! A log and its disk on two devices that lose what was not flushed, torn and in any order; one device, both, or only the process ends.
//!
//! After each end, every sector has the bytes of the last change that was acknowledged, or of one that was on its way. And the disk alone, without
//! its log, is as of a flush: what is between two flushes may be there in any selection, and all before is.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;
use nigh_writelog::{
    BLOCK, Change, HomeOp, HomeWork, Id, Kind, Log, OpenError, Owner, Settings, Source, Sum, format, open,
};

const SECTOR: u64 = 512;
const BLOCKS: u64 = 40;
/// The disk ends inside a block.
const DISK: u64 = BLOCKS * BLOCK - 2 * SECTOR;
const ID: Id = [3; 16];

/// A device whose writes are volatile until it is flushed.
struct Platter {
    stable: Vec<u8>,
    current: Vec<u8>,
    /// Writes that no flush has covered: start and length.
    volatile: Vec<(usize, Vec<u8>)>,
}

impl Platter {
    fn new(bytes: Vec<u8>) -> Platter {
        Platter { stable: bytes.clone(), current: bytes, volatile: Vec::new() }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.current[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.volatile.push((at as usize, bytes.to_vec()));
    }

    fn sync(&mut self) {
        for (at, bytes) in self.volatile.drain(..) {
            self.stable[at..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// A sync fails: reads still return what was written, but it never becomes stable.
    fn forget(&mut self) {
        self.volatile.clear();
    }

    fn cut(&mut self, random: &mut Rng) {
        let share = [0, 100, 50, random.u64(1..100)][random.usize(..4)];
        let mut writes = std::mem::take(&mut self.volatile);
        // Now and then in their order.
        if random.bool() {
            random.shuffle(&mut writes);
        }
        for (at, bytes) in writes {
            for start in (0..bytes.len()).step_by(SECTOR as usize) {
                let end = (start + SECTOR as usize).min(bytes.len());
                if random.u64(..100) < share {
                    self.stable[at + start..at + end].copy_from_slice(&bytes[start..end]);
                }
            }
        }
        self.current.clone_from(&self.stable);
    }
}

/// A change in the history of a sector.
#[derive(Clone, Copy, Debug)]
struct Past {
    value: u64,
    token: u64,
    is_discard: bool,
    /// Flushes before it was submitted.
    from: u64,
    /// Flushes before it was acknowledged.
    until: Option<u64>,
}

struct Sent {
    kind: Kind,
    range: Range<u64>,
    value: u64,
}

struct Committing {
    writes: Vec<(u64, Vec<u8>)>,
    left: Vec<usize>,
}

struct World {
    random: Rng,
    log: Log,
    log_bytes: u64,
    device: Platter,
    home: Platter,
    now_us: u64,
    tokens: u64,
    flushes: u64,
    sent: BTreeMap<u64, Sent>,
    committing: Option<Committing>,
    home_ops: Vec<HomeOp>,
    /// For each sector, oldest first.
    past: Vec<Vec<Past>>,
    /// The latest flush that the disk alone was as of.
    as_of: u64,
    failing: u64,
    acknowledged: u64,
}

fn settings() -> Settings {
    Settings { age_us: 5_000, retry_us: 300, patience_us: 1 << 60, depth: 4, copy_bytes: 5 * BLOCK }
}

fn sector_value(bytes: &[u8], sector: u64) -> u64 {
    let words: Vec<u64> = bytes[(sector * SECTOR) as usize..][..SECTOR as usize]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert!(words.iter().all(|word| *word == words[0]), "sector {sector} is torn inside");
    words[0]
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Rng::with_seed(seed);
        let log_bytes = (2 + random.u64(16..80)) * BLOCK;
        let mut bytes = vec![0; log_bytes as usize];
        let first = format(ID, log_bytes, DISK).unwrap();
        bytes[..first.len()].copy_from_slice(&first);
        let mut device = Platter::new(bytes);
        let log = open_on(&mut device, &mut random, log_bytes, Owner::Log(ID), 0).unwrap();
        let failing = [0, 0, 5, 25][random.usize(..4)];
        let first = Past { value: 0, token: 0, is_discard: false, from: 0, until: Some(0) };
        World {
            random,
            log,
            log_bytes,
            device,
            home: Platter::new(vec![0; DISK as usize]),
            now_us: 0,
            tokens: 0,
            flushes: 0,
            sent: BTreeMap::new(),
            committing: None,
            home_ops: Vec::new(),
            past: vec![vec![first]; (DISK / SECTOR) as usize],
            as_of: 0,
            failing,
            acknowledged: 0,
        }
    }

    fn step(&mut self) {
        self.now_us += self.random.u64(..200);
        match self.random.u32(..100) {
            0..20 => self.submit(),
            20..24 => {
                self.flushes += 1;
                self.log.flush();
            }
            24..34 => self.read(),
            34..70 => self.commit(),
            70..99 => self.go_home(),
            _ => self.end(),
        }
    }

    fn submit(&mut self) {
        let first = self.random.u64(..BLOCKS);
        let last = match self.random.u32(..4) {
            0 => self.random.u64(first..BLOCKS),
            _ => (first + self.random.u64(..3)).min(BLOCKS - 1),
        };
        let range = first * BLOCK..((last + 1) * BLOCK).min(DISK);
        let is_busy = |sent: &Sent| sent.range.start < range.end && range.start < sent.range.end;
        if self.sent.values().any(is_busy) {
            return;
        }
        self.tokens += 1;
        let (kind, value) = match self.random.u32(..8) {
            0 => (Kind::Zeroes { keep: self.random.bool() }, 0),
            1 => (Kind::Discard, 0),
            _ => (Kind::Data, self.tokens),
        };
        let past =
            Past { value, token: self.tokens, is_discard: kind == Kind::Discard, from: self.flushes, until: None };
        (range.start / SECTOR..range.end / SECTOR).for_each(|sector| self.past[sector as usize].push(past));
        self.log.submit(self.tokens, Change { kind, range: range.clone() });
        self.sent.insert(self.tokens, Sent { kind, range, value });
    }

    fn commit(&mut self) {
        if self.committing.is_none() {
            let Some(commit) = self.log.next_commit(self.now_us) else { return };
            let mut writes = Vec::new();
            if let Some((at, superblock)) = commit.superblock {
                writes.push((at, superblock.to_vec()));
            }
            if let Some(group) = commit.group {
                let (mut sum, mut data) = (Sum::default(), Vec::new());
                for part in &group.parts {
                    let sent = &self.sent[&part.token];
                    assert_eq!(sent.kind, Kind::Data);
                    assert!(sent.range.start + part.skip + part.length <= sent.range.end);
                    assert_eq!(part.offset, group.offset + BLOCK + data.len() as u64);
                    data.extend(sent.value.to_le_bytes().repeat(part.length as usize / 8));
                    data.resize(data.len().next_multiple_of(BLOCK as usize), 0);
                }
                assert_eq!(data.len() as u64, group.data_blocks() * BLOCK);
                sum.add(&data);
                let header = self.log.header(&group, sum.value());
                writes.push((group.offset, header.to_vec()));
                // In several writes, which are torn and reordered.
                let cut = self.random.usize(..=data.len());
                writes.push((group.offset + BLOCK, data[..cut].to_vec()));
                writes.push((group.offset + BLOCK + cut as u64, data[cut..].to_vec()));
            }
            let left = (0..writes.len()).collect();
            self.committing = Some(Committing { writes, left });
            return;
        }
        let commit = self.committing.as_mut().unwrap();
        if let Some(next) = commit.left.pop() {
            let (at, bytes) = &commit.writes[next];
            self.device.write(*at, bytes);
            self.random.shuffle(&mut commit.left);
        } else if self.random.u64(..100) < self.failing {
            self.device.forget();
            commit.left = (0..commit.writes.len()).collect();
        } else {
            self.device.sync();
            self.committing = None;
            for token in self.log.committed() {
                self.acknowledge(token);
            }
            self.log.check();
        }
    }

    fn acknowledge(&mut self, token: u64) {
        let sent = self.sent.remove(&token).unwrap();
        self.acknowledged += 1;
        for sector in sent.range.start / SECTOR..sent.range.end / SECTOR {
            let past = self.past[sector as usize].iter_mut().find(|past| past.token == token).unwrap();
            past.until = Some(self.flushes);
        }
    }

    /// Values that a read of a sector may return.
    fn allowed(&self, sector: u64, with_sent: bool) -> Vec<u64> {
        let past = &self.past[sector as usize];
        let base = past.iter().rposition(|past| past.until.is_some() && !past.is_discard).unwrap();
        past[base..].iter().filter(|past| with_sent || past.until.is_some()).map(|past| past.value).collect()
    }

    fn bytes(&mut self, range: Range<u64>) -> Vec<u8> {
        let reading = self.log.read(range.clone());
        let mut bytes = Vec::new();
        let mut at = range.start;
        for piece in &reading.pieces {
            assert_eq!(piece.range.start, at);
            at = piece.range.end;
            let length = (piece.range.end - piece.range.start) as usize;
            match piece.source {
                Source::Home => bytes.extend(&self.home.current[piece.range.start as usize..][..length]),
                Source::Log(place) => bytes.extend(&self.device.current[place as usize..][..length]),
                Source::Zeroes => bytes.resize(bytes.len() + length, 0),
            }
        }
        assert_eq!(at, range.end);
        self.log.unpin(reading.pin);
        bytes
    }

    fn read(&mut self) {
        let first = self.random.u64(..BLOCKS);
        let last = (first + self.random.u64(..6)).min(BLOCKS - 1);
        let range = first * BLOCK..((last + 1) * BLOCK).min(DISK);
        let is_busy = |sent: &Sent| sent.range.start < range.end && range.start < sent.range.end;
        if self.sent.values().any(is_busy) {
            return;
        }
        let bytes = self.bytes(range.clone());
        for sector in 0..bytes.len() as u64 / SECTOR {
            let value = sector_value(&bytes, sector);
            let allowed = self.allowed(range.start / SECTOR + sector, false);
            assert!(allowed.contains(&value), "sector {sector} of {range:?} is {value}, not one of {allowed:?}");
        }
    }

    fn go_home(&mut self) {
        if self.home_ops.is_empty() || self.random.bool() {
            self.home_ops.extend(self.log.next_home(self.now_us));
        }
        if self.home_ops.is_empty() || self.random.bool() {
            return;
        }
        let op = self.home_ops.swap_remove(self.random.usize(..self.home_ops.len()));
        let fails = self.random.u64(..100) < self.failing;
        self.perform(&op, fails);
        self.log.home_done(self.now_us, !fails);
        self.log.check();
    }

    fn perform(&mut self, op: &HomeOp, fails: bool) {
        let length = (op.range.end - op.range.start) as usize;
        let bytes = match &op.work {
            HomeWork::Copy(parts) => {
                let mut bytes = Vec::new();
                for (at, length) in parts {
                    bytes.extend(&self.device.current[*at as usize..][..*length as usize]);
                }
                assert_eq!(bytes.len(), length);
                bytes
            }
            HomeWork::Zeroes { .. } => vec![0; length],
            // Advice, which this disk takes half of the time.
            HomeWork::Discard if self.random.bool() => vec![0; length],
            HomeWork::Discard => return,
            HomeWork::Flush if fails => return self.home.forget(),
            HomeWork::Flush => return self.home.sync(),
        };
        // Half of a failed write may have arrived.
        let arrived = if fails { self.random.usize(..=length) / SECTOR as usize * SECTOR as usize } else { length };
        if arrived > 0 {
            self.home.write(op.range.start, &bytes[..arrived]);
        }
    }

    /// The process ends, with the power of none, one or both of the devices.
    fn end(&mut self) {
        if let Some(commit) = &mut self.committing {
            // Some of what is on its way arrives.
            while self.random.u32(..4) > 0
                && let Some(next) = commit.left.pop()
            {
                let (at, bytes) = &commit.writes[next];
                self.device.write(*at, bytes);
            }
        }
        for op in std::mem::take(&mut self.home_ops) {
            if op.work != HomeWork::Flush && self.random.bool() {
                self.perform(&op, true);
            }
        }
        self.committing = None;
        let ends = self.random.u32(..4);
        if ends & 1 > 0 {
            self.device.cut(&mut self.random);
        }
        if ends & 2 > 0 {
            self.home.cut(&mut self.random);
            self.check_home();
        }
        self.log = open_on(&mut self.device, &mut self.random, self.log_bytes, Owner::Log(ID), self.now_us).unwrap();
        self.log.check();
        let bytes = self.bytes(0..DISK);
        self.flushes += 1;
        for sector in 0..DISK / SECTOR {
            let value = sector_value(&bytes, sector);
            let allowed = self.allowed(sector, true);
            let past = &self.past[sector as usize];
            assert!(
                allowed.contains(&value),
                "sector {sector} is {value} after end {ends}, not one of {allowed:?}: {past:?}"
            );
            let past = &mut self.past[sector as usize];
            // Zeros that were on their way and a discard before them look alike.
            let is_vague = past.iter().any(|past| past.is_discard);
            let vague = |past: &&mut Past| past.until.is_none() && past.value == 0 && is_vague;
            past.iter_mut().filter(vague).for_each(|past| past.is_discard = true);
            let is_lost = |past: &Past| past.until.is_none() && past.value != value && !past.is_discard;
            past.retain(|past| !is_lost(past));
            past.iter_mut().filter(|past| past.until.is_none()).for_each(|past| past.until = Some(self.flushes - 1));
        }
        self.sent.clear();
    }

    /// The disk alone is as of a flush.
    fn check_home(&mut self) {
        let values: Vec<u64> = (0..DISK / SECTOR).map(|sector| sector_value(&self.home.current, sector)).collect();
        let fits = |flush: u64| {
            values.iter().zip(&self.past).all(|(value, past)| {
                let is_before = |past: &Past| past.until.is_some_and(|until| until < flush) && !past.is_discard;
                let base = past.iter().rposition(is_before).unwrap_or(0);
                past[base].value == *value || past[base..].iter().any(|past| past.from <= flush && past.value == *value)
            })
        };
        let found = (self.as_of..=self.flushes).find(|flush| fits(*flush));
        let found = found
            .unwrap_or_else(|| panic!("the disk alone is as of none of the flushes {}..={}", self.as_of, self.flushes));
        self.as_of = found;
        for past in &mut self.past {
            let is_before = |past: &Past| past.until.is_some_and(|until| until < found) && !past.is_discard;
            let base = past.iter().rposition(is_before).unwrap_or(0);
            past.drain(..base);
        }
    }

    /// Everything goes home, although the log's device is broken or not.
    fn drain(&mut self) {
        let mut epoch = self.log.drain();
        self.failing = 0;
        for _ in 0..100_000 {
            if self.log.is_home(epoch) {
                if self.sent.is_empty() && self.log.statistics(0).records == 0 {
                    return;
                }
                epoch = self.log.drain();
            }
            self.now_us += 100;
            self.commit();
            self.go_home();
        }
        panic!("it does not become empty");
    }
}

fn open_on(
    device: &mut Platter,
    random: &mut Rng,
    bytes: u64,
    owner: Owner,
    now_us: u64,
) -> Result<Log, OpenError<String>> {
    loop {
        let read = |at: u64, out: &mut [u8]| {
            out.copy_from_slice(&device.current[at as usize..][..out.len()]);
            Ok(())
        };
        let opened = open(settings(), bytes, DISK, owner, now_us, read)?;
        // The power may fail, or the process end, before the log is in use.
        let until = if random.u32(..4) == 0 { random.usize(..4) } else { 4 };
        let mut step = 0;
        for phase in opened.phases {
            for (at, bytes) in phase {
                if step < until {
                    device.write(at, &bytes);
                }
                step += 1;
            }
            if step <= until {
                device.sync();
            }
        }
        if until == 4 {
            return Ok(opened.log);
        }
        if random.bool() {
            device.cut(random);
        }
    }
}

fn seeds(few: u64, many: u64) -> u64 {
    if std::env::var_os("NIGH_TESTS").is_some_and(|tests| tests == "release") { many } else { few }
}

fn each_seed(count: u64, run: impl Fn(u64)) {
    match std::env::var("NIGH_SEED") {
        Ok(seed) => run(seed.parse().unwrap()),
        Err(_) => (0..count).for_each(|seed| {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed))).is_err() {
                panic!("NIGH_SEED={seed}");
            }
        }),
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_the_disk_alone_is_as_of_a_flush() {
    each_seed(seeds(400, 100_000), |seed| {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
        }
        world.drain();
        let home = world.home.current.clone();
        assert!(world.bytes(0..DISK) == home, "something is not home");
    });
}

/// The log's device fails: the ranges that are reported are those that differ, and all goes home as long as it can be read.
#[test]
fn a_log_that_fails_knows_what_is_missing() {
    let mut missed = 0;
    for seed in 0..seeds(100, 5000) {
        let mut world = World::new(seed);
        for _ in 0..200 + seed % 100 {
            world.step();
        }
        let _refused = world.log.fail();
        world.committing = None;
        world.sent.clear();
        let (ranges, count, bytes) = world.log.missing(usize::MAX);
        assert_eq!(count, ranges.len() as u64);
        assert_eq!(bytes, ranges.iter().map(|range| range.end - range.start).sum::<u64>());
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        let (few, all, _) = world.log.missing(2);
        assert!(few.len() <= 2 && all == count && few[..] == ranges[..few.len()]);
        missed += bytes;
        let (home, newest) = (world.home.current.clone(), world.bytes(0..DISK));
        for sector in 0..DISK / SECTOR {
            let is_missing = ranges.iter().any(|range| range.contains(&(sector * SECTOR)));
            let differs = sector_value(&home, sector) != sector_value(&newest, sector);
            assert!(is_missing || !differs, "seed {seed}: sector {sector} is missing and not reported");
        }
        world.drain();
        assert_eq!(world.log.missing(1).1, 0);
        let home = world.home.current.clone();
        assert!(world.bytes(0..DISK) == home, "something is not home");
    }
    assert!(missed > 0);
}

#[test]
fn a_log_of_another_disk_is_refused() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        for _ in 0..50 {
            world.step();
        }
        let is_used = world.log.statistics(0).records > 0;
        let bytes = world.log_bytes;
        let try_open = |owner, disk| {
            let read = |at: u64, out: &mut [u8]| {
                out.copy_from_slice(&world.device.current[at as usize..][..out.len()]);
                Ok::<(), String>(())
            };
            open(settings(), bytes, disk, owner, 0, read).map(|opened| opened.log.id())
        };
        assert_eq!(try_open(Owner::Log([9; 16]), DISK), Err(OpenError::OtherLog));
        assert_eq!(try_open(Owner::Log(ID), DISK), Ok(ID));
        if is_used {
            assert_eq!(try_open(Owner::Nobody([9; 16]), DISK), Err(OpenError::OtherDisk));
            assert_eq!(try_open(Owner::Unknown, DISK + BLOCK), Err(OpenError::Disk { of: DISK, now: DISK + BLOCK }));
            assert_eq!(try_open(Owner::Log(ID), DISK + BLOCK), Ok(ID), "it has grown");
            assert_eq!(try_open(Owner::Log(ID), 0), Err(OpenError::Disk { of: DISK, now: 0 }));
        }
        let read = |_: u64, out: &mut [u8]| {
            out.fill(7);
            Ok::<(), String>(())
        };
        assert_eq!(open(settings(), bytes, DISK, Owner::Unknown, 0, read).err(), Some(OpenError::NoLog));
    }
}

/// The blocks that a read has found in the log stay there until the read is over, although it goes home and the ring comes round.
#[test]
fn the_place_of_a_read_is_not_overwritten() {
    let mut world = World::new(7);
    world.failing = 0;
    while world.log.statistics(0).records == 0 {
        world.submit();
        world.commit();
    }
    let found = |log: &mut Log| {
        let reading = log.read(0..DISK);
        let place = reading.pieces.iter().find_map(|piece| match piece.source {
            Source::Log(place) => Some((place, piece.range.end - piece.range.start)),
            _ => None,
        });
        (reading.pin, place)
    };
    let (mut pin, mut place) = found(&mut world.log);
    while place.is_none() {
        world.log.unpin(pin);
        world.submit();
        world.commit();
        (pin, place) = found(&mut world.log);
    }
    let (at, length) = place.unwrap();
    let bytes = |world: &World| world.device.current[at as usize..(at + length) as usize].to_vec();
    let before = bytes(&world);
    let steps = |world: &mut World| {
        for _ in 0..3000 {
            world.now_us += 100;
            world.submit();
            world.commit();
            world.go_home();
        }
    };
    steps(&mut world);
    assert!(bytes(&world) == before, "it was overwritten");
    assert!(world.log.statistics(0).is_full, "nothing else has room");
    world.log.unpin(pin);
    steps(&mut world);
    assert!(bytes(&world) != before, "its space is used again");
}

/// A full log makes changes wait and loses none; if the disk fails, they are refused after a while.
#[test]
fn a_full_log_waits_for_the_disk_and_refuses_when_that_fails() {
    let mut world = World::new(1);
    world.failing = 0;
    let mut sent = 0;
    while !world.log.statistics(0).is_full {
        world.submit();
        sent += 1;
        world.commit();
        assert!(sent < 10_000);
    }
    let waiting = world.sent.len();
    assert!(waiting > 0);
    for _ in 0..100 {
        world.commit();
    }
    assert_eq!(world.sent.len(), waiting, "nothing is acknowledged without room");
    world.drain();
    for _ in 0..10_000 {
        world.now_us += 100;
        world.commit();
        world.go_home();
    }
    assert!(world.sent.is_empty(), "all of them are in");

    let settings = Settings { patience_us: 1000, ..settings() };
    let mut bytes = vec![0; 18 * BLOCK as usize];
    let first = format(ID, bytes.len() as u64, DISK).unwrap();
    bytes[..first.len()].copy_from_slice(&first);
    let read = |at: u64, out: &mut [u8]| {
        out.copy_from_slice(&bytes[at as usize..][..out.len()]);
        Ok::<(), String>(())
    };
    let mut log = open(settings, bytes.len() as u64, DISK, Owner::Log(ID), 0, read).unwrap().log;
    let mut now_us = 0;
    for token in 0.. {
        log.submit(token, Change { kind: Kind::Data, range: 0..BLOCK });
        let Some(commit) = log.next_commit(now_us) else { break };
        log.header(&commit.group.unwrap(), 0);
        assert_eq!(log.committed(), [token]);
    }
    assert!(log.refused(now_us).is_empty(), "the disk has not failed yet");
    while log.refused(now_us).is_empty() {
        assert!(now_us < 10_000);
        now_us += 100;
        if log.next_home(now_us).is_some() {
            log.home_done(now_us, false);
        }
    }
    assert!(now_us >= 1000);
    assert!(log.statistics(now_us).is_failing);
}
