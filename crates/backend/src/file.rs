//! A file or block device as a device.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nigh_engine::{Action, Exclusive, Fault};

use crate::allocation::Allocation;
use crate::device::{Completion, Device, Geometry, Job};
use crate::error::{OpenError, OpenErrorKind};
use crate::open::{OpenFile, Options};
use crate::pool::Pool;
use crate::uring::Uring;

/// Threads where there is no io_uring.
const THREADS: usize = 8;

/// What talks to the kernel.
enum Io {
    Ring(Box<Uring>),
    Threads(Pool),
}

/// The device. Reads of holes are answered without I/O.
pub(crate) struct FileDevice {
    file: Arc<OpenFile>,
    io: Io,
    allocation: Allocation,
    /// As `OpenFile::resizes` was when `allocation` was right.
    resizes: u32,
    /// Completions without I/O.
    done: Vec<Completion>,
}

impl FileDevice {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<FileDevice, OpenError> {
        assert!((1..=4096).contains(&options.depth), "a depth from 1 to 4096");
        let file = Arc::new(OpenFile::open(path, options)?);
        let ring = match options.threads {
            true => None,
            false => match Uring::new(&file, options.depth) {
                Ok(ring) => Some(ring),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "no io_uring: with threads instead");
                    None
                }
            },
        };
        let io = match ring {
            Some(ring) => Io::Ring(Box::new(ring)),
            None => Io::Threads(Pool::new(&file, THREADS).map_err(|source| OpenError {
                kind: OpenErrorKind::System,
                action: "start threads for",
                path: path.to_owned(),
                source,
            })?),
        };
        let resizes = file.resizes();
        Ok(FileDevice { file, io, allocation: Allocation::default(), resizes, done: Vec::new() })
    }

    /// Whether the whole of `job`'s read is known to be zeros.
    fn reads_hole(&mut self, job: &Job) -> bool {
        if self.file.block_device {
            return false;
        }
        let resizes = self.file.resizes();
        if resizes != self.resizes {
            self.resizes = resizes;
            self.allocation.clear();
        }
        let known: io::Result<bool> = self.allocation.is_hole(job.range(), |offset| self.file.extent(offset));
        // Where the extents cannot be known, reading finds out.
        known.unwrap_or(false)
    }
}

fn fill(frames: &mut Exclusive, bytes: u64) {
    let mut left = bytes as usize;
    for slice in frames.slices_mut() {
        let part = slice.len().min(left);
        slice[..part].fill(0);
        left -= part;
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.file.clone()
    }

    fn submit(&mut self, mut job: Job) {
        let reads = matches!(job.operation.action, Action::Read(_) | Action::Flush);
        if self.file.read_only && !reads {
            return self.done.push(job.finish(Err(Fault(libc::EROFS))));
        }
        if matches!(job.operation.action, Action::Write(_)) {
            self.allocation.learn(job.range(), false);
        }
        let hole = matches!(job.operation.action, Action::Read(_)) && self.reads_hole(&job);
        if let Action::Read(frames) = &mut job.operation.action
            && hole
        {
            fill(frames, job.bytes);
            return self.done.push(job.finish(Ok(())));
        }
        match &mut self.io {
            Io::Ring(ring) => ring.submit(job),
            Io::Threads(pool) => pool.submit(job),
        }
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
        let before = done.len();
        match &mut self.io {
            Io::Ring(ring) => ring.poll(done),
            Io::Threads(pool) => pool.poll(done),
        }
        for Completion { operation, .. } in &done[before..] {
            let range = operation.offset..operation.offset + operation.length;
            match operation.action {
                // Once more: a read may have found a hole there while the write was on its way.
                Action::Write(_) => self.allocation.learn(range, false),
                Action::Discard | Action::Zeroes { .. } => self.allocation.forget(range),
                Action::Read(_) | Action::Flush => {}
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.io {
            Io::Ring(ring) => ring.deadline(),
            Io::Threads(_) => None,
        }
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.io {
            Io::Ring(ring) => ring.signal(),
            Io::Threads(pool) => pool.signal(),
        })
    }
}
