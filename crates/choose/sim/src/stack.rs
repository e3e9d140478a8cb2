//! The exact hits of LRU at every size, in one pass.
//!
//! Mattson, Gecsei, Slutz, Traiger: Evaluation Techniques for Storage Hierarchies, IBM Systems Journal 1970: a cache of
//! C blocks under LRU hits exactly the references whose stack distance is at most C. The distance of a reference is the
//! number of distinct blocks since the last one to its block, itself included. It is counted as in Bennett and
//! Kruskal, LRU Stack Processing, IBM Journal of Research and Development 1975: a mark stands at the time of the last
//! reference to each block, and a tree over the times counts the marks behind one.

use crate::References;
use crate::replay::{Watch, cpu_s};

/// LRU's hits at every size.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// References counted.
    pub references: u64,
    /// `hits[c]` references hit a cache of `c` blocks; the last entry holds for all larger sizes too.
    pub hits: Vec<u64>,
    /// References that write.
    pub writes: u64,
    /// The hits of these, as `hits`; empty where there are none.
    write_hits: Vec<u64>,
    /// The same for each of [`GROUPS`] groups of blocks, from which the error of a sample is estimated; else empty.
    groups: Vec<Group>,
    /// Processor time, in seconds.
    pub cpu_s: f64,
}

/// Into how many groups the blocks of a sample are divided.
const GROUPS: usize = 16;

/// The references to one group of blocks, and which of them hit.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    references: u64,
    hits: Vec<u64>,
}

impl Curve {
    /// About the sum over the blocks of the squares of their misses in a cache of `size` blocks, where the references
    /// are a sample; else 0. Its excess over the square of the mean follows from the differences of the groups.
    pub fn misses_squared(&self, size: u32) -> f64 {
        let at = (size as usize).min(self.hits.len() - 1);
        let misses: Vec<f64> = self.groups.iter().map(|group| (group.references - group.hits[at]) as f64).collect();
        let total: f64 = misses.iter().sum();
        let mean = total / GROUPS as f64;
        let spread: f64 = misses.iter().map(|misses| (misses - mean).powi(2)).sum();
        GROUPS as f64 / (GROUPS - 1) as f64 * spread + total * total / (self.hits.len() - 1) as f64
    }

    /// References that hit a cache of `size` blocks.
    pub fn hits(&self, size: u32) -> u64 {
        self.hits[(size as usize).min(self.hits.len() - 1)]
    }

    /// References that write and hit a cache of `size` blocks.
    pub fn write_hits(&self, size: u32) -> u64 {
        self.write_hits.get((size as usize).min(self.hits.len() - 1)).copied().unwrap_or(0)
    }

    /// The sizes at which a block more brings hits more, with the hits there: the corners of the curve's stairs.
    pub fn corners(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let steps = self.hits.windows(2).enumerate();
        steps.filter(|(_, pair)| pair[1] > pair[0]).map(|(at, pair)| (at as u32 + 1, pair[1]))
    }
}

/// The curve over `references`. `watch.gauges` is not looked at.
pub fn curve(references: &References, watch: Watch) -> Curve {
    let warmup = watch.warmup;
    let start = cpu_s();
    let mut marks = Marks::new(references.blocks.len());
    let blocks = references.blocks.len();
    let mut at_distance = vec![0u64; blocks + 1];
    let writes = references.writes.count(warmup);
    let mut writes_at_distance = vec![0u64; if writes > 0 { blocks + 1 } else { 0 }];
    let mut groups = vec![Group::default(); if references.sample.is_some() { GROUPS } else { 0 }];
    groups.iter_mut().for_each(|group| group.hits = vec![0; blocks + 1]);
    for (stretch, ids) in references.ids.chunks(1 << 16).enumerate() {
        for (step, &id) in ids.iter().enumerate() {
            let distance = marks.reference(id);
            if (stretch << 16) + step < warmup {
                continue;
            }
            if let Some(distance) = distance {
                at_distance[distance as usize] += 1;
                if references.writes.of((stretch << 16) + step) {
                    writes_at_distance[distance as usize] += 1;
                }
            }
            if !groups.is_empty() {
                let group = &mut groups[id as usize % GROUPS];
                group.references += 1;
                distance.into_iter().for_each(|distance| group.hits[distance as usize] += 1);
            }
        }
        if !watch.did(ids.len()) {
            break;
        }
    }
    accumulate(&mut at_distance);
    accumulate(&mut writes_at_distance);
    groups.iter_mut().for_each(|group| accumulate(&mut group.hits));
    let counted = references.ids.len().saturating_sub(warmup) as u64;
    Curve {
        references: counted,
        hits: at_distance,
        writes,
        write_hits: writes_at_distance,
        groups,
        cpu_s: cpu_s() - start,
    }
}

