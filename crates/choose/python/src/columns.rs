//! Requests in Arrow columns, which are read in place.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use nigh_trace::{Field, Note, Offsets, Op, Request, Requests};

/// Requests that are read at a time.
const BATCH: usize = 4096;

/// Why columns are no requests.
#[derive(Debug)]
pub(crate) enum Problem {
    /// There is no column `offset`.
    NoOffset { found: String },
    /// A column's name is almost that of a field.
    Misspelt { column: String, field: &'static str },
    /// A name is given to two columns.
    Twice { column: String },
    /// A column's type does not match its field.
    Type { column: &'static str, found: DataType, expected: &'static str },
    /// A value does not match its field.
    Value { column: &'static str, row: u64, found: String, expected: &'static str },
    /// There are no rows.
    Empty,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NoOffset { found } => write!(f, "no column `offset`; the columns are {found}"),
            Problem::Misspelt { column, field } => {
                write!(f, "column `{column}`: did you mean `{field}`? Rename it, or leave it out")
            }
            Problem::Twice { column } => write!(f, "column `{column}` is there twice"),
            Problem::Type { column, found, expected } => {
                write!(f, "column `{column}` has type {found}, expected {expected}")
            }
            Problem::Value { column, row, found, expected } => {
                write!(f, "row {row}: column `{column}`: found {found}, expected {expected}")
            }
            Problem::Empty => write!(f, "no rows"),
        }
    }
}

impl std::error::Error for Problem {}

/// The columns of one batch by field.
struct Batch {
    columns: [Option<ArrayRef>; Field::ALL.len()],
    rows: usize,
}

/// The argument with the unit of offsets, in notes.
const OFFSET_UNIT: &str = "offset_unit='bytes', 'sectors' or 'blocks'";

/// Requests in columns.
pub(crate) struct Columns {
    batches: Vec<Batch>,
    /// The length of requests that have no column for it.
    block_bytes: u32,
    /// Bytes by which offsets count.
    offset_unit: u64,
    note: Option<Note>,
}

impl Columns {
    /// The columns of `batches` that have the names of fields, with offsets in units of this many bytes; `None` for bytes that nobody
    /// named. All values are checked.
    pub(crate) fn new(
        batches: &[RecordBatch],
        block_bytes: u32,
        offset_unit: Option<u64>,
    ) -> Result<Arc<Columns>, Problem> {
        let mut found = Vec::new();
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            found.push(Batch::new(batch)?);
        }
        if found.is_empty() {
            return Err(Problem::Empty);
        }
        let unit = offset_unit.unwrap_or(1);
        let mut columns = Arc::new(Columns { batches: found, block_bytes, offset_unit: unit, note: None });
        let mut reader = Reader::new(Arc::clone(&columns), PathBuf::new());
        let mut requests = Vec::new();
        let mut offsets = Offsets::default();
        loop {
            reader.read(&mut requests)?;
            if requests.is_empty() {
                break;
            }
            requests.iter().for_each(|request| offsets.see(request.offset, request.length.into()));
        }
        drop(reader);
        if offset_unit.is_none() {
            Arc::get_mut(&mut columns).expect("the reader is gone").note = offsets.note(OFFSET_UNIT);
        }
        Ok(columns)
    }

    /// A note on how the columns are read.
    pub(crate) fn note(&self) -> Option<Note> {
        self.note.clone()
    }
}

impl Batch {
    fn new(batch: &RecordBatch) -> Result<Batch, Problem> {
        let schema = batch.schema();
        let mut columns: [Option<ArrayRef>; Field::ALL.len()] = Default::default();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            let Some(at) = Field::ALL.iter().position(|known| known.name() == field.name()) else { continue };
            if columns[at].replace(Arc::clone(column)).is_some() {
                return Err(Problem::Twice { column: field.name().clone() });
            }
        }
        let is_missing = |field: &Field| columns[*field as usize].is_none();
        for column in schema.fields().iter().map(|field| field.name()) {
            if Field::ALL.iter().any(|field| field.name() == column) {
                continue;
            }
            let missing = Field::ALL.iter().filter(|field| is_missing(field)).map(|field| field.name());
            if let Some(field) = nigh_text::nearest(column, missing) {
                return Err(Problem::Misspelt { column: column.clone(), field });
            }
        }
        if is_missing(&Field::Offset) {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Problem::NoOffset { found: names.join(", ") });
        }
        Ok(Batch { columns, rows: batch.num_rows() })
    }
}

/// Reads the requests in [`Columns`] from the first.
pub(crate) struct Reader {
    columns: Arc<Columns>,
    /// In errors.
    name: PathBuf,
    batch: usize,
    /// The next row of this batch.
    row: usize,
    /// The rows before this batch.
    before: u64,
    /// The time of the last request.
    time_ns: u64,
}

impl Reader {
    pub(crate) fn new(columns: Arc<Columns>, name: PathBuf) -> Reader {
        Reader { columns, name, batch: 0, row: 0, before: 0, time_ns: 0 }
    }

