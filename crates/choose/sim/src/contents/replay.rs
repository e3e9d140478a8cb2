//! Caches that depend on contents, over a whole trace.

use std::fmt;
use std::io;
use std::str::FromStr;

use hashbrown::HashMap;
use nigh_content::dedup::Dedup;
use nigh_content::lpu::delta::Delta;
use nigh_content::lpu::{self, Lpu, Settings, Signature};
use nigh_content::{BLOCK_BYTES, Content};
use nigh_policy::{Slot, Spec, SpecError};

use super::stored::Stored;
use super::{Access, Contents, times};
use crate::References;
use crate::replay::{STRETCH, Watch, cpu_s};

/// How a cache uses contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Not at all.
    None,
    /// Equal blocks are stored once, [`Dedup`].
    Dedup,
    /// Similar blocks are stored as differences, [`Lpu`] as published.
    Lpu,
    /// The same, with identical blocks stored once from the first moment: [`Settings::identical`].
    LpuDedup,
    /// All blocks are in a [`Store`](nigh_content::Store).
    Encoded(nigh_content::Scheme),
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 8] = [
        Scheme::None,
        Scheme::Dedup,
        Scheme::Lpu,
        Scheme::LpuDedup,
        Scheme::Encoded(nigh_content::Scheme::Lz4),
        Scheme::Encoded(nigh_content::Scheme::Zstd),
        Scheme::Encoded(nigh_content::Scheme::Sketch),
        Scheme::Encoded(nigh_content::Scheme::SketchZstd),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Dedup => "dedup",
            Scheme::Lpu => "lpu",
            Scheme::LpuDedup => "lpu-dedup",
            Scheme::Encoded(scheme) => scheme.name(),
        }
    }

    /// Whether it works with this policy. All schemes but `none` order blocks themselves, as LRU does.
    pub fn takes(self, policy: &Spec) -> bool {
        self == Scheme::None || policy.to_string() == "lru"
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is none of the schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected none, dedup, lpu, lpu-dedup, dedup+lz4, dedup+zstd, sketch or sketch+zstd")]
pub struct NoScheme;

impl FromStr for Scheme {
    type Err = NoScheme;

    fn from_str(name: &str) -> Result<Scheme, NoScheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or(NoScheme)
    }
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy cannot run at this size.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// An image could not be read.
    #[error("cannot read an image: {0}")]
    Image(#[from] io::Error),
}

/// Counts of a replay. Without the warm-up, except for `lpu`.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// References.
    pub references: u64,
    /// Those that needed no read from the disk.
    pub hits: u64,
    /// References that write.
    pub writes: u64,
    /// Of these, those that needed no read from the disk.
    pub write_hits: u64,
    /// Blocks whose content is in the cache at the end, for each block of memory; not counted without a scheme.
    pub factor: Option<f64>,
    /// Counts of LPU in the whole run, and its contents at the end.
    pub lpu: Option<(lpu::Counts, lpu::Census)>,
    /// Processor time of the replay alone, in seconds.
    pub cpu_s: f64,
}

/// Replays `references` with their `contents` through a cache of `capacity` blocks. `watch.gauges` is not looked at.
///
/// # Errors
/// If the policy cannot run at this size, or an image cannot be read.
///
/// # Panics
/// If `capacity` is 0, or the scheme does not work with the policy.
pub fn replay(
    references: &References,
    contents: &Contents,
    scheme: Scheme,
    policy: &Spec,
    capacity: u32,
    watch: Watch,
) -> Result<Run, Error> {
    assert!(scheme.takes(policy), "{scheme} with {policy}");
    let start = cpu_s();
    let mut run = if scheme == Scheme::None {
        let counts = crate::replay(references, policy, capacity, None, watch)?.counts;
        let (writes, write_hits) = (counts.writes, counts.write_hits);
        Run { references: counts.references, hits: counts.hits, writes, write_hits, ..Run::default() }
    } else {
        let mut cache = Cache::new(contents, scheme, references.distinct(), capacity);
        let run = drive(references, watch, |at, slot, write| cache.access(at, slot, write).hit);
        let run = Run { factor: Some(cache.blocks() as f64 / f64::from(capacity)), lpu: cache.lpu(), ..run };
        cache.finish()?;
        run
    };
    run.cpu_s = cpu_s() - start;
    Ok(run)
}

