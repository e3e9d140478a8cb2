//! The difference between an associate block and its reference block (section 3.3).
//!
//! The paper uses zdelta, a modification of zlib that also copies from a reference. zdelta is no longer maintained, and no
//! crate has it. Here it is zlib's deflate at its default level, without header, with the reference block as preset
//! dictionary: literals and copies, also from the reference, in Huffman codes. The sizes of the two were not compared.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{BLOCK_BYTES, Block};

/// Room for the difference of any two blocks: deflate stores what it cannot compress with a few bytes more.
const BYTES_MAX: usize = BLOCK_BYTES + 64;

/// Encodes and decodes differences, with memory that all of them use.
pub struct Delta {
    compress: Compress,
    decompress: Decompress,
    encoded: Vec<u8>,
}

/// These bytes are no difference from this reference block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADelta;

impl std::fmt::Display for NotADelta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are no difference from this reference block")
    }
}

impl std::error::Error for NotADelta {}

impl Default for Delta {
    fn default() -> Delta {
        Delta::new()
    }
}

impl Delta {
    /// An encoder and decoder.
    pub fn new() -> Delta {
        Delta {
            compress: Compress::new(Compression::default(), false),
            decompress: Decompress::new(false),
            encoded: Vec::with_capacity(BYTES_MAX),
        }
    }

    /// The difference of `block` from `reference`.
    pub fn encode(&mut self, block: &Block, reference: &Block) -> &[u8] {
        self.compress.reset();
        self.compress.set_dictionary(reference).expect("a raw stream takes a dictionary at its start");
        self.encoded.clear();
        let status = self.compress.compress_vec(block, &mut self.encoded, FlushCompress::Finish);
        assert_eq!(status.ok(), Some(Status::StreamEnd), "there is room for every difference");
        &self.encoded
    }

    /// The block with this difference from `reference`.
    ///
    /// # Errors
    /// If there is no such block.
    pub fn decode(&mut self, delta: &[u8], reference: &Block, block: &mut Block) -> Result<(), NotADelta> {
        self.decompress.reset(false);
        self.decompress.set_dictionary(reference).map_err(|_| NotADelta)?;
        let status = self.decompress.decompress(delta, block, FlushDecompress::Finish).map_err(|_| NotADelta)?;
        let is_whole =
            self.decompress.total_out() == BLOCK_BYTES as u64 && self.decompress.total_in() == delta.len() as u64;
        if status == Status::StreamEnd && is_whole { Ok(()) } else { Err(NotADelta) }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn what_is_decoded_is_what_was_encoded() {
        let mut delta = Delta::new();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for edits in [0, 1, 5, 50, 500, 4096] {
            let reference: Block = std::array::from_fn(|_| random.random());
            let mut block = reference;
            for _ in 0..edits {
                block[random.random_range(0..BLOCK_BYTES)] = random.random();
            }
            let encoded = delta.encode(&block, &reference).to_vec();
            assert!(
                encoded.len() <= 64 + 8 * edits && encoded.len() <= BYTES_MAX,
                "{edits} edits take {}",
                encoded.len()
            );
            let mut decoded = [0; BLOCK_BYTES];
            assert_eq!(delta.decode(&encoded, &reference, &mut decoded), Ok(()));
            assert!(decoded == block);
        }
    }

    #[test]
    fn other_bytes_are_an_error() {
        let mut delta = Delta::new();
        let reference: Block = std::array::from_fn(|at| (at * 7) as u8);
        let mut block = reference;
        block[100] ^= 1;
        let encoded = delta.encode(&block, &reference).to_vec();
        let mut decoded = [0; BLOCK_BYTES];
        assert_eq!(delta.decode(&[], &reference, &mut decoded), Err(NotADelta));
        assert_eq!(delta.decode(&encoded[..encoded.len() - 1], &reference, &mut decoded), Err(NotADelta));
        let with_more = [&encoded[..], &[0]].concat();
        assert_eq!(delta.decode(&with_more, &reference, &mut decoded), Err(NotADelta));
        assert_eq!(delta.decode(&[0xff; 40], &reference, &mut decoded), Err(NotADelta));
        // After an error, the next one is as before.
        assert_eq!(delta.decode(&encoded, &reference, &mut decoded), Ok(()));
        assert!(decoded == block);
    }
}
