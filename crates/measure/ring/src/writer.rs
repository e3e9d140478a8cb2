//! The program's side.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{BYTES, MAGIC, MODULES, Module, NAME_BYTES, Name, RINGS, Record, Ring, SLOTS, Shared, Unseen};

/// Slots of a ring that get memory at a time.
const STEP: u32 = 64;

/// The shared file of this process.
#[derive(Clone, Copy)]
pub struct Writer(NonNull<Shared>);

/// The ring of one thread.
#[derive(Clone, Copy)]
pub struct Claim(NonNull<Ring>);

impl Writer {
    /// Creates the shared file at `path`. It makes system calls only.
    pub fn create(path: &CStr, pid: u32, program: &[u8]) -> Option<Writer> {
        // A program with a limit on its files would be killed.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` has room for the answer; 0 is this process, and null is no new limit.
        let known = unsafe {
            let new = std::ptr::null::<libc::rlimit>();
            libc::syscall(libc::SYS_prlimit64, 0_i64, i64::from(libc::RLIMIT_FSIZE), new, &raw mut limit)
        };
        if known != 0 || limit.rlim_cur < BYTES as u64 {
            return None;
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the path is a C string; the other arguments are numbers.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
        if fd < 0 {
            return None;
        }
        // SAFETY: numbers only; the file was just created, and nobody else shortens it.
        let mapped = unsafe {
            let sized = libc::syscall(libc::SYS_ftruncate, fd, BYTES);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let mapped = if sized == 0 {
                libc::syscall(libc::SYS_mmap, 0_i64, BYTES, protection, libc::MAP_SHARED, fd, 0_i64)
            } else {
                -1
            };
            libc::syscall(libc::SYS_close, fd);
            mapped
        };
        if (-4095..0).contains(&mapped) {
            return None;
        }
        let writer = Writer(NonNull::new(mapped as *mut Shared)?);
        if !has_memory(writer.0.as_ptr().cast(), offset_of!(Shared, rings)) {
            // SAFETY: it was just mapped, and nothing refers to it; the path is a C string.
            unsafe {
                libc::syscall(libc::SYS_munmap, mapped, BYTES);
                libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
            }
            return None;
        }
        let shared = writer.shared();
        shared.pid.store(pid, Ordering::Relaxed);
        set_name(&shared.program, program);
        shared.magic.store(MAGIC, Ordering::Release);
        Some(writer)
    }

    /// A pointer that stands for it.
    pub fn into_raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// The writer that `raw` stands for; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or comes from `into_raw` in this process.
    pub unsafe fn from_raw(raw: *mut c_void) -> Option<Writer> {
        NonNull::new(raw.cast()).map(Writer)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it is mapped until the process ends, is as long as `Shared`, and has no invalid values; all that
        // several threads write is atomic, except the slots, of which no reference is made.
        unsafe { self.0.as_ref() }
    }

    /// Whether there is a recorder that reads what is written.
    pub fn is_read(&self) -> bool {
        self.shared().abandoned.load(Ordering::Relaxed) == 0
    }

    /// The number of the module at `path`, `None` if there are too many.
    pub fn module(&self, path: &[u8]) -> Option<u16> {
        let shared = self.shared();
        let path = path.get(..NAME_BYTES).unwrap_or(path);
        let used = (shared.modules_used.load(Ordering::Acquire) as usize).min(MODULES);
        let is_it = |module: &Module| Name::of(module).is_some_and(|name| name.bytes() == path);
        let known = shared.modules.iter().take(used).position(is_it);
        if let Some(known) = known {
            return u16::try_from(known).ok();
        }
        let number = shared.modules_used.fetch_add(1, Ordering::AcqRel) as usize;
        let Some(module) = shared.modules.get(number) else {
            shared.modules_used.store(MODULES as u32, Ordering::Relaxed);
            return None;
        };
        set_name(module, path);
        u16::try_from(number).ok()
    }

    /// Takes a ring for this thread, by its number; `None` if others have all, or if there is no memory for one more.
    pub fn claim(&self, thread: u32) -> Option<Claim> {
        let shared = self.shared();
        let free = |ring: &Ring| ring.take(thread);
        // Threads that follow each other would fill one ring before it is read.
        let is_read = |ring: &Ring| ring.head.load(Ordering::Relaxed) == ring.tail.load(Ordering::Relaxed);
        let take = |wanted: &dyn Fn(&Ring) -> bool| {
            let used = shared.rings_used.load(Ordering::Acquire) as usize;
            shared.rings.iter().take(used.min(RINGS)).find(|ring| wanted(ring) && free(ring))
        };
        if let Some(ring) = take(&is_read) {
            return Some(Claim(NonNull::from(ring)));
        }
        loop {
            let used = shared.rings_used.load(Ordering::Acquire);
            let Some(ring) = shared.rings.get(used as usize).filter(|_| (used as usize) < RINGS) else { break };
            if !has_memory((&raw const *ring).cast(), offset_of!(Ring, slots)) {
                break;
            }
            // The recorder reads the ring after this.
            shared.rings_used.fetch_max(used + 1, Ordering::AcqRel);
            if free(ring) {
                return Some(Claim(NonNull::from(ring)));
            }
        }
        take(&|_| true).map(|ring| Claim(NonNull::from(ring)))
    }

    /// Writes `records`, all or none, into `own`, or into the common ring if this thread has none. If there is no room, it waits: `pause`
    /// returns whether to go on waiting. Returns whether they were written.
    pub fn write(&self, own: Option<Claim>, thread: u32, records: &[Record], mut pause: impl FnMut() -> bool) -> bool {
        if let Some(own) = own {
            return self.wait(&mut pause, || own.has_room(records.len())) && own.write(records);
        }
        let [.., common] = &self.shared().rings;
        // A thread that jumped out of this function has it still.
        let take = || common.take(thread) || common.taken.load(Ordering::Relaxed) == thread;
        if !has_memory((&raw const *common).cast(), offset_of!(Ring, slots)) || !self.wait(&mut pause, take) {
            return false;
        }
        self.shared().rings_used.store(RINGS as u32 + 1, Ordering::Release);
        let claim = Claim(NonNull::from(common));
        let written = self.wait(&mut pause, || claim.has_room(records.len())) && claim.write(records);
        claim.release();
        written
    }

    /// Waits until `is_ready`, unless calls are to be lost instead. Nobody waits again for a recorder that did not read for the time of a
    /// wait, until it does.
    fn wait(&self, pause: &mut impl FnMut() -> bool, is_ready: impl Fn() -> bool) -> bool {
        let Shared { lossy, stalled, .. } = self.shared();
        while !is_ready() {
            if [lossy, stalled].iter().any(|flag| flag.load(Ordering::Relaxed) != 0) || !self.is_read() {
                return false;
            }
            if !pause() {
                stalled.store(1, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    /// Something that this process does is not recorded.
    pub fn miss(&self, unseen: Unseen) {
        self.shared().unseen.fetch_or(unseen as u64, Ordering::Relaxed);
    }

    /// Counts a call that is not recorded.
    pub fn lose(&self) {
        self.shared().lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Claim {
    fn ring(&self) -> &Ring {
        // SAFETY: the ring is mapped until the process ends; all of it is atomic, except the slots, of which no reference
        // is made.
        unsafe { self.0.as_ref() }
    }

    fn has_room(&self, count: usize) -> bool {
        let Ring { head, tail, .. } = self.ring();
        let used = head.load(Ordering::Relaxed).wrapping_sub(tail.load(Ordering::Acquire));
        used as usize + count <= SLOTS
    }

    /// Gets memory for the first `slots` slots; returns whether they have it.
    pub fn prepare(&self, slots: usize) -> bool {
        let Ring { ready, slots: all, .. } = self.ring();
        let mut with_memory = ready.load(Ordering::Relaxed);
        while (with_memory as usize) < SLOTS.min(slots) {
            // SAFETY: the slot is within the ring.
            let slot = unsafe { all.get().cast::<Record>().add(with_memory as usize) };
            if !has_memory(slot.cast(), STEP as usize * size_of::<Record>()) {
                return false;
            }
            with_memory += STEP;
            ready.store(with_memory, Ordering::Relaxed);
        }
        true
    }

    /// Writes `records`, for which there is room; returns whether there is memory for them.
    fn write(&self, records: &[Record]) -> bool {
        let Ring { head, slots, .. } = self.ring();
        let begin = head.load(Ordering::Relaxed);
        if !self.prepare(begin as usize + records.len()) {
            return false;
        }
        for (at, record) in (0..).zip(records) {
            let slot = begin.wrapping_add(at) as usize % SLOTS;
            // SAFETY: the slot is within the ring, only this thread writes it, and the recorder reads it only after
            // `head` has passed it.
            unsafe { slots.get().cast::<Record>().add(slot).write(*record) };
        }
        head.store(begin.wrapping_add(records.len() as u32), Ordering::Release);
        true
    }

    /// Gives the ring back; what is in it is still read.
    pub fn release(self) {
        self.ring().taken.store(0, Ordering::Release);
    }
}

impl Ring {
    /// Takes it for `thread`, if no other has it.
    fn take(&self, thread: u32) -> bool {
        self.taken.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Whether this process may not ask for memory any more.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Memory is no longer asked for: the process may not call `madvise`.
pub fn forbid_memory() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// Whether there is memory for these bytes of a shared file, which they get now. Without, writing there would end the process by
/// SIGBUS, as in a file system that is full. Before Linux 5.14, this is not known.
fn has_memory(begin: *const u8, bytes: usize) -> bool {
    const POPULATE_WRITE: i64 = 23;
    if FORBIDDEN.load(Ordering::Relaxed) {
        return false;
    }
    const PAGE_BYTES: usize = 4096;
    let first = begin as usize / PAGE_BYTES * PAGE_BYTES;
    let bytes = begin as usize + bytes - first;
    // SAFETY: the range is of a mapping of this process, and its contents do not change.
    let refused = unsafe { libc::syscall(libc::SYS_madvise, first, bytes, POPULATE_WRITE) } != 0;
    // SAFETY: the pointer is valid in every thread.
    !refused || unsafe { *libc::__errno_location() } == libc::EINVAL
}

fn set_name(module: &Module, text: &[u8]) {
    let length = text.len().min(NAME_BYTES);
    // SAFETY: only this thread writes this name, and nobody reads it before its length is there.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), module.bytes.get().cast::<u8>(), length) };
    module.length.store(length as u32, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File;

    use super::*;
    use crate::Reader;

    /// Threads that end before their records are read leave their rings to later ones only if there are no others.
    #[test]
    fn rings_that_were_read_are_taken_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let writer = Writer::create(&name, 1, b"program").unwrap();
        let write = |count: usize| {
            let claim = writer.claim(1).unwrap();
            assert!(writer.write(Some(claim), 1, &vec![Record::default(); count], || false));
            claim.release();
        };
        write(SLOTS);
        write(SLOTS);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut reader = Reader::open(&file).unwrap().unwrap();
        assert_eq!(reader.rings(), 2);
        let mut records = Vec::new();
        reader.read(0, &mut records);
        write(5);
        assert_eq!((reader.rings(), records.len()), (2, SLOTS), "the first ring is free again");
        let kept: Vec<Claim> = (2..crate::RINGS).filter_map(|_| writer.claim(1)).collect();
        assert!(
            kept.len() == crate::RINGS - 2 && writer.claim(1).is_some(),
            "rings that were not read are better than none"
        );
    }

    /// A full ring makes its thread wait until the recorder reads, or for a limited time, or not at all. Threads without a ring share one.
    #[test]
    fn incomplete_3_a_full_ring_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let writer = Writer::create(&name, 1, b"program").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut reader = Reader::open(&file).unwrap().unwrap();
        let full = vec![Record::default(); SLOTS];
        let one = [Record::default()];
        for own in [writer.claim(1), None] {
            let ring = own.map_or(RINGS, |_| 0);
            assert!(writer.write(own, 1, &full, || false));
            let (mut pauses, mut found) = (0, Vec::new());
            let reads = || {
                pauses += 1;
                if pauses == 3 {
                    reader.read(ring, &mut found);
                }
                true
            };
            assert!(writer.write(own, 1, &one, reads));
            assert_eq!((pauses, found.len()), (3, SLOTS));
            let stalls = |most: u32| {
                let mut pauses = 0;
                let is_written = writer.write(own, 1, &full, || {
                    pauses += 1;
                    pauses < most
                });
                (is_written, pauses)
            };
            assert_eq!([stalls(5), stalls(5)], [(false, 5), (false, 0)], "only the first one waits");
            reader.read(ring, &mut found);
            assert_eq!((found.len(), stalls(5)), (SLOTS + 1, (true, 0)), "until the recorder reads again");
            assert_eq!(stalls(2), (false, 2));
            reader.read(ring, &mut found);
        }
        reader.be_lossy();
        assert!(writer.write(None, 1, &full, || false));
        assert!(!writer.write(None, 1, &one, || unreachable!("it does not wait")));
        assert_eq!(reader.rings(), RINGS + 1);
    }
}