    /// Replaces `requests` by the next ones.
    fn read(&mut self, requests: &mut Vec<Request>) -> Result<(), Problem> {
        requests.clear();
        let columns = Arc::clone(&self.columns);
        let Some(batch) = columns.batches.get(self.batch) else { return Ok(()) };
        let count = (batch.rows - self.row).min(BATCH);
        requests.resize(count, Request { length: columns.block_bytes, ..Request::default() });
        let first = self.before + self.row as u64;
        for (field, column) in Field::ALL.into_iter().zip(&batch.columns) {
            let Some(column) = column else { continue };
            let column = Part { values: column.slice(self.row, count), name: field.name(), first };
            match field {
                Field::Time => {
                    column.times(|at, value| requests[at].time_ns = value)?;
                    self.check_times(requests, first)?;
                }
                Field::Op => column.ops(|at, op| requests[at].op = op)?,
                Field::Volume => column.u32s(|at, value| requests[at].volume = value)?,
                Field::Offset => column.offsets(columns.offset_unit, |at, value| requests[at].offset = value)?,
                Field::Length => column.u32s(|at, value| requests[at].length = value)?,
                Field::Tenant => column.u32s(|at, value| requests[at].tenant = value)?,
                Field::Stream => column.u64s(|at, value| requests[at].stream = value)?,
                Field::Latency => column.times(|at, value| requests[at].latency_ns = value)?,
                Field::Content => column.u64s(|at, value| requests[at].content = value)?,
            }
        }
        self.row += count;
        if self.row == batch.rows {
            self.before += batch.rows as u64;
            (self.batch, self.row) = (self.batch + 1, 0);
        }
        Ok(())
    }

    fn check_times(&mut self, requests: &[Request], first: u64) -> Result<(), Problem> {
        for (row, request) in (first..).zip(requests) {
            if request.time_ns < self.time_ns {
                return Err(Problem::Value {
                    column: Field::Time.name(),
                    row,
                    found: format!("{} after {}", request.time_ns, self.time_ns),
                    expected: "times that never decrease: sort the rows by time",
                });
            }
            self.time_ns = request.time_ns;
        }
        Ok(())
    }
}

impl Requests for Reader {
    fn next_batch(&mut self, batch: &mut Vec<Request>) -> nigh_trace::Result<()> {
        self.read(batch).map_err(|problem| nigh_trace::Error::Io {
            path: self.name.clone(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, problem),
        })
    }

    fn progress(&self) -> Option<f64> {
        None
    }

    fn notes(&self) -> Vec<Note> {
        self.columns.note().into_iter().collect()
    }
}

/// A few rows of a column.
struct Part {
    values: ArrayRef,
    name: &'static str,
    /// The row of the first, counted from the first of all batches.
    first: u64,
}

const INTEGERS: &str = "integers";
const TIMES: &str = "integers (nanoseconds), timestamps or durations";
const OPS: &str = "the words read, write, trim and flush, or their numbers 0 to 3";

impl Part {
    fn wrong(&self, at: usize, found: impl fmt::Display, expected: &'static str) -> Problem {
        Problem::Value { column: self.name, row: self.first + at as u64, found: found.to_string(), expected }
    }

    fn wrong_type(&self, expected: &'static str) -> Problem {
        let data_type = self.values.data_type();
        // Missing values make floating-point numbers of pandas' integers: then that is the mistake.
        let missing = match data_type {
            DataType::Float64 => self.values.as_primitive::<Float64Type>().values().iter().position(|v| v.is_nan()),
            DataType::Float32 => self.values.as_primitive::<Float32Type>().values().iter().position(|v| v.is_nan()),
            _ => None,
        };
        match missing {
            Some(at) => self.wrong(at, "NaN", expected),
            None => Problem::Type { column: self.name, found: data_type.clone(), expected },
        }
    }

    fn check_nulls(&self, expected: &'static str) -> Result<(), Problem> {
        match self.values.logical_nulls().and_then(|nulls| (0..nulls.len()).find(|&at| nulls.is_null(at))) {
            Some(at) => Err(self.wrong(at, "nothing (null)", expected)),
            None => Ok(()),
        }
    }

    fn integers<T: ArrowPrimitiveType>(
        &self,
        mut give: impl FnMut(usize, T::Native) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        self.values.as_primitive::<T>().values().iter().enumerate().try_for_each(|(at, &value)| give(at, value))
    }

