//! How long a processor takes for contents, in ns: what `cargo xtask bench content` measured (docs/content.md).

use nigh_content::{Choice, Codec, Rules};

/// The hash of a block.
pub(super) const HASH: u64 = 140;
/// LPU's signature of a block.
pub(super) const SIGNATURE: u64 = 10;
/// A line difference of an edit in place, encoded, and decoded for comparison.
pub(super) const LINE: u64 = 330 + 240;
const SKETCH: u64 = 740;
/// To bring an encoding into the memory.
const APPLY: u64 = 1000;
const LZ4: u64 = 6320;
const LZ4_THOROUGH: u64 = 24_000;
const ZSTD: u64 = 13_990;
const DIFFERENCE: u64 = 16_280;

/// Copies a content, and decodes it.
pub fn decode(codec: Codec) -> u64 {
    match codec {
        Codec::Raw => 890,
        Codec::Lz4 => 2070,
        Codec::Zstd => 6010,
        Codec::Line => 3710,
        Codec::Lz4Delta => 4400,
        Codec::ZstdDelta => 6400,
    }
}

/// Finds out how to store a block, and stores it. `choice` is how; none if there was an equal one. What was encoded is decoded
/// again, for comparison.
pub fn encode(rules: Rules, is_similar_shared: bool, is_thorough: bool, choice: Option<Choice>) -> u64 {
    let Some(choice) = choice else { return HASH + APPLY + decode(Codec::Lz4) };
    let alone = match rules.alone {
        Codec::Lz4 if is_thorough => LZ4_THOROUGH + decode(Codec::Lz4),
        Codec::Lz4 => LZ4 + decode(Codec::Lz4),
        Codec::Zstd => ZSTD + decode(Codec::Zstd),
        _ => 0,
    };
    let sketch = if is_similar_shared { SKETCH } else { 0 };
    // With the base decoded first.
    let difference =
        if choice.codec.has_base() { decode(rules.alone) + DIFFERENCE + decode(Codec::ZstdDelta) } else { 0 };
    HASH + APPLY + alone + sketch + difference
}
