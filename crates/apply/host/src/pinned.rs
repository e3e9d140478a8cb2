//! Blocks that a program holds in the cache: to read them without a copy, and to change them.
//!
//! 1. A pin is counted in its client's part of a shard (`pins.rs`), before its blocks are looked up.
//! 2. It holds frames as any reader does. A write of the same blocks goes to other frames, and an eviction leaves these to the pin. The bytes of a
//!    pin therefore never change, and nobody waits for it.
//! 3. Dropping it, on any thread, releases the frames, and then the count.
//!
//! A [`PinnedMut`] is a copy of the blocks, which becomes a write when it is committed. One that is leaked with `mem::forget` keeps no
//! frame of the cache.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use nigh_engine::{EXTENT_BYTES, Op, Outcome, Refusal, Shared};

use crate::call::Bytes as CallBytes;
use crate::disk::Measure;
use crate::error::{HostError, SubmitError};
use crate::session::{Bytes, Session};
use crate::settings::{BLOCK, PIECE};
use crate::work::Work;

/// Counted blocks of a pin.
struct Count {
    session: Session,
    shard: u32,
    blocks: u32,
}

impl Drop for Count {
    fn drop(&mut self) {
        // In a child after a fork, a lock may be held for ever.
        if !self.session.inner.cache.is_forked() {
            self.session.inner.client.part(self.shard).pinning.give(self.blocks);
        }
    }
}

/// Bytes of a disk, in the cache. They are as they were when they were pinned, whatever is written later; dropping it unpins them.
#[must_use = "dropping it unpins the blocks"]
pub struct Pinned {
    /// `None` only while it is dropped.
    data: Option<Shared>,
    count: Count,
}

/// Whole blocks of a disk for a change: a copy, which [`commit`](PinnedMut::commit) writes. Dropping it drops the change.
#[must_use = "dropping it drops the change"]
pub struct PinnedMut {
    session: Session,
    range: Range<u64>,
    bytes: Vec<u8>,
}

impl Session {
    /// Pins `range`, which is within [`PIN_MOST`](crate::PIN_MOST) bytes and does not cross a multiple of 1 MiB. Waits for blocks that are not in the cache.
    ///
    /// Fails with [`HostError::TooManyPins`] if the session has as many blocks pinned as it can ([`pins_most`](Session::pins_most)).
    pub fn pin(&self, range: Range<u64>) -> Result<Pinned, HostError> {
        let (range, count) = self.count_pins(range)?;
        if let Some(pinned) = self.find_pinned(&range)? {
            return Ok(Pinned { data: Some(pinned), count });
        }
        self.take_turn(range.end - range.start)?;
        let mut data = None;
        self.perform(Op::Read, std::iter::once(range), false, Measure::Hit, Bytes::Pin(&mut data))?;
        let (_, data) = data.expect("the read succeeded");
        Ok(Pinned { data: Some(data), count })
    }

    /// Pins `range` as [`pin`](Session::pin) does if all of it is in the cache; otherwise nothing happens. Never waits. On a disk with
    /// rates, it finds nothing.
    pub fn try_pin(&self, range: Range<u64>) -> Result<Option<Pinned>, HostError> {
        let (range, count) = self.count_pins(range)?;
        let data = self.find_pinned(&range)?;
        Ok(data.map(|data| Pinned { data: Some(data), count }))
    }

    /// Pins `range` as [`pin`](Session::pin) does, and calls `done` as [`read_then`](Session::read_then) does.
    pub fn pin_then(&self, range: Range<u64>, done: impl FnOnce(Result<Pinned, HostError>) + Send + 'static) {
        let (range, count) = match self.count_pins(range) {
            Ok(counted) => counted,
            Err(error) => return done(Err(error)),
        };
        let done = move |ended: Result<CallBytes, HostError>| match ended {
            Ok(CallBytes::Pinned(Some((_, data)))) => done(Ok(Pinned { data: Some(data), count })),
            Ok(_) => unreachable!("the read succeeded"),
            Err(error) => done(Err(error)),
        };
        let pieces = std::iter::once(range);
        self.start(Op::Read, pieces, false, Measure::Hit, CallBytes::Pinned(None), Box::new(done));
    }

    /// Blocks that this session can have pinned in each shard while no other session has any.
    pub fn pins_most(&self) -> u32 {
        self.inner.cache.shards[0].pins_most()
    }

    /// The whole blocks of `range`, to be changed: for a page that is read, changed and written. Waits as [`pin`](Session::pin) does.
    ///
    /// Fails with [`HostError::BeingChanged`] while there is another [`PinnedMut`] with one of these blocks. Other writes of the blocks are not
    /// excluded: the last one counts.
    pub fn pin_mut(&self, range: Range<u64>) -> Result<PinnedMut, HostError> {
        let mut pinned = self.pin_new(range.clone())?;
        self.read(range.start, &mut pinned.bytes)?;
        Ok(pinned)
    }

