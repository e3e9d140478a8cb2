//! The pages of a file that the kernel's page cache holds and has evicted: cachestat(2) of Linux 6.5 and later, and before that mincore(2),
//! which knows nothing of pages that were evicted.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{AddAssign, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Access, access};

/// The same on all processors; libc has no name for it on some.
const SYS_CACHESTAT: libc::c_long = 451;
/// Pages that mincore is asked about at a time.
const CHUNK: usize = 1 << 16;

/// Counts of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// In the page cache.
    pub cached: u64,
    /// Of these, changed and not yet written; 0 if unknown.
    pub dirty: u64,
    /// Evicted and not read since, as far as the kernel remembers; 0 if unknown. Dropped pages (`posix_fadvise`, truncation) are not evicted.
    pub evicted: u64,
    /// Of these, so recently that they would still be in memory if there were a little more of it: a read of them counts as a refault of
    /// the working set.
    pub recently_evicted: u64,
}

impl AddAssign for Pages {
    fn add_assign(&mut self, other: Pages) {
        self.cached += other.cached;
        self.dirty += other.dirty;
        self.evicted += other.evicted;
        self.recently_evicted += other.recently_evicted;
    }
}

/// The system call that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// cachestat(2), which knows everything.
    Cachestat,
    /// mincore(2), which only knows what is cached.
    Mincore,
}

/// A file in the page cache.
#[derive(Debug)]
pub struct Cached {
    file: File,
    bytes: u64,
    way: Way,
}

impl Cached {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is none, [`io::ErrorKind::PermissionDenied`] if this user neither owns it nor may write it:
    /// the kernel reports the pages of such files to nobody else; and those of opening it.
    pub fn open(path: &Path) -> io::Result<Cached> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut cached = Cached { file, bytes: found.len(), way: Way::Cachestat };
        let refused = || {
            let reason =
                "the kernel reports the cached pages of a file only to its owner, and to users who may write it";
            io::Error::new(io::ErrorKind::PermissionDenied, reason)
        };
        match cached.cachestat(0..1) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(refused()),
            // Before Linux 6.5, on file systems that have no pages of this kind, or where a filter refuses calls that it does not know.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
                // mincore reports every page of other files as cached.
                if rustix::process::geteuid().as_raw() != found.uid() && access(path, Access::WRITE_OK).is_err() {
                    return Err(refused());
                }
                cached.way = Way::Mincore;
            }
            Err(error) => return Err(error),
        }
        Ok(cached)
    }

    /// The file's length in bytes, when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The system call that is used.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Counts the pages of a range of bytes.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn pages(&self, range: Range<u64>) -> io::Result<Pages> {
        if range.start >= range.end {
            return Ok(Pages::default());
        }
        match self.way {
            Way::Cachestat => self.cachestat(range),
            Way::Mincore => self.mincore(range),
        }
    }

    /// Counts the pages of `numbers`, which ascend, and gives each that is cached or evicted to `each`, with what it is. Pages that lie next
    /// to each other are asked about together, as long as they are alike.
    ///
    /// # Errors
    /// Those of [`Cached::pages`].
    pub fn each(&self, numbers: &[u64], each: &mut impl FnMut(u64, Pages)) -> io::Result<Pages> {
        let mut all = Pages::default();
        for run in numbers.chunk_by(|one, other| one + 1 == *other) {
            let mut parts = vec![run];
            while let Some(part) = parts.pop() {
                let [first, .., last] = part else {
                    if let [only] = part {
                        let found = self.pages(range(*only, *only))?;
                        all += found;
                        if found != Pages::default() {
                            each(*only, found);
                        }
                    }
                    continue;
                };
                let found = self.pages(range(*first, *last))?;
                let length = part.len() as u64;
                let is_all = found == Pages { cached: length, ..Pages::default() };
                if is_all {
                    let one = Pages { cached: 1, ..Pages::default() };
                    part.iter().for_each(|page| each(*page, one));
                    all += found;
                } else if found != Pages::default() {
                    let (low, high) = part.split_at(part.len() / 2);
                    parts.extend([high, low]);
                }
            }
        }
        Ok(all)
    }

    fn cachestat(&self, range: Range<u64>) -> io::Result<Pages> {
        let asked = [range.start, range.end - range.start];
        // Cached, dirty, being written, evicted, recently evicted.
        let mut found = [0_u64; 5];
        // SAFETY: both have the layouts of the kernel's `cachestat_range` and `cachestat`, and outlive the call.
        let refused =
            unsafe { libc::syscall(SYS_CACHESTAT, self.file.as_raw_fd(), asked.as_ptr(), found.as_mut_ptr(), 0_u32) };
        if refused != 0 {
            return Err(io::Error::last_os_error());
        }
        let [cached, dirty, _, evicted, recently_evicted] = found;
        Ok(Pages { cached, dirty, evicted, recently_evicted })
    }

    fn mincore(&self, range: Range<u64>) -> io::Result<Pages> {
        let page = page_bytes();
        // Beyond the end of the file, a mapping has no pages.
        let (start, end) = (range.start / page * page, range.end.min(self.bytes).next_multiple_of(page));
        let mut found = Pages::default();
        let mut at = start;
        while at < end {
            let length = (end - at).min(CHUNK as u64 * page) as usize;
            let mut pages = vec![0_u8; length.div_ceil(page as usize)];
            // SAFETY: a new mapping without access, at an address that the kernel chooses.
            let mapped = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_NONE,
                    libc::MAP_SHARED,
                    self.file.as_raw_fd(),
                    at as i64,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the range is that of the mapping, to which no reference exists, and `pages` has a byte for each page of it.
            let refused = unsafe {
                let refused = libc::mincore(mapped, length, pages.as_mut_ptr()) != 0;
                let refused = refused.then(io::Error::last_os_error);
                libc::munmap(mapped, length);
                refused
            };
            if let Some(error) = refused {
                return Err(error);
            }
            found.cached += pages.iter().filter(|page| **page & 1 != 0).count() as u64;
            at += length as u64;
        }
        Ok(found)
    }
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: it reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.try_into().unwrap_or(4096)
}

