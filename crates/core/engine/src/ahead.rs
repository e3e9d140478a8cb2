//! Read-ahead: a client's reads and the prefetches that follow from them.

use std::ops::Range;

use nigh_prefetch::{Limits, Prefetcher, Reference};

use crate::engine::Engine;
use crate::published::Published;
use crate::request::{Op, Refusal, Request, Submitted, Volume};
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
        let submitted = self.submit(now, read)?;
        self.follow(now, &read, submitted.missed, prefetcher, &span, places);
        Ok(submitted)
    }

    /// Prefetches what `prefetcher` requests because of `read`, as [`Engine::read_ahead`] does after it submitted the read, which found all its
    /// blocks in memory unless it `missed`.
    pub fn follow<P: IntoIterator<Item = Range<u64>>>(
        &mut self,
        now: u64,
        read: &Request,
        missed: bool,
        prefetcher: &mut Prefetcher,
        span: &Span,
        places: impl FnOnce(Range<u64>) -> P,
    ) {
        if let Some(ahead) = self.wanted(read, missed, prefetcher, span) {
            for place in places(ahead) {
                self.fetch_ahead(now, read, place);
            }
        }
    }

    /// The bytes of the file that `prefetcher` requests because of `read`, which is at `span`.
    fn wanted(&self, read: &Request, missed: bool, prefetcher: &mut Prefetcher, span: &Span) -> Option<Range<u64>> {
        if self.is_predicted(read.tenant) {
            return None;
        }
        let first = read.offset >> self.shift;
        let cached = |block: &u64| self.memory.current(&self.slots, Key::new(read.volume, *block)).is_some();
        let before = |most: u64| (first.saturating_sub(most)..first).rev().take_while(cached).count() as u64;
        wanted(self.shift, missed, prefetcher, span, || self.limits_ahead(read.volume), before)
    }

    /// The limits of windows for reads of `volume`.
    pub fn limits_ahead(&self, volume: Volume) -> Limits {
        Limits {
            room: self.policy.room_ahead().into(),
            // Two windows are fetched at a time.
            longest: u64::from(self.config.limits.prefetching / 2),
            request_blocks: self.volumes.get(volume).and_then(|state| state.cost.request_blocks()),
        }
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

impl Published {
    /// The bytes of the file that `prefetcher` requests because of a read at `span` that was found here. `limits` asks the engine
    /// ([`Engine::limits_ahead`]): few hits need it.
    pub fn wanted(
        &self,
        prefetcher: &mut Prefetcher,
        span: &Span,
        limits: impl FnOnce() -> Limits,
    ) -> Option<Range<u64>> {
        wanted(self.shift(), false, prefetcher, span, limits, |_| unreachable!("for misses only"))
    }
}

/// The bytes of the file that `prefetcher` requests because of a read at `span`, in blocks of 2 to the power of `shift`.
fn wanted(
    shift: u32,
    missed: bool,
    prefetcher: &mut Prefetcher,
    span: &Span,
    limits: impl FnOnce() -> Limits,
    before: impl FnOnce(u64) -> u64,
) -> Option<Range<u64>> {
    let blocks = |bytes: &Range<u64>| bytes.start >> shift..bytes.end.div_ceil(1 << shift);
    let reference = Reference { file: span.file, blocks: blocks(&span.bytes), missed, end: blocks(&(0..span.end)).end };
    let ahead = prefetcher.reference(&reference, limits, before)?;
    Some(ahead.start << shift..(ahead.end << shift).min(span.end))
}
