//! A file or block device as a device.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use nigh_engine::{Action, Fault};

use crate::allocation::Allocation;
use crate::asker::Asker;
use crate::device::{Completion, Device, Extent, Geometry, Job};
use crate::error::{OpenError, OpenErrorKind};
use crate::open::{OpenFile, Options};
use crate::pool::Pool;
use crate::uring::Uring;

/// Number of threads for files without io_uring, or on which io_uring would block.
const THREADS: usize = 16;
/// Changes during a look-up that are remembered: if there are more, its answer does not count.
const CHANGES_MAX: usize = 256;

/// An extent that is being looked up, and what is changed meanwhile.
struct Look {
    answer: Receiver<io::Result<Extent>>,
    /// Ranges, and whether they are data now.
    changed: Vec<(Range<u64>, bool)>,
    /// The size changed meanwhile, or there were too many changes.
    void: bool,
}

/// The interface to the kernel.
enum Io {
    Ring(Box<Uring>),
    Threads(Pool),
}

/// The device. Reads of holes are answered without I/O.
pub(crate) struct FileDevice {
    file: Arc<OpenFile>,
    io: Io,
    asker: Arc<Asker>,
    allocation: Allocation,
    /// At most one look-up at a time: if it does not end, the file does not respond.
    look: Option<Look>,
    /// As `OpenFile::resizes` was when `allocation` was right.
    resizes: u32,
    /// Completions without I/O.
    done: Vec<Completion>,
}

impl FileDevice {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<FileDevice, OpenError> {
        assert!((1..=4096).contains(&options.depth), "a depth from 1 to 4096");
        let no_threads = |source| OpenError {
            kind: OpenErrorKind::System,
            action: "start threads for",
            path: path.to_owned(),
            source,
        };
        let file = Arc::new(OpenFile::open(path, options)?);
        let ring = match options.threads || !file.knows_no_wait() {
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
            None => Io::Threads(Pool::of_file(&file, THREADS).map_err(no_threads)?),
        };
        let asker = Arc::new(Asker::new(file.clone()).map_err(no_threads)?);
        let resizes = file.resizes();
        Ok(FileDevice { file, io, asker, allocation: Allocation::default(), look: None, resizes, done: Vec::new() })
    }

    /// From now on, `range` is data, or it is not known what it is.
    fn change(&mut self, range: Range<u64>, data: bool) {
        if let Some(look) = &mut self.look {
            look.void |= look.changed.len() >= CHANGES_MAX;
            if !look.void {
                look.changed.push((range.clone(), data));
            }
        }
        note(&mut self.allocation, range, data);
    }

    /// Adopts the answer of a look-up, if there is one.
    fn finish_look(&mut self) {
        let Some(answer) = self.look.as_ref().and_then(|look| look.answer.try_recv().ok()) else { return };
        let Some(Look { changed, void, .. }) = self.look.take() else { return };
        if let Ok(Extent { range, hole }) = answer
            && !void
        {
            self.allocation.learn(range, hole);
            changed.into_iter().for_each(|(range, data)| note(&mut self.allocation, range, data));
        }
    }

    /// Whether the whole of `job`'s read is known to be zeros. Unknown ranges are looked up for later reads: the driver's
    /// thread must not wait for the file.
    fn reads_hole(&mut self, job: &Job) -> bool {
        if self.file.block_device {
            return false;
        }
        let resizes = self.file.resizes();
        if resizes != self.resizes {
            self.resizes = resizes;
            self.allocation.clear();
            self.look.iter_mut().for_each(|look| look.void = true);
        }
        self.finish_look();
        match self.allocation.is_hole(job.range()) {
            Ok(hole) => hole,
            Err(unknown) => {
                let ask = || Look { answer: self.asker.look(unknown), changed: Vec::new(), void: false };
                self.look.get_or_insert_with(ask);
                false
            }
        }
    }
}

/// `range` is data, or it is not known what it is.
fn note(allocation: &mut Allocation, range: Range<u64>, data: bool) {
    match data {
        true => allocation.learn(range, false),
        false => allocation.forget(range),
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.asker.clone()
    }

    fn submit(&mut self, job: Job) {
        let reads = matches!(job.operation.action, Action::Read(_) | Action::Flush);
        if self.file.read_only && !reads {
            return self.done.push(job.finish(Err(Fault(libc::EROFS))));
        }
        if matches!(job.operation.action, Action::Write(_) | Action::Zeroes { .. }) && !self.file.block_device {
            let range = job.operation.offset..job.operation.offset + job.operation.length;
            // It would grow again, with a hole where it was cut off.
            if !self.file.has(&range) {
                return self.done.push(job.finish(Err(Fault(libc::ENOSPC))));
            }
        }
        if matches!(job.operation.action, Action::Write(_)) {
            self.change(job.range(), true);
        }
        if matches!(job.operation.action, Action::Read(_)) && self.reads_hole(&job) {
            return self.done.push(job.finish_hole());
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
                Action::Write(_) => self.change(range, true),
                Action::Discard | Action::Zeroes { .. } => self.change(range, false),
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
