//! A disk in memory, which takes only as much of it as was written.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use nigh_engine::{Action, Fault};

use crate::device::{Completion, Device, Extent, Geometry, Job};

/// Unit of allocation, in bytes.
const CHUNK: u64 = 1 << 16;

/// The contents.
struct Store {
    size: u64,
    /// By number, those that were written.
    chunks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Store {
    fn chunks(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.chunks.lock().expect("nobody panics with it")
    }
}

/// `range` chunk by chunk: its number, and the range within it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    (range.start / CHUNK..range.end.div_ceil(CHUNK)).map(move |chunk| {
        let start = range.start.max(chunk * CHUNK) - chunk * CHUNK;
        let end = range.end.min((chunk + 1) * CHUNK) - chunk * CHUNK;
        (chunk, start as usize..end as usize)
    })
}

impl Geometry for Store {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn extents(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Extent>> {
        let chunks = self.chunks();
        let mut extents: Vec<Extent> = Vec::new();
        for (chunk, within) in pieces(range) {
            let hole = !chunks.contains_key(&chunk);
            let end = chunk * CHUNK + within.end as u64;
            if let Some(last) = extents.last_mut().filter(|last| last.hole == hole) {
                last.range.end = end;
            } else if extents.len() < most {
                extents.push(Extent { range: chunk * CHUNK + within.start as u64..end, hole });
            } else {
                break;
            }
        }
        Ok(extents)
    }
}

/// The device.
pub(crate) struct Memory {
    store: Arc<Store>,
    done: Vec<Completion>,
}

impl Memory {
    /// `size` zeros.
    pub(crate) fn new(size: u64) -> Memory {
        Memory { store: Arc::new(Store { size, chunks: Mutex::default() }), done: Vec::new() }
    }

    fn perform(&self, job: &mut Job) -> Result<(), Fault> {
        let (offset, length) = (job.operation.offset, job.operation.length);
        if offset + length > self.store.size {
            return Err(Fault(libc::EIO));
        }
        let mut chunks = self.store.chunks();
        let mut left = job.bytes as usize;
        let mut at = offset;
        match &mut job.operation.action {
            Action::Read(frames) => {
                for slice in frames.slices_mut() {
                    let bytes = slice.len().min(left);
                    let mut out = &mut slice[..bytes];
                    for (chunk, within) in pieces(at..at + bytes as u64) {
                        let (now, later) = out.split_at_mut(within.len());
                        match chunks.get(&chunk) {
                            Some(chunk) => now.copy_from_slice(&chunk[within]),
                            None => now.fill(0),
                        }
                        out = later;
                    }
                    left -= bytes;
                    at += bytes as u64;
                }
            }
            Action::Write(frames) => {
                for slice in frames.slices() {
                    let bytes = slice.len().min(left);
                    let mut data = &slice[..bytes];
                    for (chunk, within) in pieces(at..at + bytes as u64) {
                        let (now, later) = data.split_at(within.len());
                        let chunk = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK as usize].into());
                        chunk[within].copy_from_slice(now);
                        data = later;
                    }
                    left -= bytes;
                    at += bytes as u64;
                }
            }
            Action::Flush => {}
            Action::Discard | Action::Zeroes { .. } => {
                let keep = matches!(job.operation.action, Action::Zeroes { keep: true, .. });
                for (chunk, within) in pieces(offset..offset + length) {
                    if !keep && within.len() as u64 == CHUNK {
                        chunks.remove(&chunk);
                    } else if let Some(chunk) = chunks.get_mut(&chunk) {
                        chunk[within].fill(0);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Device for Memory {
    fn geometry(&self) -> Arc<dyn Geometry> {
        self.store.clone()
    }

    fn submit(&mut self, mut job: Job) {
        let result = self.perform(&mut job);
        self.done.push(job.finish(result));
    }

    fn poll(&mut self, _now: Instant, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn signal(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
