//! Reads of files: a hit is answered from the cache's memory by the thread that took the request, and a miss when its blocks are there.

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fuser::{Errno, ReplyData};
use nigh_host::front::{Measure, lock};
use nigh_host::{BLOCK, HostError, PIN_MOST, Pinned, Session};
use nigh_service::front::Asked;
use nigh_trace::Op;

use crate::file::failed;
use crate::handle::Handle;
use crate::shared::Shared;

/// A pin does not cross a multiple of this.
const EXTENT: u64 = 1 << 20;

thread_local! {
    /// Memory for hits of several blocks, which are not next to each other in the cache.
    static JOINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A read whose parts arrive one by one.
struct Gathering {
    state: Mutex<State>,
}

struct State {
    bytes: Vec<u8>,
    left: usize,
    error: Option<HostError>,
    reply: Option<Answer>,
}

/// The reply to a read, and its record.
struct Answer {
    shared: Arc<Shared>,
    reply: ReplyData,
    client: u64,
    asked: Asked,
}

impl Answer {
    fn send(self, result: Result<&[u8], HostError>) {
        let Answer { shared, reply, client, asked } = self;
        match result {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(failed(error).into()),
        }
        shared.recorder.record(&shared.disk, client, &asked, asked.since.elapsed());
    }
}

/// Whether a range of the disk can be pinned.
fn is_short(range: &Range<u64>) -> bool {
    range.end - range.start <= PIN_MOST && range.start / EXTENT == (range.end - 1) / EXTENT
}

impl Shared {
    /// Replies with at most `size` bytes from `offset` on.
    pub(crate) fn read(self: &Arc<Shared>, handle: &Arc<Handle>, offset: u64, size: u32, reply: ReplyData) {
        let since = Instant::now();
        let Some(session) = &handle.session else { return read_around(handle, offset, size, reply) };
        let file = &handle.file;
        let end = offset.saturating_add(u64::from(size)).min(file.size());
        if offset >= end {
            return reply.data(&[]);
        }
        file.extend_reach(end);
        let Some(place) = file.place(&self.volume, offset) else { return read_around(handle, offset, size, reply) };
        let range = place.disk..place.disk + place.bytes.min(end - offset);
        let asked = Asked::new(Op::Read, range.start, end - offset, since);
        // Not into the next file.
        session.limit_readahead(place.disk + place.bytes.min(file.size().saturating_sub(offset)));
        if range.end - range.start < end - offset {
            return self.read_parts(handle, session, offset..end, (reply, asked));
        }
        if is_short(&range) {
            match session.try_pin(range.clone()) {
                Ok(Some(pinned)) => {
                    with_bytes(&pinned, |bytes| reply.data(bytes));
                    let took = since.elapsed();
                    // A pin does not.
                    self.disk.measure(Measure::Hit, took);
                    return self.recorder.record(&self.disk, handle.number, &asked, took);
                }
                Ok(None) | Err(HostError::TooManyPins) => {}
                Err(error) => return reply.error(failed(error).into()),
            }
        }
        let answer = Answer { shared: self.clone(), reply, client: handle.number, asked };
        load(session, range, answer);
    }

    /// Replies with a range of a file that lies in several places of the disk.
    fn read_parts(
        self: &Arc<Shared>,
        handle: &Handle,
        session: &Session,
        range: Range<u64>,
        (reply, asked): (ReplyData, Asked),
    ) {
        let (mut ranges, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let Some(place) = handle.file.place(&self.volume, at) else {
                return read_around(handle, range.start, (range.end - range.start) as u32, reply);
            };
            let bytes = place.bytes.min(range.end - at);
            ranges.push(place.disk..place.disk + bytes);
            at += bytes;
        }
        let answer = Answer { shared: self.clone(), reply, client: handle.number, asked };
        gather(session, ranges, (range.end - range.start) as usize, answer);
    }
}

/// Calls `reply` with the bytes of a pin, next to each other.
fn with_bytes(pinned: &Pinned, reply: impl FnOnce(&[u8])) {
    let mut slices = pinned.slices();
    if slices.len() == 1 {
        return reply(slices.next().unwrap_or_default());
    }
    JOINED.with_borrow_mut(|bytes| {
        bytes.resize(pinned.len(), 0);
        pinned.copy_to(bytes);
        reply(bytes);
    });
}

/// Reads `range` of the disk, and replies when it has arrived.
fn load(session: &Session, range: Range<u64>, answer: Answer) {
    if range.end.div_ceil(BLOCK) - range.start / BLOCK > 1 {
        return session.read_then(range, move |read| answer.send(read.as_deref().map_err(Clone::clone)));
    }
    let again = session.clone();
    session.pin_then(range.clone(), move |pinned| match pinned {
        Ok(pinned) => with_bytes(&pinned, |bytes| answer.send(Ok(bytes))),
        Err(HostError::TooManyPins) => {
            again.read_then(range, move |read| answer.send(read.as_deref().map_err(Clone::clone)));
        }
        Err(error) => answer.send(Err(error)),
    });
}

/// Reads `ranges` of the disk, and replies when all have arrived.
fn gather(session: &Session, ranges: Vec<Range<u64>>, bytes: usize, answer: Answer) {
    let state = State { bytes: vec![0; bytes], left: ranges.len(), error: None, reply: Some(answer) };
    let gathering = Arc::new(Gathering { state: Mutex::new(state) });
    let mut at = 0;
    for range in ranges {
        let (gathering, place) = (gathering.clone(), at);
        at += (range.end - range.start) as usize;
        session.limit_readahead(range.end);
        session.read_then(range, move |read| gathering.add(place, read));
    }
}

impl Gathering {
    fn add(&self, at: usize, read: Result<Vec<u8>, HostError>) {
        let mut state = lock(&self.state);
        match read {
            Ok(read) => state.bytes[at..at + read.len()].copy_from_slice(&read),
            Err(error) => state.error = Some(error),
        }
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let (bytes, error, answer) = (std::mem::take(&mut state.bytes), state.error.take(), state.reply.take());
        drop(state);
        if let Some(answer) = answer {
            answer.send(error.map_or(Ok(&bytes[..]), Err));
        }
    }
}

/// Reads a file that is not cached.
fn read_around(handle: &Handle, offset: u64, size: u32, reply: ReplyData) {
    let opened = match handle.opened.clone().map_or_else(|| handle.file.reader(), Ok) {
        Ok(opened) => opened,
        Err(error) => return reply.error(error.into()),
    };
    let mut bytes = vec![0; size as usize];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::preadv(&opened, &mut [IoSliceMut::new(&mut bytes[read..])], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(_) if read > 0 => break,
            Err(error) => return reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }
    reply.data(&bytes[..read]);
}
