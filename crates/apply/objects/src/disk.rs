//! A disk in an object store: what it consists of, and what is to be done with objects.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;

use crate::changes::Changes;
use crate::manifest::Manifest;
use crate::name::Object;
use crate::{PART, SIZE_MAX};

/// The most replaced objects that are known. Beyond that, the oldest are left for the next writer to find.
const REPLACED_MAX: usize = 1 << 18;

/// Limits of what is staged. Beyond them, changes have to wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory of staged changes, in bytes.
    pub bytes: usize,
    /// Parts with staged changes.
    pub parts: usize,
    /// Replaced objects that are not deleted yet. From this number on, [`Disk::wants_manifest`] is true.
    pub replaced: usize,
}

/// Bytes of an object that a read needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The object.
    pub object: Object,
    /// Which of its bytes.
    pub range: Range<u64>,
    /// Their place in the bytes read.
    pub at: usize,
}

/// A part that is to be written as a new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The new object.
    pub object: Object,
    /// Its length in bytes.
    pub bytes: usize,
    /// The object with the bytes that did not change; none if they are zeros, or all changed.
    pub base: Option<Object>,
}

/// Changes of a part that no object has yet.
#[derive(Debug, Default)]
struct Staged {
    /// Those after the upload began.
    newest: Changes,
    /// The number of the first one.
    since: u64,
    /// Those in the object that is being uploaded.
    uploading: Option<Uploading>,
}

#[derive(Debug)]
struct Uploading {
    object: Object,
    changes: Changes,
    since: u64,
    /// The part was zeroed meanwhile, so nobody needs the object.
    void: bool,
}

impl Staged {
    fn memory(&self) -> usize {
        self.newest.memory() + self.uploading.as_ref().map_or(0, |uploading| uploading.changes.memory())
    }

    /// The number of its first change.
    fn first(&self) -> Option<u64> {
        let newest = (!self.newest.is_empty()).then_some(self.since);
        let uploading = self.uploading.as_ref().filter(|uploading| !uploading.void).map(|uploading| uploading.since);
        newest.into_iter().chain(uploading).min()
    }
}

/// The state of a disk.
///
/// Changes are staged, in memory. An upload moves the changes of one part to a new object; the disk then consists of it, and
/// a manifest that names it makes this last. Objects that no stored manifest names any more are to be deleted.
#[derive(Debug)]
pub struct Disk {
    limits: Limits,
    /// As it is stored.
    stored: Manifest,
    /// The generation of the newest object of each part; 0 if it reads as zeros.
    parts: Vec<u64>,
    /// How many of `parts` the stored manifest does not name.
    unnamed: usize,
    /// The changed bytes in objects of such parts.
    unnamed_bytes: BTreeMap<u32, u64>,
    staged: BTreeMap<u32, Staged>,
    memory: usize,
    /// Changes so far.
    changes: u64,
    /// Objects made in this epoch.
    made: u32,
    /// The highest revision of a manifest so far.
    revision: u64,
    /// Whether a manifest may be stored that is not `stored`.
    uncertain: bool,
    /// Objects that are no longer the newest of their part, and whose name a stored manifest may still have.
    replaced: VecDeque<Object>,
}

/// `range` of a disk by parts: the number of each, and the range in it. None for an empty range.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u32, Range<u32>)> {
    let parts = if range.is_empty() { 0..0 } else { range.start / PART..range.end.div_ceil(PART) };
    parts.map(move |part| {
        let start = range.start.max(part * PART) - part * PART;
        let end = range.end.min((part + 1) * PART) - part * PART;
        (part as u32, start as u32..end as u32)
    })
}

impl Disk {
    /// The disk of this manifest, which is stored.
    pub fn new(stored: Manifest, limits: Limits) -> Disk {
        Disk {
            limits,
            parts: stored.parts.clone(),
            unnamed: 0,
            unnamed_bytes: BTreeMap::new(),
            staged: BTreeMap::new(),
            memory: 0,
            changes: 0,
            made: 0,
            revision: stored.revision,
            uncertain: false,
            replaced: VecDeque::new(),
            stored,
        }
    }

