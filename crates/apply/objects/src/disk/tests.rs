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
    /// Uploads under way.
    uploads: Vec<Upload>,
    /// The manifest that is being stored.
    storing: Option<Manifest>,
    /// Changes that it makes durable, if it is for a flush: by unit, its content, and how many of the allowed ones are older.
    flushed: Vec<(u8, usize)>,
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
            uploads: Vec::new(),
            storing: None,
            flushed: Vec::new(),
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
            // Advice may change nothing, if not the whole part is zeroed.
            0 if self.random.bool() => return self.advise(range),
            0 => self.disk.zero(start..end, false),
            _ => self.disk.write(start, &vec![value; (end - start) as usize]),
        }
        for unit in range {
            self.model[unit] = value;
            self.allowed[unit].push(value);
        }
    }

    fn advise(&mut self, range: Range<usize>) {
        self.disk.zero(range.start as u64 * UNIT..range.end as u64 * UNIT, true);
        let mut out = vec![255; range.len() * UNIT as usize];
        let fetches = self.disk.read(range.start as u64 * UNIT, &mut out);
        self.fetch(fetches, &mut out);
        for (unit, bytes) in range.zip(out.chunks(UNIT as usize)) {
            assert!(bytes[0] == 0 || bytes[0] == self.model[unit], "unit {unit}");
            self.model[unit] = bytes[0];
            self.allowed[unit].push(bytes[0]);
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

    /// Begins the upload of a part, if there is one.
    fn begin_upload(&mut self, mark: u64) -> bool {
        let upload = self.disk.upload(mark);
        self.uploads.extend(upload.clone());
        upload.is_some()
    }

    /// Ends an upload that is under way; some fail, and of these, some made the object.
    fn end_upload(&mut self, fails: bool) {
        let upload = self.uploads.swap_remove(self.random.usize(0..self.uploads.len()));
        let base = upload.base.map_or(Some(vec![0; upload.bytes]), |base| self.objects.get(&base).cloned());
        let Some(mut bytes) = base else {
            assert!(!self.disk.upload_failed(&upload), "the base of a part that is needed is there");
            return;
        };
        let is_zero = self.disk.merge(&upload, &mut bytes);
        let fails = fails && self.random.u8(0..3) == 0;
        if !is_zero && (!fails || self.random.bool()) {
            assert!(self.objects.insert(upload.object, bytes).is_none(), "a name is used once");
        }
        if fails {
            self.disk.upload_failed(&upload);
        } else {
            self.disk.uploaded(&upload, is_zero);
        }
    }

    /// Begins to store a manifest, as a host does when many objects were replaced.
    fn begin_store(&mut self) {
        if self.storing.is_none() {
            self.storing = Some(self.disk.manifest());
        }
    }

    /// Ends it; of those that fail, some are stored.
    fn end_store(&mut self, fails: bool) {
        let Some(manifest) = self.storing.take() else { return };
        let flushed = std::mem::take(&mut self.flushed);
        let fails = fails && self.random.bool();
        if !fails || self.random.bool() {
            self.manifest = manifest.encode();
        }
        if fails {
            return self.disk.store_failed();
        }
        for object in self.disk.store(manifest) {
            // It may not have been made.
            self.objects.remove(&object);
        }
        for (allowed, (content, older)) in self.allowed.iter_mut().zip(flushed) {
            allowed.splice(..older, [content]);
        }
    }

    /// Uploads what was changed so far, and stores a manifest, while changes go on.
    fn flush(&mut self, fails: bool) {
        self.end_store(fails);
        let mark = self.disk.mark();
        self.flushed = self.model.iter().copied().zip(self.allowed.iter().map(Vec::len)).collect();
        while !self.disk.is_uploaded(mark) {
            while self.begin_upload(mark) {}
            if self.random.u8(0..4) == 0 {
                self.change();
                self.check_read();
            }
            self.end_upload(fails);
        }
        self.begin_store();
        while fails && self.random.bool() {
            self.step();
        }
        self.end_store(fails);
    }

    /// Anything that a host does beside a manifest that is being stored.
    fn step(&mut self) {
        match self.random.u8(0..6) {
            0 => _ = self.begin_upload(u64::MAX),
            1 if !self.uploads.is_empty() => self.end_upload(true),
            2 | 3 => self.change(),
            _ => self.check_read(),
        }
    }

    /// The host dies, and the next one reads the whole disk and removes what was left.
    fn crash(&mut self, writer: u128) {
        let stored = Manifest::decode(&self.manifest).expect("a manifest");
        self.uploads.clear();
        self.storing = None;
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
    for seed in 0..24 {
        let mut world = World::new(seed);
        for writer in 2..5 {
            for _ in 0..40 {
                match world.random.u8(0..8) {
                    0 => world.flush(true),
                    1 => world.begin_store(),
                    2 => world.end_store(true),
                    _ => world.step(),
                }
                let memory: usize = world.disk.staged.values().map(Staged::memory).sum();
                assert_eq!(memory, world.disk.memory());
            }
            if world.random.bool() {
                world.flush(false);
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
fn an_upload_of_a_part_that_was_zeroed_meanwhile_is_not_needed() {
    let mut disk = disk();
    disk.write(0, &[1; UNIT as usize]);
    let upload = disk.upload(u64::MAX).expect("a part");
    assert!(disk.upload_failed(&upload));
    let upload = disk.upload(u64::MAX).expect("it waits again");
    disk.zero(0..PART, false);
    assert!(!disk.upload_failed(&upload));
    let numbers: Vec<u32> = settle(&mut disk).into_iter().map(|object| object.number).collect();
    assert_eq!(numbers, [0, 1], "they may have been made");
    assert_eq!(disk.stored().objects(), 0);
}

#[test]
fn nothing_changes_nothing() {
    let mut disk = disk();
    disk.write(UNIT, &[1; 2 * UNIT as usize]);
    let memory = disk.memory();
    for at in [UNIT, 2 * UNIT, PART, 3 * PART] {
        disk.write(at, &[]);
        disk.zero(at..at, false);
    }
    let mut out = [0; 2 * UNIT as usize];
    assert_eq!(disk.read(UNIT, &mut out), []);
    assert!(out == [1; 2 * UNIT as usize] && disk.memory() == memory);
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

/// A manifest that names an object may have been stored although its writer got an error.
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
