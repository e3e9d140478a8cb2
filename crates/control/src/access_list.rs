//! A list of predicted accesses (4.3's accessList): which block comes at which position, and where a block comes next.
//!
//! A position counts blocks from the list's beginning. The list is kept as its entries, ranges of blocks, however long
//! these are. Where a block comes next is answered from a map of ranges to the first entry, from the cursor's on, that
//! has them. What an entry hides of the later ones is noted when the list is made, from its end to its beginning, and
//! put back when the cursor leaves the entry. Both are O(entries log entries) over the whole life of the list.

use std::collections::BTreeMap;
use std::ops::Range;

use nigh_policy::Block;

/// No position: the block does not come again.
pub(crate) const NEVER: u32 = u32::MAX;

/// Blocks of one file that are read in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) file: u32,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

struct Entry {
    stretch: Stretch,
    /// The position of its first block.
    base: u32,
    /// Its part of `hidden`.
    hides: Range<u32>,
}

/// Blocks of a file up to `end`, and the entry in which they come next.
#[derive(Clone, Copy)]
struct Piece {
    first: u64,
    end: u64,
    entry: u32,
}

type Map = BTreeMap<(u32, u64), (u64, u32)>;

pub(crate) struct AccessList {
    entries: Vec<Entry>,
    /// For each entry, its blocks that come again later, in order.
    hidden: Vec<Piece>,
    /// By file and first block: the end and the entry of a piece. Entries before the one in front are gone from it.
    coming: Map,
    /// The entry in front.
    front: u32,
    length: u32,
}

/// Takes the blocks of `stretch` out of `map`; gives what was there.
fn cut(map: &mut Map, stretch: Stretch, pieces: &mut Vec<Piece>) {
    let Stretch { file, first, end } = stretch;
    if let Some((&(of, start), &(stop, entry))) = map.range(..(file, first)).next_back()
        && of == file
        && stop > first
    {
        map.insert((file, start), (first, entry));
        map.insert((file, first), (stop, entry));
    }
    while let Some((&(_, start), &(stop, entry))) = map.range((file, first)..(file, end)).next() {
        map.remove(&(file, start));
        if stop > end {
            map.insert((file, end), (stop, entry));
        }
        pieces.push(Piece { first: start, end: stop.min(end), entry });
    }
}

impl AccessList {
    /// `None` if all blocks together are too many for a position. No stretch is empty.
    pub(crate) fn new(stretches: &[Stretch]) -> Option<AccessList> {
        let mut entries = Vec::with_capacity(stretches.len());
        let mut length = 0u32;
        for &stretch in stretches {
            entries.push(Entry { stretch, base: length, hides: 0..0 });
            let blocks = u32::try_from(stretch.end - stretch.first).ok()?;
            length = length.checked_add(blocks).filter(|&length| length < NEVER)?;
        }
        let (mut hidden, mut coming) = (Vec::new(), Map::new());
        for (at, entry) in entries.iter_mut().enumerate().rev() {
            let from = hidden.len() as u32;
            cut(&mut coming, entry.stretch, &mut hidden);
            entry.hides = from..hidden.len() as u32;
            let Stretch { file, first, end } = entry.stretch;
            coming.insert((file, first), (end, at as u32));
        }
        Some(AccessList { entries, hidden, coming, front: 0, length })
    }

    /// Blocks in the list, each as often as it comes.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    fn entry_at(&self, position: u32) -> &Entry {
        let behind = self.entries.partition_point(|entry| entry.base <= position);
        &self.entries[behind - 1]
    }

    /// The block at `position`, which is below the length.
    pub(crate) fn block(&self, position: u32) -> Block {
        let Entry { stretch, base, .. } = self.entry_at(position);
        Block { volume: stretch.file, index: stretch.first + u64::from(position - base) }
    }

    /// The blocks from `position` on to the end of its entry.
    pub(crate) fn rest(&self, position: u32) -> Stretch {
        let Entry { stretch, base, .. } = self.entry_at(position);
        Stretch { first: stretch.first + u64::from(position - base), ..*stretch }
    }

    /// The accesses before `position` are over; it never becomes less.
    pub(crate) fn pass(&mut self, position: u32) {
        while let Some(entry) = self.entries.get(self.front as usize) {
            let Stretch { file, first, end } = entry.stretch;
            if position < entry.base + (end - first) as u32 {
                break;
            }
            cut(&mut self.coming, entry.stretch, &mut Vec::new());
            for at in entry.hides.clone() {
                let Piece { first, end, entry } = self.hidden[at as usize];
                self.coming.insert((file, first), (end, entry));
            }
            self.front += 1;
        }
    }

    /// The first position from `from` on at which `block` comes, or `NEVER`. `from` lies in the entry in front.
    pub(crate) fn next(&self, block: Block, from: u32) -> u32 {
        let before = self.coming.range(..=(block.volume, block.index)).next_back();
        let Some((_, &(end, entry))) = before.filter(|((file, _), _)| *file == block.volume) else { return NEVER };
        if block.index >= end {
            return NEVER;
        }
        let position = self.position(entry, block);
        if position >= from {
            return position;
        }
        let hides = &self.entries[entry as usize].hides;
        let hidden = &self.hidden[hides.start as usize..hides.end as usize];
        let at = hidden.partition_point(|piece| piece.end <= block.index);
        match hidden.get(at) {
            Some(piece) if piece.first <= block.index => self.position(piece.entry, block),
            _ => NEVER,
        }
    }

    fn position(&self, entry: u32, block: Block) -> u32 {
        let Entry { stretch, base, .. } = &self.entries[entry as usize];
        base + (block.index - stretch.first) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the list written out, for every block from every position.
    #[test]
    fn a_block_comes_next_where_the_list_written_out_says() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let stretches: Vec<Stretch> = (0..1 + random(9))
                .map(|_| {
                    let first = random(10);
                    Stretch { file: random(2) as u32, first, end: first + 1 + random(10) }
                })
                .collect();
            let written: Vec<Block> =
                stretches.iter().flat_map(|s| (s.first..s.end).map(|index| Block { volume: s.file, index })).collect();
            let mut list = AccessList::new(&stretches).unwrap();
            assert_eq!(list.length() as usize, written.len());
            let mut from = 0;
            while from < written.len() {
                list.pass(from as u32);
                assert_eq!(list.block(from as u32), written[from]);
                assert_eq!(list.rest(from as u32).first, written[from].index);
                for block in (0..20).flat_map(|index| [0, 1].map(|volume| Block { volume, index })) {
                    let naive = written[from..].iter().position(|&other| other == block);
                    let naive = naive.map_or(NEVER, |ahead| (from + ahead) as u32);
                    assert_eq!(list.next(block, from as u32), naive, "{stretches:?} {from} {block:?}");
                }
                from += 1 + random(3) as usize;
            }
        }
    }

    #[test]
    fn a_list_with_more_blocks_than_positions_is_none() {
        let all = Stretch { file: 0, first: 0, end: 1 << 31 };
        assert!(AccessList::new(&[all]).is_some());
        assert!(AccessList::new(&[all, all]).is_none());
        assert!(AccessList::new(&[Stretch { end: u64::MAX, ..all }]).is_none());
    }
}
