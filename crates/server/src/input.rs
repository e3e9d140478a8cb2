//! Bytes that were received from a client.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use nigh_engine::Exclusive;

use crate::stream::Stream;

/// Bytes that are received ahead. Payloads of writes go past it into the engines' frames.
const BUFFER: usize = 16 << 10;

/// Bytes that were received and not yet used.
pub(crate) struct Input {
    pub(crate) stream: Arc<Stream>,
    buffer: Box<[u8]>,
    pub(crate) start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new(stream: Arc<Stream>) -> Input {
        Input { stream, buffer: vec![0; BUFFER].into(), start: 0, end: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Receives more; says no at the end of the stream.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let read = self.stream.read(&mut [IoSliceMut::new(&mut self.buffer[self.end..])])?;
        self.end += read;
        Ok(read > 0)
    }

    /// Makes room for messages of so many bytes.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            let mut larger = vec![0; bytes.next_power_of_two()];
            larger[self.start..self.end].copy_from_slice(self.bytes());
            self.buffer = larger.into();
        }
    }

    /// Receives a payload into `frames`.
    pub(crate) fn fill(&mut self, frames: &mut Exclusive) -> io::Result<()> {
        let total = frames.len();
        let mut done = total.min(self.end - self.start);
        let mut ready = &self.buffer[self.start..self.start + done];
        for slice in frames.slices_mut() {
            let (now, later) = ready.split_at(slice.len().min(ready.len()));
            slice[..now.len()].copy_from_slice(now);
            ready = later;
        }
        self.start += done;
        while done < total {
            let mut slices = Vec::with_capacity(frames.slices_mut().len() + 1);
            let mut skip = done;
            for slice in frames.slices_mut() {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                if skipped < slice.len() {
                    slices.push(IoSliceMut::new(&mut slice[skipped..]));
                }
            }
            slices.push(IoSliceMut::new(&mut self.buffer));
            let read = self.stream.read(&mut slices)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        if done > total {
            (self.start, self.end) = (0, done - total);
        }
        Ok(())
    }
}
