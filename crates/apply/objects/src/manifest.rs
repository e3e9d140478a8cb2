//! The manifest of a disk: which object each of its parts has.

use twox_hash::XxHash3_64;

use crate::fields::{Input, put_varint, unzigzag, zigzag};
use crate::name::Object;
use crate::{MANIFEST_MAX, PART, SIZE_MAX, UNIT};

const MAGIC: [u8; 8] = *b"NIGHOBJ\n";
const VERSION: u32 = 1;
/// Bytes before the entries.
pub(crate) const HEAD: usize = 8 + 4 + 4 + 16 + 8 + 4 + 16 + 8 + 8 + 4;
/// The most bytes of an entry: five for the part, ten for its object.
pub(crate) const ENTRY_MAX: usize = 15;
/// Bytes of the checksum at the end.
pub(crate) const SUM: usize = 8;

/// The last revision that is read. A writer begins at half of it at most, and does not count so far.
const REVISION_MAX: u64 = u64::MAX / 2;

/// Why bytes are not a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is something else.
    #[error("it is not the manifest of a disk")]
    Foreign,
    /// Another version of nigh wrote it.
    #[error("it has version {0}, and this nigh reads version {VERSION}")]
    Version(u32),
    /// Its bytes are not those that were written.
    #[error("it is damaged: its checksum is wrong")]
    Damaged,
    /// The checksum is right, but this field is not.
    #[error("it is wrong: {0}")]
    Wrong(&'static str),
}

/// The state of a disk in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Chosen at random when the disk was made.
    pub disk: u128,
    /// Of the disk.
    pub bytes: u64,
    /// How often it was opened for writing.
    pub epoch: u32,
    /// The writer of this epoch: a random number.
    pub writer: u128,
    /// How often a manifest was written, attempts that may have failed included.
    pub revision: u64,
    /// The revision in which the contents of the disk changed last.
    pub changed: u64,
    /// The generation of the object of each part; 0 if it has none and reads as zeros.
    pub(crate) parts: Vec<u64>,
}

impl Manifest {
    /// That of a disk of this many bytes, all zeros. Returns none for a size that no disk has.
    pub fn new(disk: u128, bytes: u64) -> Option<Manifest> {
        let fits = bytes > 0 && bytes <= SIZE_MAX && bytes.is_multiple_of(UNIT);
        // Only then: a size that somebody made up may be more than there is memory for.
        let parts = fits.then(|| vec![0; bytes.div_ceil(PART) as usize])?;
        Some(Manifest { disk, bytes, epoch: 0, writer: 0, revision: 0, changed: 0, parts })
    }

    /// The same disk, with `writer` as the only one that may change it. None after 2^32 epochs or 2^62 revisions.
    pub fn claimed_by(&self, writer: u128) -> Option<Manifest> {
        let epoch = self.epoch.checked_add(1).filter(|_| self.revision < REVISION_MAX / 2)?;
        Some(Manifest { epoch, writer, revision: self.revision + 1, ..self.clone() })
    }

    /// Whether both have the same writer in the same epoch.
    pub fn has_writer_of(&self, other: &Manifest) -> bool {
        (self.disk, self.epoch, self.writer) == (other.disk, other.epoch, other.writer)
    }

    /// The object of a part, if it has one.
    pub fn object(&self, part: u32) -> Option<Object> {
        Object::of(part, *self.parts.get(part as usize)?)
    }

    /// How many parts have an object.
    pub fn objects(&self) -> usize {
        self.parts.iter().filter(|generation| **generation != 0).count()
    }

    /// Whether nobody needs `object` any more, as the writer of this manifest knows: an earlier writer made it, and cannot
    /// name it in a manifest any more.
    pub fn is_leftover(&self, object: Object) -> bool {
        object.epoch < self.epoch && self.object(object.part) != Some(object)
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + SUM + 4 * self.parts.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((PART as u32).to_le_bytes());
        out.extend(self.disk.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.writer.to_le_bytes());
        out.extend(self.revision.to_le_bytes());
        out.extend(self.changed.to_le_bytes());
        out.extend((self.objects() as u32).to_le_bytes());
        let (mut next, mut last) = (0, 0u64);
        for (part, &generation) in (0..).zip(&self.parts).filter(|(_, generation)| **generation != 0) {
            put_varint(&mut out, part - next);
            put_varint(&mut out, zigzag(generation.wrapping_sub(last) as i64));
            (next, last) = (part + 1, generation);
        }
        out.extend([0; SUM]);
        Manifest::seal(&mut out);
        out
    }

    /// Puts the checksum at the end of an encoded manifest, in place of the one that is there.
    pub fn seal(bytes: &mut [u8]) {
        if let Some((body, sum)) = bytes.split_last_chunk_mut::<SUM>() {
            *sum = XxHash3_64::oneshot(body).to_le_bytes();
        }
    }

