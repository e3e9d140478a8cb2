//! nigh's mappings of files that programs can write. One that shortens its file takes the memory of the mapping away; nigh, which SIGBUS
//! would end, gets zeros in its place.
//!
//! 1. The first mapping installs a handler of SIGBUS.
//! 2. Each mapping is entered in a list, which the handler can walk without a lock. Entries are never freed, but used again.
//! 3. If a fault is in a mapping of the list, the handler places private memory there, and notes that.
//! 4. For any other fault, the former handler gets its place back, and the fault happens again.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::{BYTES, Shared};

pub(crate) struct Entry {
    /// The address of the mapping; 0 if the entry is free.
    begin: AtomicUsize,
    bytes: AtomicUsize,
    is_lost: AtomicBool,
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// The action for SIGBUS before ours.
static FORMER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// A mapped file of a process.
pub(crate) struct Mapping {
    shared: NonNull<Shared>,
    entry: &'static Entry,
}

// SAFETY: the mapping belongs to no thread, and what others write in it is atomic or copied.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(crate) fn of(file: &File) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = NonNull::new(mapped.cast::<Shared>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Mapping { shared, entry: enter(mapped as usize, BYTES) })
    }

    pub(crate) fn as_ptr(&self) -> *mut Shared {
        self.shared.as_ptr()
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: it is mapped until `self` is dropped, is as long as `Shared`, and has no invalid values; all that another process
        // writes is atomic, except the slots and names, of which no reference is made.
        unsafe { self.shared.as_ref() }
    }

    /// Whether the file was shortened, so that parts of the mapping are zeros.
    pub(crate) fn is_lost(&self) -> bool {
        self.entry.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.as_ptr().cast(), BYTES) };
        self.entry.begin.store(0, Ordering::Release);
    }
}

/// The entries of the list.
fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or an entry, which is never freed.
    let entry = |at: &AtomicPtr<Entry>| unsafe { at.load(Ordering::Acquire).as_ref::<'static>() };
    std::iter::successors(entry(&FIRST), move |last| entry(&last.next))
}

/// Enters a mapping that begins here.
pub(crate) fn enter(begin: usize, bytes: usize) -> &'static Entry {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(install);
    let is_free = |entry: &&Entry| entry.begin.compare_exchange(0, begin, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some(entry) = entries().find(is_free) {
        entry.bytes.store(bytes, Ordering::Relaxed);
        entry.is_lost.store(false, Ordering::Relaxed);
        return entry;
    }
    let (begin, bytes, is_lost) = (AtomicUsize::new(begin), AtomicUsize::new(bytes), AtomicBool::new(false));
    let entry: &'static Entry = Box::leak(Box::new(Entry { begin, bytes, is_lost, next: AtomicPtr::default() }));
    let mut first = FIRST.load(Ordering::Acquire);
    loop {
        entry.next.store(first, Ordering::Relaxed);
        let own = ptr::from_ref(entry).cast_mut();
        match FIRST.compare_exchange(first, own, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(other) => first = other,
        }
    }
}

fn install() {
    let mut former = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: `action` is complete, and the handler makes system calls only; `former` has room for the answer.
    unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = at_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        if libc::sigaction(libc::SIGBUS, &raw const action, former.as_mut_ptr()) == 0 {
            FORMER.store(Box::leak(Box::new(former.assume_init())), Ordering::Release);
        }
    }
}

extern "C" fn at_fault(_: libc::c_int, about: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes it with SA_SIGINFO; signals that are sent have no address of a mapping.
    let (address, is_fault) = unsafe { ((*about).si_addr() as usize, (*about).si_code > 0) };
    let is_in = |entry: &&Entry| {
        let begin = entry.begin.load(Ordering::Acquire);
        begin != 0 && (begin..begin + entry.bytes.load(Ordering::Relaxed)).contains(&address)
    };
    if let Some(entry) = entries().find(is_in).filter(|_| is_fault) {
        entry.is_lost.store(true, Ordering::Relaxed);
        let (begin, bytes) = (entry.begin.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: it takes the place of a mapping of this length.
        if unsafe { libc::mmap(begin as *mut libc::c_void, bytes, protection, flags, -1, 0) } != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: null, or the action that the kernel returned.
    unsafe {
        libc::sigaction(libc::SIGBUS, FORMER.load(Ordering::Acquire), ptr::null_mut());
        if !is_fault {
            libc::raise(libc::SIGBUS);
        }
    }
}
