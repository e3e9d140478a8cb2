//! The files being read.

/// Files that are followed at a time. The one read least recently gives its place to a new one, and what is cached of it
/// is not dropped.
const STREAMS: usize = 64;

/// Chunks behind a reader that are not dropped yet: the window, which reads that are slightly out of order need.
pub(crate) const WINDOW: usize = 2;

/// How many chunks ahead of a sequential reader residency is looked up: twice the longest read-ahead of 8 MiB, and one
/// chunk. Nearer to the reader, its own read-ahead is already resident.
const AHEAD: u64 = 9;

/// A file being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    reader: u64,
    /// When it was read last, in reads; 0 if the place is free.
    used: u64,
    /// The chunk that is being read, and 1; 0 before the first one.
    current: u64,
    /// Chunks behind the reader that are to be dropped, the oldest first, and how many there are.
    leaving: [u64; WINDOW],
    count: usize,
    /// A bit for each chunk near the reader, by its number modulo 64: whether it was resident before the reader came.
    resident: u64,
    /// The chunks before this one have been looked up.
    looked_up: u64,
}

impl Stream {
    const FREE: Stream =
        Stream { reader: 0, used: 0, current: 0, leaving: [0; WINDOW], count: 0, resident: 0, looked_up: 0 };

    /// The reader is in `chunk`; whether it was elsewhere before.
    pub(crate) fn enter(&mut self, chunk: u64) -> bool {
        core::mem::replace(&mut self.current, chunk + 1) != chunk + 1
    }

    /// Whether a sequential reader found `chunk` resident. Looks up the chunks ahead of it.
    pub(crate) fn was_resident(&mut self, chunk: u64, mut is_resident: impl FnMut(u64) -> bool) -> bool {
        if chunk > self.looked_up || chunk + 64 - AHEAD <= self.looked_up {
            // Elsewhere than expected.
            self.looked_up = chunk;
        }
        while self.looked_up <= chunk + AHEAD {
            let bit = 1 << (self.looked_up % 64);
            self.resident &= !bit;
            if is_resident(self.looked_up) {
                self.resident |= bit;
            }
            self.looked_up += 1;
        }
        self.resident >> (chunk % 64) & 1 == 1
    }

    /// `chunk`, which is being read, is to be dropped when the reader is far enough: returns the chunk that is now to be
    /// dropped.
    pub(crate) fn leave_later(&mut self, chunk: u64) -> Option<u64> {
        if self.leaving[..self.count].contains(&chunk) {
            return None;
        }
        if self.count < WINDOW {
            self.leaving[self.count] = chunk;
            self.count += 1;
            return None;
        }
        self.leaving.rotate_left(1);
        Some(core::mem::replace(&mut self.leaving[WINDOW - 1], chunk))
    }

    /// The chunks that are still to be dropped.
    pub(crate) fn left(&self) -> impl Iterator<Item = u64> + '_ {
        self.leaving[..self.count].iter().copied()
    }
}

/// The files being read.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    reads: u64,
    /// The place of the file that was read last.
    last: usize,
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams { streams: [Stream::FREE; STREAMS], reads: 0, last: 0 }
    }

    fn find(&self, reader: u64) -> Option<usize> {
        let is_it = |stream: &Stream| stream.used > 0 && stream.reader == reader;
        if is_it(&self.streams[self.last]) { Some(self.last) } else { self.streams.iter().position(is_it) }
    }

    /// The stream of `reader`, and whether it is new.
    pub(crate) fn of(&mut self, reader: u64) -> (&mut Stream, bool) {
        self.reads += 1;
        let found = self.find(reader);
        let at = found.unwrap_or_else(|| {
            let oldest = (0..STREAMS).min_by_key(|&at| self.streams[at].used).unwrap_or(0);
            self.streams[oldest] = Stream { reader, ..Stream::FREE };
            oldest
        });
        self.last = at;
        let stream = &mut self.streams[at];
        stream.used = self.reads;
        (stream, found.is_none())
    }

    /// Takes the stream of `reader` out, if there is one.
    pub(crate) fn take(&mut self, reader: u64) -> Option<Stream> {
        let at = self.find(reader)?;
        Some(core::mem::replace(&mut self.streams[at], Stream::FREE))
    }
}
