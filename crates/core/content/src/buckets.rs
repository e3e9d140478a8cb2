//! Contents by keys that several of them share: buckets of four, the newest first.

/// Contents of a bucket.
const WAYS: usize = 4;

/// No content, in votes.
const NONE: u32 = u32::MAX;

/// A fixed number of buckets. A key's bucket keeps the four newest contents, so a popular key does not crowd out others,
/// and no call takes longer because of it.
///
/// An entry has 32 bits: the number of the content plus 1, or 0 for none, and bits of the key that its bucket does not
/// determine. The fewer contents there are, the more bits of the key remain, and the fewer contents are found that have
/// another key.
#[derive(Debug)]
pub(crate) struct Buckets {
    buckets: Vec<[u32; WAYS]>,
    /// Bits of the key in an entry.
    tag_bits: u32,
}

impl Buckets {
    /// Room for about `entries`, at 4 bytes each, of contents with numbers below `contents`.
    pub(crate) fn new(contents: usize, entries: usize) -> Buckets {
        let tag_bits = (contents as u64 + 1).leading_zeros() - 32;
        Buckets { buckets: vec![[0; WAYS]; entries.div_ceil(WAYS).max(1)], tag_bits }
    }

    /// Their memory.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<[u32; WAYS]>()
    }

    /// The bucket of a key, whose bits are as good as random, and the tag in it.
    fn place(&self, key: u64) -> (usize, u32) {
        let tag = key as u32 & ((1 << self.tag_bits) - 1);
        ((((key >> 32) * self.buckets.len() as u64) >> 32) as usize, tag)
    }

    /// Makes a content the newest one in its bucket, where it takes the place of the oldest one if it was not there.
    pub(crate) fn insert(&mut self, key: u64, content: u32) {
        let (at, tag) = self.place(key);
        let entry = (content + 1) << self.tag_bits | tag;
        let bucket = &mut self.buckets[at];
        let way = bucket.iter().position(|&other| other == entry).unwrap_or(WAYS - 1);
        bucket.copy_within(..way, 1);
        bucket[0] = entry;
    }

    /// Makes a content the newest one in its bucket, if it is still there.
    pub(crate) fn renew(&mut self, key: u64, content: u32) {
        let (at, tag) = self.place(key);
        let entry = (content + 1) << self.tag_bits | tag;
        let bucket = &mut self.buckets[at];
        if let Some(way) = bucket.iter().position(|&other| other == entry) {
            bucket.copy_within(..way, 1);
            bucket[0] = entry;
        }
    }

    /// The contents with this key, the newest first.
    pub(crate) fn get(&self, key: u64) -> impl Iterator<Item = u32> {
        let (at, tag) = self.place(key);
        let (bits, mask) = (self.tag_bits, (1 << self.tag_bits) - 1);
        let entries = self.buckets[at].into_iter().filter(move |&entry| entry & mask == tag);
        entries.filter_map(move |entry| (entry >> bits).checked_sub(1))
    }
}

/// Mixes the bits of a key (the finalizer of splitmix64).
pub(crate) fn mixed(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Most keys of a content.
const KEYS_MAX: usize = 12;

/// Votes for contents, each a vote for one key.
pub(crate) struct Votes {
    found: [(u32, u32); WAYS * KEYS_MAX],
    len: usize,
}

impl Votes {
    /// No votes.
    pub(crate) fn new() -> Votes {
        Votes { found: [(NONE, 0); WAYS * KEYS_MAX], len: 0 }
    }

    /// Adds a vote.
    pub(crate) fn add(&mut self, content: u32) {
        match self.found[..self.len].iter_mut().find(|(found, _)| *found == content) {
            Some((_, votes)) => *votes += 1,
            None => {
                self.found[self.len] = (content, 1);
                self.len += 1;
            }
        }
    }

    /// The contents with the most votes; of several, those with the highest `weight`, then those that were found first.
    /// Contents without a weight do not count.
    pub(crate) fn best<const N: usize>(&self, mut weight: impl FnMut(u32) -> Option<u32>) -> [Option<u32>; N] {
        let mut best: [Option<(u32, u32, u32)>; N] = [None; N];
        for &(content, votes) in &self.found[..self.len] {
            let is_better = |votes, weight, than: Option<(u32, u32, u32)>| {
                than.is_none_or(|(most, heaviest, _)| (votes, weight) > (most, heaviest))
            };
            // The weight is asked for only where it may matter.
            if !is_better(votes, u32::MAX, best[N - 1]) {
                continue;
            }
            let Some(weight) = weight(content) else { continue };
            if let Some(at) = best.iter().position(|&than| is_better(votes, weight, than)) {
                best.copy_within(at..N - 1, at + 1);
                best[at] = Some((votes, weight, content));
            }
        }
        best.map(|best| best.map(|(.., content)| content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_the_newest_four() {
        let mut buckets = Buckets::new(10, 64);
        let key = mixed(1);
        (0..6).for_each(|content| buckets.insert(key, content));
        assert_eq!(buckets.get(key).collect::<Vec<u32>>(), [5, 4, 3, 2]);
        buckets.renew(key, 3);
        buckets.renew(key, 0);
        assert_eq!(buckets.get(key).collect::<Vec<u32>>(), [3, 5, 4, 2]);
        buckets.insert(key, 4);
        buckets.insert(key, 9);
        assert_eq!(buckets.get(key).collect::<Vec<u32>>(), [9, 4, 3, 5]);
        assert_eq!(buckets.get(mixed(2)).count(), 0);
    }

    #[test]
    fn entries_have_room_for_every_content() {
        for contents in [0, 1, 2, 3, 4, 255, 256, 1 << 20, u32::MAX as usize - 1] {
            let mut buckets = Buckets::new(contents, 4);
            let last = (contents as u32).saturating_sub(1);
            buckets.insert(mixed(1), last);
            assert_eq!(buckets.get(mixed(1)).collect::<Vec<u32>>(), [last], "{contents}");
        }
    }

    #[test]
    fn most_votes_win_then_weight_then_order() {
        let mut votes = Votes::new();
        [3, 1, 2, 1, 2, 4, 4, 4].into_iter().for_each(|content| votes.add(content));
        assert_eq!(votes.best(|_| Some(0)), [Some(4), Some(1)]);
        assert_eq!(votes.best(|content| (content != 4).then_some(0)), [Some(1), Some(2)]);
        assert_eq!(votes.best(|content| (content != 4).then_some(content)), [Some(2), Some(1)]);
        assert_eq!(votes.best(|content| (content == 3).then_some(0)), [Some(3), None]);
        assert_eq!(votes.best(|_| None), [None; 2]);
        assert_eq!(votes.best(|content| Some(10 - content)), [Some(4), Some(1), Some(2), Some(3)]);
        assert_eq!(votes.best(|_| Some(0)), [Some(4)]);
    }
}
