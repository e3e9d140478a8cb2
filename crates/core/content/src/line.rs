//! Line difference: which bytes of a block differ from those at the same place in another block, for changes in place.
//!
//! A block is 64 lines of 64 bytes, a line is 8 words of 8 bytes. The encoding is a mask of the changed lines (8 bytes,
//! little endian), and for each changed line a mask of its changed words (1 byte), a mask of the changed bytes for each
//! changed word (1 byte each), and the new values of the changed bytes. Equal blocks take 8 bytes. There is one encoding of
//! a difference, and the decoder rejects all others.
//!
//! The code is scalar. The comparison of lines compiles to SIMD instructions of the target; gathering and spreading bytes
//! by a mask does not, as that takes instructions (`pext`, `vpcompressb`) that safe code cannot select at run time.

use crate::{BLOCK_BYTES, Block, DecodeError, ENCODED_MAX, Encoded};

/// Bytes of a line.
const LINE: usize = 64;

/// Bytes of the mask of lines.
const HEAD: usize = 8;

/// Most bytes of a line's encoding: the mask of words, eight masks of bytes, and the line.
const LINE_ENCODED_MAX: usize = 1 + 8 + LINE;

const _: () = assert!(HEAD + (BLOCK_BYTES / LINE) * LINE_ENCODED_MAX <= ENCODED_MAX);

/// Encodes `block` as its difference to `base`, if that takes at most `limit` bytes.
pub fn encode(base: &Block, block: &Block, limit: usize, out: &mut Encoded) -> Option<usize> {
    let (bases, blocks) = (base.as_chunks::<LINE>().0, block.as_chunks::<LINE>().0);
    let mut lines = 0u64;
    for (at, (base, block)) in bases.iter().zip(blocks).enumerate() {
        let differs = words(base).zip(words(block)).fold(0, |differs, (base, block)| differs | (base ^ block));
        lines |= u64::from(differs != 0) << at;
    }
    // A changed line takes at least two masks and a byte.
    if HEAD + 3 * lines.count_ones() as usize > limit {
        return None;
    }
    out[..HEAD].copy_from_slice(&lines.to_le_bytes());
    let mut length = HEAD;
    while lines != 0 {
        let line = lines.trailing_zeros() as usize;
        lines &= lines - 1;
        let room = out[length..].first_chunk_mut()?;
        length += encode_line(&bases[line], &blocks[line], room);
        if length > limit {
            return None;
        }
    }
    Some(length)
}

fn words(line: &[u8; LINE]) -> impl Iterator<Item = u64> {
    line.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn encode_line(base: &[u8; LINE], block: &[u8; LINE], out: &mut [u8; LINE_ENCODED_MAX]) -> usize {
    let mut masks = [0u8; 8];
    let mut mask_of_words = 0u8;
    for (at, (base, block)) in words(base).zip(words(block)).enumerate() {
        masks[at] = differing_bytes(base, block);
        mask_of_words |= u8::from(masks[at] != 0) << at;
    }
    out[0] = mask_of_words;
    let mut length = 1;
    let mut rest = mask_of_words;
    while rest != 0 {
        out[length] = masks[rest.trailing_zeros() as usize & 7];
        length += 1;
        rest &= rest - 1;
    }
    let block = block.as_chunks::<8>().0;
    rest = mask_of_words;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize & 7;
        rest &= rest - 1;
        // Each byte is written, and kept if it differs: without a branch that depends on the contents.
        let (mut changed, mut count) = ([0u8; 8], 0);
        for (byte, &value) in block[at].iter().enumerate() {
            changed[count & 7] = value;
            count += usize::from(masks[at] >> byte & 1);
        }
        if let Some(room) = out[length..].first_chunk_mut::<8>() {
            *room = changed;
        } else {
            out[length..length + count].copy_from_slice(&changed[..count]);
        }
        length += count;
    }
    length
}