/// Makes counts of references at each distance into counts of hits at each size.
fn accumulate(at_distance: &mut [u64]) {
    for size in 1..at_distance.len() {
        at_distance[size] += at_distance[size - 1];
    }
}

/// Marks at the times of last references. Times are positions in a window twice as long as there are blocks; when it
/// is full, the marks are moved together to its beginning, so that it costs memory by blocks and not by references.
struct Marks {
    /// The time of the last reference to each block, or `NEVER`.
    last: Vec<u32>,
    /// The block whose mark may stand at each time.
    block_at: Vec<u32>,
    /// A bit for each time.
    bits: Vec<u64>,
    /// A Fenwick tree of the marks in each word of `bits`: entry `i` (from 1) counts a power-of-two run up to word `i`.
    tree: Vec<u32>,
    now: u32,
    marked: u32,
}

const NEVER: u32 = u32::MAX;

impl Marks {
    fn new(blocks: usize) -> Marks {
        let words = (2 * blocks).div_ceil(64) + 1;
        Marks {
            last: vec![NEVER; blocks],
            block_at: vec![0; words * 64],
            bits: vec![0; words],
            tree: vec![0; words + 1],
            now: 0,
            marked: 0,
        }
    }

    /// Moves the mark of `id` to now. Returns the stack distance, unless it is the first reference.
    #[inline]
    fn reference(&mut self, id: u32) -> Option<u32> {
        if self.now as usize == self.block_at.len() {
            self.move_together();
        }
        let last = self.last[id as usize];
        let distance = (last != NEVER).then(|| {
            let distance = self.marked - self.before(last);
            self.bits[last as usize / 64] &= !(1 << (last % 64));
            self.add(last as usize / 64, u32::MAX);
            distance
        });
        self.marked += u32::from(distance.is_none());
        let now = self.now as usize;
        self.bits[now / 64] |= 1 << (now % 64);
        self.add(now / 64, 1);
        self.block_at[now] = id;
        self.last[id as usize] = self.now;
        self.now += 1;
        distance
    }

    /// Marks before `time`.
    #[inline]
    fn before(&self, time: u32) -> u32 {
        let word = time as usize / 64;
        let mut count = (self.bits[word] & ((1 << (time % 64)) - 1)).count_ones();
        let mut at = word;
        while at > 0 {
            count = count.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        count
    }

    /// Adds to the marks of `word`; `u32::MAX` takes one away.
    #[inline]
    fn add(&mut self, word: usize, count: u32) {
        let mut at = word + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(count);
            at += at & at.wrapping_neg();
        }
    }

    fn move_together(&mut self) {
        let mut next = 0;
        for time in 0..self.block_at.len() {
            if self.bits[time / 64] >> (time % 64) & 1 != 0 {
                let id = self.block_at[time];
                self.block_at[next as usize] = id;
                self.last[id as usize] = next;
                next += 1;
            }
        }
        self.now = next;
        for (word, bits) in self.bits.iter_mut().enumerate() {
            let marks = (next as usize).saturating_sub(word * 64).min(64);
            *bits = if marks == 64 { u64::MAX } else { (1 << marks) - 1 };
        }
        self.tree.fill(0);
        for word in 0..self.bits.len() {
            let at = word + 1;
            self.tree[at] += self.bits[word].count_ones();
            let parent = at + (at & at.wrapping_neg());
            if parent < self.tree.len() {
                self.tree[parent] += self.tree[at];
            }
        }
    }
}
