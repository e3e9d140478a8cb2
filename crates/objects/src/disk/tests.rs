//! The disk against an array of numbers, with a store that is a map.

use super::*;
use crate::UNIT;

const LIMITS: Limits = Limits { bytes: 1 << 20, parts: 4, replaced: 8 };
const UNITS: usize = (2 * PART + 3 * UNIT) as usize / UNIT as usize;

/// A store, what became of the disk, and the disk.
struct World {
    random: fastrand::Rng,
    objects: BTreeMap<Object, Vec<u8>>,
    disk: Disk,
    /// By unit, the number that each of its bytes has.
    model: Vec<u8>,
    /// By unit, what it may be after a crash: what was flushed, and all later contents.
    allowed: Vec<Vec<u8>>,
    /// The last manifest of the store.
    manifest: Vec<u8>,
}

fn open(manifest: &Manifest, writer: u128) -> Disk {
    Disk::new(manifest.claimed_by(writer).expect("an epoch"), LIMITS)
}

impl World {
    fn new(seed: u64) -> World {
        let manifest = Manifest::new(1, UNITS as u64 * UNIT).expect("a size");
        let disk = open(&manifest, 1);
        World {
            random: fastrand::Rng::with_seed(seed),
            objects: BTreeMap::new(),
            manifest: disk.stored().encode(),
            disk,
            model: vec![0; UNITS],
            allowed: vec![vec![0]; UNITS],
        }
    }

    fn range(&mut self) -> Range<usize> {
        if self.random.u8(0..4) == 0 {
            let part = self.random.usize(0..3) * 1024;
            return part..(part + 1024).min(UNITS);
        }
        let start = self.random.usize(0..UNITS);
        start..(start + self.random.usize(1..40)).min(UNITS)
    }

    fn change(&mut self) {
        let range = self.range();
        let (start, end) = (range.start as u64 * UNIT, range.end as u64 * UNIT);
        let value = if self.random.bool() { self.random.u8(1..) } else { 0 };
        match value {
            0 => self.disk.zero(start..end, false),
            _ => self.disk.write(start, &vec![value; (end - start) as usize]),
        }
        for unit in range {
            self.model[unit] = value;
            self.allowed[unit].push(value);
        }
    }

    /// Fetches as a host does: an object that is gone is a failure.
    fn fetch(&self, fetches: Vec<Fetch>, out: &mut [u8]) {
        for Fetch { object, range, at } in fetches {
            let from = &self.objects[&object][range.start as usize..range.end as usize];
            out[at..at + from.len()].copy_from_slice(from);
        }
    }

    fn check_read(&mut self) {
        let range = self.range();
        let mut out = vec![255; range.len() * UNIT as usize];
        let fetches = self.disk.read(range.start as u64 * UNIT, &mut out);
        self.fetch(fetches, &mut out);
        for (unit, bytes) in range.zip(out.chunks(UNIT as usize)) {
            assert!(bytes.iter().all(|byte| *byte == self.model[unit]), "unit {unit}");
        }
    }

    /// Uploads a part, with changes of the disk in between; some uploads fail, and of these, some made the object.
    fn upload(&mut self, mark: u64, fails: bool) -> bool {
        let Some(upload) = self.disk.upload(mark) else { return false };
        let mut bytes = upload.base.map_or(vec![0; upload.bytes], |base| self.objects[&base].clone());
        if self.random.bool() {
            self.change();
            self.check_read();
        }
        let is_zero = self.disk.merge(&upload, &mut bytes);
        let fails = fails && self.random.u8(0..3) == 0;
        if !is_zero && (!fails || self.random.bool()) {
            assert!(self.objects.insert(upload.object, bytes).is_none(), "a name is used once");
        }
        match fails {
            true => self.disk.upload_failed(&upload),
            false => self.disk.uploaded(&upload, is_zero),
        }
        true
    }

    /// Stores a manifest; of those that fail, some are stored.
    fn store(&mut self, fails: bool) -> bool {
        let manifest = self.disk.manifest();
        let fails = fails && self.random.bool();
        if !fails || self.random.bool() {
            self.manifest = manifest.encode();
        }
        if fails {
            self.disk.store_failed();
            return false;
        }
        for object in self.disk.store(manifest) {
            // It may not have been made.
            self.objects.remove(&object);
        }
        true
    }

    fn flush(&mut self, fails: bool) {
        let (mark, model) = (self.disk.mark(), self.model.clone());
        let before: Vec<usize> = self.allowed.iter().map(Vec::len).collect();
        while self.upload(mark, fails) {}
        assert!(self.disk.is_uploaded(mark));
        if self.disk.is_stored() || self.store(fails) {
            for ((allowed, model), before) in self.allowed.iter_mut().zip(model).zip(before) {
                allowed.splice(..before, [model]);
            }
        }
    }

    /// The host dies, and the next one reads the whole disk and removes what was left.
    fn crash(&mut self, writer: u128) {
        let stored = Manifest::decode(&self.manifest).expect("a manifest");
        self.disk = open(&stored, writer);
        let now = self.disk.stored().clone();
        self.manifest = now.encode();
        self.objects.retain(|object, _| !now.is_leftover(*object));
        assert_eq!(self.objects.len(), now.objects(), "what is left is named");
        let mut out = vec![255; UNITS * UNIT as usize];
        let fetches = self.disk.read(0, &mut out);
        self.fetch(fetches, &mut out);
        for (unit, bytes) in out.chunks(UNIT as usize).enumerate() {
            let value = bytes[0];
            assert!(bytes.iter().all(|byte| *byte == value), "unit {unit} is torn");
            assert!(self.allowed[unit].contains(&value), "unit {unit} is {value}, not {:?}", self.allowed[unit]);
            (self.model[unit], self.allowed[unit]) = (value, vec![value]);
        }
    }
}

