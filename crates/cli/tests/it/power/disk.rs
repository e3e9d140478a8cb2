//! A disk in this process: what was written to it is volatile until it is synced.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use nigh_testkit::fuse::{Device, Mounted};

/// Bytes of a sector: a power cut tears writes between sectors, not within.
pub(crate) const SECTOR: usize = 512;
/// The name of its file.
pub(crate) const NAME: &str = "image";
/// The longest that a write or sync takes, in microseconds.
const DELAY_US: u64 = 300;

type Sector = [u8; SECTOR];

/// The contents of a sector after a write.
struct Version {
    bytes: Sector,
    /// The number of the write.
    write: u64,
}

/// Operations of a disk since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) failed_syncs: u64,
    /// Sectors that were volatile when the power failed, and those of them that did not get their last version.
    pub(crate) volatile: u64,
    pub(crate) lost: u64,
}

struct Platter {
    stable: Vec<u8>,
    /// Contents that reads return: the page cache.
    current: Vec<u8>,
    /// Contents that each sector may have instead of its stable ones after a power cut, oldest first.
    unsynced: HashMap<usize, Vec<Version>>,
    /// Writes that were received; those that were not replied to are also in `open`.
    writes: u64,
    open: Vec<u64>,
    /// How often the power failed.
    epoch: u64,
    is_off: bool,
    /// How many of a hundred syncs fail.
    failing: u64,
    /// Whether something that reads return never becomes stable.
    has_forgotten: bool,
    counts: Counts,
    random: Rng,
}

impl Platter {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> u64 {
        self.writes += 1;
        self.open.push(self.writes);
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        for sector in offset / SECTOR..(offset + bytes.len()).div_ceil(SECTOR) {
            let bytes = self.current[sector * SECTOR..][..SECTOR].try_into().expect("a sector");
            self.unsynced.entry(sector).or_default().push(Version { bytes, write: self.writes });
        }
        self.writes
    }

    /// The last version of each sector whose write was replied to becomes stable; what is in progress is not covered.
    fn sync(&mut self, before: u64, open: &[u64]) {
        let is_covered = |version: &Version| version.write <= before && !open.contains(&version.write);
        let stable = &mut self.stable;
        self.unsynced.retain(|sector, versions| {
            if let Some(last) = versions.iter().rposition(is_covered) {
                stable[sector * SECTOR..][..SECTOR].copy_from_slice(&versions[last].bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// A sync fails, and the system takes for synced what is not: reads still return it, but it never becomes stable.
    fn forget(&mut self, before: u64, open: &[u64]) {
        self.has_forgotten = true;
        self.unsynced.retain(|_, versions| {
            versions.retain(|version| version.write > before || open.contains(&version.write));
            !versions.is_empty()
        });
    }

    /// Some of what is volatile reaches the platter, in any order and torn between sectors; the rest is gone.
    fn cut(&mut self) {
        // All, nothing, or anything between.
        let share = [0, 100, 50, self.random.u64(1..100)][self.random.usize(..4)];
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            self.counts.volatile += 1;
            let kept = (self.random.u64(..100) < share).then(|| match self.random.bool() {
                true => versions.len() - 1,
                false => self.random.usize(..versions.len()),
            });
            if let Some(kept) = kept {
                self.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&versions[kept].bytes);
            }
            self.counts.lost += u64::from(kept != Some(versions.len() - 1));
        }
        self.current.copy_from_slice(&self.stable);
        self.open.clear();
        self.epoch += 1;
        (self.is_off, self.has_forgotten) = (true, false);
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.random.u64(..DELAY_US))
    }
}

struct Volatile {
    platter: Mutex<Platter>,
    length: u64,
}

/// A mounted disk; unmounted when dropped.
pub(crate) struct Disk {
    device: Arc<Volatile>,
    mounted: Mounted,
}

impl Disk {
    /// Mounts a disk of zeros on a folder.
    pub(crate) fn new(folder: &Path, length: usize, seed: u64) -> io::Result<Disk> {
        let platter = Platter {
            stable: vec![0; length],
            current: vec![0; length],
            unsynced: HashMap::new(),
            writes: 0,
            open: Vec::new(),
            epoch: 0,
            is_off: false,
            failing: 0,
            has_forgotten: false,
            counts: Counts::default(),
            random: Rng::with_seed(seed),
        };
        let device = Arc::new(Volatile { platter: Mutex::new(platter), length: length as u64 });
        let mounted = Mounted::new(folder, device.clone(), 4)?;
        Ok(Disk { device, mounted })
    }

    pub(crate) fn file(&self) -> &Path {
        self.mounted.file()
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.device.platter.lock().unwrap()
    }

    /// From now on, every request fails, and what the platter has is final.
    pub(crate) fn cut(&self) {
        self.platter().cut();
    }

    /// The power is back; this many of a hundred syncs fail.
    pub(crate) fn start(&self, failing: u64) {
        let mut platter = self.platter();
        (platter.is_off, platter.failing) = (false, failing);
    }

    /// A copy of what is stable.
    pub(crate) fn stable(&self) -> Vec<u8> {
        self.platter().stable.clone()
    }

    /// A copy of what reads return.
    pub(crate) fn current(&self) -> Vec<u8> {
        self.platter().current.clone()
    }

    /// Whether something that reads return never becomes stable, because a sync failed.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.platter().has_forgotten
    }

    /// Contents that sectors may have instead of those that reads return, if the power fails.
    pub(crate) fn older(&self) -> HashMap<usize, Vec<Vec<u8>>> {
        let platter = self.platter();
        let older = |(sector, versions): (&usize, &Vec<Version>)| {
            let stable = platter.stable[sector * SECTOR..][..SECTOR].to_vec();
            let others = versions.iter().map(|version| version.bytes.to_vec());
            (*sector, std::iter::once(stable).chain(others).collect())
        };
        platter.unsynced.iter().map(older).collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        std::mem::take(&mut self.platter().counts)
    }
}

impl Volatile {
    /// A request that takes its time: `begin` returns what it is about, and `end` does it, unless the power fails
    /// meanwhile.
    fn take_time<T>(
        &self,
        begin: impl FnOnce(&mut Platter) -> T,
        end: impl FnOnce(&mut Platter, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let failed = || io::Error::other("the power failed");
        let (begun, epoch, delay) = {
            let mut platter = self.platter.lock().unwrap();
            if platter.is_off {
                return Err(failed());
            }
            (begin(&mut platter), platter.epoch, platter.delay())
        };
        std::thread::sleep(delay);
        let mut platter = self.platter.lock().unwrap();
        if platter.epoch == epoch { end(&mut platter, begun) } else { Err(failed()) }
    }
}

impl Device for Volatile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let platter = self.platter.lock().unwrap();
        if platter.is_off {
            return Err(io::Error::other("the power failed"));
        }
        let start = self.length.min(offset) as usize;
        let end = (self.length as usize).min(start + length);
        Ok(platter.current[start..end].to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = |platter: &mut Platter, write| {
            platter.open.retain(|open| *open != write);
            Ok(())
        };
        self.take_time(|platter| platter.write(offset as usize, bytes), end)?;
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        let begin = |platter: &mut Platter| (platter.writes, platter.open.clone());
        self.take_time(begin, |platter, (before, open)| {
            if platter.random.u64(..100) < platter.failing {
                platter.counts.failed_syncs += 1;
                platter.forget(before, &open);
                return Err(io::Error::other("a sync failed"));
            }
            platter.sync(before, &open);
            Ok(())
        })
    }
}