/// A cache in the order of LRU that depends on contents.
pub struct Cache<'a> {
    contents: &'a Contents,
    scheme: Scheme,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// The schemes `none` and `dedup`.
    Dedup(Dedup),
    Lpu(Box<Lpu>, Box<Measured<'a>>),
    Stored(Box<Stored<'a>>),
}

impl<'a> Cache<'a> {
    /// A cache of `capacity` blocks for slots `0..slots`.
    ///
    /// # Panics
    /// If `capacity` is 0.
    pub fn new(contents: &'a Contents, scheme: Scheme, slots: u32, capacity: u32) -> Cache<'a> {
        let kind = match scheme {
            Scheme::None | Scheme::Dedup => Kind::Dedup(Dedup::new(slots, capacity)),
            Scheme::Lpu | Scheme::LpuDedup => {
                let identical = scheme == Scheme::LpuDedup;
                let settings = Settings { identical, ..Settings::published(capacity) };
                Kind::Lpu(Box::new(Lpu::new(slots, settings)), Box::new(Measured::new(contents)))
            }
            Scheme::Encoded(scheme) => Kind::Stored(Box::new(Stored::new(contents, slots, capacity, scheme))),
        };
        Cache { contents, scheme, kind }
    }

    /// The reference number `at` of those that have the contents, which is to `slot`.
    pub fn access(&mut self, at: usize, slot: Slot, write: bool) -> Access {
        // Without a scheme, no block shares its content with another one.
        let content = if self.scheme == Scheme::None { Content(slot.0) } else { self.contents.of(at) };
        match &mut self.kind {
            Kind::Dedup(dedup) => {
                let processor_ns = if self.scheme == Scheme::None { 0 } else { times::HASH };
                Access { hit: dedup.access(slot, write, content), processor_ns }
            }
            Kind::Lpu(lpu, measured) => {
                let encodes = lpu.counts().encodes;
                let hit = lpu.access(slot, write, content, measured.as_mut());
                let encoded = lpu.counts().encodes - encodes;
                Access { hit, processor_ns: times::SIGNATURE + encoded * times::LINE }
            }
            Kind::Stored(stored) => stored.access(slot, write, content),
        }
    }

    /// How many blocks can be read.
    pub fn blocks(&self) -> u64 {
        match &self.kind {
            Kind::Dedup(dedup) => dedup.blocks() as u64,
            Kind::Lpu(lpu, _) => lpu.census().cached.into(),
            Kind::Stored(stored) => stored.blocks(),
        }
    }

    /// Counts of LPU, and its contents.
    pub fn lpu(&self) -> Option<(lpu::Counts, lpu::Census)> {
        match &self.kind {
            Kind::Lpu(lpu, _) => Some((lpu.counts(), lpu.census())),
            _ => None,
        }
    }

    /// The end.
    ///
    /// # Errors
    /// If an image could not be read: what was returned since then means nothing.
    pub fn finish(self) -> io::Result<()> {
        match self.kind {
            Kind::Dedup(_) => None,
            Kind::Lpu(_, measured) => measured.failed,
            Kind::Stored(stored) => stored.failed,
        }
        .map_or(Ok(()), Err)
    }
}

fn drive(references: &References, watch: Watch, mut access: impl FnMut(usize, Slot, bool) -> bool) -> Run {
    let mut run = Run::default();
    let mut start = 0;
    for ids in references.ids.chunks(STRETCH) {
        for (at, &id) in (start..).zip(ids) {
            let write = references.writes.of(at);
            let hit = access(at, Slot(id), write);
            if at >= watch.warmup {
                run.references += 1;
                run.hits += u64::from(hit);
                run.writes += u64::from(write);
                run.write_hits += u64::from(write && hit);
            }
        }
        start += ids.len();
        if !watch.did(ids.len()) {
            break;
        }
    }
    run
}

/// Measures contents as LPU asks for it, each difference once.
struct Measured<'a> {
    contents: &'a Contents,
    delta: Delta,
    known: HashMap<(Content, Content), u32>,
    /// The first image that could not be read; what was counted since means nothing.
    failed: Option<io::Error>,
}

impl<'a> Measured<'a> {
    fn new(contents: &'a Contents) -> Measured<'a> {
        Measured { contents, delta: Delta::new(), known: HashMap::new(), failed: None }
    }

    /// The length of the difference of a content, which is decoded and compared.
    fn encode(&mut self, content: Content, reference: Content) -> io::Result<u32> {
        let (mut block, mut base, mut decoded) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        self.contents.bytes(content, &mut block)?;
        self.contents.bytes(reference, &mut base)?;
        let encoded = self.delta.encode(&block, &base).to_vec();
        let is_same = self.delta.decode(&encoded, &base, &mut decoded).is_ok() && decoded == block;
        assert!(is_same, "a difference gives other bytes than were encoded");
        Ok(encoded.len() as u32)
    }
}

impl lpu::Contents for Measured<'_> {
    fn signature(&mut self, content: Content) -> Signature {
        self.contents.signature(content)
    }

    fn delta_bytes(&mut self, content: Content, reference: Content) -> u32 {
        if let Some(&bytes) = self.known.get(&(content, reference)) {
            return bytes;
        }
        let bytes = self.encode(content, reference).unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            BLOCK_BYTES as u32
        });
        self.known.insert((content, reference), bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nigh_content::generated::Machines;
    use nigh_trace::{Op, Request};

    use super::super::{Image, Source};
    use super::*;
    use crate::{Loader, Ops, Options};

    fn references(requests: &[(u32, u64, bool)]) -> References {
        let options =
            Options { block_bytes: 4096, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        let request = |&(volume, block, write): &(u32, u64, bool)| {
            let op = if write { Op::Write } else { Op::Read };
            Request { volume, offset: block * 4096, length: 4096, op, ..Request::default() }
        };
        loader.push(&requests.iter().map(request).collect::<Vec<_>>()).unwrap();
        loader.finish()
    }

    /// Five machines of 1000 blocks each, and a share of writes.
    fn machines(length: usize, writes: u64) -> References {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let all: Vec<_> = (0..length).map(|_| (0, next() % 5000 * (next() % 4) / 4, next() % 10 < writes)).collect();
        references(&all)
    }

    fn hits(references: &References, contents: &Contents, scheme: Scheme, capacity: u32) -> u64 {
        let policy = "lru".parse().unwrap();
        replay(references, contents, scheme, &policy, capacity, Watch::default()).unwrap().hits
    }

    #[test]
    fn equal_and_similar_blocks_make_room() {
        for writes in [0, 2] {
            let references = machines(160_000, writes);
            let contents = || Contents::new(&references, Source::Generated(Machines::new(1, 5, 1000)), 1, 2).unwrap();
            let made = contents();
            let [lru, dedup, lpu, both] = [Scheme::None, Scheme::Dedup, Scheme::Lpu, Scheme::LpuDedup]
                .map(|scheme| hits(&references, &made, scheme, 1000));
            assert!(lru < dedup && dedup < both, "{lru} {lpu} {dedup} {both}");
            // A cache of this size is replaced many times between two scans, so LPU as published finds little. With
            // writes, that is less than what its delta area takes.
            assert_eq!(lru < lpu, writes == 0, "{lru} {lpu} {dedup} {both}");
            // The same arguments give the same result.
            assert_eq!(hits(&references, &contents(), Scheme::Lpu, 1000), lpu);
        }
    }

    /// With 400 blocks of memory for 3,750; with 1,000, all would fit once they are compressed.
    #[test]
    fn encoded_blocks_make_more_room() {
        let references = machines(16_000, 2);
        let contents = Contents::new(&references, Source::Generated(Machines::new(1, 5, 1000)), 1, 2).unwrap();
        let [lru, dedup, _, both, lz4, zstd, sketch, best] =
            Scheme::ALL.map(|scheme| hits(&references, &contents, scheme, 400));
        assert!(lru < dedup && dedup < lz4 && both < lz4, "{lru} {dedup} {both} {lz4}");
        assert!(lz4 < zstd && lz4 < sketch && zstd < best && sketch < best, "{lz4} {zstd} {sketch} {best}");
    }

    /// With bytes that no other block has, De-Dup is LRU. LPU has less room for data than LRU.
    #[test]
    fn different_blocks_make_no_room() {
        let blocks: Vec<(u32, u64, bool)> = (0..40_000).map(|at| (at % 8, u64::from(at * 7919 % 61), false)).collect();
        let references = references(&blocks);
        let mut images = Vec::new();
        for volume in 0..8u32 {
            let mut file = tempfile::tempfile().unwrap();
            for block in 0..61u32 {
                let mut bytes = [0; BLOCK_BYTES];
                let mut state = volume * 1000 + block;
                bytes.fill_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                });
                file.write_all(&bytes).unwrap();
            }
            images.push(Image { volume, first: 0, blocks: 61, file });
        }
        let contents = Contents::new(&references, Source::Images(images), 1, 2).unwrap();
        assert_eq!(contents.distinct(), 8 * 61);
        let [lru, dedup, lpu, both, stored @ ..] = Scheme::ALL.map(|scheme| hits(&references, &contents, scheme, 250));
        assert!(lru == dedup && lpu <= lru && both == lpu, "{lru} {dedup} {lpu} {both}");
        assert_eq!(stored, [lru; 4]);
    }

    #[test]
    fn images_have_their_places() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[[1; BLOCK_BYTES], [2; BLOCK_BYTES], [1; BLOCK_BYTES]].concat()).unwrap();
        let images = vec![Image { volume: 3, first: 10, blocks: 3, file }];
        let references =
            references(&[(3, 9, false), (3, 10, false), (3, 11, false), (3, 12, true), (3, 13, false), (2, 10, false)]);
        let contents = Contents::new(&references, Source::Images(images), 1, 1).unwrap();
        let of: Vec<Content> = (0..6).map(|at| contents.of(at)).collect();
        assert!(of[0] == of[4] && of[0] == of[5] && of[0] != of[1] && of[1] != of[2]);
        let mut block = [9; BLOCK_BYTES];
        for (at, first) in [(0, 0), (1, 1), (2, 2)] {
            contents.bytes(of[at], &mut block).unwrap();
            assert_eq!(block, [first; BLOCK_BYTES]);
        }
        contents.bytes(of[3], &mut block).unwrap();
        assert!(block != [1; BLOCK_BYTES] && of[3] != of[1]);
        // An image that ends too early is an error.
        let short = vec![Image { volume: 3, first: 10, blocks: 4, file: tempfile::tempfile().unwrap() }];
        assert!(Contents::new(&references, Source::Images(short), 1, 1).is_err());
    }

    #[test]
    fn a_trace_may_say_what_is_equal() {
        use nigh_trace::{Op, Request};
        // 100 contents, each at ten places; then each place is written with what its neighbour has.
        let request =
            |at: u64, op, content| Request { offset: at * 4096, length: 4096, op, content, ..Request::default() };
        let mut requests: Vec<Request> = (0..1000).map(|at| request(at, Op::Read, 1 + at % 100)).collect();
        requests.extend((0..1000).map(|at| request(at, Op::Write, 1 + (at + 1) % 100)));
        requests.extend((0..1000).map(|at| request(at, Op::Read, 0)));
        // Two blocks, the first of which has the identity of the request. Then a read with another identity changes nothing.
        requests.push(Request { length: 8192, ..request(0, Op::Write, 1) });
        requests.push(request(0, Op::Read, 77));
        let mut loader = Loader::new(Options {
            block_bytes: 4096,
            ops: Ops::All,
            collapse: false,
            sample: None,
            requests_most: u64::MAX,
        });
        loader.push(&requests).unwrap();
        let references = loader.finish();
        let recorded = super::super::Recorded::new(&references, 1).unwrap();
        let contents = Contents::new(&references, Source::Recorded(recorded), 1, 2).unwrap();
        assert_eq!(contents.distinct(), 101);
        assert!((0..1000).all(|at| contents.of(1000 + at) == contents.of((at + 1) % 100)), "what is written");
        assert!((0..1000).all(|at| contents.of(2000 + at) == contents.of(1000 + at)), "what is not said is as it was");
        assert!(contents.of(3000) == contents.of(0) && contents.of(3001) != contents.of(1));
        assert_eq!(contents.of(3002), contents.of(3000));
        let [dedup, lz4] = [Scheme::Dedup, Scheme::Encoded(nigh_content::Scheme::Lz4)]
            .map(|scheme| hits(&references, &contents, scheme, 101));
        // All contents fit; what is written was there, and so is what is read again.
        assert!(dedup >= 2000 && lz4 >= 2000, "{dedup} {lz4}");
    }

    #[test]
    fn only_lru_orders_blocks_as_the_schemes_do() {
        let lirs: Spec = "lirs".parse().unwrap();
        assert!(Scheme::ALL.iter().all(|scheme| scheme.takes(&lirs) == (*scheme == Scheme::None)));
        assert_eq!("lpu".parse(), Ok(Scheme::Lpu));
        assert!("LPU".parse::<Scheme>().is_err());
    }
}
