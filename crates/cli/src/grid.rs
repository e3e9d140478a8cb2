//! Tables of results that fit their terminal: columns wrap or are left out, and digits never are.

use std::fmt::Write;

use crate::size::human_bytes;
use crate::wrap::{terminal_columns, wrapped};

/// Below this width the sizes of a [`Grid`] are in bytes alone.
const BLOCKS_WIDTH: usize = 60;

/// Columns of the terminal that standard output is. Other output is not cut to fit.
pub(crate) fn terminal_width() -> usize {
    terminal_columns().unwrap_or(usize::MAX)
}

/// A table with a row for each size and a column for each policy. Columns that do not fit follow below, beside the sizes again.
pub(crate) struct Grid {
    rows: Vec<(Head, Vec<String>)>,
}

/// The text before a row.
enum Head {
    Columns,
    Size { blocks: u64, bytes: u64 },
    Name(String),
}

impl Head {
    fn text(&self, with_blocks: bool) -> String {
        match self {
            Head::Columns if with_blocks => format!("{:>12} {:>10}", "blocks", "memory"),
            Head::Columns => "memory".to_owned(),
            Head::Size { blocks, bytes } if with_blocks => format!("{blocks:>12} {:>10}", human_bytes(*bytes)),
            Head::Size { bytes, .. } => human_bytes(*bytes),
            Head::Name(name) => name.clone(),
        }
    }
}

impl Grid {
    pub(crate) fn new(policies: &[&str]) -> Grid {
        Grid { rows: vec![(Head::Columns, policies.iter().map(|name| (*name).to_owned()).collect())] }
    }

    pub(crate) fn size(&mut self, blocks: u64, bytes: u64, cells: impl Iterator<Item = String>) {
        self.rows.push((Head::Size { blocks, bytes }, cells.collect()));
    }

    pub(crate) fn row(&mut self, name: String, cells: impl Iterator<Item = String>) {
        self.rows.push((Head::Name(name), cells.collect()));
    }

    /// The table in `width` columns; it needs as many as a size and the widest column.
    pub(crate) fn show(&self, text: &mut String, width: usize) {
        let heads: Vec<String> = self.rows.iter().map(|(head, _)| head.text(width >= BLOCKS_WIDTH)).collect();
        let lead = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
        let columns = self.rows.first().map_or(0, |(_, names)| names.len());
        let width_of = |at: usize| self.rows.iter().map(|(_, cells)| cells[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let mut first = 0;
        while first < columns {
            let ends = widths[first..].iter().scan(lead, |end, width| {
                *end += width + 2;
                Some(*end)
            });
            let count = ends.take_while(|end| *end <= width).count().max(1);
            let band = first..first + count;
            if first > 0 {
                text.push('\n');
            }
            for (head, (_, cells)) in heads.iter().zip(&self.rows) {
                let _ = write!(text, "{head:>lead$}");
                for (cell, width) in cells[band.clone()].iter().zip(&widths[band.clone()]) {
                    let _ = write!(text, "  {cell:>width$}");
                }
                text.push('\n');
            }
            first = band.end;
        }
    }
}

/// A column of [`Details`].
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Columns of a greater rank are left out first, and those of rank 0 never.
    pub(crate) rank: u8,
}

/// A line of [`Details`].
pub(crate) enum Line {
    Cells(Vec<String>),
    /// A remark on the line above.
    Remark(String),
}

/// A table of which the least important columns are left out where it does not fit.
pub(crate) struct Details {
    pub(crate) columns: Vec<Column>,
    pub(crate) lines: Vec<Line>,
}

impl Details {
    pub(crate) fn show(&self, text: &mut String, width: usize) {
        let width_of = |at: usize| {
            let cells = self.lines.iter().filter_map(|line| match line {
                Line::Cells(cells) => Some(cells[at].chars().count()),
                Line::Remark(_) => None,
            });
            cells.max().unwrap_or(0).max(self.columns[at].name.chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| shown.iter().map(|&at| widths[at] + 2).sum::<usize>().saturating_sub(2);
        while needed(&shown) > width {
            let last = shown.iter().enumerate().max_by_key(|(_, at)| self.columns[**at].rank);
            match last {
                Some((place, &at)) if self.columns[at].rank > 0 => shown.remove(place),
                _ => break,
            };
        }
        let row = |cell: &dyn Fn(usize) -> String| {
            let aligned = |&at: &usize| match at {
                0 => format!("{:<width$}", cell(at), width = widths[at]),
                _ => format!("{:>width$}", cell(at), width = widths[at]),
            };
            shown.iter().map(aligned).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        text.push_str(&row(&|at| self.columns[at].name.to_owned()));
        let indent = " ".repeat(widths[0].min(width / 8) + 2);
        for line in &self.lines {
            match line {
                Line::Cells(cells) => text.push_str(&row(&|at| cells[at].clone())),
                Line::Remark(remark) => {
                    let mut parts = String::new();
                    wrapped(&mut parts, remark, width.saturating_sub(indent.len()));
                    parts.lines().for_each(|part| text.extend([&indent, part, "\n"]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [&str; 6] = ["lru", "clock", "lirs:hir=1%:ghosts=2", "clock-pro", "w-tinylfu", "opt"];

    fn grid() -> Grid {
        let mut grid = Grid::new(&POLICIES);
        for size in [64u64, 1_234_567, 4_000_000_000] {
            grid.size(size, size * 4096, (0..6).map(|at| format!("*{}.{:02}", size % 89, 10 + at)));
        }
        grid.row("M references/s".to_owned(), (0..6).map(|at| format!("{at}7.5")));
        grid
    }

    #[test]
    fn tables_fit_any_terminal_and_lose_no_digit() {
        let cells: Vec<String> = grid().rows.iter().flat_map(|(_, cells)| cells.clone()).collect();
        let details = Details {
            columns: [("policy", 0), ("memory", 0), ("time s", 0), ("p50", 2), ("p99", 1), ("requests", 3)]
                .map(|(name, rank)| Column { name, rank })
                .to_vec(),
            lines: vec![
                Line::Cells(
                    ["lirs:hir=1%", "64 MiB", "123.456", "7.1 ms", "99.9 ms", "123456789"].map(str::to_owned).to_vec(),
                ),
                Line::Remark("ssd-nvme: 123 blocks read from it (10 % of the loads), 77 stored".to_owned()),
            ],
        };
        let mut fewest = usize::MAX;
        for width in (40..=200).rev() {
            let mut text = String::new();
            grid().show(&mut text, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "at {width}:\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(cells.iter().all(|cell| words.contains(&cell.as_str())), "at {width}:\n{text}");
            assert!(text.contains("14.9 TiB"), "{text}");

            let mut text = String::new();
            details.show(&mut text, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "at {width}:\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(
                ["lirs:hir=1%", "123.456", "123", "stored"].iter().all(|word| words.contains(word)),
                "at {width}:\n{text}"
            );
            let shown = ["p50", "p99", "requests"].iter().filter(|name| words.contains(name)).count();
            assert!(shown <= fewest, "a narrower terminal does not show more");
            fewest = shown;
        }
        let mut text = String::new();
        grid().show(&mut text, usize::MAX);
        assert_eq!(text.lines().count(), 5, "what goes elsewhere is in one piece");
    }
}
