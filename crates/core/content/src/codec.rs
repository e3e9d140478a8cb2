//! The codecs: how a block becomes fewer bytes, alone or with another block as its base, and back.

use lz4::block::CompressionMode;
use lz4_flex::block::CompressTable;
use zstd_safe::{CCtx, DCtx};

use crate::{BLOCK_BYTES, Block, DecodeError, ENCODED_MAX, Encoded, line};

const _: () = assert!(ENCODED_MAX >= lz4_flex::block::get_maximum_output_size(BLOCK_BYTES));

/// The level of LZ4 where it is thorough, of 3 to 12. Higher ones take longer for less than 1 %.
const LZ4_LEVEL: i32 = 6;

/// The level of zstd, for blocks alone and for differences.
const ZSTD_LEVEL: i32 = 1;

/// Beginning of each frame of zstd; it is not stored.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// How a block is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As it is
    Raw,
    /// LZ4 (its block format)
    Lz4,
    /// zstd at level 1 (a frame without its magic number)
    Zstd,
    /// The bytes that differ from those in the base at the same place ([`mod@line`])
    Line,
    /// LZ4 with the base as dictionary
    Lz4Delta,
    /// zstd with the base as dictionary
    ZstdDelta,
}

impl Codec {
    /// All of them.
    pub const ALL: [Codec; 6] = [Codec::Raw, Codec::Lz4, Codec::Zstd, Codec::Line, Codec::Lz4Delta, Codec::ZstdDelta];

    /// Whether it needs a base.
    pub fn has_base(self) -> bool {
        matches!(self, Codec::Line | Codec::Lz4Delta | Codec::ZstdDelta)
    }
}

/// The codecs with their working memory (about 100 KiB). Encoding and decoding do not allocate, except that LZ4 with a
/// base allocates its table of 8 KiB for each encoding.
pub struct Codecs {
    lz4: CompressTable,
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
    /// A frame of zstd with its magic number.
    frame: Box<[u8; ZSTD_MAGIC.len() + ENCODED_MAX]>,
}

impl Default for Codecs {
    fn default() -> Codecs {
        Codecs::new()
    }
}

impl Codecs {
    /// Codecs with working memory of their own.
    pub fn new() -> Codecs {
        let frame = Box::new([0; ZSTD_MAGIC.len() + ENCODED_MAX]);
        Codecs { lz4: CompressTable::small(), compress: CCtx::create(), decompress: DCtx::create(), frame }
    }

    /// Encodes `block`; `None` if the codec fails or the result is longer than [`ENCODED_MAX`]. Codecs without a base
    /// ignore `base`.
    pub fn encode(&mut self, codec: Codec, block: &Block, base: &Block, out: &mut Encoded) -> Option<usize> {
        match codec {
            Codec::Raw => {
                out[..BLOCK_BYTES].copy_from_slice(block);
                Some(BLOCK_BYTES)
            }
            Codec::Lz4 => lz4_flex::block::compress_into_with_table(block, out, &mut self.lz4).ok(),
            Codec::Lz4Delta => lz4_flex::block::compress_into_with_dict(block, out, base).ok(),
            Codec::Zstd => {
                let length = self.compress.compress(&mut self.frame[..], block, ZSTD_LEVEL).ok()?;
                self.without_magic(length, out)
            }
            // A dictionary, not a prefix: the latter is borrowed for as long as the context exists.
            Codec::ZstdDelta => {
                let frame = &mut self.frame[..];
                let length = self.compress.compress_using_dict(frame, block, base, ZSTD_LEVEL).ok()?;
                self.without_magic(length, out)
            }
            Codec::Line => line::encode(base, block, out.len(), out),
        }
    }

    /// Encodes by LZ4 as [`encode`](Codecs::encode) does, in some percent fewer bytes and four to five times the time.
    pub fn encode_thoroughly(&mut self, block: &Block, out: &mut Encoded) -> Option<usize> {
        lz4::block::compress_to_buffer(block, Some(CompressionMode::HIGHCOMPRESSION(LZ4_LEVEL)), false, &mut out[..])
            .ok()
    }

    fn without_magic(&self, length: usize, out: &mut Encoded) -> Option<usize> {
        let rest = self.frame.get(..length)?.strip_prefix(&ZSTD_MAGIC)?;
        out.get_mut(..rest.len())?.copy_from_slice(rest);
        Some(rest.len())
    }

    /// Decodes what [`encode`](Codecs::encode) made, with the same base. For other bytes, `out` has any contents.
    pub fn decode(&mut self, codec: Codec, bytes: &[u8], base: &Block, out: &mut Block) -> Result<(), DecodeError> {
        let length = match codec {
            Codec::Raw => {
                *out = bytes.try_into().map_err(|_| DecodeError)?;
                return Ok(());
            }
            Codec::Line => return line::decode(base, bytes, out),
            Codec::Lz4 => lz4_flex::block::decompress_into(bytes, out).map_err(|_| DecodeError)?,
            Codec::Lz4Delta => lz4_flex::block::decompress_into_with_dict(bytes, out, base).map_err(|_| DecodeError)?,
            Codec::Zstd => {
                let frame = with_magic(&mut self.frame[..], bytes)?;
                self.decompress.decompress(&mut out[..], frame).map_err(|_| DecodeError)?
            }
            Codec::ZstdDelta => {
                let frame = with_magic(&mut self.frame[..], bytes)?;
                self.decompress.decompress_using_dict(&mut out[..], frame, base).map_err(|_| DecodeError)?
            }
        };
        if length == BLOCK_BYTES { Ok(()) } else { Err(DecodeError) }
    }
}

/// The frame of zstd that `bytes` are without its magic number.
fn with_magic<'a>(room: &'a mut [u8], bytes: &[u8]) -> Result<&'a [u8], DecodeError> {
    let end = ZSTD_MAGIC.len() + bytes.len();
    room.get_mut(ZSTD_MAGIC.len()..end).ok_or(DecodeError)?.copy_from_slice(bytes);
    room.get_mut(..ZSTD_MAGIC.len()).ok_or(DecodeError)?.copy_from_slice(&ZSTD_MAGIC);
    room.get(..end).ok_or(DecodeError)
}
