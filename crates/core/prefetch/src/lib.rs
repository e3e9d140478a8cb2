//! Read-ahead without I/O: decides which blocks to fetch before they are requested, in a simulation and in a server
//! alike.

#![doc = include_str!("../README.md")]

mod runs;
mod spec;
mod streams;
mod window;

use std::ops::Range;

pub use spec::{Spec, SpecError};

use streams::Streams;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The file or disk; streams of different ones are independent.
    pub file: u64,
    /// The referenced blocks, counted within `file`; at least one.
    pub blocks: Range<u64>,
    /// Whether one of them was not in the cache.
    pub missed: bool,
    /// The number of blocks of `file`.
    pub end: u64,
}

/// Limits of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of fetched blocks that wait for their first use. Windows are shortened until those of all streams fit.
    pub room: u64,
    /// Maximum length of a window of `auto`, in blocks: half of the blocks that the engine prefetches at a time.
    pub longest: u64,
    /// Number of blocks whose transfer takes the device as long as one request; `None` if unknown.
    pub request_blocks: Option<u64>,
}

/// Decides which blocks to fetch ahead, from the references it receives.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    algorithm: Algorithm,
}

#[derive(Clone, Debug)]
enum Algorithm {
    None,
    OneBlock(Streams),
    Sequential(Streams),
    Linux { most: u64, streams: Streams },
    Auto { least: u64, most: u64, streams: Streams },
    Extent { blocks: u64 },
}

impl Prefetcher {
    /// A prefetcher without history, for blocks of `block_bytes`. Sizes are rounded down to whole blocks, but to at
    /// least one.
    pub fn new(spec: &Spec, block_bytes: u32) -> Prefetcher {
        let blocks = |bytes: u32| u64::from((bytes / block_bytes).max(1));
        let algorithm = match *spec {
            Spec::None => Algorithm::None,
            Spec::OneBlock => Algorithm::OneBlock(Streams::new(Spec::STREAMS)),
            Spec::Sequential => Algorithm::Sequential(Streams::new(Spec::STREAMS)),
            Spec::Linux { max_bytes, streams } => {
                Algorithm::Linux { most: blocks(max_bytes), streams: Streams::new(streams) }
            }
            Spec::Extent { bytes } => Algorithm::Extent { blocks: blocks(bytes) },
            Spec::Auto => Algorithm::Auto {
                least: blocks(Spec::MAX_BYTES),
                most: blocks(Spec::AUTO_MAX_BYTES),
                streams: Streams::adaptive(Spec::STREAMS),
            },
            Spec::IntoPolicy(ref spec) => return Prefetcher::new(spec, block_bytes),
        };
        Prefetcher { algorithm }
    }

    /// Whether it never fetches anything, so that references need not be reported to it.
    pub fn is_none(&self) -> bool {
        matches!(self.algorithm, Algorithm::None)
    }

