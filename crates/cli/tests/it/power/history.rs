//! Requests and observations of clients, and whether a disk may have shown and kept that.
//!
//! Each sector is a register. Every write has a value of its own, so whether the requests to a register could have
//! happened one after the other, each between its begin and its end, is decided by the zones of its values (Gibbons and
//! Korach, "Testing shared memories", SIAM J. Comput. 26(4), 1997, section 4). Zeros have no writer that a read could
//! name: for them it is only checked that some writer of zeros was not overwritten.

use std::collections::HashMap;

use super::disk::SECTOR;

/// Counts the events of all clients; a request lies between two of them.
pub(crate) type Moment = u64;
/// Of requests that never ended, or failed and may take effect at any time.
const NEVER: Moment = Moment::MAX;
/// The value of zeros.
pub(crate) const ZEROS: u64 = 0;

/// A request that concerns sectors.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) first: usize,
    pub(crate) sectors: usize,
    pub(crate) began: Moment,
    /// When its success was seen.
    pub(crate) ended: Option<Moment>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// The values found, one a sector.
    Read(Vec<u64>),
    /// With this value; and whether its success means that it is stable.
    Write { value: u64, fua: bool },
}

/// A successful flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    pub(crate) began: Moment,
    /// Which client asked, if it speaks for itself alone.
    pub(crate) client: usize,
}

/// Operations of one client in the order of submission.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) ops: Vec<Op>,
    pub(crate) flushes: Vec<Flush>,
}

/// Which acknowledged writes must have survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Those before a flush, and those with FUA.
    Flushed,
    /// All.
    Acknowledged,
}

/// Fills sectors with a value; each also has its place.
pub(crate) fn encode(value: u64, first: usize, out: &mut [u8]) {
    for (at, sector) in out.chunks_exact_mut(SECTOR).enumerate() {
        let place = if value == ZEROS { 0 } else { (first + at) as u64 };
        for pair in sector.chunks_exact_mut(16) {
            pair[..8].copy_from_slice(&value.to_le_bytes());
            pair[8..].copy_from_slice(&place.to_le_bytes());
        }
    }
}

/// The value of each sector.
pub(crate) fn decode(first: usize, bytes: &[u8]) -> Result<Vec<u64>, String> {
    let mut expected = [0; SECTOR];
    let value = |(at, sector): (usize, &[u8])| {
        let value = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
        encode(value, first + at, &mut expected);
        let place = u64::from_le_bytes(sector[8..16].try_into().expect("eight bytes"));
        (sector == expected)
            .then_some(value)
            .ok_or_else(|| format!("sector {} is not whole: value {value} of sector {place}", first + at))
    };
    bytes.chunks_exact(SECTOR).enumerate().map(value).collect()
}

/// The requests to a sector that have one value.
#[derive(Debug)]
struct Zone {
    /// Of the write.
    began: Moment,
    ended: Moment,
    is_durable: bool,
    /// When the first of them ended, and when the last began.
    first_end: Moment,
    last_begin: Moment,
}

impl Zone {
    fn write(began: Moment, ended: Moment, is_durable: bool) -> Zone {
        Zone { began, ended, is_durable, first_end: ended, last_begin: began }
    }
}

/// Contents of a disk's sector when a server starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// The value that reads return.
    pub(crate) value: u64,
    /// Values that it may have instead when the power fails before a flush, because an earlier server was killed.
    pub(crate) older: Vec<u64>,
    /// Whether a flush means nothing for it, because one failed since then.
    pub(crate) is_doubtful: bool,
}

/// Operations on one sector.
#[derive(Debug)]
struct Register {
    older: Vec<u64>,
    zones: HashMap<u64, Zone>,
    zeros: Vec<Zone>,
    zero_reads: Vec<(Moment, Moment)>,
}

impl Register {
    fn new(start: &Start, is_flushed: bool) -> Register {
        let (older, zones) = (start.older.clone(), HashMap::new());
        let mut register = Register { older, zones, zeros: Vec::new(), zero_reads: Vec::new() };
        register.write(start.value, Zone::write(0, 0, is_flushed && !start.is_doubtful || start.older.is_empty()));
        register
    }

    fn write(&mut self, value: u64, zone: Zone) {
        match value {
            ZEROS => self.zeros.push(zone),
            value => drop(self.zones.insert(value, zone)),
        }
    }

