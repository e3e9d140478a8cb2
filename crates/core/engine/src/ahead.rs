//! Read-ahead: a client's reads and the prefetches that follow from them.

use std::ops::Range;

use nigh_prefetch::{Prefetcher, Reference};

use crate::arena::Shared;
use crate::engine::Engine;
use crate::request::{Op, Refusal, Request, Submitted};
use crate::slots::Key;

/// The position of a read in a file or a whole disk, for read-ahead. In bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file or disk, among those of one prefetcher.
    pub file: u64,
    /// The bytes of the read; at least one.
    pub bytes: Range<u64>,
    /// The length of the file.
    pub end: u64,
}

impl Engine {
    /// Submits `read`, which is at `span`, and prefetches what `prefetcher` requests because of it. `places` returns
    /// where a part of the file is on the read's volume, as far as this engine has it.
    ///
    /// The prefetches are queued together with the misses of the read, so that neighbours become one operation. There
    /// is no read-ahead for a tenant that has predicted its reads, because its prediction is better than a guess.
    pub fn read_ahead<P: IntoIterator<Item = Range<u64>>>(
        &mut self,
        now: u64,
        read: Request,
        prefetcher: &mut Prefetcher,
        span: Span,
        places: impl FnOnce(Range<u64>) -> P,
    ) -> Result<Submitted, Refusal> {
        let before = self.requests.starting.len();
        let submitted = self.submit(now, read)?;
        if self.requests.starting.len() > before {
            // Not in steps: its misses are queued together with the prefetches.
            let start = self.requests.starting.pop_back().expect("just begun");
            let all = start.left();
            self.start_more(start, all, now);
        }
        if let Some(ahead) = self.wanted(&read, submitted.missed, prefetcher, &span) {
            for place in places(ahead) {
                self.fetch_ahead(now, &read, place);
            }
        }
        Ok(submitted)
    }

    /// The bytes of a read, as from `try_hit`, and the part of the file that `prefetcher` requests because of it: nothing results from
    /// the read if there is none.
    #[inline]
    pub fn try_hit_ahead(
        &mut self,
        read: &Request,
        prefetcher: &mut Prefetcher,
        span: &Span,
    ) -> Option<(Shared, Option<Range<u64>>)> {
        let data = self.try_hit(read)?;
        Some((data, self.wanted(read, false, prefetcher, span)))
    }

    /// The bytes of the file that `prefetcher` requests because of `read`, which is at `span`.
    fn wanted(&self, read: &Request, missed: bool, prefetcher: &mut Prefetcher, span: &Span) -> Option<Range<u64>> {
        if self.is_predicted(read.tenant) {
            return None;
        }
        let block_bytes = u64::from(self.config.block_bytes);
        let reference = Reference {
            file: span.file,
            blocks: self.blocks(&span.bytes),
            missed,
            end: span.end.div_ceil(block_bytes),
            room: self.policy.room_ahead().into(),
            // Two windows are fetched at a time.
            longest: u64::from(self.config.limits.prefetching / 2),
            request_blocks: self.volumes.get(read.volume).and_then(|state| state.cost.request_blocks()),
        };
        let first = read.offset / block_bytes;
        let cached = |block: &u64| self.memory.current(&self.slots, Key::new(read.volume, *block)).is_some();
        let before = |most: u64| (first.saturating_sub(most)..first).rev().take_while(cached).count() as u64;
        let ahead = prefetcher.reference(&reference, before)?;
        Some(ahead.start * block_bytes..(ahead.end * block_bytes).min(span.end))
    }

    /// Prefetches `place` of the volume of `read` because of that read; bytes beyond the volume's end are left out.
    pub fn fetch_ahead(&mut self, now: u64, read: &Request, place: Range<u64>) {
        let bytes = self.volumes.get(read.volume).map_or(0, |state| state.bytes);
        let length = place.end.min(bytes).saturating_sub(place.start);
        if length > 0 {
            // It is a hint: rejected while the volume is being closed.
            let _ = self.submit(now, Request { op: Op::Prefetch, offset: place.start, length, fua: false, ..*read });
        }
    }
}
