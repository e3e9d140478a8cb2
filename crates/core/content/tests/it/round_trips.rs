//! Properties of the codecs: what is encoded is decoded, and other bytes are an error or some block, but no panic.

use nigh_content::{BLOCK_BYTES, Block, Codec, Codecs, ENCODED_MAX};
use proptest::prelude::*;

/// A block of runs, each of random bytes, of one byte, or a copy of earlier bytes.
fn block() -> impl Strategy<Value = Box<Block>> {
    let run = (0..3u8, 1..600usize, any::<u64>());
    prop::collection::vec(run, 1..40).prop_map(|runs| {
        let mut block = Box::new([0; BLOCK_BYTES]);
        let mut at = 0;
        for (kind, length, seed) in runs.into_iter().cycle() {
            let end = (at + length).min(BLOCK_BYTES);
            match kind {
                0 => fastrand::Rng::with_seed(seed).fill(&mut block[at..end]),
                1 => block[at..end].fill(seed as u8),
                _ => {
                    let from = seed as usize % (at + 1);
                    (at..end).for_each(|to| block[to] = block[from + (to - at) % (at - from).max(1)]);
                }
            }
            at = end;
            if at == BLOCK_BYTES {
                break;
            }
        }
        block
    })
}

/// A block, and another one that it was edited from: bytes were replaced, or moved by an insertion.
fn pair() -> impl Strategy<Value = (Box<Block>, Box<Block>)> {
    let edit = (any::<bool>(), 0..BLOCK_BYTES, 1..100usize, any::<u64>());
    (block(), prop::collection::vec(edit, 0..20)).prop_map(|(base, edits)| {
        let mut block = base.clone();
        for (moves, at, length, seed) in edits {
            let end = (at + length).min(BLOCK_BYTES);
            if moves {
                block.copy_within(at..BLOCK_BYTES - (end - at), end);
            }
            fastrand::Rng::with_seed(seed).fill(&mut block[at..end]);
        }
        (base, block)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded((base, block) in pair()) {
        let mut codecs = Codecs::new();
        let mut out = [0; ENCODED_MAX];
        let mut decoded = [0; BLOCK_BYTES];
        for codec in Codec::ALL {
            // A base that looks like a dictionary of zstd is none.
            let Some(length) = codecs.encode(codec, &block, &base, &mut out) else {
                prop_assert!(codec == Codec::ZstdDelta && base.starts_with(&0xec30_a437_u32.to_le_bytes()), "{codec:?}");
                continue;
            };
            prop_assert_eq!(codecs.decode(codec, &out[..length], &base, &mut decoded), Ok(()), "{:?}", codec);
            prop_assert!(decoded == *block, "{:?}", codec);
        }
    }

    /// Encodings that are cut off, longer, or changed.
    #[test]
    fn damaged_encodings_do_no_harm((base, block) in pair(), at in any::<prop::sample::Index>(), bit in 0..8u8, cut in any::<prop::sample::Index>()) {
        let mut codecs = Codecs::new();
        let mut out = [0; ENCODED_MAX];
        let mut decoded = [0; BLOCK_BYTES];
        for codec in Codec::ALL {
            let Some(length) = codecs.encode(codec, &block, &base, &mut out) else { continue };
            let cut = cut.index(length);
            if codec == Codec::Raw || codec == Codec::Line {
                prop_assert!(codecs.decode(codec, &out[..cut], &base, &mut decoded).is_err(), "{codec:?} cut to {cut}");
                prop_assert!(codecs.decode(codec, &out[..length + 1], &base, &mut decoded).is_err(), "{codec:?}");
            }
            let _ = codecs.decode(codec, &out[..cut], &base, &mut decoded);
            out[at.index(length)] ^= 1u8 << bit;
            let _ = codecs.decode(codec, &out[..length], &base, &mut decoded);
            // The codecs are right afterwards.
            let Some(length) = codecs.encode(codec, &block, &base, &mut out) else { continue };
            prop_assert_eq!(codecs.decode(codec, &out[..length], &base, &mut decoded), Ok(()), "{:?}", codec);
            prop_assert!(decoded == *block, "{:?}", codec);
        }
    }

    #[test]
    fn foreign_bytes_do_no_harm(base in block(), bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let mut codecs = Codecs::new();
        let mut decoded = [0; BLOCK_BYTES];
        for codec in Codec::ALL {
            let _ = codecs.decode(codec, &bytes, &base, &mut decoded);
        }
    }
}

/// A block that begins as a dictionary of zstd, as images of trained dictionaries do.
#[test]
fn a_base_may_look_like_a_dictionary() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut base = [0; BLOCK_BYTES];
    for filled in [4, 12, 400, BLOCK_BYTES] {
        random.fill(&mut base[..filled]);
        base[..4].copy_from_slice(&0xec30_a437_u32.to_le_bytes());
        let mut block = base;
        block[1000] ^= 1;
        let mut codecs = Codecs::new();
        let (mut out, mut decoded) = ([0; ENCODED_MAX], [0; BLOCK_BYTES]);
        if let Some(length) = codecs.encode(Codec::ZstdDelta, &block, &base, &mut out) {
            codecs.decode(Codec::ZstdDelta, &out[..length], &base, &mut decoded).unwrap();
            assert_eq!(decoded, block);
        }
        let length = codecs.encode(Codec::Zstd, &block, &base, &mut out).unwrap();
        codecs.decode(Codec::Zstd, &out[..length], &base, &mut decoded).unwrap();
        assert_eq!(decoded, block);
    }
}
