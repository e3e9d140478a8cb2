//! The recorder's side.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::{BYTES, MAGIC, Name, RINGS, Record, SLOTS, Shared, Unseen};

/// The shared file of a recorded process.
pub struct Reader {
    shared: NonNull<Shared>,
    /// Records read of each ring.
    tails: Vec<u32>,
}

// SAFETY: the mapping belongs to no thread, and what others write in it is atomic or copied.
unsafe impl Send for Reader {}

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
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = NonNull::new(mapped.cast::<Shared>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Reader { shared, tails: vec![0; RINGS + 1] }))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it is mapped until `self` is dropped. A program that shortens its file makes access fail; the folder is known only to
        // the user who records, and to the programs that are recorded.
        unsafe { self.shared.as_ref() }
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
        // SAFETY: as in `shared`; the number is checked by the index.
        let ring = unsafe { &raw const (*self.shared.as_ptr()).rings[number] };
        // SAFETY: `head` and `tail` are atomic, in the mapping.
        let (head, tail) = unsafe { (&(*ring).head, &(*ring).tail) };
        let end = head.load(Ordering::Acquire);
        let waiting = (end.wrapping_sub(self.tails[number]) as usize).min(SLOTS);
        for at in 0..waiting {
            let slot = self.tails[number].wrapping_add(at as u32) as usize % SLOTS;
            // SAFETY: the slot is within the ring, and every pattern of bits is a record.
            out.push(unsafe { (*ring).slots.get().cast::<Record>().add(slot).read_volatile() });
        }
        self.tails[number] = end;
        tail.store(end, Ordering::Release);
        self.shared().stalled.store(0, Ordering::Relaxed);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared().abandoned.store(1, Ordering::Relaxed);
        // SAFETY: it was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), BYTES) };
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
}