    /// The manifest as it is stored.
    pub fn stored(&self) -> &Manifest {
        &self.stored
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.stored.bytes
    }

    /// Bytes of a part.
    fn part_bytes(&self, part: u32) -> u32 {
        (self.bytes() - u64::from(part) * PART).min(PART) as u32
    }

    /// Whether no more can be staged until something is uploaded.
    pub fn is_full(&self) -> bool {
        self.memory >= self.limits.bytes || self.staged.len() >= self.limits.parts
    }

    /// Whether so much is staged that uploads should begin without a flush.
    pub fn is_half_full(&self) -> bool {
        self.memory >= self.limits.bytes / 2 || self.staged.len() >= self.limits.parts / 2
    }

    /// Whether a manifest should be stored without a flush, so that replaced objects can be deleted.
    pub fn wants_manifest(&self) -> bool {
        self.replaced.len() >= self.limits.replaced
    }

    /// Memory that staged changes take, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// How many changed bytes no stored manifest names: those that are lost if the host dies now. Takes time for each change.
    pub fn unstored(&self) -> u64 {
        let staged = self.staged.values().map(|staged| {
            staged.newest.length() + staged.uploading.as_ref().map_or(0, |uploading| uploading.changes.length())
        });
        staged.chain(self.unnamed_bytes.values().copied()).sum()
    }

    /// Does something to the staged changes of a part.
    fn with_staged<R>(&mut self, part: u32, change: impl FnOnce(&mut Staged) -> R) -> R {
        let staged = self.staged.entry(part).or_default();
        let before = staged.memory();
        let result = change(staged);
        self.memory = self.memory - before + staged.memory();
        if staged.newest.is_empty() && staged.uploading.is_none() {
            self.staged.remove(&part);
        }
        result
    }

    /// Stages a change of a part.
    fn stage(&mut self, part: u32, change: impl FnOnce(&mut Changes)) {
        let number = self.changes;
        self.changes += 1;
        self.with_staged(part, |staged| {
            if staged.newest.is_empty() {
                staged.since = number;
            }
            change(&mut staged.newest);
        });
    }

