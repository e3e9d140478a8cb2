//! The recorder's side.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use crate::mapping::Mapping;
use crate::{BYTES, MAGIC, Name, RINGS, Record, SLOTS, Shared, Unseen};

/// The shared file of a recorded process.
pub struct Reader {
    mapping: Mapping,
    /// Records read of each ring.
    tails: Vec<u32>,
}

impl Reader {
    /// Maps a shared file; `None` if it is not complete yet.
    pub fn open(file: &File) -> io::Result<Option<Reader>> {
        if file.metadata()?.len() != BYTES as u64 {
            return Ok(None);
        }
        // Not through the mapping, which has no memory yet if the process did not get any.
        let mut magic = [0; size_of::<u64>()];
        file.read_exact_at(&mut magic, offset_of!(Shared, magic) as u64)?;
        if u64::from_ne_bytes(magic) != MAGIC {
            return Ok(None);
        }
        Ok(Some(Reader { mapping: Mapping::of(file)?, tails: vec![0; RINGS + 1] }))
    }

    fn shared(&self) -> &Shared {
        self.mapping.shared()
    }

    /// Whether the program has shortened the file: what it wrote since the last reading is lost.
    pub fn is_shortened(&self) -> bool {
        self.mapping.is_lost()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.shared().pid.load(Ordering::Relaxed)
    }

    /// The path of the program.
    pub fn program(&self) -> Vec<u8> {
        Name::of(&self.shared().program).map(|name| name.bytes().to_vec()).unwrap_or_default()
    }

    /// The path of a module, if it has one by now.
    pub fn module(&self, number: u16) -> Option<Vec<u8>> {
        Name::of(self.shared().modules.get(usize::from(number))?).map(|name| name.bytes().to_vec())
    }

    /// Calls that were not recorded.
    pub fn lost(&self) -> u64 {
        self.shared().lost.load(Ordering::Relaxed)
    }

    /// Whether the process does this.
    pub fn has(&self, unseen: Unseen) -> bool {
        self.shared().unseen.load(Ordering::Relaxed) & unseen as u64 != 0
    }

    /// Has calls lost when a ring is full, instead of waiting.
    pub fn be_lossy(&self) {
        self.shared().lossy.store(1, Ordering::Relaxed);
    }

    /// How many of the rings were used, from the first.
    pub fn rings(&self) -> usize {
        (self.shared().rings_used.load(Ordering::Acquire) as usize).min(RINGS + 1)
    }

    /// Appends all records of ring `number` to `out`; it has been read up to here.
    pub fn read(&mut self, number: usize, out: &mut Vec<Record>) {
        let known = out.len();
        // SAFETY: it is mapped, and as long as `Shared`; the number is checked by the index.
        let ring = unsafe { &raw const (*self.mapping.as_ptr()).rings[number] };
        // SAFETY: `head` and `tail` are atomic, in the mapping.
        let (head, tail) = unsafe { (&(*ring).head, &(*ring).tail) };
        let end = head.load(Ordering::Acquire);
        let waiting = (end.wrapping_sub(self.tails[number]) as usize).min(SLOTS);
        for at in 0..waiting {
            let slot = self.tails[number].wrapping_add(at as u32) as usize % SLOTS;
            // SAFETY: the slot is within the ring, and every pattern of bits is a record.
            out.push(unsafe { (*ring).slots.get().cast::<Record>().add(slot).read_volatile() });
        }
        if self.is_shortened() {
            // Zeros are no records.
            return out.truncate(known);
        }
        self.tails[number] = end;
        tail.store(end, Ordering::Release);
        self.shared().stalled.store(0, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared().abandoned.store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    /// A process whose file was seen too early is still recorded.
    #[test]
    fn a_file_that_is_not_complete_is_left_as_it_is() {
        // SAFETY: the descriptor is new, and owned by nothing else.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"shared".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(BYTES as u64).unwrap();
        assert!(Reader::open(&file).unwrap().is_none());
        file.write_all_at(&MAGIC.to_ne_bytes(), offset_of!(Shared, magic) as u64).unwrap();
        let reader = Reader::open(&file).unwrap().unwrap();
        assert_eq!(reader.shared().abandoned.load(Ordering::Relaxed), 0);
    }

    /// A program can shorten its file at any time. The recorder goes on, and reads no records that nobody wrote.
    #[test]
    fn incomplete_6_a_file_that_is_shortened_ends_no_recorder() {
        for length in [0, 4096, BYTES as u64 / 2] {
            // SAFETY: the descriptor is new, and owned by nothing else.
            let file = unsafe { File::from_raw_fd(libc::memfd_create(c"shared".as_ptr(), libc::MFD_CLOEXEC)) };
            file.set_len(BYTES as u64).unwrap();
            file.write_all_at(&MAGIC.to_ne_bytes(), offset_of!(Shared, magic) as u64).unwrap();
            let mut reader = Reader::open(&file).unwrap().unwrap();
            let mut other = Reader::open(&file).unwrap().unwrap();
            let (mut records, last) = (Vec::new(), RINGS);
            reader.shared().rings[last].head.store(3, Ordering::Relaxed);
            other.read(last, &mut records);
            assert_eq!((records.len(), reader.is_shortened()), (3, false));
            file.set_len(length).unwrap();
            reader.read(last, &mut records);
            assert_eq!((records.len(), reader.is_shortened()), (3, true), "{length}");
            for number in 0..=last {
                reader.read(number, &mut records);
            }
            assert_eq!((records.len(), reader.rings(), reader.lost()), (3, 0, 0));
            drop(reader);
            // The place in the list is free for another file.
            let file = tempfile::tempfile().unwrap();
            file.set_len(BYTES as u64).unwrap();
            file.write_all_at(&MAGIC.to_ne_bytes(), offset_of!(Shared, magic) as u64).unwrap();
            assert!(!Reader::open(&file).unwrap().unwrap().is_shortened());
        }
    }
}
