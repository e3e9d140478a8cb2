//! How often blocks are referenced, and after how many others they are referenced again.

use std::fmt::Write;

use nigh_sim::replay::Watch;
use nigh_sim::{References, stack};
use serde::Serialize;

use crate::results::grouped;
use crate::table::Table;

/// Two histograms in steps of powers of two.
#[derive(Serialize)]
pub(super) struct Histograms {
    /// By the number of references to a block.
    popularity: Vec<Popularity>,
    /// By the number of distinct blocks since the last reference to the same one, itself included: the size of the smallest LRU cache that
    /// hits.
    reuse: Vec<Reuse>,
    /// References that are the first to their block, which have no distance.
    first_references: u64,
}

/// Blocks that are referenced similarly often.
#[derive(Serialize)]
struct Popularity {
    /// The fewest and the most references to one of them.
    times: [u64; 2],
    blocks: u64,
    /// To all of them.
    references: u64,
}

/// References that are similarly far from the one before to the same block.
#[derive(Serialize)]
struct Reuse {
    /// The least and the largest distance, in blocks.
    distance: [u64; 2],
    references: u64,
}

impl Histograms {
    pub(super) fn new(references: &References) -> Histograms {
        let mut counts = vec![0u64; references.blocks.len()];
        references.ids.iter().for_each(|&id| counts[id as usize] += 1);
        let mut popularity: Vec<Popularity> = steps(counts.iter().copied().max().unwrap_or(0))
            .map(|times| Popularity { times, blocks: 0, references: 0 })
            .collect();
        for count in counts {
            let of = &mut popularity[count.ilog2() as usize];
            of.blocks += 1;
            of.references += count;
        }
        let curve = stack::curve(references, Watch::default());
        let hits = |size: u64| curve.hits(u32::try_from(size).unwrap_or(u32::MAX));
        let reuse = steps(references.blocks.len() as u64)
            .map(|distance| Reuse { distance, references: hits(distance[1]) - hits(distance[0] - 1) });
        Histograms { popularity, reuse: reuse.collect(), first_references: references.blocks.len() as u64 }
    }

    pub(super) fn describe(&self) -> String {
        let range = |[least, most]: [u64; 2]| {
            if least == most { grouped(least) } else { format!("{} to {}", grouped(least), grouped(most)) }
        };
        let mut popularity = Table::new(&["REFERENCES", "BLOCKS", "REFERENCES TO THEM"]);
        for of in &self.popularity {
            popularity.row([range(of.times), grouped(of.blocks), grouped(of.references)]);
        }
        let mut reuse = Table::new(&["DISTANCE", "REFERENCES"]);
        for of in &self.reuse {
            reuse.row([range(of.distance), grouped(of.references)]);
        }
        reuse.row(["first".to_owned(), grouped(self.first_references)]);
        let mut text = String::new();
        let _ = write!(
            text,
            "\npopularity: blocks by how often they are referenced\n{popularity}\nre-use: references by the distinct blocks since the one before to \
             the same block\n{reuse}"
        );
        text
    }
}

/// 1, 2 to 3, 4 to 7 and so on, up to `most`.
fn steps(most: u64) -> impl Iterator<Item = [u64; 2]> {
    (0..u64::BITS)
        .map(|power| [1 << power, u64::MAX >> (u64::BITS - 1 - power)])
        .take_while(move |[least, _]| *least <= most)
}

#[cfg(test)]
mod tests {
    use nigh_sim::{Loader, Ops, Options};
    use nigh_trace::Request;

    use super::*;

    #[test]
    fn every_reference_is_in_one_step_of_each() {
        let options =
            Options { block_bytes: 512, ops: Ops::All, collapse: false, sample: None, requests_most: u64::MAX };
        let mut loader = Loader::new(options);
        // Distances: 1, then 2, then 3 and 4.
        let requests: Vec<Request> = [0, 0, 1, 0, 2, 1, 3, 0]
            .map(|block: u64| Request { offset: block * 512, length: 512, ..Request::default() })
            .to_vec();
        loader.push(&requests).unwrap();
        let found = Histograms::new(&loader.finish());
        let popularity: Vec<_> = found.popularity.iter().map(|of| (of.times, of.blocks, of.references)).collect();
        assert_eq!(popularity, [([1, 1], 2, 2), ([2, 3], 1, 2), ([4, 7], 1, 4)]);
        let reuse: Vec<_> = found.reuse.iter().map(|of| (of.distance, of.references)).collect();
        assert_eq!((reuse, found.first_references), (vec![([1, 1], 1), ([2, 3], 2), ([4, 7], 1)], 4));
        assert!(found.describe().contains("2 to 3"));
    }
}
