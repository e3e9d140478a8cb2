//! What a user should know about how a trace was read.

use std::fmt;

/// Something about a reading that is no error but that a result depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Nothing states a unit, and it was found from the values.
    Unit {
        /// What has the unit: `times`, `offsets` or `lengths`.
        what: &'static str,
        /// The unit.
        unit: &'static str,
        /// What shows it.
        because: &'static str,
        /// The setting of the columns that states another unit.
        setting: &'static str,
    },
    /// The last line has no end, is not of the format, and was left out.
    CutShort {
        /// The line, counted from 1.
        line: u64,
    },
    /// Several kinds of events describe each request, and one of them was read.
    Events {
        /// The events that were read.
        read: &'static str,
    },
    /// Accesses that the trace does not place anywhere were left out.
    LeftOut {
        /// How many.
        count: u64,
        /// Of what kind.
        what: &'static str,
    },
    /// Files whose positions at the beginning of the trace are not recorded were read from position 0.
    Positions {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Note::Unit { what, unit, because, setting } => {
                write!(f, "{what} are taken as {unit}, because {because}; the column setting {setting} overrides this")
            }
            Note::CutShort { line } => write!(f, "line {line}, the last one, is cut short and was left out"),
            Note::Events { read } => {
                write!(f, "each request causes several events; {read} events are read, another action can be chosen")
            }
            Note::LeftOut { count, what } => write!(f, "{count} {what} were left out"),
            Note::Positions { count } => {
                write!(f, "{count} files were open before the trace began; their first position is taken as 0")
            }
        }
    }
}
