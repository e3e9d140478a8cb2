//! A disk with a volatile cache, which fails, tears and forgets as disks do.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::{Rng, RngExt};

use crate::simulation::model::{ATOM, DISCARDED, encode};

/// Unit that a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// One disk.
pub(crate) struct Disk {
    salt: u64,
    /// Contents that reads return.
    view: Vec<u8>,
    /// Contents that survive the loss of power for certain.
    stable: Vec<u8>,
    /// Later writes of each sector, and their times.
    volatile: BTreeMap<usize, Vec<(u64, Vec<u8>)>>,
    writes: u64,
    /// Sectors that cannot be read.
    bad: Vec<u64>,
}

impl Disk {
    pub(crate) fn new(bytes: usize, salt: u64, bad: Vec<u64>) -> Disk {
        Disk { salt, view: vec![0; bytes], stable: vec![0; bytes], volatile: BTreeMap::new(), writes: 0, bad }
    }

    /// Whether all of `range` can be read.
    pub(crate) fn is_good(&self, range: &Range<u64>) -> bool {
        let sectors = range.start / SECTOR as u64..range.end.div_ceil(SECTOR as u64);
        !self.bad.iter().any(|sector| sectors.contains(sector))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.view
    }

    fn write_sector(&mut self, sector: usize, data: &[u8]) {
        let range = sector * SECTOR..sector * SECTOR + data.len();
        self.view[range].copy_from_slice(data);
        self.writes += 1;
        self.volatile.entry(sector).or_default().push((self.writes, data.to_vec()));
    }

    /// Writes `data` at `offset`, or of it only the sectors of `keep`.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8], mut keep: impl FnMut() -> bool) {
        assert_eq!(offset % SECTOR, 0);
        for (sector, part) in (offset / SECTOR..).zip(data.chunks(SECTOR)) {
            if keep() {
                self.write_sector(sector, part);
            }
        }
    }

    /// The contents that a discard leaves in `range`.
    pub(crate) fn discarded(&self, range: Range<usize>) -> Vec<u8> {
        let mut data = vec![0; range.len()];
        for (at, atom) in (range.start / ATOM..).zip(data.chunks_exact_mut(ATOM)) {
            encode(DISCARDED, self.salt, at, atom);
        }
        data
    }

    /// Writes `data` at `offset` for good.
    pub(crate) fn overwrite(&mut self, offset: usize, data: &[u8]) {
        self.end_flush(self.writes, &(0..u64::MAX));
        self.view[offset..][..data.len()].copy_from_slice(data);
        self.stable[offset..][..data.len()].copy_from_slice(data);
    }

    /// How far a flush that begins now reaches.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.writes
    }

    /// Of the sectors that begin in `range`, what was written up to `reach` is stable.
    pub(crate) fn end_flush(&mut self, reach: u64, range: &Range<u64>) {
        let sectors = (range.start / SECTOR as u64) as usize..range.end.div_ceil(SECTOR as u64) as usize;
        for (&sector, versions) in self.volatile.range_mut(sectors) {
            if let Some((_, data)) = versions.iter().rfind(|(at, _)| *at <= reach) {
                self.stable[sector * SECTOR..][..data.len()].copy_from_slice(data);
            }
            versions.retain(|(at, _)| *at > reach);
        }
        self.volatile.retain(|_, versions| !versions.is_empty());
    }

    /// A flush of the sectors that begin in `range` failed. As Linux does, the disk takes for written what it could not
    /// write: of each sector any version is stable, no later flush changes that, and reads see it sooner or later.
    pub(crate) fn fail_flush(&mut self, range: &Range<u64>, random: &mut impl Rng) {
        let sectors = (range.start / SECTOR as u64) as usize..range.end.div_ceil(SECTOR as u64) as usize;
        for (&sector, versions) in self.volatile.range_mut(sectors) {
            let survivor = random.random_range(0..=versions.len());
            let place = sector * SECTOR..sector * SECTOR + versions[0].1.len();
            if survivor > 0 {
                self.stable[place.clone()].copy_from_slice(&versions[survivor - 1].1);
            }
            if random.random_bool(0.5) {
                self.view[place.clone()].copy_from_slice(&self.stable[place]);
            }
            versions.clear();
        }
        self.volatile.retain(|_, versions| !versions.is_empty());
    }

    /// The power fails: of each sector, any version since the last flush is left.
    pub(crate) fn lose_power(&mut self, random: &mut impl Rng) {
        for (&sector, versions) in &self.volatile {
            let survivor = random.random_range(0..=versions.len());
            if survivor > 0 {
                let data = &versions[survivor - 1].1;
                self.stable[sector * SECTOR..][..data.len()].copy_from_slice(data);
            }
        }
        self.volatile.clear();
        self.view.copy_from_slice(&self.stable);
    }

    /// The process dies: what reached the device is left.
    pub(crate) fn lose_host(&mut self) {
        for (&sector, versions) in &self.volatile {
            let place = sector * SECTOR..sector * SECTOR + versions[0].1.len();
            self.stable[place.clone()].copy_from_slice(&self.view[place]);
        }
        self.volatile.clear();
        self.view.copy_from_slice(&self.stable);
    }
}