    fn read(&mut self, value: u64, began: Moment, ended: Moment) -> Result<(), String> {
        if value == ZEROS {
            self.zero_reads.push((began, ended));
            return Ok(());
        }
        let zone = self.zones.get_mut(&value).ok_or_else(|| format!("value {value}, which it was never given"))?;
        if ended < zone.began {
            return Err(format!("value {value} before it was written"));
        }
        zone.first_end = zone.first_end.min(ended);
        zone.last_begin = zone.last_begin.max(began);
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Zone> {
        self.zones.values().chain(&self.zeros)
    }

    /// Whether the requests could have happened one after the other.
    fn check(&self) -> Result<(), String> {
        // A value that was there from the first end to the last begin was there all the time between.
        let mut forward: Vec<_> = self.all().filter(|zone| zone.first_end < zone.last_begin).collect();
        forward.sort_unstable_by_key(|zone| zone.first_end);
        for pair in forward.windows(2) {
            if pair[1].first_end < pair[0].last_begin {
                return Err(format!("two values at a time: {:?} and {:?}", pair[0], pair[1]));
            }
        }
        for inner in self.all().filter(|zone| zone.first_end > zone.last_begin) {
            let is_around = |zone: &&&Zone| zone.first_end < inner.last_begin && inner.first_end < zone.last_begin;
            if let Some(outer) = forward.iter().find(is_around) {
                return Err(format!("a value that was overwritten: {outer:?} by {inner:?}"));
            }
        }
        for &(began, ended) in &self.zero_reads {
            let is_possible = |zone: &&Zone| {
                let is_between = |other: &Zone| zone.ended < other.began && other.ended < began;
                zone.began < ended && !self.all().any(is_between)
            };
            if !self.zeros.iter().any(|zone| is_possible(&zone)) {
                return Err(format!("zeros between {began} and {ended}, after they were overwritten"));
            }
        }
        Ok(())
    }

    /// Whether `value` may be what is left.
    fn may_remain(&self, value: u64) -> Result<(), String> {
        if self.older.contains(&value) && !self.all().any(|zone| zone.is_durable) {
            return Ok(());
        }
        let newer = |zone: &Zone| self.all().find(|other| other.is_durable && zone.first_end < other.began);
        if value == ZEROS {
            let lost = |zone| newer(zone).is_some();
            return if self.zeros.iter().all(lost) {
                Err("zeros instead of a value that must be there".into())
            } else {
                Ok(())
            };
        }
        let zone = self.zones.get(&value).ok_or_else(|| format!("value {value}, which it was never given"))?;
        match newer(zone) {
            Some(other) => Err(format!("value {value}, {zone:?}, instead of {other:?}")),
            None => Ok(()),
        }
    }
}

/// Checks the histories of all clients of a disk that was `before` and was left with the values `after`.
///
/// With `shared`, a flush covers the writes of all clients, not only of the one that asked.
pub(crate) fn check(
    before: &[Start],
    histories: &[History],
    after: &[u64],
    promise: Promise,
    shared: bool,
) -> Result<(), String> {
    let flushes: Vec<Flush> = histories.iter().flat_map(|history| history.flushes.iter().copied()).collect();
    let mut registers: HashMap<usize, Register> = HashMap::new();
    let is_flushed = !flushes.is_empty();
    let new = |sector: usize| Register::new(&before[sector], is_flushed);
    for (client, history) in histories.iter().enumerate() {
        // When the last flush began that covers this client's writes.
        let covers = |flush: &&Flush| shared || flush.client == client;
        let flushed = flushes.iter().filter(covers).map(|flush| flush.began).max().unwrap_or(0);
        for op in &history.ops {
            let Kind::Write { value, fua } = op.kind else { continue };
            let is_durable = op.ended.is_some_and(|end| fua || promise == Promise::Acknowledged || end < flushed);
            for sector in op.first..op.first + op.sectors {
                let register = registers.entry(sector).or_insert_with(|| new(sector));
                register.write(value, Zone::write(op.began, op.ended.unwrap_or(NEVER), is_durable));
            }
        }
    }
    for op in histories.iter().flat_map(|history| &history.ops) {
        let (Kind::Read(values), Some(ended)) = (&op.kind, op.ended) else { continue };
        for (sector, value) in (op.first..).zip(values) {
            let register = registers.entry(sector).or_insert_with(|| new(sector));
            register.read(*value, op.began, ended).map_err(|error| format!("a read of sector {sector} has {error}"))?;
        }
    }
    for (sector, register) in &registers {
        register.check().map_err(|error| format!("sector {sector} had {error}"))?;
        register
            .may_remain(after[*sector])
            .map_err(|error| format!("sector {sector} was left with {error}; {register:?}"))?;
    }
    let untouched = (0..before.len()).filter(|sector| !registers.contains_key(sector));
    for sector in untouched {
        new(sector).may_remain(after[sector]).map_err(|error| format!("sector {sector}, untouched, has {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, began: Moment, ended: Option<Moment>, fua: bool) -> Op {
        Op { first: 0, sectors: 1, began, ended, kind: Kind::Write { value, fua } }
    }

    fn read(value: u64, began: Moment, ended: Moment) -> Op {
        Op { first: 0, sectors: 1, began, ended: Some(ended), kind: Kind::Read(vec![value]) }
    }

    fn judge(ops: Vec<Op>, flushes: &[(Moment, usize)], after: u64, promise: Promise, shared: bool) -> bool {
        let flushes = flushes.iter().map(|&(began, client)| Flush { began, client }).collect();
        let histories = [History { ops, flushes }, History::default()];
        check(&[Start::default()], &histories, &[after], promise, shared).is_ok()
    }

    #[test]
    fn what_must_remain() {
        use Promise::{Acknowledged, Flushed};
        let one = || write(7, 1, Some(2), false);
        assert!(judge(vec![one()], &[], 7, Flushed, true));
        assert!(judge(vec![one()], &[], ZEROS, Flushed, true), "no flush: it may be lost");
        assert!(!judge(vec![one()], &[], ZEROS, Acknowledged, true));
        assert!(!judge(vec![one()], &[(3, 0)], ZEROS, Flushed, true));
        assert!(
            judge(vec![write(7, 1, Some(4), false)], &[(3, 0)], ZEROS, Flushed, true),
            "ended after the flush began"
        );
        assert!(judge(vec![one()], &[(3, 1)], ZEROS, Flushed, false), "another client's flush");
        assert!(!judge(vec![one()], &[(3, 1)], ZEROS, Flushed, true));
        assert!(!judge(vec![write(7, 1, Some(2), true)], &[], ZEROS, Flushed, true), "FUA");
        assert!(judge(vec![write(7, 1, None, true)], &[], ZEROS, Flushed, true), "never acknowledged");
        assert!(!judge(vec![one(), write(8, 3, Some(4), true)], &[], 7, Flushed, true), "an old value is back");
        assert!(judge(vec![one(), write(8, 1, Some(4), true)], &[], 7, Flushed, true), "in either order");
        assert!(!judge(vec![one()], &[], 9, Flushed, true), "from nowhere");
    }

    #[test]
    fn what_may_be_read() {
        let fine = |ops| judge(ops, &[], 8, Promise::Flushed, true);
        let (one, two) = (|| write(7, 1, Some(2), false), || write(8, 3, Some(6), false));
        assert!(fine(vec![one(), two(), read(7, 4, 5), read(8, 4, 5)]));
        assert!(fine(vec![one(), two(), read(8, 7, 8)]));
        assert!(!fine(vec![one(), two(), read(7, 7, 8)]), "overwritten");
        assert!(!fine(vec![one(), two(), read(8, 4, 5), read(7, 6, 7)]), "back and forth");
        assert!(!fine(vec![one(), two(), read(8, 1, 2)]), "too early");
        assert!(!fine(vec![one(), two(), read(ZEROS, 3, 4)]), "zeros came first");
        assert!(fine(vec![one(), two(), read(ZEROS, 0, 4)]));
        assert!(!fine(vec![one(), two(), read(9, 4, 5)]), "from nowhere");
        // A write whose end nobody saw was read, so it happened before.
        let unseen = || write(7, 1, None, false);
        assert!(!fine(vec![unseen(), read(7, 1, 2), two(), read(7, 7, 8)]));
        assert!(fine(vec![unseen(), two(), read(8, 7, 8), read(7, 9, 10)]), "it takes effect late");
    }

    #[test]
    fn what_a_killed_server_left() {
        let before = [Start { value: 7, older: vec![6, ZEROS], is_doubtful: false }];
        let left = |flushes: &[Flush], after| {
            let history = History { ops: Vec::new(), flushes: flushes.to_vec() };
            check(&before, &[history], &[after], Promise::Flushed, true).is_ok()
        };
        assert!(left(&[], 7) && left(&[], 6) && left(&[], ZEROS) && !left(&[], 5));
        let flush = [Flush { began: 1, client: 0 }];
        assert!(left(&flush, 7) && !left(&flush, 6) && !left(&flush, ZEROS));
        let history = History { ops: vec![read(6, 1, 2)], flushes: Vec::new() };
        assert!(check(&before, &[history], &[7], Promise::Flushed, true).is_err(), "nothing failed yet");
    }

    #[test]
    fn sectors_tell_their_place() {
        let mut bytes = vec![0; 3 * SECTOR];
        encode(5, 10, &mut bytes[..2 * SECTOR]);
        assert_eq!(decode(10, &bytes), Ok(vec![5, 5, ZEROS]));
        assert!(decode(11, &bytes).is_err(), "of another place");
        bytes[SECTOR + 100] ^= 1;
        assert!(decode(10, &bytes).is_err(), "torn");
    }
}
