//! Which encoding of a block is worth it.

use crate::codec::{Codec, Codecs};
use crate::sketch::CANDIDATES;
use crate::{BLOCK_BYTES, Block, ENCODED_MAX, Encoded, line};

/// Most bytes of a line difference.
pub const LINE_MAX: usize = 256;

/// Most bytes of any difference.
pub const DELTA_MAX: usize = 2048;

/// Most bytes of a block that is compressed alone; a longer result saves too little to be decoded at each use.
pub const SELF_MAX: usize = 3840;

/// Bytes of a difference after which no other base is tried: LPU's delta threshold.
pub const GOOD_MAX: usize = 768;

/// The largest length of a difference, relative to that of the block alone. A smaller gain is not worth a second block for
/// each use.
const DELTA_SHARE: (usize, usize) = (7, 10);

/// Which codecs are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// For blocks alone: LZ4 or zstd.
    pub alone: Codec,
    /// For differences to similar blocks, if the line difference does not do: zstd or LZ4 with a dictionary.
    pub delta: Codec,
}

impl Default for Rules {
    /// LZ4 for blocks alone, which is four times as fast to decode as zstd; zstd for differences, which are a third shorter
    /// than LZ4's.
    fn default() -> Rules {
        Rules { alone: Codec::Lz4, delta: Codec::ZstdDelta }
    }
}

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How it is encoded.
    pub codec: Codec,
    /// Bytes of the encoding.
    pub length: usize,
}

/// Encodes blocks, one at a time: [`begin`](Encoder::begin) with the block alone, then [`against`](Encoder::against) each
/// candidate for a base, until a difference is short enough ([`GOOD_MAX`]); the shortest encoding is in
/// [`bytes`](Encoder::bytes).
pub struct Encoder {
    codecs: Codecs,
    rules: Rules,
    is_thorough: bool,
    choice: Choice,
    chosen: Box<Encoded>,
    other: Box<Encoded>,
    checked: Box<Block>,
}

impl Encoder {
    /// An encoder with working memory of its own.
    pub fn new(rules: Rules) -> Encoder {
        let [chosen, other] = [(); 2].map(|()| Box::new([0; ENCODED_MAX]));
        let choice = Choice { codec: Codec::Raw, length: BLOCK_BYTES };
        let checked = Box::new([0; BLOCK_BYTES]);
        Encoder { codecs: Codecs::new(), rules, is_thorough: true, choice, chosen, other, checked }
    }

    /// From now on, LZ4 looks for the shorter encodings of [`Codecs::encode_thoroughly`], or does not. At first, it does.
    pub fn set_thorough(&mut self, is_thorough: bool) {
        self.is_thorough = is_thorough;
    }

    /// Encodes `block` alone: compressed, if that takes at most [`SELF_MAX`] bytes, else as it is.
    pub fn begin(&mut self, block: &Block) -> Choice {
        let codec = self.rules.alone;
        let length = if self.is_thorough && codec == Codec::Lz4 {
            self.codecs.encode_thoroughly(block, &mut self.chosen)
        } else {
            self.codecs.encode(codec, block, block, &mut self.chosen)
        };
        let length = length.filter(|&length| length <= SELF_MAX);
        self.choice = match length.filter(|&length| self.is_right(codec, length, block, block)) {
            Some(length) => Choice { codec, length },
            None => {
                self.chosen[..BLOCK_BYTES].copy_from_slice(block);
                Choice { codec: Codec::Raw, length: BLOCK_BYTES }
            }
        };
        self.choice
    }

    /// The most bytes that a difference may have in place of the encoding so far.
    fn limit(&self) -> usize {
        match self.choice.codec.has_base() {
            true => self.choice.length - 1,
            false => (self.choice.length * DELTA_SHARE.0 / DELTA_SHARE.1).min(DELTA_MAX),
        }
    }

