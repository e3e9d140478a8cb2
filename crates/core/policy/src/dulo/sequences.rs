//! Forming sequences from a bank (section 3.3).
//!
//! Choices where the text leaves one, and deviations:
//!
//! * Case 1 prints "it was accessed in the current clock time", but "includes the case where it has never been
//!   accessed": it is read as *not* accessed in the current clock time.
//! * Sequences of one size are ordered by the time at which their latest block entered the bank, so that single blocks
//!   stay in the order of CLOCK; the blocks of a sequence are in the order of their addresses.
//!
//! Beyond the paper, [`join`](Sequences::join) lets a sequence continue across banks.

use super::table::Table;
use crate::{Block, Slot};

/// "128, which is the maximal allowed sequence size and we deem to be sufficient to amortize a disk operation cost."
pub(crate) const SIZE_MOST: usize = 128;

/// A block of the bank.
struct Member {
    slot: Slot,
    /// The time of its access before the current clock time, 0 for never.
    before: u32,
    /// The sequence of which it is the latest block, or `NONE`.
    sequence: u32,
}

/// A block that entered with one of the last banks.
#[derive(Clone, Copy)]
struct Open {
    block: Block,
    slot: Slot,
    /// As in `Member`.
    before: u32,
    /// Banks since it entered.
    age: u32,
    /// Its position in the bank, or `NONE`.
    place: u32,
}

const NONE: u32 = u32::MAX;
/// How many banks back the neighbour of a block may have entered that joins its sequence.
const WINDOW: u32 = 4;

struct Sequence {
    /// Its beginning among the slots by address.
    start: u32,
    size: u32,
    /// The position of its latest block in the bank.
    latest: u32,
}

/// The sequences of the last bank, and the block table.
pub(crate) struct Sequences {
    pub(crate) table: Table,
    /// The blocks of the bank from the one that came first.
    members: Vec<Member>,
    /// The positions of blocks whose names others before them in the bank have, because files were named anew while both were cached.
    twins: Vec<u32>,
    by_address: Vec<Slot>,
    sequences: Vec<Sequence>,
    /// The sequences of each size from 1, ordered by when their latest block entered the bank.
    by_size: Vec<Vec<u32>>,
    /// Blocks of the last banks, by address.
    open: Vec<Open>,
    merged: Vec<Open>,
}

impl Sequences {
    pub(crate) fn new(table: Table, bank_most: u32) -> Sequences {
        Sequences {
            table,
            members: Vec::with_capacity(bank_most as usize),
            twins: Vec::new(),
            by_address: Vec::with_capacity(bank_most as usize),
            sequences: Vec::new(),
            by_size: vec![Vec::new(); SIZE_MOST],
            open: Vec::new(),
            merged: Vec::new(),
        }
    }

    /// Forms the sequences of a bank: its blocks from the one that came first.
    pub(crate) fn form(&mut self, bank: impl Iterator<Item = (Slot, Block)>) {
        self.record(bank);
        let Sequences { table, members, by_address, sequences, .. } = self;
        let mut last: Option<(Block, u32)> = None;
        table.current(|block, place| {
            let member = &members[place as usize];
            let next = (block, member.before);
            match sequences.last_mut() {
                Some(sequence) if sequence.size < SIZE_MOST as u32 && last.is_some_and(|last| adjoins(last, next)) => {
                    sequence.size += 1;
                    sequence.latest = sequence.latest.max(place);
                }
                _ => sequences.push(Sequence { start: by_address.len() as u32, size: 1, latest: place }),
            }
            by_address.push(member.slot);
            last = Some(next);
            member.before
        });
        table.reclaim();
        self.sort();
    }

