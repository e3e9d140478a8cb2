//! Notes for the user about how a trace was read.

use std::fmt;

/// A fact about a reading that is not an error but affects results.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A unit is not given, and was detected from the values.
    Unit {
        /// The column: `times`, `offsets` or `lengths`.
        what: &'static str,
        /// The unit.
        unit: &'static str,
        /// The reason.
        because: &'static str,
        /// The column setting that gives another unit.
        setting: &'static str,
    },
    /// The columns are not described, and were guessed from their names and values.
    Guessed {
        /// The description that confirms the guess.
        columns: String,
        /// Columns that are not read, and assumptions about missing ones.
        gaps: Vec<String>,
    },
    /// Lines or records that do not match the format were left out.
    Skipped {
        /// Their number.
        count: u64,
        /// The first of them: place, text found and text expected.
        first: Vec<String>,
    },
    /// The last line has no end and does not match the format, and was left out.
    CutShort {
        /// The line, counted from 1.
        line: u64,
    },
    /// The recorder did not end in order; what follows the last complete part of the file was left out.
    CutBytes {
        /// The number of bytes left out.
        bytes: u64,
    },
    /// Several kinds of events describe each request, and one of them was read.
    Events {
        /// The events that were read.
        read: &'static str,
    },
    /// Accesses that the trace does not place anywhere were left out.
    LeftOut {
        /// Their number.
        count: u64,
        /// Their kind.
        what: &'static str,
    },
    /// The recorder lost events.
    Lost {
        /// Their number, if the trace has it.
        count: Option<u64>,
    },
    /// Accesses that the recorder could not see.
    Unseen {
        /// Their program or kind, and the reason.
        what: String,
    },
    /// Times are earlier than those before them.
    TimesBack {
        /// How many are.
        count: u64,
        /// The longest step back, in nanoseconds.
        longest_ns: u64,
    },
    /// The file has the events of one of several processors.
    OneProcessor,
    /// The files of several processors are read as one trace.
    Processors {
        /// Their number.
        files: u64,
    },
    /// For files without a recorded position at the beginning of the trace, position 0 was assumed.
    Positions {
        /// Their number.
        count: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Note::Unit { what, unit, because, setting } => {
                write!(
                    f,
                    "{what} are interpreted as {unit}, because {because}; the column setting {setting} overrides this"
                )
            }
            Note::Guessed { columns, gaps } => {
                let quote = if columns.contains('|') { "'" } else { "" };
                write!(f, "the columns are guessed: --columns {quote}{columns}{quote} confirms them")?;
                gaps.iter().try_for_each(|gap| write!(f, "; {gap}"))
            }
            Note::Skipped { count, first } => {
                let more = if *count > first.len() as u64 { ", ..." } else { "" };
                write!(
                    f,
                    "{count} lines or records do not match the format and were left out: {}{more}",
                    first.join("; ")
                )
            }
            Note::CutShort { line } => write!(f, "line {line}, the last one, is incomplete and was left out"),
            Note::CutBytes { bytes } => {
                write!(f, "the recording was cut short: it is read up to its last complete part, without {bytes} bytes")
            }
            Note::Events { read } => {
                write!(f, "each request causes several events: {read} events are read, unless another action is chosen")
            }
            Note::LeftOut { count, what } => write!(f, "{count} {what} were left out"),
            Note::Lost { count: Some(count) } => {
                write!(f, "the recorder lost {count} events: requests are missing, and results are less certain")
            }
            Note::Lost { count: None } => {
                write!(f, "the recorder lost events: requests are missing, and results are less certain")
            }
            Note::Unseen { what } => {
                write!(f, "not recorded: {what}: requests are missing, and results are less certain")
            }
            Note::TimesBack { count, longest_ns } => {
                let (unit, unit_ns) = match longest_ns {
                    ..1_000 => ("ns", 1),
                    ..1_000_000 => ("µs", 1_000),
                    ..1_000_000_000 => ("ms", 1_000_000),
                    _ => ("s", 1_000_000_000),
                };
                let longest = longest_ns / unit_ns;
                write!(
                    f,
                    "times go back {count} times, by up to {longest} {unit} (a counter that wraps, or files that were \
                     joined?): the order of the file counts"
                )
            }
            Note::OneProcessor => {
                write!(
                    f,
                    "these are the events of one processor: the file that ends in .blktrace.0 is read with all others"
                )
            }
            Note::Processors { files } => write!(f, "{files} files, one for each processor, are read as one trace"),
            Note::Positions { count } => {
                write!(f, "{count} files were open before the trace began; their first position is assumed to be 0")
            }
        }
    }
}