#[test]
fn what_was_flushed_survives_whatever_fails() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        for writer in 2..5 {
            for _ in 0..25 {
                match world.random.u8(0..10) {
                    0 => world.flush(true),
                    1 => _ = world.upload(u64::MAX, true),
                    2 => _ = world.store(true),
                    3..6 => world.check_read(),
                    _ => world.change(),
                }
                let memory: usize = world.disk.staged.values().map(Staged::memory).sum();
                assert_eq!(memory, world.disk.memory());
            }
            if world.random.bool() {
                world.flush(false);
                assert!(world.disk.is_stored());
            }
            world.crash(writer);
        }
    }
}

fn disk() -> Disk {
    open(&Manifest::new(1, 3 * PART).expect("a size"), 1)
}

/// Uploads all and stores the manifest; returns what is to be deleted.
fn settle(disk: &mut Disk) -> Vec<Object> {
    while let Some(upload) = disk.upload(u64::MAX) {
        let mut bytes = vec![0; upload.bytes];
        let is_zero = disk.merge(&upload, &mut bytes);
        disk.uploaded(&upload, is_zero && upload.base.is_none());
    }
    let manifest = disk.manifest();
    let gone = disk.store(manifest);
    assert!(disk.is_settled());
    gone
}

#[test]
fn parts_without_data_have_no_object() {
    let mut disk = disk();
    disk.zero(0..2 * PART + UNIT, false);
    assert!(disk.is_settled(), "it was zeros before");
    disk.write(PART, &[1; 8192]);
    disk.write(0, &[0; 4096]);
    assert_eq!(settle(&mut disk), []);
    assert_eq!(disk.stored().objects(), 1);
    let written = disk.stored().object(1).expect("an object");
    let extents = |disk: &Disk| disk.extents(UNIT..3 * PART, 10);
    assert_eq!(extents(&disk), [(UNIT..PART, true), (PART..2 * PART, false), (2 * PART..3 * PART, true)]);
    assert_eq!(disk.extents(0..3 * PART, 1), [(0..PART, true)]);
    disk.zero(PART..2 * PART - UNIT, true);
    assert!(disk.is_settled(), "advice does not write parts");
    disk.zero(PART..2 * PART, true);
    assert_eq!(extents(&disk), [(UNIT..3 * PART, true)]);
    assert!(!disk.is_stored());
    assert_eq!(settle(&mut disk), [written]);
}

#[test]
fn the_base_is_read_only_if_a_part_keeps_bytes_of_it() {
    let mut disk = disk();
    disk.write(0, &[1; UNIT as usize]);
    settle(&mut disk);
    let first = disk.stored().object(0);
    disk.write(UNIT, &[2; UNIT as usize]);
    assert_eq!(disk.upload(0), None, "no change is that old");
    let upload = disk.upload(disk.mark()).expect("a part");
    assert_eq!((upload.base, upload.bytes), (first, PART as usize));
    assert_eq!(disk.upload(u64::MAX), None, "one upload of a part at a time");
    disk.upload_failed(&upload);
    disk.write(2 * UNIT, &vec![3; (PART - 2 * UNIT) as usize]);
    disk.zero(0..UNIT, false);
    let upload = disk.upload(u64::MAX).expect("a part");
    assert_eq!(upload.base, None, "all was changed");
    assert_eq!(upload.object.number, 2);
}

#[test]
fn what_is_staged_is_limited() {
    let mut disk = disk();
    assert!(!disk.is_half_full());
    disk.write(0, &[1; 1 << 19]);
    assert!(disk.is_half_full() && !disk.is_full());
    disk.write(PART, &[1; 1 << 19]);
    assert!(disk.is_full());
    let largest = disk.upload(u64::MAX).expect("a part");
    assert!(disk.is_full(), "until it is uploaded");
    disk.uploaded(&largest, false);
    assert!(!disk.is_full());
    for _ in 0..LIMITS.replaced {
        disk.write(PART, &[1; UNIT as usize]);
        let upload = disk.upload(u64::MAX).expect("a part");
        disk.uploaded(&upload, false);
    }
    assert!(!disk.wants_manifest());
    disk.zero(0..PART, false);
    assert!(disk.wants_manifest(), "{:?}", disk.replaced);
}

/// A manifest that names an object may have been stored although its writer was told otherwise.
#[test]
fn a_manifest_of_which_nothing_is_known_is_replaced() {
    let mut disk = disk();
    disk.write(0, &[1; UNIT as usize]);
    let upload = disk.upload(u64::MAX).expect("a part");
    disk.uploaded(&upload, false);
    let uncertain = disk.manifest();
    disk.store_failed();
    disk.zero(0..PART, false);
    assert!(!disk.is_stored());
    let manifest = disk.manifest();
    assert!(manifest.revision > uncertain.revision && manifest.changed == manifest.revision);
    assert_eq!(disk.store(manifest), [upload.object]);
    assert!(disk.is_settled());
}
