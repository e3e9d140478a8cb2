//! How long a processor takes for contents, in ns: what `cargo xtask bench content` measured (docs/content.md).

use nigh_content::{Choice, Codec, Scheme};

/// The hash of a block.
pub(super) const HASH: u64 = 90;
/// LPU's signature of a block.
pub(super) const SIGNATURE: u64 = 10;
/// A line difference of an edit in place, encoded, and decoded for comparison.
pub(super) const LINE: u64 = 310 + 170;
const SKETCH: u64 = 630;
/// To bring an encoding into the memory.
const APPLY: u64 = 1000;
const LZ4: u64 = 6080;
const LZ4_THOROUGH: u64 = 26_700;
const ZSTD: u64 = 13_030;
const DIFFERENCE: u64 = 13_700;

/// Copies a content, and decodes it.
pub fn decode(codec: Codec) -> u64 {
    match codec {
        Codec::Raw => 810,
        Codec::Lz4 => 1720,
        Codec::Zstd => 5500,
        Codec::Line => 1550,
        Codec::Lz4Delta => 3400,
        Codec::ZstdDelta => 5560,
    }
}

/// Finds out how to store a block, and stores it. `choice` is how; none if there was an equal one. An encoding is decoded
/// again, for comparison.
pub fn encode(scheme: Scheme, is_thorough: bool, choice: Option<Choice>) -> u64 {
    let Some(choice) = choice else { return HASH + APPLY + decode(Codec::Lz4) };
    let rules = scheme.rules();
    let alone = match rules.alone {
        Codec::Lz4 if is_thorough => LZ4_THOROUGH + decode(Codec::Lz4),
        Codec::Lz4 => LZ4 + decode(Codec::Lz4),
        Codec::Zstd => ZSTD + decode(Codec::Zstd),
        _ => 0,
    };
    let sketch = if scheme.shares_similar() { SKETCH } else { 0 };
    // With the base decoded first.
    let difference =
        if choice.codec.has_base() { decode(rules.alone) + DIFFERENCE + decode(Codec::ZstdDelta) } else { 0 };
    HASH + APPLY + alone + sketch + difference
}
