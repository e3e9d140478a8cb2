//! An index that finds similar signatures of LPU ("A New Buffer Cache Design Exploiting both Temporal and Content Localities",
//! section 2.1) in constant time.
//!
//! A block has eight sub-blocks of 512 bytes; the sub-signature of each is the sum of its bytes at the offsets 0, 16, 32 and
//! 64. Blocks are similar if at least 7 of 8 agree (section 3.3). It samples 32 bytes at fixed places, so it recognizes
//! edits in place, and not content that moved.
//!
//! The paper looks for the most similar reference block by an array of lists, `reference_index[8][256]`, of which those of
//! popular values are long. Here, a signature is entered eight times, each time without one of its sub-signatures: two
//! signatures have such a key in common exactly if at least 7 of 8 agree.

use crate::buckets::{Buckets, Votes, mixed};
use crate::lpu::Signature;

/// Contents by their signatures, for a fixed number of contents.
#[derive(Debug)]
pub struct Signatures {
    buckets: Buckets,
}

impl Signatures {
    /// An index for about `capacity` contents with numbers below `contents`. It takes 32 bytes for each.
    pub fn new(contents: usize, capacity: usize) -> Signatures {
        Signatures { buckets: Buckets::new(contents, capacity.saturating_mul(8)) }
    }

    /// Its memory.
    pub fn bytes(&self) -> usize {
        self.buckets.bytes()
    }

    /// Adds a content.
    pub fn insert(&mut self, signature: Signature, content: u32) {
        keys(signature).for_each(|key| self.buckets.insert(key, content));
    }

    /// The content of which most sub-signatures agree, at least seven; of several, the one with the highest `weight`, then
    /// the newest. Contents without a weight do not count.
    pub fn best(&self, signature: Signature, weight: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
        let mut votes = Votes::new();
        for key in keys(signature) {
            self.buckets.get(key).for_each(|content| votes.add(content));
        }
        votes.best(weight)[0]
    }
}

/// The signature without each of its sub-signatures.
fn keys(signature: Signature) -> impl Iterator<Item = u64> {
    let whole = u64::from_le_bytes(signature);
    // The constant keeps the keys of different positions apart.
    (0..8).map(move |at: u64| mixed((whole & !(0xff << (8 * at))) ^ (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_agrees_in_seven_of_eight() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut index = Signatures::new(1000, 2000);
        let known: Vec<Signature> = (0..1000).map(|_| std::array::from_fn(|_| random.u8(..3))).collect();
        known.iter().enumerate().for_each(|(at, &signature)| index.insert(signature, at as u32));
        let agree =
            |one: Signature, other: Signature| one.iter().zip(other).filter(|&(one, other)| *one == other).count();
        let (mut found, mut exist) = (0, 0);
        for _ in 0..1000 {
            let asked: Signature = std::array::from_fn(|_| random.u8(..3));
            let most = known.iter().map(|&known| agree(known, asked)).max().unwrap();
            exist += u32::from(most >= 7);
            if let Some(content) = index.best(asked, |_| Some(0)) {
                assert!(agree(known[content as usize], asked) >= 7);
                found += 1;
            }
        }
        // Buckets that overflow lose some.
        assert!(exist > 500 && found * 100 >= exist * 90, "{found} of {exist}");
    }
}