/// A bit for each byte that differs.
fn differing_bytes(one: u64, other: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differs = one ^ other;
    // The highest bit of each byte that is not zero, then those bits side by side.
    let high = (((differs & LOW) + LOW) | differs) & !LOW;
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Decodes what [`encode`] made against the same `base`.
pub fn decode(base: &Block, encoded: &[u8], out: &mut Block) -> Result<(), DecodeError> {
    let (head, mut rest) = encoded.split_first_chunk::<HEAD>().ok_or(DecodeError)?;
    let mut lines = u64::from_le_bytes(*head);
    *out = *base;
    let all = out.as_chunks_mut::<LINE>().0;
    while lines != 0 {
        let line = all.get_mut(lines.trailing_zeros() as usize).ok_or(DecodeError)?;
        lines &= lines - 1;
        rest = decode_line(line, rest)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(DecodeError) }
}

/// Applies the encoding of a line that `encoded` begins with, and returns what follows it.
fn decode_line<'a>(line: &mut [u8; LINE], encoded: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (&words, rest) = encoded.split_first().ok_or(DecodeError)?;
    let (masks, mut rest) = rest.split_at_checked(words.count_ones() as usize).ok_or(DecodeError)?;
    // Masks without a bit are no encoding of a difference.
    if words == 0 || masks.contains(&0) {
        return Err(DecodeError);
    }
    let line = line.as_chunks_mut::<8>().0;
    let mut words = words;
    for &mask in masks {
        let word = line.get_mut(words.trailing_zeros() as usize).ok_or(DecodeError)?;
        words &= words - 1;
        let count = mask.count_ones() as usize;
        let changed = match rest.first_chunk::<8>() {
            Some(chunk) => *chunk,
            None => {
                let mut chunk = [0; 8];
                chunk.get_mut(..count).ok_or(DecodeError)?.copy_from_slice(rest.get(..count).ok_or(DecodeError)?);
                chunk
            }
        };
        let old = *word;
        let mut from = 0;
        for (at, byte) in word.iter_mut().enumerate() {
            let is_changed = mask >> at & 1 != 0;
            let new = changed[from & 7];
            // Bytes that the encoder would not have listed are rejected.
            if is_changed && new == old[at] {
                return Err(DecodeError);
            }
            *byte = if is_changed { new } else { *byte };
            from += usize::from(is_changed);
        }
        rest = rest.get(count..).ok_or(DecodeError)?;
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte for byte, from the description above.
    fn encode_plainly(base: &Block, block: &Block) -> Vec<u8> {
        let mut lines = 0u64;
        let mut body = Vec::new();
        for line in 0..64 {
            let (mut words, mut masks, mut bytes) = (0u8, Vec::new(), Vec::new());
            for word in 0..8 {
                let mut mask = 0u8;
                for byte in 0..8 {
                    let at = line * 64 + word * 8 + byte;
                    if base[at] != block[at] {
                        mask |= 1 << byte;
                        bytes.push(block[at]);
                    }
                }
                if mask != 0 {
                    words |= 1 << word;
                    masks.push(mask);
                }
            }
            if words != 0 {
                lines |= 1 << line;
                body.push(words);
                body.extend(masks);
                body.extend(bytes);
            }
        }
        [lines.to_le_bytes().to_vec(), body].concat()
    }

    fn pair(random: &mut fastrand::Rng, changes: usize) -> (Block, Block) {
        let mut base = [0u8; BLOCK_BYTES];
        random.fill(&mut base);
        let mut block = base;
        for _ in 0..changes {
            let at = random.usize(..BLOCK_BYTES);
            let end = (at + random.usize(1..40)).min(BLOCK_BYTES);
            random.fill(&mut block[at..end]);
        }
        (base, block)
    }

    #[test]
    fn it_encodes_as_described_and_decodes() {
        let mut random = fastrand::Rng::with_seed(1);
        for changes in (0..400).chain([5000; 5]) {
            let (base, block) = pair(&mut random, changes);
            let (mut out, mut decoded) = ([0; ENCODED_MAX], [0; BLOCK_BYTES]);
            let length = encode(&base, &block, ENCODED_MAX, &mut out).unwrap();
            let plain = encode_plainly(&base, &block);
            assert_eq!(out[..length], plain);
            decode(&base, &out[..length], &mut decoded).unwrap();
            assert!(decoded == block);
            assert_eq!(encode(&base, &block, length, &mut out), Some(length));
            assert_eq!(encode(&base, &block, length - 1, &mut out), None);
        }
    }

    #[test]
    fn other_encodings_are_rejected() {
        let base = [7; BLOCK_BYTES];
        let mut out = [0; BLOCK_BYTES];
        let mut decode = |encoded: &[u8]| decode(&base, encoded, &mut out);
        let head = |rest: &[u8]| [&1u64.to_le_bytes(), rest].concat();
        assert_eq!(decode(&head(&[1, 1, 9])), Ok(()));
        for (wrong, why) in [
            (vec![0; 7], "too short for the mask of lines"),
            (head(&[]), "no mask of words"),
            (head(&[0]), "no changed word in a changed line"),
            (head(&[1, 0]), "no changed byte in a changed word"),
            (head(&[3, 1]), "a mask of bytes is missing"),
            (head(&[1, 3, 9]), "a byte is missing"),
            (head(&[1, 1, 7]), "the byte is the same as before"),
            (head(&[1, 1, 9, 9]), "a byte too many"),
        ] {
            assert_eq!(decode(&wrong), Err(DecodeError), "{why}");
        }
    }
}