    /// From what is stored. Each manifest has exactly one encoding.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut input = Input(bytes);
        if bytes.len() > MANIFEST_MAX || input.array() != Some(MAGIC) {
            return Err(ManifestError::Foreign);
        }
        let version = input.u32().ok_or(ManifestError::Foreign)?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let (body, sum) = bytes.split_last_chunk::<SUM>().ok_or(ManifestError::Damaged)?;
        if XxHash3_64::oneshot(body) != u64::from_le_bytes(*sum) {
            return Err(ManifestError::Damaged);
        }
        let mut input = Input(body.get(12..).ok_or(ManifestError::Damaged)?);
        let short = || ManifestError::Wrong("it ends too soon");
        let part_bytes = input.u32().ok_or_else(short)?;
        if u64::from(part_bytes) != PART {
            return Err(ManifestError::Wrong("its parts do not have 4 MiB"));
        }
        let disk = input.u128().ok_or_else(short)?;
        let size = input.u64().ok_or_else(short)?;
        let mut manifest = Manifest::new(disk, size).ok_or(ManifestError::Wrong("no disk has this size"))?;
        manifest.epoch = input.u32().ok_or_else(short)?;
        manifest.writer = input.u128().ok_or_else(short)?;
        manifest.revision = input.u64().ok_or_else(short)?;
        manifest.changed = input.u64().ok_or_else(short)?;
        if manifest.changed > manifest.revision || manifest.revision > REVISION_MAX {
            return Err(ManifestError::Wrong("its revisions are not in order"));
        }
        let count = input.u32().ok_or_else(short)?;
        let (mut next, mut last) = (0u64, 0u64);
        for _ in 0..count {
            let gap = input.varint().ok_or_else(short)?;
            let step = input.varint().ok_or_else(short)?;
            let part = next.saturating_add(gap);
            let place = usize::try_from(part).ok().and_then(|part| manifest.parts.get_mut(part));
            let place = place.ok_or(ManifestError::Wrong("it has an object beyond the end of the disk"))?;
            let generation = last.wrapping_add(unzigzag(step) as u64);
            let epoch = generation >> 32;
            if epoch == 0 || epoch > u64::from(manifest.epoch) {
                return Err(ManifestError::Wrong("it has an object of an epoch that never was"));
            }
            *place = generation;
            (next, last) = (part + 1, generation);
        }
        match input.0 {
            [] => Ok(manifest),
            _ => Err(ManifestError::Wrong("it goes on after its end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let mut manifest = Manifest::new(7, 5 * PART + UNIT).expect("a size").claimed_by(9).expect("an epoch");
        manifest.parts[1] = Object { part: 1, epoch: 1, number: 4 }.generation();
        manifest.parts[5] = Object { part: 5, epoch: 1, number: 2 }.generation();
        (manifest.revision, manifest.changed) = (12, 11);
        manifest
    }

    #[test]
    fn manifests_are_read_as_they_were_written() {
        let manifest = example();
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest.clone()));
        assert_eq!(manifest.objects(), 2);
        assert_eq!(manifest.object(5), Some(Object { part: 5, epoch: 1, number: 2 }));
        assert_eq!((manifest.object(0), manifest.object(6)), (None, None));
        // A disk of 20 GB that is full and was written in order has 2 bytes for each part.
        let mut full = Manifest::new(1, 20 << 30).expect("a size").claimed_by(1).expect("an epoch");
        full.parts = (0..5120).map(|number| 1 << 32 | number).collect();
        assert!(full.encode().len() < 11_000, "{}", full.encode().len());
    }

    #[test]
    fn damage_is_found() {
        let bytes = example().encode();
        for at in 12..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(Manifest::decode(&wrong), Err(ManifestError::Damaged), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Manifest::decode(b"<html>"), Err(ManifestError::Foreign));
    }

    #[test]
    fn wrong_fields_are_found_behind_a_right_checksum() {
        let change = |at: usize, to: u8| {
            let mut bytes = example().encode();
            bytes[at] = to;
            Manifest::seal(&mut bytes);
            Manifest::decode(&bytes).expect_err("it is wrong").to_string()
        };
        assert_eq!(change(8, 2), "it has version 2, and this nigh reads version 1");
        assert!(change(12, 1).contains("4 MiB"));
        assert!(change(32, 1).contains("size"), "no multiple of the unit");
        assert!(change(40, 0).contains("epoch"), "objects of epoch 1");
        assert!(change(68, 13).contains("revisions"));
        assert!(change(67, 0x80).contains("revisions"), "more than any writer counts");
        assert!(change(76, 3).contains("ends too soon"));
        assert!(change(76, 1).contains("after its end"));
        assert!(change(HEAD, 9).contains("beyond the end"));
        assert_eq!(Manifest::new(0, 0), None);
        assert_eq!(Manifest::new(0, SIZE_MAX + UNIT), None);
        assert_eq!(Manifest::new(0, UNIT + 512), None);
        assert_eq!(Manifest::new(0, 1 << 63), None, "without memory for its parts");
    }

    #[test]
    fn only_what_earlier_writers_left_unnamed_is_left_over() {
        let manifest = example().claimed_by(10).expect("an epoch");
        assert_eq!((manifest.epoch, manifest.writer, manifest.revision, manifest.changed), (2, 10, 13, 11));
        let object = |part, epoch, number| Object { part, epoch, number };
        assert!(!manifest.is_leftover(object(1, 1, 4)), "it is named");
        assert!(manifest.is_leftover(object(1, 1, 5)));
        assert!(manifest.is_leftover(object(9, 1, 5)), "beyond the end");
        assert!(!manifest.is_leftover(object(1, 2, 1)), "its own");
        assert!(!manifest.is_leftover(object(1, 3, 1)), "a later writer's");
        assert!(!manifest.has_writer_of(&example()));
    }
}