    /// Every value as a number up to `most`, times `factor`.
    fn numbers(&self, most: u64, factor: u64, mut give: impl FnMut(usize, u64)) -> Result<(), Problem> {
        const UP_TO_U32: &str = "a number from 0 to 4294967295";
        const UP_TO_U64: &str = "a number from 0 to 18446744073709551615";
        let expected = if most == u64::from(u32::MAX) { UP_TO_U32 } else { UP_TO_U64 };
        self.check_nulls(expected)?;
        macro_rules! each {
            ($type:ty) => {
                self.integers::<$type>(|at, value| {
                    let number = u64::try_from(value).ok().and_then(|value| value.checked_mul(factor));
                    let number = number.filter(|&number| number <= most);
                    give(at, number.ok_or_else(|| self.wrong(at, value, expected))?);
                    Ok(())
                })
            };
        }
        match self.values.data_type() {
            DataType::Int8 => each!(Int8Type),
            DataType::Int16 => each!(Int16Type),
            DataType::Int32 => each!(Int32Type),
            DataType::Int64 => each!(Int64Type),
            DataType::UInt8 => each!(UInt8Type),
            DataType::UInt16 => each!(UInt16Type),
            DataType::UInt32 => each!(UInt32Type),
            DataType::UInt64 => each!(UInt64Type),
            DataType::Timestamp(TimeUnit::Second, _) => each!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => each!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => each!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => each!(TimestampNanosecondType),
            DataType::Duration(TimeUnit::Second) => each!(DurationSecondType),
            DataType::Duration(TimeUnit::Millisecond) => each!(DurationMillisecondType),
            DataType::Duration(TimeUnit::Microsecond) => each!(DurationMicrosecondType),
            DataType::Duration(TimeUnit::Nanosecond) => each!(DurationNanosecondType),
            _ => Err(self.wrong_type(INTEGERS)),
        }
    }

    fn is_time(&self) -> bool {
        matches!(self.values.data_type(), DataType::Timestamp(..) | DataType::Duration(_))
    }

    fn u64s(&self, give: impl FnMut(usize, u64)) -> Result<(), Problem> {
        if self.is_time() { Err(self.wrong_type(INTEGERS)) } else { self.numbers(u64::MAX, 1, give) }
    }

    /// In bytes, of numbers in units of `unit` bytes.
    fn offsets(&self, unit: u64, give: impl FnMut(usize, u64)) -> Result<(), Problem> {
        if self.is_time() { Err(self.wrong_type(INTEGERS)) } else { self.numbers(u64::MAX, unit, give) }
    }

    fn u32s(&self, mut give: impl FnMut(usize, u32)) -> Result<(), Problem> {
        if self.is_time() {
            return Err(self.wrong_type(INTEGERS));
        }
        self.numbers(u64::from(u32::MAX), 1, |at, value| give(at, value as u32))
    }

    /// In nanoseconds.
    fn times(&self, give: impl FnMut(usize, u64)) -> Result<(), Problem> {
        let factor = match self.values.data_type() {
            DataType::Timestamp(unit, _) | DataType::Duration(unit) => match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => 1_000,
                TimeUnit::Nanosecond => 1,
            },
            data_type if data_type.is_integer() => 1,
            _ => return Err(self.wrong_type(TIMES)),
        };
        self.numbers(u64::MAX, factor, give)
    }

    fn ops(&self, mut give: impl FnMut(usize, Op)) -> Result<(), Problem> {
        self.check_nulls(OPS)?;
        let word = |at: usize, text: &str| {
            Op::named(text.as_bytes()).ok_or_else(|| self.wrong(at, format_args!("`{text}`"), OPS))
        };
        macro_rules! each {
            ($strings:expr) => {
                $strings.iter().enumerate().try_for_each(|(at, text)| {
                    give(at, word(at, text.unwrap_or_default())?);
                    Ok(())
                })
            };
        }
        match self.values.data_type() {
            DataType::Utf8 => each!(self.values.as_string::<i32>()),
            DataType::LargeUtf8 => each!(self.values.as_string::<i64>()),
            DataType::Utf8View => each!(self.values.as_string_view()),
            DataType::Dictionary(_, words) => {
                let dictionary = self.values.as_any_dictionary();
                let words: Vec<Option<&str>> = match words.as_ref() {
                    DataType::Utf8 => dictionary.values().as_string::<i32>().iter().collect(),
                    DataType::LargeUtf8 => dictionary.values().as_string::<i64>().iter().collect(),
                    DataType::Utf8View => dictionary.values().as_string_view().iter().collect(),
                    _ => return Err(self.wrong_type(OPS)),
                };
                for (at, key) in dictionary.normalized_keys().into_iter().enumerate() {
                    give(at, word(at, words.get(key).copied().flatten().unwrap_or_default())?);
                }
                Ok(())
            }
            data_type if data_type.is_integer() => {
                let mut wrong = None;
                self.numbers(u64::MAX, 1, |at, value| {
                    match usize::try_from(value).ok().and_then(|value| Op::ALL.get(value)) {
                        Some(&op) => give(at, op),
                        None => _ = wrong.get_or_insert((at, value)),
                    }
                })?;
                wrong.map_or(Ok(()), |(at, value)| Err(self.wrong(at, value, OPS)))
            }
            _ => Err(self.wrong_type(OPS)),
        }
    }
}
