//! Tables of text: the first and the last column to the left, the others to the right.

use std::fmt;

/// Rows under a head, as wide as they need to be.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: &[&str; N]) -> Table<N> {
        Table { rows: vec![head.map(str::to_owned)] }
    }

    /// Cells may be names that others chose.
    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| nigh_text::printable(&cell).into_owned()));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: [usize; N] =
            std::array::from_fn(|at| self.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
        for row in &self.rows {
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                match at {
                    0 => write!(f, "{cell:width$}")?,
                    _ if at + 1 == N => write!(f, "  {cell}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