    /// Encodes the same block as its difference to `base`, if that is worth it: as a line difference of at most
    /// [`LINE_MAX`] bytes, else by a dictionary, in at most [`DELTA_MAX`] bytes and 70 % of the bytes of the block alone.
    /// A difference is replaced by a shorter one to another base.
    pub fn against(&mut self, block: &Block, base: &Block) -> Option<Choice> {
        let limit = self.limit();
        let mut codec = Codec::Line;
        let mut length = line::encode(base, block, limit.min(LINE_MAX), &mut self.other);
        if length.is_none() {
            codec = self.rules.delta;
            length = self.codecs.encode(codec, block, base, &mut self.other).filter(|&length| length <= limit);
        }
        let length = length?;
        std::mem::swap(&mut self.chosen, &mut self.other);
        if self.is_right(codec, length, block, base) {
            self.choice = Choice { codec, length };
            return Some(self.choice);
        }
        std::mem::swap(&mut self.chosen, &mut self.other);
        None
    }

    /// Whether the encoding in `chosen` becomes the block again: what is decoded wrongly is found before it replaces the
    /// block.
    fn is_right(&mut self, codec: Codec, length: usize, block: &Block, base: &Block) -> bool {
        let decoded = self.codecs.decode(codec, &self.chosen[..length], base, &mut self.checked);
        decoded.is_ok() && *self.checked == *block
    }

    /// The encoding.
    pub fn bytes(&self) -> &[u8] {
        &self.chosen[..self.choice.length]
    }

    /// Its codecs, for decoding.
    pub fn codecs(&mut self) -> &mut Codecs {
        &mut self.codecs
    }
}

/// The candidates for a base in the order in which they are tried: the one with the same signature, then those with the most
/// similar sketches.
pub fn candidates(in_place: Option<u32>, shifted: [Option<u32>; CANDIDATES]) -> impl Iterator<Item = u32> {
    in_place.into_iter().chain(shifted.into_iter().flatten().filter(move |&other| Some(other) != in_place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(random: &mut fastrand::Rng) -> Block {
        let words: Vec<String> = (0..200).map(|_| format!("{:x} ", random.u64(..))).collect();
        std::array::from_fn(|at| words[at / 17 * 7 % 200].as_bytes()[at % 17 % 8])
    }

    #[test]
    fn an_encoding_is_accepted_if_it_pays() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut encoder = Encoder::new(Rules::default());
        let (mut noise, mut other) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        random.fill(&mut noise);
        random.fill(&mut other);
        assert_eq!(encoder.begin(&noise), Choice { codec: Codec::Raw, length: BLOCK_BYTES });
        assert_eq!(encoder.bytes(), noise);
        assert_eq!(encoder.against(&noise, &other), None);
        assert_eq!(encoder.bytes(), noise, "the block alone remains");

        let mut edited = noise;
        edited[1000..1100].fill(0);
        encoder.begin(&edited);
        let choice = encoder.against(&edited, &noise).unwrap();
        assert!(choice.codec == Codec::Line && choice.length <= 8 + 100 + 2 + 14 + 2, "{choice:?}");
        edited[1000..1250].fill(0);
        encoder.begin(&edited);
        assert_eq!(encoder.against(&edited, &noise).unwrap().codec, Codec::ZstdDelta, "above LINE_MAX");

        // Half of another block: its difference is just above DELTA_MAX.
        let mut half = noise;
        half[..2048].copy_from_slice(&other[..2048]);
        encoder.begin(&half);
        assert_eq!(encoder.against(&half, &noise), None);
        half[2000..2048].copy_from_slice(&noise[2000..2048]);
        encoder.begin(&half);
        assert!(encoder.against(&half, &noise).is_some());

        // A block that is compressed well alone has a difference only if that is much shorter.
        let block = text(&mut random);
        let mut encoder = Encoder::new(Rules { alone: Codec::Zstd, delta: Codec::ZstdDelta });
        let alone = encoder.begin(&block);
        assert!(alone.codec == Codec::Zstd && alone.length < SELF_MAX);
        assert!(encoder.limit() == alone.length * 7 / 10);
        assert_eq!(encoder.against(&block, &noise), None);
    }
}