    /// As [`form`](Sequences::form), but blocks of the last [`WINDOW`] banks for which `is_here` holds join the sequences of
    /// their neighbours. Differences of times count as one up to the same number. `moved` gets the blocks of earlier banks
    /// that joined.
    pub(crate) fn join(
        &mut self,
        bank: impl Iterator<Item = (Slot, Block)>,
        is_here: impl Fn(Slot, Block) -> bool,
        moved: &mut Vec<Slot>,
    ) {
        self.record(bank);
        let Sequences { table, members, by_address, sequences, open, merged, .. } = self;
        merged.clear();
        let here = open.drain(..).filter(|one| one.age < WINDOW && is_here(one.slot, one.block));
        let mut earlier = here.map(|one| Open { age: one.age + 1, place: NONE, ..one }).peekable();
        table.current(|block, place| {
            merged.extend(std::iter::from_fn(|| earlier.next_if(|one| one.block < block)));
            let Member { slot, before, .. } = members[place as usize];
            merged.push(Open { block, slot, before, age: 0, place });
            before
        });
        merged.extend(earlier);
        table.reclaim();
        let mut from = 0;
        while from < merged.len() {
            let mut size = 1;
            while size < SIZE_MOST && merged.get(from + size).is_some_and(|next| joins(&merged[from + size - 1], next))
            {
                size += 1;
            }
            let sequence = &merged[from..from + size];
            from += size;
            let Some(latest) = sequence.iter().map(|one| one.place).filter(|&place| place != NONE).max() else {
                continue;
            };
            sequences.push(Sequence { start: by_address.len() as u32, size: size as u32, latest });
            moved.extend(sequence.iter().filter(|one| one.place == NONE).map(|one| one.slot));
            by_address.extend(sequence.iter().map(|one| one.slot));
        }
        std::mem::swap(open, merged);
        self.sort();
    }

    /// Records the blocks of a bank in the block table.
    fn record(&mut self, bank: impl Iterator<Item = (Slot, Block)>) {
        let Sequences { table, members, twins, by_address, sequences, .. } = self;
        members.clear();
        twins.clear();
        by_address.clear();
        sequences.clear();
        // "The bank clock is incremented by one. Each block in the bank then records the clock time as a new timestamp."
        table.tick();
        for (slot, block) in bank {
            let before = table.record(block, members.len() as u32);
            if before == table.clock() {
                twins.push(members.len() as u32);
            }
            members.push(Member { slot, before, sequence: NONE });
        }
    }

    /// Sorts the sequences by size, and those of one size by when their latest block entered the bank. A twin is a sequence of its own.
    fn sort(&mut self) {
        let Sequences { members, twins, by_address, sequences, by_size, .. } = self;
        for &place in &*twins {
            sequences.push(Sequence { start: by_address.len() as u32, size: 1, latest: place });
            by_address.push(members[place as usize].slot);
        }
        by_size.iter_mut().for_each(Vec::clear);
        for (number, sequence) in (0..).zip(&*sequences) {
            members[sequence.latest as usize].sequence = number;
        }
        for member in members.iter().filter(|member| member.sequence != NONE) {
            let size = sequences[member.sequence as usize].size;
            by_size[size as usize - 1].push(member.sequence);
        }
    }

    /// Makes each block of the bank a sequence.
    pub(crate) fn split(&mut self) {
        let Sequences { members, by_address, sequences, by_size, .. } = self;
        let numbers = 0..members.len() as u32;
        by_address.clear();
        by_address.extend(members.iter().map(|member| member.slot));
        sequences.clear();
        sequences.extend(numbers.clone().map(|latest| Sequence { start: latest, size: 1, latest }));
        by_size.iter_mut().for_each(Vec::clear);
        by_size[0].extend(numbers);
    }

    /// The blocks of all sequences of `size` blocks, in the order in which they are to leave.
    pub(crate) fn of_size(&self, size: usize) -> impl Iterator<Item = Slot> {
        let blocks = move |&number: &u32| {
            let start = self.sequences[number as usize].start as usize;
            &self.by_address[start..start + size]
        };
        self.by_size[size - 1].iter().flat_map(blocks).copied()
    }
}

/// As [`adjoins`], for blocks of the last banks.
fn joins(last: &Open, next: &Open) -> bool {
    let on_disk = last.block.volume == next.block.volume && last.block.index + 1 == next.block.index;
    let alike = (last.before == 0) == (next.before == 0);
    on_disk && alike && last.before.abs_diff(next.before) <= WINDOW
}

/// Whether cases 1 to 3 of section 3.3 let `next`, a block accessed in the current clock time, join the sequence that
/// ends with `last`; both come with the time of their previous access.
fn adjoins((last, last_before): (Block, u32), (next, next_before): (Block, u32)) -> bool {
    // Case 1: the block next on disk was not accessed in the current clock time.
    let on_disk = last.volume == next.volume && last.index + 1 == next.index;
    // Case 2: "One and only one of the two blocks [...] was not accessed before the current clock time."
    let alike = (last_before == 0) == (next_before == 0);
    // Case 3: "Both of the two blocks have been accessed before the current clock time, but their last access times have
    // a difference exceeding one."
    on_disk && alike && last_before.abs_diff(next_before) <= 1
}