    /// As [`pin_mut`](Session::pin_mut), for new contents: the bytes are zeros, and nothing is read.
    pub fn pin_new(&self, range: Range<u64>) -> Result<PinnedMut, HostError> {
        let disk = &self.inner.client.disk;
        let (range, _) = pinnable(self.writable(range.start, range.end.saturating_sub(range.start) as usize)?)?;
        let is_whole = |at: u64| at.is_multiple_of(BLOCK) || at == disk.size();
        if !range.start.is_multiple_of(BLOCK) || !is_whole(range.end) {
            return Err(HostError::PinRange);
        }
        if !disk.begin_change(&range) {
            return Err(HostError::BeingChanged);
        }
        let bytes = vec![0; (range.end - range.start) as usize];
        Ok(PinnedMut { session: self.clone(), range, bytes })
    }

    fn count_pins(&self, range: Range<u64>) -> Result<(Range<u64>, Count), HostError> {
        let (range, blocks) = pinnable(self.range(range.start, range.end.saturating_sub(range.start) as usize)?)?;
        let inner = &self.inner;
        let shard = inner.cache.shard_of(inner.client.disk.volume, range.start);
        if !inner.client.part(shard).pinning.take(blocks) {
            return Err(HostError::TooManyPins);
        }
        Ok((range, Count { session: self.clone(), shard, blocks }))
    }

    /// The bytes of `range` if all are in the cache.
    fn find_pinned(&self, range: &Range<u64>) -> Result<Option<Shared>, HostError> {
        let inner = &self.inner;
        if inner.client.disk.is_throttled() {
            return Ok(None);
        }
        let mut work = Work::default();
        let found = inner
            .with_prefetcher(|prefetcher| inner.cache.read_hit(&inner.client, range.clone(), prefetcher, &mut work));
        inner.cache.dispatch(&mut work, None);
        match found {
            Ok(Some((_, Outcome::Data(data)))) => Ok(Some(data)),
            Ok(Some((shard, Outcome::Failed(fault)))) => Err(inner.cache.failure(shard, fault)),
            Ok(_) => Ok(None),
            Err(SubmitError::Poisoned(poisoned)) => Err(poisoned.into()),
            // The disk has become shorter.
            Err(SubmitError::Refused(Refusal::OutOfRange)) => Err(HostError::OutOfRange),
            Err(SubmitError::Refused(_)) => Ok(None),
        }
    }
}

/// `range` and the number of its blocks, if it can be pinned.
fn pinnable(range: Range<u64>) -> Result<(Range<u64>, u32), HostError> {
    let fits = range.start < range.end
        && range.end - range.start <= PIECE
        && range.start / EXTENT_BYTES == (range.end - 1) / EXTENT_BYTES;
    let blocks = (range.end.div_ceil(BLOCK) - range.start / BLOCK) as u32;
    if fits { Ok((range, blocks)) } else { Err(HostError::PinRange) }
}

impl Pinned {
    fn data(&self) -> &Shared {
        self.data.as_ref().expect("it is there until it is dropped")
    }

    /// Number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.data().len()
    }

    /// The bytes, block by block.
    pub fn slices(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data().slices()
    }

    /// Copies the bytes to `out`, which has the same length.
    pub fn copy_to(&self, out: &mut [u8]) {
        self.data().copy_to(out);
    }
}

/// The bytes of a pin within one block.
///
/// # Panics
/// If they lie in several blocks, which are not next to each other in memory: see [`slices`](Pinned::slices).
impl Deref for Pinned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let mut slices = self.slices();
        assert_eq!(slices.len(), 1, "a pin of several blocks has slices");
        slices.next().expect("there is one")
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Some(data) = self.data.take() else { return };
        if data.release() && !self.count.session.inner.cache.is_forked() {
            let mut work = Work::default();
            work.polls.insert(self.count.shard);
            self.count.session.inner.cache.dispatch(&mut work, None);
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.len())
    }
}

impl PinnedMut {
    /// Its bytes on the disk.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Writes the bytes, as [`Session::write`] does.
    pub fn commit(self, durable: bool) -> Result<(), HostError> {
        self.session.write(self.range.start, &self.bytes, durable)
    }

    /// Drops the change.
    pub fn abort(self) {}
}

impl Deref for PinnedMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PinnedMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PinnedMut {
    fn drop(&mut self) {
        if !self.session.inner.cache.is_forked() {
            self.session.inner.client.disk.end_change(&self.range);
        }
    }
}

impl fmt::Debug for PinnedMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedMut({:?})", self.range)
    }
}
