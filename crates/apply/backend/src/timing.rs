//! How long reads of a file or block device take, for `nigh_device::measure`.

use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use nigh_device::{Batch, Timed};

use crate::error::{OpenError, OpenErrorKind};
use crate::open::{OpenFile, Options};

/// Alignment of buffers: enough for O_DIRECT of every block size up to a page.
const ALIGN: usize = 4096;

/// A file or block device that is read and never written, past the page cache.
#[derive(Debug)]
pub struct ReadTimer(OpenFile);

impl ReadTimer {
    /// Opens it, locked against those who would write it meanwhile.
    pub fn open(path: &Path) -> Result<ReadTimer, OpenError> {
        let file = OpenFile::open(path, &Options { read_only: true, ..Options::default() })?;
        if file.direct.is_none() {
            let source = io::Error::new(io::ErrorKind::Unsupported, "its file system has no O_DIRECT");
            let (kind, action) = (OpenErrorKind::Unsuitable, "read past the page cache from");
            return Err(OpenError { kind, action, path: path.to_owned(), source });
        }
        Ok(ReadTimer(file))
    }

    /// Its size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        self.0.look_at_size()
    }

    /// Does the reads of `batch`, as many at a time as its depth, with a thread for each of those.
    pub fn run(&self, batch: &Batch) -> io::Result<Timed> {
        let next = AtomicUsize::new(0);
        let ready = Barrier::new(batch.outstanding);
        let longest = batch.reads.iter().map(|read| read.1).max().unwrap_or(0) as usize;
        // Each thread: number of a read, when it began and ended.
        let work = || -> io::Result<Vec<(usize, Instant, Instant)>> {
            let mut memory = vec![0; longest + ALIGN];
            let aligned = memory.as_ptr().align_offset(ALIGN);
            ready.wait();
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(offset, bytes)) = batch.reads.get(at) else { return Ok(done) };
                let begin = Instant::now();
                self.read(&mut memory[aligned..aligned + bytes as usize], offset)?;
                done.push((at, begin, Instant::now()));
            }
        };
        let done = match batch.outstanding {
            1 => work()?,
            many => std::thread::scope(|scope| {
                let threads: Vec<_> = (0..many).map(|_| scope.spawn(work)).collect();
                let results = threads.into_iter().map(|thread| thread.join().expect("no reader panics"));
                results.collect::<io::Result<Vec<_>>>().map(|parts| parts.concat())
            })?,
        };
        let mut each_ns = vec![0; batch.reads.len()];
        for &(at, begin, end) in &done {
            each_ns[at] = (end - begin).as_nanos() as u64;
        }
        let begin = done.iter().map(|read| read.1).min();
        let end = done.iter().map(|read| read.2).max();
        let total_ns = begin.zip(end).map_or(0, |(begin, end)| (end - begin).as_nanos() as u64);
        Ok(Timed { each_ns, total_ns })
    }

    fn read(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        let direct = self.0.direct.as_ref().expect("checked when it was opened");
        while !buffer.is_empty() {
            match rustix::io::pread(&direct.file, &mut *buffer, offset) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter")),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
