//! A list of predicted accesses (4.3's accessList): the block at each position, and the next position of each block.
//!
//! A position counts blocks from the list's beginning. The list is stored as entries, which are ranges of blocks of any
//! length. A map of ranges answers where a block occurs next: it maps each range to the first entry, from the cursor's
//! on, that contains it. An entry added at the end can be hidden by earlier ones; each of these records what it hides,
//! which is put back when the cursor leaves it.

use std::collections::{BTreeMap, VecDeque};

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
    /// Those of its blocks that occur again later, in order.
    again: Vec<Piece>,
}

/// Blocks of a file up to `end`, and the entry in which they occur next.
#[derive(Clone, Copy)]
struct Piece {
    first: u64,
    end: u64,
    entry: u32,
}

type Map = BTreeMap<(u32, u64), (u64, u32)>;

/// Entries that are kept although they are over: as many as one reference can end.
const BEHIND: u32 = 2;

#[derive(Default)]
pub(crate) struct AccessList {
    /// Entries have consecutive numbers; these begin with number `gone`.
    entries: VecDeque<Entry>,
    gone: u32,
    /// By file and first block: the end of a piece, and the entry in which it occurs next. Entries before the current
    /// one have been removed.
    coming: Map,
    /// The same with the entry in which it occurs last.
    last: Map,
    /// The number of the current entry.
    front: u32,
    length: u32,
}

/// Takes the blocks of `stretch` out of `map`; returns the removed pieces.
fn cut(map: &mut Map, stretch: Stretch) -> Vec<Piece> {
    let Stretch { file, first, end } = stretch;
    if let Some((&(of, start), &(stop, entry))) = map.range(..(file, first)).next_back()
        && of == file
        && stop > first
    {
        map.insert((file, start), (first, entry));
        map.insert((file, first), (stop, entry));
    }
    let mut pieces = Vec::new();
    while let Some((&(_, start), &(stop, entry))) = map.range((file, first)..(file, end)).next() {
        map.remove(&(file, start));
        if stop > end {
            map.insert((file, end), (stop, entry));
        }
        pieces.push(Piece { first: start, end: stop.min(end), entry });
    }
    pieces
}

impl AccessList {
    /// Adds an entry of at least one block at the end, or extends the last one. Returns false if the total of blocks
    /// exceeds the range of positions.
    pub(crate) fn push(&mut self, stretch: Stretch) -> bool {
        let Stretch { file, first, end } = stretch;
        let blocks = u32::try_from(end - first).ok();
        let length = blocks.and_then(|blocks| self.length.checked_add(blocks)).filter(|&length| length < NEVER);
        let Some(length) = length else { return false };
        let next = self.gone + self.entries.len() as u32;
        let goes_on = |last: &&mut Entry| (last.stretch.file, last.stretch.end) == (file, first) && next > self.front;
        let entry = match self.entries.back_mut().filter(goes_on) {
            Some(last) => {
                last.stretch.end = end;
                next - 1
            }
            None => {
                self.entries.push_back(Entry { stretch, base: self.length, again: Vec::new() });
                next
            }
        };
        self.length = length;
        let mut new = first;
        for Piece { first: start, end: stop, entry: last } in cut(&mut self.last, stretch) {
            if new < start {
                self.coming.insert((file, new), (start, entry));
            }
            new = stop;
            let again = &mut self.entries[(last - self.gone) as usize].again;
            let at = again.partition_point(|piece| piece.first < start);
            again.insert(at, Piece { first: start, end: stop, entry });
        }
        if new < end {
            self.coming.insert((file, new), (end, entry));
        }
        self.last.insert((file, first), (end, entry));
        true
    }

    /// Entries that are not over.
    pub(crate) fn entries(&self) -> usize {
        self.entries.len() - (self.front - self.gone) as usize
    }

    /// The accesses from `position`, which is in the current entry, on.
    pub(crate) fn from(&self, position: u32) -> impl Iterator<Item = Stretch> + '_ {
        let rest = (position < self.length).then(|| self.rest(position));
        rest.into_iter()
            .chain(self.entries.range((self.front - self.gone) as usize..).skip(1).map(|entry| entry.stretch))
    }

    /// The length of the list in blocks; a block that occurs twice counts twice.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    fn entry_at(&self, position: u32) -> &Entry {
        let beyond = self.entries.partition_point(|entry| entry.base <= position);
        &self.entries[beyond - 1]
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

    /// The accesses before `position` are over; it never decreases.
    pub(crate) fn pass(&mut self, position: u32) {
        while let Some(entry) = self.entries.get_mut((self.front - self.gone) as usize) {
            let stretch = entry.stretch;
            if position < entry.base + (stretch.end - stretch.first) as u32 {
                break;
            }
            cut(&mut self.coming, stretch);
            for Piece { first, end, entry } in std::mem::take(&mut entry.again) {
                self.coming.insert((stretch.file, first), (end, entry));
            }
            for Piece { first, end, entry } in cut(&mut self.last, stretch) {
                if entry != self.front {
                    self.last.insert((stretch.file, first), (end, entry));
                }
            }
            self.front += 1;
        }
        while self.gone + BEHIND < self.front {
            self.entries.pop_front();
            self.gone += 1;
        }
    }

    /// The first position of `block` from `from` on, or `NEVER`. `from` is in the current entry.
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
        let again = &self.entries[(entry - self.gone) as usize].again;
        let at = again.partition_point(|piece| piece.end <= block.index);
        match again.get(at) {
            Some(piece) if piece.first <= block.index => self.position(piece.entry, block),
            _ => NEVER,
        }
    }

    fn position(&self, entry: u32, block: Block) -> u32 {
        let Entry { stretch, base, .. } = &self.entries[(entry - self.gone) as usize];
        base + (block.index - stretch.first) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(stretches: &[Stretch]) -> Option<AccessList> {
        let mut list = AccessList::default();
        stretches.iter().all(|&stretch| list.push(stretch)).then_some(list)
    }

    /// Compares with the list written out, for every block from every position.
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
            let blocks =
                |s: &Stretch| (s.first..s.end).map(|index| Block { volume: s.file, index }).collect::<Vec<_>>();
            // Some are added at the beginning, others on the way.
            let mut known = 1 + random(stretches.len() as u64) as usize;
            let mut list = list(&stretches[..known]).unwrap();
            let mut written: Vec<Block> = stretches[..known].iter().flat_map(blocks).collect();
            let mut from = 0;
            while from < written.len() {
                list.pass(from as u32);
                if known < stretches.len() && random(3) == 0 {
                    assert!(list.push(stretches[known]));
                    written.extend(blocks(&stretches[known]));
                    known += 1;
                }
                assert_eq!(list.length() as usize, written.len());
                assert_eq!(list.from(from as u32).flat_map(|s| blocks(&s)).collect::<Vec<_>>(), written[from..]);
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
        assert!(list(&[all]).is_some());
        assert!(list(&[all, all]).is_none());
        assert!(list(&[Stretch { end: u64::MAX, ..all }]).is_none());
    }
}