/// The bytes of the pages from `first` to `last`.
fn range(first: u64, last: u64) -> Range<u64> {
    first * page_bytes()..(last + 1) * page_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    /// A file of 64 pages on a disk, of which nothing is cached.
    fn file() -> (tempfile::NamedTempFile, Cached) {
        // A temporary folder may be in memory, where no page is ever evicted.
        let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; 64 * page_bytes() as usize]).unwrap();
        file.as_file().sync_all().unwrap();
        fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        let cached = Cached::open(file.path()).unwrap();
        (file, cached)
    }

    /// Reads pages without read-ahead.
    fn read(file: &File, pages: Range<u64>) {
        fadvise(file, 0, None, Advice::Random).unwrap();
        let mut bytes = vec![0; page_bytes() as usize];
        for page in pages {
            std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, page * page_bytes()).unwrap();
        }
    }

    #[test]
    fn a_file_that_was_read_in_part_and_dropped() {
        let (file, cached) = file();
        assert_eq!(cached.way(), Way::Cachestat, "this needs Linux 6.5");
        assert_eq!(cached.pages(0..cached.bytes()).unwrap(), Pages::default());
        read(file.as_file(), 8..24);
        let of = |pages: Range<u64>| cached.pages(pages.start * page_bytes()..pages.end * page_bytes()).unwrap().cached;
        assert_eq!((of(0..64), of(0..8), of(8..24), of(24..64), of(20..30)), (16, 0, 16, 0, 4));
        let mut seen = Vec::new();
        let all = cached.each(&[0, 1, 7, 8, 9, 22, 23, 24, 25, 63], &mut |page, found| seen.push((page, found.cached)));
        assert_eq!((all.unwrap().cached, &seen[..]), (4, &[(8, 1), (9, 1), (22, 1), (23, 1)][..]));
        // mincore agrees, also about the end of the file.
        let other = Cached { way: Way::Mincore, ..Cached::open(file.path()).unwrap() };
        assert_eq!(
            [other.pages(0..u64::MAX).unwrap().cached, other.pages(0..10 * page_bytes()).unwrap().cached],
            [16, 2]
        );
        fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        assert_eq!(cached.pages(0..cached.bytes()).unwrap(), Pages::default(), "what is dropped is not evicted");
    }

    #[test]
    fn dirty_and_evicted_pages_are_told_apart() {
        let (file, cached) = file();
        read(file.as_file(), 0..4);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1], 0).unwrap();
        assert_eq!(cached.pages(0..page_bytes()).unwrap(), Pages { cached: 1, dirty: 1, ..Pages::default() });
        file.as_file().sync_all().unwrap();
        read(file.as_file(), 0..64);
        let length = 64 * page_bytes() as usize;
        // SAFETY: a new mapping of a file that lives, to which no reference is made; it is asked to leave memory, and removed.
        let paged_out = unsafe {
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_file().as_raw_fd(),
                0,
            );
            assert_ne!(mapped, libc::MAP_FAILED);
            libc::madvise(mapped, length, libc::MADV_POPULATE_READ);
            let paged_out = libc::madvise(mapped, length, libc::MADV_PAGEOUT);
            libc::munmap(mapped, length);
            paged_out
        };
        assert_eq!(paged_out, 0);
        let found = cached.pages(0..cached.bytes()).unwrap();
        assert!(found.cached < 64 && found.evicted > 0 && found.recently_evicted <= found.evicted, "{found:?}");
        assert_eq!(found.cached + found.evicted, 64, "{found:?}");
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        assert_eq!(Cached::open(Path::new("/proc")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Cached::open(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
