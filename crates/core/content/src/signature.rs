//! An index that finds similar signatures of LPU ("A New Buffer Cache Design Exploiting both Temporal and Content Localities",
//! section 2.1) in constant time.
//!
//! A block has eight sub-blocks of 512 bytes; the sub-signature of each is the sum of its bytes at the offsets 0, 16, 32 and
//! 64. Blocks are similar if at least 7 of 8 agree (section 3.3). It samples 32 bytes at fixed places, so it recognizes
//! edits in place, and not content that moved.
//!
//! The paper looks for the most similar reference block by an array of lists, `reference_index[8][256]`, of which those of
//! popular values are long. Here, each half of a signature is a key: if at least 7 of 8 sub-signatures agree, one half does
//! as a whole. Contents of which only four agree are found, too; whether one is worth it shows when the block is encoded.

use crate::buckets::{Buckets, Votes, mixed};
use crate::lpu::Signature;

/// Keys of a signature.
const KEYS: usize = 2;

/// Contents by their signatures, for a fixed number of contents.
#[derive(Debug)]
pub struct Signatures {
    buckets: Buckets,
}

impl Signatures {
    /// An index of contents with numbers below `contents`, with room for about an eighth of them, so that it takes a byte
    /// for each. It keeps those that were added or renewed last.
    pub fn new(contents: usize) -> Signatures {
        Signatures::with_room(contents, contents / 8)
    }

    /// An index with room for about `room` of these contents. It takes 8 bytes for each of them.
    pub fn with_room(contents: usize, room: usize) -> Signatures {
        Signatures { buckets: Buckets::new(contents, room.saturating_mul(KEYS)) }
    }

    /// Its memory.
    pub fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// Adds a content.
    pub fn insert(&mut self, signature: Signature, content: u32) {
        keys(signature).for_each(|key| self.buckets.insert(key, content));
    }

    /// A content with a similar signature was useful: where it was not displaced, it is as new.
    pub fn renew(&mut self, signature: Signature, content: u32) {
        keys(signature).for_each(|key| self.buckets.renew(key, content));
    }

    /// The content of which most halves agree, at least one; of several, the one with the highest `weight`, then the
    /// newest. Contents without a weight do not count.
    pub fn best(&self, signature: Signature, weight: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
        let mut votes = Votes::new();
        for key in keys(signature) {
            self.buckets.get(key).for_each(|content| votes.add(content));
        }
        let [best] = votes.best(weight);
        best
    }
}

/// Its halves.
fn keys(signature: Signature) -> impl Iterator<Item = u64> {
    let whole = u64::from_le_bytes(signature);
    // The upper bits keep the keys of different halves apart.
    (0..KEYS as u64).map(move |half| mixed((half + 1) << 32 | whole >> (32 * half) & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_agrees_in_seven_of_eight() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut index = Signatures::with_room(1000, 2000);
        let known: Vec<Signature> = (0..1000).map(|_| std::array::from_fn(|_| random.u8(..6))).collect();
        known.iter().enumerate().for_each(|(at, &signature)| index.insert(signature, at as u32));
        let agree =
            |one: Signature, other: Signature| one.iter().zip(other).filter(|&(one, other)| *one == other).count();
        let mut found = 0;
        for _ in 0..1000 {
            let mut asked = known[random.usize(..1000)];
            asked[random.usize(..8)] = random.u8(..6);
            if let Some(content) = index.best(asked, |_| Some(0)) {
                assert!(agree(known[content as usize], asked) >= 4);
                found += 1;
            }
        }
        // Buckets that overflow lose some.
        assert!(found >= 900, "{found}");
    }
}