    /// Stages a write.
    ///
    /// # Panics
    /// If it ends beyond the disk.
    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(end <= self.bytes(), "a write within the disk");
        for (part, within) in pieces(offset..end) {
            let (now, later) = bytes.split_at(within.len());
            self.stage(part, |changes| changes.write(within.start, now));
            bytes = later;
        }
    }

    /// Makes `range` read as zeros. Parts that are zeroed as a whole have no object from then on. If this is only
    /// `advice`, other parts stay as they are, unless they are to be written anyway.
    ///
    /// # Panics
    /// If it ends beyond the disk.
    pub fn zero(&mut self, range: Range<u64>, advice: bool) {
        assert!(range.end <= self.bytes(), "a range within the disk");
        for (part, within) in pieces(range) {
            let is_whole = within == (0..self.part_bytes(part));
            let is_staged = self.staged.contains_key(&part);
            if is_whole {
                self.drop_part(part);
            } else if is_staged || (self.parts[part as usize] != 0 && !advice) {
                self.stage(part, |changes| changes.zero(within));
            }
        }
    }

    /// A part reads as zeros from now on.
    fn drop_part(&mut self, part: u32) {
        self.changes += 1;
        if self.staged.contains_key(&part) {
            self.with_staged(part, |staged| {
                staged.newest = Changes::default();
                if let Some(uploading) = &mut staged.uploading {
                    uploading.void = true;
                    uploading.changes = Changes::default();
                }
            });
        }
        self.replace(part, 0);
    }

    /// A part has another object from now on, or none.
    fn replace(&mut self, part: u32, generation: u64) {
        let before = mem::replace(&mut self.parts[part as usize], generation);
        let stored = self.stored.parts[part as usize];
        self.unnamed -= usize::from(before != stored);
        self.unnamed += usize::from(generation != stored);
        if let Some(object) = Object::of(part, before) {
            self.note_replaced(object);
        }
    }

    /// Nobody needs `object` once a manifest is stored that does not name it.
    fn note_replaced(&mut self, object: Object) {
        if self.replaced.len() >= REPLACED_MAX {
            // The next writer finds it.
            self.replaced.pop_front();
        }
        self.replaced.push_back(object);
    }

    /// Fills `out` with what was staged at `offset`, and with zeros where there is nothing, and returns what has to be
    /// fetched of objects.
    ///
    /// # Panics
    /// If it ends beyond the disk.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Vec<Fetch> {
        let end = offset + out.len() as u64;
        assert!(end <= self.bytes(), "a read within the disk");
        let mut fetches = Vec::new();
        let mut at = 0;
        for (part, within) in pieces(offset..end) {
            let place = at;
            let out = &mut out[place..place + within.len()];
            let object = Object::of(part, self.parts[part as usize]);
            for gap in self.read_staged(part, &within, out) {
                let from = (gap.start - within.start) as usize;
                match object {
                    Some(object) => fetches.push(Fetch {
                        object,
                        range: u64::from(gap.start)..u64::from(gap.end),
                        at: place + from,
                    }),
                    None => out[from..from + gap.len()].fill(0),
                }
            }
            at += within.len();
        }
        fetches
    }

    /// Fills `out` with what was staged of a part; returns the gaps.
    fn read_staged(&self, part: u32, within: &Range<u32>, out: &mut [u8]) -> Vec<Range<u32>> {
        let Some(staged) = self.staged.get(&part) else { return vec![within.clone()] };
        let gaps = staged.newest.read(within, out);
        let Some(uploading) = &staged.uploading else { return gaps };
        let mut left = Vec::new();
        for gap in gaps {
            let out = &mut out[(gap.start - within.start) as usize..(gap.end - within.start) as usize];
            left.extend(uploading.changes.read(&gap, out));
        }
        left
    }

    /// The extents of `range`, at most `most`: where each lies, and whether it reads as zeros because there is no object
    /// and nothing is staged.
    pub fn extents(&self, range: Range<u64>, most: usize) -> Vec<(Range<u64>, bool)> {
        let mut extents: Vec<(Range<u64>, bool)> = Vec::new();
        for (part, within) in pieces(range) {
            let hole = self.parts[part as usize] == 0 && !self.staged.contains_key(&part);
            let base = u64::from(part) * PART;
            let (start, end) = (base + u64::from(within.start), base + u64::from(within.end));
            if let Some((last, _)) = extents.last_mut().filter(|(_, last)| *last == hole) {
                last.end = end;
            } else if extents.len() < most {
                extents.push((start..end, hole));
            } else {
                break;
            }
        }
        extents
    }

    /// The changes that a flush requested now has to make durable, for [`Disk::is_uploaded`].
    pub fn mark(&self) -> u64 {
        self.changes
    }

    /// Whether all changes before `mark` are in objects.
    pub fn is_uploaded(&self, mark: u64) -> bool {
        self.staged.values().filter_map(Staged::first).all(|first| first >= mark)
    }

    /// Whether the stored manifest names all objects, so that nothing is to be done for a flush once all is uploaded.
    pub fn is_stored(&self) -> bool {
        self.unnamed == 0 && !self.uncertain
    }

    /// Whether the stored manifest is all there is of the disk.
    pub fn is_settled(&self) -> bool {
        self.is_stored() && self.staged.is_empty()
    }

    /// Begins the upload of a part with changes before `mark`: of those that are not being uploaded, the one with the most
    /// changes. None if there is no such part, or [no name](Disk::is_exhausted) for its object.
    pub fn upload(&mut self, mark: u64) -> Option<Upload> {
        let waiting = self
            .staged
            .iter()
            .filter(|(_, staged)| staged.uploading.is_none() && !staged.newest.is_empty() && staged.since < mark);
        let (&part, _) = waiting.max_by_key(|(_, staged)| staged.newest.memory())?;
        let object = Object { part, epoch: self.stored.epoch, number: self.made };
        self.made = self.made.checked_add(1)?;
        let bytes = self.part_bytes(part);
        let staged = self.staged.get_mut(&part).expect("it was found");
        let changes = mem::take(&mut staged.newest);
        let base = Object::of(part, self.parts[part as usize]).filter(|_| !changes.covers(&(0..bytes)));
        staged.uploading = Some(Uploading { object, changes, since: staged.since, void: false });
        Some(Upload { object, bytes: bytes as usize, base })
    }

    /// Whether this writer has used all names of its epoch, 2^32, so that it can upload nothing more.
    pub fn is_exhausted(&self) -> bool {
        self.made == u32::MAX
    }

    /// Puts the changes that are being uploaded over `bytes`, those of the base, or zeros. Returns whether all are zeros: such a
    /// part needs no object.
    pub fn merge(&self, upload: &Upload, bytes: &mut [u8]) -> bool {
        if let Some(uploading) = self.staged.get(&upload.object.part).and_then(|staged| staged.uploading.as_ref()) {
            uploading.changes.read(&(0..bytes.len() as u32), bytes);
        }
        bytes.iter().all(|byte| *byte == 0)
    }

    /// The upload is over: its part has the new object, or none because all is zeros.
    pub fn uploaded(&mut self, upload: &Upload, is_zero: bool) {
        let Object { part, .. } = upload.object;
        let uploading = self.with_staged(part, |staged| staged.uploading.take()).expect("it was begun");
        assert_eq!(uploading.object, upload.object, "one upload of a part at a time");
        if !uploading.void {
            *self.unnamed_bytes.entry(part).or_default() += uploading.changes.length();
        }
        match (uploading.void, is_zero) {
            (false, false) => self.replace(part, upload.object.generation()),
            (false, true) => self.replace(part, 0),
            (true, false) => self.note_replaced(upload.object),
            (true, true) => {}
        }
    }

    /// The upload failed: its changes wait again. The object may exist. Returns whether anything needed it: not if its part was
    /// zeroed meanwhile.
    pub fn upload_failed(&mut self, upload: &Upload) -> bool {
        let was_needed = self.with_staged(upload.object.part, |staged| {
            let uploading = staged.uploading.take().expect("it was begun");
            let mut changes = uploading.changes;
            if !changes.is_empty() {
                staged.since = uploading.since;
            }
            changes.append(mem::take(&mut staged.newest));
            staged.newest = changes;
            !uploading.void
        });
        self.note_replaced(upload.object);
        was_needed
    }

    /// The manifest to be stored in place of the one that is stored.
    pub fn manifest(&mut self) -> Manifest {
        self.revision += 1;
        let changed = if self.is_stored() { self.stored.changed } else { self.revision };
        let Manifest { disk, bytes, epoch, writer, .. } = self.stored;
        Manifest { disk, bytes, epoch, writer, revision: self.revision, changed, parts: self.parts.clone() }
    }

    /// `manifest` is stored. Returns the objects that are to be deleted: nobody names them any more, and their names are not
    /// used again.
    pub fn store(&mut self, manifest: Manifest) -> Vec<Object> {
        self.stored = manifest;
        self.uncertain = false;
        self.unnamed = self.parts.iter().zip(&self.stored.parts).filter(|(now, stored)| now != stored).count();
        let (parts, named) = (&self.parts, &self.stored.parts);
        self.unnamed_bytes.retain(|part, _| parts[*part as usize] != named[*part as usize]);
        let stored = &self.stored;
        let (kept, gone): (VecDeque<_>, VecDeque<_>) =
            self.replaced.drain(..).partition(|object| stored.object(object.part) == Some(*object));
        self.replaced = kept;
        gone.into()
    }

    /// The manifest that was to be stored may be stored or not.
    pub fn store_failed(&mut self) {
        self.uncertain = true;
    }
}

const _: () = assert!(SIZE_MAX / PART <= u32::MAX as u64, "parts have numbers of 32 bits");

#[cfg(test)]
mod tests;