    /// The blocks to fetch because of `reference`. Some of them may already be present; blocks of the reference itself
    /// are among them only if they are between others.
    ///
    /// `limits` is called for misses, and for hits that advance a window. `before` counts the blocks directly before the reference that are cached
    /// without a gap, up to its argument. It is called for some misses only.
    pub fn reference(
        &mut self,
        reference: &Reference,
        limits: impl FnOnce() -> Limits,
        before: impl FnOnce(u64) -> u64,
    ) -> Option<Range<u64>> {
        let Reference { file, ref blocks, missed, end, .. } = *reference;
        let ahead = match &mut self.algorithm {
            Algorithm::None => None,
            Algorithm::OneBlock(streams) => streams.one_block(file, blocks, missed),
            Algorithm::Sequential(streams) => streams.sequential(file, blocks),
            Algorithm::Linux { most, streams } => {
                streams.linux(reference, || Limits { longest: *most, ..limits() }, before)
            }
            Algorithm::Auto { least, most, streams } => {
                let limits = || {
                    let Limits { room, longest, request_blocks } = limits();
                    let request_blocks = request_blocks.map(|blocks| blocks.min(*most));
                    let longest = request_blocks.unwrap_or(0).max(*least).min(longest.max(*least));
                    Limits { room, longest, request_blocks }
                };
                streams.linux(reference, limits, before)
            }
            Algorithm::Extent { blocks: size } => {
                let extents = blocks.start / *size * *size..blocks.end.next_multiple_of(*size);
                (missed && extents != *blocks).then_some(extents)
            }
        }?;
        let ahead = ahead.start..ahead.end.min(end);
        (!ahead.is_empty()).then_some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetcher(spec: &str) -> Prefetcher {
        Prefetcher::new(&spec.parse().unwrap(), 4096)
    }

    fn limits() -> Limits {
        Limits { room: 1000, longest: 1000, request_blocks: None }
    }

    fn reference(blocks: Range<u64>, missed: bool) -> Reference {
        Reference { file: 1, blocks, missed, end: 1000 }
    }

    /// Hits that advance no window need no limits, so their threads need not ask an engine.
    #[test]
    fn few_hits_need_limits() {
        for spec in ["linux", "auto"] {
            let mut prefetcher = prefetcher(spec);
            let mut read = |block: u64, missed| {
                let mut asked = false;
                let limits = || {
                    asked = true;
                    limits()
                };
                prefetcher.reference(&reference(block..block + 1, missed), limits, |_| 0);
                asked
            };
            assert!(read(900, true), "{spec}: a miss");
            assert!((0..1000).all(|at| !read(at * 7919 % 997, false)), "{spec}: random hits");
            // Windows begin where runs are long.
            (0..40).for_each(|run| (0..20).for_each(|block| _ = read(20 * run + block, block == 0)));
            let sequential = (800..1000).filter(|&block| read(block, block % 50 == 0)).count();
            assert!((8..50).contains(&sequential), "{spec}: {sequential}");
        }
    }

    #[test]
    fn none_does_nothing() {
        assert_eq!(prefetcher("none").reference(&reference(0..1, true), limits, |_| 0), None);
    }

    #[test]
    fn extents_are_aligned_and_end_with_the_file() {
        let mut extent = prefetcher("extent:64K");
        assert_eq!(extent.reference(&reference(21..22, true), limits, |_| 0), Some(16..32));
        assert_eq!(extent.reference(&reference(21..22, false), limits, |_| 0), None);
        assert_eq!(extent.reference(&reference(30..34, true), limits, |_| 0), Some(16..48));
        assert_eq!(extent.reference(&reference(16..32, true), limits, |_| 0), None);
        assert_eq!(extent.reference(&reference(998..999, true), limits, |_| 0), Some(992..1000));
    }

    #[test]
    fn one_block_goes_on_while_its_blocks_are_used() {
        let mut one = prefetcher("one-block");
        assert_eq!(one.reference(&reference(5..6, true), limits, |_| 0), Some(6..7));
        assert_eq!(one.reference(&reference(6..7, false), limits, |_| 0), Some(7..8));
        assert_eq!(one.reference(&reference(6..7, false), limits, |_| 0), None);
        assert_eq!(one.reference(&reference(7..9, false), limits, |_| 0), Some(9..10));
        assert_eq!(one.reference(&reference(500..501, true), limits, |_| 0), Some(501..502));
        assert_eq!(one.reference(&reference(9..10, false), limits, |_| 0), Some(10..11));
        assert_eq!(one.reference(&reference(999..1000, true), limits, |_| 0), None);
    }

    #[test]
    fn one_block_in_sequences_waits_for_a_second_block() {
        let mut one = prefetcher("one-block:sequential");
        assert_eq!(one.reference(&reference(5..6, true), limits, |_| 0), None);
        assert_eq!(one.reference(&reference(6..7, true), limits, |_| 0), Some(7..8));
        assert_eq!(one.reference(&reference(7..8, false), limits, |_| 0), Some(8..9));
        assert_eq!(one.reference(&reference(500..501, true), limits, |_| 0), None);
        assert_eq!(one.reference(&reference(8..9, false), limits, |_| 0), None, "the last reference was elsewhere");
        assert_eq!(one.reference(&Reference { file: 2, ..reference(9..10, true) }, limits, |_| 0), None);
        assert_eq!(one.reference(&reference(9..10, true), limits, |_| 0), Some(10..11), "each file has its own");
        assert_eq!(one.reference(&reference(20..22, true), limits, |_| 0), Some(22..23), "one request, two blocks");
        assert_eq!(one.reference(&reference(999..1000, true), limits, |_| 0), None);
    }

    #[test]
    fn nothing_is_fetched_beyond_the_end() {
        let mut linux = prefetcher("linux");
        assert_eq!(linux.reference(&Reference { end: 3, ..reference(0..1, true) }, limits, |_| 0), Some(1..3));
        assert_eq!(linux.reference(&Reference { end: 3, ..reference(1..2, false) }, limits, |_| 0), None);
    }
}
