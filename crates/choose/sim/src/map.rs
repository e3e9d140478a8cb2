//! The time-space map: which blocks were referenced when, as in chapter 2 of Jiang's dissertation (figure 2.3).

use nigh_policy::Block;

use crate::References;

/// Counts of references in a grid of time and space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Cells along the time axis: equal numbers of references each, the last perhaps fewer.
    pub columns: usize,
    /// Cells along the space axis: equal numbers of distinct blocks in the order of their addresses.
    pub rows: usize,
    /// References in each cell, row by row, the lowest addresses first.
    pub counts: Vec<u32>,
    /// The first block of each row, and the highest block of all.
    pub blocks: Vec<Block>,
}

/// The map of `references` with at most `columns` × `rows` cells.
pub fn map(references: &References, columns: usize, rows: usize) -> Map {
    let mut in_order: Vec<u32> = (0..references.distinct()).collect();
    in_order.sort_unstable_by_key(|&id| references.blocks[id as usize]);
    let columns = columns.min(references.ids.len()).max(1);
    let rows = rows.min(in_order.len()).max(1);
    let mut row_of = vec![0u32; in_order.len()];
    for (rank, &id) in in_order.iter().enumerate() {
        row_of[id as usize] = (rank * rows / in_order.len()) as u32;
    }
    let mut counts = vec![0u32; columns * rows];
    for (at, &id) in references.ids.iter().enumerate() {
        let column = at * columns / references.ids.len();
        counts[row_of[id as usize] as usize * columns + column] += 1;
    }
    let first = |row: usize| (row * in_order.len()).div_ceil(rows);
    let ranks = (0..rows).map(first).chain(in_order.len().checked_sub(1));
    let blocks = ranks.filter_map(|rank| in_order.get(rank)).map(|&id| references.blocks[id as usize]).collect();
    Map { columns, rows, counts, blocks }
}
